"""Aggregate functions of numbers and comparable values: COUNT, SUM, AVG, MIN, MAX, deviations, correlation.

The collecting ones are in `collecting.py`. Each function here returns an `Aggregate` for the types of its
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from millstream.sql.arithmetic import double_divide, integer_divide, wrap32, wrap64
from millstream.sql.casts import fit_decimal
from millstream.sql.errors import SqlError
from millstream.sql.functions.table import Aggregate, Function, Overload, aggregate, aggregate_overload
from millstream.sql.types import (
    BIGINT,
    DOUBLE,
    Argument,
    ArrayType,
    Base,
    DecimalType,
    SqlType,
    struct_type,
)

Types = Sequence[Argument]
Settings = dict[str, Any]


def value_type(types: Types, index: int = 0) -> SqlType:
    type_ = types[index]
    if not isinstance(type_, SqlType):
        raise SqlError("the type of NULL is not known")
    return type_


def _count(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    return Aggregate(
        BIGINT,
        BIGINT,
        lambda: 0,
        lambda state, value: state if value is None else state + 1,
        lambda one, other: one + other,
        undo=lambda state, value: state if value is None else state - 1,
    )


def _count_rows(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    return Aggregate(
        BIGINT,
        BIGINT,
        lambda: 0,
        lambda state, *_: state + 1,
        lambda one, other: one + other,
        undo=lambda state, *_: state - 1,
    )


def _number_plus(type_: SqlType) -> tuple[Any, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Zero, addition and subtraction of a type."""
    if type_.base is Base.INTEGER:
        return 0, lambda a, b: wrap32(a + b), lambda a, b: wrap32(a - b)
    if type_.base is Base.BIGINT:
        return 0, lambda a, b: wrap64(a + b), lambda a, b: wrap64(a - b)
    return 0.0, lambda a, b: a + b, lambda a, b: a - b


