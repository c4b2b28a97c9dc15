"""Blocks: many records as columns.

`Records` is what a task is given: some thousand records of one topic as they were fetched. Where operators
cannot take them as columns they are iterated over, as (offset, key, value, timestamp, headers).

`Block` is what travels from one operator to the next. A column of keys or values is one of three things,
which its `ColumnFormat` tells:

    bytes by a serde   an Arrow array of bytes, checked: every one can be read, and writing it again would
                       give the same bytes
    Arrow values       text, numbers, truth values, as an expression gives them
    objects            a list of whatever a function or a serde gave
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams import serdes
from millstream.streams.operators.base import Headers
from millstream.streams.serdes import Serde

if TYPE_CHECKING:
    from millstream.wire.arrow import Chunk

Read = tuple[int, bytes | None, bytes | None, int, Headers]
"""(offset, key, value, timestamp, headers)."""
Column = Any
"""A pa.Array, or a list of objects."""


class NotInColumns(Exception):
    """This cannot be done in columns, now or ever: records have to go one by one."""


class Records:
    """Records of one partition, in its order."""

    __slots__ = ("headers", "keys", "offsets", "stamps", "values")

    def __init__(
        self, offsets: Any, keys: pa.Array, values: pa.Array, stamps: Any, headers: list[Headers] | None
    ) -> None:
        self.offsets, self.keys, self.values, self.stamps = offsets, keys, values, stamps
        self.headers = headers

    @classmethod
    def of(cls, chunk: Chunk) -> Records:
        assert chunk.key is not None and chunk.value is not None and chunk.headers is not None
        stamps = chunk.timestamp.cast("int64").to_numpy() // 1000
        headers: list[Headers] | None = None
        if chunk.headers.null_count < len(chunk.headers) and len(chunk.headers.flatten()):
            headers = [
                tuple((header["key"], header["value"]) for header in found or ())
                for found in chunk.headers.to_pylist()
            ]
        return cls(chunk.offset.to_numpy(), chunk.key, chunk.value, stamps, headers)

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def last_offset(self) -> int:
        return int(self.offsets[-1])

    def __iter__(self) -> Iterator[Read]:
        headers: Any = repeat(()) if self.headers is None else self.headers
        columns = (
            self.offsets.tolist(),
            self.keys.to_pylist(),
            self.values.to_pylist(),
            self.stamps.tolist(),
        )
        return iter(list(zip(*columns, headers, strict=False)))

    def slice(self, first: int, count: int) -> Records:
        until = first + count
        headers = None if self.headers is None else self.headers[first:until]
        keys, values = self.keys.slice(first, count), self.values.slice(first, count)
        return Records(self.offsets[first:until], keys, values, self.stamps[first:until], headers)


def by_time(topics: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """The records of several topics (`Records`, or one block of each that can be cut like them), the least
    timestamp first, of equals the first topic's; each topic keeps its own order, so one that is late follows
    the one before it at once. Those of one topic that follow each other come together."""
    names = [name for name, blocks in topics.items() if blocks]
    whole = [_joined(topics[name]) for name in names]
    # A record that is late is due when the newest before it was.
    due = [np.maximum.accumulate(records.stamps) for records in whole]
    turn = np.repeat(np.arange(len(whole)), [len(records) for records in whole])
    if not len(turn):
        return
    order = turn[np.lexsort((turn, np.concatenate(due)))]
    edges = np.concatenate(([0], np.flatnonzero(np.diff(order)) + 1, [len(order)]))
    taken = [0] * len(whole)
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        which = int(order[first])
        yield names[which], whole[which].slice(taken[which], last - first)
        taken[which] += last - first


def _joined(blocks: Sequence[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    headers: list[Headers] | None = None
    if any(block.headers is not None for block in blocks):
        headers = [found for block in blocks for found in block.headers or [()] * len(block)]
    return Records(
        np.concatenate([block.offsets for block in blocks]),
        pa.concat_arrays([block.keys for block in blocks]),
        pa.concat_arrays([block.values for block in blocks]),
        np.concatenate([block.stamps for block in blocks]),
        headers,
    )


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """What a column holds: bytes by `serde`, or Arrow values and objects (no serde)."""

    serde: Serde | None = None
    read: Callable[[bytes | None], Any] | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of blocks before there are any. `is_table`: values are the new ones of a table's rows."""

    key: ColumnFormat
    value: ColumnFormat
    is_table: bool = False


@dataclass(slots=True)
class Block:
    """`rows` tells from which of the delivered records each of these came."""

    keys: Column
    values: Column
    stamps: Any
    rows: Any

    def __len__(self) -> int:
        return len(self.stamps)

    def choose(self, mask: Any) -> Block:
        """The records for which the mask (numpy) holds."""
        if mask.all():
            return self
        return Block(_choose(self.keys, mask), _choose(self.values, mask), self.stamps[mask], self.rows[mask])


