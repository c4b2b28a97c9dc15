"""Joins of a stream with a stream, a table or a global table.

Stream with stream: each side keeps its records in a window store and looks into the other side's. In a left
or outer join a record without a partner waits until no partner can come any more (window and grace are over),
then leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.streams.errors import StreamsError
from millstream.streams.operators.base import GetAsOf, Getter, Headers, Out, Process, TaskContext, Times
from millstream.streams.windows import JoinWindows

Joiner = Callable[[Any, Any, Any], Any]
"""(key, left, right) -> result."""

EMIT_EVERY = "millstream.outer.join.interval.ms"
"""Setting: how often (wall clock) records that stayed alone are looked for."""

_NEVER = 1 << 62


@dataclass(slots=True)
class KeepForJoin:
    """Puts a record into its side's window store, after the join has seen it."""

    store: str

    def build(self, task: TaskContext, out: Out) -> Process:
        store, forward = task.store(self.store), out.forward
        put, encode = store.put, store.encode

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value, timestamp, headers)
            if key is not None:
                put(encode(key), timestamp, value, timestamp)

        return process


class Tracker(Times):
    """What both sides of one join know of time, per task."""

    __slots__ = ("least", "next_emit", "seen")

    def __init__(self) -> None:
        self.seen = -1
        self.least = _NEVER
        self.next_emit = 0


@dataclass(slots=True)
class StreamStreamJoin:
    """One side of the join: looks into the other side's store.

    outer    this side's records also leave alone
    waiting  the store of those that wait, if any side's do
    name     both sides' common name
    """

    is_left: bool
    other: str
    windows: JoinWindows
    joiner: Joiner
    outer: bool
    waiting: str | None
    name: str

    def build(self, task: TaskContext, out: Out) -> Process:
        forward, outer, is_left, windows = out.forward, self.outer, self.is_left, self.windows
        other = task.store(self.other)
        fetch, encode = other.fetch, other.encode
        waiting = None if self.waiting is None else task.store(self.waiting)
        joined = self.joiner
        if is_left:
            before, after, join = windows.before_ms, windows.after_ms, joined
        else:
            before, after = windows.after_ms, windows.before_ms

            def join(key: Any, right: Any, left: Any) -> Any:
                return joined(key, left, right)

        tracker = task.shared.setdefault(("join", self.name), Tracker())
        send_lonely = None
        if waiting is not None:
            send_lonely = _Lonely(task, waiting, windows, after, joined, tracker, forward)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > tracker.seen:
                tracker.seen = timestamp
            if key is None or value is None:
                if outer and value is not None:
                    forward(None, join(None, value, None), timestamp, headers)
                else:
                    task.dropped += 1
                return
            if send_lonely is not None and timestamp == tracker.seen:
                send_lonely(headers)
            encoded_key = encode(key)
            last = max(0, timestamp + after)
            found = fetch(encoded_key, max(0, timestamp - before), last)
            for then, row in found:
                if waiting is not None:
                    waiting.remove(then, not is_left, encoded_key)
                forward(key, join(key, value, row[0]), max(timestamp, then), headers)
            if outer and not found:
                if waiting is None or last < tracker.seen:
                    forward(key, join(key, value, None), timestamp, headers)
                else:
                    tracker.least = min(tracker.least, timestamp)
                    waiting.add(timestamp, is_left, encoded_key, value)

        return process


@dataclass(slots=True)
class SelfJoin:
    """A stream joined with itself, with one store: the results of an inner join, in its order."""

    store: str
    windows: JoinWindows
    joiner: Joiner

    def build(self, task: TaskContext, out: Out) -> Process:
        store, join, forward = task.store(self.store), self.joiner, out.forward
        fetch, encode = store.fetch, store.encode
        before, after = self.windows.before_ms, self.windows.after_ms
        kept = self.windows.size + self.windows.grace_ms
        tracker = task.shared.setdefault(("join", self.store), Tracker())

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                task.dropped += 1
                return
            tracker.seen = max(tracker.seen, timestamp)
            alone = timestamp > tracker.seen - kept + 1  # not joined with itself yet, nor too old for that
            encoded_key = encode(key)
            for then, row in fetch(encoded_key, max(0, timestamp - before), max(0, timestamp + after)):
                forward(key, join(key, value, row[0]), max(timestamp, then), headers)
            for then, row in fetch(encoded_key, max(0, timestamp - after), max(0, timestamp + before)):
                if timestamp < then and alone:
                    alone = False
                    forward(key, join(key, value, value), timestamp, headers)
                forward(key, join(key, row[0], value), max(timestamp, then), headers)
            if alone:
                forward(key, join(key, value, value), timestamp, headers)

        return process


