"""The nodes that the parser makes: expressions, relations, queries. Statements are in `statements`.

Every node knows its place (`location`, line and column from 1), which is no part of its identity: two
expressions are equal when they mean the same, wherever they stand. Nothing here knows of types or of a
catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any
from typing import Literal as Choice

from millstream.sql.lexer import Location

NOWHERE = Location(0, 0)


@dataclass(frozen=True, slots=True)
class Expression:
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """None, bool, int (`long` says that it was too large for an INTEGER), float, Decimal or text."""

    value: bool | int | float | Decimal | str | None
    long: bool = False


@dataclass(frozen=True, slots=True)
class Interval(Expression):
    """A unit of time as an argument: TIMESTAMPADD(DAYS, 1, t)."""

    unit: str


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A column, or the variable of a lambda: only the analyser can tell."""

    name: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Field(Expression):
    """base->name"""

    base: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Subscript(Expression):
    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Call(Expression):
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Lambda(Expression):
    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    operator: Choice["+", "-", "*", "/", "%"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Signed(Expression):
    sign: Choice["+", "-"]
    operand: Expression


@dataclass(frozen=True, slots=True)
class Compare(Expression):
    """IS DISTINCT FROM is one of the operators; its negation is wrapped in Not."""

    operator: Choice["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logical(Expression):
    operator: Choice["AND", "OR"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not(Expression):
    operand: Expression


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In(Expression):
    value: Expression
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like(Expression):
    value: Expression
    pattern: Expression
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class Between(Expression):
    value: Expression
    lower: Expression
    upper: Expression


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """`operand` for CASE x WHEN 1 THEN ...; `whens` are pairs (condition or value, result)."""

    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    default: Expression | None


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    operand: Expression
    type: TypeName


@dataclass(frozen=True, slots=True)
class MakeArray(Expression):
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class MakeMap(Expression):
    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class MakeStruct(Expression):
    fields: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written: INT, DECIMAL(4, 2), ARRAY<INT>, STRUCT<A INT>, or a name that CREATE TYPE made."""

    name: str
    parameters: tuple[str, ...] = ()
    arguments: tuple[TypeName, ...] = ()
    fields: tuple[tuple[str, TypeName], ...] = ()
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    quoted: bool = field(default=False, compare=False, kw_only=True)


# Queries ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One expression with its alias; or `*`, `source.*`; or all fields of a struct, `expression->*`."""

    expression: Expression | None = None
    alias: str | None = None
    star: bool = False
    source: str | None = None
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    alias: str
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Duration:
    amount: int
    unit: str

    @property
    def milliseconds(self) -> int:
        return self.amount * UNITS[self.unit]


UNITS = {
    "MILLISECOND": 1,
    "SECOND": 1000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "MONTH": 30 * 86_400_000,
    "YEAR": 365 * 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Within:
    before: Duration
    after: Duration
    grace: Duration | None = None


JoinType = Choice["INNER", "LEFT", "RIGHT", "OUTER"]


@dataclass(frozen=True, slots=True)
class JoinedSource:
    type: JoinType
    source: Source
    within: Within | None
    on: Expression
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Window:
    type: Choice["TUMBLING", "HOPPING", "SESSION"]
    size: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Query:
    """`emit` is CHANGES, FINAL, or None where nothing was said: a pull query, unless it feeds a stream or
    table."""

    select: tuple[SelectItem, ...]
    source: Source
    joins: tuple[JoinedSource, ...] = ()
    window: Window | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    group_by_grouped: bool = False
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    emit: Choice["CHANGES", "FINAL"] | None = None
    limit: int | None = None
    order_by: tuple[tuple[Expression, bool], ...] = ()
    distinct: bool = False
    beyond: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    """Where the first word is that ksqlDB does not have, ORDER BY or DISTINCT."""
    location: Location = field(default=NOWHERE, compare=False, repr=False, kw_only=True)

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source, *(join.source for join in self.joins))


# Walking ------------------------------------------------------------


def children(node: Expression) -> Iterator[Expression]:
    """The expressions directly inside one."""
    for part in fields(node):
        yield from _expressions(getattr(node, part.name))


def _expressions(value: Any) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif type(value) is tuple:
        for item in value:
            yield from _expressions(item)


def walk(node: Expression) -> Iterator[Expression]:
    """The expression and all that is inside it."""
    yield node
    for child in children(node):
        yield from walk(child)


def rewrite(node: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """A copy in which every part that `change` gives something for is replaced, from the outside in."""
    changed = change(node)
    if changed is not None:
        return changed
    parts: dict[str, Any] = {}
    for part in fields(node):
        value = getattr(node, part.name)
        new = _rewritten(value, change)
        if new is not value:
            parts[part.name] = new
    return replace(node, **parts) if parts else node


def _rewritten(value: Any, change: Callable[[Expression], Expression | None]) -> Any:
    if isinstance(value, Expression):
        return rewrite(value, change)
    if type(value) is tuple and not isinstance(value, Location):
        new = tuple(_rewritten(item, change) for item in value)
        return new if any(after is not before for after, before in zip(new, value, strict=True)) else value
    return value
