"""How many dead letters there are for a redrive, and how many are left (see runtime.redrive)."""

from __future__ import annotations

import contextlib

from millstream.client import EARLIEST, LATEST, ClientConfig, Cluster, list_offsets
from millstream.client.groups import Groups
from millstream.connect.runtime.redrive import Redrive
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition


def redrive_all(client: ClientConfig, topic: str, where: str = "") -> Redrive | None:
    """Up to where the topic ends now; None where there is no such topic."""
    with contextlib.closing(Cluster(client)) as cluster:
        if topic in cluster.refresh({topic}):
            return None
        partitions = [TopicPartition(topic, number) for number in cluster.topic(topic).partitions]
        ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    until = tuple(sorted((which.partition, at.offset) for which, at in ends.items()))
    return Redrive(topic, until, where)


def dead_letters_left(client: ClientConfig, redrive: Redrive, group: str) -> int:
    """Offsets that the sink's group has not passed; markers of transactions count as well."""
    ends = redrive.ends()
    with contextlib.closing(Cluster(client)) as cluster:
        starts = list_offsets(cluster, dict.fromkeys(ends, EARLIEST))
        committed = Groups(cluster).committed(group, list(ends))
    left = 0
    for which, end in ends.items():
        found = committed.get(which)
        done = found.offset if found is not None and not isinstance(found, KafkaError) else -1
        left += max(0, end - max(done, starts[which].offset))
    return left
