"""Type texts, which types mix, and the types of arithmetic."""

from __future__ import annotations

import pytest

from millstream.sql.arithmetic import result_type
from millstream.sql.errors import SqlError
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
    Lambda,
    TypedLambda,
    array_type,
    coerced_type,
    common_type,
    comparable,
    decimal_fits,
    decimal_type,
    map_type,
    plain,
    struct_type,
)
from tests.sql.playing import Played

POINT = struct_type(("X", INTEGER), ("y", decimal_type(4, 2)))


def test_text_is_what_ksqldb_prints() -> None:
    assert str(array_type(map_type(STRING, POINT))) == (
        "ARRAY<MAP<STRING, STRUCT<`X` INTEGER, `y` DECIMAL(4, 2)>>>"
    )
    assert POINT.text(plain) == "STRUCT<X INTEGER, y DECIMAL(4, 2)>"
    assert str(struct_type()) == "STRUCT< >"
    assert str(Lambda(2)) == "LAMBDA"
    assert str(TypedLambda((INTEGER, STRING), BOOLEAN)) == "LAMBDA (INTEGER, STRING) => BOOLEAN"
    assert TypedLambda((INTEGER, STRING), BOOLEAN).inputs == 2


@pytest.mark.parametrize(
    ("precision", "scale", "said"),
    [
        (0, 0, "DECIMAL precision must be >= 1: DECIMAL(0,0)"),
        (3, -1, "DECIMAL scale must be >= 0: DECIMAL(3,-1)"),
        (3, 4, "DECIMAL precision must be >= scale: DECIMAL(3,4)"),
    ],
)
def test_a_decimal_type_must_make_sense(precision: int, scale: int, said: str) -> None:
    with pytest.raises(SqlError) as refused:
        decimal_type(precision, scale)
    assert str(refused.value) == said


def test_a_struct_has_each_field_once() -> None:
    with pytest.raises(SqlError, match="Duplicate field names found in STRUCT"):
        struct_type(("A", INTEGER), ("A", STRING))


def test_numbers_widen_and_decimals_grow() -> None:
    assert common_type(INTEGER, BIGINT) == common_type(BIGINT, INTEGER) == BIGINT
    assert common_type(decimal_type(4, 2), DOUBLE) == DOUBLE
    assert common_type(decimal_type(4, 2), decimal_type(5, 0)) == decimal_type(7, 2)
    assert common_type(INTEGER, decimal_type(3, 1)) == decimal_type(11, 1)
    assert common_type(STRING, INTEGER) is None
    assert common_type(STRING, INTEGER, literal=True) is not None
    assert common_type(STRING, DATE) == DATE
    assert decimal_fits(decimal_type(4, 2), decimal_type(5, 3))
    assert not decimal_fits(decimal_type(4, 2), decimal_type(4, 3))


def test_nested_types_mix_item_by_item() -> None:
    assert common_type(array_type(INTEGER), array_type(BIGINT)) == array_type(BIGINT)
    assert common_type(map_type(STRING, INTEGER), map_type(STRING, DOUBLE)) == map_type(STRING, DOUBLE)
    assert common_type(map_type(STRING, INTEGER), map_type(INTEGER, INTEGER)) is None
    one, other = struct_type(("A", INTEGER), ("B", STRING)), struct_type(("A", BIGINT), ("C", DATE))
    assert coerced_type(one, other) == struct_type(("A", BIGINT), ("B", STRING), ("C", DATE))
    assert coerced_type(struct_type(("A", STRING)), struct_type(("A", BOOLEAN))) is None


@pytest.mark.parametrize(
    ("left", "operator", "right", "expected"),
    [
        (INTEGER, "<", DOUBLE, True),
        (INTEGER, "=", STRING, False),
        (STRING, "<", TIMESTAMP, True),
        (TIMESTAMP, ">", STRING, True),
        (DATE, "=", TIMESTAMP, True),
        (TIME, "=", TIMESTAMP, False),
        (BOOLEAN, "=", BOOLEAN, True),
        (BOOLEAN, "<", BOOLEAN, False),
        (array_type(STRING), "IS DISTINCT FROM", array_type(STRING), True),
        (POINT, ">", POINT, False),
        (BYTES, "<", BYTES, True),
        (BYTES, "=", STRING, False),
    ],
)
def test_what_compares_with_what(left, operator, right, expected) -> None:
    assert comparable(left, operator, right) is expected


def test_null_is_not_compared() -> None:
    with pytest.raises(SqlError, match="Comparison with NULL not supported: NULL = INTEGER"):
        comparable(None, "=", INTEGER)


@pytest.mark.parametrize(
    ("left", "operator", "right", "expected"),
    [
        (INTEGER, "/", INTEGER, INTEGER),
        (INTEGER, "*", BIGINT, BIGINT),
        (BIGINT, "-", DOUBLE, DOUBLE),
        (decimal_type(4, 2), "+", DOUBLE, DOUBLE),
        (STRING, "+", STRING, STRING),
        (decimal_type(4, 2), "+", decimal_type(5, 1), decimal_type(7, 2)),
        (decimal_type(4, 2), "-", INTEGER, decimal_type(13, 2)),
        (decimal_type(4, 2), "*", decimal_type(3, 1), decimal_type(8, 3)),
        (decimal_type(4, 2), "/", decimal_type(3, 1), decimal_type(9, 6)),
        (decimal_type(4, 2), "%", decimal_type(3, 1), decimal_type(4, 2)),
        (BIGINT, "+", decimal_type(2, 1), decimal_type(21, 1)),
    ],
)
def test_the_type_of_arithmetic(left, operator, right, expected) -> None:
    assert result_type(operator, left, right) == expected


def test_arithmetic_is_for_numbers() -> None:
    with pytest.raises(SqlError, match=r"Unsupported arithmetic types\. STRING INTEGER"):
        result_type("+", STRING, INTEGER)
    with pytest.raises(SqlError, match="Arithmetic on types null and INTEGER are not supported"):
        result_type("+", None, INTEGER)


@pytest.mark.parametrize("precision", ["STRING", "9" * 5000])
def test_a_precision_is_a_number(precision: str) -> None:
    with pytest.raises(SqlError, match="DECIMAL needs precision and scale"):
        Played(f"CREATE STREAM s (a DECIMAL({precision}, 2)) WITH (kafka_topic='s', value_format='JSON');")
