"""Version 3: the cluster and its brokers."""

from fastapi import APIRouter, Request, Response

from millstream.client import Admin
from millstream.client.cluster import Node
from millstream.rest import errors
from millstream.rest.api.links import Json, Links, links
from millstream.rest.api.responses import base_url, path_number, service_of, url, v3
from millstream.rest.api.v3_topics import replica, topic_states

router = APIRouter(prefix="/v3/clusters", tags=["v3 clusters"])


@router.get("")
async def list_clusters(request: Request) -> Response:
    """The cluster behind this proxy, in a list."""
    kafka = service_of(request).kafka
    shown = Links(request, await kafka.cluster_id())
    _, controller, _ = await kafka.run(lambda cluster: Admin(cluster).describe_cluster())
    address = url(base_url(request), "v3", "clusters")
    metadata = {"self": address, "next": None}
    return v3({"kind": "KafkaClusterList", "metadata": metadata, "data": [_cluster(shown, controller)]})


@router.get("/{cluster_id}")
async def get_cluster(cluster_id: str, request: Request) -> Response:
    """A cluster."""
    shown = await links(request)
    _, controller, _ = await service_of(request).kafka.run(lambda cluster: Admin(cluster).describe_cluster())
    return v3(_cluster(shown, controller))


@router.get("/{cluster_id}/brokers")
async def list_brokers(cluster_id: str, request: Request) -> Response:
    """The brokers."""
    shown = await links(request)
    data = [_broker(shown, one) for one in await nodes(request)]
    return v3(shown.collection("KafkaBrokerList", ("brokers",), data))


@router.get("/{cluster_id}/brokers/{broker_id}")
async def get_broker(cluster_id: str, broker_id: str, request: Request) -> Response:
    """A broker."""
    shown = await links(request)
    return v3(_broker(shown, await node(request, path_number(broker_id))))


@router.get("/{cluster_id}/brokers/{broker_id}/partition-replicas")
async def list_replicas_of_broker(cluster_id: str, broker_id: str, request: Request) -> Response:
    """The partitions that a broker has a copy of."""
    shown = await links(request)
    broker = (await node(request, path_number(broker_id))).id
    states = await service_of(request).kafka.run(topic_states)
    data = [
        replica(shown, state.name, one, broker)
        for state in states
        for one in state.partitions
        if broker in one.replicas
    ]
    return v3(shown.collection("KafkaReplicaList", ("brokers", broker, "partition-replicas"), data))


async def nodes(request: Request) -> list[Node]:
    return await service_of(request).kafka.run(lambda cluster: Admin(cluster).brokers())


async def node(request: Request, broker_id: int) -> Node:
    found = next((one for one in await nodes(request) if one.id == broker_id), None)
    if found is None:
        raise errors.not_found(f"Broker {broker_id} cannot be found.")
    return found


def _cluster(shown: Links, controller: int) -> Json:
    made = shown.resource(
        "KafkaCluster",
        (),
        (),
        controller=shown.related("brokers", controller) if controller >= 0 else None,
        acls=shown.related("acls"),
        brokers=shown.related("brokers"),
        broker_configs=shown.related("broker-configs"),
        consumer_groups=shown.related("consumer-groups"),
        topics=shown.related("topics"),
        partition_reassignments=shown.related("topics", "-", "partitions", "-", "reassignment"),
    )
    return made


def _broker(shown: Links, one: Node) -> Json:
    return shown.resource(
        "KafkaBroker",
        ("brokers", one.id),
        [("broker", one.id)],
        broker_id=one.id,
        host=one.host,
        port=one.port,
        rack=getattr(one, "rack", None),
        configs=shown.related("brokers", one.id, "configs"),
        partition_replicas=shown.related("brokers", one.id, "partition-replicas"),
    )
