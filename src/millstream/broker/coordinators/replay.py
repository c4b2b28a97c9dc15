"""Reading a coordinator's log at a start: nothing but offsets, keys and values, as fast as Python goes.

A million commits lie in up to a million batches of one record. `wire.records.iter_records` makes a header, a generator and
a record object for each; this makes one short list. The log is the broker's own and was checked when it was opened, so
lengths are checked to stay inside of the batch, and that is all.
"""

from __future__ import annotations

import struct

from millstream.wire.batch import CODEC_MASK, HEADER_SIZE, LENGTH_END
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import iter_records

Entry = tuple[int, bytes | None, bytes | None]  # offset, key, value

# base offset, length, attributes, producer id, record count
HEAD = struct.Struct(">qi9xh20xq6xi")


def entries(data: bytes, at: int, size: int, attributes: int, base_offset: int, count: int) -> list[Entry]:
    """The records of the batch of `size` bytes at `at`, whose header was read with HEAD."""
    end = at + size
    if attributes & CODEC_MASK:
        opened = iter_records(memoryview(data)[at:end], check_crc=False)
        return [(record.offset, record.key, record.value) for record in opened]
    at += HEADER_SIZE
    found: list[Entry] = []
    try:
        for _ in range(count):
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = _more(data, at, size)
            stop = at + (size >> 1)
            if stop > end:
                raise _corrupt(base_offset)
            at += 1  # attributes
            while data[at] > 0x7F:  # the timestamp, whatever it is
                at += 1
            delta = data[at + 1]
            at += 2
            if delta > 0x7F:
                delta, at = _more(data, at, delta)
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = _more(data, at, size)
            key: bytes | None = None
            if not size & 1:
                key = data[at : at + (size >> 1)]
                at += size >> 1
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = _more(data, at, size)
            value: bytes | None = None
            if not size & 1:
                value = data[at : at + (size >> 1)]
                at += size >> 1
            if at >= stop:
                raise _corrupt(base_offset)
            found.append((base_offset + (delta >> 1), key, value))
            at = stop
    except IndexError:
        raise _corrupt(base_offset) from None
    return found


def batch_size(length: int, left: int) -> int:
    """Bytes of a batch with this length field, of `left` that are there."""
    size = length + LENGTH_END
    if not HEADER_SIZE <= size <= left:
        raise KafkaError(ErrorCode.corrupt_message, f"a batch claims {size} bytes, {left} are left")
    return size


def _more(data: bytes, at: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte says that there is more (zigzag is left to the caller)."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError("a varint without end")


def _corrupt(offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message, f"the batch at offset {offset} does not hold what its header says"
    )
