"""INSERT INTO ... VALUES: one record, from expressions without columns.

Values are brought to the columns' types by ksqlDB's rules for implicit casts: numbers widen, text becomes
times and bytes, arrays, maps and structs follow element by element. Nothing is guessed: '1' is no INTEGER.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from millstream.serdes.java_text import double_text
from millstream.sql import ast
from millstream.sql.catalog import WINDOW_BOUNDS, Catalog, Source
from millstream.sql.code import Code
from millstream.sql.codegen import Compiler
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError
from millstream.sql.expression_text import text
from millstream.sql.formats import DoesNotFit, row_serde
from millstream.sql.formats.schemas import register_source
from millstream.sql.formats.values import fit_decimal, parse_bytes
from millstream.sql.statements import InsertValues
from millstream.sql.times import parse_date, parse_time, parse_timestamp
from millstream.sql.type_names import resolver
from millstream.sql.types import (
    BIGINT,
    ArrayType,
    Base,
    DecimalType,
    MapType,
    SqlType,
    StructType,
    quoted,
)


@dataclass(frozen=True, slots=True)
class Inserted:
    """A record to be produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int


class _NoFit(Exception):
    pass


def insert(statement: InsertValues, catalog: Catalog, environment: Environment) -> Inserted:
    if not environment.flag("ksql.insert.into.values.enabled", True):
        raise SqlError(
            "The server has disabled INSERT INTO ... VALUES functionality. To enable it, restart your "
            "ksqlDB server "
            "with 'ksql.insert.into.values.enabled'=true"
        )
    if statement.columns and len(statement.columns) != len(statement.values):
        raise SqlError(
            "Failed to prepare statement: Expected number columns and values to match: "
            f"{len(statement.columns)}, {len(statement.values)}"
        )
    for expression in statement.values:
        _refuse_sources(expression)
    source = target_source(statement.target, catalog)
    schema = source.schema
    if not statement.columns and schema.headers:
        raise SqlError(f"Cannot insert into HEADER columns: {', '.join(one.name for one in schema.headers)}")
    names = statement.columns or tuple(one.name for one in (*schema.key, *schema.value))
    try:
        if len(names) != len(statement.values):
            shown = ", ".join(quoted(name) for name in names)
            values = ", ".join(text(one) for one in statement.values)
            raise SqlError(f"Expected a value for each column. Expected Columns: [{shown}]. Got [{values}]")
        row = {}
        for name, expression in zip(names, statement.values, strict=True):
            row[name] = _value(name, column_type(source, name), expression, catalog, environment)
        return record(source, row, environment)
    except (SqlError, DoesNotFit) as error:
        raise SqlError(f"Failed to insert values into '{statement.target}'. {error}") from None


def _refuse_sources(expression: ast.Expression) -> None:
    for part in ast.walk(expression):
        if isinstance(part, ast.Column) and part.source is not None:
            raise SqlError(
                f"Failed to prepare statement: '{part.source}' is not a valid stream/table name or alias."
            )


def target_source(name: str, catalog: Catalog) -> Source:
    source = catalog.source(name)
    if source is None:
        raise SqlError(f"Cannot insert values into an unknown stream/table: {quoted(name)}")
    if source.window is not None:
        raise SqlError("Cannot insert values into windowed stream/table!")
    if source.read_only:
        raise SqlError(f"Cannot insert values into read-only {source.kind.lower()}: {name}")
    return source


def column_type(source: Source, name: str) -> SqlType:
    if name in ("ROWPARTITION", "ROWOFFSET"):
        raise SqlError(f"Inserting into column {quoted(name)} is not allowed.")
    if name == "ROWTIME":
        return BIGINT
    column = source.schema.find(name)
    if column is None or name in WINDOW_BOUNDS:
        raise SqlError(f"Column name {quoted(name)} does not exist.")
    if column.namespace == "header":
        raise SqlError(f"Cannot insert into HEADER columns: {name}")
    return column.type


