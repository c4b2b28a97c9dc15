"""Stores in dictionaries.

Values of a serde that is `shared` are kept as objects; others as bytes, read anew each time (see `serdes`).

Expiry follows Kafka's persistent stores to the millisecond: a window or session is there while its start (for
a session its end) is later than the newest one ever put, minus the retention. Rows past that are invisible at
once and swept now and then.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Any

from millstream.streams.stores.base import LogRecord, Row, StoreSpec, segment
from millstream.streams.stores.layout import session_key, split_session_key, split_window_key, window_key

_SWEEP_AT_LEAST = 60_000
_TIME = struct.Struct(">q")


class _Memory:
    """Keys and values to bytes and back, and the keys that changed."""

    def __init__(self, spec: StoreSpec, application: str) -> None:
        self.spec = spec
        topic = spec.changelog(application)
        write, read = spec.key.writer(topic), spec.key.reader(topic)
        plain = spec.key.plain_write
        self.encode: Any = plain if plain is not None else lambda key: write(key) or b""
        self.decode: Any = read
        self._shared = spec.value.shared
        self._write = spec.value.writer(topic)
        self._read = spec.value.reader(topic)
        self._dirty: dict[Any, int] = {}
        self._logged = spec.logged

    def _kept(self, value: Any) -> Any:
        """What a row holds. A value is written in any case: one that its serde cannot write is noticed
        where it is put, as it is on disk."""
        body = self._write(value)
        return value if self._shared else body

    def _bytes(self, row: Row) -> bytes:
        return _TIME.pack(row[1]) + (self._write(row[0]) or b"" if self._shared else row[0])


class MemoryKeyValueStore(_Memory):
    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        self._rows: dict[bytes, Row] = {}
        self._order: list[bytes] | None = None  # kept from the first range on

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: bytes) -> Row | None:
        row = self._rows.get(key)
        if row is None or self._shared:
            return row
        return (self._read(row[0]), row[1])

    def put(self, key: bytes, value: Any, timestamp: int) -> None:
        order = self._order
        if value is None:
            if self._rows.pop(key, None) is not None and order is not None:
                del order[bisect_left(order, key)]
        else:
            row = (self._kept(value), timestamp)
            if order is not None and key not in self._rows:
                insort(order, key)
            self._rows[key] = row
        if self._logged:
            self._dirty[key] = timestamp

    def read_rows(self, row_keys: list[bytes]) -> list[bytes | None]:
        """Many rows as bytes: the timestamp, then the value."""
        return [
            None if (row := self._rows.get(row_key)) is None else self._bytes(row) for row_key in row_keys
        ]

    def write_rows(self, row_keys: list[bytes], rows: list[bytes | None], stamps: list[int]) -> None:
        for row_key, row, stamp in zip(row_keys, rows, stamps, strict=True):
            self.put(row_key, None if row is None else self._read(row[8:]), stamp)

    def range(
        self, first: bytes | None, last: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any, int]]:
        order = self._order
        if order is None:
            order = self._order = sorted(self._rows)
        start = 0 if first is None else bisect_left(order, first)
        end = len(order) if last is None else bisect_right(order, last)
        for key in reversed(order[start:end]) if reverse else order[start:end]:
            row = self.get(key)
            if row is not None:
                yield key, row[0], row[1]

    def drain(self) -> list[LogRecord]:
        found = []
        for key, timestamp in self._dirty.items():
            row = self._rows.get(key)
            value = None if row is None else (self._write(row[0]) if self._shared else row[0])
            found.append((key, value, timestamp))
        self._dirty.clear()
        return found

    def restore(self, records: Iterable[LogRecord]) -> None:
        rows, shared, read = self._rows, self._shared, self._read
        self._order = None
        for key, value, timestamp in records:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = (read(value) if shared else value, timestamp)


class MemoryWindowStore(_Memory):
    """key -> start -> value and timestamp. With duplicates there is a list of values instead."""

    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        self._rows: dict[bytes, dict[int, Any]] = {}
        self._newest = -1
        self._sweep_at = 0
        self._duplicates = spec.duplicates
        self._changes: list[LogRecord] = []
        self._kept_for = spec.retention - (0 if spec.final else 1)
        self._sequence = 0

    def _open(self, row: Row) -> Row:
        return row if self._shared else (self._read(row[0]), row[1])

    @property
    def oldest(self) -> int:
        return self._newest - self._kept_for

    def fetch_one(self, key: bytes, start: int) -> Row | None:
        if start < self._newest - self._kept_for:
            return None
        windows = self._rows.get(key)
        row = None if windows is None else windows.get(start)
        return None if row is None else self._open(row)

    def fetch(self, key: bytes, first: int, last: int) -> list[tuple[int, Row]]:
        windows = self._rows.get(key)
        if not windows:
            return []
        first = max(first, self.oldest)
        starts = sorted(start for start in windows if first <= start <= last)
        if self._duplicates:
            return [(start, self._open(row)) for start in starts for row in windows[start]]
        return [(start, self._open(windows[start])) for start in starts]

    def fetch_all(self, first: int, last: int) -> list[tuple[bytes, int, Row]]:
        first = max(first, self.oldest)
        found = sorted(
            (start, key) for key, windows in self._rows.items() for start in windows if first <= start <= last
        )
        if self._duplicates:
            return [(key, start, self._open(row)) for start, key in found for row in self._rows[key][start]]
        return [(key, start, self._open(self._rows[key][start])) for start, key in found]

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, first: int, last: int
    ) -> list[tuple[bytes, int, Row]]:
        found = [
            row
            for row in self.fetch_all(first, last)
            if (first_key is None or row[0] >= first_key) and (last_key is None or row[0] <= last_key)
        ]
        # Sorting keeps the order of what has the same key and start.
        return sorted(found, key=lambda row: (segment(self.spec, row[1]), window_key(row[0], row[1], 0)))

    def put(self, key: bytes, start: int, value: Any, timestamp: int) -> None:
        if self._duplicates and value is None:
            return  # adds nothing, and says nothing about the other records of that instant
        if start > self._newest:
            self._newest = start
            if start >= self._sweep_at:
                self._sweep()
        elif start < self._newest - self._kept_for:
            return
        if self._duplicates:
            kept = self._kept(value)
            self._rows.setdefault(key, {}).setdefault(start, []).append((kept, timestamp))
            if self._logged:
                self._sequence = (self._sequence + 1) & 0x7FFFFFFF
                logged = window_key(key, start, self._sequence)
                self._changes.append((logged, self._write(value) or b"", start))
            return
        windows = self._rows.get(key)
        if value is None:
            if windows is not None:
                windows.pop(start, None)
        else:
            kept = self._kept(value)
            if windows is None:
                self._rows[key] = {start: (kept, timestamp)}
            else:
                windows[start] = (kept, timestamp)
        if self._logged:
            self._dirty[key, start] = timestamp

    def read_rows(self, row_keys: list[bytes]) -> list[bytes | None]:
        """As in `MemoryKeyValueStore`, by key, start and a zero as the changelog has them; also what has
        expired."""
        found: list[bytes | None] = []
        for row_key in row_keys:
            key, start, _ = split_window_key(row_key)
            row = self._rows.get(key, {}).get(start)
            found.append(None if row is None else self._bytes(row))
        return found

    def write_rows(self, row_keys: list[bytes], rows: list[bytes | None], stamps: list[int]) -> None:
        for row_key, row, stamp in zip(row_keys, rows, stamps, strict=True):
            key, start, _ = split_window_key(row_key)
            self.put(key, start, None if row is None else self._read(row[8:]), stamp)

    def add_rows(self, keys: list[bytes | None], starts: list[int], bodies: list[bytes | None]) -> None:
        """Many `put`s, values as bytes."""
        for key, start, body in zip(keys, starts, bodies, strict=True):
            if key is not None:
                self.put(key, start, self._read(body), start)

    def saw(self, newest: int) -> None:
        """`write_rows` has seen to it."""

    def _sweep(self) -> None:
        self._sweep_at = self._newest + max(self.spec.retention // 2, _SWEEP_AT_LEAST)
        oldest = self.oldest
        for key in list(self._rows):
            windows = self._rows[key]
            for start in [start for start in windows if start < oldest]:
                if (key, start) not in self._dirty:  # the changelog has yet to get it
                    del windows[start]
            if not windows:
                del self._rows[key]

    def drain(self) -> list[LogRecord]:
        found, self._changes = self._changes, []
        for (key, start), timestamp in self._dirty.items():
            row = self._rows.get(key, {}).get(start)
            value = None if row is None else (self._write(row[0]) if self._shared else row[0])
            found.append((window_key(key, start, 0), value, timestamp))
        self._dirty.clear()
        return found

    def restore(self, records: Iterable[LogRecord]) -> None:
        logged, self._logged = self._logged, False
        for key, value, timestamp in records:
            plain, start, sequence = split_window_key(key)
            self._sequence = max(self._sequence, sequence)
            self.put(plain, start, None if value is None else self._read(value), timestamp)
        self._logged = logged


class MemorySessionStore(_Memory):
    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        self._rows: dict[bytes, dict[tuple[int, int], Any]] = {}
        self.newest = -1
        self._sweep_at = 0

    @property
    def _oldest(self) -> int:
        return self.newest - self.spec.retention + 1

    def _open(self, value: Any) -> Any:
        return value if self._shared else self._read(value)

    def find(self, key: bytes, earliest_end: int, latest_start: int) -> list[tuple[int, int, Any]]:
        sessions = self._rows.get(key)
        if not sessions:
            return []
        earliest_end = max(earliest_end, self._oldest)
        found = [(end, start) for end, start in sessions if end >= earliest_end and start <= latest_start]
        return [(start, end, self._open(sessions[end, start])) for end, start in sorted(found)]

    def find_all(self, earliest_end: int, latest_end: int) -> list[tuple[bytes, int, int, Any]]:
        found = sorted(
            (end, start, key)
            for key, sessions in self._rows.items()
            for end, start in sessions
            if earliest_end <= end <= latest_end
        )
        return [(key, start, end, self._open(self._rows[key][end, start])) for end, start, key in found]

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, earliest_end: int, latest_start: int
    ) -> list[tuple[bytes, int, int, Any]]:
        found = [
            row
            for row in self.find_all(max(earliest_end, self._oldest), 1 << 62)
            if row[1] <= latest_start
            and (first_key is None or row[0] >= first_key)
            and (last_key is None or row[0] <= last_key)
        ]
        return sorted(found, key=lambda row: (segment(self.spec, row[2]), session_key(*row[:3])))

    def fetch_one(self, key: bytes, start: int, end: int) -> Any:
        if end < self._oldest:
            return None
        return self._open(self._rows.get(key, {}).get((end, start)))

    def put(self, key: bytes, start: int, end: int, value: Any) -> None:
        if end > self.newest:
            self.newest = end
            if end >= self._sweep_at:
                self._sweep()
        kept = None if value is None else self._kept(value)
        sessions = self._rows.setdefault(key, {})
        if value is None:
            sessions.pop((end, start), None)
        else:
            sessions[end, start] = kept
        if not sessions:
            del self._rows[key]
        if self._logged:
            self._dirty[key, start, end] = end

    def _sweep(self) -> None:
        self._sweep_at = self.newest + max(self.spec.retention // 2, _SWEEP_AT_LEAST)
        oldest = self._oldest
        for key in list(self._rows):
            sessions = self._rows[key]
            for end, start in [row_key for row_key in sessions if row_key[0] < oldest]:
                if (key, start, end) not in self._dirty:  # the changelog has yet to get it
                    del sessions[end, start]
            if not sessions:
                del self._rows[key]

    def drain(self) -> list[LogRecord]:
        found = []
        for (key, start, end), timestamp in self._dirty.items():
            kept = self._rows.get(key, {}).get((end, start))
            value = None if kept is None else (self._write(kept) if self._shared else kept)
            found.append((session_key(key, start, end), value, timestamp))
        self._dirty.clear()
        return found

    def restore(self, records: Iterable[LogRecord]) -> None:
        logged, self._logged = self._logged, False
        for key, value, _timestamp in records:
            plain, start, end = split_session_key(key)
            self.put(plain, start, end, None if value is None else self._read(value))
        self._logged = logged
