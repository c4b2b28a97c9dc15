"""Markers of exactly once: which batch each task of a query wrote last, in a compacted topic.

A task's transaction holds its rows and two records of this topic, both with the key `<query id>/<task>`. The
first says "prepared": all rows of this batch are written, and the transaction waits to be committed. The
second is added by the driver when all tasks of the batch are prepared: it says how many tasks there were.
Then the transaction is committed, rows and markers together, or none of them.

The topic is read without waiting for open transactions (read_uncommitted), and the end of each transaction is
looked up in the log itself. With read_committed, reading would stop at the oldest open transaction of anyone:
a committed marker could stay hidden behind another task's transaction, and a batch would be written twice.
And a prepared marker in an open transaction is worth knowing: another attempt of the task has done the work.

All markers of a query are in one partition. A reader keeps its position, so a batch costs one short fetch; a
new process reads the partition from its start, which compaction keeps short.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.client import EARLIEST, Admin, Cluster, Fetcher, NewTopic, list_offsets
from millstream.client.cluster import Topic
from millstream.spark.errors import PipelineError
from millstream.wire.batch import BatchHeader
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import (
    COMMIT_MARKER,
    Record,
    control_type,
    encode_batch,
    iter_batches,
    iter_records,
)
from millstream.wire.topic_partition import TopicPartition

PARTITIONS = 8
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # only closed segments are compacted: small ones soon are
    "min.cleanable.dirty.ratio": "0.1",
}


class Marker(NamedTuple):
    """One record. `tasks` is 0 while the task is only prepared."""

    task: int
    batch: int
    tasks: int
    rows: int
    run: str
    producer_id: int
    producer_epoch: int


def key_of(query: str, task: int) -> bytes:
    return f"{query}/{task}".encode()


def record_of(query: str, marker: Marker, now_ms: int) -> bytearray:
    """A batch with one record, for a transaction."""
    text = json.dumps(
        {
            "batch": marker.batch,
            "tasks": marker.tasks,
            "rows": marker.rows,
            "run": marker.run,
            "producer": [marker.producer_id, marker.producer_epoch],
        }
    )
    record = Record(0, now_ms, key_of(query, marker.task), text.encode())
    return encode_batch([record], transactional=True)


@dataclass
class MarkerState:
    """What the log says about one query. Fed with the log's batches in order; does no I/O."""

    query: str
    committed: dict[int, Marker] = field(default_factory=dict)  # by task
    open: dict[int, list[Marker]] = field(default_factory=dict)  # by producer id

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        producer = header.producer_id
        if header.is_control:
            ended = self.open.pop(producer, ())
            if any(control_type(record.key) == COMMIT_MARKER for record in iter_records(batch)):
                self.committed.update((marker.task, marker) for marker in ended)
            return
        prefix = f"{self.query}/".encode()
        for record in iter_records(batch):
            if record.key is None or not record.key.startswith(prefix) or record.value is None:
                continue
            task = int(record.key[len(prefix) :])
            fields = json.loads(record.value)
            marker = Marker(
                task, fields["batch"], fields["tasks"], fields["rows"], fields["run"], *fields["producer"]
            )
            if header.is_transactional:
                self.open.setdefault(producer, []).append(marker)
            else:
                self.committed[task] = marker

    @property
    def last_batch(self) -> int:
        """The newest batch of which any task is committed; -1 if there is none."""
        return max((marker.batch for marker in self.committed.values()), default=-1)

    @property
    def last_begun(self) -> int:
        """The newest batch whose commit has begun. A coordinator answers before it has written the end of the
        transaction to every log, so a batch can be committed although its end cannot be seen here yet."""
        return max((marker.batch for marker in self._begun()), default=-1)

    def counts(self, batch: int) -> frozenset[int]:
        """How many tasks this batch had, by the markers of those whose commit has begun."""
        return frozenset(marker.tasks for marker in self._begun() if marker.batch == batch)

    def _begun(self) -> Iterator[Marker]:
        yield from self.committed.values()
        for markers in self.open.values():
            yield from (marker for marker in markers if marker.tasks)

    def prepared(self, task: int, batch: int, run: str) -> Marker | None:
        """The marker of another attempt that has done this task's work, in a transaction that is still
        open."""
        for markers in self.open.values():
            for marker in markers:
                if (marker.task, marker.batch, marker.run) == (task, batch, run) and not marker.tasks:
                    return marker
        return None


