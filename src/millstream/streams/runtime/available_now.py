"""`availableNow`: an application that ends when what was there at its start has been processed.

Its inputs are followed to the ends that they have now. What came out of that may still be in repartition
topics: these are followed to the ends that they have by then, as many times as there are such topics, because
a record passes through each of them once at most. Input that arrives meanwhile is processed too, as far as it
comes; nobody waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.client import EARLIEST, LATEST, Cluster, list_offsets
from millstream.client.groups import Groups
from millstream.streams.runtime.task_inputs import input_topics
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.streams.runtime.application import Streams

log = logging.getLogger("millstream.streams")

LOOK_EVERY = 0.2


def wait_for_available(streams: Streams, stopping: threading.Event) -> bool:
    """Until all of it is committed; False if the application was stopped before."""
    name, topology = streams.settings.application, streams.topology
    with Cluster(streams.settings.client) as cluster:
        topics = {topic for found in input_topics(topology, name, cluster).values() for topic in found}
        internal = topics & {topology.internal_name(topic, name) for topic in topology.internal}
        rounds = [topics - internal, *([internal] * len(internal))]
        return all(_wait_for_ends(cluster, name, names, stopping) for names in rounds)


def _wait_for_ends(cluster: Cluster, group: str, topics: Iterable[str], stopping: threading.Event) -> bool:
    ends: dict[TopicPartition, int] | None = None
    while not stopping.is_set():
        try:
            if ends is None:
                ends = _ends(cluster, topics)
            if _reached(cluster, group, ends):
                return True
        except KafkaError as error:
            log.warning("%s: %s", group, error)
        stopping.wait(LOOK_EVERY)
    return False


def _ends(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Of partitions that have something to read."""
    wanted = [TopicPartition(topic, number) for topic in topics for number in cluster.topic(topic).partitions]
    begins = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST)) if wanted else {}
    ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST)) if wanted else {}
    return {which: end.offset for which, end in ends.items() if end.offset > begins[which].offset}


def _reached(cluster: Cluster, group: str, ends: dict[TopicPartition, int]) -> bool:
    committed = Groups(cluster).committed(group, list(ends)) if ends else {}
    for which, end in ends.items():
        found = committed.get(which)
        if isinstance(found, KafkaError):
            raise found
        if found is None or found.offset < end:
            return False
    return True
