"""`spark.readStream.format("millstream")`: topics without end.

One object of this class lives in a process of its own for as long as the query runs and decides the offsets
of each batch; copies of it read in the tasks.

An offset, as Spark logs it before a batch runs, is
    {"offsets": {topic: {partition: next offset}}, "plan": [[[topic, partition, first, until], ...], ...]}
The plan is that of the batch which ends there, one list per task. When Spark runs a batch again after a
crash, it takes the plan from its log, so the tasks are the same ones whatever the options, the code or the
number of partitions are by then: the exactly-once sink relies on that. An offset that Spark's own Kafka
connector has logged, {topic: {partition: next offset}}, is understood too.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from millstream.client.groups import Groups
from millstream.spark.clusters import shared_cluster
from millstream.spark.errors import PipelineError, said_plainly
from millstream.spark.source.batch import Task, read_task
from millstream.spark.source.offsets import Source
from millstream.spark.source.plan import Plan, Range, ranges_between, share, split
from millstream.spark.source.read_options import ReadOptions
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

LogOffset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names
        self._target: dict[TopicPartition, int] | None = None  # AvailableNow: not beyond
        self._newest: dict[TopicPartition, int] = {}
        self._last_batch = float("-inf")  # so that the first batch after a start waits for nothing
        self._committed: dict[TopicPartition, int] = {}
        self._commit_failed = False

    @property
    def _source(self) -> Source:
        return Source(self._options, shared_cluster(self._options.client).wait_until_reachable().cluster)

    # --- offsets, in the query's own process ----------------------------------------------------------------

    @said_plainly
    def initialOffset(self) -> LogOffset:
        # A query's first start: brokers that cannot be reached are an error at once.
        source = Source(self._options, shared_cluster(self._options.client).cluster)
        return write_offset(source.resolve(self._options.start, source.topic_partitions()))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows no limit of both kinds, so `latestOffset` applies the options itself. What matters here
        is that it is not ReadAllAvailable, which Spark hands over when a trigger wants everything
        regardless."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @said_plainly
    def latestOffset(self, start: LogOffset, limit: ReadLimit) -> LogOffset:
        done = read_offset(start)
        begin, lost = self._begin(done)
        self._commit_to_group(done)
        ranges = ranges_between(begin, self._end(begin))
        if not isinstance(limit, ReadAllAvailable):
            if self._too_little(sum(piece.size for piece in ranges)):
                ranges = []
            elif self._options.max_offsets is not None:
                ranges = share(ranges, self._options.max_offsets)
        if not ranges and not lost:
            return start  # the very same: Spark takes any other for new data
        end = begin | {TopicPartition(piece.topic, piece.partition): piece.until for piece in ranges}
        # What is lost is gone from the offset, or set back: that is logged, so that it is noticed once. A
        # batch has at least one task, since the exactly-once sink counts batches by the tasks that have
        # written.
        plan = split(ranges, self._options.min_tasks, self._options.max_records) or [[]]
        return write_offset(end, plan)

    def _begin(self, start: Mapping[TopicPartition, int]) -> tuple[dict[TopicPartition, int], bool]:
        """Where each partition goes on: new ones at their first offset, lost ones as the options say. And
        whether any was lost."""
        source = self._source
        self._newest = source.newest(start)
        begin = {
            topic_partition: start[topic_partition]
            for topic_partition in self._newest
            if topic_partition in start
        }
        lost = sorted(set(start) - set(self._newest))
        for topic, partition in lost:
            source.lost(f"partition {topic}-{partition} does not exist any more")
        for topic_partition in sorted(begin):
            if begin[topic_partition] > self._newest[topic_partition]:
                source.lost(
                    f"partition {topic_partition} ends at {self._newest[topic_partition]}, before the offset "
                    f"{begin[topic_partition]} "
                    "that was already read (was the topic deleted and created again?)"
                )
                begin |= source.earliest([topic_partition])
                lost.append(topic_partition)
        return begin | source.earliest(
            [topic_partition for topic_partition in self._newest if topic_partition not in start]
        ), bool(lost)

    def _end(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self._target is None:
            return self._newest
        return {
            topic_partition: min(
                self._newest[topic_partition], self._target.get(topic_partition, begin[topic_partition])
            )
            for topic_partition in begin
        }

    def _too_little(self, available: int) -> bool:
        """Whether to wait for `minOffsetsPerTrigger`. A run that ends by itself cannot wait."""
        least = self._options.min_offsets
        if least is None or self._target is not None:
            return False
        now = time.monotonic()
        if available < least and (now - self._last_batch) * 1000 < self._options.max_delay_ms:
            return True
        self._last_batch = now
        return False

    @said_plainly
    def reportLatestOffset(self) -> LogOffset | None:
        return write_offset(self._newest) if self._newest else None

    @said_plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._source.newest({})

    @said_plainly
    def partitions(self, start: LogOffset, end: LogOffset) -> list[InputPartition]:
        return [Task(tuple(ranges)) for ranges in self._plan(start, end)]

    def _plan(self, start: LogOffset, end: LogOffset) -> Plan:
        logged = read_plan(end)
        if logged is not None:
            return logged
        begin, until = read_offset(start), read_offset(end)
        return split(ranges_between(begin, until), self._options.min_tasks, self._options.max_records)

    def commit(self, end: LogOffset) -> None:
        self._commit_to_group(read_offset(end))

    def _commit_to_group(self, done: dict[TopicPartition, int]) -> None:
        """Spark has finished all batches up to here: tell the group, so that Kafka's tools show the lag.
        Spark never calls `commit` for the last batch of a run that ends by itself, but it asks `latestOffset`
        what comes after it, and does so only when it is finished. That this fails is no reason to stop: the
        query's own offsets are in its checkpoint."""
        group_id = self._options.group_id
        if group_id is None or done == self._committed:
            return
        try:
            outcomes = Groups(shared_cluster(self._options.client).cluster, timeout=5.0).commit(
                group_id, done
            )
            problem = next((error for error in outcomes.values() if error is not None), None)
        except KafkaError as error:
            problem = error
        if problem is None:
            self._committed = done
        elif not self._commit_failed:
            print(f"millstream: offsets are not committed to group '{group_id}': {problem}", file=sys.stderr)
        self._commit_failed = problem is not None

    # --- in the tasks ---------------------------------------------------------------------------------------

    def read(self, partition: Any) -> "Iterator[pa.RecordBatch]":
        return read_task(self._options, self._names, partition)


