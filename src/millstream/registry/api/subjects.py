"""/subjects: subjects and their versions."""

from typing import Any, cast

from fastapi import APIRouter, Request, Response

from millstream.registry import contexts, errors
from millstream.registry.api.authorization import is_readable, require_references, require_resolvable
from millstream.registry.api.forwarding import at_leader
from millstream.registry.api.patterns import subject_filter
from millstream.registry.api.responses import (
    answer,
    flag,
    formatted,
    json_body,
    page,
    schema_body,
    service_of,
    text_answer,
    version_body,
    version_number,
    with_qualified_references,
    with_schema_tags,
)
from millstream.registry.commands import Change
from millstream.registry.dek.rule_defaults import with_kek_names
from millstream.registry.requests import schema_request, tags_request
from millstream.registry.schema_records import Version
from millstream.registry.service import RegistryService

router = APIRouter(tags=["Subjects"])


@router.get("/subjects")
async def list_subjects(request: Request) -> Response:
    """All subjects. subjectPrefix, pattern: only some; deleted, deletedOnly: soft-deleted ones."""
    service = service_of(request)
    wanted = subject_filter(request, default=":*:")
    only = flag(request, "deletedOnly")
    readable = is_readable(request)
    names = []
    for name in sorted(service.state.versions):
        if not wanted(name) or not readable(name):
            continue
        alive = service.state.has_subject(name)
        if (not alive) if only else (alive or flag(request, "deleted")):
            names.append(name)
    return answer(page(request, names))


@router.get("/subjects/{subject:subject}/versions")
async def list_versions(subject: str, request: Request) -> Response:
    """The version numbers of a subject."""
    service = service_of(request)
    subject = service.subject(subject)
    only, negative = flag(request, "deletedOnly"), flag(request, "deletedAsNegative")
    deleted = flag(request, "deleted") or only or negative
    if not service.state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    numbers = [
        -one.version if negative and one.deleted else one.version
        for one in service.state.all_versions(subject, deleted=deleted)
        if one.deleted or not only
    ]
    return answer(page(request, numbers))


@router.get("/subjects/{subject:subject}/versions/{version}")
async def get_version(subject: str, version: str, request: Request) -> Response:
    """One version of a subject, by number or `latest`."""
    service = service_of(request)
    found = find_version(service, subject, version, deleted=flag(request, "deleted"))
    await require_resolvable(request, found)
    body = version_body(found, text=formatted(service, found, request.query_params.get("format", "")))
    if request.query_params.get("referenceFormat") == "qualified":
        with_qualified_references(body, found)
    with_schema_tags(body, service, found, request)
    return answer(body)


@router.get("/subjects/{subject:subject}/versions/{version}/schema")
async def get_version_schema(subject: str, version: str, request: Request) -> Response:
    """The schema of a version, alone."""
    service = service_of(request)
    found = find_version(service, subject, version, deleted=flag(request, "deleted"))
    await require_resolvable(request, found)
    return text_answer(formatted(service, found, request.query_params.get("format", "")))


@router.get("/subjects/{subject:subject}/versions/{version}/referencedby")
async def get_referenced_by(subject: str, version: str, request: Request) -> Response:
    """The ids of schemas that refer to this one."""
    service = service_of(request)
    found = find_version(service, subject, version, deleted=True)
    users = service.state.referrers(found.subject, found.version, deleted=flag(request, "deleted"))
    return answer(page(request, sorted({one.id for one in users})))


@router.post("/subjects/{subject:subject}/versions/{version}/tags")
async def change_tags(subject: str, version: str, request: Request) -> Response:
    """Register a schema once more with other tags, metadata or rules."""
    service = service_of(request)
    if not contexts.is_valid(subject):
        raise errors.invalid_subject(subject)
    real = service.subject(subject)  # before the body, during which an alias may change
    _version_of(service, real, version, deleted=False)
    wanted = tags_request(await json_body(request))
    wanted.rule_set = with_kek_names(wanted.rule_set)

    def decide() -> Change:
        found = _version_of(service, real, version, deleted=False)
        return service.commands.change_tags(real, found, wanted)

    return await at_leader(request, decide, lambda made: _registered(service, cast(Version, made)))


