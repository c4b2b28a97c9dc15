"""POST /ksql: statements that change or show something, one entity in the answer for each; and their
status."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from millstream.http.cluster_authentication import caller_of
from millstream.patterns import InvalidPattern
from millstream.sql.errors import SqlError
from millstream.sql.server.entities import generic_error
from millstream.sql.server.peers import authorization
from millstream.sql.server.routes.requests import (
    ApiError,
    answer,
    bad_request,
    body_of,
    in_thread,
    map_of,
    of_sql_error,
    service_of,
    text_of,
)

MAX_EXPRESSIONS = 1000  # of topics that go with the service

router = APIRouter()


@router.post("/ksql")
async def execute(request: Request) -> Response:
    body = await body_of(request)
    text = text_of(body, "ksql")
    service = service_of(request)
    properties, variables = map_of(body, "streamsProperties"), map_of(body, "sessionVariables")
    wait_for = body.get("commandSequenceNumber")
    authorization.set(_login_of(request))
    try:
        found = await in_thread(lambda: service.execute(text, properties, variables, wait_for))
    except SqlError as error:
        raise of_sql_error(error, text) from None
    return answer(found)


def _login_of(request: Request) -> str | None:
    """The header by which other servers know the caller, too; one who came by certificate has a token."""
    caller = caller_of(request.scope)
    delegated = caller.authorization if caller is not None else ""
    return delegated or request.headers.get("authorization")


@router.post("/ksql/terminate")
async def terminate(request: Request) -> Response:
    body = await body_of(request)
    topics = body.get("deleteTopicList") or []
    if not isinstance(topics, list) or not all(isinstance(one, str) for one in topics):
        raise bad_request("deleteTopicList has to be a list of expressions")
    if len(topics) > MAX_EXPRESSIONS:
        raise bad_request(f"deleteTopicList has more than {MAX_EXPRESSIONS} expressions")
    service = service_of(request)
    try:
        await in_thread(lambda: service.terminate_cluster(topics))
    except InvalidPattern as error:
        raise bad_request(f"Invalid pattern in deleteTopicList: {error}") from None
    return answer({"@type": "currentStatus", "commandStatus": {"status": "SUCCESS"}, "warnings": []})


@router.get("/status")
async def statuses(request: Request) -> Response:
    return answer({"commandStatuses": service_of(request).command_statuses()})


@router.get("/status/{kind}/{entity}/{operation}")
async def status(request: Request, kind: str, entity: str, operation: str) -> Response:
    found = service_of(request).command_status(f"{kind}/{entity}/{operation}")
    if found is None:
        raise ApiError(404, generic_error("Command not found", 40400))
    return answer(found)
