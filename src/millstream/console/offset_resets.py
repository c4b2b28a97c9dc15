"""New offsets for a group without members: found first, shown, and committed only then."""

import time
from typing import NamedTuple

from millstream.client import EARLIEST, LATEST, Cluster
from millstream.client.groups import Groups
from millstream.console import cluster_queries
from millstream.console.security import RequestRefused
from millstream.filters import BadTime, parse_time
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

MODES = {
    "earliest": "to the beginning",
    "latest": "to the end",
    "time": "to a time",
    "offset": "to an offset",
    "shift": "forward or back by a number",
}


class OffsetChange(NamedTuple):
    topic: str
    partition: int
    old: int | None
    new: int


def plan_reset(cluster: Cluster, group: str, form: dict[str, str]) -> list[OffsetChange]:
    """What would be committed. RequestRefused says what speaks against it."""
    mode, value = form.get("mode", ""), form.get("value", "").strip()
    if mode not in MODES:
        raise RequestRefused(400, "Choose where the group should go.")
    found = Groups(cluster).describe([group])[group]
    if not isinstance(found, KafkaError) and found.state not in ("Empty", "Dead"):
        raise RequestRefused(
            400, f"Only a group without members can be reset; this one is {found.state.lower()}."
        )
    current = cluster_queries.committed_offsets(cluster, [group]).get(group, {})
    partitions = _partitions(cluster, current, form.get("topic", "").strip())
    topics = {topic for topic, _ in partitions}
    cluster.refresh(topics)
    first, last = (
        cluster_queries.list_offsets(cluster, EARLIEST, topics),
        cluster_queries.list_offsets(cluster, LATEST, topics),
    )
    targets = _target_offsets(cluster, mode, value, partitions, current, topics)
    plan = []
    for topic_partition in sorted(partitions):
        if topic_partition not in first or topic_partition not in last:
            raise RequestRefused(
                400, f"{topic_partition[0]}, partition {topic_partition[1]}, does not exist or has no leader."
            )
        if mode == "earliest":
            new = first[topic_partition]
        elif mode == "latest" or topic_partition not in targets or targets[topic_partition] == LATEST:
            new = last[topic_partition]
        else:
            new = min(max(targets[topic_partition], first[topic_partition]), last[topic_partition])
        plan.append(OffsetChange(topic_partition[0], topic_partition[1], current.get(topic_partition), new))
    if not plan:
        raise RequestRefused(400, "The group has committed nothing yet: name a topic.")
    return plan


def _partitions(cluster: Cluster, current: dict[TopicPartition, int], topic: str) -> list[TopicPartition]:
    if not topic:
        return list(current)
    problem = cluster.refresh([topic]).get(topic)
    if problem is not None or topic not in cluster.topics:
        raise RequestRefused(400, f"There is no topic {topic}.")
    return [TopicPartition(topic, partition) for partition in cluster.topics[topic].partitions]


def _target_offsets(
    cluster: Cluster,
    mode: str,
    value: str,
    partitions: list[TopicPartition],
    current: dict[TopicPartition, int],
    topics: set[str],
) -> dict[TopicPartition, int]:
    if mode == "time":
        try:
            moment = max(0, parse_time(value, round(time.time() * 1000)))
        except BadTime as error:
            raise RequestRefused(400, f"{error}.") from None
        return cluster_queries.list_offsets(cluster, moment, topics)
    if mode in ("offset", "shift"):
        try:
            number = int(value)
        except ValueError:
            raise RequestRefused(400, f"'{value[:40]}' is not a whole number.") from None
        if mode == "offset":
            return dict.fromkeys(partitions, max(0, number))
        missing = [topic_partition for topic_partition in partitions if topic_partition not in current]
        if missing:
            raise RequestRefused(
                400, f"{missing[0][0]}, partition {missing[0][1]}, has no committed offset to count from."
            )
        return {topic_partition: max(0, current[topic_partition] + number) for topic_partition in partitions}
    return {}