def _choose(column: Column, mask: Any) -> Column:
    if isinstance(column, list):
        return [item for item, wanted in zip(column, mask.tolist(), strict=True) if wanted]
    return column.filter(pa.array(mask))


# Serdes -----------------------------------------------------------------------------------------------------

_SIZES = {serdes.LONG: 8, serdes.INTEGER: 4, serdes.SHORT: 2, serdes.DOUBLE: 8, serdes.FLOAT: 4}
_NUMBERS = {
    serdes.LONG: (">i8", np.int64),
    serdes.INTEGER: (">i4", np.int64),
    serdes.SHORT: (">i2", np.int64),
    serdes.DOUBLE: (">f8", np.float64),
}


def is_same(one: Serde | None, other: Serde | None) -> bool:
    """Whether two serdes are one and the same, or were made in the same way."""
    if one is other:
        return True
    if one is None or other is None or one.made is None or other.made is None:
        return False
    if len(one.made) != len(other.made):
        return False
    return all(
        is_same(first, second) if isinstance(first, Serde) and isinstance(second, Serde) else first == second
        for first, second in zip(one.made, other.made, strict=True)
    )


def stays_bytes(serde: Serde) -> bool:
    """Whether what can be read is also what would be written, so that bytes may pass as they are."""
    return serde in (serdes.STRING, serdes.BYTES) or serde in _SIZES


def opened(data: pa.Array, column_format: ColumnFormat) -> Column:
    """A column as it was fetched, checked as reading every record would; raises what cannot be read."""
    serde = column_format.serde
    if serde is serdes.STRING:
        try:
            return data.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8: what replaces it, in place of the bytes
            assert column_format.read is not None
            return pa.array([column_format.read(item) for item in data.to_pylist()], pa.string())
    if serde is serdes.BYTES:
        return data
    if serde in _SIZES:
        sizes = pc.binary_length(data)
        if len(data) and not pc.all(pc.equal(sizes, _SIZES[serde])).as_py() and sizes.null_count < len(data):
            raise ValueError(f"not all are a {serde.name}")
        return data
    assert column_format.read is not None
    return [column_format.read(item) for item in data.to_pylist()]


def objects(column: Column, column_format: ColumnFormat) -> list[Any]:
    """As Python's objects."""
    if isinstance(column, list):
        return column
    found: list[Any]
    if column_format.serde is None or column_format.serde in (serdes.STRING, serdes.BYTES):
        found = column.to_pylist()
        return found
    if column_format.serde in _NUMBERS:
        found = values(column, column_format).to_pylist()
        return found
    assert column_format.read is not None
    return [column_format.read(item) for item in column.to_pylist()]


def values(column: Column, column_format: ColumnFormat) -> Column:
    """As Arrow's values where there are such: text, bytes, whole numbers, floating point; else as objects."""
    if (
        isinstance(column, list)
        or column_format.serde is None
        or column_format.serde in (serdes.STRING, serdes.BYTES)
    ):
        return column
    if column_format.serde not in _NUMBERS:
        return objects(column, column_format)
    layout, dtype = _NUMBERS[column_format.serde]
    found = np.zeros(len(column), dtype)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    dense = column.drop_null() if column.null_count else column
    ends, data = buffers(dense)
    found[present] = np.frombuffer(data[ends[0] : ends[-1]], layout) if len(dense) else []
    return pa.array(found, mask=~present)


def buffers(column: pa.Array) -> tuple[Any, Any]:
    """(where each begins and the last one ends, all bytes) of an array of bytes or text."""
    _, ends, data = column.buffers()
    first = column.offset
    offsets = (
        np.frombuffer(ends, np.int32)[first : first + len(column) + 1]
        if ends is not None
        else np.zeros(1, np.int32)
    )
    return offsets, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def to_bytes(
    column: Column, column_format: ColumnFormat, serde: Serde, write: Callable[[Any], bytes | None]
) -> pa.Array:
    """As bytes by a serde; raises what does not fit it."""
    if isinstance(column, list):
        return pa.array([write(item) for item in column], pa.binary())
    if column_format.serde is not None:
        if is_same(column_format.serde, serde):
            return column.cast(pa.binary())
        return pa.array([write(item) for item in objects(column, column_format)], pa.binary())
    if serde is serdes.STRING and pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if serde is serdes.LONG and pa.types.is_int64(column.type) and not column.null_count:
        return fixed(column.to_numpy().astype(">i8"))
    if serde is serdes.DOUBLE and pa.types.is_float64(column.type) and not column.null_count:
        return fixed(column.to_numpy().astype(">f8"))
    return pa.array([write(item) for item in column.to_pylist()], pa.binary())


def fixed(numbers: Any) -> pa.Array:
    """Numbers of one size as an array of their bytes."""
    size = numbers.dtype.itemsize
    ends = np.arange(0, (len(numbers) + 1) * size, size, dtype=np.int32)
    data = [None, pa.py_buffer(ends), pa.py_buffer(numbers)]
    return pa.Array.from_buffers(pa.binary(), len(numbers), data, null_count=0)
