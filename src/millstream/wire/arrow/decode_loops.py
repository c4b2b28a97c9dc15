"""The compiled loops: over the batches of an answer, and over the records of batches.

Everything read here was written by strangers, and compiled code that reads past an array crashes the process.
So every read is preceded by a check against the end of what it may touch: numbers against the end of the
data, keys, values and headers against the end of their record, the table and the columns against their
length. What is refused is what `wire.records.iter_records` refuses; a refusal is a code and the index of the
record, never an exception.
"""

from typing import Any, Final

import numpy as np

from millstream.wire.arrow.copying import copy_bytes
from millstream.wire.arrow.varint_loops import compiled, nb, read_varint, read_varlong

# Columns of the table of batches.
AT, SIZE, BASE, LAST, ATTRIBUTES, BASE_TIME, MAX_TIME, PRODUCER, COUNT, CRC = range(10)
WIDTH: Final = 10

# What can be wrong: see `decode.REASONS`.
SOUND: Final = 0
BAD_LENGTH, BAD_MAGIC, BAD_COUNT = 1, 2, 3
BAD_SIZE, CUT_OFF, BAD_VARINT, BAD_DELTA, BAD_KEY, BAD_VALUE, BAD_HEADERS, BAD_END, LEFT_OVER, NO_ROOM = (
    range(4, 14)
)

_HEADER_SIZE: Final = 61
_LENGTH_END: Final = 12
_SMALLEST: Final = 6  # of the size that a record claims

BYTES = nb.types.Array(nb.uint8, 1, "C", readonly=True)
TABLE = nb.types.Array(nb.int64, 2, "C")


@compiled(forceinline=True)
def _i32(data: Any, at: Any) -> Any:
    return np.int64(
        np.int32(
            (np.uint32(data[at]) << np.uint32(24))
            | (np.uint32(data[at + 1]) << np.uint32(16))
            | (np.uint32(data[at + 2]) << np.uint32(8))
            | np.uint32(data[at + 3])
        )
    )


@compiled(forceinline=True)
def _i64(data: Any, at: Any) -> Any:
    return (_i32(data, at) << 32) | (_i32(data, at + 4) & np.int64(0xFFFFFFFF))


@compiled(nb.types.UniTuple(nb.int64, 2)(BYTES))
def count_batches(data: Any) -> Any:
    """How many whole batches there are, and SOUND or BAD_LENGTH. A batch cut off at the end is left out."""
    end = np.int64(data.shape[0])
    at = np.int64(0)
    found = np.int64(0)
    while end - at >= _HEADER_SIZE:
        length = _i32(data, at + 8)
        if length < _HEADER_SIZE - _LENGTH_END:
            return found, np.int64(BAD_LENGTH)
        if length + _LENGTH_END > end - at:
            break
        found += 1
        at += length + _LENGTH_END
    return found, np.int64(SOUND)


@compiled(nb.types.UniTuple(nb.int64, 2)(BYTES, TABLE))
def list_batches(data: Any, table: Any) -> Any:
    """Fill the table with the headers of the first batches, as many as it has rows. Returns SOUND or what is
    wrong, and in which batch. The data must be what `count_batches` has counted."""
    end = np.int64(data.shape[0])
    at = np.int64(0)
    for row in range(table.shape[0]):
        if end - at < _HEADER_SIZE:
            return np.int64(BAD_LENGTH), np.int64(row)
        length = _i32(data, at + 8)
        if length < _HEADER_SIZE - _LENGTH_END or length + _LENGTH_END > end - at:
            return np.int64(BAD_LENGTH), np.int64(row)
        if data[at + 16] != 2:
            return np.int64(BAD_MAGIC), np.int64(row)
        table[row, 0] = at
        table[row, 1] = length + _LENGTH_END
        table[row, 2] = _i64(data, at)
        table[row, 3] = _i32(data, at + 23)
        table[row, 4] = (np.int64(data[at + 21]) << 8) | np.int64(data[at + 22])
        table[row, 5] = _i64(data, at + 27)
        table[row, 6] = _i64(data, at + 35)
        table[row, 7] = _i64(data, at + 43)
        table[row, 8] = _i32(data, at + 57)
        table[row, 9] = _i32(data, at + 17) & np.int64(0xFFFFFFFF)
        if table[row, 8] < 0 or table[row, 3] < table[row, 8] - 1:
            return np.int64(BAD_COUNT), np.int64(row)
        at += length + _LENGTH_END
    return np.int64(SOUND), np.int64(0)


