"""The data source behind an application's query: where its batches begin and end, and the tasks that do the work.

An offset, as Spark logs it, is {"v": 1, "offsets": {topic: {partition: next offset}}} of all topics that the sub-topologies read. Whether a
range was done is not asked of Spark but of the application's group (see `worker`).
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream.client import Admin, Cluster
from millstream.client.offsets import EARLIEST, LATEST, list_offsets
from millstream.client.producer import Place
from millstream.pipeline.errors import said_plainly
from millstream.pipeline.streams.runtime.worker import Settings, Work, run_work
from millstream.pipeline.streams.topology import Topology
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("millstream.streams")

_cloudpickle: Any = cloudpickle

PURGE_EVERY = 30.0  # seconds between two cleanings of repartition topics

NAME = "millstream-streams"
SCHEMA = "sub_topology int, partition int, read long, written long"


def packed(settings: Settings, topology: Topology) -> str:
    """An application as the text of an option."""
    return base64.b64encode(_cloudpickle.dumps((settings, topology))).decode()


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

    def __getstate__(self) -> dict[str, Any]:
        return {"_application": self._application, "_most": self._most, "_loaded": None, "_next_purge": 0.0}

    def _load(self) -> tuple[Settings, Topology, Cluster, list[tuple[int, list[str]]]]:
        if self._loaded is None:
            settings, topology = _cloudpickle.loads(base64.b64decode(self._application))
            groups = [
                (
                    group.id,
                    [
                        topology.internal_name(topic, settings.application)
                        for source in group.sources
                        for topic in topology.nodes[source].topics
                    ],
                )
                for group in topology.sub_topologies()
                if not group.is_global
            ]
            self._loaded = (settings, topology, Cluster(settings.client), groups)
        return self._loaded  # type: ignore[no-any-return]

    def _places(self) -> list[Place]:
        _, _, cluster, groups = self._load()
        return [
            (topic, number)
            for topic in sorted({topic for _, topics in groups for topic in topics})
            for number in sorted(cluster.topic(topic).partitions)
        ]

    @said_plainly
    def initialOffset(self) -> dict[str, Any]:
        cluster = self._load()[2]
        found = list_offsets(cluster, dict.fromkeys(self._places(), EARLIEST))
        return _written({place: offset.offset for place, offset in found.items()})

    @said_plainly
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        cluster = self._load()[2]
        begin = _read(start)
        found = list_offsets(cluster, dict.fromkeys(self._places(), LATEST), read_committed=True)
        end = {place: min(offset.offset, begin.get(place, 0) + self._most) for place, offset in found.items()}
        end = {place: max(offset, begin.get(place, 0)) for place, offset in end.items()}
        return start if end == begin else _written(end)

    @said_plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = _read(start), _read(end)
        works = []
        for group, topics in self._load()[3]:
            for number in sorted({number for topic, number in until if topic in topics}):
                ranges = tuple(
                    (topic, begin.get((topic, number), 0), until[topic, number])
                    for topic in sorted(set(topics))
                    if (topic, number) in until
                )
                if any(first < last for _, first, last in ranges):
                    works.append(TaskPartition(Work(group, number, ranges)))
        return works  # type: ignore[return-value]

    @said_plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, TaskPartition)
        settings, topology, _, _ = self._load()
        done = run_work(settings, topology, partition.work)
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
        settings, topology, cluster, _ = self._load()
        internal = {topology.internal_name(topic, settings.application) for topic in topology.internal}
        done = {place: offset for place, offset in _read(end).items() if place[0] in internal and offset > 0}
        if done:
            for place, outcome in Admin(cluster).delete_records(done).items():
                if isinstance(outcome, KafkaError):
                    log.warning("cannot clean %s-%d: %s", *place, outcome)


def _written(offsets: dict[Place, int]) -> dict[str, Any]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return {"v": 1, "offsets": topics}


def _read(offset: dict[str, Any]) -> dict[Place, int]:
    return {
        (topic, int(number)): value
        for topic, numbers in offset["offsets"].items()
        for number, value in numbers.items()
    }
