"""Sources and queries as JSON, for the command topic: what a statement was found to mean, with every column
and format spelled out, so that replaying it needs neither a registry nor the analyser of that day."""

from __future__ import annotations

from typing import Any

from millstream.sql.catalog import Catalog, Column, QueryInfo, Schema, Source, Timestamp, WindowInfo
from millstream.sql.formats import Format
from millstream.sql.types import (
    PRIMITIVES,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    StructType,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)

Json = dict[str, Any]


def type_json(type_: SqlType) -> Any:
    if isinstance(type_, DecimalType):
        return {"decimal": [type_.precision, type_.scale]}
    if isinstance(type_, ArrayType):
        return {"array": type_json(type_.item)}
    if isinstance(type_, MapType):
        return {"map": [type_json(type_.key), type_json(type_.value)]}
    if isinstance(type_, StructType):
        return {"struct": [[name, type_json(one)] for name, one in type_.fields]}
    return type_.base.value


def read_type(found: Any) -> SqlType:
    if isinstance(found, str):
        return PRIMITIVES[found]
    ((kind, inner),) = found.items()
    if kind == "decimal":
        return decimal_type(*inner)
    if kind == "array":
        return array_type(read_type(inner))
    if kind == "map":
        return map_type(read_type(inner[0]), read_type(inner[1]))
    return struct_type(*((name, read_type(one)) for name, one in inner))


def source_json(source: Source) -> Json:
    return {
        "name": source.name,
        "kind": source.kind,
        "columns": [
            [one.name, type_json(one.type), one.namespace, one.header] for one in source.schema.columns
        ],
        "topic": source.topic,
        "keyFormat": [source.key_format.name, list(source.key_format.properties)],
        "valueFormat": [source.value_format.name, list(source.value_format.properties)],
        "window": None if source.window is None else [source.window.type, source.window.size],
        "unwrap": source.unwrap,
        "unwrapKey": source.unwrap_key,
        "timestamp": None if source.timestamp is None else [source.timestamp.column, source.timestamp.format],
        "statement": source.statement,
        "readOnly": source.read_only,
        "byQuery": source.by_query,
        "partitions": source.partitions,
        "replicas": source.replicas,
        "retention": source.retention_ms,
    }


def read_source(found: Json) -> Source:
    def format_(part: Any) -> Format:
        return Format(part[0], tuple((name, value) for name, value in part[1]))

    window, timestamp = found["window"], found["timestamp"]
    columns = tuple(
        Column(name, read_type(one), space, header) for name, one, space, header in found["columns"]
    )
    return Source(
        found["name"],
        found["kind"],
        Schema(columns),
        found["topic"],
        format_(found["keyFormat"]),
        format_(found["valueFormat"]),
        None if window is None else WindowInfo(*window),
        unwrap=found["unwrap"],
        unwrap_key=found["unwrapKey"],
        timestamp=None if timestamp is None else Timestamp(*timestamp),
        statement=found["statement"],
        read_only=found["readOnly"],
        by_query=found["byQuery"],
        partitions=found["partitions"],
        replicas=found["replicas"],
        retention_ms=found["retention"],
    )


def query_json(query: QueryInfo) -> Json:
    return {
        "id": query.id,
        "kind": query.kind,
        "sources": sorted(query.sources),
        "sink": query.sink,
        "statement": query.statement,
    }


def read_query(found: Json) -> QueryInfo:
    return QueryInfo(
        found["id"], found["kind"], frozenset(found["sources"]), found["sink"], found["statement"]
    )


def apply(catalog: Catalog, plan: Json) -> Catalog:
    """The catalog after a command. Parts of a plan: `drop`, `terminate`, `source`, `query`, `type`,
    `dropType`."""
    for name in plan.get("terminate", ()):
        catalog = catalog.without_query(name)
    if "drop" in plan:
        catalog = catalog.without_source(plan["drop"])
    if "source" in plan:
        catalog = catalog.with_source(read_source(plan["source"]))
    if "query" in plan:
        catalog = catalog.with_query(read_query(plan["query"]))
    if "type" in plan:
        catalog = catalog.with_type(plan["type"][0], read_type(plan["type"][1]))
    if "dropType" in plan:
        catalog = catalog.without_type(plan["dropType"])
    return catalog
