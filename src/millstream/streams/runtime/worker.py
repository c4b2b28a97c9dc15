"""One task: a sub-topology on one partition number, for a range of offsets of its topics.

The truth is in the cluster: the application's group has committed how far each input was processed, in the same transaction as the
outputs and changelogs of that work (with at_least_once: right after them). So a range that was done already is skipped, whoever did it;
a task that another process continued is fenced by its transactional id; and a store whose position is not the committed one is
rebuilt from its changelog.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.client import Cluster, Producer
from millstream.client.fetch import Fetcher
from millstream.client.groups import Groups
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.client.transactional import TransactionalProducer
from millstream.streams.columns.blocks import Records, by_time
from millstream.streams.operators.base import Headers
from millstream.streams.runtime.record_collector import Written
from millstream.streams.runtime.work import Done, Memory, Settings, Work
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import Errors, Task
from millstream.streams.topology import Topology
from millstream.wire.arrow import Answer, Columns
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.streams")

_FETCH_BYTES = 4 << 20
"""Of a partition at a time. More would not stay in the processor's cache; less is more calls than work."""


class TaskRunner:
    """The task with its state, for as long as this process keeps it."""

    def __init__(self, settings: Settings, topology: Topology, sub_topology: int, partition: int) -> None:
        self.settings, self.topology, self._partition = settings, topology, partition
        self._cluster = Cluster(settings.client)
        self._groups = Groups(self._cluster)
        name = f"{sub_topology}_{partition}"
        self._folder = StoreFolder(Path(settings.folder) / name)
        self._written: defaultdict[str, Written] = defaultdict(Written)
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
            partitions_of=lambda topic: len(self._cluster.topic(topic).partitions),
            collect_columns=self._collect_columns,
        )
        self._folder.commit()  # the databases of new stores; ends the transaction
        self._position = self._folder.position
        self._memory = ""
        transactional_id = f"{settings.application}-{name}"
        self._producer: Producer
        if settings.exactly_once:
            self._producer = TransactionalProducer(self._cluster, transactional_id, create_topics=False)
        else:
            self._producer = Producer(self._cluster, create_topics=False)

    @property
    def is_current(self) -> bool:
        """Whether nobody else has gone on with the task since."""
        return self._folder.position == self._position

    def run(self, work: Work) -> Done:
        """All of the range that is not done yet. After an error this object is of no use any more."""
        producer = self._producer
        if isinstance(producer, TransactionalProducer):
            producer.begin()
        begin, memory = self._committed(work)
        end = {
            TopicPartition(topic, self._partition): max(until, begin[TopicPartition(topic, self._partition)])
            for topic, _, until in work.ranges
        }
        if begin == end and not work.timers:
            return Done(0, 0)
        if self._position != _position(begin, memory):
            self._restore()
        if self._memory != memory:
            self._task.recall(Memory.read(memory).times)
        if self._global is not None:
            self._global.catch_up()
        read = self._process(begin, end)
        self._task.punctuate_wall_clock()
        for store in self._task.stores.values():
            if store.spec.logged:
                changelog = store.spec.changelog(self.settings.application)
                self._written[changelog].add_changes(store.drain(), self._partition)
        written = sum(len(records) for records in self._written.values())
        self._send()
        self._memory = Memory(self._task.next_timer, self._task.memory).written()
        kept = {min(end): self._memory}
        if isinstance(producer, TransactionalProducer):
            producer.commit_offsets(self.settings.application, end, kept)
            producer.commit()
        else:
            for error in self._groups.commit(self.settings.application, end, kept).values():
                if error is not None:
                    raise error
        self._position = _position(end, self._memory)
        self._folder.commit(self._position)
        return Done(read, written)

    def close(self) -> None:
        self._folder.close()
        self._cluster.close()

    def give_up(self) -> None:
        """After an error: readers need not wait for the open transaction to run into its timeout."""
        if isinstance(self._producer, TransactionalProducer) and self._producer.producer_id >= 0:
            with contextlib.suppress(KafkaError, OSError):
                self._producer.abort()
        self.close()

    # Reading -------------------------------------------------------------------------------------------------------------

    def _committed(self, work: Work) -> tuple[dict[TopicPartition, int], str]:
        """How far each topic was processed, and what was to be remembered then."""
        places = [TopicPartition(topic, self._partition) for topic, _, _ in work.ranges]
        found = self._groups.committed(self.settings.application, places)
        begin, memory = {}, ""
        for topic, first, _ in work.ranges:
            committed = found.get(TopicPartition(topic, self._partition))
            if isinstance(committed, KafkaError):
                raise committed
            begin[TopicPartition(topic, self._partition)] = first if committed is None else committed.offset
            if committed is not None and TopicPartition(topic, self._partition) == min(places):
                memory = committed.metadata
        return begin, memory

    def _process(self, begin: dict[TopicPartition, int], until: dict[TopicPartition, int]) -> int:
        """In the order of timestamps across topics, as far as each topic's own order allows."""
        wanted = [
            topic for (topic, number), first in begin.items() if first < until[TopicPartition(topic, number)]
        ]
        kept: dict[str, list[Records]] = {topic: [] for topic in wanted}
        count = 0
        for (topic, _), records in read_ranges(self._cluster, begin, until):
            count += len(records)
            if len(wanted) == 1:
                self._task.deliver_batch(topic, self._partition, records)
            else:
                kept[topic].append(records)
        if len(wanted) > 1:
            for topic, records in by_time(kept):
                self._task.deliver_batch(topic, self._partition, records)
        return count

    def _restore(self) -> int:
        """All stores from their changelogs; gives how many records that took."""
        began, count = time.monotonic(), 0
        for store in self._task.stores.values():
            if not store.spec.logged:
                continue
            self._folder.clear(store)
            place = TopicPartition(store.spec.changelog(self.settings.application), self._partition)
            start = {place: list_offsets(self._cluster, {place: EARLIEST})[place].offset}
            end = {place: list_offsets(self._cluster, {place: LATEST}, read_committed=True)[place].offset}
            for _, reads in read_ranges(self._cluster, start, end):
                store.restore((key or b"", value, at) for _, key, value, at, _ in reads)
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
        self._written[topic].add(key, value, timestamp, headers, partition)

    def _collect_columns(self, topic: str, keys: Any, values: Any, stamps: Any, window_bytes: int) -> None:
        self._written[topic].add_columns(keys, values, stamps, window_bytes)

    def _send(self) -> None:
        """One batch per partition at a time."""
        transactional = self.settings.exactly_once
        self._turn += 1
        waiting: list[deque[tuple[TopicPartition, bytearray | memoryview]]] = []
        for topic, written in self._written.items():
            count = len(self._cluster.topic(topic).partitions)
            by_place: dict[TopicPartition, deque[tuple[TopicPartition, bytearray | memoryview]]] = {}
            for place, batch in written.batches(topic, count, self._turn, transactional):
                by_place.setdefault(place, deque()).append((place, batch))
            waiting.extend(by_place.values())
        while waiting:
            self._producer.send_batches(dict(queue.popleft() for queue in waiting))
            waiting = [queue for queue in waiting if queue]
        self._written.clear()


