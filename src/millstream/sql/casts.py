"""CAST, and values as text.

`cast(source, target)` returns the function that converts a value, made once when a statement is compiled; it
raises `SqlError` where there is no such cast. Text is Java's: doubles as `1.0E7`, booleans in lower case,
lists as `[1, 2]`, structs as `Struct{A=1,B=2}`.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from millstream.serdes.java_text import double_text
from millstream.sql import times
from millstream.sql.arithmetic import wrap32, wrap64
from millstream.sql.errors import EvaluationError, SqlError
from millstream.sql.types import ArrayType, Base, DecimalType, MapType, SqlType, StructType

Cast = Callable[[Any], Any]

_WIDE = Context(prec=2000, rounding=ROUND_HALF_UP)
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?)[dDfF]?", re.ASCII)
_HEX_DOUBLE = re.compile(r"[+-]?0[xX][\da-fA-F]*\.?[\da-fA-F]*[pP][+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def decimal_text(value: Decimal) -> str:
    """All digits, never an exponent."""
    return f"{value:f}"


def parse_boolean(text: str) -> bool:
    """Any beginning of `true` or `yes` is true, in either case; all else is false."""
    return text != "" and ("true".startswith(text.lower()) or "yes".startswith(text.lower()))


def parse_boolean_exact(text: str) -> bool | None:
    """Like `parse_boolean`, but None for what is a beginning of neither `true`, `yes`, `false` nor `no`."""
    lower = text.lower()
    if not lower:
        return None
    if "true".startswith(lower) or "yes".startswith(lower):
        return True
    return False if "false".startswith(lower) or "no".startswith(lower) else None


def _parse_integer(text: str, low: int, high: int) -> int:
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        value = int(stripped)
        if low <= value <= high:
            return value
    raise EvaluationError(f'For input string: "{stripped}"')


def parse_int(text: str) -> int:
    return _parse_integer(text, -(2**31), 2**31 - 1)


def parse_bigint(text: str) -> int:
    return _parse_integer(text, -(2**63), 2**63 - 1)


def parse_double(text: str) -> float:
    stripped = text.strip()
    if _DOUBLE.fullmatch(stripped):
        value = float(stripped.rstrip("dDfF"))
    elif _HEX_DOUBLE.fullmatch(stripped):
        value = float.fromhex(stripped)
    else:
        raise EvaluationError(f'For input string: "{stripped}"')
    if math.isinf(value):
        raise EvaluationError(f"Invalid double value: {stripped}")
    return value


def parse_decimal(text: str) -> Decimal:
    """A decimal number of any size, with as many digits after the point as are written."""
    stripped = text.strip()
    if not _DECIMAL.fullmatch(stripped):
        raise EvaluationError(f"Character array contains invalid digits: {stripped}")
    return Decimal(stripped)


def parse_base64(text: str) -> bytes:
    """With or without padding, no other characters."""
    stripped = text.strip()
    try:
        return base64.b64decode(stripped + "=" * (-len(stripped) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError(f"not base64: {error}") from None


def double_to_integer(value: float, low: int, high: int) -> int:
    """Towards zero, and to the nearest integer there is; NaN is 0."""
    if value != value:
        return 0
    return low if value <= low else high if value >= high else int(value)


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """Rounded half up to the scale; raises if there are too many digits before the point."""
    limit = precision - scale
    if value and value.adjusted() >= limit:
        raise EvaluationError(
            f"Numeric field overflow: A field with precision {precision} and scale {scale} must round to an "
            f"absolute value less than 10^{limit}. Got {value:f}"
        )
    return value.quantize(Decimal(1).scaleb(-scale), context=_WIDE)


def fit_decimal_exactly(value: Decimal, precision: int, scale: int) -> Decimal:
    """Like `fit_decimal`, but raises if digits would be lost: for literals and INSERT VALUES."""
    fitted = fit_decimal(value, precision, scale)
    if fitted != value:
        _, digits, exponent = value.as_tuple()
        raise EvaluationError(
            f"Cannot fit decimal '{value:f}' into DECIMAL({precision}, {scale}) without rounding. "
            f"(Requires {len(digits)},{-int(exponent)})"
        )
    return fitted


def double_to_decimal(value: float, precision: int, scale: int) -> Decimal:
    if not math.isfinite(value):
        raise EvaluationError("Infinite or NaN")
    exact = Context(prec=precision, rounding=ROUND_HALF_UP).create_decimal(Decimal(value))
    return fit_decimal(exact, precision, scale)


def _to_decimal(source: SqlType, target: DecimalType) -> Cast:
    precision, scale = target.precision, target.scale
    exponent = Decimal(1).scaleb(-scale)
    whole = precision - scale
    quantize = _WIDE.quantize

    def from_decimal(value: Decimal) -> Decimal:
        # Zero has no first digit, so `adjusted` says nothing about it.
        if value.adjusted() >= whole and value:
            return fit_decimal(value, precision, scale)
        return quantize(value, exponent)

    if source.base is Base.DECIMAL:
        return from_decimal
    if source.base in (Base.INTEGER, Base.BIGINT):
        return lambda value: from_decimal(Decimal(value))
    if source.base is Base.DOUBLE:
        return lambda value: double_to_decimal(value, precision, scale)
    return lambda value: from_decimal(parse_decimal(value))


def _floating(value: Decimal) -> float:
    return float(value)


def _lower(value: bool) -> str:
    return "true" if value else "false"


_CASTS: dict[tuple[Base, Base], Cast] = {
    (Base.BOOLEAN, Base.STRING): _lower,
    (Base.INTEGER, Base.BIGINT): int,
    (Base.INTEGER, Base.DOUBLE): float,
    (Base.INTEGER, Base.STRING): str,
    (Base.BIGINT, Base.INTEGER): wrap32,
    (Base.BIGINT, Base.DOUBLE): float,
    (Base.BIGINT, Base.STRING): str,
    (Base.DECIMAL, Base.INTEGER): lambda value: wrap32(int(value)),
    (Base.DECIMAL, Base.BIGINT): lambda value: wrap64(int(value)),
    (Base.DECIMAL, Base.DOUBLE): _floating,
    (Base.DECIMAL, Base.STRING): decimal_text,
    (Base.DOUBLE, Base.INTEGER): lambda value: double_to_integer(value, -(2**31), 2**31 - 1),
    (Base.DOUBLE, Base.BIGINT): lambda value: double_to_integer(value, -(2**63), 2**63 - 1),
    (Base.DOUBLE, Base.STRING): double_text,
    (Base.STRING, Base.BOOLEAN): lambda value: parse_boolean(value.strip()),
    (Base.STRING, Base.INTEGER): parse_int,
    (Base.STRING, Base.BIGINT): parse_bigint,
    (Base.STRING, Base.DOUBLE): parse_double,
    (Base.STRING, Base.TIMESTAMP): lambda value: times.parse_timestamp(value.strip()),
    (Base.STRING, Base.TIME): lambda value: times.parse_time(value.strip()),
    (Base.STRING, Base.DATE): lambda value: times.parse_date(value.strip()),
    (Base.STRING, Base.BYTES): parse_base64,
    (Base.TIMESTAMP, Base.STRING): times.format_timestamp,
    (Base.TIMESTAMP, Base.TIME): lambda value: value % times.MILLIS_OF_DAY,
    (Base.TIMESTAMP, Base.DATE): lambda value: value // times.MILLIS_OF_DAY,
    (Base.DATE, Base.TIMESTAMP): lambda value: value * times.MILLIS_OF_DAY,
    (Base.DATE, Base.STRING): times.format_date,
    (Base.TIME, Base.STRING): times.format_time,
}


def cast(source: SqlType | None, target: SqlType) -> Cast:
    """The function for values that are not None. `source` is None for the literal NULL."""
    if source is None or source == target:
        return lambda value: value
    if isinstance(target, DecimalType) and (source.base.is_number or source.base is Base.STRING):
        return _to_decimal(source, target)
    simple = _CASTS.get((source.base, target.base))
    if simple is not None:
        return simple
    if target.base is Base.STRING and isinstance(source, ArrayType | MapType | StructType):
        return java_text(source)
    try:
        if isinstance(source, ArrayType) and isinstance(target, ArrayType):
            item = null_safe(cast(source.item, target.item))
            return lambda value: [item(each) for each in value]
        if isinstance(source, MapType) and isinstance(target, MapType):
            key, element = (
                null_safe(cast(source.key, target.key)),
                null_safe(cast(source.value, target.value)),
            )
            return lambda value: {key(name): element(each) for name, each in value.items()}
        if isinstance(source, StructType) and isinstance(target, StructType):
            return _cast_struct(source, target)
    except SqlError:
        pass
    raise SqlError(f"Cast of {source} to {target} is not supported")


def _cast_struct(source: StructType, target: StructType) -> Cast:
    fields: list[tuple[str, Cast]] = []
    for name, wanted in target.fields:
        own = source.field(name)
        fields.append((name, (lambda _: None) if own is None else null_safe(cast(own, wanted))))
    return lambda value: {name: convert(value.get(name)) for name, convert in fields}


def null_safe(function: Cast) -> Cast:
    """The same function, with None for None."""
    return lambda value: None if value is None else function(value)


def java_text(type_: SqlType) -> Cast:
    """The function that prints a value as Java's toString does, inside lists as outside."""
    if isinstance(type_, ArrayType):
        item = _or_null(java_text(type_.item))
        return lambda value: f"[{', '.join(map(item, value))}]"
    if isinstance(type_, MapType):
        key, element = _or_null(java_text(type_.key)), _or_null(java_text(type_.value))
        return lambda value: (
            "{" + ", ".join(f"{key(name)}={element(each)}" for name, each in value.items()) + "}"
        )
    if isinstance(type_, StructType):
        fields = [(name, java_text(field)) for name, field in type_.fields]
        return lambda value: (
            "Struct{"
            + ",".join(f"{name}={show(value[name])}" for name, show in fields if value.get(name) is not None)
            + "}"
        )
    return _TEXTS[type_.base]


def _or_null(show: Cast) -> Callable[[Any], str]:
    return lambda value: "null" if value is None else show(value)


def _sql_time(millis: int) -> str:
    seconds = millis // 1000
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _sql_timestamp(millis: int) -> str:
    text = times.format_timestamp(millis).replace("T", " ")
    return text.rstrip("0") if not text.endswith(".000") else text[:-2]


_TEXTS: dict[Base, Cast] = {
    Base.BOOLEAN: _lower,
    Base.INTEGER: str,
    Base.BIGINT: str,
    Base.DOUBLE: double_text,
    Base.DECIMAL: str,
    Base.STRING: str,
    Base.BYTES: lambda value: f"java.nio.HeapByteBuffer[pos=0 lim={len(value)} cap={len(value)}]",
    Base.DATE: times.format_date,
    Base.TIME: _sql_time,
    Base.TIMESTAMP: _sql_timestamp,
}
