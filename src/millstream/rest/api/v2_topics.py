"""Version 2: topics, partitions, offsets, brokers."""

from typing import Any

from fastapi import APIRouter, Request, Response

from millstream.client import EARLIEST, LATEST, Admin, Cluster, list_offsets
from millstream.client.admin import TOPIC, PartitionState, TopicState
from millstream.rest import errors
from millstream.rest.api.responses import json_body, path_number, service_of, v2
from millstream.rest.consumer_instances import INTERNAL
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

router = APIRouter(tags=["v2 topics"])
MISSING = (ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_topic_exception)


@router.get("/")
async def root() -> Response:
    """Whether the proxy is there."""
    return v2({})


@router.post("/")
async def post_root(request: Request) -> Response:
    """The same, with a body."""
    if not isinstance(await json_body(request), dict):
        raise errors.http_error(400, "the body must be a JSON object")
    return v2({})


@router.get("/brokers")
async def brokers(request: Request) -> Response:
    """Ids of the brokers."""
    found = await service_of(request).kafka.run(lambda cluster: Admin(cluster).brokers())
    return v2({"brokers": [one.id for one in found]})


@router.get("/topics")
async def topics(request: Request) -> Response:
    """Names of the topics."""
    found = await service_of(request).kafka.run(lambda cluster: Admin(cluster).topic_names())
    return v2([name for name in found if name not in INTERNAL])


@router.get("/topics/{topic}")
async def topic(topic: str, request: Request) -> Response:
    """A topic's settings and partitions."""

    def query(cluster: Cluster) -> tuple[TopicState, dict[str, str | None]]:
        state = _state(cluster, topic)
        entries = Admin(cluster).describe_configs([(TOPIC, topic)])[TOPIC, topic]
        if isinstance(entries, KafkaError):
            raise entries
        return state, {one.name: one.value for one in entries}

    state, configs = await service_of(request).kafka.run(query)
    return v2({"name": topic, "configs": configs, "partitions": [_shown(one) for one in state.partitions]})


@router.get("/topics/{topic}/partitions")
async def partitions(topic: str, request: Request) -> Response:
    """A topic's partitions."""
    state = await service_of(request).kafka.run(lambda cluster: _state(cluster, topic))
    return v2([_shown(one) for one in state.partitions])


@router.get("/topics/{topic}/partitions/{partition}")
async def partition(topic: str, partition: str, request: Request) -> Response:
    """A partition's leader and replicas."""
    index = path_number(partition)
    state = await service_of(request).kafka.run(lambda cluster: _state(cluster, topic))
    return v2(_shown(_one(state, index)))


@router.get("/topics/{topic}/partitions/{partition}/offsets")
async def offsets(topic: str, partition: str, request: Request) -> Response:
    """Where a partition begins and ends."""
    topic_partition = TopicPartition(topic, path_number(partition))

    def query(cluster: Cluster) -> dict[str, int]:
        _one(_state(cluster, topic), topic_partition[1])
        return {
            "beginning_offset": list_offsets(cluster, {topic_partition: EARLIEST})[topic_partition].offset,
            "end_offset": list_offsets(cluster, {topic_partition: LATEST})[topic_partition].offset,
        }

    return v2(await service_of(request).kafka.run(query))


def _state(cluster: Cluster, name: str) -> TopicState:
    found = Admin(cluster).describe_topics([name]).get(name)
    if found is None or (isinstance(found, KafkaError) and found.code in MISSING):
        raise errors.topic_not_found()
    if isinstance(found, KafkaError):
        raise found
    return found


def _one(state: TopicState, index: int) -> PartitionState:
    found = next((one for one in state.partitions if one.index == index), None)
    if found is None:
        raise errors.partition_not_found()
    return found


def _shown(one: PartitionState) -> dict[str, Any]:
    replicas = [
        {"broker": broker, "leader": broker == one.leader, "in_sync": broker in one.isr}
        for broker in one.replicas
    ]
    return {"partition": one.index, "leader": one.leader, "replicas": replicas}
