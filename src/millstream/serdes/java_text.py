"""Numbers as Java prints them, for everything whose output is compared with that of a program in Java."""

from __future__ import annotations

import math
import struct
from decimal import Decimal


def double_text(value: float) -> str:
    """`Double.toString`: 1.0, 1.0E7, 1.0E-4, NaN, Infinity; plain between 0.001 and 10,000,000."""
    text = repr(value)
    if 1e-3 <= abs(value) < 1e7:
        return text
    if math.isfinite(value) and len(Decimal(text).normalize().as_tuple().digits) == 1:
        # Java prints two digits at least, and one may be farther from the value than two are: 4.9E-324.
        text = f"{value:.1e}"
    return _printed(value, text)


def float_text(value: float) -> str:
    """`Float.toString`: as few digits as tell a 32-bit number from its neighbours, but two at least."""
    if math.isfinite(value):
        for digits in range(2, 10):
            text = f"{value:.{digits}g}"
            if to_float32(float(text)) == to_float32(value):
                return _printed(value, text)
    return _printed(value, repr(value))


def to_float32(value: float) -> float:
    """The nearest 32-bit number; infinity above the largest."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def _printed(value: float, shortest: str) -> str:
    """`shortest` has the digits, in any notation."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    minus = "-" if sign else ""
    point = len(text) + exponent  # how many digits stand before the point
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        text = text.ljust(point, "0")
        return f"{minus}{text[:point]}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
