"""The data source behind an application's query: where its batches begin and end, and the tasks that do the work.

An offset, as Spark logs it, is {"v": 1, "offsets": {topic: {partition: next offset}}, "timers": ms} of all topics that the sub-topologies
read. Whether a range was done is not asked of Spark but of the application's group (see `worker`).

`timers` is when timers by the wall clock were last looked after. Spark runs a batch only when the offset changes: so it changes when a
timer is due, and the batch has a task for every partition of the sub-topologies that have processors of the application's own, records
or not. When the next one is due the tasks leave beside the offsets that they commit.

Topics of one task are read in the order of their records' timestamps. Within a batch the task sees to that; so that it holds across
batches too, a batch takes from each topic only what is not newer than what the others leave for later (`aligned`).
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
from millstream.spark.errors import said_plainly
from millstream.streams.runtime.aligned import aligned
from millstream.streams.runtime.work import Memory, Plan, Settings, Work
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


def packed(settings: Settings, topology: Topology) -> str:
    """An application as the text of an option. With it goes where this process finds modules: functions of a module that lies
    beside the program are looked for there by the workers, too."""
    content = _cloudpickle.dumps((settings, topology))
    return base64.b64encode(pickle.dumps((Plan.of(settings, topology), sys.path, content))).decode()


@lru_cache(maxsize=16)
def _unpacked(application: str) -> tuple[Settings, Topology]:
    """A reader comes new to a worker with every batch; the application behind it is the same."""
    _, places, content = pickle.loads(base64.b64decode(application))  # noqa: S301 - this application's own
    sys.path.extend(place for place in places if place not in sys.path)
    found: tuple[Settings, Topology] = _cloudpickle.loads(content)
    return found


@dataclass
class TaskPartition(InputPartition):
    work: Work


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
    def __init__(self, application: str, most: int) -> None:
        self._application, self._most = application, most
        self._loaded: Any = None
        self._next_purge = 0.0
        self._next_timer: int | None = None  # None: to be asked for

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def _load(self) -> tuple[Plan, Cluster]:
        if self._loaded is None:
            plan, *_ = pickle.loads(base64.b64decode(self._application))  # noqa: S301 - this application's own
            self._loaded = (plan, Cluster(plan.client))
        return self._loaded  # type: ignore[no-any-return]

    def _places(self) -> list[TopicPartition]:
        plan, cluster = self._load()
        return [
            TopicPartition(topic, number)
            for topic in sorted({topic for group in plan.groups for topic in group.topics})
            for number in sorted(cluster.topic(topic).partitions)
        ]

    @said_plainly
    def initialOffset(self) -> dict[str, Any]:
        return _written(self._first(self._places()))

    def _first(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group is; where it has not been, the beginning, or the end of topics that are to be read from there. The
        end is committed, because it is another one when somebody asks again."""
        plan, cluster = self._load()
        groups = Groups(cluster)
        begin: dict[TopicPartition, int] = {}
        for place, committed in groups.committed(plan.application, places).items():
            if isinstance(committed, KafkaError):
                raise committed
            begin[place] = committed.offset
        wanted = {
            place: LATEST if place[0] in plan.from_end else EARLIEST for place in places if place not in begin
        }
        if wanted:
            begin |= {place: found.offset for place, found in list_offsets(cluster, wanted).items()}
        ends = {place: begin[place] for place, which in wanted.items() if which == LATEST}
        if ends:
            for error in groups.commit(plan.application, ends).values():
                if error is not None:
                    raise error
        return begin

    def _begin(self, start: dict[str, Any]) -> dict[TopicPartition, int]:
        """An offset of Spark's log, and of topics (or partitions) that are new since then, where a new application begins."""
        begin = _read(start)
        new = [place for place in self._places() if place not in begin]
        return begin | self._first(new) if new else begin

    @said_plainly
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        plan, cluster = self._load()
        begin = self._begin(start)
        found = list_offsets(cluster, dict.fromkeys(self._places(), LATEST), read_committed=True)
        latest = {place: max(offset.offset, begin[place]) for place, offset in found.items()}
        end = {place: min(offset, begin[place] + self._most) for place, offset in latest.items()}
        for group in plan.groups:
            if len(group.topics) > 1:
                end |= aligned(cluster, group.topics, begin, end, latest)
        timers, now = start.get("timers", 0), round(time.time() * 1000)
        if self._timer_due() <= now:
            timers = now
        return start if end == begin and timers == start.get("timers", 0) else _written(end, timers)

    def _timer_due(self) -> int:
        """When the next timer is. 0 if there is a task that has not told yet."""
        if self._next_timer is None:
            plan, cluster = self._load()
            tasks = [
                TopicPartition(
                    min(topic for topic in group.topics if number in cluster.topic(topic).partitions), number
                )
                for group in plan.groups
                if group.timers
                for number in {number for topic in group.topics for number in cluster.topic(topic).partitions}
            ]
            told = Groups(cluster).committed(plan.application, tasks) if tasks else {}
            self._next_timer = _NEVER
            for place in tasks:
                committed = told.get(place)
                if isinstance(committed, KafkaError):
                    raise committed
                metadata = "" if committed is None else committed.metadata
                due = Memory.read(metadata).timer if metadata else 0
                self._next_timer = min(self._next_timer, _NEVER if due is None else due)
        return self._next_timer

    @said_plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = self._begin(start), _read(end)
        timers = end.get("timers", 0) > start.get("timers", 0)
        self._next_timer = None  # this batch may change it
        works = []
        for group in self._load()[0].groups:
            for number in sorted({number for topic, number in until if topic in group.topics}):
                ranges = tuple(
                    (
                        topic,
                        begin.get(TopicPartition(topic, number), until[TopicPartition(topic, number)]),
                        until[TopicPartition(topic, number)],
                    )
                    for topic in group.topics
                    if TopicPartition(topic, number) in until
                )
                due = timers and group.timers
                if due or any(first < last for _, first, last in ranges):
                    works.append(TaskPartition(Work(group.id, number, ranges, due)))
        return works  # type: ignore[return-value]

    @said_plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from millstream.streams.runtime.worker import run_work

        assert isinstance(partition, TaskPartition)
        done = run_work(*_unpacked(self._application), partition.work)
        names = ["sub_topology", "partition", "read", "written"]
        row = [partition.work.sub_topology, partition.work.partition, done.read, done.written]
        types = [pa.int32(), pa.int32(), pa.int64(), pa.int64()]
        columns = [pa.array([value], kind) for value, kind in zip(row, types, strict=True)]
        return iter([pa.RecordBatch.from_arrays(columns, names=names)])

    @said_plainly
    def commit(self, end: dict[str, Any]) -> None:
        """The tasks have committed their own. What all of them are past may go from the repartition topics."""
        if time.monotonic() < self._next_purge:
            return
        self._next_purge = time.monotonic() + PURGE_EVERY
        plan, cluster = self._load()
        done = {
            place: offset for place, offset in _read(end).items() if place[0] in plan.internal and offset > 0
        }
        if done:
            for place, outcome in Admin(cluster).delete_records(done).items():
                if isinstance(outcome, KafkaError):
                    log.warning("cannot clean %s-%d: %s", *place, outcome)


def _written(offsets: dict[TopicPartition, int], timers: int = 0) -> dict[str, Any]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return {"v": 1, "offsets": topics, "timers": timers}


def _read(offset: dict[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): value
        for topic, numbers in offset["offsets"].items()
        for number, value in numbers.items()
    }
