"""SQL types, and what a value of each is in Python.

| SQL | Python |
|---|---|
| BOOLEAN | bool |
| INTEGER, BIGINT | int, within 32 and 64 bits; arithmetic wraps around as Java's does (`arithmetic.py`) |
| DOUBLE | float |
| DECIMAL(p, s) | decimal.Decimal with exactly s digits after the point |
| STRING | str |
| BYTES | bytes |
| DATE | int, days since 1970-01-01 |
| TIME | int, milliseconds since midnight |
| TIMESTAMP | int, milliseconds since 1970-01-01T00:00 UTC |
| ARRAY<T> | list |
| MAP<K, V> | dict |
| STRUCT<...> | dict with every field of the type, in its order; a missing field is None |
| null | None |

Time types are plain integers because generated code compares, adds and serialises them without any object. So
a value does not tell its type: functions that print values are given the types when a statement is compiled
(`casts.py`).

Types are immutable and hashable. `str(type)` is ksqlDB's text with all field names quoted; `type.text(plain)`
leaves the quotes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from millstream.sql.errors import SqlError


class Base(Enum):
    """The kinds of types, in the order in which numbers widen."""

    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"
    TIME = "TIME"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    BYTES = "BYTES"

    def __str__(self) -> str:
        return self.value

    @property
    def is_number(self) -> bool:
        return self in _WIDTH

    @property
    def is_time(self) -> bool:
        return self in (Base.TIME, Base.DATE, Base.TIMESTAMP)

    def casts_implicitly_to(self, to: Base) -> bool:
        """Whether an argument of this kind is accepted where `to` is declared."""
        if self is to:
            return True
        if self in _WIDTH and to in _WIDTH:
            return _WIDTH[self] <= _WIDTH[to]
        return self is Base.STRING and (to.is_time or to is Base.BYTES)


_WIDTH = {Base.INTEGER: 1, Base.BIGINT: 2, Base.DECIMAL: 3, Base.DOUBLE: 4}

Quote: TypeAlias = Callable[[str], str]


def quoted(name: str) -> str:
    return f"`{name}`"


def plain(name: str) -> str:
    return name


@dataclass(frozen=True)
class SqlType:
    """A type without parameters; the others derive from it."""

    base: Base

    def text(self, quote: Quote = quoted) -> str:
        return self.base.value

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class DecimalType(SqlType):
    base: Base = field(default=Base.DECIMAL, init=False)
    precision: int
    scale: int

    def __post_init__(self) -> None:
        shown = f"DECIMAL({self.precision},{self.scale})"
        if self.precision < 1:
            raise SqlError(f"DECIMAL precision must be >= 1: {shown}")
        if self.scale < 0:
            raise SqlError(f"DECIMAL scale must be >= 0: {shown}")
        if self.precision < self.scale:
            raise SqlError(f"DECIMAL precision must be >= scale: {shown}")

    def text(self, quote: Quote = quoted) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    @property
    def whole(self) -> int:
        """Digits before the point."""
        return self.precision - self.scale


@dataclass(frozen=True)
class ArrayType(SqlType):
    base: Base = field(default=Base.ARRAY, init=False)
    item: SqlType

    def text(self, quote: Quote = quoted) -> str:
        return f"ARRAY<{self.item.text(quote)}>"


@dataclass(frozen=True)
class MapType(SqlType):
    base: Base = field(default=Base.MAP, init=False)
    key: SqlType
    value: SqlType

    def text(self, quote: Quote = quoted) -> str:
        return f"MAP<{self.key.text(quote)}, {self.value.text(quote)}>"


@dataclass(frozen=True)
class StructType(SqlType):
    """`fields` are pairs of name and type."""

    base: Base = field(default=Base.STRUCT, init=False)
    fields: tuple[tuple[str, SqlType], ...]

    def __post_init__(self) -> None:
        seen: dict[str, SqlType] = {}
        for name, type_ in self.fields:
            if name in seen:
                raise SqlError(
                    "Duplicate field names found in STRUCT: "
                    f"'{quoted(name)} {seen[name]}' and '{quoted(name)} {type_}'"
                )
            seen[name] = type_

    def text(self, quote: Quote = quoted) -> str:
        if not self.fields:
            return "STRUCT< >"
        return f"STRUCT<{', '.join(f'{quote(name)} {type_.text(quote)}' for name, type_ in self.fields)}>"

    def field(self, name: str) -> SqlType | None:
        for own, type_ in self.fields:
            if own == name:
                return type_
        return None


@dataclass(frozen=True)
class Lambda:
    """A lambda among arguments whose body has not been typed yet: all that is known is how many inputs it
    has.
    """

    inputs: int

    def text(self, quote: Quote = quoted) -> str:
        return "LAMBDA"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class TypedLambda(Lambda):
    """A lambda whose inputs and result are known."""

    inputs: int = field(init=False)
    input_types: tuple[SqlType, ...]
    result: SqlType

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", len(self.input_types))

    def text(self, quote: Quote = quoted) -> str:
        shown = ", ".join(type_.text(quote) for type_ in self.input_types)
        return f"LAMBDA ({shown}) => {self.result.text(quote)}"


@dataclass(frozen=True)
class IntervalUnit:
    """The first argument of DATEADD and its relatives: DAY, MONTH, ..."""

    def text(self, quote: Quote = quoted) -> str:
        return "INTERVAL UNIT"

    def __str__(self) -> str:
        return self.text()


# An argument of a call: a typed value, the literal NULL (None), a lambda, or a unit of time.
Argument: TypeAlias = SqlType | Lambda | IntervalUnit | None

BOOLEAN = SqlType(Base.BOOLEAN)
INTEGER = SqlType(Base.INTEGER)
BIGINT = SqlType(Base.BIGINT)
DOUBLE = SqlType(Base.DOUBLE)
STRING = SqlType(Base.STRING)
BYTES = SqlType(Base.BYTES)
DATE = SqlType(Base.DATE)
TIME = SqlType(Base.TIME)
TIMESTAMP = SqlType(Base.TIMESTAMP)

PRIMITIVES = {
    type_.base.value: type_
    for type_ in (BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, BYTES, DATE, TIME, TIMESTAMP)
} | {"INT": INTEGER, "VARCHAR": STRING}


def decimal_type(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision=precision, scale=scale)


def array_type(item: SqlType) -> ArrayType:
    return ArrayType(item=item)


def map_type(key: SqlType, value: SqlType) -> MapType:
    return MapType(key=key, value=value)


def struct_type(*fields: tuple[str, SqlType]) -> StructType:
    return StructType(fields=fields)


_INTEGERS_AS_DECIMALS = {Base.INTEGER: decimal_type(10, 0), Base.BIGINT: decimal_type(19, 0)}


def as_decimal(type_: SqlType) -> DecimalType:
    """The decimal type that an integer becomes beside a decimal."""
    if isinstance(type_, DecimalType):
        return type_
    if type_.base in _INTEGERS_AS_DECIMALS:
        return _INTEGERS_AS_DECIMALS[type_.base]
    raise SqlError(f"Cannot convert {type_.base} to DECIMAL.")


def wider_decimal(left: SqlType, right: SqlType) -> DecimalType:
    """The smallest decimal type that holds both."""
    one, other = as_decimal(left), as_decimal(right)
    scale = max(one.scale, other.scale)
    return decimal_type(max(one.whole, other.whole) + scale, scale)


def decimal_fits(source: DecimalType, target: DecimalType) -> bool:
    """Whether every value of `source` is one of `target` without rounding."""
    return source.scale <= target.scale and source.whole <= target.whole


_SIMPLE_COMMON = {
    (Base.INTEGER, Base.BIGINT),
    (Base.INTEGER, Base.DOUBLE),
    (Base.BIGINT, Base.DOUBLE),
    (Base.DECIMAL, Base.DOUBLE),
    (Base.STRING, Base.TIMESTAMP),
    (Base.STRING, Base.TIME),
    (Base.STRING, Base.DATE),
    (Base.STRING, Base.BYTES),
}
_LITERAL_COMMON = {
    (source, Base.STRING)
    for source in (
        Base.BOOLEAN,
        Base.INTEGER,
        Base.BIGINT,
        Base.DECIMAL,
        Base.DOUBLE,
        Base.TIMESTAMP,
        Base.TIME,
        Base.DATE,
    )
} | {(Base.STRING, target) for target in (Base.BOOLEAN, Base.INTEGER, Base.BIGINT, Base.DECIMAL, Base.DOUBLE)}


def coerced_type(source: SqlType, target: SqlType, *, literal: bool = False) -> SqlType | None:
    """The type that both take when `source` is put where `target` is wanted, or None if they do not mix.

    That is `target`, except that decimals grow until both fit and structs get the fields of both. A literal
    mixes more freely: '10' with numbers, 10 with strings.
    """
    one, other = source.base, target.base
    if other is Base.DECIMAL and one in (Base.INTEGER, Base.BIGINT, Base.DECIMAL):
        return wider_decimal(source, target)
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        item = coerced_type(source.item, target.item, literal=literal)
        return None if item is None else array_type(item)
    if isinstance(source, MapType) and isinstance(target, MapType):
        key = coerced_type(source.key, target.key, literal=literal)
        value = coerced_type(source.value, target.value, literal=literal)
        return None if key is None or value is None else map_type(key, value)
    if isinstance(source, StructType) and isinstance(target, StructType):
        return _coerced_struct(source, target, literal)
    if one is other or (one, other) in _SIMPLE_COMMON or (literal and (one, other) in _LITERAL_COMMON):
        return target
    return None


def _coerced_struct(source: StructType, target: StructType, literal: bool) -> StructType | None:
    fields: list[tuple[str, SqlType]] = []
    for name in dict.fromkeys(name for name, _ in (*source.fields, *target.fields)):
        one, other = source.field(name), target.field(name)
        if one is not None and other is not None:
            common = coerced_type(one, other, literal=literal)
            if common is None:
                return None
            fields.append((name, common))
        else:
            fields.append((name, one or other or STRING))
    return struct_type(*fields)


def common_type(left: SqlType, right: SqlType, *, literal: bool = False) -> SqlType | None:
    """The type in which two values meet (CASE branches, IN lists, array items), or None."""
    return coerced_type(right, left, literal=literal) or coerced_type(left, right, literal=literal)


_EQUALITY = {"=", "<>", "!=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"}


def comparable(left: SqlType | None, operator: str, right: SqlType | None) -> bool:
    """Whether `left operator right` is a comparison; None is the literal NULL."""
    if left is None or right is None:
        one, other = ("NULL" if type_ is None else str(type_.base) for type_ in (left, right))
        raise SqlError(
            f"Comparison with NULL not supported: {one} {operator} {other}\n"
            "Use 'IS NULL' or 'IS NOT NULL' instead."
        )
    base = left.base
    if base.is_number:
        return right.base.is_number
    if base is Base.STRING:
        return right.base is Base.STRING or right.base.is_time
    if base is Base.TIME:
        return right.base in (Base.TIME, Base.STRING)
    if base in (Base.DATE, Base.TIMESTAMP):
        return right.base in (Base.DATE, Base.TIMESTAMP, Base.STRING)
    if base is Base.BYTES:
        return right.base is Base.BYTES
    return right.base is base and operator in _EQUALITY
