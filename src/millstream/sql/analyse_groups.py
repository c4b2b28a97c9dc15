"""GROUP BY and aggregates: what may stand beside what, in ksqlDB's words for each mistake."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeGuard

from millstream.sql import ast
from millstream.sql.analysis import SelectColumn
from millstream.sql.catalog import WINDOW_BOUNDS
from millstream.sql.errors import sql_error
from millstream.sql.expression_text import text
from millstream.sql.functions.table import FunctionTable
from millstream.sql.names import BoundSource, unqualified
from millstream.sql.statements import SourceKind


class Grouping:
    """Of one query. Expressions that it is given have been qualified."""

    def __init__(
        self,
        query: ast.Query,
        sources: tuple[BoundSource, ...],
        functions: FunctionTable,
        target: SourceKind | None,
    ) -> None:
        self._query, self._sources, self._functions, self._target = query, sources, functions, target

    def aggregates(
        self,
        select: tuple[SelectColumn, ...],
        having: ast.Expression | None,
        group_by: tuple[ast.Expression, ...],
    ) -> tuple[ast.Call, ...]:
        for node in group_by:
            for part in ast.walk(node):
                if isinstance(part, ast.Call) and self._functions.is_aggregate(part.name):
                    raise sql_error("aggregate in GROUP BY", part.location, name=part.name)
                if self._is_bound(part):
                    raise sql_error("window bounds", part.location, name=part.name)
        groups: set[ast.Expression] = set()
        for node in group_by:
            if node in groups:
                raise sql_error("duplicate GROUP BY", node.location, expression=text(node))
            groups.add(node)
        if having is not None:
            for part in ast.walk(having):
                if self._is_bound(part):
                    raise sql_error("window bounds", part.location, name=part.name)
        found: dict[ast.Call, None] = {}
        nodes = [column.expression for column in select]
        for node in [*nodes, *([having] if having is not None else [])]:
            for part in ast.walk(node):
                if isinstance(part, ast.Call) and self._functions.is_aggregate(part.name):
                    self.check_aggregate(part)
                    found.setdefault(part)
        if not group_by:
            if found:
                if any(self.ungrouped(column.expression, groups) for column in select):
                    self._check_grouped(select, having, groups)
                shown_calls = ", ".join(_call_text(self.shown(call)) for call in found)
                kind = self._target or "TABLE"
                raise sql_error("aggregate without GROUP BY", kind=kind, calls=shown_calls)
            if having is not None:
                raise sql_error("HAVING without GROUP BY")
            return ()
        if not found:
            raise sql_error("GROUP BY without aggregates")
        self._check_grouped(select, having, groups)
        return tuple(found)

    def _is_bound(self, part: ast.Expression) -> TypeGuard[ast.Column]:
        return (
            isinstance(part, ast.Column)
            and part.name in WINDOW_BOUNDS
            and part.source is None
            and self._query.window is not None
        )

    def check_aggregate(self, call: ast.Call) -> None:
        for argument in call.arguments:
            for part in ast.walk(argument):
                if isinstance(part, ast.Call) and self._functions.is_aggregate(part.name):
                    nested = f"{call.name}({part.name}())"
                    raise sql_error("nested aggregates", call.location, expression=nested)
                if self._is_bound(part):
                    raise sql_error("window bounds", part.location, name=part.name)

    def shown(self, node: ast.Expression) -> ast.Expression:
        return unqualified(node) if len(self._sources) == 1 else node

    def _check_grouped(
        self,
        select: tuple[SelectColumn, ...],
        having: ast.Expression | None,
        groups: Set[ast.Expression],
    ) -> None:
        wrong = [column for column in select if self.ungrouped(column.expression, groups)]
        if wrong:
            shown = ", ".join(text(self.shown(column.expression)) for column in wrong)
            raise sql_error("not grouped", wrong[0].location, expressions=shown)
        if having is not None:
            left = self.ungrouped(having, groups)
            if left:
                shown = ", ".join(dict.fromkeys(text(self.shown(node)) for node in left))
                raise sql_error("HAVING not grouped", left[0].location, expressions=shown)

    def ungrouped(self, node: ast.Expression, groups: Set[ast.Expression]) -> list[ast.Expression]:
        """The columns that are neither inside an aggregate nor part of a grouping expression."""
        if node in groups:
            return []
        if isinstance(node, ast.Call) and self._functions.is_aggregate(node.name):
            return []
        if isinstance(node, ast.Column):
            return [] if node.source is None else [node]
        if isinstance(node, ast.Lambda):
            inside = self.ungrouped(node.body, groups)
            return [
                part for part in inside if not (isinstance(part, ast.Column) and part.name in node.parameters)
            ]
        return [part for child in ast.children(node) for part in self.ungrouped(child, groups)]


def _call_text(node: ast.Expression) -> str:
    """COUNT(*) counts rows by the one column that all of them have."""
    if isinstance(node, ast.Call) and node.name == "COUNT" and not node.arguments:
        return "COUNT(ROWTIME)"
    return text(node)
