"""Overload resolution and its messages, signatures, table functions, and functions of users."""

from __future__ import annotations

import pytest

from millstream.sql.errors import SqlError
from millstream.sql.functions import FUNCTIONS, FunctionTable, Kind, udaf, udf, udtf
from millstream.sql.functions.signatures import parse_signature, parse_type
from millstream.sql.functions.user import USER_FUNCTIONS
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    IntervalUnit,
    Lambda,
    TypedLambda,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)
from tests.sql.functions.calls import FAILS, Case, call, check, shown


@pytest.mark.parametrize(
    "text",
    [
        "(ARRAY<T> array, LAMBDA(T) => R function) -> ARRAY<R>",
        "(INT first, VARCHAR... rest) -> MAP<VARCHAR, BIGINT>",
        "(INTERVAL unit, DECIMAL(4, 2) d) -> STRUCT<A INT, B VARCHAR>",
        "() -> DOUBLE",
    ],
)
def test_signatures(text: str) -> None:
    params, result = parse_signature(text)
    assert result is not None
    assert all(str(param) for param in params)


@pytest.mark.parametrize(
    "text", ["(INT", "(WHAT x) -> INT", "INT", "(INT) -> INT INT", "(INT) INT", "(INT x y) -> INT"]
)
def test_what_is_no_signature(text: str) -> None:
    with pytest.raises(SqlError, match="is not a signature"):
        parse_signature(text)


def test_a_type_alone() -> None:
    assert str(parse_type("MAP<VARCHAR, ARRAY<INT>>")) == "MAP<VARCHAR, ARRAY<INT>>"
    with pytest.raises(SqlError):
        parse_type("INT INT")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (
            "greatest",
            [INTEGER, BIGINT],
            "cannot be resolved due to ambiguous method parameters (INTEGER, BIGINT).",
        ),
        ("greatest", [None, None], "cannot be resolved due to ambiguous method parameters (null, null)."),
        ("greatest", [], "does not accept parameters ()."),
        ("greatest", [STRING, INTEGER], "does not accept parameters (STRING, INTEGER)."),
        ("dateadd", [DATE, INTEGER, DATE], "does not accept parameters (DATE, INTEGER, DATE)."),
        ("substring", [STRING, BIGINT], "does not accept parameters (STRING, BIGINT)."),
        ("filter", [array_type(INTEGER), Lambda(3)], "does not accept parameters (ARRAY<INTEGER>, LAMBDA)."),
        (
            "len",
            [struct_type(("A", INTEGER))],
            "does not accept parameters (STRUCT<A INTEGER>).",
        ),
        ("coalesce", [INTEGER, STRING], "does not accept parameters (INTEGER, STRING)."),
        (
            "timestampadd",
            [IntervalUnit(), STRING, STRING],
            "does not accept parameters (INTERVAL UNIT, STRING, STRING).",
        ),
    ],
)
def test_no_overload(name, arguments, said) -> None:
    function = FUNCTIONS.find(name)
    with pytest.raises(SqlError) as refused:
        function.resolve(arguments)
    lines = str(refused.value).splitlines()
    assert lines[0] == f"Function '{function.name}' {said}"
    assert function.overloads[0].text(function.name) in lines
    assert lines[-1] == "For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;"


def test_the_best_overload_is_called() -> None:
    # Exact before converted, fixed before variadic, concrete before generic.
    assert str(FUNCTIONS.find("ln").resolve([BIGINT]).params[0].type) == "BIGINT"
    assert str(FUNCTIONS.find("ln").resolve([decimal_type(4, 2)]).params[0].type) == "DOUBLE"
    assert len(FUNCTIONS.find("count").resolve([]).params) == 0
    table = FunctionTable()
    udf("(T value) -> VARCHAR", name="pick", into=table)(lambda value: "generic")
    udf("(INT value) -> VARCHAR", name="pick", into=table)(lambda value: "int")
    udf("(INT... values) -> VARCHAR", name="pick", into=table)(lambda *values: "several")
    assert [
        table.find("PICK").resolve(types).bind(types)(*values)
        for types, values in (([INTEGER], [1]), ([STRING], ["a"]), ([INTEGER] * 3, [1, 2, 3]), ([], []))
    ] == ["int", "generic", "several", "several"]


def test_arguments_are_converted_where_that_is_silent() -> None:
    value, type_ = call("geo_distance", [0, (BIGINT, 0), (decimal_type(2, 1), 0), 0.0])
    assert (value, type_) == (0.0, DOUBLE)
    assert call("format_date", ["2021-03-04", "dd"]) == ("04", STRING)
    assert call("unix_date", [(STRING, None)]) == (None, INTEGER)


def test_lambdas_learn_their_inputs_from_earlier_arguments() -> None:
    arguments = [map_type(STRING, INTEGER), DOUBLE, Lambda(3)]
    overload = FUNCTIONS.find("reduce").resolve(arguments)
    assert overload.lambda_inputs(arguments, 2) == (DOUBLE, STRING, INTEGER)
    typed = [*arguments[:2], TypedLambda((DOUBLE, STRING, INTEGER), DOUBLE)]
    assert overload.result_type(typed) == DOUBLE
    wrong = [*arguments[:2], TypedLambda((DOUBLE, STRING, INTEGER), STRING)]
    with pytest.raises(SqlError, match="Cannot infer generics"):
        overload.result_type(wrong)
    with pytest.raises(SqlError, match="is no lambda"):
        overload.lambda_inputs(arguments, 0)


