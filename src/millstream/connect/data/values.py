"""Conversions between types, Kafka Connect's `Values`: a header "12" as a number, a struct as text."""

from __future__ import annotations

import base64
from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name, number_text, to_string
from millstream.connect.data.logical import DATE, DECIMAL, MILLIS_PER_DAY, TIME, TIMESTAMP
from millstream.connect.data.numbers import narrow, parse_decimal, to_float, to_integer
from millstream.connect.data.schema import OPTIONAL, REQUIRED, Schema, Type, array_schema, map_schema
from millstream.connect.data.simple_date_format import SimpleDateFormat
from millstream.connect.data.struct import Struct, type_of
from millstream.connect.errors import DataError
from millstream.serdes.java_text import double_text

ISO_DATE = SimpleDateFormat("yyyy-MM-dd")
ISO_TIME = SimpleDateFormat("HH:mm:ss.SSS'Z'")
ISO_TIMESTAMP = SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")

_NULL_REFUSED = "Unable to convert a null value to a schema that requires a value"


def moment_text(moment: datetime) -> str:
    """A time for moments of the first day of 1970, a date for midnights, else both."""
    millis = logical.to_millis(moment)
    if millis < MILLIS_PER_DAY:
        return ISO_TIME.format(moment)
    return (ISO_TIMESTAMP if millis % MILLIS_PER_DAY else ISO_DATE).format(moment)


# --- to text ------------------------------------------------------------------------------------------------


def convert_to_string(value: Any, schema: Schema | None = None) -> str | None:
    """The text that `parse_string` reads back: JSON-like, with base64 for bytes."""
    return None if value is None else _text(value, schema, embedded=False)


