"""Expressions by their values: each is a column of a projection over one row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from millstream.sql.errors import SqlError
from tests.sql.playing import Played

COLUMNS = (
    "K STRING KEY, I INT, L BIGINT, D DOUBLE, M DECIMAL(6, 2), S STRING, B BOOLEAN, A ARRAY<INT>,"
    " P MAP<STRING, INT>, T STRUCT<X INT, Y STRUCT<Z STRING>>, DAY DATE, N INT"
)
ROW = {
    "I": 7,
    "L": 9_000_000_000,
    "D": 2.5,
    "M": 12.34,
    "S": "abc",
    "B": True,
    "A": [1, 2, 3],
    "P": {"a": 1},
    "T": {"X": 5, "Y": {"Z": "deep"}},
    "DAY": 2,
    "N": None,
}


def play(expression: str) -> Played:
    return Played(
        f"CREATE STREAM s ({COLUMNS}) WITH (kafka_topic='s', value_format='JSON');"
        f"CREATE STREAM o AS SELECT k, {expression} AS x, 1 AS one FROM s;"
    )


def value(expression: str) -> Any:
    played = play(expression)
    played.pipe("s", "k", ROW)
    [found] = played.values("O")
    assert found["ONE"] == 1
    return found["X"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("I + 1", 8),
        ("I + L", 9_000_000_007),
        ("2147483647 + I", -2147483642),
        ("I / 2", 3),
        ("-I / 2", -3),
        ("-I % 4", -3),
        ("I / 0", None),
        ("D / 0", "Infinity"),
        ("I * D", 17.5),
        ("M + 1", 13.34),
        ("M * M", 152.2756),
        ("S + 'd'", "abcd"),
        ("S || 'd' || 'e'", "abcde"),
        ("-I", -7),
        ("I + N", None),
        ("I = 7", True),
        ("I <> 7", False),
        ("N = 7", False),
        ("N <> 7", False),
        ("NOT (N = 7)", True),
        ("D = 2.5", True),
        ("M > 12", True),
        ("D < M", True),
        ("S >= 'abc'", True),
        ("DAY = '1970-01-03'", True),
        ("N IS NULL", True),
        ("I IS NOT NULL", True),
        ("N IS DISTINCT FROM I", True),
        ("N IS NOT DISTINCT FROM N", True),
        ("I BETWEEN 7 AND 8", True),
        ("I NOT BETWEEN 7 AND 8", False),
        ("N BETWEEN 1 AND 2", False),
        ("I IN (1, '7')", True),
        ("S IN ('x', 'y')", False),
        ("I NOT IN (1, 2)", True),
        ("S LIKE 'a%'", True),
        ("S LIKE '_b_'", True),
        ("S LIKE 'a.c'", False),
        ("'50%' LIKE '50!%' ESCAPE '!'", True),
        ("S LIKE S", True),
        ("B AND I = 7", True),
        ("B AND (N = 1 OR I > 6)", True),
        ("CASE WHEN I > 5 THEN 'big' ELSE 'small' END", "big"),
        ("CASE I WHEN 6 THEN 'six' WHEN 7 THEN 'seven' END", "seven"),
        ("CASE WHEN FALSE THEN 1 END", None),
        ("CASE WHEN I = 7 THEN I ELSE I / 0 END", 7),
        ("CASE WHEN B THEN 1.5 ELSE 2.5 END", Decimal("1.5")),
        ("CAST(I AS STRING)", "7"),
        ("CAST('12' AS INT)", 12),
        ("CAST('x' AS INT)", None),
        ("CAST(M AS INT)", 12),
        ("CAST(NULL AS INT)", None),
        ("A[1]", 1),
        ("A[-1]", 3),
        ("A[4]", None),
        ("A[0]", None),
        ("P['a']", 1),
        ("P['b']", None),
        ("T->X", 5),
        ("T->Y->Z", "deep"),
        ("ARRAY[I, 1, NULL]", [7, 1, None]),
        ("ARRAY[1, '2', 3.5]", [1, 2, 3.5]),
        ("ARRAY[I / 0, 1]", [None, 1]),
        ("MAP('x' := I, 'y' := L)", {"x": 7, "y": 9_000_000_000}),
        ("STRUCT(Q := I, R := S)", {"Q": 7, "R": "abc"}),
        ("TRANSFORM(A, z => z * I)", [7, 14, 21]),
        ("FILTER(A, z => z > 1)", [2, 3]),
        ("REDUCE(A, 0, (sum, z) => sum + z)", 6),
        ("TRANSFORM(P, (x, z) => UCASE(x), (x, z) => z + 1)", {"A": 2}),
        ("CAST(I > 3 AS STRING)", "true"),
    ],
)
def test_values(expression: str, expected: Any) -> None:
    assert value(expression) == expected


def test_long_lists_of_conditions_are_not_nested() -> None:
    """Python allows two hundred brackets inside of each other."""
    branches = " ".join(f"WHEN I = {number} THEN {number * 10}" for number in range(-300, 300))
    assert value(f"CASE {branches} END") == 70
    assert value(f"CASE {branches.replace('I = 7 ', 'I = 8 ')} ELSE -1 END") == -1
    for number, expected in ((7, True), (10_000, False)):
        conditions = " OR ".join([f"I = {number}", *(f"I = {other}" for other in range(1000, 1240))])
        assert value(conditions) is expected
        assert value(" AND ".join([f"I < {other}" for other in range(1000, 1240)] + [f"I = {number}"])) is (
            expected
        )
    assert value("B AND I = 7 AND NOT B OR I = 7 AND (I = 1 OR B)") is True
    assert value(" || ".join(["S"] * 120)) == "abc" * 120
    assert value("(S || 'd') || ('e' || S)") == "abcdeabc"


def test_a_part_of_a_condition_may_be_what_rows_are_grouped_by() -> None:
    played = Played(
        "CREATE STREAM s (k STRING KEY, a BOOLEAN, b BOOLEAN) WITH (kafka_topic='s', value_format='JSON',"
        " key_format='JSON');"
        "CREATE TABLE o AS SELECT (a OR b) AS e, AS_VALUE(a OR b) AS v, (a OR b OR COUNT(*) > 1) AS x"
        " FROM s GROUP BY (a OR b);"
    )
    for expected in (False, True):
        played.pipe("s", '"k"', {"A": False, "B": False})
        assert played.values("O")[-1] == {"V": False, "X": expected}


@pytest.mark.parametrize("brackets", [300, 3000])
def test_what_python_cannot_compile_is_nested_too_deeply(brackets: int) -> None:
    with pytest.raises(SqlError) as refused:
        play("+".join(["I"] * brackets))
    assert refused.value.entry == "too deep"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("I + 'x'", "Error processing expression: (I + 'x'). Unsupported arithmetic types. INTEGER STRING"),
        ("I = 'x'", "Cannot compare I (INTEGER) to 'x' (STRING) with EQUAL."),
        ("A < A", "Cannot compare A (ARRAY<INTEGER>) to A (ARRAY<INTEGER>) with LESS_THAN."),
        ("I = NULL", "Comparison with NULL not supported: INTEGER = NULL"),
        ("I LIKE 'x'", "LIKE condition must be between strings"),
        ("I AND B", "should evaluate to boolean"),
        ("-S", "'-' cannot be applied to STRING"),
        ("ARRAY[]", "Array constructor cannot be empty"),
        ("ARRAY[NULL]", "Cannot construct an array with all NULL elements"),
        ("ARRAY[1, 'x']", 'invalid input syntax for type INTEGER: "x".'),
        ("MAP()", "Map constructor cannot be empty"),
        ("MAP('a' := NULL)", "Cannot construct a map with all NULL values"),
        ("MAP(NULL := 1)", "Cannot construct a map with all NULL keys"),
        ("CASE WHEN B THEN NULL END", "All case branches have NULL type"),
        ("CASE WHEN B THEN I WHEN B THEN A END", "Type for all 'THEN' clauses should be the same"),
        ("CASE WHEN B THEN I ELSE A END", "Type for the default clause should be the same"),
        ("CASE WHEN I THEN 1 END", "WHEN operand type should be boolean"),
        ("I IN (A)", "operator does not exist: INTEGER = ARRAY<INTEGER>"),
        ("T->NOPE", "Could not find field 'NOPE'"),
        ("I->X", "Expected STRUCT type, got: INTEGER"),
        ("A['x']", "An array's index has to be an INTEGER or BIGINT, not STRING"),
        ("I[1]", "do not apply to INTEGER"),
        ("CAST(A AS INT)", "Cast of ARRAY<INTEGER> to INTEGER is not supported"),
        ("CAST(I AS NOPE)", "Cannot resolve unknown type: NOPE"),
        ("NOPE(I)", "Can't find any functions with the name 'NOPE'"),
        ("UCASE(I)", "does not accept parameters (INTEGER)"),
        ("TRANSFORM(A, z => FILTER(A, z => z > 1))", "Reusing lambda arguments"),
        ("NULL", "Can't infer a type of null"),
        ("STRUCT(Q := NULL)", "cast it to a type"),
    ],
)
def test_what_has_no_type_is_refused(expression: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        play(expression)
    assert message in str(caught.value)


def test_what_fails_is_null_and_logged_and_the_rest_of_the_row_stays() -> None:
    played = play("CAST(S AS INT)")
    played.pipe("s", "k", ROW)
    assert played.values("O") == [{"X": None, "ONE": 1}]
    [(what, text, why)] = played.log
    assert (what, text) == ("column X", "CAST(S AS INTEGER)")
    assert "abc" in why


def test_null_is_neither_true_nor_false() -> None:
    """AND of null has no value, so that NOT of it has none either."""
    played = Played(
        "CREATE STREAM s (k STRING KEY, b BOOLEAN, i INT) WITH (kafka_topic='s', value_format='JSON');"
        "CREATE STREAM o AS SELECT k, NOT b AS n, (b AND i = 1) AS a, (i = 1 OR b) AS o FROM s;"
    )
    played.pipe("s", "k", {"i": 1})
    assert played.values("O") == [{"N": None, "A": None, "O": True}]
    assert [what for what, _, _ in played.log] == ["column N", "column A"]
