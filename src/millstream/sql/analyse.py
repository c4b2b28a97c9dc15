"""The analyser: a query and a catalog become an `Analysis`, or the one error that says what is wrong.

Order matters, because a statement with several mistakes gets the message that ksqlDB gives: sources, aliases,
names, joins, grouping, then the key of the result.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.sql import ast
from millstream.sql.analyse_groups import Grouping
from millstream.sql.analyse_joins import analyse_joins
from millstream.sql.analysis import Analysis, JoinStep, SelectColumn, grace_of
from millstream.sql.catalog import PSEUDO_COLUMNS, SYSTEM_COLUMNS, WINDOW_BOUNDS, Catalog, WindowInfo
from millstream.sql.code import Code
from millstream.sql.codegen import Compiler
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError, join_english, sql_error
from millstream.sql.expression_text import text
from millstream.sql.functions.table import FunctionTable
from millstream.sql.names import (
    Aliases,
    BoundSource,
    Resolver,
    check_alias,
    times_as_numbers,
)
from millstream.sql.statements import SourceKind
from millstream.sql.type_names import resolver as type_resolver
from millstream.sql.types import SqlType, StructType, quoted


def analyse(
    query: ast.Query,
    catalog: Catalog,
    environment: Environment,
    *,
    sink: str | None = None,
    target: SourceKind | None = None,
) -> Analysis:
    """`sink` is the name of the source that the query feeds, None for a query whose rows go to a client;
    `target` what the statement says it makes."""
    return Analyser(query, catalog, environment, sink, target).run()


class Analyser:
    def __init__(
        self,
        query: ast.Query,
        catalog: Catalog,
        environment: Environment,
        sink: str | None,
        target: SourceKind | None,
    ) -> None:
        self.catalog, self.environment = catalog, environment
        self.functions: FunctionTable = environment.functions
        query = _of_row_times(query, self.functions)
        self.query = query if sink is not None else _as_one_group(query, self.functions)
        self.sink, self.target = sink, target
        self.sources = tuple(self._bound(source) for source in query.sources)
        self.grouping = Grouping(self.query, self.sources, self.functions, target)

    def _bound(self, source: ast.Source) -> BoundSource:
        found = self.catalog.source(source.name)
        if found is None:
            raise sql_error("unknown source", source.location, name=source.name)
        return BoundSource(source.alias, found)

    def _type_of(self, node: ast.Expression) -> SqlType | None:
        scope = _Types(self.sources)
        return Compiler(scope, self.functions, type_resolver(self.catalog)).type_of(node)

    def run(self) -> Analysis:
        query = self.query
        persistent = self.sink is not None
        if query.order_by or query.distinct:
            line, column = query.beyond
            raise sql_error("order or distinct", query.beyond, line=line, column=column)
        for item in query.select:
            check_alias(item)
        items = self._stars()
        self._check_functions()
        if persistent:
            self._bounds_without_windows(items)
        joins = analyse_joins(query, self.sources, self._type_of)
        extra = {step.synthetic for step in joins if step.synthetic is not None}
        windowed = query.window is not None
        resolver = Resolver(self.sources, frozenset(extra))
        in_select = Resolver(self.sources, frozenset(extra | (set(WINDOW_BOUNDS) if windowed else set())))
        select = self._select(items, in_select, joins)
        if persistent:
            self._reserved(select)
        where = None
        if query.where is not None:
            self._no_bounds_in_where(query.where)
            where = times_as_numbers(resolver.qualify(query.where, "WHERE"))
        group_by = tuple(in_select.qualify(node, "GROUP BY") for node in query.group_by)
        partition_by = tuple(resolver.qualify(node, "PARTITION BY") for node in query.partition_by)
        having = None if query.having is None else in_select.qualify(query.having, "HAVING")
        kind: SourceKind = "TABLE" if query.group_by or self.sources[0].source.kind == "TABLE" else "STREAM"
        aggregates = self.grouping.aggregates(select, having, group_by)
        table_functions = self._table_functions(select, kind if not query.group_by else "TABLE", group_by)
        if kind == "TABLE" and partition_by:
            raise sql_error("PARTITION BY of a table")
        self._check_partition_by(partition_by)
        self._check_clauses(group_by, kind)
        window = self._window(kind, joins)
        analysis = Analysis(
            query,
            kind,
            self.sources,
            joins,
            select,
            where,
            group_by,
            partition_by,
            having,
            aggregates,
            table_functions,
            window,
            persistent,
        )
        self._check_formats(group_by, joins)
        self._check_target(kind)
        return analysis

    # SELECT -------------------------------------------------------------------------------------------------

    def _stars(self) -> list[ast.SelectItem]:
        """`*` is left to `_select`; unknown sources of `x.*` are refused at once."""
        known = {bound.alias for bound in self.sources}
        for item in self.query.select:
            if item.star and item.source is not None and item.source not in known:
                raise sql_error("unknown alias", item.location, name=item.source)
        return list(self.query.select)

    def _check_functions(self) -> None:
        """A function that does not exist is said before anything about what is around it."""
        query = self.query
        nodes = [item.expression for item in query.select]
        nodes += [*query.group_by, *query.partition_by, query.where, query.having]
        for node in nodes:
            for part in () if node is None else ast.walk(node):
                if isinstance(part, ast.Call):
                    self.functions.find(part.name)

    def _bounds_without_windows(self, items: list[ast.SelectItem]) -> None:
        for item in items:
            expression = item.expression
            if isinstance(expression, ast.Column) and item.alias in (None, expression.name):
                name = expression.name
                if name in WINDOW_BOUNDS and len(self.sources) == 1:
                    raise sql_error("reserved in select", item.location, name=name)

    def _reserved(self, select: tuple[SelectColumn, ...]) -> None:
        partitioned = [
            Resolver(self.sources).qualify(node, "PARTITION BY") for node in self.query.partition_by
        ]
        for column in select:
            if column.name in SYSTEM_COLUMNS and column.expression not in partitioned:
                raise sql_error("reserved in select", column.location, name=column.name)

    def _select(
        self, items: list[ast.SelectItem], resolver: Resolver, joins: tuple[JoinStep, ...]
    ) -> tuple[SelectColumn, ...]:
        aliases = Aliases(self.sources, tuple(item.alias for item in items if item.alias))
        found: list[SelectColumn] = []
        for item in items:
            if item.star and item.expression is None:
                found.extend(self._star(item, joins))
            elif item.star and item.expression is not None:
                found.extend(self._all_fields(item, resolver))
            elif item.expression is not None:
                expression = resolver.qualify(item.expression, "SELECT")
                name = item.alias or self._alias(item.expression, expression, aliases)
                found.append(SelectColumn(name, expression, item.expression, location=item.location))
        seen: set[str] = set()
        for column in found:
            if column.name in seen:
                raise self._duplicate(column)
            seen.add(column.name)
        return tuple(found)

    def _duplicate(self, column: SelectColumn) -> SqlError:
        """In ksqlDB's words, which name the second of the two, with its type."""
        node = column.expression
        is_key = isinstance(node, ast.Column) and any(
            node.name == key.name for bound in self.sources for key in bound.source.schema.key
        )
        shown = f"{quoted(column.name)} {self._type_of(node) or ''}".rstrip()
        if is_key:
            return sql_error("duplicate in select", column.location, side="key", column=f"{shown} KEY")
        return sql_error("duplicate in select", column.location, side="value", column=shown)

    def _alias(self, original: ast.Expression, qualified: ast.Expression, aliases: Aliases) -> str:
        if isinstance(qualified, ast.Column):
            name = qualified.name
            if qualified.source is not None and len(self.sources) > 1:
                others = [bound for bound in self.sources if bound.alias != qualified.source]
                if any(bound.type_of(name) is not None for bound in others):
                    return f"{qualified.source}_{name}"
            return name
        if isinstance(qualified, ast.Field):
            return aliases.of_field(qualified.name)
        return aliases.generated()

    def _star(self, item: ast.SelectItem, joins: tuple[JoinStep, ...]) -> list[SelectColumn]:
        found: list[SelectColumn] = []
        if item.source is None:
            if joins and joins[-1].synthetic is not None:
                column = ast.Column(joins[-1].synthetic)
                found.append(SelectColumn(joins[-1].synthetic, column, column))
            found.extend(self._partition_keys())
        for bound in self.sources:
            if item.source is not None and bound.alias != item.source:
                continue
            columns = [column.name for column in bound.schema.columns]
            if bound.source.window is not None and (self.sink is None or len(self.sources) > 1):
                keys = len(bound.schema.key)
                columns[keys:keys] = list(WINDOW_BOUNDS)
            if self.query.partition_by:
                columns = self._repartitioned(bound)
            for name in columns:
                expression = ast.Column(name, bound.alias, location=item.location)
                shown = name if len(self.sources) == 1 else f"{bound.alias}_{name}"
                found.append(SelectColumn(shown, expression, expression, location=item.location))
        return found

    def _repartitioned(self, bound: BoundSource) -> list[str]:
        """The order in which `*` gives the columns behind PARTITION BY: the old key is among the values, at
        their end; behind a join, the time and place of each side's record too."""
        schema = bound.schema
        columns = [column.name for column in schema.columns if column.namespace != "key"]
        if len(self.sources) > 1:
            columns += list(PSEUDO_COLUMNS)
        return columns + [column.name for column in schema.key]

    def _partition_keys(self) -> list[SelectColumn]:
        """With PARTITION BY an expression, `*` has the new key too."""
        resolver = Resolver(self.sources)
        aliases = Aliases(self.sources, tuple(item.alias for item in self.query.select if item.alias))
        found = []
        for node in self.query.partition_by:
            if isinstance(node, ast.Literal) and node.value is None:
                continue
            qualified = resolver.qualify(node, "PARTITION BY")
            if isinstance(qualified, ast.Column) and not (
                qualified.name in SYSTEM_COLUMNS and len(self.sources) == 1
            ):
                continue
            if isinstance(qualified, ast.Column):
                name = qualified.name
            elif isinstance(qualified, ast.Field):
                name = aliases.of_field(qualified.name)
            else:
                name = aliases.generated()
            found.append(SelectColumn(name, qualified, node))
        return found

    def _all_fields(self, item: ast.SelectItem, resolver: Resolver) -> list[SelectColumn]:
        """`->*`: fields keep their names, unlike a field that is selected by itself. Doubles are refused."""
        assert item.expression is not None
        base = resolver.qualify(item.expression, "SELECT")
        type_ = self._type_of(base)
        if not isinstance(type_, StructType):
            part = "Field" if isinstance(base, ast.Field) else "Column"
            name = base.name if isinstance(base, ast.Column | ast.Field) else text(item.expression)
            raise sql_error("no struct for star", item.location, part=part, name=quoted(name))
        return [
            SelectColumn(name, field, field, location=item.location)
            for name, _ in type_.fields
            for field in [ast.Field(base, name, location=item.location)]
        ]

    # Grouping -----------------------------------------------------------------------------------------------

    def _no_bounds_in_where(self, where: ast.Expression) -> None:
        if self.query.window is None:
            return
        for part in ast.walk(where):
            if not isinstance(part, ast.Column) or part.name not in WINDOW_BOUNDS:
                continue
            if not any(bound.type_of(part.name) is not None for bound in self.sources):
                raise sql_error("unknown column in WHERE", part.location, name=part.name)

    def _table_functions(
        self, select: tuple[SelectColumn, ...], kind: str, group_by: tuple[ast.Expression, ...]
    ) -> tuple[ast.Call, ...]:
        found: dict[ast.Call, None] = {}
        for column in select:
            for part in ast.walk(column.expression):
                if isinstance(part, ast.Call) and self.functions.is_table(part.name):
                    found.setdefault(part)
                    for argument in part.arguments:
                        for inner in ast.walk(argument):
                            if isinstance(inner, ast.Call) and self.functions.is_table(inner.name):
                                raise sql_error("nested table functions", outer=part.name, inner=inner.name)
        if found and group_by:
            raise sql_error("table functions and aggregates")
        for column in select:
            for part in ast.walk(column.expression):
                if isinstance(part, ast.Case) and any(one in found for one in ast.walk(part)):
                    raise sql_error("table functions in CASE", expression=text(self.grouping.shown(part)))
        if found and kind == "TABLE":
            raise sql_error("table functions of a table")
        return tuple(found)

    # The rest -----------------------------------------------------------------------------------------------

    def _check_partition_by(self, nodes: tuple[ast.Expression, ...]) -> None:
        for index, node in enumerate(nodes):
            if node in nodes[:index]:
                raise sql_error("duplicate PARTITION BY", expression=text(self.grouping.shown(node)))
        if len(nodes) > 1 and any(isinstance(node, ast.Literal) and node.value is None for node in nodes):
            raise sql_error("PARTITION BY null and more")

    def _check_clauses(self, group_by: tuple[ast.Expression, ...], kind: str) -> None:
        query = self.query
        if query.window is not None:
            if not group_by:
                raise sql_error("WINDOW without GROUP BY", query.window.location)
            if self.sources[0].source.kind == "TABLE":
                raise sql_error("windows of a table")
        if query.emit == "FINAL" and query.window is None:
            raise sql_error("EMIT FINAL")
        del kind
        if group_by and self.sources[0].source.kind == "TABLE":
            self._check_table_aggregates()

    def _check_table_aggregates(self) -> None:
        names: dict[str, None] = {}
        nodes = [item.expression for item in self.query.select if item.expression is not None]
        for node in [*nodes, *([self.query.having] if self.query.having is not None else [])]:
            for part in ast.walk(node):
                if not isinstance(part, ast.Call) or not self.functions.is_aggregate(part.name):
                    continue
                if not any(one.undoes for one in self.functions.find(part.name).overloads):
                    names.setdefault(part.name)
        if names:
            shown = list(names)
            entry = "aggregates without undo" if len(shown) > 1 else "aggregate without undo"
            raise sql_error(entry, names=join_english(shown))

    def _window(self, kind: str, joins: tuple[JoinStep, ...]) -> WindowInfo | None:
        window = self.query.window
        if window is not None:
            _check_window(window, self.query.emit)
            size = None if window.type == "SESSION" else window.size.milliseconds
            return WindowInfo(window.type, size)
        if self.query.group_by or self.query.partition_by:
            return None
        del kind, joins
        return self.sources[0].source.window

    def _check_formats(self, group_by: tuple[ast.Expression, ...], joins: tuple[JoinStep, ...]) -> None:
        what = "JOIN" if joins else "GROUP BY" if group_by else None
        if what is None:
            return
        wrong = [bound.source.name for bound in self.sources if bound.source.value_format.name == "KAFKA"]
        if wrong and self.sink is not None:
            raise sql_error("KAFKA format", names=", ".join(wrong), what=what)

    def _check_target(self, kind: SourceKind) -> None:
        if self.target is not None and self.target != kind:
            raise sql_error("result type", kind=kind)