class _Lonely:
    """Sends what has waited in vain. Looks at most once per interval of wall-clock time."""

    def __init__(
        self,
        task: TaskContext,
        waiting: Any,
        windows: JoinWindows,
        after: int,
        joiner: Joiner,
        tracker: Tracker,
        forward: Process,
    ) -> None:
        self._task, self._waiting, self._windows, self._after = task, waiting, windows, after
        self._joiner, self._tracker, self._forward = joiner, tracker, forward
        self._every = int(task.config.get(EMIT_EVERY, 1000))

    def __call__(self, headers: Headers) -> None:
        tracker, windows, grace = self._tracker, self._windows, self._windows.grace_ms
        if tracker.least + self._after + grace >= tracker.seen:
            return
        now = self._task.now()
        if now < tracker.next_emit:
            return
        tracker.next_emit = now + self._every
        tracker.least = _NEVER
        open_left = open_right = False
        for timestamp, is_left, encoded_key, values in self._waiting.waiting():
            tracker.least = timestamp
            if open_left and open_right:
                break
            if timestamp + (windows.after_ms if is_left else windows.before_ms) + grace >= tracker.seen:
                if is_left:
                    open_left = True
                else:
                    open_right = True
                if open_left and open_right and len(values) > 1:
                    break  # the next one has the same time
                continue
            key = self._waiting.decode(encoded_key)
            for value in values:
                left, right = (value, None) if is_left else (None, value)
                self._forward(key, self._joiner(key, left, right), timestamp, headers)
            self._waiting.remove(timestamp, is_left, encoded_key)


@dataclass(slots=True)
class StreamTableJoin:
    """Looks up each record's row. `selector` gives the table's key (global tables); without it that is the
    record's."""

    table: Getter
    joiner: Joiner
    left: bool
    selector: Callable[[Any, Any], Any] | None = None
    buffer: str | None = None

    def build(self, task: TaskContext, out: Out) -> Process:
        as_of = self.table.build_as_of(task)
        if as_of is not None:
            return self._build_as_of(task, out, as_of)
        if self.buffer is not None:
            raise StreamsError("a stream-table join with a grace period needs a versioned table")
        get, joiner, left, selector, forward = (
            self.table.build(task),
            self.joiner,
            self.left,
            self.selector,
            out.forward,
        )

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            wanted = key if selector is None else selector(key, value)
            if value is None or (wanted is None and not left):
                task.dropped += 1
                return
            row = None if wanted is None else get(wanted)
            if row is not None:
                forward(key, joiner(key, value, row[0]), timestamp, headers)
            elif left:
                forward(key, joiner(key, value, None), timestamp, headers)

        return process

    def _build_as_of(self, task: TaskContext, out: Out, get: GetAsOf) -> Process:
        """With the row that was valid at the record's time; with a grace period when that is over, so that
        rows that come late are there."""
        joiner, left, forward = self.joiner, self.left, out.forward

        def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row = None if key is None else get(key, timestamp)
            if row is not None:
                forward(key, joiner(key, value, row[0]), timestamp, headers)
            elif left:
                forward(key, joiner(key, value, None), timestamp, headers)

        buffer = None if self.buffer is None else task.store(self.buffer)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                task.dropped += 1
            elif (
                buffer is None or key is None or not buffer.put(timestamp, buffer.encode(key), value, headers)
            ):
                join(key, value, timestamp, headers)
            else:
                while (due := buffer.pop_due()) is not None:
                    then, encoded_key, waited, its_headers = due
                    join(buffer.decode(encoded_key), waited, then, its_headers)

        return process
