"""CREATE STREAM and CREATE TABLE of a topic, and the checks that every source has to pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.sql.catalog import (
    HEADERS_TYPE,
    SYSTEM_COLUMNS,
    Catalog,
    Column,
    Schema,
    Source,
    Timestamp,
)
from millstream.sql.environment import WRAP_SINGLE_VALUES, Environment
from millstream.sql.errors import SqlError, sql_error
from millstream.sql.formats import Format, check_columns
from millstream.sql.formats.table import AVRO_NAMESPACE, FULL_SCHEMA_NAME
from millstream.sql.statements import AlterSource, CreateSource
from millstream.sql.type_names import resolver
from millstream.sql.types import BYTES, Base, SqlType, quoted
from millstream.sql.with_clause import With

if TYPE_CHECKING:
    from millstream.serdes.client import SchemaRegistry


def create_source(statement: CreateSource, catalog: Catalog, environment: Environment) -> Source:
    """The source that a statement describes, checked against the catalog."""
    given = With.of_source(statement.properties)
    topic = given.get("KAFKA_TOPIC")
    window = given.window
    columns = _elements(statement, catalog)
    key_format = given.format("KEY", None, environment)
    value_format = given.format("VALUE", None, environment)
    columns = _inferred(statement, columns, key_format, value_format, topic, given, environment)
    schema = Schema(columns)
    is_table = statement.kind == "TABLE"
    if is_table and not schema.key:
        inferred = key_format.traits.infers and not statement.elements
        raise sql_error("no PRIMARY KEY", hint="" if not inferred else _UNUSABLE)
    if not columns:
        raise sql_error("no columns", kind=statement.kind)
    if window is not None and not schema.key:
        raise sql_error("windowed without key")
    if is_table:
        check_retention(given)
    key_format = named_key(key_format, statement.name)
    if not schema.key and given.get("KEY_FORMAT") is None and given.get("FORMAT") is None:
        key_format = Format("NONE")
    source = Source(
        statement.name,
        statement.kind,
        schema,
        topic,
        key_format,
        value_format,
        window,
        unwrap=unwrapped_value(given, value_format, len(schema.value), environment),
        timestamp=given.timestamp,
        statement=statement.text,
        read_only=statement.read_only,
        partitions=given.get("PARTITIONS"),
        replicas=given.get("REPLICAS"),
        retention_ms=given.get("RETENTION_MS"),
    )
    check_source(source)
    existing = catalog.source(statement.name)
    if statement.or_replace:
        if statement.read_only or (existing is not None and existing.read_only):
            raise sql_error("OR REPLACE of a source", kind=statement.kind.lower(), name=statement.name)
        if existing is not None:
            check_replacement(existing, source)
    return source


def check_retention(given: With) -> None:
    """The topic of a table is compacted."""
    if given.get("RETENTION_MS") is not None:
        raise sql_error("RETENTION_MS of a table")


def named_key(format_: Format, source: str) -> Format:
    """Avro's records have names: that of a key comes from its source."""
    if format_.name != "AVRO" or format_.get(FULL_SCHEMA_NAME) is not None:
        return format_
    camel = "".join(part.capitalize() for part in source.split("_"))
    return format_.with_property(FULL_SCHEMA_NAME, f"{AVRO_NAMESPACE}.{camel}Key")


_UNUSABLE = " Could not be inferred from the schema registry."


def _elements(statement: CreateSource, catalog: Catalog) -> tuple[Column, ...]:
    resolve = resolver(catalog)
    keys: list[Column] = []
    others: list[Column] = []
    seen: set[str] = set()
    for element in statement.elements:
        type_ = resolve(element.type)
        name = element.name
        if name in SYSTEM_COLUMNS:
            raise sql_error("reserved column", element.location, name=name)
        if name in seen:
            raise sql_error("duplicate column", element.location, name=name)
        seen.add(name)
        if element.constraint == "HEADERS":
            others.append(_header(name, type_, element.header or "", others))
        elif element.constraint is not None:
            keys.append(Column(name, type_, "key"))
        else:
            others.append(Column(name, type_))
    return (*keys, *others)


