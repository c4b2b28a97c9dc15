"""What the statements so far have made: sources, types and queries, as an immutable snapshot.

Applying a command gives a new catalog and changes nothing else, so all servers that have read the same
commands have the same catalog, and a statement can be checked against one snapshot while others go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from millstream.sql.formats import Format
from millstream.sql.types import BIGINT, INTEGER, SqlType, array_type, quoted, struct_type
from millstream.sql.types import BYTES as BYTES_TYPE
from millstream.sql.types import STRING as STRING_TYPE

Namespace = Literal["key", "value", "header"]

PSEUDO_COLUMNS: Mapping[str, SqlType] = MappingProxyType(
    {"ROWTIME": BIGINT, "ROWPARTITION": INTEGER, "ROWOFFSET": BIGINT}
)
WINDOW_BOUNDS: Mapping[str, SqlType] = MappingProxyType({"WINDOWSTART": BIGINT, "WINDOWEND": BIGINT})
SYSTEM_COLUMNS = frozenset(PSEUDO_COLUMNS) | frozenset(WINDOW_BOUNDS)
HEADERS_TYPE = array_type(struct_type(("KEY", STRING_TYPE), ("VALUE", BYTES_TYPE)))


@dataclass(frozen=True, slots=True)
class Column:
    """`header` is for columns that come from record headers: the header's key, or "" for all of them."""

    name: str
    type: SqlType
    namespace: Namespace = "value"
    header: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """Key columns first, then the others as declared."""

    columns: tuple[Column, ...] = ()

    @property
    def key(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.namespace == "key")

    @property
    def value(self) -> tuple[Column, ...]:
        """What is in a record's value."""
        return tuple(column for column in self.columns if column.namespace == "value")

    @property
    def headers(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.namespace == "header")

    def find(self, name: str) -> Column | None:
        for column in self.columns:
            if column.name == name:
                return column
        return None

    def text(self) -> str:
        """`ID` INTEGER KEY, `NAME` STRING"""
        shown = {"key": " KEY", "value": "", "header": " HEADERS"}
        return ", ".join(f"{quoted(one.name)} {one.type}{shown[one.namespace]}" for one in self.columns)

    @staticmethod
    def pairs(columns: tuple[Column, ...]) -> tuple[tuple[str, SqlType], ...]:
        return tuple((column.name, column.type) for column in columns)


@dataclass(frozen=True, slots=True)
class WindowInfo:
    """The window in a source's keys. Sessions have no size."""

    type: Literal["TUMBLING", "HOPPING", "SESSION"]
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The column that gives a record's time, with its format where it is text."""

    column: str
    format: str | None = None


SourceKind = Literal["STREAM", "TABLE"]


@dataclass(frozen=True, slots=True)
class Source:
    """A stream or a table.

    unwrap        whether a single value column stands for itself; None: as the format does it
    unwrap_key    the same for keys
    read_only     made by CREATE SOURCE
    by_query      made by CREATE ... AS
    """

    name: str
    kind: SourceKind
    schema: Schema
    topic: str
    key_format: Format
    value_format: Format
    window: WindowInfo | None = None
    unwrap: bool | None = None
    unwrap_key: bool | None = None
    timestamp: Timestamp | None = None
    statement: str = ""
    read_only: bool = False
    by_query: bool = False
    partitions: int | None = None
    replicas: int | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A running statement: what it reads and what it writes."""

    id: str
    kind: Literal["CREATE_AS", "INSERT", "CREATE_SOURCE"]
    sources: frozenset[str]
    sink: str
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Catalog:
    sources: Mapping[str, Source] = field(default_factory=dict)
    types: Mapping[str, SqlType] = field(default_factory=dict)
    queries: Mapping[str, QueryInfo] = field(default_factory=dict)

    def source(self, name: str) -> Source | None:
        return self.sources.get(name)

    def type(self, name: str) -> SqlType | None:
        return self.types.get(name.upper())

    def with_source(self, source: Source) -> Catalog:
        return replace(self, sources={**self.sources, source.name: source})

    def without_source(self, name: str) -> Catalog:
        return replace(self, sources={own: source for own, source in self.sources.items() if own != name})

    def with_type(self, name: str, type_: SqlType) -> Catalog:
        return replace(self, types={**self.types, name.upper(): type_})

    def without_type(self, name: str) -> Catalog:
        return replace(self, types={own: type_ for own, type_ in self.types.items() if own != name.upper()})

    def with_query(self, query: QueryInfo) -> Catalog:
        return replace(self, queries={**self.queries, query.id: query})

    def without_query(self, query_id: str) -> Catalog:
        return replace(self, queries={own: query for own, query in self.queries.items() if own != query_id})

    def readers(self, name: str) -> Iterator[QueryInfo]:
        """The queries that read a source."""
        return (query for query in self.queries.values() if name in query.sources)

    def writers(self, name: str) -> Iterator[QueryInfo]:
        return (query for query in self.queries.values() if query.sink == name)