@compiled(
    nb.types.UniTuple(nb.int64, 8)(
        BYTES,
        TABLE,
        nb.int64[::1],
        nb.int64[::1],
        nb.int64,
        nb.int64,
        nb.boolean,
        nb.boolean,
        nb.int64[::1],
        nb.int64[::1],
        nb.int32[::1],
        nb.uint8[::1],
        nb.uint8[::1],
        nb.int32[::1],
        nb.uint8[::1],
        nb.uint8[::1],
        nb.int64[::1],
        nb.int64[::1],
    )
)
def read_records(
    data: Any,
    batches: Any,
    starts: Any,
    stops: Any,
    first: Any,
    until: Any,
    with_keys: Any,
    with_values: Any,
    offsets: Any,
    times: Any,
    key_ends: Any,
    keys: Any,
    key_bits: Any,
    value_ends: Any,
    values: Any,
    value_bits: Any,
    header_at: Any,
    header_count: Any,
) -> Any:
    """The records of `batches`, whose (decompressed) records are data[start:stop], into columns; only those
    with first <= offset < until. `header_at` of length 0: headers are checked, not remembered.

    Returns what is wrong, the index of the record in its batch, the batch, the rows written, the null keys,
    the null values, and how many bytes of keys and values were written."""
    size = np.int64(data.shape[0])
    room = np.int64(offsets.shape[0])
    with_headers = header_at.shape[0] > 0
    row = np.int64(0)
    key_end = np.int64(0)
    value_end = np.int64(0)
    null_keys = np.int64(0)
    null_values = np.int64(0)
    for number in range(batches.shape[0]):
        at = starts[number]
        end = stops[number]
        if at < 0 or at > end or end > size:
            return (
                np.int64(CUT_OFF),
                np.int64(0),
                np.int64(number),
                row,
                null_keys,
                null_values,
                key_end,
                value_end,
            )
        base = batches[number, 2]
        last_delta = batches[number, 3]
        append_time = (batches[number, 4] & 8) != 0
        base_time = batches[number, 6] if append_time else batches[number, 5]
        delta = np.int64(-1)
        problem = np.int64(SOUND)
        index = np.int64(0)
        while index < batches[number, 8]:
            length, at = read_varint(data, at, end)
            if at < 0:
                problem = np.int64(BAD_VARINT)
                break
            stop = at + length
            if length < _SMALLEST or stop > end:
                problem = np.int64(BAD_SIZE)
                break
            time, at = read_varlong(data, at + 1, stop)  # + 1: attributes
            if at < 0:
                problem = np.int64(BAD_VARINT)
                break
            after = delta
            delta, at = read_varint(data, at, stop)
            if at < 0:
                problem = np.int64(BAD_VARINT)
                break
            if delta <= after or delta > last_delta:
                problem = np.int64(BAD_DELTA)
                break
            key_size, at = read_varint(data, at, stop)
            if at < 0:
                problem = np.int64(BAD_VARINT)
                break
            key_at = at
            if key_size < -1 or key_size > stop - at:
                problem = np.int64(BAD_KEY)
                break
            if key_size > 0:
                at += key_size
            value_size, at = read_varint(data, at, stop)
            if at < 0:
                problem = np.int64(BAD_VARINT)
                break
            value_at = at
            if value_size < -1 or value_size > stop - at:
                problem = np.int64(BAD_VALUE)
                break
            if value_size > 0:
                at += value_size
            headers, at = read_varint(data, at, stop)
            if at < 0:
                problem = np.int64(BAD_VARINT)
                break
            headers_at = at
            if headers != 0:
                if headers < 0 or headers * 2 > stop - at:
                    problem = np.int64(BAD_HEADERS)
                    break
                for _ in range(headers):
                    length, at = read_varint(data, at, stop)
                    if at < 0 or length < 0 or length > stop - at:
                        problem = np.int64(BAD_HEADERS)
                        break
                    at += length
                    length, at = read_varint(data, at, stop)
                    if at < 0 or length < -1 or length > stop - at:
                        problem = np.int64(BAD_HEADERS)
                        break
                    if length > 0:
                        at += length
                if problem != SOUND:
                    break
            if at != stop:
                problem = np.int64(BAD_END)
                break
            index += 1
            offset = base + delta
            if offset < first or offset >= until:
                continue
            if row >= room:
                problem = np.int64(NO_ROOM)
                break
            offsets[row] = offset
            times[row] = (base_time if append_time else base_time + time) * 1000
            if with_keys:
                if key_size >= 0:
                    if key_size > keys.shape[0] - key_end:
                        problem = np.int64(NO_ROOM)
                        break
                    copy_bytes(keys, key_end, data, key_at, key_size)
                    key_end += key_size
                    key_bits[row >> 3] |= np.uint8(1 << (row & 7))
                else:
                    null_keys += 1
                key_ends[row + 1] = key_end
            if with_values:
                if value_size >= 0:
                    if value_size > values.shape[0] - value_end:
                        problem = np.int64(NO_ROOM)
                        break
                    copy_bytes(values, value_end, data, value_at, value_size)
                    value_end += value_size
                    value_bits[row >> 3] |= np.uint8(1 << (row & 7))
                else:
                    null_values += 1
                value_ends[row + 1] = value_end
            if with_headers:
                header_at[row] = headers_at
                header_count[row] = headers
            row += 1
        if problem == SOUND and at != end:
            problem = np.int64(LEFT_OVER)
        if problem != SOUND:
            return problem, index, np.int64(number), row, null_keys, null_values, key_end, value_end
    return np.int64(SOUND), np.int64(0), np.int64(0), row, null_keys, null_values, key_end, value_end


