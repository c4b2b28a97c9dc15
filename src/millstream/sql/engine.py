"""Statements against a catalog: `apply` gives the catalog after one, and the query that it starts, if any.

Nothing here has an effect outside: no topic is made, no schema registered, nothing runs. That is left to
whoever applies the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from millstream.sql import ast, statements
from millstream.sql.analyse import analyse
from millstream.sql.analyse_keys import with_keys
from millstream.sql.analysis import Analysis, SelectColumn
from millstream.sql.catalog import Catalog, Column, QueryInfo, Schema, Source
from millstream.sql.ddl import (
    alter,
    check_replacement,
    check_retention,
    check_schema_id,
    check_source,
    create_source,
    named_key,
    unwrapped_value,
)
from millstream.sql.environment import TOPIC_PREFIX, Environment
from millstream.sql.errors import SqlError, sql_error
from millstream.sql.flow import Flow
from millstream.sql.formats import Format
from millstream.sql.fused import can_fuse
from millstream.sql.parser import parse_one
from millstream.sql.plan import Planner
from millstream.sql.row_functions import Log, no_log
from millstream.sql.type_names import resolver
from millstream.sql.types import SqlType, quoted
from millstream.sql.upgrades import check_upgrade
from millstream.sql.with_clause import With
from millstream.streams.topology import Topology


@dataclass(frozen=True)
class PersistentQuery:
    """A query that writes a topic. `topology` makes it anew each time."""

    id: str
    analysis: Analysis
    sink: Source
    sources: tuple[Source, ...]
    statement: str
    topology: Callable[[], Topology]


@dataclass(frozen=True)
class Outcome:
    """`message` is what a user is told."""

    catalog: Catalog
    query: PersistentQuery | None = None
    source: Source | None = None
    message: str = ""
    delete_topic: str | None = None


def apply(
    statement: statements.Statement,
    catalog: Catalog,
    environment: Environment,
    *,
    number: int = 0,
    log: Log = no_log,
) -> Outcome:
    """`number` makes the query's id: the place of the statement among all commands."""
    try:
        match statement:
            case statements.CreateSource():
                return _create(statement, catalog, environment)
            case statements.CreateAs():
                return _create_as(statement, catalog, environment, number, log)
            case statements.InsertInto():
                return _insert(statement, catalog, environment, number, log)
            case statements.DropSource():
                return _drop(statement, catalog)
            case statements.AlterSource():
                source = alter(statement, catalog)
                return Outcome(catalog.with_source(source), source=source, message="Alter command executed.")
            case statements.CreateType():
                return _create_type(statement, catalog)
            case statements.DropType():
                return _drop_type(statement, catalog)
    except SqlError as error:
        error.statement = statement.text
        raise
    except RecursionError:
        raise sql_error("too deep", statement.location) from None
    raise sql_error("not a command", statement.location, kind=type(statement).__name__)


# Sources ----------------------------------------------------------------------------------------------------


def _exists(statement: statements.CreateSource | statements.CreateAs, catalog: Catalog) -> Outcome | None:
    existing = catalog.source(statement.name)
    if existing is None or statement.or_replace:
        return None
    if statement.if_not_exists:
        kind = existing.kind.lower()
        return Outcome(
            catalog,
            message=f"Cannot add {kind} {quoted(existing.name)}: A {kind} with the same name already exists.",
        )
    raise sql_error(
        "source exists",
        kind=statement.kind.lower(),
        name=statement.name,
        existing=existing.kind.lower(),
    )


def _create(statement: statements.CreateSource, catalog: Catalog, environment: Environment) -> Outcome:
    source = create_source(statement, catalog, environment)
    there = _exists(statement, catalog)
    if there is not None:
        return there
    kind = statement.kind.capitalize()
    return Outcome(catalog.with_source(source), source=source, message=f"{kind} created")


def _drop(statement: statements.DropSource, catalog: Catalog) -> Outcome:
    source = catalog.source(statement.name)
    kind = statement.kind.capitalize()
    if source is None:
        if statement.if_exists:
            return Outcome(catalog, message=f"{kind} {quoted(statement.name)} does not exist.")
        raise sql_error("no such source", kind=kind, name=statement.name)
    if source.kind != statement.kind:
        raise sql_error("drop of another kind", wanted=statement.kind, name=statement.name, found=source.kind)
    if statement.delete_topic and source.read_only:
        raise sql_error("delete a source's topic", name=statement.name)
    reading = list(catalog.readers(source.name))
    readers = sorted(query.id for query in reading if query.kind == "INSERT")
    writers = sorted(query.id for query in catalog.writers(source.name) if query.kind == "INSERT")
    if readers or writers:
        raise sql_error(
            "source in use", name=source.name, readers=", ".join(readers), writers=", ".join(writers)
        )
    if reading:
        names = ", ".join(sorted({query.sink for query in reading}))
        raise sql_error("source read by sources", name=source.name, names=names)
    if statement.delete_topic:
        others = sorted(
            one.name for one in catalog.sources.values() if one.topic == source.topic and one is not source
        )
        if others:
            raise sql_error("topic in use", names=", ".join(others), topic=source.topic)
    after = catalog.without_source(source.name)
    for query in list(catalog.writers(source.name)):
        after = after.without_query(query.id)
    topic = source.topic if statement.delete_topic else None
    return Outcome(
        after,
        source=source,
        message=f"Source {quoted(source.name)} (topic: {source.topic}) was dropped.",
        delete_topic=topic,
    )


