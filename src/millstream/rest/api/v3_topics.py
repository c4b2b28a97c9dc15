"""Version 3: topics, partitions, replicas, reassignments."""

import re
from typing import Any

from fastapi import APIRouter, Request, Response

from millstream.client import EARLIEST, LATEST, Admin, Cluster, NewTopic, list_offsets
from millstream.client.admin import CreatedTopic, PartitionState, TopicState
from millstream.rest import errors
from millstream.rest.api.links import Json, Links, links
from millstream.rest.api.responses import (
    checked_object,
    done,
    flag_of,
    json_object,
    list_of,
    number_of,
    path_number,
    service_of,
    text_of,
    v3,
)
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

router = APIRouter(prefix="/v3/clusters/{cluster_id}/topics", tags=["v3 topics"])

NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
NEW = frozenset(
    {
        "topic_name",
        "partitions_count",
        "replication_factor",
        "replicas_assignments",
        "configs",
        "validate_only",
    }
)


@router.get("")
async def list_topics(cluster_id: str, request: Request) -> Response:
    """All topics."""
    shown = await links(request)
    states = await service_of(request).kafka.run(topic_states)
    return v3(shown.collection("KafkaTopicList", ("topics",), [_topic(shown, one) for one in states]))


@router.post("")
async def create_topic(cluster_id: str, request: Request) -> Response:
    """Create a topic; with validate_only only see whether it could be."""
    shown = await links(request)
    body = await json_object(request, NEW)
    topic, validate_only = _new_topic(body), flag_of(body, "validate_only")
    kafka = service_of(request).kafka

    def create(cluster: Cluster) -> CreatedTopic:
        made = Admin(cluster).create_topics([topic], validate_only)[topic.name]
        if isinstance(made, KafkaError):
            raise made
        return made

    made = await kafka.run(create)
    kafka.forget(topic.name)
    address = shown.url("topics", topic.name)
    answer = _described(shown, topic.name, False, max(0, made.replication_factor), max(0, made.partitions))
    return v3(answer, 200 if validate_only else 201, {"Location": address})


@router.get("/-/partitions/-/reassignment")
async def list_all_reassignments(cluster_id: str, request: Request) -> Response:
    """Partitions of all topics that are moving between brokers."""
    return await _reassignments(request, None)


@router.get("/{topic_name}")
async def get_topic(cluster_id: str, topic_name: str, request: Request) -> Response:
    """A topic."""
    shown = await links(request)
    return v3(_topic(shown, await state_of(request, topic_name)))


@router.patch("/{topic_name}")
async def add_partitions(cluster_id: str, topic_name: str, request: Request) -> Response:
    """Raise the number of partitions."""
    shown = await links(request)
    body = await json_object(request, frozenset({"partitions_count"}))
    count = number_of(body, "partitions_count", needed=True)
    assert count is not None
    kafka = service_of(request).kafka

    def add(cluster: Cluster) -> None:
        problem = Admin(cluster).create_partitions({topic_name: count})[topic_name]
        if problem is not None:
            raise problem

    await kafka.run(add)
    kafka.forget(topic_name)
    return v3(_topic(shown, await state_of(request, topic_name)))


@router.delete("/{topic_name}")
async def delete_topic(cluster_id: str, topic_name: str, request: Request) -> Response:
    """Delete a topic."""
    await links(request)
    kafka = service_of(request).kafka

    def delete(cluster: Cluster) -> None:
        problem = Admin(cluster).delete_topics([topic_name]).get(topic_name)
        if problem is not None:
            raise problem

    await kafka.run(delete)
    kafka.forget(topic_name)
    return done()


@router.get("/{topic_name}/partitions")
async def list_partitions(cluster_id: str, topic_name: str, request: Request) -> Response:
    """A topic's partitions."""
    shown = await links(request)
    state = await state_of(request, topic_name)
    data = [_partition(shown, topic_name, one) for one in state.partitions]
    return v3(shown.collection("KafkaPartitionList", ("topics", topic_name, "partitions"), data))


