"""The nodes of statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from millstream.sql.ast import NOWHERE, Expression, Query, TypeName
from millstream.sql.lexer import Location

SourceKind = Literal["STREAM", "TABLE"]
Properties = dict[str, "Expression"]


@dataclass(frozen=True, slots=True)
class Statement:
    """`text` is the statement as written, without its semicolon; variables are filled in."""

    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    text: str = field(default="", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Element:
    """A column of CREATE. `header` is the key of HEADER('key'), or "" for HEADERS."""

    name: str
    type: TypeName
    constraint: Literal["KEY", "PRIMARY KEY", "HEADERS"] | None = None
    header: str | None = None
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class CreateSource(Statement):
    kind: SourceKind
    name: str
    elements: tuple[Element, ...]
    properties: Properties
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CreateAs(Statement):
    kind: SourceKind
    name: str
    query: Query
    properties: Properties
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertInto(Statement):
    target: str
    query: Query
    properties: Properties


@dataclass(frozen=True, slots=True)
class InsertValues(Statement):
    target: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Select(Statement):
    query: Query


@dataclass(frozen=True, slots=True)
class Batch(Statement):
    """BATCH and what Spark is to do with it: `sql` has blanks in place of the word, so that places in it are
    places in the statement."""

    sql: str

    @property
    def is_query(self) -> bool:
        words = self.sql.split(None, 1)
        return bool(words) and words[0].upper().lstrip("(") in ("", "SELECT", "WITH", "VALUES", "EXPLAIN")


@dataclass(frozen=True, slots=True)
class DropSource(Statement):
    kind: SourceKind
    name: str
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True, slots=True)
class AlterSource(Statement):
    kind: SourceKind
    name: str
    columns: tuple[tuple[str, TypeName], ...]


@dataclass(frozen=True, slots=True)
class AlterSystem(Statement):
    property: str
    value: str


@dataclass(frozen=True, slots=True)
class CreateType(Statement):
    name: str
    type: TypeName
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropType(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetProperty(Statement):
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UnsetProperty(Statement):
    """`name` is None for UNSET ALL."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Define(Statement):
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Undefine(Statement):
    name: str


@dataclass(frozen=True, slots=True)
class Terminate(Statement):
    """`query` is None for ALL, here and below."""

    query: str | None


@dataclass(frozen=True, slots=True)
class Pause(Statement):
    query: str | None


@dataclass(frozen=True, slots=True)
class Resume(Statement):
    query: str | None


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """STREAMS, TABLES, TOPICS, ALL TOPICS, QUERIES, PROPERTIES, FUNCTIONS, TYPES, VARIABLES, CONNECTORS,
    CONNECTOR PLUGINS, COLUMNS. `which` is SOURCE or SINK for connectors, the source for columns."""

    what: str
    extended: bool = False
    which: str | None = None


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """`what` is SOURCE, FUNCTION, CONNECTOR, STREAMS or TABLES."""

    what: str
    name: str | None
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """Of a running query by its id, or of a statement."""

    query: str | None
    statement: Statement | None
    analyze: bool = False


@dataclass(frozen=True, slots=True)
class Print(Statement):
    topic: str
    from_beginning: bool = False
    interval: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class CreateConnector(Statement):
    name: str
    kind: Literal["SOURCE", "SINK"]
    properties: Properties
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConnector(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AssertTopic(Statement):
    topic: str
    properties: Properties
    exists: bool = True
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class AssertSchema(Statement):
    subject: str | None
    id: int | None
    exists: bool = True
    timeout: int | None = None
