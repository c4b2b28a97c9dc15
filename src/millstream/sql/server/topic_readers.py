"""Who reads a topic, for SHOW TOPICS EXTENDED: group members that have partitions of it, and groups."""

from __future__ import annotations

from collections import Counter

from millstream.client import Cluster
from millstream.client.groups import GroupDescription, Groups


def topic_readers(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """(consumers, groups) of each topic that has any. A group that cannot be described is left out."""
    groups = Groups(cluster)
    described = groups.describe(one.group_id for one in groups.listed())
    consumers: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for group in described.values():
        if not isinstance(group, GroupDescription):
            continue
        read = [{one.topic for one in member.assignment} for member in group.members]
        for topics in read:
            consumers.update(topics)
        counted.update(set().union(*read))
    return {topic: (consumers[topic], counted[topic]) for topic in consumers}
