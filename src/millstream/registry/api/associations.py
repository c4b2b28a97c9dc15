"""/associations: which subjects hold the schemas of a topic.

`/contexts/c/associations` means subjects of the context c, where they name none; so does the query `context`.
"""

from typing import cast

from fastapi import APIRouter, Request, Response

from millstream.registry.api.forwarding import at_leader
from millstream.registry.api.responses import answer, flag, json_body, page, service_of, version_body
from millstream.registry.associations import errors
from millstream.registry.associations.commands import BatchResult, ResourceAssociations
from millstream.registry.associations.model import TOPIC, Association, Json
from millstream.registry.associations.requests import (
    GetRequest,
    Resource,
    association_request,
    batch_get_request,
    batch_request,
    lifecycle_of,
)
from millstream.registry.associations.state import AssociationFilter
from millstream.registry.commands import Steps
from millstream.registry.schema_records import Version
from millstream.registry.service import RegistryService

router = APIRouter(tags=["Associations"])

SEVERAL = 207  # the status of a batch, whose results may differ


@router.get("/associations/subjects/{subject:path}")
async def list_by_subject(subject: str, request: Request) -> Response:
    """The associations of a subject."""
    service = service_of(request)
    found = service.state.associations.of_subject(service.subject(subject), _filter(request))
    return _list(request, found)


@router.get("/associations/resources/{resource_namespace}/{resource_name}")
async def list_by_resource_name(resource_namespace: str, resource_name: str, request: Request) -> Response:
    """The associations of a topic; `-` in place of its name, or of its cluster, stands for any."""
    state = service_of(request).state.associations
    return _list(request, state.named(resource_name, resource_namespace, _filter(request)))


@router.get("/associations/resources/{resource_id}")
async def list_by_resource_id(resource_id: str, request: Request) -> Response:
    """The associations of a topic, by its id."""
    state = service_of(request).state.associations
    return _list(request, state.of_resource(resource_id, _filter(request)))


@router.post("/associations")
async def create_associations(request: Request) -> Response:
    """Create associations together with their topic; with a schema, it is registered."""
    return await _put(request, await json_body(request), creating=True)


@router.put("/associations/resources/{resource_id}")
async def update_associations(resource_id: str, request: Request) -> Response:
    """Create or update associations of an existing topic."""
    body = await json_body(request)
    if isinstance(body, dict):
        if body.get("resourceId") is None:
            body["resourceId"] = resource_id
        elif body["resourceId"] != resource_id:
            raise errors.invalid(
                "resourceId",
                "Resource ID in the path parameter does not match the resource ID in the request body",
            )
    return await _put(request, body, creating=False)


async def _put(request: Request, body: object, *, creating: bool) -> Response:
    commands = service_of(request).associations
    context, dry_run = request.query_params.get("context", ""), flag(request, "dryRun")

    def decide() -> Steps:
        wanted = association_request(body)
        wanted.check(creating=creating, dry_run=dry_run)
        return commands.put(context, wanted, creating=creating, dry_run=dry_run)

    return await at_leader(
        request, decide, lambda found: answer(_resource_body(cast(ResourceAssociations, found)))
    )


@router.delete("/associations/resources/{resource_id}")
async def delete_associations(resource_id: str, request: Request) -> Response:
    """Delete associations of a topic; with cascadeLifecycle also the subjects that it owns."""
    service = service_of(request)
    wanted = _filter(request)
    if not service.state.associations.of_resource(resource_id, wanted):
        raise errors.not_found(resource_id)
    return await at_leader(
        request,
        lambda: service.associations.delete(
            resource_id,
            str(wanted.resource_type),
            tuple(wanted.association_types),
            cascade=flag(request, "cascadeLifecycle"),
            dry_run=flag(request, "dryRun"),
        ),
        lambda _: Response(status_code=204),
    )


@router.post("/associations:batchMutate")
async def change_in_batch(request: Request) -> Response:
    """Create, update and delete associations of several topics."""
    commands = service_of(request).associations
    body = await json_body(request)
    context, dry_run = request.query_params.get("context", ""), flag(request, "dryRun")

    def render(found: object) -> Response:
        results = [_result(one) for one in cast(list[BatchResult], found)]
        return answer({"results": results}, SEVERAL)

    return await at_leader(
        request, lambda: commands.batch(context, batch_request(body), dry_run=dry_run), render
    )


@router.post("/associations:batchGet")
async def get_in_batch(request: Request) -> Response:
    """The associations of several topics, with includeSchemas also their schemas."""
    service = service_of(request)
    schemas = flag(request, "includeSchemas")
    questions = batch_get_request(await json_body(request))
    results = [_result(_answered(service, one, schemas=schemas)) for one in questions]
    return answer({"results": results}, SEVERAL)


def _answered(service: RegistryService, question: GetRequest, *, schemas: bool) -> BatchResult:
    wanted = AssociationFilter(question.resource_type, question.association_types, question.lifecycle)
    if question.resource_id is not None:
        found = service.state.associations.of_resource(question.resource_id, wanted)
    elif question.resource_name is None:
        return _no_answer("resourceId", "either resourceId or resourceName must be specified")
    elif question.resource_namespace is None:
        return _no_answer("resourceNamespace", "resourceNamespace is required when resourceName is specified")
    else:
        found = service.state.associations.named(question.resource_name, question.resource_namespace, wanted)
    first = found[0] if found else None
    resource = Resource(
        question.resource_name or (first.id.resource_name if first else ""),
        question.resource_namespace or (first.id.resource_namespace if first else ""),
        question.resource_id or (first.resource_id if first else None),
        question.resource_type,
    )
    return BatchResult(ResourceAssociations(resource, found, _latest(service, found) if schemas else {}))


def _no_answer(name: str, detail: str) -> BatchResult:
    message = f"Error while getting associations: property: {name}; detail: {detail}"
    return BatchResult(error={"error_code": 500, "message": message})


def _latest(service: RegistryService, associations: list[Association]) -> dict[str, Version]:
    found = {one.id.association_type: service.state.version(one.id.subject, -1) for one in associations}
    return {name: version for name, version in found.items() if version is not None}


# What the routes share


def _filter(request: Request) -> AssociationFilter:
    query = request.query_params
    return AssociationFilter(
        query.get("resourceType") or TOPIC,
        tuple(query.getlist("associationType")),
        lifecycle_of(query.get("lifecycle") or None),
    )


def _list(request: Request, associations: list[Association]) -> Response:
    return answer([one.body() for one in page(request, associations)])


def _result(one: BatchResult) -> Json:
    if one.result is None:
        return {"error": one.error}
    return {"result": _resource_body(one.result)}


def _resource_body(found: ResourceAssociations) -> Json:
    body = {name: value for name, value in found.resource.body().items() if value}
    if found.associations:
        body["associations"] = [_with_schema(one, found.schemas) for one in found.associations]
    return body


def _with_schema(one: Association, schemas: dict[str, Version]) -> Json:
    version = schemas.get(one.id.association_type)
    if version is None:
        return one.summary()
    return {**one.summary(), "schema": version_body(version)}
