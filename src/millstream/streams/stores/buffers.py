"""The stores that hold records back: rows of a suppressed table, records of a join without a partner yet, and
records that wait for the table they are joined with."""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

from millstream.streams.stores.base import Buffered, Headers, LogRecord, StoreSpec
from millstream.streams.stores.layout import (
    list_of,
    pack_fields,
    side_key,
    split_fields,
    split_list,
    split_side_key,
)
from millstream.streams.stores.memory import _Memory

_TIME_OFFSET_PARTITION = 8 + 8 + 4
_BUFFER_TIME = 8
_NUMBERS = struct.Struct(">qqq")
_TIME_KEY = struct.Struct(">qi")
_SEQUENCE = struct.Struct(">i")


class MemorySuppressBuffer(_Memory):
    """Rows by the time at which they may leave, then by key. An update keeps the position of the row that it
    replaces.

    The size of a row is counted as Kafka Streams counts it, because limits in bytes decide what leaves when.
    """

    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        self._order: list[tuple[int, bytes]] = []
        self._rows: dict[bytes, tuple[bytes | None, Buffered]] = {}
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._rows)

    def put(
        self, time: int, key: bytes, change: tuple[Any, Any], timestamp: int, headers: Headers, context: Any
    ) -> None:
        new, old = self._write(change[0]), self._write(change[1])
        held = self._rows.get(key)
        if held is None:
            prior = old
            heapq.heappush(self._order, (time, key))
        else:
            prior = held[0]
            self.bytes_held -= held[1].size
        size = _BUFFER_TIME + len(key) + _TIME_OFFSET_PARTITION + len(prior or b"") + len(new or b"")
        size += 0 if old == prior else len(old or b"")
        size += len(getattr(context, "topic", None) or "")
        size += sum(len(name) + len(value or b"") for name, value in headers)
        self.bytes_held += size
        self._rows[key] = (prior, Buffered(key, new, old, timestamp, headers, context, size))
        if self._logged:
            self._dirty[key] = timestamp

    def prior(self, key: bytes) -> tuple[bool, Any]:
        held = self._rows.get(key)
        return (False, None) if held is None else (True, self._read(held[0]))

    def least_time(self) -> int | None:
        return self._order[0][0] if self._order else None

    def first(self) -> Buffered:
        """The row that may leave first, its values as objects again."""
        _, row = self._rows[self._order[0][1]]
        return row._replace(new=self._read(row.new), old=self._read(row.old))

    def remove_first(self) -> None:
        _, key = heapq.heappop(self._order)
        _, row = self._rows.pop(key)
        self.bytes_held -= row.size
        if self._logged:
            self._dirty[key] = row.timestamp

    def drain(self) -> list[LogRecord]:
        times = {key: time for time, key in self._order}
        found = []
        for key, timestamp in self._dirty.items():
            held = self._rows.get(key)
            value = None
            if held is not None:
                prior, row = held
                named = [field for name, value in row.headers for field in (name.encode(), value)]
                numbers = _NUMBERS.pack(times[key], row.timestamp, row.size)
                value = pack_fields([numbers, prior, row.new, row.old, *named])
            found.append((key, value, timestamp))
        self._dirty.clear()
        return found

    def restore(self, records: Iterable[LogRecord]) -> None:
        latest = {key: value for key, value, _ in records}
        held = [row for key in latest if (row := self._rows.pop(key, None)) is not None]
        if held:  # of what was restored before: these have changed or left since
            self.bytes_held -= sum(row.size for _, row in held)
            self._order = [row_key for row_key in self._order if row_key[1] in self._rows]
            heapq.heapify(self._order)
        for key, value in latest.items():
            if value is not None:
                numbers, prior, new, old, *named = split_fields(value)
                time, timestamp, size = _NUMBERS.unpack(numbers or b"")
                names = [bytes(name or b"").decode() for name in named[::2]]
                headers = tuple(zip(names, named[1::2], strict=True))
                heapq.heappush(self._order, (time, key))
                self._rows[key] = (prior, Buffered(key, new, old, timestamp, headers, None, size))
                self.bytes_held += size


