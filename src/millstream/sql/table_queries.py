"""Pull queries beyond ksqlDB's: ORDER BY, DISTINCT, GROUP BY with aggregates and HAVING, joins; over tables.

The rows come from the views of the tables, and everything else happens here, with the functions of streaming
queries: a join is a hash join, a group holds the states of its aggregates. Conditions on the first table are
applied before the joins and, where they fix its key, become lookups; so do joins of few rows by the other
table's key. Unlike a streaming query, null is a group of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any

from millstream.sql import ast
from millstream.sql.analyse import Analyser
from millstream.sql.analysis import Analysis
from millstream.sql.catalog import WINDOW_BOUNDS, Catalog
from millstream.sql.code import Names
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError, sql_error
from millstream.sql.expression_text import text
from millstream.sql.flow import ColumnId, Flow
from millstream.sql.formats import Format
from millstream.sql.names import BoundSource, Resolver, check_alias, times_as_numbers, unqualified
from millstream.sql.plan import Planner, serdes_of
from millstream.sql.plan_aggregates import States, aggregate_call
from millstream.sql.pull import Keys, check_queryable, row_reader, serdes_of_key
from millstream.sql.results import ResultColumn, Row
from millstream.sql.row_functions import condition, projection
from millstream.sql.table_joins import LIMIT_SETTING, Budget, HashJoin, hashable, ordered
from millstream.sql.types import BIGINT, Base, SqlType
from millstream.sql.views import TableSnapshot, TableView

_FEW = 1000
"""Rows on the left of a join that are looked up one by one."""
_UNORDERED = (Base.ARRAY, Base.MAP, Base.STRUCT)
Tables = Mapping[str, TableSnapshot]
"""By the alias of the source."""


def is_table_query(query: ast.Query, catalog: Catalog, environment: Environment) -> bool:
    """Whether a pull query asks for more than ksqlDB's, and of tables only."""
    wants_more = bool(query.joins or query.group_by or query.order_by or query.distinct) or any(
        isinstance(part, ast.Call) and environment.functions.is_aggregate(part.name)
        for item in query.select
        if item.expression is not None
        for part in ast.walk(item.expression)
    )
    found = [catalog.source(one.name) for one in query.sources]
    return (
        wants_more
        and query.window is None
        and not query.partition_by
        and not any(one is not None and one.kind == "STREAM" for one in found)
    )


class _TableAnalyser(Analyser):
    """Names and groups, without the rules of streaming joins and of states."""

    def run(self) -> Analysis:
        query = self.query
        for item in query.select:
            check_alias(item)
        self._check_functions()
        resolver = Resolver(self.sources)
        select = self._select(self._stars(), resolver, ())
        self._table_functions(select, "TABLE", ())
        where = None
        if query.where is not None:
            where = times_as_numbers(resolver.qualify(query.where, "WHERE"))
        group_by = tuple(resolver.qualify(node, "GROUP BY") for node in query.group_by)
        having = None if query.having is None else resolver.qualify(query.having, "HAVING")
        self.order = tuple(
            (self._order_key(node, select, resolver), descending) for node, descending in query.order_by
        )
        nodes = [column.expression for column in select] + [node for node, _ in self.order]
        nodes += [] if having is None else [having]
        calls = dict.fromkeys(part for node in nodes for part in self._calls(node))
        if calls or group_by:
            groups = set(group_by)
            left = [part for node in nodes for part in self.grouping.ungrouped(node, groups)]
            if left:
                shown = ", ".join(dict.fromkeys(text(self.grouping.shown(node)) for node in left))
                raise SqlError(
                    "Pull queries don't support GROUP BY clauses that leave out what is selected: "
                    f"{shown} is neither grouped nor inside an aggregate function"
                )
        elif having is not None:
            raise sql_error("HAVING without GROUP BY")
        return Analysis(
            query,
            "TABLE",
            self.sources,
            (),
            select,
            where,
            group_by,
            (),
            having,
            tuple(calls),
            (),
            None,
            False,
        )

    def _calls(self, node: ast.Expression) -> Iterator[ast.Call]:
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and self.functions.is_aggregate(part.name):
                self.grouping.check_aggregate(part)
                yield part

    @staticmethod
    def _order_key(node: ast.Expression, select: Any, resolver: Resolver) -> ast.Expression:
        """A column of the result by its name or number, or anything that could have been selected."""
        if isinstance(node, ast.Literal) and isinstance(node.value, int):
            if not 1 <= node.value <= len(select):
                raise SqlError(f"ORDER BY {node.value}: the result has {len(select)} columns", node.location)
            found: ast.Expression = select[node.value - 1].expression
            return found
        if isinstance(node, ast.Column) and node.source is None:
            for column in select:
                if column.name == node.name:
                    named: ast.Expression = column.expression
                    return named
        return resolver.qualify(node, "ORDER BY")


