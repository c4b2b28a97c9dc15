"""KAFKA rows: one column in the bytes of Kafka's own serializers; and NONE, which has no column at all."""

from __future__ import annotations

from typing import Any

from millstream.sql.formats.json_rows import Columns, Read, Write
from millstream.sql.types import Base
from millstream.streams import serdes

_SERDES = {
    Base.INTEGER: serdes.INTEGER,
    Base.BIGINT: serdes.LONG,
    Base.DOUBLE: serdes.DOUBLE,
    Base.STRING: serdes.STRING,
    Base.BYTES: serdes.BYTES,
}


def reader(columns: Columns) -> Read:
    plain = _SERDES[columns[0][1].base].plain_read
    assert plain is not None
    return lambda data: (plain(data),)


def writer(columns: Columns) -> Write:
    plain = _SERDES[columns[0][1].base].plain_write
    assert plain is not None

    def write(row: tuple[Any, ...]) -> bytes | None:
        return None if row[0] is None else plain(row[0])

    return write
