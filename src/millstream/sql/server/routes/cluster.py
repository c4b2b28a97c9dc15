"""What a server says about itself: /info, /healthcheck, /v1/metadata, /clusterStatus, /is_valid_property."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from millstream.sql.errors import SqlError
from millstream.sql.server.peers import url_of
from millstream.sql.server.routes.requests import answer, bad_request, in_thread, service_of
from millstream.sql.session_properties import check_denied, check_name

router = APIRouter()
VERSION = "8.4.0"
"""What clients are told: the version of ksqlDB whose API this is."""


@router.get("/")
async def root(request: Request) -> Response:
    return await info(request)


@router.get("/info")
async def info(request: Request) -> Response:
    service = service_of(request)
    return answer(
        {
            "KsqlServerInfo": {
                "version": VERSION,
                "kafkaClusterId": service.cluster_id,
                "ksqlServiceId": service.config.service_id,
                "serverStatus": service.status,
            }
        }
    )


@router.get("/healthcheck")
async def healthcheck(request: Request) -> Response:
    service = service_of(request)
    details = await in_thread(service.health)
    healthy = all(details.values())
    body = {
        "isHealthy": healthy,
        "details": {name: {"isHealthy": good} for name, good in details.items()},
        "serverState": "READY" if service.status == "RUNNING" else service.status,
    }
    return answer(body, 200 if healthy else 503)


@router.get("/v1/metadata")
async def metadata(request: Request) -> Response:
    return answer({"version": VERSION, "clusterId": _cluster_id(request)})


@router.get("/v1/metadata/id")
async def metadata_id(request: Request) -> Response:
    return answer(_cluster_id(request))


def _cluster_id(request: Request) -> dict[str, object]:
    service = service_of(request)
    clusters = {"kafka-cluster": service.cluster_id, "ksql-cluster": service.config.service_id}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


@router.get("/clusterStatus")
async def cluster_status(request: Request) -> Response:
    service = service_of(request)
    now = int(time.time() * 1000)
    own = {
        "hostAlive": True,
        "lastStatusUpdateMs": now,
        "activeStandbyPerQuery": {},
        "hostStoreLags": {"stateStoreLags": {}, "updateTimeMs": now},
    }
    others = service.group.servers if service.group is not None else ()
    addresses = [service.address, *(url_of(server).partition("://")[2] for server in others)]
    return answer({"clusterStatus": dict.fromkeys(addresses, own)})


@router.get("/is_valid_property/{name}")
async def is_valid_property(request: Request, name: str) -> Response:
    try:
        check_name(name)
        check_denied((name,), service_of(request).config.value("ksql.properties.overrides.denylist"))
    except SqlError as error:
        raise bad_request(str(error)) from None
    return answer(True)
