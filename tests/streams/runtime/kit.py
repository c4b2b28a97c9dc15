"""What tests of the runtime have in common: a cluster's topics, and Spark's part played in this process."""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from millstream.client import EARLIEST, LATEST, Cluster, Producer, list_offsets
from millstream.spark.clusters import close_clusters
from millstream.streams import Streams, StreamsBuilder, Topology
from millstream.streams.runtime import worker
from millstream.streams.runtime.reader import StreamsReader, packed
from millstream.streams.runtime.topic_reader import read_ranges
from millstream.streams.runtime.topics import ADDITIONAL_RETENTION
from millstream.wire.records import Record
from tests.support.waiting import wait_until

KEPT = {ADDITIONAL_RETENTION: 1 << 60}
"""In an application's `config`: records with timestamps of 1970 stay in the changelogs of windows."""


def forget_tasks() -> None:
    """As if the worker's process had ended."""
    for runner in worker._runners.values():
        runner.close()
    worker._runners.clear()
    close_clusters()


def produce(
    cluster: Cluster, topic: str, partition: int, *values: tuple[bytes, bytes | None], start: int = 1000
) -> None:
    records = [Record(number, start + number, key, value) for number, (key, value) in enumerate(values)]
    Producer(cluster).send(topic, partition, records)


def read(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """All committed records. Waits for transactions that are about to end: Kafka answers before all readers
    see the end."""
    topic_partitions = [(topic, number) for number in cluster.topic(topic).partitions]
    wanted = dict.fromkeys(topic_partitions, LATEST)
    wait_until(lambda: list_offsets(cluster, wanted, read_committed=True) == list_offsets(cluster, wanted))
    latest = list_offsets(cluster, wanted, read_committed=True)
    until = {topic_partition: found.offset for topic_partition, found in latest.items()}
    earliest = list_offsets(cluster, dict.fromkeys(topic_partitions, EARLIEST))
    found = read_ranges(
        cluster, {topic_partition: found.offset for topic_partition, found in earliest.items()}, until
    )
    return [(key, value) for _, reads in found for _, key, value, _, _ in reads]


class Driver:
    """Does what Spark does with the reader: tasks run in this process, or in any of a pool's."""

    def __init__(
        self, application: Streams, max_records_per_task: int = 1000, pool: Executor | None = None
    ) -> None:
        self.pool = pool
        application.make_topics()
        self._application = application
        self.packed = packed(application.settings, application.topology)
        self._reader = StreamsReader(self.packed, max_records_per_task)
        self._start = self._reader.initialOffset()
        self.read = 0

    def run_elsewhere(self) -> None:
        """The same in another process."""
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as self.pool:
            self.run()
        self.pool = None

    def run(self, again: dict[str, Any] | None = None) -> dict[str, Any]:
        """Until there is nothing left to do; from an older offset when given. Gives where it began."""
        began = self._start = again if again is not None else self._start
        while self.step() or self._application.lag():
            pass
        self._reader.commit(self._start)
        return began

    def step(self) -> bool:
        """One batch, if there is one."""
        end = self._reader.latestOffset(self._start, None)
        if end == self._start:
            return False
        assignments = [(self.packed, partition) for partition in self._reader.partitions(self._start, end)]
        self.read += sum((map if self.pool is None else self.pool.map)(_run_one, assignments))
        self._start = end
        return True


def _run_one(assignment: tuple[str, Any]) -> int:
    """A task; gives how many records it read."""
    application, partition = assignment
    (batch,) = StreamsReader(application, 0).read(partition)
    found: int = batch.to_pydict()["read"][0]
    return found


def word_count(words: str, counts: str) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(words).group_by(lambda _, word: word)
    grouped.count(materialized="counts").to_stream().to(counts)
    return builder.build()