@router.get("/{topic_name}/partitions/-/reassignment")
async def list_reassignments_of_topic(cluster_id: str, topic_name: str, request: Request) -> Response:
    """Partitions of a topic that are moving between brokers."""
    return await _reassignments(request, topic_name)


@router.get("/{topic_name}/partitions/{partition_id}")
async def get_partition(cluster_id: str, topic_name: str, partition_id: str, request: Request) -> Response:
    """A partition."""
    shown = await links(request)
    return v3(_partition(shown, topic_name, await _partition_of(request, topic_name, partition_id)))


@router.get("/{topic_name}/partitions/{partition_id}/offset")
async def get_offsets(cluster_id: str, topic_name: str, partition_id: str, request: Request) -> Response:
    """Where a partition begins and ends."""
    shown = await links(request)
    index = (await _partition_of(request, topic_name, partition_id)).index
    topic_partition = TopicPartition(topic_name, index)

    def query(cluster: Cluster) -> tuple[int, int]:
        first = list_offsets(cluster, {topic_partition: EARLIEST})[topic_partition].offset
        return first, list_offsets(cluster, {topic_partition: LATEST})[topic_partition].offset

    first, last = await service_of(request).kafka.run(query)
    made = shown.resource(
        "KafkaPartitionWithOffsets",
        ("topics", topic_name, "partitions", index, "offset"),
        [("topic", topic_name), ("partition", index), "offset"],
        topic_name=topic_name,
        partition_id=index,
        earliest_offset=first,
        latest_offset=last,
    )
    return v3(made)


@router.get("/{topic_name}/partitions/{partition_id}/reassignment")
async def get_reassignment(cluster_id: str, topic_name: str, partition_id: str, request: Request) -> Response:
    """How a partition is moving between brokers; not found if it is not."""
    shown = await links(request)
    index = path_number(partition_id)
    found = (await service_of(request).kafka.run(lambda cluster: Admin(cluster).reassignments())).get(
        TopicPartition(topic_name, index)
    )
    if found is None:
        raise errors.not_found()
    return v3(_reassignment(shown, topic_name, index, found))


@router.get("/{topic_name}/partitions/{partition_id}/replicas")
async def list_replicas(cluster_id: str, topic_name: str, partition_id: str, request: Request) -> Response:
    """A partition's replicas."""
    shown = await links(request)
    one = await _partition_of(request, topic_name, partition_id)
    data = [replica(shown, topic_name, one, broker) for broker in one.replicas]
    segments = ("topics", topic_name, "partitions", one.index, "replicas")
    return v3(shown.collection("KafkaReplicaList", segments, data))


@router.get("/{topic_name}/partitions/{partition_id}/replicas/{broker_id}")
async def get_replica(
    cluster_id: str, topic_name: str, partition_id: str, broker_id: str, request: Request
) -> Response:
    """A replica."""
    shown = await links(request)
    one, broker = await _partition_of(request, topic_name, partition_id), path_number(broker_id)
    if broker not in one.replicas:
        raise errors.not_found()
    return v3(replica(shown, topic_name, one, broker))


# Asking


def topic_states(cluster: Cluster) -> list[TopicState]:
    """All topics, by name. One that was deleted meanwhile is left out."""
    admin = Admin(cluster)
    names = admin.topic_names()
    found = admin.describe_topics(names) if names else {}
    return [state for _, state in sorted(found.items()) if isinstance(state, TopicState)]


async def state_of(request: Request, name: str) -> TopicState:
    def query(cluster: Cluster) -> TopicState:
        found = Admin(cluster).describe_topics([name]).get(name)
        if found is None:
            raise errors.unknown_topic()
        if isinstance(found, KafkaError):
            raise found
        return found

    return await service_of(request).kafka.run(query)


async def _partition_of(request: Request, name: str, text: str) -> PartitionState:
    index = path_number(text)
    state = await state_of(request, name)
    found = next((one for one in state.partitions if one.index == index), None)
    if found is None:
        raise errors.not_found()
    return found