def _create_type(statement: statements.CreateType, catalog: Catalog) -> Outcome:
    type_ = resolver(catalog)(statement.type)
    if catalog.type(statement.name) is not None:
        if statement.if_not_exists:
            return Outcome(catalog, message=f"{statement.name} is already registered with type {type_}")
        raise sql_error("type exists", name=statement.name, type=catalog.type(statement.name))
    message = f"Registered custom type with name '{statement.name}' and SQL type {type_}"
    return Outcome(catalog.with_type(statement.name, type_), message=message)


def _drop_type(statement: statements.DropType, catalog: Catalog) -> Outcome:
    if catalog.type(statement.name) is None:
        if statement.if_exists:
            return Outcome(catalog, message=f"Type '{statement.name}' does not exist")
        raise sql_error("no such type", name=statement.name)
    return Outcome(catalog.without_type(statement.name), message=f"Dropped type '{statement.name}'")


# Queries ----------------------------------------------------------------------------------------------------

Types = list[tuple[SelectColumn, SqlType]]


def plan_query(
    query: ast.Query, catalog: Catalog, environment: Environment, log: Log = no_log
) -> tuple[Planner, Flow, Types]:
    """A query whose rows go to a client: the planner, the flow before the projection, its columns."""
    analysis = with_keys(analyse(query, catalog, environment), None)
    planner = Planner(analysis, catalog, environment, log)
    flow, types = planner.rows()
    return planner, flow, types


def _create_as(
    statement: statements.CreateAs, catalog: Catalog, environment: Environment, number: int, log: Log
) -> Outcome:
    given = With.of_sink(statement.properties)
    if statement.query.limit is not None:
        raise sql_error("LIMIT of a sink", kind=statement.kind)
    existing = catalog.source(statement.name)
    if statement.or_replace and existing is not None and existing.read_only:
        raise sql_error("OR REPLACE of a source", kind=statement.kind.lower(), name=statement.name)
    there = _exists(statement, catalog)
    if there is not None:
        return there
    if statement.kind == "TABLE" and statement.query.window is None:
        check_retention(given)
    found = analyse(statement.query, catalog, environment, sink=statement.name, target=statement.kind)
    _, types = Planner(found, catalog, environment, log).rows()
    analysis = with_keys(found, statement.name)
    sink = _sink(statement, given, analysis, _schema(analysis, types), environment)
    prefix = "CSAS" if statement.kind == "STREAM" else "CTAS"
    query_id = f"{prefix}_{statement.name}_{number}"
    if statement.or_replace and existing is not None:
        writing = list(catalog.writers(statement.name))
        if len(writing) > 1:
            queries = ", ".join(query.id for query in writing)
            raise sql_error("OR REPLACE with inserts", name=quoted(sink.name), queries=queries)
        old = _old_analysis(writing[0], catalog, environment) if writing else None
        check_upgrade(analysis if old is None else old, analysis)
        check_replacement(existing, sink)
        query_id = writing[0].id if writing else query_id
    query = _persistent(query_id, analysis, catalog, environment, log, sink, statement.text)
    info = QueryInfo(query_id, "CREATE_AS", _names(analysis), sink.name, statement.text)
    message = f"Created query with ID {query_id}"
    return Outcome(catalog.with_source(sink).with_query(info), query, sink, message)


def _schema(analysis: Analysis, types: Types) -> Schema:
    """Key columns in the order of the key, then the others as selected."""
    found = [(column, type_) for column, (_, type_) in zip(analysis.select, types, strict=True)]
    keys = sorted((one for one in found if one[0].key is not None), key=lambda one: one[0].key or 0)
    return Schema(
        (
            *(Column(column.name, type_, "key") for column, type_ in keys),
            *(Column(column.name, type_) for column, type_ in found if column.key is None),
        )
    )


