"""What a task has written, on its way to record batches.

Records are collected in lists, one per topic; at the end of a range they become columns and then batches, by compiled loops: which
partition a key belongs to, and the records with their timestamps. Records with headers, which are rare, go the slower way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba as nb
import numpy as np

from millstream.client.producer import Place
from millstream.pipeline.streams.operators.base import Headers
from millstream.wire.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch

_BATCH_BYTES = 512 * 1024
_OVERHEAD = 48  # most bytes of a record besides key and value
_LONGS: Any = nb.types.Array(nb.int64, 1, "C")
_BYTES: Any = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_ROOM: Any = nb.types.Array(nb.uint8, 1, "C")
_types: Any = nb.types
_TWO = _types.UniTuple(nb.int64, 2)
_settings: dict[str, Any] = {"cache": True, "nogil": True}


@nb.njit(nb.uint32(_BYTES, nb.int64, nb.int64), **_settings)
def _murmur2(data: Any, at: Any, end: Any) -> Any:
    """The hash by which Kafka's clients choose a partition."""
    m = np.uint32(0x5BD1E995)
    h = np.uint32(0x9747B28C) ^ np.uint32(end - at)
    while end - at >= 4:
        k = np.uint32(data[at]) | np.uint32(data[at + 1]) << np.uint32(8)
        k |= np.uint32(data[at + 2]) << np.uint32(16) | np.uint32(data[at + 3]) << np.uint32(24)
        k = np.uint32(k * m)
        k = np.uint32((k ^ (k >> np.uint32(24))) * m)
        h = np.uint32(h * m) ^ k
        at += 4
    if end > at:
        k = np.uint32(data[at])
        if end > at + 1:
            k |= np.uint32(data[at + 1]) << np.uint32(8)
        if end > at + 2:
            k |= np.uint32(data[at + 2]) << np.uint32(16)
        h = np.uint32((h ^ k) * m)
    h = np.uint32((h ^ (h >> np.uint32(13))) * m)
    return np.uint32(h ^ (h >> np.uint32(15)))


@nb.njit(nb.void(_LONGS, _LONGS, _BYTES, nb.int64), **_settings)
def _route(partitions: Any, ends: Any, data: Any, count: Any) -> None:
    """The partition of every key whose row names none (-1)."""
    at = np.int64(0)
    for row in range(partitions.shape[0]):
        if partitions[row] == -1:
            partitions[row] = np.int64(_murmur2(data, at, ends[row]) & np.uint32(0x7FFFFFFF)) % count
        at = ends[row]


@nb.njit(nb.int64(_ROOM, nb.int64, nb.int64), **_settings)
def _put(out: Any, at: Any, number: Any) -> Any:
    """A zigzag varint; gives where it ends."""
    left = np.uint64((number << 1) ^ (number >> 63))
    while left >= np.uint64(128):
        out[at] = np.uint8((left & np.uint64(127)) | np.uint64(128))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@nb.njit(nb.int64(nb.int64), **_settings)
def _width(number: Any) -> Any:
    left = np.uint64((number << 1) ^ (number >> 63))
    width = np.int64(1)
    while left >= np.uint64(128):
        left >>= np.uint64(7)
        width += 1
    return width


@nb.njit(nb.int64(_ROOM, nb.int64, _LONGS, _BYTES, _ROOM, nb.int64), **_settings)
def _put_bytes(out: Any, at: Any, ends: Any, data: Any, nulls: Any, row: Any) -> Any:
    if nulls[row]:
        return _put(out, at, np.int64(-1))
    start = ends[row - 1] if row > 0 else np.int64(0)
    size = ends[row] - start
    at = _put(out, at, size)
    for index in range(size):
        out[at + index] = data[start + index]
    return at + size


@nb.njit(nb.int64(_LONGS, _ROOM, nb.int64), **_settings)
def _size(ends: Any, nulls: Any, row: Any) -> Any:
    if nulls[row]:
        return np.int64(1)
    size = ends[row] - (ends[row - 1] if row > 0 else np.int64(0))
    return size + _width(size)