def _check_window(window: ast.Window, emit: str | None) -> None:
    size = window.size.milliseconds
    if size <= 0:
        raise sql_error("session gap" if window.type == "SESSION" else "window size", window.location)
    if window.advance is not None and not 0 < window.advance.milliseconds <= size:
        raise sql_error("window advance", window.location, size=size, advance=window.advance.milliseconds)
    grace = grace_of(window, emit)
    if window.retention is not None and window.retention.milliseconds < size + grace:
        entry = "session retention" if window.type == "SESSION" else "window retention"
        kept = window.retention.milliseconds
        raise sql_error(entry, window.location, size=size, grace=grace, retention=kept)


def _of_row_times(query: ast.Query, functions: FunctionTable) -> ast.Query:
    """An aggregate of `*` or of nothing is one of ROWTIME, but for those that take nothing, as COUNT."""
    rowtime = ast.Column("ROWTIME", query.source.alias if query.joins else None)

    def change(node: ast.Expression) -> ast.Expression | None:
        if not isinstance(node, ast.Call) or node.arguments or not functions.is_aggregate(node.name):
            return None
        if any(one.params_for(0) is not None for one in functions.find(node.name).overloads):
            return None
        return replace(node, arguments=(replace(rowtime, location=node.location),))

    select = tuple(
        item if item.expression is None else replace(item, expression=ast.rewrite(item.expression, change))
        for item in query.select
    )
    having = None if query.having is None else ast.rewrite(query.having, change)
    return replace(query, select=select, having=having)


def _as_one_group(query: ast.Query, functions: FunctionTable) -> ast.Query:
    """A push query that aggregates without GROUP BY has one group: all rows."""
    if query.emit is None or query.group_by:
        return query
    for item in query.select:
        for part in () if item.expression is None else ast.walk(item.expression):
            if isinstance(part, ast.Call) and functions.is_aggregate(part.name):
                return replace(query, group_by=(ast.Literal(1),))
    return query


class _Types:
    """Types of columns, without any place where they could be found at run time."""

    def __init__(self, sources: tuple[BoundSource, ...]) -> None:
        self._resolver = Resolver(sources)

    def column(self, node: ast.Column) -> Code:
        return Code("x", self._resolver.type_of(node))