def _header(name: str, type_: SqlType, key: str, others: list[Column]) -> Column:
    wanted = BYTES if key else HEADERS_TYPE
    shown = f"HEADER('{key}')" if key else "HEADERS"
    if type_ != wanted:
        raise sql_error("header type", shown=shown, expected=wanted, found=type_)
    headers = [one for one in others if one.namespace == "header"]
    if any(one.header == "" for one in headers) or (not key and headers):
        raise sql_error("headers twice")
    if key and any(one.header == key for one in headers):
        raise sql_error("header twice", key=key)
    return Column(name, type_, "header", key)


def _inferred(
    statement: CreateSource,
    columns: tuple[Column, ...],
    key_format: Format,
    value_format: Format,
    topic: str,
    given: With,
    environment: Environment,
) -> tuple[Column, ...]:
    """The columns that the statement leaves to the registry."""
    for part, format_, declared in (
        ("KEY", key_format, any(one.namespace == "key" for one in columns)),
        ("VALUE", value_format, any(one.namespace == "value" for one in columns)),
    ):
        if given.get(part + "_SCHEMA_ID") is not None:
            if declared:
                raise sql_error("elements and schema id", part=part)
            if not format_.traits.infers:
                raise sql_error("schema id without inference", part=part, format=format_.name)
    has_value = any(one.namespace == "value" for one in columns)
    has_key = any(one.namespace == "key" for one in columns)
    headers = tuple(one for one in columns if one.namespace == "header")
    keys = tuple(one for one in columns if one.namespace == "key")
    values = tuple(one for one in columns if one.namespace != "key")
    if not has_key and key_format.traits.infers:
        found = _from_registry(environment, key_format, topic, True, given)
        keys = tuple(Column(name, type_, "key") for name, type_ in found)
    if not has_value and value_format.traits.infers:
        found = _from_registry(environment, value_format, topic, False, given)
        values = (*(Column(name, type_) for name, type_ in found), *headers)
    return (*keys, *values)


def _from_registry(
    environment: Environment, format_: Format, topic: str, is_key: bool, given: With
) -> tuple[tuple[str, SqlType], ...]:
    from millstream.sql.formats.schemas import infer

    if environment.registry is None:
        raise sql_error("no registry", format=format_.name)
    if is_key:
        unwrapped = format_.traits.unwraps
    else:
        wrap = given.get("WRAP_SINGLE_VALUE")
        unwrapped = format_.traits.unwraps and wrap is False
    found = infer(
        environment.registry,
        format_,
        topic,
        is_key=is_key,
        unwrapped=unwrapped,
        schema_id=format_.schema_id,
    )
    return found.columns


def unwrapped_value(given: With, format_: Format, columns: int, environment: Environment) -> bool | None:
    """Whether a single value column stands for itself, by WRAP_SINGLE_VALUE or the setting."""
    wrap = given.get("WRAP_SINGLE_VALUE")
    traits = format_.traits
    if wrap is None:
        if columns != 1:
            return None
        if WRAP_SINGLE_VALUES not in environment.settings or not (traits.wraps and traits.unwraps):
            return None
        return not environment.flag(WRAP_SINGLE_VALUES, True)
    if (wrap and not traits.wraps) or (not wrap and not traits.unwraps):
        raise sql_error("no such wrapping", format=format_.name, wrap=str(wrap).lower())
    if columns != 1:
        raise sql_error("wrapping of several")
    return not wrap


def check_source(source: Source) -> None:
    """What the formats can carry, and the timestamp's column."""
    schema = source.schema
    for part, format_, columns in (
        ("Key", source.key_format, schema.key),
        ("Value", source.value_format, schema.value),
    ):
        shown = quoted
        try:
            check_columns(format_, Schema.pairs(columns), is_key=part == "Key", quote=shown)
        except SqlError as error:
            raise _unsupported(part, format_, columns, error) from None
    if source.timestamp is not None:
        check_timestamp(source.timestamp, schema)


def _unsupported(part: str, format_: Format, columns: tuple[Column, ...], error: SqlError) -> SqlError:
    reason = str(error)
    if reason.startswith("Map keys"):
        return error
    suffix = " KEY" if part == "Key" else ""
    shown = ", ".join(f"{quoted(one.name)} {one.type}{suffix}" for one in columns)
    if "Got: [" in reason:
        reason = reason[: reason.index("Got: [")] + f"Got: [{shown}]"
    return sql_error("format and schema", part=part, format=format_.name, columns=shown, reason=reason)


