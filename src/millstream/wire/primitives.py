"""Kafka's primitive encodings that the hand-written messages need: strings, arrays, tagged fields (see also
`varint`).

Readers take a buffer that ends where the frame ends, so a length that lies cannot read a neighbour's bytes:
it ends in `Malformed`, `struct.error` or `IndexError`, all of which mean a bad frame (see `BAD_FRAME`).
"""

import struct

from millstream.wire.varint import Buffer, Malformed, read_uvarint

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


BAD_FRAME = (Malformed, struct.error, IndexError, ValueError, UnicodeDecodeError, OverflowError)


def skip_tags(buffer: Buffer, at: int) -> int:
    """The position after a tagged-field section."""
    count, at = read_uvarint(buffer, at)
    for _ in range(count):
        _, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        at += size
        if at > len(buffer):
            raise Malformed("tagged field reaches past the frame")
    return at


def read_bytes(buffer: Buffer, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if size < 0 or end > len(buffer):
        raise Malformed(f"{size} bytes announced, {len(buffer) - at} left in the frame")
    return bytes(buffer[at:end]), end


def read_string(buffer: Buffer, at: int) -> tuple[bytes | None, int]:
    """A nullable string with an int16 length, as bytes."""
    size = INT16.unpack_from(buffer, at)[0]
    if size < 0:
        return None, at + 2
    return read_bytes(buffer, at + 2, size)


def read_compact_string(buffer: Buffer, at: int) -> tuple[bytes | None, int]:
    """A nullable string with a varint length plus one, as bytes."""
    size, at = read_uvarint(buffer, at)
    if size == 0:
        return None, at
    return read_bytes(buffer, at, size - 1)


def read_count(buffer: Buffer, at: int, flexible: bool) -> tuple[int, int]:
    """The number of elements of an array (null counts as none); more than the bytes left is a lie."""
    if flexible:
        count, at = read_uvarint(buffer, at)
        count -= 1
    else:
        count = INT32.unpack_from(buffer, at)[0]
        at += 4
    if count > len(buffer) - at:
        raise Malformed(f"array of {count} elements in {len(buffer) - at} bytes")
    return count, at
