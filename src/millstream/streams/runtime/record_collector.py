"""The records that a task sends, on their way to record batches: Kafka Streams' RecordCollector.

Records are collected in lists, one per topic, or come as columns; at the end of a range they become batches,
by compiled loops: which partition a key belongs to, and the records with their timestamps. Records with
headers, which are rare, go the slower way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa

from millstream.streams.columns.blocks import buffers
from millstream.streams.operators.base import Headers
from millstream.streams.stores.base import LogRecord
from millstream.wire.arrow.copying import copy_bytes
from millstream.wire.arrow.encode_loops import murmur2
from millstream.wire.arrow.varint_loops import put_varint, varint_size
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
from millstream.wire.topic_partition import TopicPartition

_BATCH_BYTES = 512 * 1024
_NOTHING = np.zeros(1, np.uint8)
_NOTHING.flags.writeable = False
Column = tuple[Any, Any, Any]
_OVERHEAD = 48  # most bytes of a record besides key and value
_LONGS: Any = nb.types.Array(nb.int64, 1, "C")
_BYTES: Any = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_ROOM: Any = nb.types.Array(nb.uint8, 1, "C")
_types: Any = nb.types
_TWO = _types.UniTuple(nb.int64, 2)
_settings: dict[str, Any] = {"cache": True, "nogil": True}


@nb.njit(nb.void(_LONGS, _LONGS, _BYTES, nb.int64, nb.int64), **_settings)
def _route(partitions: Any, ends: Any, data: Any, count: Any, window_bytes: Any) -> None:
    """The partition of every key whose row names none (-1), by all of it but its window."""
    at = np.int64(0)
    for row in range(partitions.shape[0]):
        if partitions[row] == -1:
            hashed = murmur2(data, at, ends[row] - window_bytes)
            partitions[row] = np.int64(hashed & np.uint32(0x7FFFFFFF)) % count
        at = ends[row]


@nb.njit(nb.int64(_ROOM, nb.int64, _LONGS, _BYTES, _ROOM, nb.int64), **_settings)
def _put_bytes(out: Any, at: Any, ends: Any, data: Any, nulls: Any, row: Any) -> Any:
    if nulls[row]:
        return put_varint(out, at, np.int64(-1))
    start = ends[row - 1] if row > 0 else np.int64(0)
    size = ends[row] - start
    at = put_varint(out, at, size)
    copy_bytes(out, at, data, start, size)
    return at + size


@nb.njit(nb.int64(_LONGS, _ROOM, nb.int64), **_settings)
def _size(ends: Any, nulls: Any, row: Any) -> Any:
    if nulls[row]:
        return np.int64(1)
    size = ends[row] - (ends[row - 1] if row > 0 else np.int64(0))
    return size + varint_size(size)


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
    """Records of rows[first:] into `out`, until the next would not fit in `full` bytes (the first always
    does). Gives how many there are and where they end. There is room for all."""
    begin = at
    count = np.int64(0)
    while first + count < rows.shape[0]:
        row = rows[first + count]
        delta = stamps[row] - base
        size = 2 + varint_size(delta) + varint_size(count)
        size += _size(key_ends, key_nulls, row) + _size(value_ends, value_nulls, row)
        if count > 0 and at - begin + size + varint_size(size) > full:
            break
        at = put_varint(out, at, size)
        out[at] = np.uint8(0)  # attributes
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, count)
        at = _put_bytes(out, at, key_ends, key_data, key_nulls, row)
        at = _put_bytes(out, at, value_ends, value_data, value_nulls, row)
        out[at] = np.uint8(0)  # no headers
        at += 1
        count += 1
    return count, at


def _column(values: list[bytes | None]) -> Column:
    """(where each ends, the bytes of all, which are null)."""
    nulls = np.array([value is None for value in values], np.uint8)
    whole = [value or b"" for value in values] if nulls.any() else values
    ends = np.cumsum(np.fromiter(map(len, whole), np.int64, len(whole)))  # type: ignore[arg-type]
    return ends, np.frombuffer(b"".join(whole) or b"\0", np.uint8), nulls  # type: ignore[arg-type]


def _arrow_column(values: pa.Array) -> Column:
    """The same of an Arrow array of bytes or text."""
    ends, data = buffers(values)
    first = int(ends[0])
    nulls = np.zeros(len(values), np.uint8)
    if values.null_count:
        nulls = values.is_null().to_numpy(zero_copy_only=False).astype(np.uint8)
    return ends[1:].astype(np.int64) - first, data[first : int(ends[-1])] if len(data) else _NOTHING, nulls


class _Part(NamedTuple):
    """Records that came together."""

    key: Column
    value: Column
    stamps: Any
    headers: list[Headers] | None
    partitions: Sequence[int | None] | None
    window_bytes: int = 0


class RecordCollector:
    """What a task sends, by topic, until its range is done."""

    def __init__(self) -> None:
        self._topics: defaultdict[str, _TopicRecords] = defaultdict(_TopicRecords)

    def __len__(self) -> int:
        return sum(len(records) for records in self._topics.values())

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int | None,
    ) -> None:
        self._topics[topic].add(key, value, timestamp, headers, partition)

    def send_columns(
        self, topic: str, keys: pa.Array, values: pa.Array, stamps: Any, window_bytes: int = 0
    ) -> None:
        """Many records without headers: Arrow arrays of bytes (or text), and their timestamps."""
        self._topics[topic].add_columns(keys, values, stamps, window_bytes)

    def send_changes(self, changelog: str, changes: Sequence[LogRecord], partition: int) -> None:
        """Many records for a changelog."""
        self._topics[changelog].add_changes(changes, partition)

    def batches(
        self, partition_count: Callable[[str], int], turn: int, transactional: bool
    ) -> Iterator[tuple[TopicPartition, bytearray | memoryview]]:
        """Finished batches and where each goes; records without key and partition go to partition `turn`."""
        for topic, records in self._topics.items():
            yield from records.batches(topic, partition_count(topic), turn, transactional)

    def clear(self) -> None:
        self._topics.clear()


class _TopicRecords:
    """The records of one topic, in order."""

    __slots__ = ("_count", "_parts", "headers", "keys", "partitions", "stamps", "values")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._count = 0
        self._start()

    def _start(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.stamps: list[int] = []
        self.headers: list[Headers] | None = None
        self.partitions: list[int | None] | None = None

    def __len__(self) -> int:
        return self._count + len(self.keys)

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

    def add_columns(self, keys: pa.Array, values: pa.Array, stamps: Any, window_bytes: int = 0) -> None:
        """Many records without headers: Arrow arrays of bytes (or text), and their timestamps."""
        self._close()
        columns = _arrow_column(keys), _arrow_column(values)
        self._parts.append(_Part(*columns, stamps, None, None, window_bytes))
        self._count += len(stamps)

    def add_changes(self, changes: Sequence[LogRecord], partition: int) -> None:
        """Many records for a changelog."""
        if changes:
            self._close()
            keys: list[bytes | None] = [change[0] for change in changes]
            values = [change[1] for change in changes]
            times = np.maximum(np.array([change[2] for change in changes], np.int64), 0)
            numbers = [partition] * len(times)
            self._parts.append(_Part(_column(keys), _column(values), times, None, numbers))
            self._count += len(times)

    def _close(self) -> None:
        if self.keys:
            stamps = np.array(self.stamps, np.int64)
            columns = _column(self.keys), _column(self.values)
            self._parts.append(_Part(*columns, stamps, self.headers, self.partitions))
            self._count += len(self.keys)
            self._start()

    def batches(
        self, topic: str, count: int, turn: int, transactional: bool
    ) -> Iterator[tuple[TopicPartition, bytearray | memoryview]]:
        """Finished batches and where each goes; records without key and partition begin at partition
        `turn`."""
        self._close()
        for part in self._parts:
            yield from _batches(part, topic, count, turn, transactional)


def _batches(
    part: _Part, topic: str, count: int, turn: int, transactional: bool
) -> Iterator[tuple[TopicPartition, bytearray | memoryview]]:
    key, value, stamps = part.key, part.value, part.stamps
    numbers = _numbers(part, count, turn)
    if numbers.max(initial=0) >= count or numbers.min(initial=0) < 0:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{topic} has {count} partitions only")
    size = key[1].size + value[1].size + _OVERHEAD * len(stamps)
    out = np.empty(size + HEADER_SIZE * (count + 2 * (size // _BATCH_BYTES + 1)), np.uint8)
    view, at = memoryview(out.data), 0
    for number in range(count):
        rows = np.flatnonzero(numbers == number)
        if not len(rows):
            continue
        if part.headers is not None:
            yield from _slowly(
                part, part.headers, TopicPartition(topic, number), rows.tolist(), transactional
            )
            continue
        mine = stamps[rows]
        base, newest, first = int(mine[0]), int(mine.max()), 0
        while first < len(rows):
            begin = at + HEADER_SIZE
            packed, stop = _pack(rows, stamps, base, first, *key, *value, out, begin, _BATCH_BYTES)
            _put_header(view[at:stop], packed, base, newest, transactional)
            yield TopicPartition(topic, number), view[at:stop]
            at, first = stop, first + packed


def _numbers(part: _Part, count: int, turn: int) -> Any:
    """The partition of each record: the one it names, else by its key, else all of this range to the same."""
    ends, data, nulls = part.key
    numbers = np.where(nulls != 0, np.int64(turn % count), np.int64(-1))
    if part.partitions is not None:
        named = np.array([-1 if given is None else given for given in part.partitions], np.int64)
        numbers = np.where(named >= 0, named, numbers)
    _route(numbers, ends, data, count, part.window_bytes)
    return numbers


def _slowly(
    part: _Part, headers: list[Headers], topic_partition: TopicPartition, rows: list[int], transactional: bool
) -> Iterator[tuple[TopicPartition, bytearray]]:
    size = 0
    chunk: list[Record] = []
    for row in rows:
        key, value = _item(part.key, row), _item(part.value, row)
        chunk.append(Record(len(chunk), int(part.stamps[row]), key, value, headers[row]))
        size += len(key or b"") + len(value or b"") + _OVERHEAD
        if size > _BATCH_BYTES:
            yield topic_partition, encode_batch(chunk, transactional=transactional)
            size, chunk = 0, []
    if chunk:
        yield topic_partition, encode_batch(chunk, transactional=transactional)


def _item(column: Column, row: int) -> bytes | None:
    ends, data, nulls = column
    if nulls[row]:
        return None
    return bytes(data[ends[row - 1] if row else 0 : ends[row]])


def _put_header(batch: memoryview, count: int, base: int, newest: int, transactional: bool) -> None:
    attributes = TRANSACTIONAL if transactional else 0
    length = len(batch) - LENGTH_END
    stamps = (base, newest, NO_PRODUCER, -1, NO_SEQUENCE, count)
    HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, attributes, count - 1, *stamps)
