"""/schemas: schemas by id and by guid."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import APIRouter, Request, Response

from millstream.http.cluster_authentication import caller_of
from millstream.registry import contexts, errors
from millstream.registry.api.authorization import is_readable, readable_users, require_resolvable
from millstream.registry.api.patterns import subject_filter
from millstream.registry.api.responses import (
    answer,
    flag,
    formatted,
    page,
    schema_body,
    service_of,
    text_answer,
    version_body,
    with_qualified_references,
    with_schema_tags,
)
from millstream.registry.associations.model import LIFECYCLES
from millstream.registry.associations.state import AssociationFilter
from millstream.registry.errors import RegistryError
from millstream.registry.schema_records import Version
from millstream.registry.service import RegistryService
from millstream.schemas import TYPES

router = APIRouter(tags=["Schemas"])

UNASSOCIATED = "NONE"  # in place of a lifecycle: subjects without associations


@router.get("/schemas")
async def list_schemas(request: Request) -> Response:
    """All versions of all subjects of the default context; of all contexts with subjectPrefix=:*:.
    latestOnly: of each subject the newest; aliases: also what aliases stand for; associationType, lifecycle:
    what topics are associated with."""
    service = service_of(request)
    wanted = subject_filter(request, default="")
    deleted, latest = flag(request, "deleted"), flag(request, "latestOnly")
    rule_type = request.query_params.get("ruleType")
    aliases = _aliases(service, wanted) if flag(request, "aliases") else {}
    readable = is_readable(request)

    def found() -> Iterator[Version]:
        for subject in sorted(service.state.versions):
            if (wanted(subject) or subject in aliases) and readable(subject):
                versions = list(service.state.all_versions(subject, deleted=deleted))
                yield from versions[-1:] if latest else versions

    bodies = []
    associations = _association_filter(service, request)
    for one in found():
        if rule_type and not _has_rule(one, rule_type):
            continue
        associated = associations(one.subject)
        if associated is not None:
            more = {"aliases": aliases.get(one.subject), "associations": associated}
            bodies.append((one, {name: value for name, value in more.items() if value}))
    return answer([{**version_body(one), **more} for one, more in page(request, bodies)])


def _aliases(service: RegistryService, wanted: Callable[[str], bool]) -> dict[str, list[str]]:
    """The subjects that aliases stand for, with these aliases."""
    found: dict[str, list[str]] = {}
    for name, config in service.state.configs.items():
        if name is not None and config.get("alias") and wanted(name):
            found.setdefault(contexts.within(str(config["alias"]), name), []).append(name)
    return found


def _association_filter(
    service: RegistryService, request: Request
) -> Callable[[str], list[dict[str, Any]] | None]:
    """The associations of a subject that the query asks for; None where the subject is left out."""
    query = request.query_params
    resource_type, types = query.get("resourceType"), query.getlist("associationType")
    lifecycles = query.getlist("lifecycle")
    if not set(lifecycles) <= {*LIFECYCLES, UNASSOCIATED}:
        raise errors.http_error(404, "HTTP 404 Not Found")
    if resource_type is None and not types and not lifecycles:
        return lambda subject: []
    wanted = AssociationFilter(resource_type, types)

    def associated(subject: str) -> list[dict[str, Any]] | None:
        found = service.state.associations.of_subject(subject, wanted)
        if not found:
            return [] if UNASSOCIATED in lifecycles else None
        return [one.body() for one in found if not lifecycles or one.lifecycle in lifecycles] or None

    return associated


def _has_rule(version: Version, rule_type: str) -> bool:
    rules = version.content.rule_set or {}
    return any(
        rule.get("type") == rule_type for phase in rules.values() if isinstance(phase, list) for rule in phase
    )


@router.get("/schemas/types")
async def list_types() -> Response:
    """The schema languages that this registry knows."""
    return answer(list(TYPES))


@router.get("/schemas/ids/{schema_id}")
async def get_schema(schema_id: str, request: Request) -> Response:
    """A schema by its id, with a subject and version that have it."""
    service = service_of(request)
    found = await _by_id(service, schema_id, request)
    await require_resolvable(request, found)
    text = formatted(service, found, request.query_params.get("format", ""))
    body: dict[str, Any] = {"subject": found.subject, "version": found.version}
    body.update(schema_body(found, text=text))
    if request.query_params.get("referenceFormat") == "qualified":
        with_qualified_references(body, found)
    with_schema_tags(body, service, found, request)
    if flag(request, "fetchMaxId"):
        body["maxId"] = service.state.highest_ids.get(contexts.context_of(found.subject), 0)
    return answer(body)


@router.get("/schemas/ids/{schema_id}/schema")
async def get_schema_only(schema_id: str, request: Request) -> Response:
    """A schema by its id, alone."""
    service = service_of(request)
    found = await _by_id(service, schema_id, request)
    await require_resolvable(request, found)
    return text_answer(formatted(service, found, request.query_params.get("format", "")))


@router.get("/schemas/ids/{schema_id}/subjects")
async def get_subjects(schema_id: str, request: Request) -> Response:
    """The subjects that have a schema."""
    users = await _users(service_of(request), schema_id, request)
    return answer(page(request, list(dict.fromkeys(one.subject for one in users))))


@router.get("/schemas/ids/{schema_id}/versions")
async def get_versions(schema_id: str, request: Request) -> Response:
    """The subjects that have a schema, with the version."""
    users = await _users(service_of(request), schema_id, request)
    return answer(page(request, [{"subject": one.subject, "version": one.version} for one in users]))


@router.get("/schemas/guids/{guid}")
async def get_by_guid(guid: str, request: Request) -> Response:
    """A schema by its guid, which is the same in every registry."""
    service = service_of(request)
    denied: RegistryError | None = None
    for context, schema_id in service.state.ids_of(_digest(guid)):
        found = service.state.content(context, schema_id)
        if found is None:
            continue
        try:
            found = await _readable(service, found, request)
        except RegistryError as error:
            if error.status != 403:
                raise
            denied = error  # another context may have it in a subject that the caller may read
            continue
        await require_resolvable(request, found)
        text = formatted(service, found, request.query_params.get("format", ""))
        return answer(schema_body(found, text=text))
    raise denied or errors.schema_not_found(guid)


@router.get("/schemas/guids/{guid}/ids")
async def get_ids_by_guid(guid: str, request: Request) -> Response:
    """The ids that a schema has, context by context."""
    state = service_of(request).state
    ids = state.ids_of(_digest(guid))
    if ids:
        users = [one for context, schema_id in ids for one in state.users(context, schema_id)]
        may = {contexts.context_of(one.subject) for one in await readable_users(request, users)}
        ids = [one for one in ids if one[0] in may]
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


async def _by_id(service: RegistryService, schema_id: str, request: Request) -> Version:
    number = _number(schema_id)
    found = _find(service, number, request)
    if found is None:
        raise errors.schema_not_found(number)
    return await _readable(service, found, request)


async def _readable(service: RegistryService, found: Version, request: Request) -> Version:
    """The same schema of a subject that the caller may read."""
    if caller_of(request.scope) is None:
        return found
    users = service.state.users(contexts.context_of(found.subject), found.id)
    readable = await readable_users(request, users)
    return found if found in readable else next((one for one in readable if not one.deleted), readable[0])


def _find(service: RegistryService, number: int, request: Request) -> Version | None:
    """An id belongs to a context: that of `subject`, else the default one.

    A subject without a context is looked for in all of them, and only then is it enough that the default
    context has the id. A subject with one must have the id itself.
    """
    state = service.state
    subject = service.subject(request.query_params.get("subject", ""))
    context, name = contexts.parse(subject)
    if not name:
        return state.content(context, number)
    found = state.content(context, number, subject)
    if found is not None or context != contexts.DEFAULT:
        return found
    for other in state.contexts:
        found = state.content(other, number, contexts.Subject(other, name).qualified)
        if found is not None:
            return found
    return state.content(context, number)


async def _users(service: RegistryService, schema_id: str, request: Request) -> list[Version]:
    deleted = flag(request, "deleted")
    found = _find(service, _number(schema_id), request)
    if found is None:
        raise errors.schema_not_found()
    users = await readable_users(request, service.state.users(contexts.context_of(found.subject), found.id))
    return sorted(
        (one for one in users if deleted or not one.deleted), key=lambda one: (one.subject, one.version)
    )