@nb.njit(  # type: ignore[untyped-decorator]
    _TWO(
        _LONGS,
        _LONGS,
        nb.int64,
        nb.int64,
        _LONGS,
        _BYTES,
        _ROOM,
        _LONGS,
        _BYTES,
        _ROOM,
        _ROOM,
        nb.int64,
        nb.int64,
    ),
    **_settings,
)
def _pack(
    rows: Any,
    stamps: Any,
    base: Any,
    first: Any,
    key_ends: Any,
    key_data: Any,
    key_nulls: Any,
    value_ends: Any,
    value_data: Any,
    value_nulls: Any,
    out: Any,
    at: Any,
    full: Any,
) -> Any:
    """Records of rows[first:] into `out`, until the next would not fit in `full` bytes (the first always does). Gives how
    many there are and where they end. There is room for all."""
    begin = at
    count = np.int64(0)
    while first + count < rows.shape[0]:
        row = rows[first + count]
        delta = stamps[row] - base
        size = 2 + _width(delta) + _width(count)
        size += _size(key_ends, key_nulls, row) + _size(value_ends, value_nulls, row)
        if count > 0 and at - begin + size + _width(size) > full:
            break
        at = _put(out, at, size)
        out[at] = np.uint8(0)  # attributes
        at = _put(out, at + 1, delta)
        at = _put(out, at, count)
        at = _put_bytes(out, at, key_ends, key_data, key_nulls, row)
        at = _put_bytes(out, at, value_ends, value_data, value_nulls, row)
        out[at] = np.uint8(0)  # no headers
        at += 1
        count += 1
    return count, at


def _column(values: list[bytes | None]) -> tuple[Any, Any, Any]:
    """(where each ends, the bytes of all, which are null)."""
    nulls = np.array([value is None for value in values], np.uint8)
    whole = [value or b"" for value in values]
    ends = np.cumsum(np.fromiter(map(len, whole), np.int64, len(whole)))
    return ends, np.frombuffer(b"".join(whole) or b"\0", np.uint8), nulls


class Written:
    """The records of one topic, in order."""

    __slots__ = ("headers", "keys", "partitions", "stamps", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.stamps: list[int] = []
        self.headers: list[Headers] | None = None
        self.partitions: list[int | None] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def add(
        self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None
    ) -> None:
        if headers and self.headers is None:
            self.headers = [()] * len(self.keys)
        if partition is not None and self.partitions is None:
            self.partitions = [None] * len(self.keys)
        self.keys.append(key)
        self.values.append(value)
        self.stamps.append(timestamp)
        if self.headers is not None:
            self.headers.append(headers)
        if self.partitions is not None:
            self.partitions.append(partition)

    def batches(
        self, topic: str, count: int, turn: int, transactional: bool
    ) -> Iterator[tuple[Place, bytearray | memoryview]]:
        """Finished batches and where each goes; records without key and partition begin at partition `turn`."""
        key, value = _column(self.keys), _column(self.values)
        stamps = np.array(self.stamps, np.int64)
        numbers = self._numbers(key, count, turn)
        if numbers.max(initial=0) >= count or numbers.min(initial=0) < 0:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{topic} has {count} partitions only")
        size = key[1].size + value[1].size + _OVERHEAD * len(self.keys)
        out = np.empty(size + HEADER_SIZE * (count + 2 * (size // _BATCH_BYTES + 1)), np.uint8)
        view, at = memoryview(out.data), 0
        for number in range(count):
            rows = np.flatnonzero(numbers == number)
            if not len(rows):
                continue
            if self.headers is not None:
                yield from self._slowly((topic, number), rows.tolist(), transactional)
                continue
            mine = stamps[rows]
            base, newest, first = int(mine[0]), int(mine.max()), 0
            while first < len(rows):
                begin = at + HEADER_SIZE
                packed, stop = _pack(rows, stamps, base, first, *key, *value, out, begin, _BATCH_BYTES)
                _put_header(view[at:stop], packed, base, newest, transactional)
                yield (topic, number), view[at:stop]
                at, first = stop, first + packed

    def _numbers(self, key: tuple[Any, Any, Any], count: int, turn: int) -> Any:
        """The partition of each record: the one it names, else by its key, else all of this range to the same."""
        ends, data, nulls = key
        numbers = np.where(nulls != 0, np.int64(turn % count), np.int64(-1))
        if self.partitions is not None:
            named = np.array([-1 if given is None else given for given in self.partitions], np.int64)
            numbers = np.where(named >= 0, named, numbers)
        _route(numbers, ends, data, count)
        return numbers

    def _slowly(
        self, place: Place, rows: list[int], transactional: bool
    ) -> Iterator[tuple[Place, bytearray]]:
        assert self.headers is not None
        size = 0
        chunk: list[Record] = []
        for row in rows:
            key, value, headers = self.keys[row], self.values[row], self.headers[row]
            chunk.append(Record(len(chunk), self.stamps[row], key, value, headers))
            size += len(key or b"") + len(value or b"") + _OVERHEAD
            if size > _BATCH_BYTES:
                yield place, encode_batch(chunk, transactional=transactional)
                size, chunk = 0, []
        if chunk:
            yield place, encode_batch(chunk, transactional=transactional)


def _put_header(batch: memoryview, count: int, base: int, newest: int, transactional: bool) -> None:
    attributes = TRANSACTIONAL if transactional else 0
    length = len(batch) - LENGTH_END
    stamps = (base, newest, NO_PRODUCER, -1, NO_SEQUENCE, count)
    HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, attributes, count - 1, *stamps)