def _old_analysis(query: QueryInfo, catalog: Catalog, environment: Environment) -> Analysis | None:
    """Of a query that is to be replaced; None if its statement would not be accepted any more."""
    try:
        statement = parse_one(query.statement)
        if not isinstance(statement, statements.CreateAs):
            return None
        return analyse(statement.query, catalog, environment, sink=statement.name, target=statement.kind)
    except SqlError:
        return None


def _names(analysis: Analysis) -> frozenset[str]:
    return frozenset(bound.source.name for bound in analysis.sources)


def _persistent(
    query_id: str,
    analysis: Analysis,
    catalog: Catalog,
    environment: Environment,
    log: Log,
    sink: Source,
    statement: str,
) -> PersistentQuery:
    def topology() -> Topology:
        planner = Planner(analysis, catalog, environment, log, target=sink.schema)
        if can_fuse(analysis, sink):
            return planner.fused_into(sink)
        flow, types = planner.rows()
        return planner.into(flow, types, sink)

    topology()  # what cannot be planned is refused with the statement
    sources = tuple(bound.source for bound in analysis.sources)
    return PersistentQuery(query_id, analysis, sink, sources, statement, topology)


def _sink(
    statement: statements.CreateAs,
    given: With,
    analysis: Analysis,
    schema: Schema,
    environment: Environment,
) -> Source:
    left = analysis.sources[0].source
    value_format = given.format("VALUE", left.value_format, environment)
    given.format("KEY", Format("KAFKA"), environment)  # an unknown format is refused in any case
    key_given = given.get("KEY_FORMAT") is not None
    if schema.key:
        inherited = None if left.key_format.name == "NONE" else left.key_format
        key_format = named_key(given.format("KEY", inherited, environment), statement.name)
    else:
        if key_given and str(given.get("KEY_FORMAT")).upper() != "NONE":
            raise sql_error("key format without key", kind=statement.kind.lower())
        key_format = Format("NONE")
    topic = given.get("KAFKA_TOPIC") or str(environment.setting(TOPIC_PREFIX, "")) + statement.name
    timestamp = given.timestamp
    sink = Source(
        statement.name,
        statement.kind,
        schema,
        topic,
        key_format,
        value_format,
        analysis.window,
        unwrap=unwrapped_value(given, value_format, len(schema.value), environment),
        timestamp=timestamp,
        statement=statement.text,
        by_query=True,
        partitions=given.get("PARTITIONS") or left.partitions,
        replicas=given.get("REPLICAS") or left.replicas,
        retention_ms=given.get("RETENTION_MS"),
    )
    check_source(sink)
    for part, format_ in (("key", key_format), ("value", value_format)):
        if format_.schema_id is not None and environment.registry is not None:
            check_schema_id(part, format_, sink, environment.registry)
    return sink


def _insert(
    statement: statements.InsertInto, catalog: Catalog, environment: Environment, number: int, log: Log
) -> Outcome:
    target = catalog.source(statement.target)
    if target is None:
        raise sql_error("unknown sink", name=statement.target)
    if target.read_only and target.kind == "STREAM":
        raise sql_error("insert into read-only", kind=target.kind.lower(), name=target.name)
    if target.kind != "STREAM":
        raise sql_error("insert into a table", name=target.name)
    if target.schema.headers:
        raise sql_error("insert into headers", name=target.name)
    given = With.of_insert(statement.properties)
    found = analyse(statement.query, catalog, environment, sink=target.name)
    if found.kind != "STREAM":
        raise sql_error("insert of a table", name=target.name)
    _, types = Planner(found, catalog, environment, log, target=target.schema).rows()
    analysis = with_keys(found, target.name)
    schema = _schema(analysis, types)
    _check_insert(schema, target)
    query_id = given.query_id() or f"INSERTQUERY_{number}"
    if any(one == query_id for one in catalog.queries):
        raise sql_error("query exists", name=query_id)
    # The topic is written as the target describes it; the columns are the query's, in the target's order.
    sink = replace(target, timestamp=None)
    query = _persistent(query_id, analysis, catalog, environment, log, sink, statement.text)
    info = QueryInfo(query_id, "INSERT", _names(analysis), target.name, statement.text)
    return Outcome(catalog.with_query(info), query, None, f"Created query with ID {query_id}")


def _check_insert(result: Schema, target: Schema | Source) -> None:
    schema = target.schema if isinstance(target, Source) else target
    one = [(column.name, column.type, column.namespace) for column in result.columns]
    other = [(column.name, column.type, column.namespace) for column in schema.columns]
    if len(one) == len(other) and all(
        mine[0] == theirs[0] and mine[2] == theirs[2] and mine[1].base.casts_implicitly_to(theirs[1].base)
        for mine, theirs in zip(one, other, strict=True)
    ):
        return
    raise sql_error("incompatible schema", result=result.text(), sink=schema.text())
