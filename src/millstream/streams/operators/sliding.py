"""Sliding windows: one window for every distinct set of records that lie at most a given span apart.

Two windows belong to every record at time t: the left one [t - d, t] that it ends, and the right one [t + 1,
t + 1 + d] that starts after it and exists once something is in it. A new record therefore adds itself to the
windows it falls into, may give the record before it a right window, makes its own left window from what the
left neighbours hold, and its own right window if something came later already. Windows that would start
before 0 are one: [0, d].

The timestamp kept with a window is the newest record in it: from that one knows where the neighbours are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.streams.operators.aggregates import EMIT_EVERY, InWindows
from millstream.streams.operators.base import Headers, Out, Process, Row, TaskContext, clock_of
from millstream.streams.windows import SlidingWindows, Window, Windowed


@dataclass(slots=True)
class SlidingAggregate(InWindows):
    windows: SlidingWindows

    def build(self, task: TaskContext, out: Out) -> Process:
        return _Sliding(self, task, out.forward).process


class _Sliding:
    def __init__(self, spec: SlidingAggregate, task: TaskContext, forward: Process) -> None:
        self._task, self._forward = task, forward
        self._store = task.store(spec.store)
        self._difference, self._grace = spec.windows.difference, spec.windows.grace_ms
        self._initializer, self._aggregator = spec.initializer, spec.aggregator
        self._final, self._send_old = spec.final, spec.send_old
        self._clock = clock_of(task, spec)
        self._every = int(task.config.get(EMIT_EVERY, 1000))
        self._next = 0

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            self._task.dropped += 1
            return
        if timestamp > self._clock.seen:
            self._clock.seen = timestamp
        closed = self._clock.seen - self._grace
        if timestamp + self._difference < closed:
            self._task.dropped += 1
            return
        record = _Record(key, self._store.encode(key), value, timestamp, headers, closed)
        if timestamp < self._difference:
            self._process_early(record)
            return
        self._process_reverse(record)
        self._send_closed(closed, headers)

    def _process_reverse(self, record: _Record) -> None:
        now, difference = record.timestamp, self._difference
        starts: set[int] = set()
        left: Row | None = None
        right: Row | None = None
        has_left = has_right = False
        before: int | None = None
        for start, row in reversed(
            self._store.fetch(record.encoded_key, max(0, now - 2 * difference), now + 1)
        ):
            starts.add(start)
            end, newest = start + difference, row[1]
            if start == now + 1:
                has_right = True
            elif end > now:
                if right is None:
                    right = row
                self._update(record, start, row)
            elif end == now:
                has_left = True
                self._update(record, start, row)
                if newest >= now:
                    return  # a record of the same instant made all windows already
                before = newest
            else:
                left, before = row, newest
                break
        if before is not None and before + 1 not in starts and before + 1 + difference >= now:
            self._update(record, before + 1, (self._initializer(), now))
        if not has_left:
            held = left[0] if left is not None and before is not None and now - difference <= before else None
            held = self._initializer() if held is None else held
            self._update(record, now - difference, (held, now))
        if not has_right and right is not None and right[1] > now:
            self._make_right(record, right)

    def _process_early(self, record: _Record) -> None:
        now = record.timestamp
        starts: set[int] = set()
        first: Row | None = None
        right: Row | None = None
        has_right = False
        before: int | None = None
        for start, row in self._store.fetch(record.encoded_key, 0, now + 1):
            starts.add(start)
            if start == 0:
                first = row
                if row[1] < now:
                    before = row[1]
            elif start <= now:
                right = row
                self._update(record, start, row)
            else:
                has_right = True
        if right is None and first is not None and first[1] > now:
            right = first
        if not has_right and right is not None and right[1] > now:
            self._make_right(record, right)
        if before is not None and before + 1 not in starts:
            self._update(record, before + 1, (self._initializer(), now))
        self._update(record, 0, (self._initializer(), now) if first is None else first)

    def _make_right(self, record: _Record, row: Row) -> None:
        """The window after this record holds what the last one around it holds, without this record."""
        start = record.timestamp + 1
        self._store.put(record.encoded_key, start, row[0], row[1])
        self._send(record, start, None, row[0], row[1])

    def _update(self, record: _Record, start: int, row: Row) -> None:
        if start + self._difference < record.closed:
            self._task.dropped += 1
            return
        before, newest = row
        after = self._aggregator(record.key, record.value, before)
        newest = record.timestamp if before is None else max(record.timestamp, newest)
        self._store.put(record.encoded_key, start, after, newest)
        self._send(record, start, before, after, newest)

    def _send(self, record: _Record, start: int, before: Any, after: Any, timestamp: int) -> None:
        if not self._final:
            key = Windowed(record.key, Window(start, start + self._difference))
            self._forward(key, (after, before if self._send_old else None), timestamp, record.headers)

    def _send_closed(self, closed: int, headers: Headers) -> None:
        if not self._final:
            return
        now = self._task.now()
        if now < self._next:
            return
        self._next = now + self._every
        sent = self._clock.sent
        if sent >= max(closed, 0):
            return
        last = closed - self._difference - 1
        if last < 0:
            return
        first = max(0, sent - self._difference)
        for encoded_key, start, (value, timestamp) in self._store.fetch_all(first, last):
            key = Windowed(self._store.decode(encoded_key), Window(start, start + self._difference))
            self._forward(key, (value, None), timestamp, headers)
        self._clock.sent = closed


class _Record:
    __slots__ = ("closed", "encoded_key", "headers", "key", "timestamp", "value")

    def __init__(
        self, key: Any, encoded_key: bytes, value: Any, timestamp: int, headers: Headers, closed: int
    ) -> None:
        self.key, self.encoded_key, self.value = key, encoded_key, value
        self.timestamp, self.headers, self.closed = timestamp, headers, closed
