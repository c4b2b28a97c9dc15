"""/schemas: schemas by id and by guid."""

import uuid
from collections.abc import Iterator

from fastapi import APIRouter, Request, Response

from millstream.registry import contexts, errors
from millstream.registry.api.patterns import subject_filter
from millstream.registry.api.responses import (
    answer,
    flag,
    formatted,
    page,
    service_of,
    text_answer,
    version_body,
    wants_all,
)
from millstream.registry.schema_records import Version, references_json
from millstream.registry.service import RegistryService
from millstream.schemas import TYPES, Reference

router = APIRouter(tags=["Schemas"])


@router.get("/schemas")
async def list_schemas(request: Request) -> Response:
    """All versions of all subjects. latestOnly: of each subject the newest."""
    service = service_of(request)
    wanted = subject_filter(request)
    deleted, latest = flag(request, "deleted"), flag(request, "latestOnly")
    rule_type = request.query_params.get("ruleType")

    def found() -> Iterator[Version]:
        for subject in sorted(service.state.versions):
            if wanted(subject):
                versions = list(service.state.all_versions(subject, deleted=deleted))
                yield from versions[-1:] if latest else versions

    selected = [one for one in found() if not rule_type or _has_rule(one, rule_type)]
    return answer([version_body(one, request) for one in page(request, selected)])


def _has_rule(version: Version, rule_type: str) -> bool:
    rules = version.content.rule_set or {}
    return any(
        rule.get("type") == rule_type for kind in rules.values() if isinstance(kind, list) for rule in kind
    )


@router.get("/schemas/types")
async def list_types() -> Response:
    """The schema languages that this registry knows."""
    return answer(list(TYPES))


@router.get("/schemas/ids/{schema_id}")
async def get_schema(schema_id: str, request: Request) -> Response:
    """A schema by its id."""
    service = service_of(request)
    found = _by_id(service, schema_id, request)
    form = request.query_params.get("format", "")
    body = {"schema": formatted(service, found, form), **found.content.fields()}
    if wants_all(request):
        body["guid"] = found.content.guid
    if request.query_params.get("referenceFormat") == "qualified" and found.content.references:
        body["references"] = references_json(
            tuple(
                Reference(one.name, contexts.within(one.subject, found.subject), one.version)
                for one in found.content.references
            )
        )
    if flag(request, "fetchMaxId"):
        body["maxId"] = service.state.highest_ids.get(contexts.context_of(found.subject), 0)
    return answer(body)


@router.get("/schemas/ids/{schema_id}/schema")
async def get_schema_only(schema_id: str, request: Request) -> Response:
    """A schema by its id, alone."""
    service = service_of(request)
    found = _by_id(service, schema_id, request)
    return text_answer(formatted(service, found, request.query_params.get("format", "")))


@router.get("/schemas/ids/{schema_id}/subjects")
async def get_subjects(schema_id: str, request: Request) -> Response:
    """The subjects that have a schema."""
    users = _users(service_of(request), schema_id, request)
    return answer(page(request, list(dict.fromkeys(one.subject for one in users))))


@router.get("/schemas/ids/{schema_id}/versions")
async def get_versions(schema_id: str, request: Request) -> Response:
    """The subjects that have a schema, with the version."""
    users = _users(service_of(request), schema_id, request)
    return answer(page(request, [{"subject": one.subject, "version": one.version} for one in users]))


@router.get("/schemas/guids/{guid}")
async def get_by_guid(guid: str, request: Request) -> Response:
    """A schema by its guid, which is the same in every registry."""
    service = service_of(request)
    for context, schema_id in service.state.ids_of(_digest(guid)):
        found = service.state.content(context, schema_id)
        if found is not None:
            text = formatted(service, found, request.query_params.get("format", ""))
            return answer({"schema": text, **found.content.fields(), "guid": found.content.guid})
    raise errors.schema_not_found(guid)


@router.get("/schemas/guids/{guid}/ids")
async def get_ids_by_guid(guid: str, request: Request) -> Response:
    """The ids that a schema has, context by context."""
    ids = service_of(request).state.ids_of(_digest(guid))
    return answer([{"context": context, "id": schema_id} for context, schema_id in ids])


def _digest(guid: str) -> bytes:
    try:
        return uuid.UUID(guid).bytes
    except ValueError:
        raise errors.schema_not_found(guid) from None


def _number(schema_id: str) -> int:
    try:
        value = int(schema_id)
    except ValueError:
        raise errors.http_error(404, "HTTP 404 Not Found") from None
    if abs(value) >= 2**31:
        raise errors.http_error(404, "HTTP 404 Not Found")
    return value


def _places(service: RegistryService, request: Request) -> list[str]:
    """The contexts to look for an id in: that of the subject given, else the default one before all
    others."""
    subject = request.query_params.get("subject")
    if subject:
        parsed = contexts.parse(subject)
        if parsed.context != contexts.DEFAULT:
            return [parsed.context]
        if parsed.name:  # the subject's own context counts, wherever it is
            own = [c for c in service.state.contexts if f":{c}:{parsed.name}" in service.state.versions]
            return [contexts.DEFAULT, *own]
    return [contexts.DEFAULT]


def _by_id(service: RegistryService, schema_id: str, request: Request) -> Version:
    number = _number(schema_id)
    for context in _places(service, request):
        found = service.state.content(context, number)
        if found is not None:
            return found
    raise errors.schema_not_found(number)


def _users(service: RegistryService, schema_id: str, request: Request) -> list[Version]:
    number = _number(schema_id)
    deleted = flag(request, "deleted")
    for context in _places(service, request):
        users = service.state.users(context, number)
        if users:
            return sorted(
                (one for one in users if deleted or not one.deleted),
                key=lambda one: (one.subject, one.version),
            )
    raise errors.schema_not_found()
