"""PostgreSQL's texts of values as Debezium's schemas and values."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from millstream.connect.connectors.jdbc.columns import Column
from millstream.connect.data.logical import (
    DATE_SCHEMA,
    EPOCH,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    decimal_schema,
    decimal_to_bytes,
)
from millstream.connect.data.schema import REQUIRED, Schema, Type, struct_schema
from millstream.connect.data.struct import Struct

Convert = Callable[[str], Any]
_MICROSECOND = timedelta(microseconds=1)
_VARIABLE = struct_schema(
    [("scale", REQUIRED[Type.INT32]), ("value", REQUIRED[Type.BYTES])],
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
)
_NAMED = {
    "uuid": "io.debezium.data.Uuid",
    "json": "io.debezium.data.Json",
    "jsonb": "io.debezium.data.Json",
    "xml": "io.debezium.data.Xml",
    "timestamptz": "io.debezium.time.ZonedTimestamp",
    "timetz": "io.debezium.time.ZonedTime",
}
_INTEGERS = {"int2": Type.INT16, "int4": Type.INT32, "int8": Type.INT64, "oid": Type.INT64}
_FLOATS = {"float4": Type.FLOAT32, "float8": Type.FLOAT64}


@dataclass(frozen=True, slots=True)
class Modes:
    """`decimals`: precise, double or string. `times`: adaptive, adaptive_time_microseconds or connect.
    `binary`: bytes, base64 or hex."""

    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"


def field_type(column: Column, modes: Modes, labels: tuple[str, ...] = ()) -> tuple[Schema, Convert]:
    """The schema of a column, not optional yet, and what makes its values. `labels` are those of an enum."""
    native = column.native
    if native == "bool":
        return REQUIRED[Type.BOOLEAN], lambda text: text == "t"
    if native in _INTEGERS:
        return REQUIRED[_INTEGERS[native]], int
    if native in _FLOATS:
        return REQUIRED[_FLOATS[native]], float
    if native in ("numeric", "money"):
        return _decimal(column, modes)
    if native == "bytea":
        return _binary(modes)
    if native in ("date", "time", "timestamp"):
        return _time(column, modes)
    if native == "timestamptz":
        return Schema(Type.STRING, name=_NAMED[native], version=1), _zoned
    if native == "timetz":
        return Schema(Type.STRING, name=_NAMED[native], version=1), _zoned_time
    if labels:
        allowed = {"allowed": ",".join(labels)}
        return Schema(Type.STRING, name="io.debezium.data.Enum", version=1, parameters=allowed), str
    if native in _NAMED:
        return Schema(Type.STRING, name=_NAMED[native], version=1), str
    return REQUIRED[Type.STRING], str


def _decimal(column: Column, modes: Modes) -> tuple[Schema, Convert]:
    if modes.decimals == "string":
        return REQUIRED[Type.STRING], _plain_number
    if modes.decimals == "double":
        return REQUIRED[Type.FLOAT64], lambda text: float(_plain_number(text))
    scale = 2 if column.native == "money" else column.scale
    if scale is None:
        schema = _VARIABLE.replace(optional=column.optional)
        return schema, lambda text: _variable(schema, text)
    precision = {} if column.precision is None else {"connect.decimal.precision": str(column.precision)}
    unit = Decimal((0, (1,), -scale))
    schema = decimal_schema(scale, parameters={"scale": str(scale), **precision})
    return schema, lambda text: Decimal(_plain_number(text)).quantize(unit)


def _plain_number(text: str) -> str:
    return text.replace("$", "").replace(",", "")


def _variable(schema: Schema, text: str) -> Struct:
    number = Decimal(text)
    scale = max(0, -int(number.as_tuple().exponent))
    return Struct(schema, [scale, decimal_to_bytes(decimal_schema(scale), number)])


def _binary(modes: Modes) -> tuple[Schema, Convert]:
    def raw(text: str) -> bytes:
        return bytes.fromhex(text.removeprefix("\\x"))

    if modes.binary == "base64":
        return REQUIRED[Type.STRING], lambda text: base64.b64encode(raw(text)).decode()
    if modes.binary == "hex":
        return REQUIRED[Type.STRING], lambda text: raw(text).hex()
    return REQUIRED[Type.BYTES], raw


def _time(column: Column, modes: Modes) -> tuple[Schema, Convert]:
    if column.native == "date":
        if modes.times == "connect":
            return DATE_SCHEMA, lambda text: _midnight(text)
        schema = Schema(Type.INT32, name="io.debezium.time.Date", version=1)
        return schema, lambda text: (date.fromisoformat(text) - EPOCH.date()).days
    if column.native == "time":
        if modes.times == "connect":
            return TIME_SCHEMA, lambda text: EPOCH + timedelta(milliseconds=_micros_of_day(text) // 1000)
        schema = Schema(Type.INT64, name="io.debezium.time.MicroTime", version=1)
        return schema, _micros_of_day
    if modes.times == "connect":
        return TIMESTAMP_SCHEMA, lambda text: EPOCH + timedelta(milliseconds=_micros(text) // 1000)
    if column.resolution < 1000:
        return Schema(Type.INT64, name="io.debezium.time.MicroTimestamp", version=1), _micros
    return Schema(
        Type.INT64, name="io.debezium.time.Timestamp", version=1
    ), lambda text: _micros(text) // 1000


def _midnight(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // _MICROSECOND


def _micros_of_day(text: str) -> int:
    if text.startswith("24:"):
        return 86_400_000_000
    found = time.fromisoformat(text)
    return ((found.hour * 60 + found.minute) * 60 + found.second) * 1_000_000 + found.microsecond


def _zoned(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    fraction = f".{moment.microsecond:06d}" if moment.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _zoned_time(text: str) -> str:
    found = datetime.fromisoformat(f"1970-01-02T{text}").astimezone(UTC)
    fraction = f".{found.microsecond:06d}" if found.microsecond else ""
    return f"{found:%H:%M:%S}{fraction}Z"


def empty(schema: Schema) -> Any:
    """For a column that may not be null and whose value the log does not have: Debezium's stand-ins."""
    if schema.type is Type.STRUCT:
        return Struct(_VARIABLE, [0, b"\x00"])
    if schema.name is not None and schema.type is Type.BYTES:
        return Decimal(0).quantize(Decimal((0, (1,), -int((schema.parameters or {})["scale"]))))
    if schema in (DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA):
        return EPOCH
    return {Type.STRING: "", Type.BYTES: b"", Type.BOOLEAN: False, Type.FLOAT32: 0.0, Type.FLOAT64: 0.0}.get(
        schema.type, 0
    )
