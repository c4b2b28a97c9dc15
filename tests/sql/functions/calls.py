"""Calls of functions as a statement would make them: resolved by types, bound, then called with values.

A case is `(name, arguments, expected)`. An argument is a value, whose type is its own (str is STRING, int
INTEGER, float DOUBLE, ...), or `(type, value)` where that does not tell it. `FAILS` expects no value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from millstream.sql.errors import EvaluationError
from millstream.sql.functions import FUNCTIONS
from millstream.sql.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    INTEGER,
    STRING,
    Argument,
    IntervalUnit,
    SqlType,
    TypedLambda,
    array_type,
    decimal_type,
    map_type,
)

FAILS = object()
Case = tuple[str, list[Any], Any]


def type_of(value: Any) -> SqlType:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, list):
        return array_type(next((type_of(each) for each in value if each is not None), STRING))
    if isinstance(value, dict):
        return map_type(STRING, next((type_of(each) for each in value.values() if each is not None), STRING))
    if isinstance(value, Decimal):
        exponent = -int(value.as_tuple().exponent)
        return decimal_type(max(len(value.as_tuple().digits), exponent), exponent)
    return {int: INTEGER, float: DOUBLE, str: STRING, bytes: BYTES}[type(value)]


def split(argument: Any) -> tuple[Argument, Any]:
    if isinstance(argument, tuple):
        return argument
    return (None if argument is None else type_of(argument)), argument


def call(name: str, arguments: list[Any]) -> tuple[Any, SqlType]:
    """Value and type of a call."""
    pairs = [split(argument) for argument in arguments]
    types = [type_ for type_, _ in pairs]
    overload = FUNCTIONS.find(name).resolve(types)
    return overload.bind(types)(*(value for _, value in pairs)), overload.result_type(types)


def check(case: Case) -> None:
    name, arguments, expected = case
    if expected is FAILS:
        with pytest.raises((EvaluationError, ArithmeticError)):
            call(name, arguments)
        return
    value, _ = call(name, arguments)
    if isinstance(expected, float) and expected != expected:
        assert value != value
    else:
        assert value == expected, f"{name}{tuple(arguments)}"
        assert type(value) is type(expected)
    if isinstance(expected, Decimal):
        assert str(value) == str(expected)


def unit(name: str) -> tuple[IntervalUnit, str]:
    return IntervalUnit(), name


def function(
    inputs: tuple[SqlType, ...], result: SqlType, body: Callable[..., Any]
) -> tuple[TypedLambda, Any]:
    return TypedLambda(inputs, result), body


def shown(case: Case) -> str:
    return case[0]
