"""PostgreSQL's logical replication messages (plugin pgoutput, protocol version 1): bytes into values.

Tuples have a value for each column: text as bytes, None for null, or `UNCHANGED` for a large value that an
update left as it was and the log therefore does not have.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_BEGIN = struct.Struct("!QQI")
_COMMIT = struct.Struct("!BQQQ")
_INT = struct.Struct("!I")
_SHORT = struct.Struct("!H")


class _Unchanged:
    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Final = _Unchanged()
Value = bytes | None | _Unchanged


class Begin(NamedTuple):
    """`final` is where the transaction commits; the time is in microseconds since 2000."""

    final: int
    time: int
    xid: int


class Commit(NamedTuple):
    end: int


class Relation(NamedTuple):
    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]


class Change(NamedTuple):
    """`old` are the key's columns, or all of them with REPLICA IDENTITY FULL; `whole` says which."""

    oid: int
    op: str
    old: list[Value] | None
    new: list[Value] | None
    whole: bool


class Truncate(NamedTuple):
    oids: tuple[int, ...]


Message = Begin | Commit | Relation | Change | Truncate


def parse(data: bytes) -> Message | None:
    """None for what nobody here wants to know: types, origins, messages."""
    kind = data[:1]
    if kind == b"B":
        return Begin(*_BEGIN.unpack_from(data, 1))
    if kind == b"C":
        return Commit(_COMMIT.unpack_from(data, 1)[2])
    if kind == b"R":
        return _relation(data)
    if kind in (b"I", b"U", b"D"):
        return _change(data, {b"I": "c", b"U": "u", b"D": "d"}[kind])
    if kind == b"T":
        (count,) = _INT.unpack_from(data, 1)
        return Truncate(struct.unpack_from(f"!{count}I", data, 6))
    return None


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _relation(data: bytes) -> Relation:
    (oid,) = _INT.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    (count,) = _SHORT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(data, at + 1)
        columns.append(column)
        at += 8
    return Relation(oid, schema or "pg_catalog", name, tuple(columns))


def _change(data: bytes, op: str) -> Change:
    (oid,) = _INT.unpack_from(data, 1)
    old: list[Value] | None = None
    new: list[Value] | None = None
    whole = False
    at = 5
    while at < len(data):
        which = data[at : at + 1]
        values, at = _tuple(data, at + 1)
        if which == b"N":
            new = values
        else:
            old, whole = values, which == b"O"
    return Change(oid, op, old, new, whole)


def _tuple(data: bytes, at: int) -> tuple[list[Value], int]:
    (count,) = _SHORT.unpack_from(data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[at : at + 1]
        at += 1
        if kind == b"n":
            values.append(None)
        elif kind == b"u":
            values.append(UNCHANGED)
        else:
            (length,) = _INT.unpack_from(data, at)
            at += 4
            values.append(data[at : at + length])
            at += length
    return values, at
