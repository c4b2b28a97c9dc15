"""/compatibility: whether a schema could be registered. verbose=true tells why not."""

from fastapi import APIRouter, Request, Response

from millstream.registry import errors
from millstream.registry.api.authorization import require_references
from millstream.registry.api.responses import answer, flag, json_body, service_of, version_number
from millstream.registry.errors import RegistryError
from millstream.registry.requests import schema_request
from millstream.registry.schema_records import Version

router = APIRouter(tags=["Compatibility"])


@router.post("/compatibility/subjects/{subject:subject}/versions/{version}")
async def with_version(subject: str, version: str, request: Request) -> Response:
    """Against one version."""
    service = service_of(request)
    number = version_number(version)
    subject = service.subject(subject)
    found = service.state.version(subject, number)
    if found is None and number != -1:
        raise errors.version_not_found(number)
    return await _check(request, subject, [found] if found else [])


@router.post("/compatibility/subjects/{subject:subject}/versions")
async def with_subject(subject: str, request: Request) -> Response:
    """As registering would check it."""
    service = service_of(request)
    subject = service.subject(subject)
    return await _check(request, subject, list(service.state.all_versions(subject)))


async def _check(request: Request, subject: str, earlier: list[Version]) -> Response:
    service = service_of(request)
    wanted = schema_request(await json_body(request))
    await require_references(request, wanted.references, subject)
    verbose = flag(request, "verbose")
    try:
        problems = service.commands.check_compatibility(
            subject, wanted, earlier, normalize=flag(request, "normalize")
        )
    except RegistryError as error:
        if not verbose or error.code != 42201:
            raise
        problems = [error.message]
    body: dict[str, object] = {"is_compatible": not problems}
    if verbose and problems:
        body["messages"] = problems
    return answer(body)