@compiled(nb.types.UniTuple(nb.int64, 2)(BYTES, nb.int64[::1], nb.int64[::1]))
def measure_headers(data: Any, header_at: Any, header_count: Any) -> Any:
    """How many bytes the keys and the values of all headers have. `read_records` has checked the headers."""
    end = np.int64(data.shape[0])
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for row in range(header_at.shape[0]):
        at = header_at[row]
        for _ in range(header_count[row]):
            length, at = read_varint(data, at, end)
            if at < 0 or length < 0 or length > end - at:
                return np.int64(-1), np.int64(-1)
            key_bytes += length
            at += length
            length, at = read_varint(data, at, end)
            if at < 0 or length > end - at:
                return np.int64(-1), np.int64(-1)
            if length > 0:
                value_bytes += length
                at += length
    return key_bytes, value_bytes


@compiled(
    nb.types.UniTuple(nb.int64, 2)(
        BYTES,
        nb.int64[::1],
        nb.int64[::1],
        nb.int32[::1],
        nb.uint8[::1],
        nb.int32[::1],
        nb.uint8[::1],
        nb.int32[::1],
        nb.uint8[::1],
        nb.uint8[::1],
    )
)
def read_headers(
    data: Any,
    header_at: Any,
    header_count: Any,
    list_ends: Any,
    list_bits: Any,
    key_ends: Any,
    keys: Any,
    value_ends: Any,
    values: Any,
    value_bits: Any,
) -> Any:
    """The headers of all rows, one after the other, into arrays of the measured sizes. A row without headers
    is null. Returns the null values, and how many bytes of keys are not ASCII."""
    end = np.int64(data.shape[0])
    number = np.int64(0)
    key_end = np.int64(0)
    value_end = np.int64(0)
    nulls = np.int64(0)
    strange = np.int64(0)
    for row in range(header_at.shape[0]):
        at = header_at[row]
        for _ in range(header_count[row]):
            length, at = read_varint(data, at, end)
            if at < 0 or length < 0 or length > end - at or length > keys.shape[0] - key_end:
                return np.int64(-1), np.int64(-1)
            for index in range(length):
                byte = data[at + index]
                keys[key_end + index] = byte
                strange += np.int64(byte >> 7)
            key_end += length
            at += length
            length, at = read_varint(data, at, end)
            if at < 0 or length > end - at or length > values.shape[0] - value_end:
                return np.int64(-1), np.int64(-1)
            if length >= 0:
                for index in range(length):
                    values[value_end + index] = data[at + index]
                value_end += length
                at += length
                value_bits[number >> 3] |= np.uint8(1 << (number & 7))
            else:
                nulls += 1
            number += 1
            key_ends[number] = key_end
            value_ends[number] = value_end
        if header_count[row] > 0:
            list_bits[row >> 3] |= np.uint8(1 << (row & 7))
        list_ends[row + 1] = np.int32(number)
    return nulls, strange
