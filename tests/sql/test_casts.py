"""CAST between all types, and the text of values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from millstream.sql.casts import cast, fit_decimal_exactly, java_text, parse_boolean_exact
from millstream.sql.errors import EvaluationError, SqlError
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.25, "100.25"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (1.5e300, "1.5E300"),
        (1e16, "1.0E16"),
        (5e-324, "4.9E-324"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_doubles_are_printed_as_in_java(value: float, text: str) -> None:
    assert cast(DOUBLE, STRING)(value) == text


CASES: list[tuple[SqlType, SqlType, Any, Any]] = [
    (BOOLEAN, STRING, True, "true"),
    (INTEGER, BIGINT, 5, 5),
    (INTEGER, DOUBLE, 5, 5.0),
    (BIGINT, INTEGER, 2**31, -(2**31)),
    (BIGINT, STRING, -7, "-7"),
    (DOUBLE, INTEGER, 1e20, 2**31 - 1),
    (DOUBLE, BIGINT, -1.9, -1),
    (DOUBLE, BIGINT, math.nan, 0),
    (DOUBLE, decimal_type(5, 2), 1.115, Decimal("1.12")),
    (INTEGER, decimal_type(5, 2), 12, Decimal("12.00")),
    (decimal_type(5, 2), decimal_type(4, 1), Decimal("1.25"), Decimal("1.3")),
    (decimal_type(5, 2), decimal_type(4, 1), Decimal("-1.25"), Decimal("-1.3")),
    (decimal_type(5, 2), decimal_type(5, 3), Decimal("0.00"), Decimal("0.000")),
    (decimal_type(5, 2), INTEGER, Decimal("-1.99"), -1),
    (decimal_type(20, 0), BIGINT, Decimal(2**63), -(2**63)),
    (decimal_type(5, 2), DOUBLE, Decimal("1.25"), 1.25),
    (decimal_type(9, 8), STRING, Decimal("0.00000001"), "0.00000001"),
    (STRING, BOOLEAN, " tR ", True),
    (STRING, BOOLEAN, "y", True),
    (STRING, BOOLEAN, "1", False),
    (STRING, BOOLEAN, "", False),
    (STRING, INTEGER, " +12 ", 12),
    (STRING, BIGINT, "-9223372036854775808", -(2**63)),
    (STRING, DOUBLE, "1.5e3", 1500.0),
    (STRING, DOUBLE, ".5d", 0.5),
    (STRING, decimal_type(4, 2), " 1.005 ", Decimal("1.01")),
    (STRING, decimal_type(4, 2), "1e1", Decimal("10.00")),
    (STRING, BYTES, "aGk=", b"hi"),
    (STRING, DATE, "2020-02", 18293),
    (STRING, TIME, "01:34", 5640000),
    (STRING, TIME, "01:34:20.1239", 5660123),
    (STRING, TIMESTAMP, "2020-05-26T23:59:58.123+0200", 1590530398123),
    (STRING, TIMESTAMP, "2020", 1577836800000),
    (STRING, TIMESTAMP, "1969-12-31T23:59:59.999Z", -1),
    (STRING, TIMESTAMP, "2019-02-30T00:00:00.000", 1551312000000),
    (TIMESTAMP, STRING, -1, "1969-12-31T23:59:59.999"),
    (TIMESTAMP, DATE, -1, -1),
    (TIMESTAMP, TIME, 90_000_000, 3_600_000),
    (DATE, TIMESTAMP, 2, 172_800_000),
    (DATE, STRING, 18293, "2020-02-01"),
    (TIME, STRING, 3_600_000, "01:00"),
    (TIME, STRING, 3_601_500, "01:00:01"),
    (array_type(INTEGER), array_type(STRING), [1, None], ["1", None]),
    (map_type(STRING, INTEGER), map_type(STRING, DOUBLE), {"a": 1, "b": None}, {"a": 1.0, "b": None}),
    (
        struct_type(("A", INTEGER), ("B", STRING)),
        struct_type(("B", STRING), ("A", BIGINT), ("C", DATE)),
        {"A": 1, "B": "x"},
        {"B": "x", "A": 1, "C": None},
    ),
    (array_type(STRING), STRING, ["a", None], "[a, null]"),
    (map_type(STRING, DOUBLE), STRING, {"a": 1e7, "b": None}, "{a=1.0E7, b=null}"),
    (struct_type(("A", INTEGER), ("B", STRING)), STRING, {"A": 1, "B": None}, "Struct{A=1}"),
]


@pytest.mark.parametrize(("source", "target", "value", "expected"), CASES)
def test_casts(source: SqlType, target: SqlType, value: Any, expected: Any) -> None:
    found = cast(source, target)(value)
    assert found == expected and type(found) is type(expected)
    if isinstance(expected, Decimal):
        assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (INTEGER, "2147483648"),
        (INTEGER, "1_0"),
        (INTEGER, "1.0"),
        (BIGINT, ""),
        (DOUBLE, "NaN"),
        (DOUBLE, "1e999"),
        (DOUBLE, "1_0"),
        (decimal_type(4, 2), "100"),
        (decimal_type(4, 2), "abc"),
        (BYTES, "a!"),
        (DATE, "2020-13-01"),
        (DATE, "2019-02-29"),
        (TIME, "24:00"),
        (TIMESTAMP, "yesterday"),
        (TIMESTAMP, "2020-01-01T00:00:00.000+99"),
    ],
)
def test_text_that_is_no_value(target: SqlType, text: str) -> None:
    with pytest.raises(EvaluationError):
        cast(STRING, target)(text)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (BOOLEAN, INTEGER),
        (INTEGER, BOOLEAN),
        (TIME, TIMESTAMP),
        (BYTES, STRING),
        (STRING, array_type(STRING)),
        (array_type(BOOLEAN), array_type(INTEGER)),
        (map_type(STRING, BYTES), map_type(STRING, STRING)),
        (struct_type(("A", BYTES)), struct_type(("A", INTEGER))),
    ],
)
def test_casts_that_there_are_not(source: SqlType, target: SqlType) -> None:
    with pytest.raises(SqlError) as refused:
        cast(source, target)
    assert str(refused.value) == f"Cast of {source} to {target} is not supported"


def test_the_literal_null_is_of_any_type() -> None:
    assert cast(None, INTEGER)(None) is None


def test_literals_fit_without_rounding() -> None:
    assert str(fit_decimal_exactly(Decimal("1.5"), 4, 2)) == "1.50"
    with pytest.raises(EvaluationError, match=r"Cannot fit decimal '1.555' into DECIMAL\(4, 2\)"):
        fit_decimal_exactly(Decimal("1.555"), 4, 2)
    assert [parse_boolean_exact(text) for text in ("T", "nO", "maybe", "")] == [True, False, None, None]


def test_values_inside_lists_are_printed_as_java_objects() -> None:
    shown = java_text(
        struct_type(("B", BYTES), ("D", DATE), ("T", TIME), ("S", TIMESTAMP), ("N", decimal_type(3, 1)))
    )
    assert shown({"B": b"abc", "D": 0, "T": 1000, "S": 1500, "N": Decimal("1.0")}) == (
        "Struct{B=java.nio.HeapByteBuffer[pos=0 lim=3 cap=3],D=1970-01-01,T=00:00:01,"
        "S=1970-01-01 00:00:01.5,N=1.0}"
    )
