"""Python twins of functions that ksqlDB's tests bring in Java, so that cases which use them can be played."""

from __future__ import annotations

from typing import Any

from millstream.sql.functions import FUNCTIONS
from millstream.sql.functions.table import FunctionTable
from millstream.sql.functions.user import udaf, udf, udtf

# Names whose cases are skipped.
WITHOUT_TWIN: tuple[str, ...] = ()


def _fail(text: str) -> None:
    raise ValueError(text)


def functions() -> FunctionTable:
    table = FUNCTIONS.copy()
    _scalars(table)
    _table_functions(table)
    _aggregates(table)
    return table


def _scalars(table: FunctionTable) -> None:
    turns = iter(range(1_000_000))

    @udf("(INT arg) -> VARCHAR", name="bad_udf", into=table)
    def blow_up(_arg: int) -> None:
        _fail("boom!")

    @udf("(BOOLEAN arg) -> INT", name="bad_udf", into=table)
    def might_throw(arg: bool) -> int:
        if arg:
            _fail("You asked me to throw...")
        return 0

    @udf("(VARCHAR arg) -> VARCHAR", name="bad_udf", nulls=True, into=table)
    def every_other(arg: str | None) -> str | None:
        return None if next(turns) % 2 == 0 else arg

    @udf("(BOOLEAN value, BOOLEAN evaluated) -> BOOLEAN", name="whencondition", into=table)
    def when_condition(value: bool, evaluated: bool) -> bool:
        if not evaluated:
            _fail("When condition in case is not running lazily!")
        return value

    @udf("(INT value, BOOLEAN evaluated) -> INT", name="whenresult", into=table)
    def when_result(value: int, evaluated: bool) -> int:
        if not evaluated:
            _fail("Then expression in case is not running lazily!")
        return value

    @udf("(VARCHAR value) -> STRUCT<A VARCHAR>", name="tostruct", into=table)
    def to_struct(value: str) -> dict[str, Any]:
        return {"A": value}

    for signature, name in (
        ("(INT a, VARCHAR b) -> VARCHAR", "doStuffIntString"),
        ("(BIGINT a, VARCHAR b) -> VARCHAR", "doStuffLongString"),
        ("(BIGINT a, BIGINT b, VARCHAR c) -> VARCHAR", "doStuffLongLongString"),
        ("(BIGINT... longs) -> VARCHAR", "doStuffLongVarargs"),
    ):
        udf(signature, name="test_udf", nulls=True, into=table)(lambda *_arguments, name=name: name)
    udf("(STRUCT<A VARCHAR> struct) -> VARCHAR", name="test_udf", into=table)(lambda struct: struct["A"])
    udf("() -> STRUCT<A VARCHAR>", name="test_udf", into=table)(lambda: {"A": "foo"})