def _sum(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    type_ = value_type(types)
    if isinstance(type_, DecimalType):
        return _sum_decimal(type_)
    zero, plus, minus = _number_plus(type_)
    return Aggregate(
        type_,
        type_,
        lambda: zero,
        lambda state, value: state if value is None else plus(state, value),
        plus,
        undo=lambda state, value: state if value is None else minus(state, value),
    )


def _sum_decimal(type_: DecimalType) -> Aggregate:
    context = Context(prec=type_.precision, rounding=ROUND_HALF_UP)
    zero = Decimal(0).quantize(Decimal(1).scaleb(-type_.scale))

    def add(state: Decimal, value: Decimal | None) -> Decimal:
        if value is None:
            return state
        return fit_decimal(context.add(state, value), type_.precision, type_.scale)

    return Aggregate(
        type_,
        type_,
        lambda: zero,
        add,
        context.add,
        undo=lambda state, value: state if value is None else context.subtract(state, value),
    )


def _sum_list(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    list_type = value_type(types)
    if not isinstance(list_type, ArrayType):
        raise SqlError("SUM_LIST wants an array")
    type_ = list_type.item
    zero, plus, minus = _number_plus(type_)

    def total(values: list[Any]) -> Any:
        found = zero
        for value in values:
            if value is not None:
                found = plus(found, value)
        return found

    return Aggregate(
        type_,
        type_,
        lambda: zero,
        lambda state, values: state if values is None else plus(state, total(values)),
        plus,
        undo=lambda state, values: state if values is None else minus(state, total(values)),
    )


def _average(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    type_ = value_type(types)
    zero, plus, minus = _number_plus(type_)

    def result(state: dict[str, Any]) -> float:
        return double_divide(float(state["SUM"]), float(state["COUNT"])) if state["COUNT"] else 0.0

    return Aggregate(
        struct_type(("SUM", type_), ("COUNT", BIGINT)),
        DOUBLE,
        lambda: {"SUM": zero, "COUNT": 0},
        lambda state, value: (
            state if value is None else {"SUM": plus(state["SUM"], value), "COUNT": state["COUNT"] + 1}
        ),
        lambda one, other: {
            "SUM": plus(one["SUM"], other["SUM"]),
            "COUNT": one["COUNT"] + other["COUNT"],
        },
        result,
        lambda state, value: (
            state if value is None else {"SUM": minus(state["SUM"], value), "COUNT": state["COUNT"] - 1}
        ),
    )


def _extreme(greatest: bool) -> Callable[[Types, Sequence[Any], Settings], Aggregate]:
    def made(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
        type_ = value_type(types)

        def add(state: Any, value: Any) -> Any:
            if value is None:
                return state
            if state is None:
                return value
            return value if (value > state if greatest else value < state) else state

        return Aggregate(type_, type_, lambda: None, add, lambda one, other: add(other, one))

    return made


def _deviation(root: bool) -> Callable[[Types, Sequence[Any], Settings], Aggregate]:
    """Welford's sums. Without `root` it is the variance: what ksqlDB's STDDEV_SAMP really returns."""

    def made(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
        type_ = value_type(types)
        zero, plus, minus = _number_plus(type_)
        whole = type_.base is not Base.DOUBLE

        def delta(state: dict[str, Any], value: Any) -> float:
            found = value * (state["COUNT"] + 1) - (state["SUM"] + value)
            return float(wrap64(found) if whole else found)

        def add(state: dict[str, Any], value: Any) -> dict[str, Any]:
            if value is None:
                return state
            count = state["COUNT"] + 1
            more = delta(state, value) ** 2 / (count * (count - 1)) if count > 1 else 0.0
            return {"SUM": plus(state["SUM"], value), "COUNT": count, "M2": state["M2"] + more}

        def undo(state: dict[str, Any], value: Any) -> dict[str, Any]:
            if value is None:
                return state
            count = state["COUNT"] - 1
            less = delta(state, value) ** 2 / (count * (count + 1)) if count > 0 else 0.0
            return {"SUM": minus(state["SUM"], value), "COUNT": count, "M2": state["M2"] - less}

        def mean(state: dict[str, Any]) -> float:
            if whole and not root:
                return float(integer_divide(state["SUM"], state["COUNT"]))
            return float(state["SUM"]) / float(state["COUNT"])

        def merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
            count = one["COUNT"] + other["COUNT"]
            squares = one["M2"] + other["M2"]
            if one["COUNT"] and other["COUNT"]:
                squares += one["COUNT"] * other["COUNT"] * (mean(one) - mean(other)) ** 2 / count
            return {"SUM": plus(one["SUM"], other["SUM"]), "COUNT": count, "M2": squares}

        def result(state: dict[str, Any]) -> float:
            if state["COUNT"] < 2:
                return 0.0
            variance = state["M2"] / (state["COUNT"] - 1)
            if not root:
                return float(variance)
            return math.sqrt(variance) if variance >= 0 else math.nan

        return Aggregate(
            struct_type(("SUM", type_), ("COUNT", BIGINT), ("M2", DOUBLE)),
            DOUBLE,
            lambda: {"SUM": zero, "COUNT": 0, "M2": 0.0},
            add,
            merge,
            result,
            undo,
        )

    return made


_SUMS = ("X_SUM", "Y_SUM", "X_SQUARED_SUM", "Y_SQUARED_SUM", "XY_SUM")


def _correlation(types: Types, literals: Sequence[Any], settings: Settings) -> Aggregate:
    def move(sign: int) -> Callable[..., dict[str, Any]]:
        def moved(state: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
            if x is None or y is None:
                return state
            x, y = float(x), float(y)
            added = zip(_SUMS, (x, y, x * x, y * y, x * y), strict=True)
            found: dict[str, Any] = {name: state[name] + sign * value for name, value in added}
            return found | {"COUNT": state["COUNT"] + sign}

        return moved

    def result(state: dict[str, Any]) -> float:
        count = state["COUNT"]
        above = count * state["XY_SUM"] - state["X_SUM"] * state["Y_SUM"]
        x = count * state["X_SQUARED_SUM"] - state["X_SUM"] ** 2
        y = count * state["Y_SQUARED_SUM"] - state["Y_SUM"] ** 2
        return double_divide(above, math.sqrt(x * y)) if x * y >= 0 else math.nan

    names = (*_SUMS, "COUNT")
    return Aggregate(
        struct_type(*((name, DOUBLE) for name in _SUMS), ("COUNT", BIGINT)),
        DOUBLE,
        lambda: dict.fromkeys(_SUMS, 0.0) | {"COUNT": 0},
        move(1),
        lambda one, other: {name: one[name] + other[name] for name in names},
        result,
        move(-1),
    )


def _numbers(
    made: Callable[[Types, Sequence[Any], Settings], Aggregate],
    parameters: str = "{t} val",
    decimals: bool = False,
) -> tuple[Overload, ...]:
    types = ("BIGINT", "INT", "DOUBLE", "DECIMAL") if decimals else ("BIGINT", "INT", "DOUBLE")
    return tuple(
        aggregate_overload(f"({parameters.format(t=type_name)})", made, undoes=True) for type_name in types
    )


COMPARABLE = ("INT", "BIGINT", "DOUBLE", "DECIMAL", "DATE", "TIME", "TIMESTAMP", "VARCHAR", "BYTES")

ROWS: list[Function] = [
    aggregate("AVG", "The average; 0.0 without values.", *_numbers(_average)),
    aggregate(
        "CORRELATION",
        "Pearson's correlation of two columns.",
        *_numbers(_correlation, "{t} x, {t} y"),
    ),
    aggregate(
        "COUNT",
        "The number of rows, or of values that are not null.",
        aggregate_overload("(T val)", _count, undoes=True),
        aggregate_overload("()", _count_rows, undoes=True),
    ),
    aggregate(
        "MAX",
        "The greatest value.",
        *(aggregate_overload(f"({type_name} val)", _extreme(True)) for type_name in COMPARABLE),
    ),
    aggregate(
        "MIN",
        "The least value.",
        *(aggregate_overload(f"({type_name} val)", _extreme(False)) for type_name in COMPARABLE),
    ),
    aggregate(
        "STDDEV_SAMP",
        "The sample variance, under the name that ksqlDB gives it; STDDEV_SAMPLE is the deviation.",
        *_numbers(_deviation(False)),
    ),
    aggregate("STDDEV_SAMPLE", "The sample standard deviation.", *_numbers(_deviation(True))),
    aggregate(
        "SUM",
        "The sum. Integers wrap around; a decimal that no longer fits its type is an error.",
        *_numbers(_sum, decimals=True),
    ),
    aggregate("SUM_LIST", "The sum of all elements of all arrays.", *_numbers(_sum_list, "ARRAY<{t}> val")),
]
