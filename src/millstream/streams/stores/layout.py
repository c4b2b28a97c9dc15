"""How windows, sessions and join sides are written into the key of a changelog record: Kafka Streams'
layouts."""

from __future__ import annotations

import struct

WINDOW = struct.Struct(">qi")
_SESSION = struct.Struct(">qq")
_SIDE = struct.Struct(">qb")


def window_key(key: bytes, start: int, sequence: int) -> bytes:
    return key + WINDOW.pack(start, sequence)


def split_window_key(data: bytes) -> tuple[bytes, int, int]:
    start, sequence = WINDOW.unpack(data[-12:])
    return data[:-12], start, sequence


def session_key(key: bytes, start: int, end: int) -> bytes:
    return key + _SESSION.pack(end, start)


def split_session_key(data: bytes) -> tuple[bytes, int, int]:
    end, start = _SESSION.unpack(data[-16:])
    return data[:-16], start, end


def side_key(timestamp: int, is_left: bool, key: bytes) -> bytes:
    return _SIDE.pack(timestamp, is_left) + key


def split_side_key(data: bytes) -> tuple[int, bool, bytes]:
    timestamp, is_left = _SIDE.unpack(data[:9])
    return timestamp, bool(is_left), data[9:]


def list_of(values: list[bytes]) -> bytes:
    """Several values under one key: their count, then each with its length."""
    return struct.pack(">i", len(values)) + b"".join(
        struct.pack(">i", len(value)) + value for value in values
    )


def split_list(data: bytes) -> list[bytes]:
    found, position = [], 4
    for _ in range(struct.unpack(">i", data[:4])[0]):
        (size,) = struct.unpack(">i", data[position : position + 4])
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found


def pack_fields(fields: list[bytes | None]) -> bytes:
    """Fields one after the other, each with its length; -1 for one that is not there."""
    return b"".join(
        struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field for field in fields
    )


def split_fields(data: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack(">i", data[position : position + 4])
        position += 4
        found.append(None if size < 0 else data[position : position + size])
        position += max(size, 0)
    return found
