"""Columns of tables and query results, and what they are in Connect's data: schemas and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Context, Decimal
from enum import Enum
from typing import Any

from millstream.connect.data.logical import (
    DATE_SCHEMA,
    EPOCH,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    decimal_schema,
)
from millstream.connect.data.schema import REQUIRED, Schema, Type, struct_schema
from millstream.connect.errors import DataError

UNKNOWN_SCALE = 18
"""Of a number for which the table does not say how many digits it has behind the point."""
_EXACT = Context(prec=200)


class Kind(Enum):
    """What a column holds, whatever its database calls it."""

    BOOLEAN = Type.BOOLEAN
    INT8 = Type.INT8
    INT16 = Type.INT16
    INT32 = Type.INT32
    INT64 = Type.INT64
    FLOAT32 = Type.FLOAT32
    FLOAT64 = Type.FLOAT64
    STRING = Type.STRING
    BYTES = Type.BYTES
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"


_PLAIN = frozenset(kind for kind in Kind if isinstance(kind.value, Type))
"""Those that Connect and the drivers have the same values for."""


@dataclass(frozen=True, slots=True)
class TableId:
    name: str
    schema: str | None = None
    catalog: str | None = None

    def __str__(self) -> str:
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)

    @property
    def names(self) -> list[str]:
        """All that may be meant by it: with its catalog and schema, without the catalog, without both."""
        parts = [part for part in (self.catalog, self.schema, self.name) if part]
        return [".".join(parts[start:]) for start in range(len(parts))]


@dataclass(frozen=True, slots=True)
class Column:
    """`zoned`: its timestamps name a moment, whatever the time zone. `resolution` is that of its timestamps,
    in microseconds. `native` is the database's own name of its type."""

    name: str
    kind: Kind
    optional: bool = True
    precision: int | None = None
    scale: int | None = None
    auto_increment: bool = False
    key_position: int = 0
    zoned: bool = False
    resolution: int = 1
    native: str = ""


def _whole_number(precision: int) -> Kind:
    if precision > 9:
        return Kind.INT64
    if precision > 4:
        return Kind.INT32
    return Kind.INT16 if precision > 2 else Kind.INT8


def mapped(column: Column, mapping: str) -> Kind:
    """What `numeric.mapping` makes of a decimal."""
    if column.kind is not Kind.DECIMAL or mapping == "none":
        return column.kind
    precision, scale = column.precision, column.scale
    if mapping == "precision_only":
        return _whole_number(precision) if precision and precision < 19 and scale == 0 else Kind.DECIMAL
    if precision is None or scale is None:
        return Kind.FLOAT64
    if precision < 19 and scale <= 0:
        return _whole_number(precision)
    if scale > 0 and (precision < 19 or mapping == "best_fit_eager_double"):
        return Kind.FLOAT64
    return Kind.DECIMAL


def schema_of(column: Column, kind: Kind) -> Schema:
    if kind is Kind.DECIMAL:
        return decimal_schema(_scale(column), optional=column.optional)
    logical = {Kind.DATE: DATE_SCHEMA, Kind.TIME: TIME_SCHEMA, Kind.TIMESTAMP: TIMESTAMP_SCHEMA}.get(kind)
    if logical is not None:
        return logical.replace(optional=column.optional)
    return REQUIRED[kind.value].replace(optional=column.optional)


def _scale(column: Column) -> int:
    return UNKNOWN_SCALE if column.scale is None else column.scale


Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class RowFormat:
    """The schema of a table's rows, and what turns the driver's values into Connect's where they differ."""

    columns: tuple[Column, ...]
    schema: Schema
    converters: tuple[tuple[int, Convert], ...]

    def values(self, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for index, convert in self.converters:
            if values[index] is not None:
                values[index] = convert(values[index])
        return values

    def index(self, name: str) -> int | None:
        """Of a column; upper and lower case only count where both are there."""
        names = [column.name for column in self.columns]
        if name in names:
            return names.index(name)
        lowered = [one.lower() for one in names]
        return lowered.index(name.lower()) if lowered.count(name.lower()) == 1 else None


def row_format(
    name: str | None, columns: Sequence[Column], numeric_mapping: str, zone: tzinfo, *, typed: bool
) -> RowFormat:
    """`typed`: the driver's values are of their column's type."""
    fields: list[tuple[str, Schema]] = []
    converters: list[tuple[int, Convert]] = []
    for index, column in enumerate(columns):
        kind = mapped(column, numeric_mapping)
        fields.append((column.name, schema_of(column, kind)))
        if not (typed and kind is column.kind and kind in _PLAIN and column.native != "bit"):
            converters.append((index, converter(column, kind, zone)))
    return RowFormat(tuple(columns), struct_schema(fields, name=name), tuple(converters))


def converter(column: Column, kind: Kind, zone: tzinfo) -> Convert:
    if kind is Kind.TIMESTAMP:
        return lambda value: to_millisecond(moment(value, UTC if column.zoned else zone))
    if kind is Kind.DATE:
        return _date
    if kind is Kind.TIME:
        return _time
    if kind is Kind.DECIMAL:
        scale = _scale(column)
        unit = Decimal((0, (1,), -scale))
        return lambda value: _decimal(value, unit, column.name)
    if kind is Kind.BOOLEAN:
        return bool
    if kind in (Kind.FLOAT32, Kind.FLOAT64):
        return float
    if kind is Kind.STRING:
        return _text
    if kind is Kind.BYTES:
        return lambda value: value.encode() if isinstance(value, str) else bytes(value)
    return _integer


def _integer(value: Any) -> int:
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    return int(value)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _decimal(value: Any, unit: Decimal, name: str) -> Decimal:
    exact = value if isinstance(value, Decimal) else Decimal(str(value))
    if not exact.is_finite():
        raise DataError(f"column {name} has a number that is none: {exact}")
    return exact.quantize(unit, context=_EXACT)


def moment(value: Any, zone: tzinfo) -> datetime:
    """A driver's timestamp in UTC: a datetime, milliseconds since 1970, a Julian day, or ISO text."""
    if isinstance(value, bool | bytes):
        raise DataError(f"not a timestamp: {value!r}")
    if isinstance(value, int):
        return EPOCH + timedelta(milliseconds=value)
    if isinstance(value, float):
        return EPOCH + timedelta(days=value - 2_440_587.5)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise DataError(f"not a timestamp: {value!r}") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    result: datetime = value
    if result.tzinfo is not None:
        return result.astimezone(UTC)
    return result.replace(tzinfo=UTC) if zone is UTC else result.replace(tzinfo=zone).astimezone(UTC)


def to_millisecond(value: datetime) -> datetime:
    micros = value.microsecond
    return value if not micros % 1000 else value.replace(microsecond=micros // 1000 * 1000)


def _date(value: Any) -> datetime:
    if not isinstance(value, date):
        value = moment(value, UTC)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def _time(value: Any) -> datetime:
    if isinstance(value, timedelta):
        return to_millisecond(EPOCH + value)
    if isinstance(value, str):
        value = time.fromisoformat(value)
    if isinstance(value, int):
        return EPOCH + timedelta(milliseconds=value)
    return to_millisecond(
        EPOCH.replace(
            hour=value.hour, minute=value.minute, second=value.second, microsecond=value.microsecond
        )
    )
