"""Pull queries: the rows that a table has now, from its view.

Conditions that fix every column of the key (by = or IN) become lookups; everything else is a scan with the
condition as a filter. Where scans are switched off, a condition that leaves the key open is refused with
ksqlDB's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from millstream.sql import ast
from millstream.sql.analyse import analyse
from millstream.sql.catalog import WINDOW_BOUNDS, Catalog, Source
from millstream.sql.code import Code, Names
from millstream.sql.codegen import Compiler
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError
from millstream.sql.expression_text import text
from millstream.sql.header_views import without_headers
from millstream.sql.insert_values import coerced
from millstream.sql.names import unqualified
from millstream.sql.plan import serdes_of
from millstream.sql.plan_sources import header_reader
from millstream.sql.pull_where import (
    MORE,
    PUSH,
    check_where,
    disjuncts,
    invalid_where,
    without_opaque_parts,
)
from millstream.sql.results import ResultColumn, Row
from millstream.sql.row_functions import condition, no_log, projection
from millstream.sql.type_names import resolver
from millstream.sql.types import BIGINT, SqlType, quoted
from millstream.sql.views import TableSnapshot, TableView
from millstream.streams.serdes import Serde
from millstream.streams.views.snapshot import ViewRow
from millstream.streams.windows import Windowed


def check_pull(query: ast.Query, catalog: Catalog, environment: Environment) -> Source:
    """The source of a pull query that is allowed at all."""
    for found, name in (
        (query.joins, "JOIN"),
        (query.window is not None, "WINDOW"),
        (query.group_by, "GROUP BY"),
        (query.partition_by, "PARTITION BY"),
        (query.having is not None, "HAVING"),
    ):
        if found:
            raise SqlError(f"Pull queries don't support {name} clauses.{MORE}{PUSH}")
    if query.limit is not None:
        if not environment.flag("ksql.query.pull.limit.clause.enabled", True):
            raise SqlError(
                "LIMIT clause in pull queries is currently disabled. You can enable them by setting "
                f"ksql.query.pull.limit.clause.enabled=true.{MORE}{PUSH}"
            )
        if query.limit < 0:
            raise SqlError(f"Pull queries don't support negative integers in the LIMIT clause.{MORE}{PUSH}")
    source = catalog.source(query.source.name)
    if source is None:
        raise SqlError(f"{query.source.name} does not exist.")
    check_queryable(source, environment)
    _check_columns(query)
    return source


def check_queryable(source: Source, environment: Environment) -> None:
    if source.kind == "STREAM" and not environment.flag("ksql.query.pull.stream.enabled", True):
        raise SqlError(
            "Pull queries on streams are disabled. To create a push query on the stream, add EMIT CHANGES "
            "to the end. "
            "To enable pull queries on streams, set the ksql.query.pull.stream.enabled config to 'true'."
        )
    if source.kind == "TABLE" and not (source.by_query or source.read_only):
        hint = f"'CREATE TABLE QUERYABLE_{source.name} AS SELECT * FROM {source.name}'"  # noqa: S608
        raise SqlError(
            f"The {quoted(source.name)} table isn't queryable. To derive a queryable table, you can do "
            f"{hint}.{MORE}{PUSH}"
        )


def _check_columns(query: ast.Query) -> None:
    for clause, nodes in (
        ("SELECT", [item.expression for item in query.select if item.expression is not None]),
        ("WHERE", [] if query.where is None else [query.where]),
    ):
        names = {
            part.name
            for node in nodes
            for part in ast.walk(node)
            if isinstance(part, ast.Column) and part.name in ("ROWPARTITION", "ROWOFFSET")
        }
        if names:
            shown = ", ".join(quoted(name) for name in sorted(names))
            raise SqlError(f"Pull queries don't support the following columns in {clause} clauses: {shown}")


class _Scope:
    """Rows are (key columns, value columns, header columns, ROWTIME, WINDOWSTART, WINDOWEND)."""

    def __init__(self, source: Source) -> None:
        columns = [*source.schema.key, *source.schema.value, *source.schema.headers]
        self.indexes: dict[str, tuple[int, SqlType]] = {
            one.name: (index, one.type) for index, one in enumerate(columns)
        }
        self.indexes["ROWTIME"] = (len(columns), BIGINT)
        if source.window is not None:
            for name in WINDOW_BOUNDS:
                self.indexes[name] = (len(self.indexes), BIGINT)

    def column(self, node: ast.Column) -> Code:
        found = self.indexes.get(node.name)
        if found is None:
            raise SqlError(f"column '{node.name}' cannot be resolved.")
        return Code(f"v[{found[0]}]", found[1], safe=True)


@dataclass
class PullQuery:
    """A pull query on a table, made ready. `rows` reads a view."""

    source: Source
    columns: tuple[ResultColumn, ...]
    limit: int | None
    keys: list[bytes] | None
    """The keys to look up; None for a scan."""
    passes: Callable[[Row], bool] | None
    project: Callable[[Row], Row]
    key_serde: Serde
    value_serde: Serde
    write_key: Callable[[str, Any], bytes | None] | None = None
    """(topic, key columns) -> the bytes of a key without its window."""
    as_listed: bool = True
    """Whether keys are looked up in the order in which IN has them; with OR, in that of a scan."""

    def rows(self, view: TableView) -> Iterator[Row]:
        read = row_reader(self.source, self.key_serde, self.value_serde)
        left = self.limit
        with view.snapshot() as table:
            for found in self._found(table):
                if left is not None and left <= 0:
                    return
                row = read(found)
                if self.passes is not None and not self.passes(row):
                    continue
                if left is not None:
                    left -= 1
                yield self.project(row)

    def _found(self, table: TableSnapshot) -> Iterator[ViewRow]:
        if self.keys is None:
            yield from table.scan()
            return
        for key in self.keys if self.as_listed else sorted(self.keys, key=table.partition):
            yield from table.get(key)


def row_reader(source: Source, key_serde: Serde, value_serde: Serde) -> Callable[[ViewRow], Row]:
    """From a view's bytes to (key columns, value columns, header columns, ROWTIME, WINDOWSTART,
    WINDOWEND)."""
    read_key, read_value = key_serde.reader(source.topic), value_serde.reader(source.topic)
    header_columns = [header_reader(column.header or "") for column in source.schema.headers]

    def read(found: ViewRow) -> Row:
        key = read_key(found.key)
        window: tuple[int, ...] = ()
        if isinstance(key, Windowed):
            window = (key.window.start, key.window.end)
            key = key.key
        value: bytes = found.value
        header_values: Row = ()
        if header_columns:
            headers, value = without_headers(value)
            header_values = tuple(one(headers) for one in header_columns)
        return (*(key or ()), *(read_value(value) or ()), *header_values, found.timestamp, *window)

    return read


def plan_pull(query: ast.Query, source: Source, catalog: Catalog, environment: Environment) -> PullQuery:
    analysis = analyse(query, catalog, environment)
    scope = _Scope(source)
    names = Names()
    compiler = Compiler(scope, environment.functions, resolver(catalog), names)
    keys = {one.name for one in source.schema.key} | (
        set(WINDOW_BOUNDS) if source.window is not None else set()
    )
    coded, columns = [], []
    for item in analysis.select:
        code = compiler.compile(item.expression)
        if code.type is None:
            raise SqlError(
                f"Can't infer a type of null. Please explicitly cast it to a required type: {item.name}"
            )
        plain_key = isinstance(item.expression, ast.Column) and item.expression.name in keys
        columns.append(
            ResultColumn(item.name, code.type, plain_key and item.name == _column_name(item.expression))
        )
        coded.append((item.name, code, text(item.expression)))
    passes = None
    looked_up = None
    scans = environment.flag("ksql.query.pull.table.scan.enabled", True)
    if analysis.where is not None:
        filter_names = Names()
        where = unqualified(analysis.where)
        filters = Compiler(scope, environment.functions, resolver(catalog), filter_names)
        try:
            filters.compile(without_opaque_parts(where))
        except SqlError as error:
            raise SqlError(f"Error in WHERE expression: {error}") from None
        check_where(source, where, scans)
        looked_up = Keys(source, analysis.where, catalog, environment).find()
        try:
            code = filters.compile(where)
        except SqlError as error:
            raise SqlError(f"Invalid expression: {error} expression: {text(where)}") from None
        passes = condition(code, text(analysis.where), filter_names, no_log)
    elif not scans:
        raise invalid_where("Missing WHERE clause", source.window is not None)
    key, value = serdes_of(source, environment)
    plain = serdes_of_key(source, environment)
    encoded = None
    if looked_up is not None:
        encoded = [data for one in looked_up if (data := plain.write(source.topic, one)) is not None]
    return PullQuery(
        source,
        tuple(columns),
        query.limit,
        encoded,
        passes,
        projection(coded, names, no_log),
        key,
        value,
        plain.write,
        analysis.where is None or not any(_is_or(part) for part in ast.walk(analysis.where)),
    )


def _is_or(node: ast.Expression) -> bool:
    return isinstance(node, ast.Logical) and node.operator == "OR"


def serdes_of_key(source: Source, environment: Environment) -> Serde:
    """The key without its window."""
    return serdes_of(replace(source, window=None), environment)[0]


def _column_name(node: ast.Expression) -> str | None:
    return node.name if isinstance(node, ast.Column) else None


class Keys:
    """The keys that a condition leaves, if it fixes them."""

    def __init__(
        self, source: Source, where: ast.Expression, catalog: Catalog, environment: Environment
    ) -> None:
        self._source, self._where = source, where
        self._catalog, self._environment = catalog, environment

    def find(self) -> list[tuple[Any, ...]] | None:
        try:
            alternatives = disjuncts(self._where)
        except RecursionError:
            return None
        found: dict[tuple[Any, ...], None] = {}
        for parts in alternatives:
            fixed: dict[str, Any] = {}
            for part in parts:
                if isinstance(part, ast.Compare) and part.operator == "=":
                    self._fix(part, fixed)
            if any(one.name not in fixed for one in self._source.schema.key):
                return None
            found[tuple(_hashable(fixed[one.name]) for one in self._source.schema.key)] = None
        return [tuple(_plain(value) for value in key) for key in found]

    def _fix(self, part: ast.Compare, fixed: dict[str, Any]) -> None:
        for column, other in ((part.left, part.right), (part.right, part.left)):
            if not isinstance(column, ast.Column):
                continue
            own = next((one for one in self._source.schema.key if one.name == column.name), None)
            if own is None or any(isinstance(inner, ast.Column) for inner in ast.walk(other)):
                continue
            compiler = Compiler(_Scope(self._source), self._environment.functions, resolver(self._catalog))
            code = compiler.compile(other)
            if code.type is None:
                shown = text(unqualified(part))
                raise SqlError(f"Primary key columns can not be NULL: {shown}")
            value = eval(code.text, dict(compiler.names.objects))  # noqa: S307  # made by codegen only
            try:
                fixed[own.name] = coerced(own.name, value, code.type, own.type)
            except SqlError:
                raise SqlError(
                    f"{text(other)} can not be converted to the type of the key column: {own.name} "
                    f"{own.type} KEY"
                ) from None
            return


class _Unhashable:
    def __init__(self, value: Any) -> None:
        self.value = value


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return _Unhashable(value)
    return value


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Unhashable) else value
