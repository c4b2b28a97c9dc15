"""How Java would name and print a value: error texts, and StringConverter's output."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.data.schema import Schema, Type
from millstream.serdes.java_text import double_text, float_text

_BY_SCHEMA = {
    Type.INT8: "java.lang.Byte",
    Type.INT16: "java.lang.Short",
    Type.INT32: "java.lang.Integer",
    Type.FLOAT32: "java.lang.Float",
}
_BY_CLASS: tuple[tuple[type, str], ...] = (
    (bool, "java.lang.Boolean"),
    (int, "java.lang.Long"),
    (float, "java.lang.Double"),
    (str, "java.lang.String"),
    (bytes, "[B"),
    (Decimal, "java.math.BigDecimal"),
    (datetime, "java.util.Date"),
    (list, "java.util.ArrayList"),
    (dict, "java.util.LinkedHashMap"),
)


def class_name(value: Any, schema: Schema | None = None) -> str:
    """The class that a value would have in Java. The schema tells the width of a number."""
    if value is None:
        return "null"
    if type(value) in (int, float) and schema is not None and schema.type in _BY_SCHEMA:
        return _BY_SCHEMA[schema.type]
    for python_class, name in _BY_CLASS:
        if isinstance(value, python_class):
            return name
    return f"org.apache.kafka.connect.data.{type(value).__name__}"


def decimal_text(value: Decimal) -> str:
    """`BigDecimal.toString`: plain, or scientific for very small numbers and negative scales."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)) or "0"
    minus = "-" if sign and text.strip("0") else ""
    scale = -exponent
    adjusted = len(text) - 1 - scale
    if scale == 0:
        return minus + text
    if scale > 0 and adjusted >= -6:
        padded = text.rjust(scale + 1, "0")
        return f"{minus}{padded[:-scale]}.{padded[-scale:]}"
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{minus}{mantissa}E{adjusted:+d}" if adjusted else f"{minus}{mantissa}"


def number_text(value: float | Decimal, schema: Schema | None = None) -> str:
    """`toString` of a number."""
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, float):
        return float_text(value) if schema is not None and schema.type is Type.FLOAT32 else double_text(value)
    return str(value)


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def to_string(value: Any, schema: Schema | None = None) -> str:
    """`toString` of any value, as StringConverter writes it. Bytes have no text in Java that means anything:
    ours is their base64."""
    if type(value) is str:
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return number_text(value, schema)
    if isinstance(value, datetime):
        day, month = _DAYS[value.weekday()], _MONTHS[value.month - 1]
        return f"{day} {month} {value.day:02d} {value:%H:%M:%S} UTC {value.year}"
    if isinstance(value, list):
        element = schema.value_schema if schema is not None and schema.type is Type.ARRAY else None
        return "[" + ", ".join(to_string(one, element) for one in value) + "]"
    if isinstance(value, dict):
        is_map = schema is not None and schema.type is Type.MAP
        key, entry = (schema.key_schema, schema.value_schema) if schema and is_map else (None, None)
        return (
            "{"
            + ", ".join(f"{to_string(name, key)}={to_string(item, entry)}" for name, item in value.items())
            + "}"
        )
    from millstream.connect.data.struct import Struct  # it prints itself by this function

    if isinstance(value, Struct):
        named = [
            f"{field.name}={to_string(one, field.schema)}"
            for field, one in zip(value.schema.fields, value.values, strict=True)
            if one is not None
        ]
        return "Struct{" + ",".join(named) + "}"
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    return str(value)
