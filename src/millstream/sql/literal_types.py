"""The types of literals: of decimals by their digits, and of numbers written as text beside numbers."""

from __future__ import annotations

from decimal import Decimal

from millstream.sql import ast
from millstream.sql.casts import parse_decimal
from millstream.sql.errors import EvaluationError, sql_error
from millstream.sql.types import BIGINT, DOUBLE, INTEGER, Base, DecimalType, SqlType, decimal_type


def decimal_literal_type(value: Decimal) -> DecimalType:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return decimal_type(max(len(digits), scale, 1), scale)


def number_type(value: str, beside: SqlType, literal: ast.Literal) -> SqlType:
    """The type of a number that is written as text beside numbers: '10', '2e1', '1.5'."""
    try:
        number = parse_decimal(value)
    except EvaluationError:
        raise sql_error("literal of another type", literal.location, type=beside, value=value) from None
    _, digits, exponent = number.as_tuple()
    if "." in value or "e" in value.lower():
        if beside.base is Base.DOUBLE:
            return DOUBLE
        scale = max(0, -int(exponent))
        return decimal_type(max(len(digits) + max(int(exponent), 0), scale, 1), scale)
    if abs(int(number)) < 2**31 - 1:
        return INTEGER
    return BIGINT if abs(int(number)) < 2**63 - 1 else decimal_type(len(digits), 0)