def _complain(reader: "Broken", *_: object) -> None:
    raise reader.problem


_complaint: Any = said_plainly(_complain)


class Broken(StreamReader):
    """A reader for wrong options. Spark's process for a stream loses an exception that is raised while the
    reader is made, so this one is made, and complains when it is first used."""

    def __init__(self, problem: PipelineError) -> None:
        self.problem = problem

    initialOffset = latestOffset = getDefaultReadLimit = reportLatestOffset = _complaint
    prepareForTriggerAvailableNow = partitions = commit = read = _complaint


# --- offsets as Spark logs them -----------------------------------------------------------------------------


def write_offset(offsets: Mapping[TopicPartition, int], plan: Plan | None = None) -> LogOffset:
    topics: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        topics.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    written: LogOffset = {"offsets": topics}
    if plan is not None:
        written["plan"] = [[list(piece) for piece in ranges] for ranges in plan]
    return written


def _is_ours(logged: LogOffset) -> bool:
    """Or else it is from a checkpoint of Spark's own connector, which has the topics at the top: a query that
    changes its format goes on where it was. (A topic there may be called "offsets".)"""
    topics = logged.get("offsets")
    return isinstance(topics, dict) and all(isinstance(partitions, dict) for partitions in topics.values())


def read_offset(logged: LogOffset) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in (logged["offsets"] if _is_ours(logged) else logged).items()
        for partition, offset in partitions.items()
    }


def read_plan(logged: LogOffset) -> Plan | None:
    if not _is_ours(logged) or "plan" not in logged:
        return None
    return [[Range(*fields) for fields in ranges] for ranges in logged["plan"]]