def check_timestamp(timestamp: Timestamp, schema: Schema) -> None:
    column = schema.find(timestamp.column)
    if column is None:
        raise sql_error("timestamp column", name=timestamp.column)
    base = column.type.base
    if base is Base.STRING:
        if timestamp.format is None:
            raise sql_error("timestamp text without format")
    elif timestamp.format is not None:
        raise sql_error("timestamp format without text")
    elif base not in (Base.BIGINT, Base.TIMESTAMP):
        raise sql_error("timestamp type", name=timestamp.column, type=column.type)


def check_replacement(existing: Source, new: Source) -> None:
    """CREATE OR REPLACE may add columns at the end, and nothing else."""
    detail = _schema_change(existing.schema, new.schema)
    for what, old, now in (
        ("type", f"K{existing.kind}", f"K{new.kind}"),
        ("topic", _topic_text(existing), _topic_text(new)),
        ("timestampColumn", str(existing.timestamp), str(new.timestamp)),
    ):
        if old != now:
            raise sql_error(
                "not upgradeable", name=quoted(existing.name), what=what, old=old, new=now, detail=""
            )
    if detail:
        raise sql_error(
            "not upgradeable",
            name=quoted(existing.name),
            what="schema",
            old=existing.schema.text(),
            new=new.schema.text(),
            detail=f". ({detail})",
        )


def _topic_text(source: Source) -> str:
    return f"{source.topic} ({source.key_format.name}, {source.value_format.name}, {source.window})"


def _schema_change(old: Schema, new: Schema) -> str:
    for what, before, after in (("key ", old.key, new.key), ("", old.columns, new.columns)):
        missing = [one for index, one in enumerate(before) if index >= len(after) or after[index] != one]
        if missing:
            suffix = {"key": " KEY", "value": "", "header": " HEADERS"}
            shown = ", ".join(f"{quoted(one.name)} {one.type}{suffix[one.namespace]}" for one in missing)
            prefix = "Key columns must be identical. " if what else ""
            return f"{prefix}The following {what}columns are changed, missing or reordered: [{shown}]"
    return ""


def check_schema_id(part: str, format_: Format, sink: Source, registry: SchemaRegistry) -> None:
    """The columns of a sink whose schema is given by its id have to be those of the schema, in its order; it
    may have more."""
    from millstream.sql.formats.schemas import infer

    is_key = part == "key"
    columns = sink.schema.key if is_key else sink.schema.value
    unwrapped = sink.unwrap if not is_key else format_.traits.unwraps
    found = infer(
        registry, format_, sink.topic, is_key=is_key, unwrapped=bool(unwrapped), schema_id=format_.schema_id
    ).columns
    wrong = [
        (name, type_)
        for index, (name, type_) in enumerate(Schema.pairs(columns))
        if index >= len(found) or (not is_key and found[index][0] != name) or found[index][1] != type_
    ]
    if wrong:
        raise sql_error("schema id columns", part=part, wrong=_shown(wrong), found=_shown(found))


def _shown(columns: Iterable[tuple[str, SqlType]]) -> str:
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns)


def alter(statement: AlterSource, catalog: Catalog) -> Source:
    source = catalog.source(statement.name)
    kind = statement.kind.lower()
    if source is None:
        raise sql_error("no such source", kind="Source", name=statement.name)
    if source.kind != statement.kind:
        raise sql_error("alter of another kind", found=source.kind, wanted=statement.kind)
    if source.by_query:
        raise sql_error("alter a query", name=statement.name)
    if source.read_only:
        raise sql_error("alter a source", kind=kind, name=statement.name)
    resolve = resolver(catalog)
    added = []
    for name, type_name in statement.columns:
        if source.schema.find(name) is not None:
            raise sql_error("alter column", name=name, source=statement.name)
        if name in SYSTEM_COLUMNS:
            raise sql_error("reserved column", name=name)
        added.append(Column(name, resolve(type_name)))
    found = replace(source, schema=Schema((*source.schema.columns, *added)), statement=statement.text)
    check_source(found)
    return found
