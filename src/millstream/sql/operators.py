"""The operators that SQL adds to those of Streams: reading a source's records into rows, and what comes
before a sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.sql.row_functions import Log
from millstream.streams.operators.base import Headers, Out, Process, TaskContext
from millstream.streams.serdes import Serde
from millstream.streams.windows import Windowed

Layout = Callable[[Any, Any, int, Headers, Any, Any], tuple[Any, ...]]
"""(value, key, timestamp, headers, origin, window) -> row."""


@dataclass(slots=True)
class ReadRows:
    """Bytes of a topic into rows of a source: the columns that a query needs, in one tuple.

    All sources read bytes, so that several of them can have the same topic with different formats. A record
    that cannot be read is left out and goes to the processing log.
    """

    topic: str
    key: Serde
    value: Serde
    layout: Layout
    timestamp: Callable[[Any, Any], Any] | None
    """(key columns, value) -> milliseconds."""
    log: Log
    with_origin: bool = False
    """Whether the row has the record's partition or offset."""
    empty: bool = False
    """Whether the source has no value columns: then there is nothing to read in a value."""

    def build(self, task: TaskContext, out: Out) -> Process:
        empty, with_origin = self.empty, self.with_origin
        read_key, read_value = self.key.reader(self.topic), self.value.reader(self.topic)
        layout, forward, extract, log = self.layout, out.forward, self.timestamp, self.log

        def process(raw_key: Any, raw_value: Any, timestamp: int, headers: Headers) -> None:
            try:
                key = read_key(raw_key)
                value = read_value(raw_value)
            except Exception as error:
                task.dropped += 1
                log("deserialization", self.topic, error, raw_value)
                return
            if value is None and raw_value is not None and empty:
                value = ()
            window = None
            plain = key
            if type(key) is Windowed:
                plain, window = key
            if extract is not None and value is not None:
                try:
                    timestamp = extract(plain, value)
                    if timestamp is None or timestamp < 0:
                        raise ValueError(f"the timestamp is {timestamp}")
                except Exception as error:
                    task.dropped += 1
                    log("timestamp", self.topic, error, value)
                    return
            row = None
            if value is not None:
                origin = task.origin if with_origin else None
                row = layout(value, plain, timestamp, headers, origin, window)
            forward(key, row, timestamp, headers)

        return process


@dataclass(slots=True)
class DropNullRows:
    """A stream's records without a value mean nothing to joins and groups."""

    def build(self, task: TaskContext, out: Out) -> Process:
        forward = out.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is not None:
                forward(key, value, timestamp, headers)

        return process


@dataclass(slots=True)
class KeepNullRows:
    """A mapper of rows that leaves tombstones as they are."""

    mapper: Callable[[Any, Any], Any]

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, mapper = out.forward, self.mapper

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, None if value is None else mapper(key, value), timestamp, headers)

        return process


@dataclass(slots=True)
class StampFromColumn:
    """The sink's timestamp is a value of the row: WITH (TIMESTAMP=...)."""

    stamp: Callable[[Any, Any], Any]
    log: Log

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, stamp, log = out.forward, self.stamp, self.log

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is not None:
                try:
                    timestamp = stamp(key, value)
                    if timestamp is None or timestamp < 0:
                        raise ValueError(f"the timestamp is {timestamp}")
                except Exception as error:
                    task.dropped += 1
                    log("timestamp", "sink", error, value)
                    return
            forward(key, value, timestamp, headers)

        return process


@dataclass(slots=True)
class Limit:
    """The first so many records of a task."""

    count: int

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, left = out.forward, self.count

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal left
            if left > 0:
                left -= 1
                forward(key, value, timestamp, headers)

        return process