@dataclass
class _Side:
    """A source: how its rows are read, and where its columns begin in a joined row."""

    bound: BoundSource
    environment: Environment
    start: int
    columns: dict[ColumnId, int] = field(default_factory=dict)
    types: dict[ColumnId, SqlType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = self.bound.source
        schema = source.schema
        names = [(one.name, one.type) for one in (*schema.key, *schema.value, *schema.headers)]
        names.append(("ROWTIME", BIGINT))
        if source.window is not None:
            names += WINDOW_BOUNDS.items()
        for name, type_ in names:
            self.columns[self.bound.alias, name] = self.start + len(self.columns)
            self.types[self.bound.alias, name] = type_
        self._read = row_reader(source, *serdes_of(source, self.environment))

    @property
    def width(self) -> int:
        return len(self.columns)

    def flow(self) -> Flow:
        """Of a row of this source alone."""
        columns = {name: index - self.start for name, index in self.columns.items()}
        return Flow(columns, self.types, (), Format("KAFKA"))

    def scan(self, table: TableSnapshot) -> Iterator[Row]:
        return map(self._read, table.scan())

    def look_up(self, table: TableSnapshot, keys: Iterable[Row]) -> Iterator[Row]:
        source = self.bound.source
        write = serdes_of_key(source, self.environment).write
        for key in keys:
            data = write(source.topic, key)
            if data is not None:
                yield from map(self._read, table.get(data))


@dataclass
class _Join:
    side: _Side
    hash_join: HashJoin
    by_key: bool
    """Whether the equalities are those of the right table's key, in its order."""


@dataclass
class TableQuery:
    """Made ready. `rows` reads views that have caught up."""

    columns: tuple[ResultColumn, ...]
    aliases: dict[str, str]
    """The sources to open views of, by alias."""
    run: Callable[[Tables], Iterator[Row]]

    def rows(self, views: Mapping[str, TableView]) -> Iterator[Row]:
        with contextlib.ExitStack() as stack:
            yield from self.run({alias: stack.enter_context(one.snapshot()) for alias, one in views.items()})


def plan_table_query(query: ast.Query, catalog: Catalog, environment: Environment) -> TableQuery:
    analyser = _TableAnalyser(query, catalog, environment, None, None)
    for bound in analyser.sources:
        check_queryable(bound.source, environment)
    aliases = [bound.alias for bound in analyser.sources]
    for alias in aliases:
        if aliases.count(alias) > 1:
            raise SqlError(f"{alias} stands for two sources: give one of them another alias")
    if query.limit is not None and query.limit < 0:
        raise SqlError("Pull queries don't support negative integers in the LIMIT clause.")
    return _TablePlanner(analyser.run(), analyser.order, catalog, environment).plan()


class _TablePlanner:
    def __init__(self, analysis: Analysis, order: Any, catalog: Catalog, environment: Environment) -> None:
        self._analysis, self._order = analysis, order
        self._catalog, self._environment = catalog, environment
        self._planner = Planner(analysis, catalog, environment)
        self._sides: list[_Side] = []
        for bound in analysis.sources:
            start = sum(side.width for side in self._sides)
            self._sides.append(_Side(bound, environment, start))
        columns = {name: index for side in self._sides for name, index in side.columns.items()}
        types = {name: type_ for side in self._sides for name, type_ in side.types.items()}
        self._flow = Flow(columns, types, (), Format("KAFKA"))

    def plan(self) -> TableQuery:
        query = self._analysis.query
        early, late = self._conditions()
        first = self._sides[0]
        first_passes = self._condition(early, first.flow(), "WHERE")
        keys = None
        if early:
            keys = Keys(
                first.bound.source, unqualified(_all_of(early)), self._catalog, self._environment
            ).find()
        joins = [self._join(index) for index in range(1, len(self._sides))]
        passes = self._condition(late, self._flow, "WHERE")
        grouped, flow = self._grouping()
        having = None
        if self._analysis.having is not None:
            having = self._condition([self._analysis.having], flow, "HAVING")
        project, columns = self._projection(flow)
        order_keys = self._order_keys(flow)
        descending = tuple(one for _, one in self._order)
        max_rows = int(self._environment.setting(LIMIT_SETTING, 1_000_000))

        def run(tables: Tables) -> Iterator[Row]:
            budget = Budget(max_rows)
            table = tables[first.bound.alias]
            rows = first.scan(table) if keys is None else first.look_up(table, keys)
            rows = filter(first_passes, rows) if first_passes is not None else rows
            for join in joins:
                rows = _joined(rows, join, tables[join.side.bound.alias], budget)
            rows = filter(passes, rows) if passes is not None else rows
            rows = rows if grouped is None else grouped(rows, budget)
            rows = filter(having, rows) if having is not None else rows
            if query.distinct:
                rows = _distinct(rows, project, budget)
            if descending:
                return ordered(
                    ((project(row), order_keys(row)) for row in budget.hold(rows)), descending, query.limit
                )
            return islice(map(project, rows), query.limit)

        return TableQuery(columns, {side.bound.alias: side.bound.source.name for side in self._sides}, run)

    # WHERE and joins

    def _conditions(self) -> tuple[list[ast.Expression], list[ast.Expression]]:
        """What can be asked of the first source before the joins, and what only behind them."""
        where = self._analysis.where
        if where is None:
            return [], []
        parts = _conjuncts(where)
        if any(join.type not in ("INNER", "LEFT") for join in self._analysis.query.joins):
            return [], parts
        alias = self._sides[0].bound.alias
        early = [part for part in parts if _aliases(part) <= {alias}]
        return early, [part for part in parts if part not in early]

    def _condition(
        self, parts: list[ast.Expression], flow: Flow, clause: str
    ) -> Callable[[Row], bool] | None:
        if not parts:
            return None
        node, names = _all_of(parts), Names()
        code = self._planner.code(flow, node, names)
        if code.type is None or code.type.base is not Base.BOOLEAN:
            raise sql_error(
                "filter type",
                node.location,
                clause=clause,
                expression=self._planner.shown(node),
                type=code.type,
            )
        return condition(code, self._planner.shown(node), names, self._planner.log)

    def _join(self, index: int) -> _Join:
        join, side = self._analysis.query.joins[index - 1], self._sides[index]
        if join.within is not None:
            raise SqlError(
                "WITHIN is for streams: a pull query joins what the tables have now", join.location
            )
        before = {one.bound.alias for one in self._sides[:index]}
        known = tuple(one.bound for one in self._sides[: index + 1])
        left_on, right_on, rest = [], [], []
        for part in _conjuncts(Resolver(known).qualify(join.on, "JOIN ON")):
            sides = _equality(part, before, side.bound.alias)
            if sides is None:
                rest.append(part)
                continue
            self._planner.code(self._flow, part, Names())  # whether the two can be compared at all
            left_on.append(sides[0])
            right_on.append(sides[1])
        if not left_on:
            raise SqlError(
                f"The join with {side.bound.alias} needs an equality between it and a source before it",
                join.location,
            )
        source = side.bound.source
        own = [ast.Column(one.name, side.bound.alias) for one in source.schema.key]
        types = [self._planner.code(self._flow, node, Names()).type for node in left_on]
        hash_join = HashJoin(
            join.type,
            self._values(left_on, self._flow),
            self._values(right_on, side.flow()),
            self._condition(rest, self._flow, "JOIN ON"),
            side.start,
            side.width,
        )
        by_key = right_on == own and types == [one.type for one in source.schema.key]
        by_key = by_key and not any(one.type.base in _UNORDERED for one in source.schema.key)
        return _Join(side, hash_join, by_key and join.type in ("INNER", "LEFT"))

    def _values(self, nodes: list[ast.Expression], flow: Flow) -> Callable[[Row], Row]:
        names = Names()
        coded = [
            (str(index), self._planner.code(flow, node, names), self._planner.shown(node))
            for index, node in enumerate(nodes)
        ]
        return projection(coded, names, self._planner.log)

    # GROUP BY, SELECT, ORDER BY

    def _grouping(self) -> tuple[Callable[[Iterable[Row], Budget], Iterator[Row]] | None, Flow]:
        analysis, planner = self._analysis, self._planner
        if not analysis.group_by and not analysis.aggregates:
            return None, self._flow
        make_key = self._values(list(analysis.group_by), self._flow)
        calls = [aggregate_call(planner, self._flow, call) for call in analysis.aggregates]
        states = States(planner, self._flow, calls)
        columns: dict[ColumnId, int] = {}
        types: dict[ColumnId, SqlType] = {}
        replaced: dict[ast.Expression, ColumnId] = {}
        found = [(node, planner.code(self._flow, node, Names()).type) for node in analysis.group_by]
        found += [(call, made.result_type) for made, call, _ in calls]
        for index, (node, type_) in enumerate(found):
            if type_ is None:
                raise sql_error("GROUP BY null", node.location)
            name = replaced[node] = (None, f"${index}")
            columns[name], types[name] = index, type_
        results = states.results(False, len(analysis.group_by))

        def grouped(rows: Iterable[Row], budget: Budget) -> Iterator[Row]:
            groups: dict[Any, tuple[Row, Any]] = {}
            if not analysis.group_by:
                groups[()] = ((), states.initial())
            for row in rows:
                own = make_key(row)
                key = hashable(own)
                known = groups.get(key)
                if known is None:
                    (own,) = budget.hold([own])
                    known = (own, states.initial())
                groups[key] = (known[0], states.add(None, row, known[1]))
            return (results(key, state) for key, state in groups.values())

        return grouped, Flow(columns, types, (), Format("KAFKA"), replaced=replaced)

    def _projection(self, flow: Flow) -> tuple[Callable[[Row], Row], tuple[ResultColumn, ...]]:
        names = Names()
        coded, columns = [], []
        for column in self._analysis.select:
            code = self._planner.code(flow, column.expression, names)
            if code.type is None:
                raise sql_error("select of null", column.location, name=column.name)
            coded.append((column.name, code, self._planner.shown(column.expression)))
            columns.append(ResultColumn(column.name, code.type))
        return projection(coded, names, self._planner.log), tuple(columns)

    def _order_keys(self, flow: Flow) -> Callable[[Row], Row]:
        nodes = [node for node, _ in self._order]
        for node in nodes:
            type_ = self._planner.code(flow, node, Names()).type
            if type_ is None or type_.base in _UNORDERED:
                raise SqlError(f"ORDER BY {self._planner.shown(node)}: {type_} has no order", node.location)
        return self._values(nodes, flow)


def _joined(rows: Iterable[Row], join: _Join, table: TableSnapshot, budget: Budget) -> Iterator[Row]:
    rows = iter(rows)
    if join.by_key:
        few = list(islice(rows, _FEW))
        if len(few) < _FEW:
            keys = dict.fromkeys(key for row in few if None not in (key := join.hash_join.left_key(row)))
            return join.hash_join.rows(few, join.side.look_up(table, keys))
        rows = _chained(few, rows)
    return join.hash_join.rows(rows, budget.hold(join.side.scan(table)))


def _chained(few: list[Row], rows: Iterator[Row]) -> Iterator[Row]:
    yield from few
    yield from rows


def _distinct(rows: Iterable[Row], project: Callable[[Row], Row], budget: Budget) -> Iterator[Row]:
    """Of rows that would look the same, the first."""
    seen: set[Row] = set()
    for row in rows:
        shown = hashable(project(row))
        if shown not in seen:
            seen.update(budget.hold([shown]))
            yield row


def _conjuncts(node: ast.Expression) -> list[ast.Expression]:
    if isinstance(node, ast.Logical) and node.operator == "AND":
        return _conjuncts(node.left) + _conjuncts(node.right)
    return [node]


def _all_of(parts: list[ast.Expression]) -> ast.Expression:
    return reduce(lambda left, right: ast.Logical("AND", left, right), parts)


def _aliases(node: ast.Expression) -> set[str]:
    return {
        part.source for part in ast.walk(node) if isinstance(part, ast.Column) and part.source is not None
    }


def _equality(
    part: ast.Expression, before: set[str], alias: str
) -> tuple[ast.Expression, ast.Expression] | None:
    """Left and right side, if the condition is an equality between the two."""
    if not isinstance(part, ast.Compare) or part.operator != "=":
        return None
    for left, right in ((part.left, part.right), (part.right, part.left)):
        if _aliases(left) and _aliases(left) <= before and _aliases(right) == {alias}:
            return left, right
    return None
