"""Version 3: consumer groups, their members, and how far behind they are."""

import re
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from millstream.client import LATEST, Cluster, list_offsets
from millstream.client.groups import Committed, GroupDescription, Groups, Member
from millstream.rest import errors
from millstream.rest.api.links import Json, Links, links
from millstream.rest.api.responses import path_number, service_of, v3
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

router = APIRouter(prefix="/v3/clusters/{cluster_id}/consumer-groups", tags=["v3 consumer groups"])
ONE = "/{consumer_group_id}"
CONSUMERS = ("consumer", "")  # protocol types; others are no consumers
HIDDEN = (
    ErrorCode.group_id_not_found,
    ErrorCode.group_authorization_failed,
    ErrorCode.invalid_group_id,
)


class Found(NamedTuple):
    group: GroupDescription
    simple: bool


class Lag(NamedTuple):
    topic: str
    partition: int
    member: Member | None
    current: int
    end: int

    @property
    def lag(self) -> int:
        return self.end - self.current


@router.get("")
async def list_groups(cluster_id: str, request: Request) -> Response:
    """All consumer groups."""
    shown = await links(request)
    found = await service_of(request).kafka.run(lambda cluster: _groups(cluster, None))
    data = [_group(shown, one) for one in found]
    return v3(shown.collection("KafkaConsumerGroupList", ("consumer-groups",), data))


@router.get(ONE)
async def get_group(cluster_id: str, consumer_group_id: str, request: Request) -> Response:
    """A consumer group."""
    shown = await links(request)
    return v3(_group(shown, await _found(request, consumer_group_id)))


@router.get(f"{ONE}/consumers")
async def list_consumers(cluster_id: str, consumer_group_id: str, request: Request) -> Response:
    """The members of a group."""
    shown = await links(request)
    group = (await _found(request, consumer_group_id)).group
    data = [_consumer(shown, group, one) for one in group.members]
    segments = ("consumer-groups", group.group_id, "consumers")
    return v3(shown.collection("KafkaConsumerList", segments, data))


@router.get(f"{ONE}/consumers/{{consumer_id}}")
async def get_consumer(
    cluster_id: str, consumer_group_id: str, consumer_id: str, request: Request
) -> Response:
    """A member of a group."""
    shown = await links(request)
    group = (await _found(request, consumer_group_id)).group
    return v3(_consumer(shown, group, _member(group, consumer_id)))


@router.get(f"{ONE}/consumers/{{consumer_id}}/assignments")
async def list_assignments(
    cluster_id: str, consumer_group_id: str, consumer_id: str, request: Request
) -> Response:
    """The partitions that a member reads."""
    shown = await links(request)
    group = (await _found(request, consumer_group_id)).group
    member = _member(group, consumer_id)
    data = [
        _assignment(shown, group, member, *topic_partition) for topic_partition in sorted(member.assignment)
    ]
    segments = ("consumer-groups", group.group_id, "consumers", consumer_id, "assignments")
    return v3(shown.collection("KafkaConsumerAssignmentList", segments, data))


@router.get(f"{ONE}/consumers/{{consumer_id}}/assignments/{{topic_name}}/partitions/{{partition_id}}")
async def get_assignment(
    cluster_id: str,
    consumer_group_id: str,
    consumer_id: str,
    topic_name: str,
    partition_id: str,
    request: Request,
) -> Response:
    """A partition that a member reads."""
    shown = await links(request)
    group = (await _found(request, consumer_group_id)).group
    member, topic_partition = _member(group, consumer_id), (topic_name, path_number(partition_id))
    if topic_partition not in member.assignment:
        raise errors.not_found()
    return v3(_assignment(shown, group, member, *topic_partition))


@router.get(f"{ONE}/lag-summary")
async def get_lag_summary(cluster_id: str, consumer_group_id: str, request: Request) -> Response:
    """The largest lag of a group, and all together."""
    shown = await links(request)
    lags = await _lags(request, consumer_group_id)
    worst = lags[0]
    group = ("consumer-groups", consumer_group_id)
    made = shown.resource(
        "KafkaConsumerGroupLagSummary",
        (*group, "lag-summary"),
        [("consumer-group", consumer_group_id), "lag-summary"],
        consumer_group_id=consumer_group_id,
        max_lag_consumer_id=worst.member.member_id if worst.member else "",
        max_lag_instance_id=worst.member.instance_id if worst.member else None,
        max_lag_client_id=worst.member.client_id if worst.member else "",
        max_lag_topic_name=worst.topic,
        max_lag_partition_id=worst.partition,
        max_lag=worst.lag,
        total_lag=sum(one.lag for one in lags),
        max_lag_consumer=shown.related(*group, "consumers", worst.member.member_id if worst.member else ""),
        max_lag_partition=shown.related("topics", worst.topic, "partitions", worst.partition),
    )
    return v3(made)


@router.get(f"{ONE}/lags")
async def list_lags(cluster_id: str, consumer_group_id: str, request: Request) -> Response:
    """How far behind a group is, per partition; the worst first."""
    shown = await links(request)
    data = [_lag(shown, consumer_group_id, one) for one in await _lags(request, consumer_group_id)]
    return v3(shown.collection("KafkaConsumerLagList", ("consumer-groups", consumer_group_id, "lags"), data))


