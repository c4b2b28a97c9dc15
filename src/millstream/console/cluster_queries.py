"""Questions about many things at once, answered as far as they can be: one partition without a leader, or one
group whose coordinator moves, must not hide all the others. What has no answer is missing from the result."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from millstream.client import Cluster
from millstream.client.coordinators import GROUP, Coordinators
from millstream.client.groups import NAMES_ONLY, Groups
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

CHUNK_SIZE = 2000  # partitions, or groups, in one request
Item = TypeVar("Item")


class GroupSummary(NamedTuple):
    state: str
    type: str
    members: int


def partitions_by_leader(
    cluster: Cluster, topics: Iterable[str] | None = None
) -> dict[int, list[TopicPartition]]:
    """Partitions by the broker that leads them, from the metadata at hand; those without a leader are left
    out."""
    groups: dict[int, list[TopicPartition]] = {}
    for name in cluster.topics if topics is None else topics:
        topic = cluster.topics.get(name)
        if topic is None:
            continue
        for index, partition in topic.partitions.items():
            if partition.leader in cluster.nodes:
                groups.setdefault(partition.leader, []).append(TopicPartition(name, index))
    return groups


def list_offsets(
    cluster: Cluster, timestamp: int, topics: Iterable[str] | None = None
) -> dict[TopicPartition, int]:
    """The offset of every partition of these topics (None: of all known) for a time, EARLIEST or
    LATEST."""
    found: dict[TopicPartition, int] = {}
    for node_id, partitions in partitions_by_leader(cluster, topics).items():
        for chunk in _chunks(partitions):
            try:
                answer = cluster.connection(node_id).request(
                    "list_offsets",
                    replica_id=-1,
                    isolation_level=0,
                    topics=_by_topic(chunk, timestamp),
                    timeout=round(cluster.config.request_timeout * 1000),
                )
            except KafkaError:
                continue
            for topic in answer.topics:
                name = str(topic.name)
                for partition in topic.partitions:
                    if partition.error_code is ErrorCode.none:
                        found[TopicPartition(name, int(partition.partition_index))] = int(partition.offset)
    return found


def committed_offsets(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """What groups have committed: few requests for many groups where the broker takes them together."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for node_id, names in Coordinators(cluster, GROUP).by_node(group_ids).items():
        connection = cluster.connection(node_id)
        if connection.version("offset_fetch", up_to=NAMES_ONLY) < 8:
            groups = Groups(cluster)
            for name in names:
                answers = groups.committed(name)
                found[name] = {
                    topic_partition: offset.offset
                    for topic_partition, offset in answers.items()
                    if not isinstance(offset, KafkaError)
                }
            continue
        for chunk in _chunks(names):
            wanted = [
                {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None} for name in chunk
            ]
            answer = connection.request("offset_fetch", up_to=NAMES_ONLY, groups=wanted, require_stable=False)
            for group in answer.groups:
                if group.error_code is ErrorCode.none:
                    found[str(group.group_id)] = {
                        TopicPartition(str(topic.name), int(partition.partition_index)): int(
                            partition.committed_offset
                        )
                        for topic in group.topics
                        for partition in topic.partitions
                        if partition.error_code is ErrorCode.none and partition.committed_offset >= 0
                    }
    return found


def group_summaries(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, GroupSummary]:
    """State and number of members of a page of groups."""
    found: dict[str, GroupSummary] = {}
    for node_id, names in Coordinators(cluster, GROUP).by_node(group_ids).items():
        connection = cluster.connection(node_id)
        remaining = set(names)
        if _supports(connection, "consumer_group_describe"):
            answer = connection.request(
                "consumer_group_describe", group_ids=names, include_authorized_operations=False
            )
            for group in answer.groups:
                if group.error_code is ErrorCode.none:
                    name = str(group.group_id)
                    found[name] = GroupSummary(str(group.group_state), "Consumer", len(group.members))
                    remaining.discard(name)
        if remaining:
            answer = connection.request(
                "describe_groups", groups=sorted(remaining), include_authorized_operations=False
            )
            for group in answer.groups:
                if group.error_code is ErrorCode.none:
                    state, count = str(group.group_state), len(group.members)
                    found[str(group.group_id)] = GroupSummary(state, "Classic", count)
    return found


def lags(
    committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {
        topic_partition: max(0, ends[topic_partition] - offset)
        for topic_partition, offset in committed.items()
        if topic_partition in ends
    }


def _supports(connection: Any, api: str) -> bool:
    try:
        connection.version(api)
        return True
    except KafkaError:
        return False


def _by_topic(partitions: Iterable[TopicPartition], timestamp: int) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, int]]] = {}
    for name, index in partitions:
        entry = {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        topics.setdefault(name, []).append(entry)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _chunks(items: Sequence[Item], size: int = CHUNK_SIZE) -> Iterator[Sequence[Item]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
