"""Names in a query: which source a column belongs to, and what columns of the result are called.

`Resolver.qualify` writes the source's alias into every column of an expression, so that equal expressions are
equal however they were written, and refuses what is unknown or ambiguous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from millstream.sql import ast
from millstream.sql.catalog import PSEUDO_COLUMNS, SYSTEM_COLUMNS, WINDOW_BOUNDS, Schema, Source
from millstream.sql.errors import EvaluationError, sql_error
from millstream.sql.expression_text import text
from millstream.sql.lexer import name_text
from millstream.sql.times import parse_timestamp
from millstream.sql.types import SqlType

SYNTHETIC = "ROWKEY"
"""The key of a join on expressions, or of a full outer join: no column of a source."""


@dataclass(frozen=True, slots=True)
class BoundSource:
    """A source under its alias."""

    alias: str
    source: Source

    @property
    def schema(self) -> Schema:
        return self.source.schema

    def type_of(self, name: str) -> SqlType | None:
        column = self.source.schema.find(name)
        if column is not None:
            return column.type
        if name in PSEUDO_COLUMNS:
            return PSEUDO_COLUMNS[name]
        if name in WINDOW_BOUNDS and self.source.window is not None:
            return WINDOW_BOUNDS[name]
        return None


@dataclass(frozen=True, slots=True)
class Resolver:
    """`extra` are names without a source: the synthetic key of a join, the bounds of the query's windows."""

    sources: tuple[BoundSource, ...]
    extra: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    """Aliases of sources that are known, but come only behind the place of the expression."""

    def qualify(self, node: ast.Expression, clause: str) -> ast.Expression:
        aliases = {bound.alias for bound in self.sources} | self.later
        for part in ast.walk(node):
            if isinstance(part, ast.Column) and part.source is not None and part.source not in aliases:
                raise sql_error("unknown alias", part.location, name=part.source)
        return self._qualify(node, clause, frozenset())

    def _qualify(self, node: ast.Expression, clause: str, variables: frozenset[str]) -> ast.Expression:
        def change(part: ast.Expression) -> ast.Expression | None:
            if isinstance(part, ast.Lambda):
                self._check_parameters(part)
                inner = variables | frozenset(part.parameters)
                return replace(part, body=self._qualify(part.body, clause, inner))
            if isinstance(part, ast.Column):
                return part if part.source is None and part.name in variables else self.column(part, clause)
            return None

        return ast.rewrite(node, change)

    def _check_parameters(self, node: ast.Lambda) -> None:
        for name in node.parameters:
            if any(bound.schema.find(name) is not None for bound in self.sources):
                raise sql_error("lambda parameter of a column", node.location, name=name)
        if len(set(node.parameters)) < len(node.parameters):
            shown = f"[{', '.join(node.parameters)}]"
            raise sql_error("lambda parameter repeated", node.location, names=shown)

    def column(self, node: ast.Column, clause: str) -> ast.Column:
        if node.source is not None:
            if node.name in self.extra and node.name in WINDOW_BOUNDS:
                return replace(node, source=None)
            for bound in self.sources:
                if bound.alias == node.source and bound.type_of(node.name) is not None:
                    return node
            raise self._unresolved(node, clause)
        if node.name in self.extra:
            return node
        found = [bound for bound in self.sources if bound.type_of(node.name) is not None]
        if not found:
            raise self._unresolved(node, clause)
        if len(found) > 1:
            options = sorted(f"{name_text(bound.alias)}.{name_text(node.name)}" for bound in found)
            raise sql_error("ambiguous column", node.location, name=node.name, options=" or ".join(options))
        return replace(node, source=found[0].alias)

    def _unresolved(self, node: ast.Column, clause: str) -> Exception:
        shown = text(node)
        hint = ""
        if clause == "PARTITION BY":
            hint = (
                f" '{shown}' must be a column in the source schema since PARTITION BY is applied on the "
                "input."
            )
        elif node.name == "ROWKEY":
            hint = self._key_today(node.source)
        return sql_error("unresolved column", node.location, clause=clause, name=shown, hint=hint)

    def _key_today(self, alias: str | None) -> str:
        """Before ksqlDB 0.10, of which most tutorials are, ROWKEY was the key of every source."""
        keys = [
            f"{name_text(bound.alias)}.{name_text(column.name)}"
            for bound in self.sources
            for column in bound.schema.key
            if alias in (None, bound.alias)
        ]
        here = f"here {', '.join(keys)}" if keys else "and this one has none"
        return f"\nThere is no ROWKEY today: a key is a column that the source declares, {here}."

    def type_of(self, node: ast.Column) -> SqlType | None:
        for bound in self.sources:
            if bound.alias == node.source:
                return bound.type_of(node.name)
        return None


def unqualified(node: ast.Expression) -> ast.Expression:
    """As a query of one source shows it."""
    return ast.rewrite(
        node, lambda part: replace(part, source=None) if isinstance(part, ast.Column) else None
    )


def internal(node: ast.Expression) -> ast.Expression:
    """As joins show it in messages: columns are called SOURCE_COLUMN behind them."""

    def change(part: ast.Expression) -> ast.Expression | None:
        if isinstance(part, ast.Column) and part.source is not None:
            return replace(part, name=f"{part.source}_{part.name}", source=None)
        return None

    return ast.rewrite(node, change)


_TIMES = frozenset({"ROWTIME", *WINDOW_BOUNDS})


def times_as_numbers(node: ast.Expression) -> ast.Expression:
    """ROWTIME and the bounds of windows are numbers; beside them, text is a time: ROWTIME > '2020-01-01'."""

    def change(part: ast.Expression) -> ast.Expression | None:
        if isinstance(part, ast.Compare):
            left, right = part.left, part.right
            if _is_time(left) or _is_time(right):
                return replace(part, left=_number(left), right=_number(right))
        if isinstance(part, ast.Between) and _is_time(part.value):
            return replace(part, lower=_number(part.lower), upper=_number(part.upper))
        return None

    return ast.rewrite(node, change)


def _is_time(node: ast.Expression) -> bool:
    return isinstance(node, ast.Column) and node.name in _TIMES


def _number(node: ast.Expression) -> ast.Expression:
    if not isinstance(node, ast.Literal) or not isinstance(node.value, str):
        return node
    try:
        return ast.Literal(parse_timestamp(node.value.strip()), long=True, location=node.location)
    except (EvaluationError, ValueError) as error:
        raise sql_error("no time", node.location, value=node.value, why=str(error)) from None


_GENERATED = re.compile(r"KSQL_COL_(\d+)\Z")


class Aliases:
    """Names for columns of the result that were given none."""

    def __init__(self, sources: tuple[BoundSource, ...], aliases: tuple[str, ...]) -> None:
        columns = [column.name for bound in sources for column in bound.schema.columns]
        self._taken = {*columns, *aliases}
        self._fields = {*columns}
        numbers = [int(match[1]) for name in self._taken if (match := _GENERATED.match(name))]
        self._next = max(numbers) + 1 if numbers else 0

    def generated(self) -> str:
        name = f"KSQL_COL_{self._next}"
        self._next += 1
        return name

    def of_field(self, name: str) -> str:
        """The field's own name, with a number where that is taken."""
        found, number = name, 0
        while found in self._fields:
            number += 1
            found = f"{name}_{number}"
        self._fields.add(found)
        return found


def check_alias(item: ast.SelectItem) -> None:
    if item.alias in SYSTEM_COLUMNS:
        expression = item.expression
        if isinstance(expression, ast.Column) and expression.name == item.alias:
            return
        raise sql_error("reserved alias", item.location, name=item.alias)