async def _reassignments(request: Request, topic: str | None) -> Response:
    shown = await links(request)
    found = await service_of(request).kafka.run(lambda cluster: Admin(cluster).reassignments())
    data = [
        _reassignment(shown, name, index, one)
        for (name, index), one in sorted(found.items())
        if topic in (None, name)
    ]
    segments = ("topics", topic or "-", "partitions", "-", "reassignment")
    return v3(shown.collection("KafkaReassignmentList", segments, data))


def _new_topic(body: Json) -> NewTopic:
    name = text_of(body, "topic_name", needed=True)
    assert name is not None
    if not NAME.fullmatch(name) or name in (".", ".."):
        raise errors.invalid_payload("Invalid topic name.")
    partitions = number_of(body, "partitions_count")
    factor = number_of(body, "replication_factor", 16)
    configs: dict[str, Any] = {}
    for one in list_of(body, "configs"):
        item = checked_object(one, frozenset({"name", "value"}), "a config")
        key = text_of(item, "name", needed=True)
        assert key is not None
        configs[key] = text_of(item, "value")
    given = body.get("replicas_assignments") or {}
    if not isinstance(given, dict):
        raise errors.unprocessable("replicas_assignments: expected an object")
    assignments = {}
    for key, brokers in given.items():
        if not key.isascii() or not key.isdecimal() or not isinstance(brokers, list):
            raise errors.unprocessable("replicas_assignments: expected lists of brokers by partition")
        if any(type(broker) is not int or not 0 <= broker < 1 << 31 for broker in brokers):
            raise errors.unprocessable("replicas_assignments: expected lists of brokers by partition")
        if int(key) >= 1 << 31:
            raise errors.unprocessable("replicas_assignments: no such partition")
        assignments[int(key)] = brokers
    return NewTopic(
        name,
        -1 if partitions is None else partitions,
        -1 if factor is None else factor,
        configs,
        assignments,
    )


# Showing


def _topic(shown: Links, state: TopicState) -> Json:
    factor = len(state.partitions[0].replicas) if state.partitions else 0
    return _described(shown, state.name, state.internal, factor, len(state.partitions))


def _described(shown: Links, name: str, internal: bool, factor: int, partitions: int) -> Json:
    return shown.resource(
        "KafkaTopic",
        ("topics", name),
        [("topic", name)],
        topic_name=name,
        is_internal=internal,
        replication_factor=factor,
        partitions_count=partitions,
        partitions=shown.related("topics", name, "partitions"),
        configs=shown.related("topics", name, "configs"),
        partition_reassignments=shown.related("topics", name, "partitions", "-", "reassignment"),
        authorized_operations=[],
    )


def _partition(shown: Links, topic: str, one: PartitionState) -> Json:
    path = ("topics", topic, "partitions", one.index)
    return shown.resource(
        "KafkaPartition",
        path,
        [("topic", topic), ("partition", one.index)],
        topic_name=topic,
        partition_id=one.index,
        leader=shown.related(*path, "replicas", one.leader) if one.leader >= 0 else None,
        replicas=shown.related(*path, "replicas"),
        reassignment=shown.related(*path, "reassignment"),
    )


def replica(shown: Links, topic: str, one: PartitionState, broker: int) -> Json:
    return shown.resource(
        "KafkaReplica",
        ("topics", topic, "partitions", one.index, "replicas", broker),
        [("topic", topic), ("partition", one.index), ("replica", broker)],
        topic_name=topic,
        partition_id=one.index,
        broker_id=broker,
        is_leader=broker == one.leader,
        is_in_sync=broker in one.isr,
        broker=shown.related("brokers", broker),
    )


def _reassignment(shown: Links, topic: str, index: int, one: Any) -> Json:
    path = ("topics", topic, "partitions", index)
    return shown.resource(
        "KafkaReassignment",
        (*path, "reassignment"),
        [("topic", topic), ("partition", index), "reassignment"],
        topic_name=topic,
        partition_id=index,
        adding_replicas=list(one.adding),
        removing_replicas=list(one.removing),
        replicas=shown.related(*path, "replicas"),
    )
