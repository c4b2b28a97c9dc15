"""What the resources share: bodies, the service, answers and errors in ksqlDB's JSON."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from fastapi import Request, Response

from millstream.sql.errors import SqlError
from millstream.sql.functions.isolated import FunctionLost
from millstream.sql.server.entities import generic_error, statement_error

if TYPE_CHECKING:
    from millstream.sql.server.service import SqlService

MEDIA_TYPE = "application/vnd.ksql.v1+json"
DELIMITED = "application/vnd.ksqlapi.delimited.v1"

Result = TypeVar("Result")


class ApiError(Exception):
    """An answer other than 2xx, with its body."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body.get("message", ""))
        self.status, self.body = status, body


def bad_request(message: str, code: int = 40000, status: int = 400) -> ApiError:
    return ApiError(status, generic_error(message, code))


def of_sql_error(error: SqlError, statement: str) -> ApiError:
    """A statement that is refused. One that could not even be read is named by its own text."""
    text = error.statement if error.statement is not None else statement
    return ApiError(error.status, statement_error(str(error), text, error.error_code, error.entities))


def service_of(request: Any) -> SqlService:
    service: SqlService = request.app.state.service
    return service


def answer(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS), status, media_type=MEDIA_TYPE)


async def body_of(request: Request) -> dict[str, Any]:
    try:
        found = orjson.loads(await request.body() or b"{}")
    except orjson.JSONDecodeError:
        raise bad_request("Malformed JSON in request") from None
    if not isinstance(found, dict):
        raise bad_request("Malformed JSON in request: an object is needed")
    return found


def text_of(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise bad_request(f"Missing '{name}' in the request: it has to be a string")
    return value


def map_of(body: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        value = body.get(name)
        if isinstance(value, dict):
            return value
        if value is not None:
            raise bad_request(f"'{name}' has to be an object")
    return {}


async def in_thread(act: Callable[[], Result]) -> Result:
    """Statements wait for the cluster: not in the event loop."""

    def guarded() -> Result:
        try:
            return act()
        except FunctionLost as lost:
            raise SqlError(str(lost)) from None

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(None, context.run, guarded)
