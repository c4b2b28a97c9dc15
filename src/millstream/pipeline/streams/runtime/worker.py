"""One task: a sub-topology on one partition number, for a range of offsets of its topics.

The truth is in the cluster: the application's group has committed how far each input was processed, in the same transaction as the
outputs and changelogs of that work (with at_least_once: right after them). So a range that was done already is skipped, whoever did it;
a task that another process continued is fenced by its transactional id; and a store whose position is not the committed one is
rebuilt from its changelog.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, repeat
from pathlib import Path
from typing import Any

from millstream.client import ClientConfig, Cluster, Producer
from millstream.client.fetch import Fetcher
from millstream.client.groups import Groups
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.client.producer import Place
from millstream.pipeline.streams.operators.base import Headers
from millstream.pipeline.streams.runtime.transaction import OffsetsTransaction
from millstream.pipeline.streams.runtime.written import Written
from millstream.pipeline.streams.stores.base import LogRecord
from millstream.pipeline.streams.stores.lmdb import StoreFolder
from millstream.pipeline.streams.task import Errors, Task
from millstream.pipeline.streams.topology import Topology
from millstream.wire.arrow import Answer, Chunk, Columns
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger("millstream.streams")

Read = tuple[int, bytes | None, bytes | None, int, Headers]
"""(offset, key, value, timestamp, headers)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What every task of an application knows. Goes to Spark's workers by value."""

    application: str
    client: ClientConfig
    folder: str
    exactly_once: bool = True
    errors: Errors = field(default_factory=Errors)
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """[first, until) of each topic, on one partition number."""

    sub_topology: int
    partition: int
    ranges: tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class Done:
    read: int
    written: int


