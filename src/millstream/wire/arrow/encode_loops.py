"""The compiled loops of writing: from Arrow columns to records in the format of a batch.

    route   which partition each row goes to: the one it names, else by its key as in Java, else in turns
    order   the rows of each partition together, in their old order
    pack    rows of one partition as records, until a batch is full

A column comes as a tuple (offsets, bytes, validity bits, first bit), as Arrow keeps it; without offsets, the
column is absent and every row of it is null. The columns are Arrow's own and sound; what a user can get wrong
(a partition that does not exist, a record too large) is a code, never an exception.
"""

from typing import Any, Final

import numba as nb
import numpy as np

from millstream.wire.arrow.copying import copy_bytes
from millstream.wire.arrow.varint_loops import compiled, put_varint, varint_size

ROUTED: Final = -1
FULL, TOO_LARGE = 0, 1

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995

BYTES = nb.types.Array(nb.uint8, 1, "C", readonly=True)
INTS = nb.types.Array(nb.int32, 1, "C", readonly=True)
LONGS = nb.types.Array(nb.int64, 1, "C", readonly=True)
_types: Any = nb.types
COLUMN = _types.Tuple((INTS, BYTES, BYTES, nb.int64))
ROOM = nb.types.Array(nb.uint8, 1, "C")
SLOTS = nb.types.Array(nb.int32, 1, "C")
STATE = nb.types.Array(nb.int64, 1, "C")
FOUR = _types.UniTuple(nb.int64, 4)


# Columns are taken apart once per call, not once per row: numba counts references to an array that it takes
# out of a tuple.


@compiled(forceinline=True)
def _is_null(offsets: Any, bits: Any, first: Any, row: Any) -> Any:
    if offsets.shape[0] == 0:
        return True
    if bits.shape[0] == 0:
        return False
    bit = first + row
    return (bits[bit >> 3] >> np.uint8(bit & 7)) & 1 == 0