@router.post("/subjects/{subject:subject}/versions")
async def register(subject: str, request: Request) -> Response:
    """Register a schema. The same schema again gives the same id."""
    service = service_of(request)
    if not contexts.is_valid(subject, empty=not service.options.reject_empty_subject):
        raise errors.invalid_subject(subject)
    subject = service.subject(subject)
    wanted = schema_request(await json_body(request))
    wanted.rule_set = with_kek_names(wanted.rule_set)
    normalize, force = flag(request, "normalize"), flag(request, "force")
    form = request.query_params.get("format", "")
    await require_references(request, wanted.references, subject)

    # A schema that is there already is answered by any instance.
    known = service.queries.registered(subject, wanted, normalize=normalize)
    if known is not None:
        return _registered(service, known, form)
    return await at_leader(
        request,
        lambda: service.commands.register(subject, wanted, normalize=normalize, force=force),
        lambda made: _registered(service, cast(Version, made), form),
    )


def _registered(service: RegistryService, made: Version, form: str = "") -> Response:
    body: dict[str, Any] = {"id": made.id, "version": made.version}
    body.update(schema_body(made, text=formatted(service, made, form)))
    if made.content.schema_type == "PROTOBUF" and not form.strip():
        # Confluent's Python client sends a descriptor and takes what comes back for one.
        del body["schema"]
    return answer(body)


@router.delete("/subjects/{subject:subject}/versions/{version}")
async def delete_version(subject: str, version: str, request: Request) -> Response:
    """Delete a version: softly, or once that is done for good (permanent=true)."""
    service = service_of(request)
    number = version_number(version)
    subject = service.subject(subject)
    permanent = flag(request, "permanent")
    return await at_leader(
        request, lambda: service.commands.delete_version(subject, number, permanent=permanent), answer
    )


@router.get("/subjects/{subject:subject}/metadata")
async def latest_with_metadata(subject: str, request: Request) -> Response:
    """The latest version whose metadata has these properties (key=...&value=...)."""
    service = service_of(request)
    subject = service.subject(subject)
    deleted = flag(request, "deleted")
    wanted = dict(
        zip(request.query_params.getlist("key"), request.query_params.getlist("value"), strict=False)
    )
    for one in reversed(list(service.state.all_versions(subject, deleted=deleted))):
        properties: dict[str, Any] = (one.content.metadata or {}).get("properties") or {}
        if one.content.metadata is not None and wanted.items() <= properties.items():
            await require_resolvable(request, one)
            text = formatted(service, one, request.query_params.get("format", ""))
            return answer(version_body(one, text=text))
    if not service.state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.schema_not_found()


@router.post("/subjects/{subject:subject}")
async def look_up(subject: str, request: Request) -> Response:
    """Find the version of a subject that has this schema."""
    service = service_of(request)
    subject = service.subject(subject)
    wanted = schema_request(await json_body(request))
    await require_references(request, wanted.references, subject)
    deleted = flag(request, "deleted")
    normalize = flag(request, "normalize")
    found = None
    for candidate in _with_contexts(service, subject):
        if candidate != subject and candidate not in service.state.versions:
            continue
        found = service.queries.look_up(candidate, wanted, normalize=normalize, deleted=deleted)
        if found is not None:
            break
    if found is None:
        if not service.state.has_subject(subject, deleted=deleted):
            raise errors.subject_not_found(subject)
        raise errors.schema_not_found()
    await require_resolvable(request, found)
    text = formatted(service, found, request.query_params.get("format", ""))
    return answer(version_body(found, text=text))


@router.delete("/subjects/{subject:subject}")
async def delete_subject(subject: str, request: Request) -> Response:
    """Delete a subject with all its versions."""
    service = service_of(request)
    subject = service.subject(subject)
    permanent = flag(request, "permanent")
    return await at_leader(
        request, lambda: service.commands.delete_subject(subject, permanent=permanent), answer
    )


def find_version(service: RegistryService, subject: str, version: str, *, deleted: bool) -> Version:
    return _version_of(service, service.subject(subject), version, deleted=deleted)


def _version_of(service: RegistryService, subject: str, version: str, *, deleted: bool) -> Version:
    """The same for a subject that is no alias any more."""
    number = version_number(version)
    for candidate in _with_contexts(service, subject):
        found = service.state.version(candidate, number, deleted=deleted)
        if found is not None:
            return found
    if not service.state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(number)


def _with_contexts(service: RegistryService, subject: str) -> list[str]:
    """A subject without a context is looked for in the default one first, then in the others."""
    parsed = contexts.parse(subject)
    if parsed.context != contexts.DEFAULT:
        return [subject]
    return [subject, *(f":{context}:{parsed.name}" for context in service.state.contexts)]
