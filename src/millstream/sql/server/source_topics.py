"""The topics of streams and tables: made where they are missing, deleted with DROP ... DELETE TOPIC.

One that is there already is taken as it is, if it has the partitions and copies that the statement asks for.
A query's sink has as many partitions as the first of its sources, unless WITH (...) says another number.
"""

from __future__ import annotations

import logging
import threading

from millstream.client import Admin, Cluster, NewTopic
from millstream.sql.catalog import Source
from millstream.sql.engine import Outcome
from millstream.sql.errors import SqlError
from millstream.wire.errors import KafkaError

log = logging.getLogger("millstream.sql")


class SourceTopics:
    """`lock` is held while the cluster is used, which belongs to one thread at a time."""

    def __init__(self, cluster: Cluster, lock: threading.RLock) -> None:
        self._cluster, self._lock = cluster, lock

    def partitions(self, topic: str) -> int | None:
        """None if there is no such topic."""
        found = self._sizes(topic)
        return None if found is None else found[0]

    def make(self, source: Source, outcome: Outcome) -> None:
        """What a source needs before its command is written."""
        there = self._sizes(source.topic)
        wanted = source.partitions
        if wanted is None and outcome.query is not None:
            wanted = self.partitions(outcome.query.sources[0].topic) or 1
        if there is not None:
            _check(source, wanted, there)
            return
        if wanted is None:
            raise SqlError(
                f"Topic '{source.topic}' does not exist. If you want to create a new topic for the "
                f"{source.kind.lower()} please re-run the statement providing the required 'PARTITIONS' "
                "configuration in the WITH clause (and optionally 'REPLICAS'). For example: CREATE "
                f"{source.kind} {source.name} (...) WITH (KAFKA_TOPIC='{source.topic}', PARTITIONS=1);"
            )
        settings = {}
        if source.retention_ms is not None:
            settings["retention.ms"] = str(source.retention_ms)
        if source.kind == "TABLE":
            settings["cleanup.policy"] = "compact,delete" if source.window is not None else "compact"
        new = NewTopic(source.topic, wanted, source.replicas or -1, settings)
        with self._lock:
            try:
                Admin(self._cluster).create_if_missing(new)
            except KafkaError as error:
                raise SqlError(f"Failed to create topic '{source.topic}': {error}") from None
            self._cluster.wait_for_topics([source.topic])

    def delete(self, topic: str) -> None:
        with self._lock:
            error = Admin(self._cluster).delete_topics([topic])[topic]
        if error is not None:
            log.warning("topic %s could not be deleted: %s", topic, error)

    def _sizes(self, topic: str) -> tuple[int, int] | None:
        """Partitions and copies."""
        with self._lock:
            if self._cluster.refresh([topic]).get(topic) is not None:
                return None
            found = self._cluster.topic(topic).partitions
            return len(found), min((len(one.replicas) for one in found.values()), default=0)


def _check(source: Source, wanted: int | None, there: tuple[int, int]) -> None:
    partitions, copies = there
    if wanted in (None, partitions) and (source.replicas or 0) <= copies:
        return
    raise SqlError(
        f"A Kafka topic with the name '{source.topic}' already exists, with different partition/replica "
        f"configuration than required. KSQL expects {wanted or partitions} partitions (topic has "
        f"{partitions}), {source.replicas or copies} replication factor (topic has {copies})."
    )