class TaskRunner:
    """The task with its state, for as long as this process keeps it."""

    def __init__(self, settings: Settings, topology: Topology, sub_topology: int, partition: int) -> None:
        self._settings, self._topology, self._partition = settings, topology, partition
        self._cluster = Cluster(settings.client)
        self._groups = Groups(self._cluster)
        name = f"{sub_topology}_{partition}"
        self._folder = StoreFolder(Path(settings.folder) / name)
        self._written: dict[str, Written] = {}
        self._turn = 0
        self._global = _global_task(settings, topology, self._cluster)
        self._task = Task(
            topology,
            settings.application,
            self._collect,
            partition=partition,
            sub_topologies=[sub_topology],
            open_store=self._folder.open,
            now=lambda: int(time.time() * 1000),
            config=settings.config,
            errors=settings.errors,
            global_stores=self._global.stores if self._global is not None else None,
        )
        self._folder.commit()  # the databases of new stores; ends the transaction
        self._position = self._folder.position
        transactional_id = f"{settings.application}-{name}"
        self._producer: Producer
        if settings.exactly_once:
            self._producer = OffsetsTransaction(self._cluster, transactional_id, settings.application)
        else:
            self._producer = Producer(self._cluster, create_topics=False)

    @property
    def is_current(self) -> bool:
        """Whether nobody else has gone on with the task since."""
        return self._folder.position == self._position

    def run(self, work: Work) -> Done:
        """All of the range that is not done yet. After an error this object is of no use any more."""
        producer = self._producer
        if isinstance(producer, OffsetsTransaction):
            producer.begin()
        begin = self._committed(work)
        wanted = {(topic, self._partition): until for topic, _, until in work.ranges}
        if all(begin[place] >= until for place, until in wanted.items()):
            return Done(0, 0)
        if self._position != _position(begin):
            self._restore()
        if self._global is not None:
            self._global.catch_up()
        read = self._process(begin, wanted)
        self._task.punctuate_wall_clock()
        for store in self._task.stores.values():
            if store.spec.logged:
                self._log(store.spec.changelog(self._settings.application), store.drain())
        written = sum(len(records) for records in self._written.values())
        self._send()
        end = begin | wanted
        if isinstance(producer, OffsetsTransaction):
            producer.commit_offsets(end)
            producer.commit()
        else:
            self._groups.commit(self._settings.application, end)
        self._position = _position(end)
        self._folder.commit(self._position)
        return Done(read, written)

    def close(self) -> None:
        self._folder.close()
        self._cluster.close()

    def give_up(self) -> None:
        """After an error: readers need not wait for the open transaction to run into its timeout."""
        if isinstance(self._producer, OffsetsTransaction) and self._producer.producer_id >= 0:
            with contextlib.suppress(KafkaError, OSError):
                self._producer.abort()
        self.close()

    # Reading -------------------------------------------------------------------------------------------------------------

    def _committed(self, work: Work) -> dict[Place, int]:
        places = [(topic, self._partition) for topic, _, _ in work.ranges]
        found = self._groups.committed(self._settings.application, places)
        begin = {}
        for topic, first, _ in work.ranges:
            committed = found.get((topic, self._partition))
            if isinstance(committed, KafkaError):
                raise committed
            begin[topic, self._partition] = first if committed is None else committed.offset
        return begin

    def _process(self, begin: dict[Place, int], until: dict[Place, int]) -> int:
        """In the order of timestamps across topics, as far as each topic's own order allows."""
        queues: dict[str, list[tuple[int, str, Read]]] = {topic: [] for topic, _ in begin}
        count = 0
        for (topic, _), reads in read_ranges(self._cluster, begin, until):
            count += len(reads)
            if len(queues) == 1:
                self._task.deliver_batch(topic, self._partition, reads)
            else:
                queues[topic].extend((read[3], topic, read) for read in reads)
        if len(queues) > 1:
            merged = heapq.merge(*queues.values(), key=lambda entry: entry[0])
            for topic, run in groupby(merged, key=lambda entry: entry[1]):
                self._task.deliver_batch(topic, self._partition, [read for _, _, read in run])
        return count

    def _restore(self) -> int:
        """All stores from their changelogs; gives how many records that took."""
        began, count = time.monotonic(), 0
        for store in self._task.stores.values():
            if not store.spec.logged:
                continue
            self._folder.clear(store)
            place = (store.spec.changelog(self._settings.application), self._partition)
            start = {place: list_offsets(self._cluster, {place: EARLIEST})[place].offset}
            end = {place: list_offsets(self._cluster, {place: LATEST}, read_committed=True)[place].offset}
            for _, reads in read_ranges(self._cluster, start, end):
                store.restore(LogRecord(key or b"", value, at) for _, key, value, at, _ in reads)
                count += len(reads)
        if count:
            seconds = time.monotonic() - began
            log.warning("restored %d records of partition %d in %.2f s", count, self._partition, seconds)
        return count

    # Writing -------------------------------------------------------------------------------------------------------------

    def _collect(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int | None,
    ) -> None:
        written = self._written.get(topic)
        if written is None:
            written = self._written[topic] = Written()
        written.add(key, value, timestamp, headers, partition)

    def _log(self, topic: str, changes: Iterable[LogRecord]) -> None:
        for key, value, timestamp in changes:
            self._collect(topic, key, value, max(timestamp, 0), (), self._partition)

    def _send(self) -> None:
        """One batch per partition at a time."""
        transactional = self._settings.exactly_once
        self._turn += 1
        waiting: list[deque[tuple[Place, bytearray | memoryview]]] = []
        for topic, written in self._written.items():
            count = len(self._cluster.topic(topic).partitions)
            by_place: dict[Place, deque[tuple[Place, bytearray | memoryview]]] = {}
            for place, batch in written.batches(topic, count, self._turn, transactional):
                by_place.setdefault(place, deque()).append((place, batch))
            waiting.extend(by_place.values())
        while waiting:
            self._producer.send_batches(dict(queue.popleft() for queue in waiting))
            waiting = [queue for queue in waiting if queue]
        self._written.clear()


_runners: dict[tuple[str, str, int, int], TaskRunner] = {}


