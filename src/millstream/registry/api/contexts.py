"""/contexts, and what the registry tells about itself."""

from fastapi import APIRouter, Request, Response

from millstream import __version__
from millstream.registry import contexts
from millstream.registry.api.forwarding import at_leader
from millstream.registry.api.responses import answer, page, service_of

router = APIRouter(tags=["Contexts"])
about_router = APIRouter(tags=["Server Metadata"])


@router.get("/contexts")
async def list_contexts(request: Request) -> Response:
    """All contexts."""
    names = [contexts.DEFAULT, *sorted(service_of(request).state.contexts)]
    prefix = request.query_params.get("contextPrefix", "")
    return answer(page(request, [name for name in names if name.startswith(prefix)]))


@router.delete("/contexts/{context}")
async def delete_context(context: str, request: Request) -> Response:
    """Delete a context that has no subjects."""
    service = service_of(request)
    name = contexts.with_dot(context)
    return await at_leader(
        request, lambda: service.commands.delete_context(name), lambda _: Response(status_code=204)
    )


@about_router.get("/")
async def root() -> Response:
    """The registry is there."""
    return answer({})


@about_router.get("/v1/metadata/id")
async def server_id(request: Request) -> Response:
    """Which Kafka cluster and which group of registries this is."""
    service = service_of(request)
    clusters = {
        "kafka-cluster": service.cluster_id or "",
        "schema-registry-cluster": service.options.election.group_id,
    }
    return answer({"scope": {"path": [], "clusters": clusters}})


@about_router.get("/v1/metadata/version")
async def server_version() -> Response:
    """The version of this program."""
    return answer({"version": f"millstream-{__version__}", "commitId": ""})


@about_router.get("/v1/metadata/deployment")
async def server_deployment() -> Response:
    """Attributes of the deployment: Confluent's cloud has some, a registry of one's own has none."""
    return answer({"attributes": []})


@about_router.get("/health")
async def health(request: Request) -> Response:
    """Whether requests can be served, and who leads."""
    service = service_of(request)
    leader = service.leader.url if service.leader else None
    return answer({"status": "UP", "leader": leader, "leads": service.leads})
