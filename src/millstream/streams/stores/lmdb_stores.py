"""Key-value, window and session stores on disk.

Rows of the batch at hand are kept as objects; they go into the transaction when a range needs them there, and
at the commit, in the order of their keys. Values lie there as Kafka Streams keeps them: a timestamp in front
(not for sessions).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from millstream.streams.stores.base import LogRecord, Row, StoreSpec, segment
from millstream.streams.stores.layout import (
    WINDOW,
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)
from millstream.streams.stores.rows import Rows

_TIME = struct.Struct(">q")
_SWEEP_AT_LEAST = 60_000


class _Lmdb:
    _front = 8  # bytes of the timestamp

    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        self.spec, self.rows = spec, rows
        topic = spec.changelog(application)
        write = spec.key.writer(topic)
        plain = spec.key.plain_write
        self.encode: Any = plain if plain is not None else lambda key: write(key) or b""
        self.decode: Any = spec.key.reader(topic)
        self._shared = spec.value.shared
        self._write = spec.value.writer(topic)
        self._read = spec.value.reader(topic)
        self._dirty: dict[bytes, int] = {}
        self._logged = spec.logged
        self.newest: int | None = None
        self._load_metadata()

    def _load_metadata(self) -> None:
        """What the folder holds besides rows."""

    def reload(self) -> None:
        self.rows.forget()
        self._dirty.clear()
        self._load_metadata()

    def drain(self) -> list[LogRecord]:
        front = self._front
        bodies = [None if row is None else row[front:] for row in self.rows.get_many(self._dirty)]
        found = list(zip(self._dirty, bodies, self._dirty.values(), strict=True))
        self._dirty.clear()
        return found

    def read_rows(self, row_keys: list[bytes]) -> list[bytes | None]:
        """Many rows as bytes: the timestamp in front (not for sessions), then the value."""
        return self.rows.get_many(row_keys)

    def write_rows(self, row_keys: list[bytes], rows: list[bytes | None], stamps: list[int]) -> None:
        """Many rows, each with the timestamp for its changelog record."""
        self.rows.pending.update(zip(row_keys, rows, strict=True))
        cached = self.rows.cached
        if cached:
            for row_key in row_keys:
                cached.pop(row_key, None)
        if self._logged:
            self._dirty.update(zip(row_keys, stamps, strict=True))


class LmdbKeyValueStore(_Lmdb):
    def __len__(self) -> int:
        return len(self.rows)

    def get(self, key: bytes) -> Row | None:
        cached = self.rows.cached
        row: Any = cached.get(key, cached)
        if row is cached:
            raw = self.rows.get(key)
            if raw is None:
                cached[key] = None
                return None
            row = (self._read(raw[8:]) if self._shared else raw[8:], _TIME.unpack_from(raw)[0])
            cached[key] = row
        if row is None:
            return None
        return (row[0] if self._shared else self._read(row[0]), row[1])

    def put(self, key: bytes, value: Any, timestamp: int) -> None:
        if value is None:
            self.rows.cached[key] = None
            self.rows.pending[key] = None
        else:
            body = self._write(value) or b""
            self.rows.cached[key] = (value if self._shared else body, timestamp)
            self.rows.pending[key] = _TIME.pack(timestamp) + body
        if self._logged:
            self._dirty[key] = timestamp

    def range(
        self, first: bytes | None, last: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any, int]]:
        for key, raw in self.rows.range(first, last, reverse):
            yield key, self._read(raw[8:]), _TIME.unpack_from(raw)[0]

    def restore(self, records: Iterable[LogRecord]) -> None:
        put, pack = self.rows.put, _TIME.pack
        for key, value, timestamp in records:
            put(key, None if value is None else pack(timestamp) + value)
        self.rows.cached.clear()
        self.rows.flush()


def _within(key: bytes, first: bytes | None, last: bytes | None) -> bool:
    return (first is None or key >= first) and (last is None or key <= last)


class LmdbWindowStore(_Lmdb):
    newest: int
    sequence: int | None = None
    """With duplicates: the number of the last row. It tells apart the rows of a key and an instant, whichever
    process put them."""

    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        super().__init__(spec, application, rows)
        self._sweep_at = self.newest + max(spec.retention // 2, _SWEEP_AT_LEAST)
        self._kept = spec.retention - (0 if spec.final else 1)

    def _load_metadata(self) -> None:
        newest = self.rows.number("newest")
        self.newest = -1 if newest is None else newest
        if self.spec.duplicates:
            self.sequence = self.rows.number("sequence")
            if self.sequence is None:  # a new folder, or one of a release that did not write it down
                self.sequence = max(
                    (split_window_key(row_key)[2] for row_key in self.rows.row_keys()), default=0
                )

    @property
    def oldest(self) -> int:
        return self.newest - self._kept

    def _row(self, raw: bytes) -> Row:
        return (self._read(raw[8:]), _TIME.unpack_from(raw)[0])

    def fetch_one(self, key: bytes, start: int) -> Row | None:
        if start < self.newest - self._kept:
            return None
        row_key = window_key(key, start, 0)
        cached = self.rows.cached
        if self._shared and row_key in cached:
            found: Row | None = cached[row_key]
            return found
        raw = self.rows.get(row_key)
        row = None if raw is None else self._row(raw)
        if self._shared:
            cached[row_key] = row
        return row

    def fetch(self, key: bytes, first: int, last: int) -> list[tuple[int, Row]]:
        first = max(first, self.oldest, 0)
        if first > last:
            return []
        low, high = window_key(key, first, 0), window_key(key, last, 0x7FFFFFFF)
        size = len(low)
        return [
            (_TIME.unpack_from(row_key, size - 12)[0], self._row(raw))
            for row_key, raw in self.rows.range(low, high)
            if len(row_key) == size
        ]

    def fetch_all(self, first: int, last: int) -> list[tuple[bytes, int, Row]]:
        first = max(first, self.oldest)
        found = []
        for row_key, raw in self.rows.range(None, None):
            key, start, sequence = split_window_key(row_key)
            if first <= start <= last:
                found.append((start, key, sequence, raw))
        found.sort(key=lambda row: row[:3])
        return [(key, start, self._row(raw)) for start, key, _sequence, raw in found]

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, first: int, last: int
    ) -> list[tuple[bytes, int, Row]]:
        first = max(first, self.oldest)
        found = []
        # A longer key that begins with the last one may lie before some windows of the last one.
        high = None if last_key is None else last_key + b"\xff" * 12
        for row_key, raw in self.rows.range(first_key, high):
            key, start, _sequence = split_window_key(row_key)
            if first <= start <= last and _within(key, first_key, last_key):
                found.append((key, start, self._row(raw)))
        return sorted(found, key=lambda row: segment(self.spec, row[1]))

    def put(self, key: bytes, start: int, value: Any, timestamp: int) -> None:
        duplicates = self.spec.duplicates
        if duplicates and value is None:
            return
        if start > self.newest:
            self.newest = start
            if start >= self._sweep_at:
                self._sweep()
        elif start < self.oldest:
            return
        number = 0
        if self.sequence is not None:
            number = self.sequence = (self.sequence + 1) & 0x7FFFFFFF
        row_key = window_key(key, start, number)
        raw = None if value is None else _TIME.pack(timestamp) + (self._write(value) or b"")
        if self._shared and not duplicates:
            self.rows.cached[row_key] = None if value is None else (value, timestamp)
        self.rows.pending[row_key] = raw
        if self._logged:
            self._dirty[row_key] = start if duplicates else timestamp

    def add_rows(self, keys: list[bytes | None], starts: list[int], bodies: list[bytes | None]) -> None:
        """Many `put`s of a store with duplicates, values as bytes; those without a key or a value are left
        out."""
        assert self.sequence is not None
        pack, pack_time, kept, newest, number = (
            WINDOW.pack,
            _TIME.pack,
            self._kept,
            self.newest,
            self.sequence,
        )
        pending, dirty, logged = self.rows.pending, self._dirty, self._logged
        for key, start, body in zip(keys, starts, bodies, strict=True):
            if key is None or body is None or start < newest - kept:
                continue
            if start > newest:
                newest = start
            number = (number + 1) & 0x7FFFFFFF
            row_key = key + pack(start, number)
            pending[row_key] = pack_time(start) + body
            if logged:
                dirty[row_key] = start
        self.sequence = number
        self.saw(newest)

    def saw(self, newest: int) -> None:
        """The newest window there is, after `write_rows`."""
        if newest > self.newest:
            self.newest = newest
            if newest >= self._sweep_at:
                self._sweep()

    def _sweep(self) -> None:
        self._sweep_at = self.newest + max(self.spec.retention // 2, _SWEEP_AT_LEAST)
        oldest = _TIME.pack(max(self.oldest, 0))  # starts are written so that they sort as bytes
        for row_key in [row_key for row_key in self.rows.row_keys() if row_key[-12:-4] < oldest]:
            if row_key not in self._dirty:  # the changelog has yet to get it
                self.rows.cached.pop(row_key, None)
                self.rows.put(row_key, None)
        self.rows.flush()

    def restore(self, records: Iterable[LogRecord]) -> None:
        found = [(*split_window_key(record[0]), *record) for record in records]
        self.newest = max([self.newest, *(row[1] for row in found)])
        if self.sequence is not None:
            self.sequence = max([self.sequence, *(row[2] for row in found)])
        oldest, put, pack = self.oldest, self.rows.put, _TIME.pack
        for _key, start, _sequence, row_key, value, timestamp in found:
            if start >= oldest:
                put(row_key, None if value is None else pack(timestamp) + value)
        self.rows.cached.clear()
        self.rows.flush()
        if self.newest >= self._sweep_at:
            self._sweep()


class LmdbSessionStore(_Lmdb):
    newest: int
    _front = 0

    def __init__(self, spec: StoreSpec, application: str, rows: Rows) -> None:
        super().__init__(spec, application, rows)
        self._sweep_at = self.newest + max(spec.retention // 2, _SWEEP_AT_LEAST)

    def _load_metadata(self) -> None:
        newest = self.rows.number("newest")
        self.newest = -1 if newest is None else newest

    @property
    def _oldest(self) -> int:
        return self.newest - self.spec.retention + 1

    def find(self, key: bytes, earliest_end: int, latest_start: int) -> list[tuple[int, int, Any]]:
        earliest_end = max(earliest_end, self._oldest, 0)
        low, high = session_key(key, 0, earliest_end), key + b"\x7f" + b"\xff" * 15
        found = []
        for row_key, raw in self.rows.range(low, high):
            if len(row_key) == len(low):
                _, start, end = split_session_key(row_key)
                if start <= latest_start:
                    found.append((start, end, self._read(raw)))
        return found

    def find_all(self, earliest_end: int, latest_end: int) -> list[tuple[bytes, int, int, Any]]:
        found = []
        for row_key, raw in self.rows.range(None, None):
            key, start, end = split_session_key(row_key)
            if earliest_end <= end <= latest_end:
                found.append((end, start, key, raw))
        found.sort(key=lambda row: row[:3])
        return [(key, start, end, self._read(raw)) for end, start, key, raw in found]

    def scan(
        self, first_key: bytes | None, last_key: bytes | None, earliest_end: int, latest_start: int
    ) -> list[tuple[bytes, int, int, Any]]:
        earliest_end = max(earliest_end, self._oldest)
        found = []
        high = None if last_key is None else last_key + b"\xff" * 16
        for row_key, raw in self.rows.range(first_key, high):
            key, start, end = split_session_key(row_key)
            if end >= earliest_end and start <= latest_start and _within(key, first_key, last_key):
                found.append((key, start, end, self._read(raw)))
        return sorted(found, key=lambda row: segment(self.spec, row[2]))

    def fetch_one(self, key: bytes, start: int, end: int) -> Any:
        return None if end < self._oldest else self._read(self.rows.get(session_key(key, start, end)))

    def put(self, key: bytes, start: int, end: int, value: Any) -> None:
        if end > self.newest:
            self.newest = end
            if end >= self._sweep_at:
                self._sweep()
        row_key = session_key(key, start, end)
        self.rows.put(row_key, self._write(value))
        if self._logged:
            self._dirty[row_key] = end

    def _sweep(self) -> None:
        self._sweep_at = self.newest + max(self.spec.retention // 2, _SWEEP_AT_LEAST)
        oldest = self._oldest
        for row_key in [
            row[0] for row in self.rows.range(None, None) if split_session_key(row[0])[2] < oldest
        ]:
            if row_key not in self._dirty:  # the changelog has yet to get it
                self.rows.put(row_key, None)
        self.rows.flush()

    def restore(self, records: Iterable[LogRecord]) -> None:
        found = [(split_session_key(row_key)[2], row_key, value) for row_key, value, _timestamp in records]
        self.newest = max([self.newest, *(row[0] for row in found)])
        oldest = self._oldest
        for end, row_key, value in found:
            if end >= oldest:
                self.rows.put(row_key, value)
        self.rows.flush()
        if self.newest >= self._sweep_at:
            self._sweep()
