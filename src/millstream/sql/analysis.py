"""What the analyser finds out about a query: the nodes that the planner works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.sql import ast
from millstream.sql.catalog import Schema, WindowInfo
from millstream.sql.lexer import Location
from millstream.sql.names import BoundSource
from millstream.sql.statements import SourceKind


@dataclass(frozen=True, slots=True)
class JoinStep:
    """One more source joined to those before.

    left_on, right_on   the two sides of the condition
    foreign_key         table-table, and the left side is not the left table's key
    key                 the expressions under which the result's key can be selected, the first is its name
    synthetic           the key is no column of any source
    equal               all expressions that are the key, columns or not
    """

    type: ast.JoinType
    right: BoundSource
    left_on: ast.Expression
    right_on: ast.Expression
    within: ast.Within | None
    foreign_key: bool
    key: tuple[ast.Expression, ...]
    synthetic: str | None = None
    equal: tuple[ast.Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectColumn:
    """A column of the result. `key` is the place in the key, or None for a value."""

    name: str
    expression: ast.Expression
    original: ast.Expression
    key: int | None = None
    location: Location = ast.NOWHERE


@dataclass(frozen=True, slots=True)
class Analysis:
    """A query whose names are resolved; types are checked when it is planned."""

    query: ast.Query
    kind: SourceKind
    sources: tuple[BoundSource, ...]
    joins: tuple[JoinStep, ...]
    select: tuple[SelectColumn, ...]
    where: ast.Expression | None
    group_by: tuple[ast.Expression, ...]
    partition_by: tuple[ast.Expression, ...]
    having: ast.Expression | None
    aggregates: tuple[ast.Call, ...]
    table_functions: tuple[ast.Call, ...]
    window: WindowInfo | None
    """Of the result's keys."""
    persistent: bool
    key_expressions: tuple[tuple[ast.Expression, ...], ...] = ()
    """For each column of the result's key, how it can be selected."""
    schema: Schema = field(default_factory=Schema)


def grace_of(window: ast.Window, emit: str | None) -> int:
    """How long late rows are taken, in milliseconds. Without a GRACE PERIOD a window is kept for a day,
    unless its result has to be final."""
    if window.grace is not None:
        return window.grace.milliseconds
    return 0 if emit == "FINAL" else max(ast.UNITS["DAY"] - window.size.milliseconds, 0)
