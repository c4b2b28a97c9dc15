"""TopologyTestDriver: runs a Streams topology in a test, record by record. No broker, no Spark, milliseconds.

    driver = TopologyTestDriver(builder.build())
    words = driver.input_topic("words")
    counts = driver.output_topic("counts", value=serdes.LONG)
    words.pipe("a", "x", timestamp=0)
    assert counts.read_key_values() == [("a", 1)]

It runs the operators that production runs, in one task with one partition, and behaves as the driver of the
same name in Kafka's kafka-streams-test-utils: a record runs through the whole topology, repartition topics
included, before `pipe` returns; the wall clock stands still until `advance_wall_clock`; closed windows and
lonely records of joins are looked for with every record; everything that would be written, changelogs
included, can be read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from millstream.streams.errors import StreamsError
from millstream.streams.operators.aggregates import EMIT_EVERY as AGGREGATION_EVERY
from millstream.streams.operators.base import Headers
from millstream.streams.operators.facades import for_application
from millstream.streams.operators.joins import EMIT_EVERY as JOIN_EVERY
from millstream.streams.serdes import Serde
from millstream.streams.task import Errors, OpenStore, StreamTask, in_memory
from millstream.streams.topology import Topology
from millstream.streams.windows import Span, milliseconds


class OutputRecord(NamedTuple):
    """A record read from an output topic."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()


