"""The data source behind an application's query: where its batches begin and end, and the tasks that do the
work.

An offset, as Spark logs it, is {"v": 1, "offsets": {topic: {partition: next offset}}, "timers": ms} of all
topics that the sub-topologies read. Whether a range was done is not decided by Spark but by the application's
group (see `worker`).

`timers` is when timers by the wall clock were last looked after. Spark runs a batch only when the offset
changes: so it changes when a timer is due, and the batch has a task for every partition of the sub-topologies
that have processors of the application's own, with records or without. When the next one is due is in the
metadata of the tasks' commits.

Topics of one task are read in the order of their records' timestamps. Within a batch the task takes care of
that; so that it holds across batches too, a batch takes from each topic only what is not newer than what the
others leave for later (`aligned`).
"""

from __future__ import annotations

import base64
import logging
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream.client import Admin, Cluster
from millstream.client.groups import Groups
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.spark.clusters import shared_cluster
from millstream.spark.errors import said_plainly
from millstream.streams.runtime.aligned import aligned
from millstream.streams.runtime.assignments import Plan, StreamsConfig, TaskAssignment, TaskMetadata
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.streams.topology import Topology

log = logging.getLogger("millstream.streams")

_cloudpickle: Any = cloudpickle

_NEVER = 1 << 62
PURGE_EVERY = 30.0  # seconds between two cleanings of repartition topics

NAME = "millstream-streams"
SCHEMA = "sub_topology int, partition int, read long, written long"


def packed(settings: StreamsConfig, topology: Topology) -> str:
    """An application as the text of an option. With it goes where this process finds modules: functions of a
    module that lies beside the program are looked for there by the workers, too."""
    content = _cloudpickle.dumps((settings, topology))
    return base64.b64encode(pickle.dumps((Plan.of(settings, topology), sys.path, content))).decode()


@lru_cache(maxsize=16)
def _unpacked(application: str) -> tuple[StreamsConfig, Topology]:
    """A reader comes new to a worker with every batch; the application behind it is the same."""
    _, module_path, content = pickle.loads(base64.b64decode(application))  # noqa: S301 - this application's own
    sys.path.extend(folder for folder in module_path if folder not in sys.path)
    found: tuple[StreamsConfig, Topology] = _cloudpickle.loads(content)
    return found


@dataclass
class TaskPartition(InputPartition):
    assignment: TaskAssignment


class StreamsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> StreamsReader:
        return StreamsReader(
            self.options["application"], int(self.options.get("maxrecordspertask", "100000"))
        )


