"""Java's rules for numbers: how a wide one becomes a narrow one, and what counts as a number in a text."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

from millstream.connect.data.schema import INTEGERS, Type
from millstream.serdes.java_text import to_float32

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FLOAT = re.compile(r"([+-]?)(NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII)


def narrow(number: int, kind: Type) -> int:
    """The lowest bits, as a cast between Java's integers keeps them."""
    bits = INTEGERS[kind]
    low = number & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def to_integer(number: float | Decimal, kind: Type) -> int:
    """`byteValue()` and its neighbours. A floating-point number stops at the ends of int or long first."""
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        bits = 64 if kind is Type.INT64 else 32
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return narrow(high if number >= high else low if number <= low else int(number), kind)
    return narrow(int(number), kind)


def to_float(number: float | Decimal, kind: Type) -> float:
    try:
        value = float(number)
    except OverflowError:
        value = math.inf if number > 0 else -math.inf
    return to_float32(value) if kind is Type.FLOAT32 else value


def parse_integer(text: str, kind: Type) -> int:
    """`Byte.parseByte` and its neighbours. ValueError where the text is no such number."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    number = int(text)
    if narrow(number, kind) != number:
        raise ValueError(text)
    return number


def parse_float(text: str, kind: Type) -> float:
    """`Double.parseDouble` and `Float.parseFloat`, without hexadecimal numbers."""
    found = _FLOAT.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    sign, digits = found.groups()
    value = math.inf if digits == "Infinity" else float(digits.rstrip("fFdD") if digits != "NaN" else "nan")
    value = -value if sign == "-" else value
    return to_float32(value) if kind is Type.FLOAT32 else value


def parse_decimal(text: str) -> Decimal:
    """`new BigDecimal(text)`."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
