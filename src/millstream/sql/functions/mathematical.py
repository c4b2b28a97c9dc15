"""Mathematical functions. Where Java gives NaN or an infinity, so do these: Python's exceptions are turned
back.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_DOWN,
    ROUND_HALF_UP,
    Context,
    Decimal,
    Inexact,
)
from fractions import Fraction
from typing import Any

from millstream.sql.arithmetic import wrap32, wrap64
from millstream.sql.casts import double_to_integer
from millstream.sql.errors import SqlError
from millstream.sql.functions.table import Function, Overload, overload, scalar
from millstream.sql.types import Argument, DecimalType, SqlType, decimal_type, wider_decimal

_MATH = "MATHEMATICAL"
_WIDE = Context(prec=2000)


def _total(function: Callable[..., float]) -> Callable[..., float]:
    """`function` with Java's answers outside its domain."""

    def computed(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return computed


def _log(value: float) -> float:
    if value == 0:
        return -math.inf
    return math.log(value) if value > 0 else math.nan


def _log_to_base(base: float, value: float) -> float:
    if base <= 0 or base == 1:
        return math.nan
    return _log(value) / math.log(base)


def _power(base: float, exponent: float) -> float:
    base, exponent = float(base), float(exponent)
    if abs(base) == 1 and math.isinf(exponent):
        return math.nan
    if base == 1 and exponent != exponent:
        return math.nan
    odd = exponent == math.trunc(exponent) and exponent % 2 == 1 if math.isfinite(exponent) else False
    try:
        return math.pow(base, exponent)
    except ValueError:
        if base == 0:
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf


def _cot(value: float) -> float:
    tangent = math.tan(value)
    return 1 / tangent if tangent else math.copysign(math.inf, tangent)


def _cube_root(value: float) -> float:
    """The nearest double: some C libraries miss it, so that the root of 27 is not 3."""
    root = math.cbrt(value)
    if not math.isfinite(root) or not root:
        return root
    exact = Fraction(value)
    near = (root, math.nextafter(root, -math.inf), math.nextafter(root, math.inf))
    return min(near, key=lambda each: abs(Fraction(each) ** 3 - exact))


def _sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _ceil_double(value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


def _floor_double(value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


def _keep_scale(rounding: str) -> Callable[[Decimal], Decimal]:
    def rounded(value: Decimal) -> Decimal:
        whole = value.quantize(Decimal(1), rounding=rounding, context=_WIDE)
        return whole.quantize(value, context=_WIDE)

    return rounded


def _round_double(value: float) -> int:
    """Halves go towards positive infinity."""
    if not math.isfinite(value):
        return double_to_integer(value, -(2**63), 2**63 - 1)
    floor = math.floor(value)
    return double_to_integer(floor + (value - floor >= 0.5), -(2**63), 2**63 - 1)


def _half_up(value: Decimal) -> str:
    return ROUND_HALF_UP if value > 0 else ROUND_HALF_DOWN


def _at_places(value: Decimal, places: int, rounding: str) -> Decimal:
    """To `places` digits after the point; a negative number counts before it."""
    return value.quantize(Decimal(1).scaleb(-places), rounding=rounding, context=_WIDE)


def _round_double_to(value: float, places: int) -> float:
    decimal = Decimal(repr(float(value)))
    return float(_at_places(decimal, places, _half_up(decimal)))


def _trunc_double_to(value: float, places: int) -> float:
    return float(_at_places(Decimal(repr(float(value))), places, ROUND_DOWN))


_EXACT = Context(prec=2000, traps=[Inexact])


def _round_decimal_to(value: Decimal, places: int) -> Decimal:
    return _at_places(value, places, _half_up(value)).quantize(value, context=_EXACT)


def _trunc_decimal_to(value: Decimal, places: int) -> Decimal:
    return _at_places(value, places, ROUND_DOWN).quantize(value, context=_EXACT)


def _whole_decimal(arguments: Sequence[Argument]) -> SqlType:
    """ROUND and TRUNC of a decimal drop its scale."""
    type_ = arguments[0]
    if not isinstance(type_, DecimalType):
        raise SqlError("a DECIMAL is expected")
    return decimal_type(max(type_.whole, 1), 0)


def same_type(arguments: Sequence[Argument]) -> SqlType:
    """The result has the type of the first argument."""
    type_ = arguments[0]
    if not isinstance(type_, SqlType):
        raise SqlError("the type of NULL is not known")
    return type_


def _widest_decimal(arguments: Sequence[Argument]) -> SqlType:
    found: SqlType | None = None
    for argument in arguments:
        if isinstance(argument, SqlType):
            found = argument if found is None else wider_decimal(found, argument)
    if found is None:
        raise SqlError("the type of NULL is not known")
    return wider_decimal(found, found)


def _best(choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def chosen(*values: Any) -> Any:
        there = [value for value in values if value is not None]
        return choose(there) if there else None

    return chosen


def _best_decimal(choose: Callable[[list[Any]], Any]) -> Any:
    """In the scale of the result, so that it has its type."""

    def factory(arguments: Sequence[Argument], result: SqlType) -> Callable[..., Any]:
        assert isinstance(result, DecimalType)
        exponent = Decimal(1).scaleb(-result.scale)
        best = _best(choose)

        def chosen(*values: Any) -> Any:
            found = best(*values)
            return None if found is None else found.quantize(exponent, context=_WIDE)

        return chosen

    return factory


def _doubles(function: Callable[..., Any], *names: str, result: str = "DOUBLE") -> tuple[Overload, ...]:
    """The same function for INT, BIGINT and DOUBLE arguments."""
    return tuple(
        overload(f"({', '.join(f'{type_} {name}' for name in names)}) -> {result}", function)
        for type_ in ("INT", "BIGINT", "DOUBLE")
    )


def _comparables(choose: Callable[[list[Any]], Any]) -> tuple[Overload, ...]:
    simple = ("INT", "BIGINT", "DOUBLE", "VARCHAR", "BYTES", "DATE", "TIME", "TIMESTAMP")
    return (
        *(
            overload(f"({name} val, {name}... vals) -> {name}", _best(choose), own_nulls=True)
            for name in simple
        ),
        overload(
            "(DECIMAL val, DECIMAL... vals)",
            factory=_best_decimal(choose),
            own_nulls=True,
            result=_widest_decimal,
        ),
    )


def _as_double(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: function(float(value))


ROWS: list[Function] = [
    scalar(
        "Abs",
        _MATH,
        "The absolute value.",
        overload("(INT val) -> INT", lambda value: wrap32(abs(value))),
        overload("(BIGINT val) -> BIGINT", lambda value: wrap64(abs(value))),
        overload("(DOUBLE val) -> DOUBLE", abs),
        overload("(DECIMAL val)", _WIDE.abs, result=same_type),
    ),
    scalar("acos", _MATH, "The arc cosine, in radians.", *_doubles(_total(math.acos), "value")),
    scalar("asin", _MATH, "The arc sine, in radians.", *_doubles(_total(math.asin), "value")),
    scalar("atan", _MATH, "The arc tangent, in radians.", *_doubles(math.atan, "value")),
    scalar(
        "atan2",
        _MATH,
        "The angle of the point (x, y), in radians: the arc tangent of y / x.",
        *_doubles(math.atan2, "y", "x"),
    ),
    scalar("cbrt", _MATH, "The cube root.", *_doubles(_cube_root, "value")),
    scalar(
        "Ceil",
        _MATH,
        "The smallest integer that is not less than the value, in the type of the value.",
        overload("(INT val) -> INT", lambda value: value),
        overload("(BIGINT val) -> BIGINT", lambda value: value),
        overload("(DOUBLE val) -> DOUBLE", _ceil_double),
        overload("(DECIMAL val)", _keep_scale(ROUND_CEILING), result=same_type),
    ),
    scalar("cos", _MATH, "The cosine of an angle in radians.", *_doubles(_total(math.cos), "value")),
    scalar("cosh", _MATH, "The hyperbolic cosine.", *_doubles(_total(math.cosh), "value")),
    scalar("cot", _MATH, "The cotangent of an angle in radians.", *_doubles(_total(_cot), "value")),
    scalar("degrees", _MATH, "Radians as degrees.", *_doubles(math.degrees, "value")),
    scalar("exp", _MATH, "e to the power of a value.", *_doubles(_total(math.exp), "exponent")),
    scalar(
        "Floor",
        _MATH,
        "The largest integer that is not greater than the value, in the type of the value.",
        overload("(INT val) -> INT", lambda value: value),
        overload("(BIGINT val) -> BIGINT", lambda value: value),
        overload("(DOUBLE val) -> DOUBLE", _floor_double),
        overload("(DECIMAL val)", _keep_scale(ROUND_FLOOR), result=same_type),
    ),
    scalar("greatest", _MATH, "The greatest of the values that are not null.", *_comparables(max)),
    scalar("least", _MATH, "The least of the values that are not null.", *_comparables(min)),
    scalar(
        "ln",
        _MATH,
        "The natural logarithm; -Infinity for 0, NaN below.",
        *_doubles(_as_double(_log), "value"),
    ),
    scalar(
        "log",
        _MATH,
        "The logarithm: natural with one argument, to a base with two.",
        *_doubles(_as_double(_log), "value"),
        *_doubles(lambda base, value: _log_to_base(float(base), float(value)), "base", "value"),
    ),
    scalar("pi", _MATH, "The number pi.", overload("() -> DOUBLE", lambda: math.pi)),
    scalar("power", _MATH, "A base raised to an exponent.", *_doubles(_power, "base", "exponent")),
    scalar("radians", _MATH, "Degrees as radians.", *_doubles(math.radians, "value")),
    scalar(
        "random",
        _MATH,
        "A random number, at least 0.0 and less than 1.0.",
        overload("() -> DOUBLE", random.random),
    ),
    scalar(
        "Round",
        _MATH,
        "The value rounded to a number of decimal places, halves towards positive infinity. Without that "
        "number the result is a BIGINT, or a decimal without decimal places.",
        overload("(BIGINT val) -> BIGINT", lambda value: value),
        overload("(INT val) -> BIGINT", lambda value: value),
        overload("(DOUBLE val) -> BIGINT", _round_double),
        overload("(DOUBLE val, INT decimalPlaces) -> DOUBLE", _round_double_to),
        overload("(DECIMAL val)", lambda value: _at_places(value, 0, _half_up(value)), result=_whole_decimal),
        overload("(DECIMAL val, INT decimalPlaces)", _round_decimal_to, result=same_type),
    ),
    scalar("sign", _MATH, "1, 0 or -1.", *_doubles(_sign, "value", result="INT")),
    scalar("sin", _MATH, "The sine of an angle in radians.", *_doubles(_total(math.sin), "value")),
    scalar("sinh", _MATH, "The hyperbolic sine.", *_doubles(_sinh, "value")),
    scalar("sqrt", _MATH, "The square root.", *_doubles(_total(math.sqrt), "value")),
    scalar("tan", _MATH, "The tangent of an angle in radians.", *_doubles(_total(math.tan), "value")),
    scalar("tanh", _MATH, "The hyperbolic tangent.", *_doubles(math.tanh, "value")),
    scalar(
        "trunc",
        _MATH,
        "The value cut off after a number of decimal places; without that number a BIGINT, or a decimal "
        "without decimal places.",
        overload("(BIGINT val) -> BIGINT", lambda value: value),
        overload("(INT val) -> BIGINT", lambda value: value),
        overload("(DOUBLE val) -> BIGINT", lambda value: double_to_integer(value, -(2**63), 2**63 - 1)),
        overload("(DOUBLE val, INT decimalPlaces) -> DOUBLE", _trunc_double_to),
        overload("(DECIMAL val)", lambda value: _at_places(value, 0, ROUND_DOWN), result=_whole_decimal),
        overload("(DECIMAL val, INT decimalPlaces)", _trunc_decimal_to, result=same_type),
    ),
]