def run_work(settings: Settings, topology: Topology, work: Work) -> Done:
    """In a worker of Spark: with the task that this process has, if it is still the one to go on."""
    name = (settings.application, settings.folder, work.sub_topology, work.partition)
    runner = _runners.pop(name, None)
    if runner is not None and not runner.is_current:
        runner.close()
        runner = None
    if runner is None:
        runner = TaskRunner(settings, topology, work.sub_topology, work.partition)
    try:
        done = runner.run(work)
    except BaseException:
        runner.give_up()
        raise
    _runners[name] = runner
    return done


def _position(offsets: dict[Place, int]) -> bytes:
    return json.dumps(sorted((*place, offset) for place, offset in offsets.items())).encode()


def read_ranges(
    cluster: Cluster, begin: dict[Place, int], until: dict[Place, int]
) -> Iterator[tuple[Place, list[Read]]]:
    """The committed records of [begin, until) of each partition, in each one's order, some thousands at a time."""
    fetcher = Fetcher(cluster, read_committed=True, partition_max_bytes=8 << 20)
    left = {place: offset for place, offset in begin.items() if offset < until.get(place, offset)}
    while left:
        for fetched in fetcher.poll(left):
            place = (fetched.topic, fetched.partition)
            if fetched.error is not ErrorCode.none:
                raise KafkaError(fetched.error, f"{fetched.topic}-{fetched.partition} cannot be read")
            if place not in left:
                continue
            start, end = left[place], until[place]
            answer = Answer(fetched.records)
            chunks = answer.chunks(
                start, end, read_committed=True, aborted=fetched.aborted, columns=Columns(headers=True)
            )
            for chunk in chunks:
                yield place, _rows(chunk)
            after = answer.next_offset
            if after is not None and after >= end:
                del left[place]
            elif after is not None:
                left[place] = after


def _rows(chunk: Chunk) -> list[Read]:
    assert chunk.key is not None and chunk.value is not None and chunk.headers is not None
    stamps = (chunk.timestamp.cast("int64").to_numpy() // 1000).tolist()
    if chunk.headers.null_count == len(chunk.headers) or not len(chunk.headers.flatten()):
        headers: Iterable[Headers] = repeat(())
    else:
        headers = [
            tuple((header["key"], header["value"]) for header in found or ())
            for found in chunk.headers.to_pylist()
        ]
    columns = (chunk.offset.to_pylist(), chunk.key.to_pylist(), chunk.value.to_pylist(), stamps, headers)
    return list(zip(*columns, strict=False))


class _GlobalTask:
    """The global tables of an application, whole, read on before every range."""

    def __init__(self, settings: Settings, topology: Topology, cluster: Cluster, groups: list[int]) -> None:
        self._cluster = cluster
        self._task = Task(
            topology,
            settings.application,
            lambda *_: None,
            sub_topologies=groups,
            now=lambda: int(time.time() * 1000),
            errors=settings.errors,
        )
        self.stores = self._task.stores
        self._topics = list(topology.global_stores.values())
        self._positions: dict[Place, int] = {}

    def catch_up(self) -> None:
        places = [
            (topic, number)
            for topic in self._topics
            for number in range(len(self._cluster.topic(topic).partitions))
        ]
        new = [place for place in places if place not in self._positions]
        if new:
            earliest = list_offsets(self._cluster, dict.fromkeys(new, EARLIEST))
            self._positions.update({place: found.offset for place, found in earliest.items()})
        latest = list_offsets(self._cluster, dict.fromkeys(places, LATEST), read_committed=True)
        until = {place: found.offset for place, found in latest.items()}
        for (topic, number), reads in read_ranges(self._cluster, self._positions, until):
            self._task.deliver_batch(topic, number, reads)
        self._positions.update(until)


def _global_task(settings: Settings, topology: Topology, cluster: Cluster) -> _GlobalTask | None:
    groups = [group.id for group in topology.sub_topologies() if group.is_global]
    return _GlobalTask(settings, topology, cluster, groups) if groups else None