class StreamsReader(DataSourceStreamReader):
    def __init__(self, application: str, max_records_per_task: int) -> None:
        self._application, self._max_records_per_task = application, max_records_per_task
        self._loaded: tuple[Plan, Cluster] | None = None
        self._next_purge = 0.0
        self._next_timer: int | None = None  # None: to be looked up

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def _load(self) -> tuple[Plan, Cluster]:
        if self._loaded is None:
            plan, *_ = pickle.loads(base64.b64decode(self._application))  # noqa: S301 - this application's own
            self._loaded = (plan, shared_cluster(plan.client).cluster)
        return self._loaded

    def _topic_partitions(self) -> list[TopicPartition]:
        plan, cluster = self._load()
        return [
            TopicPartition(topic, number)
            for topic in sorted(
                {topic for sub_topology in plan.sub_topologies for topic in sub_topology.topics}
            )
            for number in sorted(cluster.topic(topic).partitions)
        ]

    @said_plainly
    def initialOffset(self) -> dict[str, Any]:
        return _offset_json(self._first(self._topic_partitions()))

    def _first(self, topic_partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group is; where it has not been, the beginning, or the end of topics that are to be read
        from there. The end is committed, because it is another one when somebody asks again."""
        plan, cluster = self._load()
        groups = Groups(cluster)
        begin: dict[TopicPartition, int] = {}
        for topic_partition, committed in groups.committed(plan.application, topic_partitions).items():
            if isinstance(committed, KafkaError):
                raise committed
            begin[topic_partition] = committed.offset
        wanted = {
            topic_partition: LATEST if topic_partition.topic in plan.from_end else EARLIEST
            for topic_partition in topic_partitions
            if topic_partition not in begin
        }
        if wanted:
            begin |= {
                topic_partition: found.offset
                for topic_partition, found in list_offsets(cluster, wanted).items()
            }
        ends = {
            topic_partition: begin[topic_partition]
            for topic_partition, which in wanted.items()
            if which == LATEST
        }
        if ends:
            for error in groups.commit(plan.application, ends).values():
                if error is not None:
                    raise error
        return begin

    def _begin(self, start: dict[str, Any]) -> dict[TopicPartition, int]:
        """An offset of Spark's log, and of topics (or partitions) that are new since then, where a new
        application begins."""
        begin = _offsets_of(start)
        new = [
            topic_partition for topic_partition in self._topic_partitions() if topic_partition not in begin
        ]
        return begin | self._first(new) if new else begin

    @said_plainly
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        plan, cluster = self._load()
        begin = self._begin(start)
        found = list_offsets(cluster, dict.fromkeys(self._topic_partitions(), LATEST), read_committed=True)
        latest = {
            topic_partition: max(offset.offset, begin[topic_partition])
            for topic_partition, offset in found.items()
        }
        end = {
            topic_partition: min(offset, begin[topic_partition] + self._max_records_per_task)
            for topic_partition, offset in latest.items()
        }
        for sub_topology in plan.sub_topologies:
            if len(sub_topology.topics) > 1:
                end |= aligned(cluster, sub_topology.topics, begin, end, latest)
        timers, now = start.get("timers", 0), round(time.time() * 1000)
        if self._timer_due() <= now:
            timers = now
        return start if end == begin and timers == start.get("timers", 0) else _offset_json(end, timers)

    def _timer_due(self) -> int:
        """When the next timer is due. 0 if there is a task that has not committed yet."""
        if self._next_timer is None:
            plan, cluster = self._load()
            tasks = [
                TopicPartition(
                    min(topic for topic in sub_topology.topics if number in cluster.topic(topic).partitions),
                    number,
                )
                for sub_topology in plan.sub_topologies
                if sub_topology.timers
                for number in {
                    number for topic in sub_topology.topics for number in cluster.topic(topic).partitions
                }
            ]
            committed_by_task = Groups(cluster).committed(plan.application, tasks) if tasks else {}
            self._next_timer = _NEVER
            for topic_partition in tasks:
                committed = committed_by_task.get(topic_partition)
                if isinstance(committed, KafkaError):
                    raise committed
                metadata = "" if committed is None else committed.metadata
                due = TaskMetadata.decode(metadata).timer if metadata else 0
                self._next_timer = min(self._next_timer, _NEVER if due is None else due)
        return self._next_timer

    @said_plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = self._begin(start), _offsets_of(end)
        timers = end.get("timers", 0) > start.get("timers", 0)
        self._next_timer = None  # this batch may change it
        assignments = []
        for sub_topology in self._load()[0].sub_topologies:
            for number in sorted({number for topic, number in until if topic in sub_topology.topics}):
                ranges = tuple(
                    (
                        topic,
                        begin.get(TopicPartition(topic, number), until[TopicPartition(topic, number)]),
                        until[TopicPartition(topic, number)],
                    )
                    for topic in sub_topology.topics
                    if TopicPartition(topic, number) in until
                )
                due = timers and sub_topology.timers
                if due or any(first < last for _, first, last in ranges):
                    assignments.append(TaskPartition(TaskAssignment(sub_topology.id, number, ranges, due)))
        return assignments  # type: ignore[return-value]

    @said_plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from millstream.streams.runtime.worker import run_assignment

        assert isinstance(partition, TaskPartition)
        done = run_assignment(*_unpacked(self._application), partition.assignment)
        names = ["sub_topology", "partition", "read", "written"]
        row = [partition.assignment.sub_topology, partition.assignment.partition, done.read, done.written]
        types = [pa.int32(), pa.int32(), pa.int64(), pa.int64()]
        columns = [pa.array([value], arrow_type) for value, arrow_type in zip(row, types, strict=True)]
        return iter([pa.RecordBatch.from_arrays(columns, names=names)])

    @said_plainly
    def commit(self, end: dict[str, Any]) -> None:
        """The tasks have committed their own. What all of them are past may go from the repartition
        topics."""
        if time.monotonic() < self._next_purge:
            return
        self._next_purge = time.monotonic() + PURGE_EVERY
        plan, cluster = self._load()
        done = {
            topic_partition: offset
            for topic_partition, offset in _offsets_of(end).items()
            if topic_partition.topic in plan.internal and offset > 0
        }
        if done:
            for topic_partition, outcome in Admin(cluster).delete_records(done).items():
                if isinstance(outcome, KafkaError):
                    log.warning("cannot clean %s-%d: %s", *topic_partition, outcome)


def _offset_json(offsets: dict[TopicPartition, int], timers: int = 0) -> dict[str, Any]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return {"v": 1, "offsets": topics, "timers": timers}


def _offsets_of(offset: dict[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): value
        for topic, numbers in offset["offsets"].items()
        for number, value in numbers.items()
    }