_runners: dict[tuple[str, str, int, int], TaskRunner] = {}


def run_work(settings: Settings, topology: Topology, work: Work) -> Done:
    """In a worker of Spark: with the task that this process has, if it is still the one to go on. One that was made for another
    start of the application is not: the topology may be a new one."""
    name = (settings.application, settings.folder, work.sub_topology, work.partition)
    runner = _runners.pop(name, None)
    if runner is not None:
        same = runner.topology is topology and runner.settings is settings
        if not (same and runner.is_current):
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


def _position(offsets: dict[TopicPartition, int], memory: str) -> bytes:
    return json.dumps([sorted((*place, offset) for place, offset in offsets.items()), memory]).encode()


def read_ranges(
    cluster: Cluster, begin: dict[TopicPartition, int], until: dict[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, Records]]:
    """The committed records of [begin, until) of each partition, in each one's order, some thousands at a time. What has been
    deleted from the beginning of a partition meanwhile is passed over."""
    fetcher = Fetcher(cluster, read_committed=True, partition_max_bytes=_FETCH_BYTES)
    left = {place: offset for place, offset in begin.items() if offset < until.get(place, offset)}
    while left:
        for fetched in fetcher.poll(left):
            place = TopicPartition(fetched.topic, fetched.partition)
            if fetched.error is ErrorCode.offset_out_of_range:
                _pass_over_deleted(cluster, place, left, until)
                continue
            if fetched.error is not ErrorCode.none:
                raise KafkaError(fetched.error, f"{fetched.topic}-{fetched.partition} cannot be read")
            if place not in left:
                continue
            start, end = left[place], until[place]
            answer = Answer(fetched.records)
            chunks = answer.chunks(
                start,
                end,
                read_committed=True,
                aborted=fetched.aborted,
                columns=Columns(headers=True),
                chunk_bytes=_FETCH_BYTES,
            )
            for chunk in chunks:
                yield place, Records.of(chunk)
            after = answer.next_offset
            if after is not None and after >= end:
                del left[place]
            elif after is not None:
                left[place] = after


def _pass_over_deleted(
    cluster: Cluster, place: TopicPartition, left: dict[TopicPartition, int], until: dict[TopicPartition, int]
) -> None:
    """To the first record that is left, as consumers do that begin at the earliest one."""
    first = list_offsets(cluster, {place: EARLIEST})[place].offset
    if first <= left[place]:
        text = f"{place[0]}-{place[1]} ends before offset {left[place]}"
        raise KafkaError(ErrorCode.offset_out_of_range, text)
    log.warning(
        "records %d to %d of %s-%d were deleted before they were read", left[place], first - 1, *place
    )
    left[place] = first
    if first >= until[place]:
        del left[place]


def task_of_global_tables(
    topology: Topology, application: str, sub_topologies: list[int], errors: Errors | None
) -> Task:
    """Takes the topics of global tables into stores in memory; it writes nothing."""
    return Task(
        topology,
        application,
        lambda *_: None,
        sub_topologies=sub_topologies,
        now=lambda: int(time.time() * 1000),
        errors=errors,
    )


class _GlobalTask:
    """The global tables of an application, whole, read on before every range."""

    def __init__(self, settings: Settings, topology: Topology, cluster: Cluster, groups: list[int]) -> None:
        self._cluster = cluster
        self._task = task_of_global_tables(topology, settings.application, groups, settings.errors)
        self.stores = self._task.stores
        self._topics = list(topology.global_stores.values())
        self._positions: dict[TopicPartition, int] = {}

    def catch_up(self) -> None:
        places = [
            TopicPartition(topic, number)
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
