"""Table functions: one row becomes as many as the list that they return."""

from __future__ import annotations

from typing import Any

from millstream.sql.errors import EvaluationError
from millstream.sql.functions.table import Function, overload, table_function

_MAX_COLUMNS = 20


def _cube(columns: list[Any] | None) -> list[list[Any]]:
    """All combinations of the columns, each there or null. A column that is null gives none of its own."""
    if columns is None:
        return []
    if len(columns) > _MAX_COLUMNS:
        raise EvaluationError(f"cube_explode: too many columns ({len(columns)}); max is {_MAX_COLUMNS}")
    rows: list[list[Any]] = [[]]
    for column in columns:
        rows = [[*row, value] for row in rows for value in ((None,) if column is None else (None, column))]
    return rows


def _explode(values: list[Any] | None) -> list[Any]:
    return values or []


ROWS: list[Function] = [
    table_function(
        "CUBE_EXPLODE",
        "A row for each combination of the elements of an array, each there or null.",
        overload("(ARRAY<T> columns) -> ARRAY<T>", _cube, own_nulls=True),
    ),
    table_function(
        "EXPLODE",
        "A row for each element of an array.",
        overload("(ARRAY<T> list) -> T", _explode, own_nulls=True),
    ),
]