def record(source: Source, row: Mapping[str, Any], environment: Environment) -> Inserted:
    """The bytes of a row, by the source's formats."""
    schema = source.schema
    if source.kind == "TABLE":
        missing = [one.name for one in schema.key if one.name not in row]
        if missing:
            raise SqlError(f"Value for primary key column(s) {', '.join(missing)} is required for tables")
    timestamp = row.get("ROWTIME")
    if environment.registry is not None:
        register_source(environment.registry, source, replace=False)
    parts: list[bytes | None] = []
    for columns, format_, is_key, unwrap in (
        (schema.key, source.key_format, True, source.unwrap_key),
        (schema.value, source.value_format, False, source.unwrap),
    ):
        pairs = tuple((one.name, one.type) for one in columns)
        serde = row_serde(format_, pairs, is_key=is_key, unwrapped=unwrap, registry=environment.registry)
        values = tuple(row.get(name) for name, _ in pairs)
        nothing = is_key and all(value is None for value in values)
        parts.append(None if nothing else serde.write(source.topic, values))
    return Inserted(
        source.topic, parts[0], parts[1], int(time.time() * 1000) if timestamp is None else int(timestamp)
    )


# Values ---------------------------------------------------------------------------------------------------


class _NoColumns:
    def __init__(self, whole: ast.Expression) -> None:
        self._whole = whole

    def column(self, node: ast.Column) -> Code:
        raise SqlError(f"Unsupported column reference in insert value: {text(self._whole)}")


def _value(
    name: str, type_: SqlType, expression: ast.Expression, catalog: Catalog, environment: Environment
) -> Any:
    compiler = Compiler(_NoColumns(expression), environment.functions, resolver(catalog))
    code = compiler.compile(expression)
    if code.type is None:
        return None
    try:
        value = eval(code.text, dict(compiler.names.objects))  # noqa: S307  # made by codegen only
    except SqlError:
        raise
    except Exception as error:
        raise SqlError(str(error) or type(error).__name__) from None
    return coerced(name, value, code.type, type_)


def coerced(name: str, value: Any, source: SqlType, target: SqlType) -> Any:
    """A value as one of the column's type, or an error that names the column."""
    try:
        return _coerce(value, source, target)
    except (_NoFit, DoesNotFit, ValueError):
        hint = ""
        if source.base is Base.STRING:
            hint = _HINTS.get(target.base, "")
        raise SqlError(
            f"Expected type {target} for field {quoted(name)} but got {source.base}({_shown(value)}){hint}"
        ) from None


_HINTS = {
    Base.TIMESTAMP: ". Timestamp format must be yyyy-mm-ddThh:mm:ss[.S]",
    Base.TIME: ". Time format must be hh:mm:ss[.S]",
    Base.DATE: ". Date format must be yyyy-mm-dd",
}
_PARSERS: dict[Base, Callable[[str], Any]] = {
    Base.TIMESTAMP: parse_timestamp,
    Base.TIME: parse_time,
    Base.DATE: parse_date,
    Base.BYTES: parse_bytes,
}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return double_text(value) if isinstance(value, float) else str(value)


def _coerce(value: Any, source: SqlType, target: SqlType) -> Any:
    if value is None:
        return None
    one, other = source.base, target.base
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return [_coerce(item, source.item, target.item) for item in value]
    if isinstance(source, MapType) and isinstance(target, MapType):
        return {
            _coerce(key, source.key, target.key): _coerce(item, source.value, target.value)
            for key, item in value.items()
        }
    if isinstance(source, StructType) and isinstance(target, StructType):
        found = {}
        for name, type_ in target.fields:
            own = source.field(name)
            found[name] = None if own is None else _coerce(value.get(name), own, type_)
        return found
    if isinstance(target, DecimalType) and one in (Base.INTEGER, Base.BIGINT, Base.DECIMAL):
        return fit_decimal(Decimal(value), target)
    if other is Base.DOUBLE and one in (Base.INTEGER, Base.BIGINT, Base.DECIMAL):
        return float(value)
    if one is Base.INTEGER and other is Base.BIGINT:
        return value
    if one is Base.STRING and other in _PARSERS:
        try:
            return _PARSERS[other](value.strip())
        except Exception:
            raise _NoFit from None
    if one is other:
        return value
    raise _NoFit