class MemoryOuterJoinStore(_Memory):
    """The bytes of (time, side, key) sort the way the waiting records leave: by time, right before left, by
    key."""

    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        topic = spec.changelog(application)
        other = spec.other_value if spec.other_value is not None else spec.value
        self._writers = {True: self._write, False: other.writer(topic)}
        self._readers = {True: self._read, False: other.reader(topic)}
        self._order: list[bytes] = []
        self._rows: dict[bytes, list[bytes]] = {}

    def body_of(self, is_left: bool, value: Any) -> bytes:
        return self._writers[is_left](value) or b""

    def value_of(self, is_left: bool, body: bytes) -> Any:
        return self._readers[is_left](body)

    def add(self, timestamp: int, is_left: bool, key: bytes, value: Any) -> None:
        self.add_body(timestamp, is_left, key, self.body_of(is_left, value))

    def add_body(self, timestamp: int, is_left: bool, key: bytes, body: bytes) -> None:
        row_key = side_key(timestamp, is_left, key)
        held = self._rows.get(row_key)
        if held is None:
            held = self._rows[row_key] = []
            insort(self._order, row_key)
        held.append(body)
        if self._logged:
            self._dirty[row_key] = timestamp

    def remove(self, timestamp: int, is_left: bool, key: bytes) -> None:
        row_key = side_key(timestamp, is_left, key)
        if self._rows.pop(row_key, None) is not None:
            del self._order[bisect_left(self._order, row_key)]
            if self._logged:
                self._dirty[row_key] = timestamp

    def waiting(self) -> Iterator[tuple[int, bool, bytes, list[Any]]]:
        for row_key in list(self._order):
            timestamp, is_left, key = split_side_key(row_key)
            read = self._readers[is_left]
            yield timestamp, is_left, key, [read(value) for value in self._rows[row_key]]

    def drain(self) -> list[LogRecord]:
        found = []
        for row_key, timestamp in self._dirty.items():
            held = self._rows.get(row_key)
            found.append((row_key, None if held is None else list_of(held), timestamp))
        self._dirty.clear()
        return found

    def restore(self, records: Iterable[LogRecord]) -> None:
        for row_key, value, _timestamp in records:
            if self._rows.pop(row_key, None) is not None:
                del self._order[bisect_left(self._order, row_key)]
            if value is not None:
                self._rows[row_key] = split_list(value)
                insort(self._order, row_key)


class MemoryJoinBuffer(_Memory):
    """Records of a stream that are joined with a table when they are old enough (KIP-923), by time, key and
    the order in which they came."""

    def __init__(self, spec: StoreSpec, application: str) -> None:
        super().__init__(spec, application)
        self._order: list[bytes] = []
        self._rows: dict[bytes, bytes] = {}
        self.newest: int | None = -1
        self._sequence = 0

    def put(self, timestamp: int, key: bytes, value: Any, headers: Headers) -> bool:
        """False for a record that is too old to wait."""
        newest = -1 if self.newest is None else self.newest
        if timestamp < newest - self.spec.retention:
            return False
        self.newest = max(newest, timestamp)
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        row_key = _TIME_KEY.pack(timestamp, len(key)) + key + _SEQUENCE.pack(self._sequence)
        named = [field for name, content in headers for field in (name.encode(), content)]
        self._keep_row(row_key, pack_fields([self._write(value), *named]))
        if self._logged:
            self._dirty[row_key] = timestamp
        return True

    def _keep_row(self, row_key: bytes, row: bytes) -> None:
        insort(self._order, row_key, key=_by_time_and_key)
        self._rows[row_key] = row

    def pop_due(self) -> tuple[int, bytes, Any, Headers] | None:
        """The first record that has waited long enough: (time, key, value, headers)."""
        newest = -1 if self.newest is None else self.newest
        if not self._order:
            return None
        row_key = self._order[0]
        timestamp, size = _TIME_KEY.unpack_from(row_key)
        if timestamp > newest - self.spec.retention:
            return None
        del self._order[0]
        value, *named = split_fields(self._rows.pop(row_key))
        if self._logged:
            self._dirty[row_key] = timestamp
        names = [bytes(name or b"").decode() for name in named[::2]]
        headers = tuple(zip(names, named[1::2], strict=True))
        return timestamp, row_key[_TIME_KEY.size : _TIME_KEY.size + size], self._read(value), headers

    def drain(self) -> list[LogRecord]:
        found = [(row_key, self._rows.get(row_key), timestamp) for row_key, timestamp in self._dirty.items()]
        self._dirty.clear()
        return found

    def restore(self, records: Iterable[LogRecord]) -> None:
        newest = -1 if self.newest is None else self.newest
        for row_key, row, _timestamp in records:
            if self._rows.pop(row_key, None) is not None:
                self._order.remove(row_key)
            newest = max(newest, _TIME_KEY.unpack_from(row_key)[0])
            self._sequence = max(self._sequence, _SEQUENCE.unpack(row_key[-4:])[0])
            if row is not None:
                self._keep_row(row_key, row)
        self.newest = newest


def _by_time_and_key(row_key: bytes) -> tuple[bytes, bytes]:
    """The length of the key is no part of the order."""
    return row_key[:8], row_key[_TIME_KEY.size :]