def test_unknown_functions_are_named() -> None:
    with pytest.raises(SqlError) as refused:
        FUNCTIONS.find("Nope")
    assert str(refused.value) == "Can't find any functions with the name 'Nope'"
    with pytest.raises(SqlError, match="'WindowStart'\\nWINDOWSTART is a column today"):
        FUNCTIONS.find("WindowStart")
    assert "sum" in FUNCTIONS and "nope" not in FUNCTIONS
    assert FUNCTIONS.is_aggregate("sum") and not FUNCTIONS.is_aggregate("abs")
    assert FUNCTIONS.is_table("explode") and not FUNCTIONS.is_table("nope")


TABLE_CASES: list[Case] = [
    ("EXPLODE", [["a", None]], ["a", None]),
    ("EXPLODE", [(array_type(STRING), None)], []),
    ("CUBE_EXPLODE", [["a", "b"]], [[None, None], [None, "b"], ["a", None], ["a", "b"]]),
    ("CUBE_EXPLODE", [["a", None]], [[None, None], ["a", None]]),
    ("CUBE_EXPLODE", [(array_type(STRING), None)], []),
    ("CUBE_EXPLODE", [["a"] * 21], FAILS),
]


@pytest.mark.parametrize("case", TABLE_CASES, ids=shown)
def test_table_functions(case: Case) -> None:
    check(case)


def test_every_table_function_has_a_case() -> None:
    assert {row.name for row in FUNCTIONS if row.kind is Kind.TABLE} == {case[0] for case in TABLE_CASES}


def test_every_row_is_documented() -> None:
    for row in FUNCTIONS:
        assert row.doc.endswith(".") and row.category and row.overloads, row.name


def test_users_add_functions_of_all_kinds() -> None:
    table = FUNCTIONS.copy()

    @udf("(DOUBLE celsius) -> DOUBLE", into=table)
    def fahrenheit(celsius: float) -> float:
        """Degrees Fahrenheit."""
        return celsius * 9 / 5 + 32

    @udtf("(VARCHAR text) -> VARCHAR", into=table)
    def words(text: str) -> list[str]:
        return text.split()

    @udaf("(T val, INT least) -> BIGINT", state="BIGINT", literals=1, name="count_long", into=table)
    class CountLong:
        def __init__(self, least: int) -> None:
            self.least = least

        def initial(self) -> int:
            return 0

        def add(self, state: int, value: str) -> int:
            return state + (len(value) >= self.least)

        def merge(self, one: int, other: int) -> int:
            return one + other

        def undo(self, state: int, value: str) -> int:
            return state - (len(value) >= self.least)

    assert fahrenheit(100) == 212
    row = table.find("FAHRENHEIT")
    assert (row.doc, row.origin, row.kind) == ("Degrees Fahrenheit.", "USER", Kind.SCALAR)
    assert row.resolve([INTEGER]).bind([INTEGER])(0) == 32.0
    assert row.resolve([DOUBLE]).bind([DOUBLE])(None) is None
    assert table.is_table("words") and table.is_aggregate("count_long")
    overload = table.find("count_long").resolve([STRING, INTEGER])
    assert overload.undoes and overload.aggregate is not None
    aggregate = overload.aggregate([STRING, INTEGER], [3], {})
    assert (aggregate.state_type, aggregate.result_type, aggregate.result) == (BIGINT, BIGINT, None)
    assert aggregate.add(aggregate.initial(), "four") == 1
    assert "fahrenheit" not in FUNCTIONS


def test_literals_of_an_aggregate_may_be_variadic() -> None:
    table = FunctionTable()

    @udaf("(BIGINT x, INT first, VARCHAR... others) -> BIGINT", state="BIGINT", literals=2, into=table)
    class Total:
        def __init__(self, first: int, *others: str) -> None:
            self.start = first + len(others)

        def configure(self, settings: dict[str, int]) -> None:
            self.start += settings.get("more", 0)

        def initial(self) -> int:
            return self.start

        def add(self, state: int, value: int) -> int:
            return state + value

        def merge(self, one: int, other: int) -> int:
            return one + other

    types = [BIGINT, INTEGER, STRING, STRING]
    overload = table.find("total").resolve(types)
    assert [overload.literals_for(count) for count in (2, 3, 4)] == [1, 2, 3]
    assert overload.aggregate is not None
    assert overload.aggregate(types, [5, "a", "b"], {"more": 10}).initial() == 17
    assert FUNCTIONS.find("topk").resolve([INTEGER, STRING, INTEGER]).literals_for(3) == 1


def test_users_functions_wait_for_a_table() -> None:
    @udf("(BOOLEAN b) -> BOOLEAN", nulls=True, name="nullable_not")
    def negated(value: bool | None) -> bool:
        return not value

    row = USER_FUNCTIONS.pop()
    assert row.name == "NULLABLE_NOT"
    assert row.resolve([BOOLEAN]).bind([BOOLEAN])(None) is True


def test_a_name_has_one_kind_and_parameters_are_given_once() -> None:
    table = FUNCTIONS.copy()
    with pytest.raises(SqlError, match="already registered as scalar function"):
        udtf("(VARCHAR x) -> VARCHAR", name="len", into=table)(list)
    with pytest.raises(SqlError, match="same name and parameter types already exists"):
        udf("(VARCHAR x) -> INT", name="len", into=table)(len)
    with pytest.raises(SqlError, match="not a valid function name"):
        udf("(VARCHAR x) -> INT", name="a-b", into=table)(len)
    with pytest.raises(SqlError, match="does not say what it returns"):
        udf("(VARCHAR x)", name="f", into=table)
    udf("(DATE x) -> INT", name="len", into=table)(lambda days: days)
    assert len(table.find("len").overloads) == len(FUNCTIONS.find("len").overloads) + 1
    table.remove("len")
    assert "len" not in table
