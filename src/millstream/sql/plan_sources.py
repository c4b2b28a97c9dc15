"""Sources of a query: from a topic's bytes to rows with the columns that the query needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from millstream.sql import ast
from millstream.sql.analysis import Analysis
from millstream.sql.catalog import PSEUDO_COLUMNS, WINDOW_BOUNDS, Source, Timestamp
from millstream.sql.code import Names
from millstream.sql.flow import ColumnId, Flow, store_key
from millstream.sql.internal_rows import ROWS
from millstream.sql.names import BoundSource
from millstream.sql.operators import ReadRows
from millstream.sql.row_functions import build
from millstream.sql.types import Base, SqlType
from millstream.streams.dsl.options import Materialized
from millstream.streams.serdes import BYTES

if TYPE_CHECKING:
    from millstream.sql.plan import Planner


def needed_columns(analysis: Analysis) -> dict[str, set[str]]:
    """The columns of each source that are used anywhere in the query."""
    found: dict[str, set[str]] = {bound.alias: set() for bound in analysis.sources}
    nodes: list[ast.Expression] = [column.expression for column in analysis.select]
    nodes += [*analysis.group_by, *analysis.partition_by]
    nodes += [node for node in (analysis.where, analysis.having) if node is not None]
    for step in analysis.joins:
        nodes += [step.left_on, step.right_on, *step.key]
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Column) and part.source is not None:
                found[part.source].add(part.name)
    return found


def read_source(planner: Planner, bound: BoundSource, needed: dict[str, set[str]]) -> Flow:
    """A stream or table of rows."""
    from millstream.sql.plan import serdes_of

    source, alias = bound.source, bound.alias
    key, value = serdes_of(source, planner.environment)
    columns, types, layout = _layout(bound, needed[alias])
    operator = ReadRows(source.topic, key, value, layout, stamp_reader(source), planner.log)
    operator.with_origin = not needed[alias].isdisjoint({"ROWPARTITION", "ROWOFFSET"})
    operator.empty = not source.schema.value and source.value_format.name != "NONE"
    stream = planner.builder.stream(source.topic, key=BYTES, value=BYTES)
    rows = stream._then("KSTREAM-PROCESSVALUES-", None, operator)
    key_types = tuple(column.type for column in source.schema.key)
    rows._key, rows._value = store_key(source.key_format, key_types, source.window), ROWS
    flow = Flow(
        columns,
        types,
        key_types,
        source.key_format,
        stream=rows,
        window=source.window,
        key_columns=tuple((alias, column.name) for column in source.schema.key),
    )
    if source.kind == "TABLE":
        table = rows.to_table(materialized=Materialized(_store_name(planner, bound), rows._key, ROWS))
        # The name is only for the topic: rows are kept where something needs them.
        table._operator.kept = False
        return flow.with_table(table)
    return flow


def _store_name(planner: Planner, bound: BoundSource) -> str:
    """As ksqlDB calls the store of a table's rows."""
    sources = planner.analysis.sources
    if len(sources) == 1:
        return "KsqlTopic-Reduce"
    index = sources.index(bound)
    side = "Left" if index == 0 else "Right"
    prefix = "L_" * (len(sources) - 1 - max(index, 1))
    return f"KafkaTopic_{prefix}{side}-Reduce"


def _layout(bound: BoundSource, needed: set[str]) -> tuple[dict[ColumnId, int], dict[ColumnId, SqlType], Any]:
    """Which column is where, and the function that makes the row."""
    columns: dict[ColumnId, int] = {}
    types: dict[ColumnId, SqlType] = {}
    parts: list[str] = []
    names = Names()

    def add(name: str, type_: SqlType, part: str) -> None:
        columns[(bound.alias, name)] = len(parts)
        types[(bound.alias, name)] = type_
        parts.append(part)

    schema = bound.schema
    for index, column in enumerate(schema.value):
        if column.name in needed:
            add(column.name, column.type, f"v[{index}]")
    for index, column in enumerate(schema.key):
        if column.name in needed:
            add(column.name, column.type, f"(None if k is None else k[{index}])")
    for column in schema.headers:
        if column.name in needed:
            add(column.name, column.type, f"{names.add(header_reader(column.header or ''))}(h)")
    pseudo = {"ROWTIME": "t", "ROWPARTITION": "o.partition", "ROWOFFSET": "o.offset"}
    for name, type_ in PSEUDO_COLUMNS.items():
        if name in needed and schema.find(name) is None:
            add(name, type_, pseudo[name])
    bounds = {"WINDOWSTART": "w.start", "WINDOWEND": "w.end"}
    for name, type_ in WINDOW_BOUNDS.items():
        if name in needed and schema.find(name) is None:
            add(name, type_, bounds[name])
    row = "(" + "".join(part + ", " for part in parts) + ")"
    return columns, types, build(f"def layout(v, k, t, h, o, w):\n    return {row}\n", names, "layout")


def header_reader(key: str) -> Callable[[Iterable[tuple[str, bytes | None]]], Any]:
    """The last header of a key, or all headers as structs."""
    if not key:
        return lambda headers: [{"KEY": name, "VALUE": value} for name, value in headers]

    def last(headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
        found = None
        for name, value in headers:
            if name == key:
                found = value
        return found

    return last


def stamp_reader(source: Source) -> Callable[[Any, Any], Any] | None:
    """(key, value) -> the time in the column that WITH (TIMESTAMP=...) names."""
    timestamp = source.timestamp
    if timestamp is None:
        return None
    read = _stamp(timestamp, source)
    for index, column in enumerate(source.schema.key):
        if column.name == timestamp.column:
            return lambda key, _value: None if key is None else read(_plain(key)[index])
    for index, column in enumerate(source.schema.value):
        if column.name == timestamp.column:
            return lambda _key, value: read(value[index])
    return None


def _plain(key: Any) -> Any:
    return getattr(key, "key", key)


def _stamp(timestamp: Timestamp, source: Source) -> Callable[[Any], Any]:
    column = source.schema.find(timestamp.column)
    if column is None or column.type.base is not Base.STRING or timestamp.format is None:
        return lambda value: value
    from millstream.sql.functions.datetimes import _parse_timestamp

    pattern = timestamp.format
    return lambda value: None if value is None else _parse_timestamp(value, pattern)