class RawRecord(NamedTuple):
    """A record as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class _Queued(NamedTuple):
    offset: int
    record: RawRecord


class _Turns:
    """Topics with records that wait, by the timestamp of the first one: a heap that moves its elements as
    java.util.PriorityQueue does, because that decides in Kafka's driver which of equal ones is next."""

    def __init__(self, queues: dict[str, deque[_Queued]]) -> None:
        self._queues = queues
        self.topics: list[str] = []

    def _time(self, topic: str) -> int:
        return self._queues[topic][0].record.timestamp

    def add(self, topic: str) -> None:
        """From the end upwards, past all that are later."""
        heap, time, at = self.topics, self._time(topic), len(self.topics)
        heap.append(topic)
        while at > 0 and time < self._time(heap[(at - 1) // 2]):
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = topic

    def pop(self) -> str:
        """The first; the last one takes its place and moves down, past all that are earlier."""
        heap = self.topics
        first, last = heap[0], heap.pop()
        if heap:
            at, child = 0, 1
            while child < len(heap):
                if child + 1 < len(heap) and self._time(heap[child]) > self._time(heap[child + 1]):
                    child += 1
                if self._time(last) <= self._time(heap[child]):
                    break
                heap[at] = heap[child]
                at, child = child, 2 * child + 1
            heap[at] = last
        return first


class TopologyTestDriver:
    """start    the wall clock at the beginning, in milliseconds; now, unless given
    config   settings of the application
    errors   what happens with records that fail
    stores   opens a store; in memory, unless given
    state_dir  what `context.state_dir` gives; nothing, unless given
    """

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        *,
        application: str = "test-application",
        start: int | None = None,
        config: dict[str, Any] | None = None,
        errors: Errors | None = None,
        stores: OpenStore = in_memory,
        state_dir: Path | None = None,
    ) -> None:
        self.topology, self.application = topology, application
        self._now = int(time.time() * 1000) if start is None else start
        self._written: dict[str, deque[RawRecord]] = {}
        self._queues: dict[str, deque[_Queued]] = {}
        self._offsets: dict[str, int] = {}
        self._turn = _Turns(self._queues)
        groups = topology.sub_topologies()
        settings: dict[str, Any] = {
            "application": application,
            "collect": self._collect,
            "now": lambda: self._now,
            "config": {AGGREGATION_EVERY: 0, JOIN_EVERY: 0, **(config or {})},
            "errors": errors,
            "open_store": stores,
        }
        self._global = StreamTask(
            topology, sub_topologies=[group.id for group in groups if group.is_global], **settings
        )
        self._task = StreamTask(
            topology,
            sub_topologies=[group.id for group in groups if not group.is_global],
            global_stores=self._global.stores,
            state_dir=state_dir,
            **settings,
        )
        self._read_back = {
            topology.internal_name(topic, application)
            for node in topology.nodes.values()
            if node.type == "source"
            for topic in node.topics
        }
        self._commit()

    # What a test does ---------------------------------------------------------------------------------------

    def input_topic(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        start: int | None = None,
        advance: Span = 0,
    ) -> TestInputTopic:
        """A topic to write to, with the serdes that it is read with unless others are given. Records without
        a timestamp get `start` (default: the wall clock), each `advance` later."""
        key_serde, value_serde = self.topology.serdes_of(topic)
        first = self._now if start is None else start
        serdes = (key or key_serde, value or value_serde)
        return TestInputTopic(self, topic, *serdes, first, milliseconds(advance))

    def output_topic(
        self, topic: str, *, key: Serde | None = None, value: Serde | None = None
    ) -> TestOutputTopic:
        """A topic to read, with the serdes that it is written with unless others are given."""
        key_serde, value_serde = self.topology.serdes_of(topic)
        return TestOutputTopic(self, topic, key or key_serde, value or value_serde)

    def advance_wall_clock(self, span: Span) -> None:
        """Lets time pass; timers by the wall clock fire once if they are due."""
        self._now += milliseconds(span)
        self._task.punctuate_wall_clock()
        self._commit()
        self._run()

    def store(self, name: str) -> Any:
        """A store's content, as a processor would see it."""
        found = self._task.stores.get(name)
        if found is None:
            raise StreamsError(f"there is no store {name}; there are {sorted(self._task.stores)}")
        return for_application(found)

    @property
    def produced_topics(self) -> set[str]:
        return set(self._written)

    @property
    def stream_time(self) -> int:
        return self._task.stream_time

    @property
    def wall_clock(self) -> int:
        return self._now

    @property
    def metrics(self) -> dict[str, float]:
        """What processors have counted: `context.metrics`."""
        return dict(self._task.metrics)

    @property
    def dropped(self) -> int:
        """Records that were left out: null keys, late ones, failed ones."""
        return self._task.dropped + self._global.dropped

    def close(self) -> None:
        self._task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # As bytes -----------------------------------------------------------------------------------------------

    def pipe_raw(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        if topic not in self._read_back and self.topology.source_of(topic) is None:
            raise StreamsError(f"the topology does not read topic {topic}")
        self._enqueue(topic, RawRecord(key, value, timestamp, headers))
        self._run()

    def read_raw(self, topic: str) -> list[RawRecord]:
        """All that was written since the last time."""
        found = list(self._written.get(topic, ()))
        if found:
            self._written[topic].clear()
        return found

    # Inside -------------------------------------------------------------------------------------------------

    def _collect(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        _partition: int | None,
    ) -> None:
        record = RawRecord(key, value, timestamp, headers)
        self._written.setdefault(topic, deque()).append(record)
        if topic in self._read_back or self.topology.source_of(topic) is not None:
            self._enqueue(topic, record)

    def _enqueue(self, topic: str, record: RawRecord) -> None:
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        queue = self._queues.setdefault(topic, deque())
        queue.append(_Queued(offset, record))
        if len(queue) == 1:
            self._turn.add(topic)

    def _run(self) -> None:
        """The record with the least timestamp first; of equals, the one that Kafka's driver takes."""
        while self._turn.topics:
            topic = self._turn.pop()
            queue = self._queues[topic]
            offset, record = queue.popleft()
            if queue:
                self._turn.add(topic)
            node = self.topology.source_of(self._task._short(topic))
            task = self._global if node and self.topology.is_global_source(node) else self._task
            task.deliver(topic, 0, offset, *record)
            if task is self._task:
                task.punctuate_stream_time()
            self._commit()

    def _commit(self) -> None:
        for store in self._task.stores.values():
            if store.spec.logged:
                topic = store.spec.changelog(self.application)
                for key, value, timestamp in store.drain():
                    written = self._written.setdefault(topic, deque())
                    written.append(RawRecord(key, value, timestamp, ()))


class TestInputTopic:
    __test__ = False

    def __init__(
        self, driver: TopologyTestDriver, topic: str, key: Serde, value: Serde, start: int, advance: int
    ) -> None:
        self._driver, self._topic, self._next, self._advance = driver, topic, start, advance
        self._write_key, self._write_value = key.writer(topic), value.writer(topic)

    def pipe(self, key: Any, value: Any, timestamp: int | None = None, headers: Iterable[Any] = ()) -> None:
        """One record, all the way through the topology."""
        if timestamp is None:
            timestamp = self._next
            self._next += self._advance
        raw_key, raw_value = self._write_key(key), self._write_value(value)
        self._driver.pipe_raw(self._topic, raw_key, raw_value, timestamp, tuple(headers))

    def pipe_all(self, records: Iterable[tuple[Any, Any]]) -> None:
        """Many (key, value)."""
        for key, value in records:
            self.pipe(key, value)


class TestOutputTopic:
    __test__ = False

    def __init__(self, driver: TopologyTestDriver, topic: str, key: Serde, value: Serde) -> None:
        self._driver, self._topic = driver, topic
        self._read_key, self._read_value = key.reader(topic), value.reader(topic)

    def read_all(self) -> list[OutputRecord]:
        """What was written since the last time."""
        return [
            OutputRecord(self._read_key(raw.key), self._read_value(raw.value), raw.timestamp, raw.headers)
            for raw in self._driver.read_raw(self._topic)
        ]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        return [(record.key, record.value) for record in self.read_all()]

    def read_values(self) -> list[Any]:
        return [record.value for record in self.read_all()]

    def read_table(self) -> dict[Any, Any]:
        """The newest value of each key; tombstones are gone."""
        found = dict(self.read_key_values())
        return {key: value for key, value in found.items() if value is not None}

    @property
    def is_empty(self) -> bool:
        return not self._driver._written.get(self._topic)

    def __len__(self) -> int:
        return len(self._driver._written.get(self._topic, ()))
