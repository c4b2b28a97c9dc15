"""A stream or table on its way through a plan, with what its rows consist of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from millstream.sql import ast
from millstream.sql.catalog import WindowInfo
from millstream.sql.code import Code, Names
from millstream.sql.codegen import Compiler
from millstream.sql.errors import SqlError, sql_error
from millstream.sql.expression_text import text
from millstream.sql.formats import Format, row_serde, windowed_key
from millstream.sql.internal_rows import KEYS
from millstream.sql.types import SqlType
from millstream.streams.dsl.stream import KStream
from millstream.streams.dsl.table import KTable
from millstream.streams.serdes import Serde

ColumnId = tuple[str | None, str]
"""Alias and name; alias None for what belongs to no source."""


@dataclass(frozen=True)
class Flow:
    """`columns` says where in the row a column is; `key_types` are the types of the record's key. One of
    `stream` and `table` is set."""

    columns: dict[ColumnId, int]
    types: dict[ColumnId, SqlType]
    key_types: tuple[SqlType, ...]
    key_format: Format
    stream: KStream[Any, Any] | None = None
    table: KTable[Any, Any] | None = None
    window: WindowInfo | None = None
    replaced: dict[ast.Expression, ColumnId] = field(default_factory=dict)
    """Expressions that have been computed already: aggregates, groups, table functions."""

    aligned: bool = False
    """Whether its keys are in the bytes that joins compare: it has been joined or repartitioned."""
    key_columns: tuple[ColumnId, ...] = ()
    """The columns that are the record's key, as long as it has not been changed."""

    def row_of_key(self, key: Any) -> tuple[Any, ...]:
        """A row that has nothing but its key: what is left of a record without a value."""
        row: list[Any] = [None] * self.width
        if key is not None:
            for own, part in zip(self.key_columns, getattr(key, "key", key), strict=True):
                if own in self.columns:
                    row[self.columns[own]] = part
        return tuple(row)

    @property
    def width(self) -> int:
        return len(self.columns)

    def changed(self, **changes: Any) -> Flow:
        return replace(self, **changes)

    def with_stream(self, stream: KStream[Any, Any], **changes: Any) -> Flow:
        return replace(self, stream=stream, table=None, **changes)

    def with_table(self, table: KTable[Any, Any], **changes: Any) -> Flow:
        return replace(self, table=table, stream=None, **changes)


def store_key(format_: Format, key_types: tuple[SqlType, ...], window: WindowInfo | None) -> Serde:
    """The serde of keys in stores and internal topics: the bytes that the format writes, so that partitions
    and the order in a store are those of the topics. Formats of a registry would bring a schema for every
    internal topic, and some formats cannot carry all keys: those are written our own way."""
    columns = tuple((f"KEY{index}", type_) for index, type_ in enumerate(key_types))
    if format_.name == "NONE" or format_.traits.infers:
        format_ = Format("KAFKA")
    try:
        key = row_serde(format_, columns, is_key=True)
    except SqlError:
        key = KEYS
    return key if window is None else windowed_key(key, window.size)


class FlowScope:
    """Columns as places in the row `v`."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def column(self, node: ast.Column) -> Code:
        found = self._flow.columns.get((node.source, node.name))
        if found is None:
            raise sql_error("unknown column", node.location, name=text(node))
        return Code(f"v[{found}]", self._flow.types[(node.source, node.name)], safe=True)


@dataclass
class FlowCompiler(Compiler):
    """Knows what has been computed already."""

    flow: Flow = field(kw_only=True)

    def compile(self, node: ast.Expression) -> Code:
        index = self.flow.replaced.get(node)
        if index is not None:
            return Code(f"v[{self.flow.columns[index]}]", self.flow.types[index], safe=True)
        return super().compile(node)

    def is_computed(self, node: ast.Expression) -> bool:
        return node in self.flow.replaced


def compiler(
    flow: Flow, functions: Any, resolve: Any, names: Names | None = None, shown: Any = text
) -> FlowCompiler:
    return FlowCompiler(FlowScope(flow), functions, resolve, names or Names(), shown=shown, flow=flow)
