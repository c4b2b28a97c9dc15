"""One task: a sub-topology on one partition number, for a range of offsets of its topics.

The truth is in the cluster: the application's group has committed how far each input was processed, in the
same transaction as the outputs and changelogs of that range (with at_least_once: right after them). So a
range that was done already is skipped, whoever did it; a task that another process continued is fenced by its
transactional id; and a store whose position is not the committed one is rebuilt from its changelog.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import deque
from pathlib import Path

from millstream.client import Cluster, Producer
from millstream.client.groups import Groups
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.client.transactional import TransactionalProducer
from millstream.spark.clusters import shared_cluster
from millstream.streams.columns.blocks import Records, by_time
from millstream.streams.runtime.assignments import StreamsConfig, TaskAssignment, TaskMetadata, TaskResult
from millstream.streams.runtime.record_collector import RecordCollector
from millstream.streams.runtime.topic_reader import TopicReader, read_ranges
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import Errors, StreamTask
from millstream.streams.topology import Topology
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.streams")


class TaskRunner:
    """The task with its state, for as long as this process keeps it."""

    def __init__(
        self, settings: StreamsConfig, topology: Topology, sub_topology: int, partition: int
    ) -> None:
        self.settings, self.topology, self._partition = settings, topology, partition
        self._cluster = shared_cluster(settings.client).wait_until_reachable().cluster
        self._cluster.refresh(
            list(self._cluster.topics)
        )  # internal topics may be new ones since an earlier task
        self._groups = Groups(self._cluster)
        name = f"{sub_topology}_{partition}"
        self._folder = StoreFolder(Path(settings.folder) / name)
        self._collector = RecordCollector()
        self._range_number = 0
        self._global = GlobalTables(settings, topology, self._cluster) if topology.global_stores else None
        self._task = StreamTask(
            topology,
            settings.application,
            self._collector.send,
            partition=partition,
            sub_topologies=[sub_topology],
            open_store=self._folder.open,
            now=lambda: int(time.time() * 1000),
            config=settings.config,
            errors=settings.errors,
            global_stores=self._global.stores if self._global is not None else None,
            partitions_of=lambda topic: len(self._cluster.topic(topic).partitions),
            collect_columns=self._collector.send_columns,
        )
        self._folder.commit()  # the databases of new stores; ends the transaction
        self._position = self._folder.position
        self._metadata = ""
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

    def run(self, assignment: TaskAssignment) -> TaskResult:
        """All of the range that is not done yet. After an error this object is of no use any more."""
        producer = self._producer
        if isinstance(producer, TransactionalProducer):
            producer.begin()
        begin, metadata = self._committed(assignment)
        end = {
            TopicPartition(topic, self._partition): max(until, begin[TopicPartition(topic, self._partition)])
            for topic, _, until in assignment.ranges
        }
        if begin == end and not assignment.timers:
            return TaskResult(0, 0)
        if self._position != _position(begin, metadata):
            self._restore()
        if self._metadata != metadata:
            self._task.restore_times(TaskMetadata.decode(metadata).times)
        if self._global is not None:
            self._global.catch_up()
        read = self._process(begin, end)
        self._task.punctuate_wall_clock()
        for store in self._task.stores.values():
            if store.spec.logged:
                changelog = store.spec.changelog(self.settings.application)
                self._collector.send_changes(changelog, store.drain(), self._partition)
        written = len(self._collector)
        self._send()
        self._metadata = TaskMetadata(self._task.next_timer, self._task.times).encode()
        kept = {min(end): self._metadata}
        if isinstance(producer, TransactionalProducer):
            producer.commit_offsets(self.settings.application, end, kept)
            producer.commit()
        else:
            for error in self._groups.commit(self.settings.application, end, kept).values():
                if error is not None:
                    raise error
        self._position = _position(end, self._metadata)
        self._folder.commit(self._position)
        return TaskResult(read, written)

    def close(self) -> None:
        self._folder.close()

    def give_up(self) -> None:
        """After an error: readers need not wait for the open transaction to run into its timeout."""
        if isinstance(self._producer, TransactionalProducer) and self._producer.producer_id >= 0:
            with contextlib.suppress(KafkaError, OSError):
                self._producer.abort()
        self.close()

    # Reading ------------------------------------------------------------------------------------------------

    def _committed(self, assignment: TaskAssignment) -> tuple[dict[TopicPartition, int], str]:
        """How far each topic was processed, and the metadata of that commit."""
        topic_partitions = [TopicPartition(topic, self._partition) for topic, _, _ in assignment.ranges]
        found = self._groups.committed(self.settings.application, topic_partitions)
        begin, metadata = {}, ""
        for topic, first, _ in assignment.ranges:
            committed = found.get(TopicPartition(topic, self._partition))
            if isinstance(committed, KafkaError):
                raise committed
            begin[TopicPartition(topic, self._partition)] = first if committed is None else committed.offset
            if committed is not None and TopicPartition(topic, self._partition) == min(topic_partitions):
                metadata = committed.metadata
        return begin, metadata

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
            topic_partition = TopicPartition(store.spec.changelog(self.settings.application), self._partition)
            start = {
                topic_partition: list_offsets(self._cluster, {topic_partition: EARLIEST})[
                    topic_partition
                ].offset
            }
            end = {
                topic_partition: list_offsets(self._cluster, {topic_partition: LATEST}, read_committed=True)[
                    topic_partition
                ].offset
            }
            for _, reads in read_ranges(self._cluster, start, end):
                store.restore((key or b"", value, at) for _, key, value, at, _ in reads)
                count += len(reads)
        if count:
            seconds = time.monotonic() - began
            log.warning("restored %d records of partition %d in %.2f s", count, self._partition, seconds)
        return count

    # Writing ------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """One batch per partition at a time."""
        self._range_number += 1
        by_partition: dict[TopicPartition, deque[bytearray | memoryview]] = {}
        for topic_partition, batch in self._collector.batches(
            lambda topic: len(self._cluster.topic(topic).partitions),
            self._range_number,
            self.settings.exactly_once,
        ):
            by_partition.setdefault(topic_partition, deque()).append(batch)
        while by_partition:
            self._producer.send_batches({which: queue.popleft() for which, queue in by_partition.items()})
            by_partition = {which: queue for which, queue in by_partition.items() if queue}
        self._collector.clear()


_runners: dict[tuple[str, str, int, int], TaskRunner] = {}


def run_assignment(settings: StreamsConfig, topology: Topology, assignment: TaskAssignment) -> TaskResult:
    """In a worker of Spark: with the task that this process has, if it is still the one to continue. One that
    was made for another start of the application is not: the topology may be a new one."""
    name = (settings.application, settings.folder, assignment.sub_topology, assignment.partition)
    runner = _runners.pop(name, None)
    if runner is not None:
        same = runner.topology is topology and runner.settings is settings
        if not (same and runner.is_current):
            runner.close()
            runner = None
    if runner is None:
        runner = TaskRunner(settings, topology, assignment.sub_topology, assignment.partition)
    try:
        done = runner.run(assignment)
    except BaseException:
        runner.give_up()
        raise
    _runners[name] = runner
    return done


def _position(offsets: dict[TopicPartition, int], metadata: str) -> bytes:
    return json.dumps(
        [sorted((*topic_partition, offset) for topic_partition, offset in offsets.items()), metadata]
    ).encode()


def global_table_task(
    topology: Topology, application: str, sub_topologies: list[int], errors: Errors | None
) -> StreamTask:
    """Takes the topics of global tables into stores in memory; it writes nothing."""
    return StreamTask(
        topology,
        application,
        lambda *_: None,
        sub_topologies=sub_topologies,
        now=lambda: int(time.time() * 1000),
        errors=errors,
    )


class GlobalTables:
    """The global tables of an application, whole, in memory; read on before every range."""

    def __init__(self, settings: StreamsConfig, topology: Topology, cluster: Cluster) -> None:
        sub_topologies = [one.id for one in topology.sub_topologies() if one.is_global]
        self._task = global_table_task(topology, settings.application, sub_topologies, settings.errors)
        self._reader = TopicReader(cluster, topology.global_stores.values())
        self.stores = self._task.stores

    def catch_up(self) -> None:
        for (topic, number), records in self._reader.read_to(self._reader.ends()):
            self._task.deliver_batch(topic, number, records)