class MarkerLog:
    """The topic, read up to its present end by `catch_up`."""

    def __init__(self, cluster: Cluster, topic: str, query: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._fetcher = Fetcher(cluster, partition_max_bytes=4 << 20)
        self._query = query
        self._partition: TopicPartition | None = None
        self._offset = -1
        self._topic_id: object = None
        self.state = MarkerState(query)

    @property
    def partition(self) -> TopicPartition:
        """The partition that has this query's markers. Creates the topic if there is none."""
        if self._partition is None:
            try:
                found = self._cluster.topic(self._topic)
            except KafkaError as error:
                if error.code is not ErrorCode.unknown_topic_or_partition:
                    raise
                found = self._create()
            self._partition = TopicPartition(
                self._topic, partition_for(self._query.encode(), len(found.partitions))
            )
            self._topic_id = found.id
        return self._partition

    def catch_up(self) -> MarkerState:
        """Read everything that is in the log now."""
        partition = self.partition
        if self._offset < 0:
            self._offset = list_offsets(self._cluster, {partition: EARLIEST})[partition].offset
        while True:
            for answer in self._fetcher.poll({partition: self._offset}, max_wait_ms=0):
                if answer.error is ErrorCode.offset_out_of_range or self._is_another():
                    return self._again()
                if answer.error is not ErrorCode.none:
                    raise KafkaError(answer.error, f"topic {self._topic}: {answer.error.name}")
                for header, batch in iter_batches(answer.records):
                    if header.next_offset > self._offset:
                        self.state.add(header, batch)
                        self._offset = header.next_offset
                if self._offset >= answer.high_watermark:
                    return self.state

    def _is_another(self) -> bool:
        """Whether the topic was deleted and made anew."""
        return self._cluster.topic_id(self._topic) != self._topic_id

    def _again(self) -> MarkerState:
        self._partition, self._offset, self.state = None, -1, MarkerState(self._query)
        return self.catch_up()

    def _create(self) -> Topic:
        try:
            Admin(self._cluster).create_if_missing(NewTopic(self._topic, PARTITIONS, -1, TOPIC_SETTINGS))
        except KafkaError as error:
            raise PipelineError(
                f"topic '{self._topic}', which delivery=exactly_once needs, cannot be created: "
                f"{error.message} (option 'markerTopic' names another; it must be compacted)"
            ) from None
        self._cluster.wait_for_topics([self._topic])
        return self._cluster.topic(self._topic)


# --- decisions ----------------------------------------------------------------------------------------------


def already_written(state: MarkerState, task: int, batch: int) -> Marker | None:
    """The marker by which this task's part of the batch is done, or None if it is to be written.
    PipelineError if the markers and the checkpoint do not belong together, so that writing could lose or
    repeat rows."""
    begun = state.last_begun
    if begun < 0 and batch > 0:
        raise PipelineError(
            f"delivery=exactly_once: the checkpoint is at batch {batch}, but there is no marker of query "
            f"{state.query}, so "
            "nobody knows what was written before; start with a new checkpoint"
        )
    if batch > begun + 1:
        raise PipelineError(
            f"delivery=exactly_once: the checkpoint is at batch {batch}, but the last marker of query "
            f"{state.query} is of "
            f"batch {begun}; batches in between were written without exactly once, or markers were lost"
        )
    last = state.last_batch
    if batch < last:
        raise PipelineError(
            f"delivery=exactly_once: the checkpoint is back at batch {batch}, but query {state.query} has "
            "written batch "
            f"{last} already; restore the newer checkpoint, or start with a new one"
        )
    own = state.committed.get(task)
    return own if own is not None and own.batch == batch else None


def check_counts(batch: int, tasks: int, counts: Iterable[int]) -> None:
    """A replayed batch must be cut into as many tasks as before."""
    for other in counts:
        if other != tasks:
            raise PipelineError(
                f"delivery=exactly_once: batch {batch} was begun with {other} tasks and is replayed with "
                f"{tasks}, so rows "
                f"would be repeated or lost; go back to {other} (spark.sql.shuffle.partitions, repartition, "
                "minPartitions) "
                "until this batch is done"
            )


def check_rows(marker: Marker, rows: int) -> None:
    """A replayed task must have the rows that it had before."""
    if marker.rows != rows:
        raise PipelineError(
            f"delivery=exactly_once: task {marker.task} of batch {marker.batch} wrote {marker.rows} rows and "
            "is replayed "
            f"with {rows}; the query or its source does not give the same rows for the same batch"
        )
