"""Arrow columns to record batches, without a Python object per record.

An `Encoder` takes columns of rows (key, value, headers, topic, partition) and gives finished batches with the
partition that each goes to. Which partition a row goes to is decided as Java's default partitioner does it:
the partition that the row names, else the hash of its key, else partitions in turns, a batch at a time. Rows
without timestamps of their own all get the time of the call. Producer id, sequence and checksum are for the
producer to fill in.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.wire.arrow import encode_loops as loops
from millstream.wire.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
)
from millstream.wire.compression import NONE, compress
from millstream.wire.topic_partition import TopicPartition

# The largest size of a record's fields besides key, value and headers: length, attributes, timestamp, offset,
# and the lengths of the three.
_RECORD_OVERHEAD: Final = 36
_HEADER_OVERHEAD: Final = 10
_ABSENT = (np.empty(0, np.int32), np.empty(0, np.uint8), np.empty(0, np.uint8), 0)
_NO_TIMESTAMPS = np.empty(0, np.int64)
for _array in (*_ABSENT[:3], _NO_TIMESTAMPS):
    _array.flags.writeable = False

Column = tuple[Any, Any, Any, int]


class Encoded(NamedTuple):
    """One batch, and where it goes."""

    topic_partition: TopicPartition
    batch: memoryview
    records: int


class BadRow(ValueError):
    """A row that cannot be written; the message says why."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of equal length; None for one that is absent. Key and value are binary or string, headers a
    list of (key, value) structures, topic a string and partition a 32-bit integer. `timestamps` are numpy's
    64-bit integers. The last `key_suffix` bytes of a key, the window of a windowed one, do not count when its
    partition is chosen, as in Kafka Streams."""

    value: pa.Array
    key: pa.Array | None = None
    headers: pa.Array | None = None
    topic: pa.Array | None = None
    partition: pa.Array | None = None
    timestamps: Any = None
    key_suffix: int = 0

    def __len__(self) -> int:
        return len(self.value)


class Encoder:
    """Makes batches of at most `batch_bytes` (uncompressed), of records of at most `largest_record` bytes."""

    def __init__(
        self,
        partitions_of: Callable[[str], int],
        *,
        batch_bytes: int,
        largest_record: int,
        codec: int = NONE,
        level: int | None = None,
        transactional: bool = False,
        first_turn: int = 0,
    ) -> None:
        self._partitions_of = partitions_of
        self.batch_bytes = batch_bytes
        self.largest_record = largest_record
        self._codec = codec
        self._level = level
        self._attributes = codec | (TRANSACTIONAL if transactional else 0)
        self._first_turn = first_turn
        self._turns: dict[str, tuple[int, int]] = {}

    def encode(self, rows: Rows, topic: str | None = None, timestamp: int | None = None) -> Iterator[Encoded]:
        """The batches of these rows; all go to `topic` if it is given."""
        if not len(rows):
            return
        key, value = _bytes_column(rows.key), _bytes_column(rows.value)
        headers, header_key, header_value = _header_columns(rows.headers)
        names, topic_of_row = ([topic], _ABSENT[0]) if topic is not None else _topics(rows.topic)
        counts = np.array([self._partitions_of(name) for name in names], np.int32)
        first_slots = np.concatenate(([0], np.cumsum(counts, dtype=np.int32))).astype(np.int32)
        slots = np.empty(len(rows), np.int32)
        turns = np.array([self._turns.get(name, (self._first_turn, 0)) for name in names], np.int64).ravel()
        partition = _numbers_column(rows.partition)
        bad = loops.route(
            key,
            value,
            partition,
            topic_of_row,
            _frozen(counts),
            _frozen(first_slots),
            turns,
            self.batch_bytes,
            rows.key_suffix,
            slots,
        )
        if bad != loops.ROUTED:
            raise _no_such_partition(names, topic_of_row, counts, partition, bad)
        for index, name in enumerate(names):
            self._turns[name] = (int(turns[2 * index]), int(turns[2 * index + 1]))
        ends = np.zeros(int(first_slots[-1]) + 1, np.int64)
        order = np.empty(len(rows), np.int64)
        loops.order(_frozen(slots), ends, order)
        columns = (key, value, headers, header_key, header_value)
        partitions = [
            TopicPartition(name, number)
            for name, count in zip(names, counts, strict=True)
            for number in range(count)
        ]
        yield from self._pack(partitions, ends, order, columns, rows, timestamp)

    def _pack(
        self,
        partitions: Sequence[TopicPartition],
        ends: Any,
        order: Any,
        columns: tuple[Column, ...],
        rows: Rows,
        timestamp: int | None,
    ) -> Iterator[Encoded]:
        stamp = round(time.time() * 1000) if timestamp is None else timestamp
        times = (
            _NO_TIMESTAMPS
            if rows.timestamps is None
            else _frozen(np.ascontiguousarray(rows.timestamps, np.int64).view())
        )
        full = max(1, self.batch_bytes - HEADER_SIZE)
        # Two batches that follow each other in a partition hold more than a full one together: so many at
        # most.
        content = _size_of(columns) + len(order) * _RECORD_OVERHEAD
        batches = len(partitions) + 2 * (content // full + 1)
        out = np.empty(content + batches * HEADER_SIZE, np.uint8)
        view = memoryview(out.data)
        at = 0
        largest = self.largest_record - HEADER_SIZE
        waiting = [
            (partitions[slot], int(ends[slot]), int(ends[slot + 1]))
            for slot in np.flatnonzero(np.diff(ends)).tolist()
        ]
        while waiting:  # one batch of each partition after the other, so that they can be sent side by side
            later = []
            for partition, first, end in waiting:
                begin = at + HEADER_SIZE
                count, stop, outcome, size = loops.pack(
                    order, first, end, *columns, times, out, begin, full, largest
                )
                if outcome == loops.TOO_LARGE:
                    row = int(order[first + count])
                    raise TooLarge(partition[0], row, int(size) + HEADER_SIZE, self.largest_record)
                batch = view[at:stop]
                at = stop
                if self._codec != NONE:
                    packed = compress(self._codec, batch[HEADER_SIZE:], self._level)
                    batch = memoryview(bytearray(HEADER_SIZE + len(packed)))
                    batch[HEADER_SIZE:] = packed
                base = newest = stamp
                if len(times):
                    own = times[order[first : first + count]]
                    base, newest = int(own[0]), int(own.max())
                self._put_header(batch, count, base, newest)
                yield Encoded(partition, batch, count)
                if first + count < end:
                    later.append((partition, first + count, end))
            waiting = later

    def _put_header(self, batch: memoryview, count: int, base: int, newest: int) -> None:
        length = len(batch) - LENGTH_END
        last = count - 1
        HEADER.pack_into(
            batch,
            0,
            0,
            length,
            -1,
            MAGIC,
            0,
            self._attributes,
            last,
            base,
            newest,
            NO_PRODUCER,
            -1,
            NO_SEQUENCE,
            count,
        )


class TooLarge(BadRow):
    """A record that no batch may hold."""

    def __init__(self, topic: str, row: int, size: int, limit: int) -> None:
        super().__init__(f"a record of {size} bytes for topic '{topic}' is larger than the {limit} allowed")
        self.topic, self.row, self.size, self.limit = topic, row, size, limit


# --- columns ------------------------------------------------------------------------------------------------


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _view(buffer: pa.Buffer | None, dtype: Any) -> Any:
    if buffer is None or buffer.size == 0:
        return _frozen(np.empty(0, dtype))
    return _frozen(np.frombuffer(buffer, dtype, buffer.size // np.dtype(dtype).itemsize))


def _bits(array: pa.Array) -> tuple[Any, int]:
    return (_view(array.buffers()[0], np.uint8), array.offset) if array.null_count else (_ABSENT[2], 0)


def _bytes_column(array: pa.Array | None) -> Column:
    if array is None or pa.types.is_null(array.type):
        return _ABSENT
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.binary())  # offsets of 64 bits, views, fixed sizes
    _, offsets, data = array.buffers()
    bits, bit = _bits(array)
    return (
        _view(offsets, np.int32)[array.offset : array.offset + len(array) + 1],
        _view(data, np.uint8),
        bits,
        bit,
    )


def _numbers_column(array: pa.Array | None) -> Column:
    if array is None or pa.types.is_null(array.type):
        return _ABSENT
    bits, bit = _bits(array)
    return (
        _view(array.buffers()[1], np.int32)[array.offset : array.offset + len(array)],
        _ABSENT[1],
        bits,
        bit,
    )


def _header_columns(array: pa.Array | None) -> tuple[Column, Column, Column]:
    if array is None or pa.types.is_null(array.type):
        return _ABSENT, _ABSENT, _ABSENT
    bits, bit = _bits(array)
    offsets = _view(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    pairs = array.values
    key, value = pairs.field(0), pairs.field(1)
    if key.null_count:
        raise BadRow("column 'headers' has a header without a key (null)")
    return (offsets, _ABSENT[1], bits, bit), _bytes_column(key), _bytes_column(value)


def _topics(array: pa.Array | None) -> tuple[list[str], Any]:
    if array is None:
        raise BadRow("neither a topic for all rows nor a column 'topic'")
    if array.null_count:
        raise BadRow("column 'topic' is null in a row, and option 'topic' names none for all rows")
    found = array.dictionary_encode()
    names = found.dictionary.to_pylist()
    if len(names) == 1:
        return names, _ABSENT[0]
    return names, _frozen(np.ascontiguousarray(pc.cast(found.indices, pa.int32()).to_numpy()).copy())


def _size_of(columns: tuple[Column, ...]) -> int:
    """Bytes of all cells, with what headers need besides."""
    total = sum(int(ends[-1]) - int(ends[0]) for ends, *_ in (*columns[:2], *columns[3:]) if len(ends))
    return total + len(columns[3][0]) * _HEADER_OVERHEAD


def _no_such_partition(
    names: list[str], topic_of_row: Any, counts: Any, partition: Column, row: int
) -> BadRow:
    topic = int(topic_of_row[row]) if len(topic_of_row) else 0
    return BadRow(
        f"column 'partition' says {int(partition[0][row])}, but topic '{names[topic]}' has partitions 0 to "
        f"{int(counts[topic]) - 1}"
    )
