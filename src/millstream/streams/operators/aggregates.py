"""Aggregation of streams by key, without windows and in tumbling, hopping and session windows.

An aggregation in windows drops what comes after its window closed, by the newest timestamp that this operator
has seen. `final` sends a window's result once, when it has closed, instead of every update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.streams.operators.base import (
    Clock,
    Get,
    GetAsOf,
    Getter,
    Headers,
    Out,
    Process,
    Row,
    TaskContext,
    clock_of,
    keeping,
)
from millstream.streams.operators.tables import WithStore
from millstream.streams.windows import (
    FOREVER,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
)

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]


def count_one(_key: Any, _value: Any, count: int) -> int:
    return count + 1


EMIT_EVERY = "millstream.emit.interval.ms"
"""Setting: how often (wall clock) closed windows are looked for."""


@dataclass(slots=True)
class Aggregate(WithStore):
    store: str
    send_old: bool = False
    initializer: Initializer = lambda: None
    aggregator: Aggregator = lambda _key, value, _aggregate: value

    def build(self, task: TaskContext, out: Out) -> Process:
        store = task.store(self.store)
        get, encode = store.get, store.encode
        put, forward = keeping(store, out.forward)
        initializer, aggregator, send_old = self.initializer, self.aggregator, self.send_old

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                task.dropped += 1
                return
            encoded_key = encode(key)
            row = get(encoded_key)
            if row is None:
                before = initializer()
            else:
                before, then = row
                if then > timestamp:
                    timestamp = then
            after = aggregator(key, value, before)
            put(encoded_key, after, timestamp)
            forward(key, (after, before if send_old else None), timestamp, headers)

        return process


@dataclass(slots=True)
class Count(WithStore):
    """An Aggregate that adds one, without the two calls per record (benchmarks/streams_operators.py)."""

    store: str
    send_old: bool = False

    def build(self, task: TaskContext, out: Out) -> Process:
        store = task.store(self.store)
        get, encode, send_old = store.get, store.encode, self.send_old
        put, forward = keeping(store, out.forward)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                task.dropped += 1
                return
            encoded_key = encode(key)
            row = get(encoded_key)
            if row is None:
                before = 0
            else:
                before, then = row
                if then > timestamp:
                    timestamp = then
            put(encoded_key, before + 1, timestamp)
            forward(key, (before + 1, before if send_old else None), timestamp, headers)

        return process


@dataclass(slots=True)
class Reduce(WithStore):
    store: str
    send_old: bool = False
    reducer: Callable[[Any, Any], Any] = lambda _before, value: value

    def build(self, task: TaskContext, out: Out) -> Process:
        store = task.store(self.store)
        get, encode = store.get, store.encode
        put, forward = keeping(store, out.forward)
        reducer, send_old = self.reducer, self.send_old

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                task.dropped += 1
                return
            encoded_key = encode(key)
            row = get(encoded_key)
            before = None
            if row is not None:
                before, then = row
                value = reducer(before, value)
                if then > timestamp:
                    timestamp = then
            put(encoded_key, value, timestamp)
            forward(key, (value, before if send_old else None), timestamp, headers)

        return process


@dataclass(slots=True)
class WindowRows:
    """Lookup in a windowed table by (key, window)."""

    name: str

    def stores(self) -> list[str]:
        return [self.name]

    def build(self, task: TaskContext) -> Get:
        store = task.store(self.name)
        return lambda key: store.fetch_one(store.encode(key.key), key.window.start)

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        return None


@dataclass(slots=True)
class InWindows(WithStore):
    """What aggregations in windows of a fixed length have in common."""

    windows: TimeWindows | SlidingWindows | UnlimitedWindows
    store: str
    initializer: Initializer
    aggregator: Aggregator
    final: bool = False
    send_old: bool = False

    @property
    def grace(self) -> int:
        return self.windows.grace_ms

    def getter(self) -> Getter:
        return WindowRows(self.store)


@dataclass(slots=True)
class WindowAggregate(InWindows):
    """Tumbling and hopping windows. A value of None counts as a record here, as in Kafka Streams."""

    windows: TimeWindows | UnlimitedWindows

    def build(self, task: TaskContext, out: Out) -> Process:
        store = task.store(self.store)
        fetch, put, encode, forward = store.fetch_one, store.put, store.encode, out.forward
        initializer, aggregator, send_old = self.initializer, self.aggregator, self.send_old
        starts, size, advance = self.windows.starts, self.windows.size, self.windows.advance
        grace, final, tumbling = self.windows.grace_ms, self.final, size == advance
        clock = clock_of(task, self)
        emit = None
        if final and isinstance(self.windows, TimeWindows):
            emit = _ClosedWindows(task, store, self.windows, forward, clock)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                task.dropped += 1
                return
            if timestamp > clock.seen:
                clock.seen = timestamp
            closed = clock.seen - grace
            encoded_key = encode(key)
            for start in (timestamp // advance * advance,) if tumbling else starts(timestamp):
                end = min(start + size, FOREVER)
                if end <= closed:
                    task.dropped += 1
                    continue
                row = fetch(encoded_key, start)
                if row is None:
                    before, newest = initializer(), timestamp
                else:
                    before, newest = row
                    if timestamp > newest:
                        newest = timestamp
                after = aggregator(key, value, before)
                put(encoded_key, start, after, newest)
                if emit is None:
                    windowed = Windowed(key, Window(start, end))
                    forward(windowed, (after, before if send_old else None), newest, headers)
            if emit is not None:
                emit(closed, headers)

        return process


class _Closed:
    """Sends windows when they have closed, looking for them at most once per interval of wall-clock time."""

    def __init__(self, task: TaskContext, store: Any, forward: Process, clock: Clock) -> None:
        self._task, self._store, self._forward, self._clock = task, store, forward, clock
        self._every = int(task.config.get(EMIT_EVERY, 1000))
        self._next = 0

    def __call__(self, closed: int, headers: Headers) -> None:
        now = self._task.now()
        if now >= self._next:
            self._next = now + self._every
            self._send(closed, headers)

    def _send(self, closed: int, headers: Headers) -> None:
        raise NotImplementedError


class _ClosedWindows(_Closed):
    def __init__(
        self, task: TaskContext, store: Any, windows: TimeWindows, forward: Process, clock: Clock
    ) -> None:
        super().__init__(task, store, forward, clock)
        self._windows = windows

    def _send(self, closed: int, headers: Headers) -> None:
        sent = self._clock.sent
        if sent >= max(closed, 0):
            return
        size = self._windows.size
        last = closed - size
        if last < 0:
            return
        first = 0
        if sent >= 0:
            first = max(0, sent - size) + 1
            # Nothing new can have closed when both ends lie in the same windows.
            if list(self._windows.starts(last)) == list(self._windows.starts(first - 1)):
                return
        for encoded_key, start, (value, timestamp) in self._store.fetch_all(first, last):
            key = Windowed(self._store.decode(encoded_key), Window(start, start + size))
            self._forward(key, (value, None), timestamp, headers)
        self._clock.sent = closed


@dataclass(slots=True)
class SessionRows:
    name: str

    def stores(self) -> list[str]:
        return [self.name]

    def build(self, task: TaskContext) -> Get:
        store = task.store(self.name)

        def look_up(key: Any) -> Row | None:
            value = store.fetch_one(store.encode(key.key), key.window.start, key.window.end)
            return None if value is None else (value, key.window.end)

        return look_up

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        return None


@dataclass(slots=True)
class SessionAggregate(WithStore):
    """A record joins the sessions it touches into one: the old ones are taken back (tombstones), the merged
    one is sent. The record's headers are not passed on, as in Kafka Streams."""

    windows: SessionWindows
    store: str
    initializer: Initializer
    aggregator: Aggregator
    merger: Callable[[Any, Any, Any], Any]
    final: bool = False
    send_old: bool = False

    @property
    def grace(self) -> int:
        return self.windows.grace_ms + self.windows.gap

    def getter(self) -> Getter:
        return SessionRows(self.store)

    def build(self, task: TaskContext, out: Out) -> Process:
        store = task.store(self.store)
        find, put, encode, forward = store.find, store.put, store.encode, out.forward
        initializer, aggregator, merger = self.initializer, self.aggregator, self.merger
        gap, kept, final, send_old = self.windows.gap, self.grace, self.final, self.send_old
        clock = clock_of(task, self)
        emit = _ClosedSessions(task, store, forward, clock) if final else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                task.dropped += 1
                return
            if timestamp > clock.seen:
                clock.seen = timestamp
            closed = clock.seen - kept
            encoded_key = encode(key)
            start = end = timestamp
            aggregate = initializer()
            merged = find(encoded_key, timestamp - gap, timestamp + gap)
            for old_start, old_end, old in merged:
                aggregate = merger(key, aggregate, old)
                start, end = min(start, old_start), max(end, old_end)
            if end < closed:
                task.dropped += 1
            else:
                if start != timestamp or end != timestamp:
                    for old_start, old_end, old in merged:
                        put(encoded_key, old_start, old_end, None)
                        if not final:
                            session = Windowed(key, Window(old_start, old_end))
                            forward(session, (None, old if send_old else None), old_end, ())
                aggregate = aggregator(key, value, aggregate)
                put(encoded_key, start, end, aggregate)
                if not final:
                    forward(Windowed(key, Window(start, end)), (aggregate, None), end, ())
            if emit is not None:
                emit(closed, headers)

        return process


class _ClosedSessions(_Closed):
    def _send(self, closed: int, headers: Headers) -> None:
        if self._clock.sent >= closed:
            return
        first, last = max(0, self._clock.sent), closed - 1
        if last < 0 or last < first:
            return
        for encoded_key, start, end, value in self._store.find_all(first, last):
            key = Windowed(self._store.decode(encoded_key), Window(start, end))
            self._forward(key, (value, None), end, headers)
        self._clock.sent = closed
