"""Where each query is, as the offsets of a consumer group, so that every Kafka tool shows the lag of every
pipeline.

Spark keeps a query's offsets in its checkpoint; the group is for people to look at, and nothing reads it.
Each query has a group of its own, since two queries of a pipeline may read the same topic. The names begin
with `pipeline-`, as Kafka Connect's do with `connect-`: a pipeline called `orders` must not move the group of
a consumer called `orders`.
"""

import time

from millstream.client import Cluster
from millstream.client.errors import retriable
from millstream.client.groups import Groups
from millstream.spark.runner.status_records import Status
from millstream.spark.source.metrics import Offsets
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

TIMEOUT = 2.0  # seconds; what fails now is tried again with the next report
RECOMMIT_EVERY = 3600.0  # a broker forgets the offsets of a group that is silent for days


def group_of(pipeline: str, query: str) -> str:
    """No name of a pipeline or a query has a colon in it, so no two queries share a group."""
    return f"pipeline-{pipeline}" if query == pipeline else f"pipeline-{pipeline}:{query}"


class GroupOffsets:
    def __init__(self, cluster: Cluster) -> None:
        self._groups = Groups(cluster, timeout=TIMEOUT)
        self._done: dict[str, tuple[Offsets, float]] = {}
        self._complained: set[str] = set()

    def commit(self, status: Status) -> list[str]:
        """What the queries of a pipeline have read. Returns complaints, one per group: that a pipeline's lag
        does not show is no reason to stop it."""
        complaints = []
        for query in status.queries:
            group = group_of(status.pipeline, query.name)
            offsets, when = self._done.get(group, ({}, 0.0))
            now = time.monotonic()
            if not query.offsets or (query.offsets == offsets and now - when < RECOMMIT_EVERY):
                continue
            problem = self._commit(group, query.offsets)
            if problem is None or not retriable(problem):
                self._done[group] = (query.offsets, now)
            if problem is not None and group not in self._complained:
                self._complained.add(group)
                complaints.append(f"its lag does not show as group {group}: {problem.message}")
        return complaints

    def _commit(self, group: str, offsets: Offsets) -> KafkaError | None:
        offsets_by_partition = {
            TopicPartition(topic, int(partition)): offset
            for topic, parts in offsets.items()
            for partition, offset in parts.items()
        }
        try:
            outcomes = self._groups.commit(group, offsets_by_partition)
        except KafkaError as error:
            return error
        return next((error for error in outcomes.values() if error is not None), None)
