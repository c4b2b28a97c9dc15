"""Arithmetic as Java does it: integers wrap around and divide towards zero, doubles never fail, decimals are
exact.

`result_type` is the type of `left op right`. Generated code writes `+`, `-` and `*` of integers itself, with
`wrap32` or `wrap64` around; the functions here are for what Python's operators do otherwise. Decimals raise
when a result would have to be rounded, as ksqlDB's do: 1/3 has no value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from functools import lru_cache

from millstream.sql.errors import EvaluationError, SqlError
from millstream.sql.types import STRING, Base, DecimalType, SqlType, as_decimal, decimal_type

OPERATORS = ("+", "-", "*", "/", "%")
# Enough for every product of two declared decimals; where a result has a type, its own precision counts.
EXACT = Context(prec=2000, traps=[InvalidOperation, DivisionByZero, Overflow, Inexact])


def result_type(operator: str, left: SqlType | None, right: SqlType | None) -> SqlType:
    """The type of an arithmetic expression; None is the literal NULL."""
    if left is None or right is None:
        one, other = ("null" if type_ is None else str(type_) for type_ in (left, right))
        raise SqlError(f"Arithmetic on types {one} and {other} are not supported.")
    if operator == "+" and left.base is Base.STRING and right.base is Base.STRING:
        return STRING
    if not (left.base.is_number and right.base.is_number):
        raise SqlError(f"Unsupported arithmetic types. {left.base} {right.base}")
    wider = right if left.base.casts_implicitly_to(right.base) else left
    if wider.base is not Base.DECIMAL:
        return wider
    return _decimal_result(operator, as_decimal(left), as_decimal(right))


def _decimal_result(operator: str, left: DecimalType, right: DecimalType) -> DecimalType:
    scale = max(left.scale, right.scale)
    if operator in "+-":
        return decimal_type(scale + max(left.whole, right.whole) + 1, scale)
    if operator == "*":
        return decimal_type(left.precision + right.precision + 1, left.scale + right.scale)
    if operator == "/":
        scale = max(6, left.scale + right.precision + 1)
        return decimal_type(left.whole + right.scale + scale, scale)
    return decimal_type(min(left.whole, right.whole) + scale, scale)


def wrap32(value: int) -> int:
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def wrap64(value: int) -> int:
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def integer_divide(left: int, right: int) -> int:
    """Towards zero. The one quotient that does not fit wraps around at the caller."""
    if right == 0:
        raise EvaluationError("/ by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def integer_modulus(left: int, right: int) -> int:
    """The sign is the left side's."""
    if right == 0:
        raise EvaluationError("/ by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def double_divide(left: float, right: float) -> float:
    try:
        return left / right
    except ZeroDivisionError:
        if left == 0 or left != left:
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)


def double_modulus(left: float, right: float) -> float:
    if right == 0 or math.isinf(left) or left != left or right != right:
        return math.nan
    return math.fmod(left, right)


@lru_cache(maxsize=512)
def decimal_operation(operator: str, precision: int, scale: int) -> Callable[[Decimal, Decimal], Decimal]:
    """The function for two decimals whose result has the type DECIMAL(precision, scale)."""
    context = Context(prec=precision, traps=[InvalidOperation, DivisionByZero, Overflow, Inexact])
    exponent = Decimal(1).scaleb(-scale)
    operation = {
        "+": context.add,
        "-": context.subtract,
        "*": context.multiply,
        "/": context.divide,
        "%": context.remainder,
    }[operator]
    quantize = context.quantize

    def compute(left: Decimal, right: Decimal) -> Decimal:
        return quantize(operation(left, right), exponent)

    return compute
