"""The JSON of ksqlDB's answers: one function for each `@type`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.sql.catalog import Catalog, Column, Schema, Source
from millstream.sql.masking import masked
from millstream.sql.types import ArrayType, DecimalType, MapType, SqlType, StructType

Json = dict[str, Any]


def entity(type_: str, statement: str, **fields: Any) -> Json:
    return {"@type": type_, "statementText": masked(statement), "warnings": [], **fields}


def current_status(
    statement: str,
    command_id: str,
    message: str,
    sequence: int,
    query_id: str | None = None,
    warnings: Iterable[str] = (),
) -> Json:
    return {
        "@type": "currentStatus",
        "statementText": statement,
        "commandId": command_id,
        "commandStatus": {"status": "SUCCESS", "message": message, "queryId": query_id},
        "commandSequenceNumber": sequence,
        "warnings": [{"message": text} for text in warnings],
    }


def statement_error(message: str, statement: str, code: int = 40001, entities: Sequence[Json] = ()) -> Json:
    return {
        "@type": "statement_error",
        "error_code": code,
        "message": message,
        "statementText": masked(statement),
        "entities": list(entities),
    }


def generic_error(message: str, code: int = 40000) -> Json:
    return {"@type": "generic_error", "error_code": code, "message": message}


# Types and columns ----------------------------------------------------------------------------------------


def type_info(type_: SqlType) -> Json:
    """A type as DESCRIBE shows it: STRUCT with its fields, ARRAY and MAP with their members."""
    found: Json = {"type": type_.base.value, "fields": None, "memberSchema": None}
    if isinstance(type_, StructType):
        found["fields"] = [{"name": name, "schema": type_info(one)} for name, one in type_.fields]
    elif isinstance(type_, ArrayType):
        found["memberSchema"] = type_info(type_.item)
    elif isinstance(type_, MapType):
        found["memberSchema"] = type_info(type_.value)
    elif isinstance(type_, DecimalType):
        found["parameters"] = {"precision": type_.precision, "scale": type_.scale}
    return found


_KINDS = {"key": "KEY", "header": "HEADER"}


def fields(columns: Iterable[Column]) -> list[Json]:
    found = []
    for column in columns:
        one: Json = {"name": column.name, "schema": type_info(column.type)}
        if column.namespace != "value":
            one["type"] = _KINDS[column.namespace]
        if column.header:
            one["headerKey"] = column.header
        found.append(one)
    return found


# Sources --------------------------------------------------------------------------------------------------


def window_type(source: Source) -> str | None:
    return None if source.window is None else source.window.type


def listing(source: Source) -> Json:
    return {
        "type": source.kind,
        "name": source.name,
        "topic": source.topic,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "isWindowed": source.window is not None,
    }


def streams(statement: str, sources: Iterable[Source]) -> Json:
    return entity("streams", statement, streams=[listing(one) for one in sources])


def tables(statement: str, sources: Iterable[Source]) -> Json:
    return entity("tables", statement, tables=[listing(one) for one in sources])


def query_entry(query_id: str, text: str, sink: Source | None, state: str, kind: str = "PERSISTENT") -> Json:
    return {
        "queryString": text,
        "sinks": [] if sink is None else [sink.name],
        "sinkKafkaTopics": [] if sink is None else [sink.topic],
        "id": query_id,
        "statusCount": {state: 1},
        "queryType": kind,
        "state": state,
    }


def source_description(
    source: Source,
    catalog: Catalog,
    states: Mapping[str, str],
    *,
    extended: bool,
    partitions: int,
    replication: int,
    statistics: str = "",
    offsets: list[Json] | None = None,
) -> Json:
    def entries(found: Iterable[Any]) -> list[Json]:
        return [
            query_entry(one.id, one.statement, catalog.source(one.sink), states.get(one.id, "RUNNING"))
            for one in found
        ]

    constraints = sorted(
        query.sink
        for query in catalog.readers(source.name)
        if query.kind == "CREATE_AS" and query.sink in catalog.sources
    )
    return {
        "name": source.name,
        "windowType": window_type(source),
        "readQueries": entries(catalog.readers(source.name)),
        "writeQueries": entries(catalog.writers(source.name)),
        "fields": fields(source.schema.columns),
        "type": source.kind,
        "timestamp": "" if source.timestamp is None else source.timestamp.column,
        "statistics": statistics,
        "errorStats": "",
        "extended": extended,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "topic": source.topic,
        "partitions": partitions,
        "replication": replication,
        "statement": source.statement,
        "queryOffsetSummaries": offsets or [],
        "sourceConstraints": constraints,
        "clusterStatistics": [],
        "clusterErrorStats": [],
    }


def query_description(
    query_id: str,
    text: str,
    schema: Schema,
    *,
    sources: Iterable[str],
    sinks: Iterable[str],
    topology: str,
    plan: str,
    state: str | None,
    host: str,
    window: str | None = None,
    properties: Mapping[str, Any] | None = None,
    errors: list[Json] | None = None,
    tasks: list[Json] | None = None,
    kind: str = "PERSISTENT",
) -> Json:
    return {
        "id": query_id,
        "statementText": text,
        "windowType": window,
        "fields": fields(schema.columns),
        "sources": sorted(sources),
        "sinks": sorted(sinks),
        "topology": topology,
        "executionPlan": plan,
        "overriddenProperties": dict(properties or {}),
        "ksqlHostQueryStatus": {} if state is None else {host: state},
        "queryType": kind,
        "queryErrors": errors or [],
        "tasksMetadata": tasks or [],
        "state": state,
    }