@compiled(nb.uint32(BYTES, nb.int64, nb.int64))
def murmur2(data: Any, at: Any, end: Any) -> Any:
    """32-bit MurmurHash2 of these bytes, with the seed of Kafka's clients."""
    multiplier = np.uint32(_MULTIPLIER)
    length = end - at
    digest = np.uint32(_SEED) ^ np.uint32(length)
    whole = at + (length & ~np.int64(3))
    while at < whole:
        word = (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        word = np.uint32(word * multiplier)
        word = np.uint32(word ^ (word >> np.uint32(24)))
        word = np.uint32(word * multiplier)
        digest = np.uint32(digest * multiplier)
        digest = np.uint32(digest ^ word)
        at += 4
    left = end - whole
    if left > 0:
        word = np.uint32(data[whole])
        if left > 1:
            word |= np.uint32(data[whole + 1]) << np.uint32(8)
        if left > 2:
            word |= np.uint32(data[whole + 2]) << np.uint32(16)
        digest = np.uint32((digest ^ word) * multiplier)
    digest = np.uint32((digest ^ (digest >> np.uint32(13))) * multiplier)
    return np.uint32(digest ^ (digest >> np.uint32(15)))


@compiled(nb.int64(COLUMN, COLUMN, COLUMN, INTS, INTS, INTS, STATE, nb.int64, nb.int64, SLOTS))
def route(
    key: Any,
    value: Any,
    partition: Any,
    topic_of_row: Any,
    partitions_of_topic: Any,
    first_slot: Any,
    turns: Any,
    turn_bytes: Any,
    suffix: Any,
    slots: Any,
) -> Any:
    """Fill `slots`: a partition's number plus the first slot of its topic. Rows without key and partition
    take turns: `turns` holds, per topic, whose turn it is and how many bytes it has had. Returns ROUTED, or
    the first row that names a partition that its topic does not have.

    `partition` is a column whose offsets are the numbers. `topic_of_row` is empty if all rows go to topic 0.
    The last `suffix` bytes of a key have no say: the window of a windowed key."""
    key_ends, key_bytes, key_bits, key_bit = key
    value_ends, _, value_bits, value_bit = value
    numbers, _, number_bits, number_bit = partition
    several = topic_of_row.shape[0] > 0
    topic = np.int64(0)
    for row in range(slots.shape[0]):
        if several:
            topic = np.int64(topic_of_row[row])
        count = np.int64(partitions_of_topic[topic])
        if not _is_null(numbers, number_bits, number_bit, row):
            number = np.int64(numbers[row])
            if number < 0 or number >= count:
                return np.int64(row)
        elif not _is_null(key_ends, key_bits, key_bit, row):
            hashed = murmur2(key_bytes, np.int64(key_ends[row]), np.int64(key_ends[row + 1]) - suffix)
            number = np.int64(hashed & np.uint32(0x7FFFFFFF)) % count
        else:
            number = turns[2 * topic] % count
            size = np.int64(16)
            if not _is_null(value_ends, value_bits, value_bit, row):
                size += np.int64(value_ends[row + 1] - value_ends[row])
            turns[2 * topic + 1] += size
            if turns[2 * topic + 1] >= turn_bytes:
                turns[2 * topic] += 1
                turns[2 * topic + 1] = 0
        slots[row] = first_slot[topic] + number
    return np.int64(ROUTED)


@compiled(nb.void(INTS, STATE, STATE))
def order(slots: Any, ends: Any, rows: Any) -> None:
    """The rows sorted by slot, each slot's in their old order. `ends` (one longer than there are slots) holds
    zeros, and afterwards at s and s + 1 where the rows of slot s begin and end."""
    for row in range(slots.shape[0]):
        ends[slots[row] + 1] += 1
    for slot in range(1, ends.shape[0]):
        ends[slot] += ends[slot - 1]
    at = ends[:-1].copy()
    for row in range(slots.shape[0]):
        slot = slots[row]
        rows[at[slot]] = row
        at[slot] += 1


@compiled(forceinline=True)
def _length(ends: Any, bits: Any, first: Any, row: Any) -> Any:
    """Bytes of one cell; -1 for null, as in a record."""
    if _is_null(ends, bits, first, row):
        return np.int64(-1)
    return np.int64(ends[row + 1] - ends[row])


@compiled(forceinline=True)
def _put_bytes(out: Any, at: Any, ends: Any, data: Any, row: Any, length: Any) -> Any:
    """Length and content of one cell."""
    at = put_varint(out, at, length)
    if length > 0:
        copy_bytes(out, at, data, np.int64(ends[row]), length)
        at += length
    return at


@compiled(
    FOUR(
        STATE,
        nb.int64,
        nb.int64,
        COLUMN,
        COLUMN,
        COLUMN,
        COLUMN,
        COLUMN,
        LONGS,
        ROOM,
        nb.int64,
        nb.int64,
        nb.int64,
    )
)
def pack(
    rows: Any,
    first: Any,
    end: Any,
    key: Any,
    value: Any,
    headers: Any,
    header_key: Any,
    header_value: Any,
    timestamps: Any,
    out: Any,
    at: Any,
    full: Any,
    largest: Any,
) -> Any:
    """Records of rows[first:end] into `out` from `at` on, until the next would not fit in `full` bytes (the
    first always does). Returns how many there are, where they end, FULL or TOO_LARGE (a record beyond
    `largest`), and the size of the record that was too large. There is room for all: the caller has added up
    the columns. `timestamps` is empty if all records have that of the batch; else the batch has that of
    rows[first]."""
    key_ends, key_bytes, key_bits, key_bit = key
    value_ends, value_bytes, value_bits, value_bit = value
    list_ends, _, list_bits, list_bit = headers
    name_ends, name_bytes, name_bits, name_bit = header_key
    item_ends, item_bytes, item_bits, item_bit = header_value
    has_headers = list_ends.shape[0] > 0
    timed = timestamps.shape[0] > 0
    base = timestamps[rows[first]] if timed else np.int64(0)
    delta = np.int64(0)
    begin = at
    count = np.int64(0)
    while first + count < end:
        row = rows[first + count]
        if timed:
            delta = timestamps[row] - base
        key_length = _length(key_ends, key_bits, key_bit, row)
        value_length = _length(value_ends, value_bits, value_bit, row)
        size = 1 + varint_size(delta) + varint_size(count)
        size += (
            varint_size(key_length) + max(key_length, 0) + varint_size(value_length) + max(value_length, 0)
        )
        from_header = np.int64(0)
        to_header = np.int64(0)
        if has_headers and not _is_null(list_ends, list_bits, list_bit, row):
            from_header = np.int64(list_ends[row])
            to_header = np.int64(list_ends[row + 1])
            for index in range(from_header, to_header):
                length = _length(name_ends, name_bits, name_bit, index)
                size += varint_size(length) + length
                length = _length(item_ends, item_bits, item_bit, index)
                size += varint_size(length) + max(length, 0)
        size += varint_size(to_header - from_header)
        whole = size + varint_size(size)
        if whole > largest:
            return count, at, np.int64(TOO_LARGE), whole
        if count > 0 and at - begin + whole > full:
            break
        at = put_varint(out, at, size)
        out[at] = np.uint8(0)  # attributes
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, count)
        at = _put_bytes(out, at, key_ends, key_bytes, row, key_length)
        at = _put_bytes(out, at, value_ends, value_bytes, row, value_length)
        at = put_varint(out, at, to_header - from_header)
        for index in range(from_header, to_header):
            length = _length(name_ends, name_bits, name_bit, index)
            at = _put_bytes(out, at, name_ends, name_bytes, index, length)
            length = _length(item_ends, item_bits, item_bit, index)
            at = _put_bytes(out, at, item_ends, item_bytes, index, length)
        count += 1
    return count, at, np.int64(FULL), np.int64(0)
