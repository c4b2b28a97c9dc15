"""Conversions that several formats share: text and numbers into SQL values, as Java's own parsers do it."""

from __future__ import annotations

import base64
import binascii
import re
from decimal import Decimal, Inexact, InvalidOperation, localcontext
from typing import Any

from millstream.serdes.java_text import double_text
from millstream.sql.types import DecimalType

_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_DOUBLE = re.compile(
    r"\s*[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)\s*\Z", re.ASCII
)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
DAY = 86_400_000


class DoesNotFit(ValueError):
    """A value in a record is not one of its column's type; the record is left out."""


def wrapped_int(value: int) -> int:
    """The low 32 bits, as Java narrows."""
    return (value + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000


def wrapped_long(value: int) -> int:
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def parse_integer(text: str, bits: int, name: str) -> int:
    if _INTEGER.match(text):
        value = int(text)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    raise DoesNotFit(f"Can't coerce string to type. targetType: {name}")


def parse_double(text: str) -> float:
    if not _DOUBLE.match(text):
        raise DoesNotFit("Can't coerce string to type. targetType: DOUBLE")
    stripped = text.strip()
    if stripped[-1] in "fFdD":
        stripped = stripped[:-1]
    return float(stripped)


def parse_decimal(text: str) -> Decimal:
    if not _DECIMAL.match(text):
        raise DoesNotFit(f"not a number: {text}")
    return Decimal(text)


def plain_text(value: Decimal) -> str:
    """Digits without an exponent."""
    return format(value, "f")


def fit_decimal(value: Decimal, type_: DecimalType) -> Decimal:
    """The same number with the type's scale; never rounded."""
    with localcontext() as context:
        context.prec, context.traps[Inexact] = 400, True
        try:
            fit = value.quantize(Decimal(1).scaleb(-type_.scale))
        except (Inexact, InvalidOperation):
            _, digits, exponent = value.as_tuple()
            scale = -int(exponent)
            raise DoesNotFit(
                f"Cannot fit decimal '{plain_text(value)}' into DECIMAL({type_.precision}, {type_.scale}) "
                "without "
                f"rounding. (Requires {max(len(digits), scale)},{scale})"
            ) from None
    if fit and fit.adjusted() >= type_.whole:
        raise DoesNotFit(
            f"Numeric field overflow: A field with precision {type_.precision} and scale {type_.scale} must "
            "round to "
            f"an absolute value less than 10^{type_.whole}. Got {plain_text(value)}"
        )
    return fit


def parse_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DoesNotFit(f"Value is not a valid Base64 encoded string: {text}") from None


def base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def checked_time(value: int) -> int:
    if not 0 <= value <= DAY:
        raise DoesNotFit(f"Time values must use number of milliseconds greater than 0 and less than {DAY}.")
    return value


def finite(value: Any) -> Any:
    """A double for JSON, which has no NaN."""
    return value if value is None or value - value == 0 else double_text(value)