@router.get(f"{ONE}/lags/{{topic_name}}/partitions/{{partition_id}}")
async def get_lag(
    cluster_id: str, consumer_group_id: str, topic_name: str, partition_id: str, request: Request
) -> Response:
    """How far behind a group is in one partition."""
    shown = await links(request)
    topic_partition = (topic_name, path_number(partition_id))
    for one in await _lags(request, consumer_group_id):
        if (one.topic, one.partition) == topic_partition:
            return v3(_lag(shown, consumer_group_id, one))
    raise errors.not_found()


# Asking


def _groups(cluster: Cluster, wanted: str | None) -> list[Found]:
    """All groups of consumers, or one of them if it is there."""
    groups = Groups(cluster)
    types = {one.group_id: one.protocol_type for one in groups.listed() if one.type.lower() != "share"}
    names = [name for name, group_type in types.items() if group_type in CONSUMERS and wanted in (None, name)]
    found = []
    for name, described in groups.describe(names).items():
        if isinstance(described, KafkaError):
            if described.code in HIDDEN:
                continue
            raise described
        simple = types[name] == ""
        if not (simple and described.state == "Dead"):
            found.append(Found(described, simple))
    return found


async def _found(request: Request, name: str) -> Found:
    found = await service_of(request).kafka.run(lambda cluster: _groups(cluster, name))
    if not found:
        raise errors.not_found()
    return found[0]


def _member(group: GroupDescription, member_id: str) -> Member:
    found = next((one for one in group.members if one.member_id == member_id), None)
    if found is None:
        raise errors.not_found()
    return found


async def _lags(request: Request, name: str) -> list[Lag]:
    def query(cluster: Cluster) -> list[Lag]:
        found = _groups(cluster, name)
        if not found:
            raise errors.not_found(f"Consumer Group {name} could not be found.")
        holders = {
            topic_partition: member
            for member in found[0].group.members
            for topic_partition in member.assignment
        }
        offsets = {
            topic_partition: one.offset
            for topic_partition, one in Groups(cluster).committed(name).items()
            if isinstance(one, Committed) and one.offset >= 0
        }
        existing = _existing(cluster, offsets)
        ends = list_offsets(cluster, dict.fromkeys(existing, LATEST), read_committed=True) if existing else {}
        return [
            Lag(
                *topic_partition,
                holders.get(topic_partition),
                offsets[topic_partition],
                ends[topic_partition].offset,
            )
            for topic_partition in existing
            if topic_partition in ends
        ]

    lags = await service_of(request).kafka.run(query)
    if not lags:
        raise errors.not_found("Consumer group offsets could not be found.")
    return sorted(lags, key=lambda one: (-one.lag, one.topic, one.partition))


def _existing(cluster: Cluster, topic_partitions: dict[TopicPartition, int]) -> list[TopicPartition]:
    """Offsets may outlive their topics."""
    gone = cluster.refresh({topic for topic, _ in topic_partitions}) if topic_partitions else {}
    return [
        topic_partition
        for topic_partition in topic_partitions
        if topic_partition[0] not in gone
        and topic_partition[1] in cluster.topics[topic_partition[0]].partitions
    ]


# Showing


def _group(shown: Links, found: Found) -> Json:
    group = found.group
    path = ("consumer-groups", group.group_id)
    upgraded = [one.upgraded for one in group.members if one.upgraded is not None]
    return shown.resource(
        "KafkaConsumerGroup",
        path,
        [("consumer-group", group.group_id)],
        consumer_group_id=group.group_id,
        is_simple=found.simple,
        partition_assignor=group.assignor,
        state=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", group.state).upper(),
        type=group.type.upper(),
        is_mixed_consumer_group=group.type == "Consumer" and False in upgraded,
        coordinator=shown.related("brokers", group.coordinator.id),
        consumers=shown.related(*path, "consumers"),
        lag_summary=shown.related(*path, "lag-summary"),
    )


def _consumer(shown: Links, group: GroupDescription, one: Member) -> Json:
    path = ("consumer-groups", group.group_id, "consumers", one.member_id)
    return shown.resource(
        "KafkaConsumer",
        path,
        [("consumer-group", group.group_id), ("consumer", one.member_id)],
        consumer_group_id=group.group_id,
        consumer_id=one.member_id,
        instance_id=one.instance_id,
        client_id=one.client_id,
        assignments=shown.related(*path, "assignments"),
    )


def _assignment(shown: Links, group: GroupDescription, one: Member, topic: str, partition: int) -> Json:
    name = group.group_id
    return shown.resource(
        "KafkaConsumerAssignment",
        (
            "consumer-groups",
            name,
            "consumers",
            one.member_id,
            "assignments",
            topic,
            "partitions",
            partition,
        ),
        [
            ("consumer-group", name),
            ("consumer", one.member_id),
            ("assignment", topic),
            ("partition", partition),
        ],
        consumer_group_id=name,
        consumer_id=one.member_id,
        topic_name=topic,
        partition_id=partition,
        partition=shown.related("topics", topic, "partitions", partition),
        lag=shown.related("consumer-groups", name, "lags", topic, "partitions", partition),
    )


def _lag(shown: Links, group: str, one: Lag) -> Json:
    return shown.resource(
        "KafkaConsumerLag",
        ("consumer-groups", group, "lags", one.topic, "partitions", one.partition),
        [("consumer-group", group), ("lag", one.topic), ("partition", one.partition)],
        consumer_group_id=group,
        topic_name=one.topic,
        partition_id=one.partition,
        consumer_id=one.member.member_id if one.member else "",
        instance_id=one.member.instance_id if one.member else None,
        client_id=one.member.client_id if one.member else "",
        current_offset=one.current,
        log_end_offset=one.end,
        lag=one.lag,
    )
