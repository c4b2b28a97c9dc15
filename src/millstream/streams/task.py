"""A task: one or more sub-topologies made ready to run, with their stores and timers.

`deliver(topic, partition, offset, key, value, timestamp, headers)` takes one record as bytes and runs it
through to the end; `deliver_batch` takes many of one topic, on columns where it can (`columns`). What sinks
write goes to `collect`. The runtime on Spark and the test driver both run this.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from millstream.streams.errors import InvalidTimestamp, ProcessingFailed, SerdeMissing, StreamsError
from millstream.streams.functions import positional
from millstream.streams.operators.base import (
    Headers,
    Origin,
    Out,
    PartitionTime,
    Process,
    Times,
    fan_out,
)
from millstream.streams.operators.processors import STREAM_TIME, WALL_CLOCK
from millstream.streams.punctuation import Punctuations, Timer
from millstream.streams.stores import StoreSpec
from millstream.streams.stores.buffers import MemoryJoinBuffer, MemoryOuterJoinStore, MemorySuppressBuffer
from millstream.streams.stores.memory import MemoryKeyValueStore, MemorySessionStore, MemoryWindowStore
from millstream.streams.stores.versioned import MemoryVersionedStore
from millstream.streams.topology import Node, Topology
from millstream.wire.murmur2 import partition_for

if TYPE_CHECKING:
    from millstream.streams.columns.blocks import Records
    from millstream.streams.columns.plan import CollectColumns, ColumnPlan

log = logging.getLogger("millstream.streams")

Collect = Callable[[str, bytes | None, bytes | None, int, Headers, int | None], None]
"""(topic, key, value, timestamp, headers, partition or None for the one of its key)."""
OpenStore = Callable[[StoreSpec, str], Any]
Choice = Literal["fail", "continue"]


def in_memory(spec: StoreSpec, application: str) -> Any:
    """The store of a spec, in dictionaries."""
    store_classes: dict[str, Any] = {
        "key-value": MemoryKeyValueStore,
        "window": MemoryWindowStore,
        "session": MemorySessionStore,
        "outer-join": MemoryOuterJoinStore,
        "suppress": MemorySuppressBuffer,
        "versioned": MemoryVersionedStore,
        "join-buffer": MemoryJoinBuffer,
    }
    return store_classes[spec.type](spec, application)


@dataclass(slots=True)
class Errors:
    """What happens with a record that cannot be read, or whose processing raises.

    reading, processing   "fail" stops the application; "continue" logs where the record was, and skips it
    dead_letters          a topic for the skipped records: their bytes and headers, and headers that say where
                          from and why

    A timestamp below 0, or an extractor of timestamps that raises, belongs to reading.
    """

    reading: Choice = "fail"
    processing: Choice = "fail"
    dead_letters: str | None = None

    def __post_init__(self) -> None:
        for stage in ("reading", "processing"):
            chosen = getattr(self, stage)
            if chosen not in ("fail", "continue"):
                raise StreamsError(f'Errors({stage}=...) is "fail" or "continue", not {chosen!r}')


@dataclass(slots=True)
class _Source:
    process: Process
    read_key: Callable[[bytes | None], Any]
    read_value: Callable[[bytes | None], Any]
    timestamps: Callable[[Any, Any, int, Headers, str], int] | None


class StreamTask:
    def __init__(
        self,
        topology: Topology,
        application: str,
        collect: Collect,
        *,
        partition: int = 0,
        sub_topologies: Iterable[int] | None = None,
        open_store: OpenStore = in_memory,
        now: Callable[[], int],
        config: dict[str, Any] | None = None,
        errors: Errors | None = None,
        global_stores: dict[str, Any] | None = None,
        partitions_of: Callable[[str], int] = lambda _topic: 1,
        collect_columns: CollectColumns | None = None,
        state_dir: Path | None = None,
    ) -> None:
        self.topology, self.application, self.partition = topology, application, partition
        self.stream_time = -1
        self._origin: tuple[str, int, int] | None = None
        self.dropped = 0
        self.metrics: dict[str, float] = {}
        self.commit_requested = False
        self._state_dir = state_dir
        self.config = config or {}
        self.shared: dict[Any, Any] = {}
        self.now = now
        self.errors = errors or Errors()
        self.collect, self.collect_columns = collect, collect_columns
        self._partitions_of = partitions_of
        self._punctuations = Punctuations()
        self.stores: dict[str, Any] = dict(global_stores or {})
        self._built: dict[str, Process] = {}
        self.forwards: dict[str, Process] = {}
        self._plans: dict[str, ColumnPlan | None] = {}
        self._records: tuple[str, int, Records] | None = None
        self.sources: dict[str, _Source] = {}
        wanted = None if sub_topologies is None else set(sub_topologies)
        own = [one for one in topology.sub_topologies() if wanted is None or one.id in wanted]
        for sub_topology in own:
            for name in sub_topology.stores:
                if name not in self.stores:
                    self.stores[name] = open_store(topology.stores[name], application)
        # Processors are made in the topology's order, so that timers fire in it.
        for sub_topology in own:
            for name in sub_topology.nodes:
                self._function(name)
        self._sources_by_node = {
            name: self._source(topology.nodes[name]) for sub_topology in own for name in sub_topology.sources
        }
        self._first_timers = self._punctuations.all()

    # For operators ------------------------------------------------------------------------------------------

    @property
    def origin(self) -> Origin | None:
        return None if self._origin is None else Origin(*self._origin)

    @origin.setter
    def origin(self, origin: Origin | None) -> None:
        self._origin = origin

    def store(self, name: str) -> Any:
        return self.stores[name]

    def make_state_dir(self) -> Path:
        if self._state_dir is None:
            raise StreamsError("this task has no folder: give the test driver a state_dir")
        self._state_dir.mkdir(parents=True, exist_ok=True)
        return self._state_dir

    def is_global(self, name: str) -> bool:
        return name in self.topology.global_stores

    def schedule(
        self, every: int, punctuation_type: str, punctuate: Callable[[int], Any], start: int | None = None
    ) -> Callable[[], None]:
        now = self.stream_time if punctuation_type == STREAM_TIME else self.now()
        return self._punctuations.schedule(every, punctuation_type, punctuate, start, now)

    # Running ------------------------------------------------------------------------------------------------

    def source(self, topic: str) -> _Source:
        found = self.sources.get(topic)
        if found is None:
            name = self.topology.source_of(self._short(topic))
            if name is None or name not in self._sources_by_node:
                raise StreamsError(f"this task does not read topic {topic}")
            found = self.sources[topic] = self._sources_by_node[name]
        return found

    def deliver(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """One record, all the way."""
        source = self.source(topic)
        self._origin = (topic, partition, offset)
        stage, own = "reading", timestamp
        try:
            new_key, new_value = source.read_key(key), source.read_value(value)
            if source.timestamps is not None:
                timestamp = source.timestamps(new_key, new_value, timestamp, headers, topic)
                if timestamp < 0:
                    where = f"{topic}-{partition} at offset {offset}"
                    log.warning("skipped a record of %s: its timestamp is %d", where, timestamp)
                    self.dropped += 1
                    return
            elif timestamp < 0:
                raise _invalid(timestamp)
            if timestamp > self.stream_time:
                self.stream_time = timestamp
            stage = "processing"
            source.process(new_key, new_value, timestamp, headers)
        except Exception as error:
            self._failed(stage, error, key, value, own, headers)
        finally:
            self._origin = None

    def deliver_batch(
        self,
        topic: str,
        partition: int,
        records: Records | Iterable[tuple[int, bytes | None, bytes | None, int, Headers]],
    ) -> None:
        """Many records of one topic: (offset, key, value, timestamp, headers), in order; or
        `columns.blocks.Records`."""
        source = self.source(topic)
        if hasattr(records, "offsets") and self._deliver_columns(topic, partition, cast("Records", records)):
            return
        if source.timestamps is not None or self._punctuations.by_stream_time:
            for offset, key, value, timestamp, headers in records:
                self.deliver(topic, partition, offset, key, value, timestamp, headers)
                self.punctuate_stream_time()
            return
        read_key, read_value, process = source.read_key, source.read_value, source.process
        stream_time = self.stream_time
        stage = "reading"
        try:
            for offset, key, value, timestamp, headers in records:
                self._origin = (topic, partition, offset)
                try:
                    stage = "reading"
                    new_key, new_value = read_key(key), read_value(value)
                    if timestamp > stream_time:
                        self.stream_time = stream_time = timestamp
                    elif timestamp < 0:
                        raise _invalid(timestamp)
                    stage = "processing"
                    process(new_key, new_value, timestamp, headers)
                except Exception as error:
                    self._failed(stage, error, key, value, timestamp, headers)
        finally:
            self._origin = None

    def _deliver_columns(self, topic: str, partition: int, records: Records) -> bool:
        """Whether all of it could be done on columns; else nothing was done."""
        if self._punctuations.by_stream_time or not len(records):
            return False
        name = self.topology.source_of(self._short(topic)) or topic
        if name not in self._plans:
            from millstream.streams.columns import can_load

            if not can_load():
                return False
            from millstream.streams.columns.plan import ColumnPlan

            self._plans[name] = ColumnPlan.for_source(self, name)
        plan = self._plans[name]
        if plan is None:
            return False
        self._records = (topic, partition, records)
        try:
            done = plan.run(records)
            if done:
                self.stream_time = max(self.stream_time, int(records.stamps.max()))
        finally:
            self._records = self._origin = None
        return done

    def forward_rows(
        self, forward: Process, keys: list[Any], values: list[Any], stamps: list[int], rows: list[int]
    ) -> None:
        """Results of a block one by one; `rows` are the records of it that they came from."""
        assert self._records is not None
        topic, partition, records = self._records
        offsets, times = records.offsets, records.stamps
        last = 0
        for key, value, stamp, row in zip(keys, values, stamps, rows, strict=True):
            self.stream_time = max(self.stream_time, *times[last : row + 1].tolist())
            last = row
            self._origin = (topic, partition, int(offsets[row]))
            try:
                forward(key, value, stamp, ())
            except Exception as error:
                raw = (records.keys[row].as_py(), records.values[row].as_py(), int(times[row]))
                self._failed("processing", error, *raw, ())  # records with headers are not in blocks

    def punctuate_stream_time(self) -> bool:
        """Timers by stream time that are due."""
        return self._punctuations.punctuate(STREAM_TIME, self.stream_time, self._fire)

    def punctuate_wall_clock(self) -> bool:
        return self._punctuations.punctuate(WALL_CLOCK, self.now(), self._fire)

    @property
    def next_timer(self) -> int | None:
        """When the next timer by the wall clock is due."""
        return self._punctuations.next_wall_clock

    @property
    def times(self) -> list[list[int]]:
        """What the task must still know of time when it continues in another process: its stream time, the
        timers that it began with, and the clocks of its operators. Rows are in the stores."""
        timers = [-1 if timer.ended else timer.next for timer in self._first_timers]
        clocks = [clock for clock in self.shared.values() if isinstance(clock, Times)]
        return [
            [self.stream_time],
            timers,
            *([getattr(clock, name) for name in type(clock).__slots__] for clock in clocks),
        ]

    def restore_times(self, times: list[list[int]]) -> None:
        """What `times` gave in another process. Ignored if it came from another topology."""
        if [len(numbers) for numbers in times] != [len(numbers) for numbers in self.times]:
            return
        (self.stream_time,), timers, *clock_times = times
        for timer, due in zip(self._first_timers, timers, strict=True):
            timer.next, timer.ended = due, due < 0
        clocks = [clock for clock in self.shared.values() if isinstance(clock, Times)]
        for clock, numbers in zip(clocks, clock_times, strict=True):
            for name, number in zip(type(clock).__slots__, numbers, strict=True):
                setattr(clock, name, number)

    def close(self) -> None:
        for processor in self.shared.get("processors", []):
            processor.close()

    def _fire(self, timer: Timer, now: int) -> None:
        try:
            timer.punctuate(now)
        except Exception as error:
            if self.errors.processing == "fail":
                if isinstance(error, StreamsError):
                    error.at(f"a timer at {now}")
                    raise
                raise ProcessingFailed(f"a timer at {now}: {type(error).__name__}: {error}") from error
            log.warning("a timer at %d failed: %s: %s", now, type(error).__name__, error)

    def _failed(
        self,
        stage: str,
        error: Exception,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Does with a record what `errors` says. Key, value, timestamp and headers are as they came."""
        assert self._origin is not None
        topic, partition, offset = self._origin
        where, error_type = f"{topic}-{partition} at offset {offset}", type(error)
        dead_letter_topic = self.errors.dead_letters
        if dead_letter_topic is not None:
            fields = {
                "exception": f"{error_type.__module__}.{error_type.__qualname__}",
                "message": str(error),
                "stacktrace": "".join(traceback.format_exception(error)),
                "topic": topic,
                "partition": str(partition),
                "offset": str(offset),
            }
            why = tuple(
                (f"__streams.errors.{name}", text.encode(errors="replace")) for name, text in fields.items()
            )
            # A topic takes no timestamps below 0.
            self.collect(
                dead_letter_topic,
                key,
                value,
                timestamp if timestamp >= 0 else self.now(),
                (*headers, *why),
                None,
            )
        if getattr(self.errors, stage) == "fail":
            if isinstance(error, StreamsError):
                raise error.at(f"{stage} a record of {where}")
            raise ProcessingFailed(f"{stage} a record of {where}: {error_type.__name__}: {error}") from error
        log.warning("skipped a record of %s: %s failed: %s: %s", where, stage, error_type.__name__, error)
        self.dropped += 1

    # Making ready -------------------------------------------------------------------------------------------

    def _short(self, topic: str) -> str:
        prefix = self.application + "-"
        short = topic.removeprefix(prefix)
        return short if short in self.topology.internal else topic

    def _function(self, name: str) -> Process:
        """A node's function, its children's first."""
        found = self._built.get(name)
        if found is None:
            node = self.topology.nodes[name]
            if node.type == "sink":
                found = self._sink(node)
            else:
                ways = {child: self._function(child) for child in node.children}
                self.forwards[name] = fan_out([ways[child] for child in node.children])
                out = Out(self.forwards[name], ways)
                found = out.forward if node.operator is None else node.operator.build(self, out)
            self._built[name] = found
        return found

    def _source(self, node: Node) -> _Source:
        topic = node.topics[0] if node.topics else node.name
        topic = self.topology.internal_name(topic, self.application)
        key, value = node.key or self.topology.key, node.value or self.topology.value
        timestamps = None if node.timestamps is None else self._extractor(node)
        return _Source(self._function(node.name), key.reader(topic), value.reader(topic), timestamps)

    def _extractor(self, node: Node) -> Callable[[Any, Any, int, Headers, str], int]:
        """A node's extractor, which may want the time of the record's partition."""
        extract = node.timestamps
        assert extract is not None
        if positional(extract, 3) < 5:
            return lambda key, value, timestamp, _headers, _topic: extract(key, value, timestamp)
        times = {
            self.topology.internal_name(topic, self.application): self.shared.setdefault(
                ("partition time", node.name, topic), PartitionTime()
            )
            for topic in node.topics
        }

        def extract_more(key: Any, value: Any, timestamp: int, headers: Headers, topic: str) -> int:
            time = times.setdefault(topic, PartitionTime())
            found = extract(key, value, timestamp, headers, time.newest)
            time.newest = max(time.newest, found)
            return found

        return extract_more

    def _sink(self, node: Node) -> Process:
        topology, collect, partitioner, choose = (
            self.topology,
            self.collect,
            node.partitioner,
            node.topic_choice,
        )
        key_serde, value_serde = node.key or topology.key, node.value or topology.value
        if choose is None and partitioner is None and not key_serde.window_bytes:
            topic = topology.internal_name(node.topics[0], self.application)
            write_key, write_value = key_serde.writer(topic), value_serde.writer(topic)

            def write(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                try:
                    key_bytes, value_bytes = write_key(key), write_value(value)
                except Exception as error:
                    raise _unwritable(node, key, value, error) from error
                collect(topic, key_bytes, value_bytes, timestamp, headers, None)

            return write

        def write_there(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            topic = node.topics[0] if choose is None else choose(key, value, headers)
            topic = topology.internal_name(topic, self.application)
            try:
                key_bytes = None if key is None else key_serde.write(topic, key)
                value_bytes = None if value is None else value_serde.write(topic, value)
            except Exception as error:
                raise _unwritable(node, key, value, error) from error
            partition: Any = None
            count = self._partitions_of(topic)
            if partitioner is not None:
                partition = partitioner(topic, key, value, count)
                if partition is not None and not isinstance(partition, int):
                    for one in dict.fromkeys(partition):
                        collect(topic, key_bytes, value_bytes, timestamp, headers, one)
                    return
            elif key_serde.window_bytes and key_bytes is not None and count > 1:
                partition = partition_for(key_bytes[: -key_serde.window_bytes], count)
            collect(topic, key_bytes, value_bytes, timestamp, headers, partition)

        return write_there


def _invalid(timestamp: int) -> InvalidTimestamp:
    return InvalidTimestamp(
        f"its timestamp is {timestamp}: give its source timestamps=... that makes a valid one, or drops it"
    )


def _unwritable(node: Node, key: Any, value: Any, error: Exception) -> SerdeMissing:
    where = node.topics[0] if node.topics else node.name
    return SerdeMissing(
        f"a record for {where} does not fit its serdes (key {type(key).__name__}, value "
        f"{type(value).__name__}): {error}; "
        f"say which serdes to use, as in to(topic, value=serdes.LONG)"
    )
