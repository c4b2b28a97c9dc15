"""Processors that applications write themselves, with state stores and timers.

class Alarm(Processor):
    def init(self, context):
        self.seen = context.store("seen")
        context.schedule(minutes(1), WALL_CLOCK, self.every_minute)

    def process(self, record):
        self.seen.put(record.key, record.value)
        self.context.forward(record.with_value("seen"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millstream.streams.errors import StreamsError, TopologyError
from millstream.streams.operators.base import Headers, Origin, Out, Process, TaskContext
from millstream.streams.operators.facades import for_application, read_only
from millstream.streams.operators.metrics import ProcessorMetrics
from millstream.streams.windows import Span, milliseconds

STREAM_TIME = "stream time"
WALL_CLOCK = "wall clock"

_ANY_KEY = object()


@dataclass(frozen=True, slots=True)
class Record:
    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record:
        return replace(self, key=key)

    def with_value(self, value: Any) -> Record:
        return replace(self, value=value)

    def with_timestamp(self, timestamp: int) -> Record:
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Headers) -> Record:
        return replace(self, headers=headers)


class Context:
    """What a processor can reach: its children, stores, timers, and where the record at hand came from."""

    def __init__(
        self,
        task: TaskContext,
        out: Out,
        stores: tuple[str, ...],
        fixed_key: bool,
        forwards: bool = True,
    ) -> None:
        self._task, self._out, self._stores, self._fixed_key = task, out, stores, fixed_key
        self._forwards = forwards
        self._key: Any = _ANY_KEY  # of the record at hand; a timer has none
        self._timestamp: int | None = None  # of the record, or of the timer

    def forward(self, record: Record, child: str | None = None) -> None:
        """To all children, or to the one of that name."""
        if not self._forwards:
            raise StreamsError("a transformer gives its result back: it has nothing to forward to")
        if self._fixed_key and self._key is not _ANY_KEY and record.key != self._key:
            raise StreamsError("process_values must not change the key; use process for that")
        if record.timestamp < 0:
            raise StreamsError(f"a record's timestamp must not be below 0: {record.timestamp}")
        way = self._out.forward if child is None else self._out.by_name[child]
        way(record.key, record.value, record.timestamp, record.headers)

    def store(self, name: str) -> Any:
        """One of the processor's stores, or a global one, which can only be read."""
        if name not in self._stores:
            if self._task.is_global(name):
                return read_only(self._task.store(name))
            raise StreamsError(
                f"this processor is not connected to a store {name!r}: name it in stores=[...]"
            )
        return for_application(self._task.store(name), self._time)

    def _time(self) -> int:
        """For changelogs: of the record or timer at hand."""
        return self._task.now() if self._timestamp is None else self._timestamp

    def schedule(
        self, every: Span, punctuation_type: str, punctuate: Callable[[int], Any], *, start: int | None = None
    ) -> Callable[[], None]:
        """Calls `punctuate(time)` by STREAM_TIME or WALL_CLOCK. The result ends it. With `start`
        (milliseconds since 1970) that is when it is due first, or would have been: the times after it keep
        their distance from there."""
        if punctuation_type not in (STREAM_TIME, WALL_CLOCK):
            raise StreamsError(f"a timer runs by {STREAM_TIME!r} or {WALL_CLOCK!r}, not {punctuation_type!r}")

        def at(time: int) -> None:
            self._timestamp = time
            punctuate(time)

        return self._task.schedule(milliseconds(every), punctuation_type, at, start)

    @property
    def record_metadata(self) -> Origin | None:
        """Topic, partition and offset of the record at hand; None in a timer."""
        return self._task.origin

    @property
    def metrics(self) -> ProcessorMetrics:
        """Counters and gauges of yours: see `ProcessorMetrics`."""
        return ProcessorMetrics(self._task.metrics)

    def commit(self) -> None:
        """Asks for a commit soon, before its time has come. It does not happen inside this call."""
        self._task.commit_requested = True

    @property
    def state_dir(self) -> Path:
        """A folder for files of this task's own. They stay on this machine when the task goes to another."""
        return self._task.make_state_dir()

    @property
    def stream_time(self) -> int:
        return self._task.stream_time

    @property
    def wall_clock(self) -> int:
        return self._task.now()

    @property
    def application_id(self) -> str:
        return self._task.application

    @property
    def partition(self) -> int:
        return self._task.partition

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that the application was given: `Streams(config=...)`."""
        return self._task.config


class Processor:
    """The base of an application's processors. One object per task."""

    context: Context

    def init(self, context: Context) -> None:
        """Called once, before the first record; `self.context` is set already."""

    def process(self, record: Record) -> None:
        raise StreamsError(f"{type(self).__name__} has no process(record)")

    def close(self) -> None:
        """Called once, at the end."""


def checked_maker(make: Callable[[], Processor]) -> Callable[[], Processor]:
    """What makes a processor has to make a new one each time: tasks do not share them."""
    if not callable(make):
        raise TopologyError(f"processors are made by a class or a function, not by a {type(make).__name__}")
    if not isinstance(make, type) and make() is make():
        raise TopologyError("every call has to make a new processor: tasks do not share them")
    return make


@dataclass(slots=True)
class RunProcessor:
    make: Callable[[], Processor]
    stores: tuple[str, ...] = ()
    fixed_key: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        processor = self.make()
        context = Context(task, out, self.stores, self.fixed_key)
        processor.context = context
        processor.init(context)
        task.shared.setdefault("processors", []).append(processor)
        run = processor.process

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            context._timestamp = timestamp
            run(Record(key, value, timestamp, headers))

        def process_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            context._key, context._timestamp = key, timestamp
            try:
                run(Record(key, value, timestamp, headers))
            finally:
                context._key = _ANY_KEY

        return process_value if self.fixed_key else process