def _table_functions(table: FunctionTable) -> None:
    @udtf("(BOOLEAN throw) -> BOOLEAN", name="throwing_udtf", into=table)
    def throw_if_true(throw: bool) -> list[bool]:
        if throw:
            _fail("You asked me to throw...")
        return [throw]

    def shown(value: Any) -> str:
        from millstream.serdes.java_text import double_text

        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, dict):
            return "Struct{" + ",".join(f"{name}={item}" for name, item in value.items()) + "}"
        return double_text(value) if isinstance(value, float) else str(value)

    inner = ("INT", "BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "DECIMAL", "STRUCT<A VARCHAR>")
    plain = ", ".join(inner)
    lists = ", ".join(f"ARRAY<{one}>" for one in inner)
    maps = ", ".join(f"MAP<VARCHAR, {one}>" for one in inner)
    udtf(f"({plain}) -> VARCHAR", name="test_udtf", into=table)(
        lambda *values: [shown(one) for one in values]
    )
    udtf(f"({lists}) -> VARCHAR", name="test_udtf", into=table)(
        lambda *values: [shown(one[0]) for one in values]
    )
    for signature in (maps, maps.replace("MAP<VARCHAR, INT>", "MAP<BIGINT, INT>", 1)):
        udtf(f"({signature}) -> VARCHAR", name="test_udtf", into=table)(
            lambda *values: [shown(next(iter(one.values()))) for one in values]
        )
    for one in ("INT", "BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "STRUCT<A VARCHAR>"):
        udtf(f"({one} value) -> {one}", name="test_udtf", into=table)(lambda value: [value])
    from millstream.sql.types import decimal_type

    udtf(
        "(DECIMAL value) -> DECIMAL", name="test_udtf", result=lambda _types: decimal_type(30, 10), into=table
    )(lambda value: [value])


class _Sum:
    def initial(self) -> Any:
        return 0

    def add(self, state: Any, value: Any) -> Any:
        return state + (value or 0)

    def merge(self, one: Any, other: Any) -> Any:
        return one + other

    def undo(self, state: Any, value: Any) -> Any:
        return state - (value or 0)


class _SumStruct:
    def initial(self) -> Any:
        return {"A": 0, "B": 0}

    def add(self, state: Any, value: Any) -> Any:
        return {name: state[name] + value[name] for name in ("A", "B")}

    merge = add


class _Lengths:
    """The sum of numbers and of the lengths of texts."""

    def __init__(self, *constants: int) -> None:
        self._constant = sum(constants)

    def initial(self) -> int:
        return 0

    def add(self, state: int, first: int | None, *texts: str | None) -> int:
        return state + (first or 0) + sum(len(text) for text in texts if text is not None)

    def merge(self, one: int, other: int) -> int:
        return one + other

    def result(self, state: int) -> int:
        return state + self._constant


class _LengthsFrom:
    """The same for any columns, from a sum that literals give."""

    def __init__(self, first: int = 0, *texts: str) -> None:
        self._first = first + sum(map(len, texts))

    def initial(self) -> int:
        return self._first

    def add(self, state: int, *values: Any) -> int:
        return state + sum(len(value) if isinstance(value, str) else value or 0 for value in values)

    def merge(self, one: int, other: int) -> int:
        return one + other


class _WhereAll:
    """The first column of rows in which nothing is null."""

    def initial(self) -> list[int]:
        return []

    def add(self, state: list[int], first: int | None, *others: Any) -> list[int]:
        whole = first is not None and all(other is not None for other in others)
        return [*state, first] if whole and first is not None else state

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        return one + other


def _aggregates(table: FunctionTable) -> None:
    for type_ in ("INT", "BIGINT"):
        udaf(f"({type_} value) -> BIGINT", state="BIGINT", name="test_udaf", into=table)(_Sum)
    struct = "STRUCT<A INT, B INT>"
    udaf(f"({struct} value) -> {struct}", state=struct, name="test_udaf", into=table)(_SumStruct)
    udaf("(BIGINT first, VARCHAR... texts) -> BIGINT", state="BIGINT", name="var_arg", into=table)(_Lengths)
    udaf(
        "(BIGINT first, VARCHAR... texts, INT one, INT two) -> BIGINT",
        state="BIGINT",
        name="mid_var_arg",
        literals=2,
        into=table,
    )(_Lengths)
    udaf("(INT first, ANY... others) -> ARRAY<INT>", state="ARRAY<INT>", name="obj_col_arg", into=table)(
        _WhereAll
    )
    for name, columns in (
        ("multi_arg", "BIGINT, VARCHAR"),
        ("four_arg", "BIGINT, VARCHAR, VARCHAR, VARCHAR"),
        ("five_arg", "BIGINT, VARCHAR, VARCHAR, VARCHAR, INT"),
    ):
        signature = f"({columns}, INT first, VARCHAR... texts) -> BIGINT"
        udaf(signature, state="BIGINT", name=name, literals=2, into=table)(_LengthsFrom)
