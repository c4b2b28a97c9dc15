"""Java's arithmetic: wrap-around, division towards zero, doubles that never fail, exact decimals."""

from __future__ import annotations

import math
from decimal import Decimal, Inexact

import pytest

from millstream.sql.arithmetic import (
    decimal_operation,
    double_divide,
    double_modulus,
    integer_divide,
    integer_modulus,
    wrap32,
    wrap64,
)
from millstream.sql.errors import EvaluationError


def test_integers_wrap_around() -> None:
    assert wrap32(2**31) == -(2**31)
    assert wrap32(-(2**31) - 1) == 2**31 - 1
    assert wrap64(2**63) == -(2**63)
    assert wrap64(-5) == -5


@pytest.mark.parametrize(
    ("left", "right", "quotient", "rest"), [(7, 2, 3, 1), (-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1)]
)
def test_integers_divide_towards_zero(left: int, right: int, quotient: int, rest: int) -> None:
    assert integer_divide(left, right) == quotient
    assert integer_modulus(left, right) == rest


def test_an_integer_divided_by_zero_has_no_value() -> None:
    with pytest.raises(EvaluationError):
        integer_divide(1, 0)
    with pytest.raises(EvaluationError):
        integer_modulus(1, 0)


def test_doubles_have_infinities() -> None:
    assert double_divide(1.0, 0.0) == math.inf
    assert double_divide(1.0, -0.0) == -math.inf
    assert math.isnan(double_divide(0.0, 0.0))
    assert math.isnan(double_modulus(1.0, 0.0))
    assert double_modulus(-5.5, 2.0) == -1.5


def test_decimals_are_exact() -> None:
    assert str(decimal_operation("+", 7, 2)(Decimal("1.25"), Decimal("10.1"))) == "11.35"
    assert str(decimal_operation("*", 8, 3)(Decimal("1.25"), Decimal("2.0"))) == "2.500"
    assert str(decimal_operation("/", 9, 6)(Decimal("1.00"), Decimal("8.0"))) == "0.125000"
    assert str(decimal_operation("%", 4, 2)(Decimal("-7.50"), Decimal("2.0"))) == "-1.50"
    with pytest.raises(Inexact):
        decimal_operation("/", 9, 6)(Decimal("1.00"), Decimal("3.0"))
    with pytest.raises(ArithmeticError):
        decimal_operation("/", 9, 6)(Decimal("1.00"), Decimal("0.0"))
