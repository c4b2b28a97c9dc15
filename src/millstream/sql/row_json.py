"""Rows as JSON for clients: decimals as numbers, times as text, bytes in base64."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

from millstream.sql.formats.values import base64_text, finite
from millstream.sql.results import ResultColumn, Row
from millstream.sql.times import format_date, format_timestamp
from millstream.sql.types import ArrayType, Base, MapType, SqlType, StructType

Convert = Callable[[Any], Any]


def _decimal(value: Decimal) -> Any:
    return orjson.Fragment(f"{value:f}")


def _time(value: int) -> str:
    seconds, millis = divmod(value, 1000)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or millis:
        shown += f":{seconds % 60:02}"
    return f"{shown}.{millis:03}" if millis else shown


_PLAIN: dict[Base, Convert] = {
    Base.DECIMAL: _decimal,
    Base.BYTES: base64_text,
    Base.DATE: format_date,
    Base.TIME: _time,
    Base.TIMESTAMP: format_timestamp,
    Base.DOUBLE: finite,
}


def _converter(type_: SqlType) -> Convert | None:
    if isinstance(type_, ArrayType):
        item = _null_safe(_converter(type_.item))
        return None if item is None else lambda value: [item(one) for one in value]
    if isinstance(type_, MapType):
        inner = _null_safe(_converter(type_.value))
        return None if inner is None else lambda value: {key: inner(one) for key, one in value.items()}
    if isinstance(type_, StructType):
        fields = [(name, _null_safe(_converter(one))) for name, one in type_.fields]
        if all(convert is None for _, convert in fields):
            return None
        return lambda value: {
            name: value.get(name) if convert is None else convert(value.get(name)) for name, convert in fields
        }
    return _PLAIN.get(type_.base)


def _null_safe(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


class RowWriter:
    """The JSON of rows with these columns."""

    def __init__(self, columns: tuple[ResultColumn, ...]) -> None:
        found = [(index, _converter(one.type)) for index, one in enumerate(columns)]
        self._converters = [(index, convert) for index, convert in found if convert is not None]

    def values(self, row: Row) -> list[Any]:
        values = list(row)
        for index, convert in self._converters:
            if values[index] is not None:
                values[index] = convert(values[index])
        return values

    def array(self, row: Row) -> bytes:
        return orjson.dumps(self.values(row), option=orjson.OPT_NON_STR_KEYS)
