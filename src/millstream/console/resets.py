"""New offsets for a group without members: found first, shown, and committed only then."""

import time
from typing import NamedTuple

from millstream.client import EARLIEST, LATEST, Cluster
from millstream.client.groups import Groups
from millstream.console import cluster_queries
from millstream.console.security import Refused
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


class Step(NamedTuple):
    topic: str
    partition: int
    old: int | None
    new: int


def planned(cluster: Cluster, group: str, form: dict[str, str]) -> list[Step]:
    """What would be committed. Refused says what speaks against it."""
    mode, value = form.get("mode", ""), form.get("value", "").strip()
    if mode not in MODES:
        raise Refused(400, "Choose where the group should go.")
    found = Groups(cluster).describe([group])[group]
    if not isinstance(found, KafkaError) and found.state not in ("Empty", "Dead"):
        raise Refused(400, f"Only a group without members can be reset; this one is {found.state.lower()}.")
    current = cluster_queries.committed(cluster, [group]).get(group, {})
    places = _places(cluster, current, form.get("topic", "").strip())
    topics = {topic for topic, _ in places}
    cluster.refresh(topics)
    first, last = (
        cluster_queries.offsets(cluster, EARLIEST, topics),
        cluster_queries.offsets(cluster, LATEST, topics),
    )
    wanted = _wanted(cluster, mode, value, places, current, topics)
    plan = []
    for place in sorted(places):
        if place not in first or place not in last:
            raise Refused(400, f"{place[0]}, partition {place[1]}, does not exist or has no leader.")
        if mode == "earliest":
            new = first[place]
        elif mode == "latest" or place not in wanted or wanted[place] == LATEST:
            new = last[place]
        else:
            new = min(max(wanted[place], first[place]), last[place])
        plan.append(Step(place[0], place[1], current.get(place), new))
    if not plan:
        raise Refused(400, "The group has committed nothing yet: name a topic.")
    return plan


def _places(cluster: Cluster, current: dict[TopicPartition, int], topic: str) -> list[TopicPartition]:
    if not topic:
        return list(current)
    problem = cluster.refresh([topic]).get(topic)
    if problem is not None or topic not in cluster.topics:
        raise Refused(400, f"There is no topic {topic}.")
    return [TopicPartition(topic, partition) for partition in cluster.topics[topic].partitions]


def _wanted(
    cluster: Cluster,
    mode: str,
    value: str,
    places: list[TopicPartition],
    current: dict[TopicPartition, int],
    topics: set[str],
) -> dict[TopicPartition, int]:
    if mode == "time":
        try:
            moment = max(0, parse_time(value, round(time.time() * 1000)))
        except BadTime as error:
            raise Refused(400, f"{error}.") from None
        return cluster_queries.offsets(cluster, moment, topics)
    if mode in ("offset", "shift"):
        try:
            number = int(value)
        except ValueError:
            raise Refused(400, f"'{value[:40]}' is not a whole number.") from None
        if mode == "offset":
            return dict.fromkeys(places, max(0, number))
        missing = [place for place in places if place not in current]
        if missing:
            raise Refused(
                400, f"{missing[0][0]}, partition {missing[0][1]}, has no committed offset to count from."
            )
        return {place: max(0, current[place] + number) for place in places}
    return {}
