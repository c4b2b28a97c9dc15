"""What tests of the runtime have in common: a cluster's topics, and a host whose lanes are threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from pyspark import cloudpickle

from millstream.client import EARLIEST, LATEST, Cluster, Producer, list_offsets
from millstream.host.local import LocalHost
from millstream.streams import Streams, StreamsBuilder, Topology
from millstream.streams.runtime.running import RunningStreams
from millstream.streams.runtime.topic_reader import read_ranges
from millstream.streams.runtime.topics import ADDITIONAL_RETENTION
from millstream.wire.records import Record
from tests.support.waiting import wait_until

KEPT = {ADDITIONAL_RETENTION: 1 << 60}
"""In an application's `config`: records with timestamps of 1970 stay in the changelogs of windows."""


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
    """Runs an application on a host of threads, again and again, until there is nothing left to do."""

    def __init__(self, application: Streams, machines: Sequence[str] = ("here", "here")) -> None:
        application.make_topics()
        self._application, self._machines = application, machines
        self.read = self.restored = 0

    def run(self) -> None:
        """Until all is processed. Everything is closed then, as if the process had ended."""
        with self.running() as running:
            wait_until(lambda: _done(running), "the application has not processed everything")

    def run_elsewhere(self) -> None:
        """The same in another process."""
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            dumps: Any = cloudpickle.dumps
            self.read += pool.submit(_run_packed, dumps(self._application)).result()

    @contextmanager
    def running(self) -> Iterator[RunningStreams]:
        host = LocalHost(machines=self._machines)
        running = RunningStreams(self._application, host)
        try:
            yield running
        finally:
            running.stop()
            host.close()
            for status in host.statuses(running.name).values():
                self.read += status.read
                self.restored += status.restored


def _done(running: RunningStreams) -> bool:
    error = running.exception()
    if error is not None:
        raise error
    return running.lag() == 0


def _run_packed(content: bytes) -> int:
    loads: Any = cloudpickle.loads
    driver = Driver(loads(content))
    driver.run()
    return driver.read


def word_count(words: str, counts: str) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(words).group_by(lambda _, word: word)
    grouped.count(materialized="counts").to_stream().to(counts)
    return builder.build()