def _text(value: Any, schema: Schema | None, *, embedded: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return number_text(value, schema)
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
        return f'"{value}"' if embedded else str(value)
    if isinstance(value, str):
        return f'"{_escaped(value)}"' if embedded else value
    if isinstance(value, list):
        element = schema.value_schema if schema is not None and schema.type is Type.ARRAY else None
        return "[" + ",".join(_text(one, element, embedded=True) for one in value) + "]"
    if isinstance(value, dict):
        is_map = schema is not None and schema.type is Type.MAP
        keys, entries = (schema.key_schema, schema.value_schema) if schema and is_map else (None, None)
        named = (
            f"{_text(key, keys, embedded=True)}:{_text(one, entries, embedded=True)}"
            for key, one in value.items()
        )
        return "{" + ",".join(named) + "}"
    if isinstance(value, Struct):
        named = (
            f'"{_escaped(field.name)}":{_text(value.read(field, True), field.schema, embedded=True)}'
            for field in value.schema.fields
        )
        return "{" + ",".join(named) + "}"
    if isinstance(value, datetime):
        return moment_text(value)
    raise DataError(f"Failed to serialize unexpected value type {class_name(value)}: {to_string(value)}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# --- to numbers ---------------------------------------------------------------------------------------------


def as_long(value: Any, schema: Schema | None = None) -> int:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return to_integer(value, Type.INT64)
    if isinstance(value, str):
        try:
            return narrow(int(parse_decimal(value)), Type.INT64)
        except ValueError:
            pass
    what = f"{to_string(value, schema)} (class {class_name(value, schema)})"
    if schema is None:
        raise DataError(f"Unable to convert {what} to a number")
    if isinstance(value, datetime):
        if schema.name == DATE:
            return logical.date_to_days(value)
        if schema.name == TIME:
            return logical.time_to_millis(value)
        if schema.name == TIMESTAMP:
            return logical.to_millis(value)
    raise DataError(f"Unable to convert {what} to {schema}")


def as_double(value: Any, schema: Schema | None = None) -> float:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return to_float(value, Type.FLOAT64)
    if isinstance(value, str):
        try:
            return to_float(parse_decimal(value), Type.FLOAT64)
        except ValueError:
            pass
    return float(as_long(value, schema))


def convert_to_boolean(value: Any, schema: Schema | None = None) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        parsed = _parsed(value)
        if isinstance(parsed, bool):
            return parsed
    return as_long(value, schema) != 0


def convert_to_integer(kind: Type, value: Any, schema: Schema | None = None) -> int | None:
    return None if value is None else narrow(as_long(value, schema), kind)


def convert_to_float(kind: Type, value: Any, schema: Schema | None = None) -> float | None:
    return None if value is None else to_float(as_double(value, schema), kind)


def convert_to_decimal(value: Any, schema: Schema) -> Decimal:
    if isinstance(value, bytes):
        return logical.decimal_from_bytes(schema, value)
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(double_text(float(value)))
    if isinstance(value, str):
        try:
            return parse_decimal(value)
        except ValueError:
            raise DataError(f"{value} is not a decimal number") from None
    raise DataError(f"Unable to convert {to_string(value)} (class {class_name(value)}) to {schema}")


# --- to moments ---------------------------------------------------------------------------------------------


def convert_to_moment(name: str, value: Any, schema: Schema | None = None) -> datetime:
    """To the Date, Time or Timestamp that `name` says."""
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, datetime) and (schema is None or schema.name == name):
        return value
    if isinstance(value, datetime) and schema is not None and schema.name in (DATE, TIME, TIMESTAMP):
        millis = logical.to_millis(value)
        if name == DATE and schema.name == TIMESTAMP:
            return logical.days_to_date(_towards_zero(millis, MILLIS_PER_DAY))
        if name == TIME and schema.name == TIMESTAMP:
            return logical.millis_to_time(millis % MILLIS_PER_DAY)
        if name == TIMESTAMP:
            return value
    number = as_long(value, schema)
    if name == DATE:
        return logical.days_to_date(narrow(number, Type.INT32))
    if name == TIME:
        return logical.millis_to_time(narrow(number, Type.INT32))
    return logical.from_millis(number)


def _towards_zero(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)


# --- to containers, and to any schema -----------------------------------------------------------------------


def convert_to_list(value: Any) -> list[Any]:
    return _container(value, list, "Schema{ARRAY}")  # type: ignore[no-any-return]


def convert_to_map(value: Any) -> dict[Any, Any]:
    return _container(value, dict, "Schema{MAP}")  # type: ignore[no-any-return]


def convert_to_struct(value: Any) -> Struct:
    if value is None:
        raise DataError(_NULL_REFUSED)
    if not isinstance(value, Struct):
        raise DataError(
            f"Unable to convert {to_string(value)} (class {class_name(value)}) to Schema{{STRUCT}}"
        )
    return value


def _container(value: Any, wanted: type, schema: str) -> Any:
    if value is None:
        raise DataError(_NULL_REFUSED)
    found = _parsed(value) if isinstance(value, str) else value
    if not isinstance(found, wanted):
        raise DataError(f"Unable to convert {to_string(found)} (class {class_name(found)}) to {schema}")
    return found


def convert_to(wanted: Schema, value: Any, schema: Schema | None = None) -> Any:
    if value is None:
        if wanted.optional:
            return None
        raise DataError(_NULL_REFUSED)
    kind = wanted.type
    if kind is Type.BYTES:
        return (
            convert_to_decimal(value, wanted) if wanted.name == DECIMAL else _convert_to_bytes(value, wanted)
        )
    if kind is Type.STRING:
        return convert_to_string(value, schema)
    if kind is Type.BOOLEAN:
        return convert_to_boolean(value, schema)
    if kind in (Type.INT32, Type.INT64) and wanted.name in (DATE, TIME, TIMESTAMP):
        assert wanted.name is not None
        return convert_to_moment(wanted.name, value, schema)
    if kind in (Type.INT8, Type.INT16, Type.INT32, Type.INT64):
        return convert_to_integer(kind, value, schema)
    if kind in (Type.FLOAT32, Type.FLOAT64):
        return convert_to_float(kind, value, schema)
    if kind is Type.ARRAY:
        return convert_to_list(value)
    return convert_to_map(value) if kind is Type.MAP else convert_to_struct(value)


def _convert_to_bytes(value: Any, wanted: Schema) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        return logical.decimal_to_bytes(wanted, value)
    raise DataError(f"Unable to convert {to_string(value)} (class {class_name(value)}) to {wanted}")


def _parsed(text: str) -> Any:
    from millstream.connect.data.value_parser import parse_string  # it converts what lists and maps contain

    return parse_string(text).value


# --- schemas of values that have none -----------------------------------------------------------------------


def infer_schema(value: Any) -> Schema | None:
    """The schema of a value; None for an empty or mixed container, and for what has no type."""
    if isinstance(value, Struct):
        return value.schema
    if isinstance(value, list):
        element = _common(value) if value else None
        return array_schema(element) if element is not None else None
    if isinstance(value, dict):
        key, entry = (_common(list(value)), _common(list(value.values()))) if value else (None, None)
        return map_schema(key, entry) if key is not None and entry is not None else None
    kind = type_of(value)
    return REQUIRED[kind] if kind is not None else None


def _common(values: list[Any]) -> Schema | None:
    kinds = {
        None if (schema := infer_schema(value)) is None else schema.type
        for value in values
        if value is not None
    }
    if len(kinds) != 1 or None in kinds:
        return None
    kind = kinds.pop()
    assert kind is not None
    optional = any(value is None for value in values)
    if kind in REQUIRED:
        return OPTIONAL[kind] if optional else REQUIRED[kind]
    return Schema(kind, optional=optional)
