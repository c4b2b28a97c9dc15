"""The answers of the SQL server as text for people: tables for lists, a few lines for descriptions."""

from __future__ import annotations

import json
from typing import Any


def cell(value: Any) -> str:
    if value is None:
        return "<null>"
    return value if isinstance(value, str) else json.dumps(value)


def table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    cells = [heads, *(tuple(cell(value) for value in row) for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(heads))]

    def line(row: tuple[str, ...]) -> str:
        return " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()

    return [line(heads), "-" * (sum(widths) + 3 * (len(widths) - 1)), *map(line, cells[1:])]


def render(entity: dict[str, Any]) -> list[str]:
    """An entity of the server's answer, for people."""
    kind = entity.get("@type")
    rows: list[tuple[Any, ...]]
    if kind == "currentStatus":
        return [entity.get("commandStatus", {}).get("message", "")]
    if kind in ("streams", "tables"):
        rows = [
            (one["name"], one["topic"], one["keyFormat"], one["valueFormat"], str(one["isWindowed"]).lower())
            for one in entity[kind]
        ]
        return table(("Name", "Kafka topic", "Key format", "Value format", "Windowed"), rows)
    if kind in ("kafka_topics", "kafka_topics_extended"):
        rows = [
            (one["name"], str(len(one["replicaInfo"])), str(max(one["replicaInfo"], default=0)))
            for one in entity["topics"]
        ]
        return table(("Topic", "Partitions", "Replicas"), rows)
    if kind == "queries":
        rows = [
            (one["id"], one["state"], ", ".join(one["sinks"]), one["queryString"])
            for one in entity["queries"]
        ]
        return table(("Query", "State", "Sink", "Statement"), rows)
    if kind == "function_names":
        return table(
            ("Function", "Category"), [(one["name"], one["category"]) for one in entity["functions"]]
        )
    if kind == "properties":
        return table(("Property", "Value"), [(one["name"], one["value"]) for one in entity["properties"]])
    if kind == "variables":
        return table(("Variable", "Value"), [(one["name"], one["value"]) for one in entity["variables"]])
    if kind == "type_list":
        return table(("Type", "Schema"), [(name, _type(one)) for name, one in entity["types"].items()])
    if kind == "sourceDescription":
        return _source(entity["sourceDescription"])
    if kind == "queryDescription":
        return _query(entity["queryDescription"])
    if kind == "warning_entity":
        return [entity["message"]]
    return _of_connectors(entity) or json.dumps(entity, indent=2).splitlines()


def _of_connectors(entity: dict[str, Any]) -> list[str] | None:
    kind = entity.get("@type")
    if kind == "connector_info":
        return [f"Created connector {entity['info']['name']}"]
    if kind == "drop_connector":
        return [f"Dropped connector {entity['connectorName']}"]
    if kind == "connector_list":
        rows = [(one["name"], one["type"], one["className"], one["state"]) for one in entity["connectors"]]
        return table(("Connector", "Type", "Class", "State"), rows)
    if kind == "connector_plugins_list":
        plugins = [(one["className"], one["type"], one["version"]) for one in entity["connectorsPlugins"]]
        return table(("Class", "Type", "Version"), plugins)
    if kind == "connector_description":
        status = entity["status"]
        tasks = [(str(one["id"]), one["state"], one.get("trace", "")) for one in status["tasks"]]
        return [
            f"{status['name']} ({entity['connectorClass']}): {status['connector']['state']}",
            *table(("Task", "State", "Error"), tasks),
            *(f"Topic {topic}" for topic in entity["topics"]),
        ]
    return None


def _type(schema: dict[str, Any]) -> str:
    if schema["type"] == "ARRAY":
        return f"ARRAY<{_type(schema['memberSchema'])}>"
    if schema["type"] == "MAP":
        return f"MAP<STRING, {_type(schema['memberSchema'])}>"
    if schema["type"] == "STRUCT":
        inner = ", ".join(f"{one['name']} {_type(one['schema'])}" for one in schema["fields"])
        return f"STRUCT<{inner}>"
    if "parameters" in schema:
        return f"DECIMAL({schema['parameters']['precision']}, {schema['parameters']['scale']})"
    return str(schema["type"])


def _source(found: dict[str, Any]) -> list[str]:
    rows = [
        (one["name"], _type(one["schema"]) + (f" ({one['type'].lower()})" if "type" in one else ""))
        for one in found["fields"]
    ]
    lines = [f"{found['type'].capitalize()} {found['name']} (topic {found['topic']})"]
    lines += table(("Field", "Type"), rows)
    for word in ("readQueries", "writeQueries"):
        if found[word]:
            lines.append(f"{'Read' if word == 'readQueries' else 'Written'} by:")
            lines += [f"  {one['id']} ({one['state']}): {one['queryString']}" for one in found[word]]
    return lines


def _query(found: dict[str, Any]) -> list[str]:
    lines = [f"{found['id']} {found['state'] or ''}", found["statementText"], ""]
    statistics = found.get("statistics")
    if statistics is not None:
        rates = statistics["rates"]
        lines += [
            f"Reads {rates['readPerSecond']} and writes {rates['writtenPerSecond']} records a second, is "
            f"{rates['lag']} behind, keeps {rates['stateBytes']} bytes, commits in {rates['commitMs']} ms",
            "",
        ]
        topics = [
            (one["name"], one["role"], one.get("partitions"), one.get("endOffsets"))
            for one in statistics["topics"]
        ]
        lines += [*table(("Topic", "Role", "Partitions", "Records"), topics), ""]
        if statistics["stores"]:
            stores = [(one["name"], one["type"]) for one in statistics["stores"]]
            lines += [*table(("Store", "Type"), stores), ""]
    lines += [one["errorMessage"] for one in found.get("queryErrors", ())]
    return [*lines, found["topology"]]
