"""Settings of the JDBC sink: Confluent's and Aiven's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from millstream.connect.api import Settings
from millstream.connect.config.config_def import (
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigValue,
    Range,
    ValidString,
)
from millstream.connect.connectors.jdbc.source_config import CONNECTION
from millstream.connect.errors import ConnectError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
INSERT, UPSERT, UPDATE = "insert", "upsert", "update"
NONE, KAFKA, RECORD_KEY, RECORD_VALUE = "none", "kafka", "record_key", "record_value"
KAFKA_COLUMNS = ("__connect_topic", "__connect_partition", "__connect_offset")


def _one_of(*allowed: str) -> CheckedBy:
    """In any case of letters."""

    def check(name: str, value: Any) -> None:
        ValidString(allowed)(name, str(value).lower())

    return CheckedBy(check, str(ValidString(allowed)))


def _check_mapping(name: str, value: Any) -> None:
    if any(len(one.split(":")) < 2 for one in value or ()):
        raise ConfigError.of(name, value, "Invalid topics to tables mapping")


def table_name(parsed: Mapping[str, Any], topic: str) -> str:
    """Of the table that a topic's records go to."""
    name = str(parsed["table.name.format"]).replace("${topic}", topic)
    if parsed["table.name.normalize"]:
        name = re.sub("[^a-zA-Z0-9_]", "_", name)
    mapping = [one.split(":") for one in parsed["topics.to.tables.mapping"] or ()]
    if mapping:
        name = next((table for mapped, table, *_ in mapping if mapped == topic), "")
    if not name:
        raise ConnectError(f"There is no table for the topic '{topic}' in topics.to.tables.mapping")
    return name


_WRITES = [
    ConfigKey(
        "insert.mode",
        Type.STRING,
        INSERT,
        HIGH,
        "`insert`; `upsert`: replaces the row with the same key; `update`: changes rows that are there.",
        _one_of(INSERT, UPSERT, UPDATE),
        group="Writes",
    ),
    ConfigKey(
        "batch.size",
        Type.INT,
        3000,
        MEDIUM,
        "How many rows go into one statement at most.",
        Range(1),
        group="Writes",
    ),
    ConfigKey(
        "delete.enabled",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "Whether a record without a value deletes the row with its key. Needs `pk.mode=record_key`.",
        group="Writes",
    ),
    ConfigKey(
        "millstream.offsets.table",
        Type.STRING,
        "",
        MEDIUM,
        "A table for the offsets, which are written in the same transaction as the rows: then each record is "
        "there once, in all modes. `auto.create` makes it.",
        group="Writes",
    ),
]
_DATA = [
    ConfigKey(
        "table.name.format",
        Type.STRING,
        "${topic}",
        MEDIUM,
        "The table of a topic: table, schema.table or catalog.schema.table. Dots of the topic count too, "
        'unless they stand in quotes (`"${topic}"`).',
        group="Data Mapping",
    ),
    ConfigKey(
        "table.name.normalize",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "Whether everything in that name but letters of ASCII, digits and `_` becomes `_`: dots, too.",
        group="Data Mapping",
    ),
    ConfigKey(
        "topics.to.tables.mapping",
        Type.LIST,
        None,
        MEDIUM,
        "Tables of topics, topic:table, in place of `table.name.format`. A topic that is not there is an "
        "error.",
        CheckedBy(_check_mapping, ""),
        group="Data Mapping",
    ),
    ConfigKey(
        "pk.mode",
        Type.STRING,
        NONE,
        HIGH,
        "Where the primary key comes from: nowhere, `kafka` (topic, partition, offset), `record_key`, or "
        "fields of the value (`record_value`).",
        _one_of(NONE, KAFKA, RECORD_KEY, RECORD_VALUE),
        group="Data Mapping",
    ),
    ConfigKey(
        "pk.fields",
        Type.LIST,
        (),
        MEDIUM,
        "The key's columns: names for Kafka's three, the column of a plain record key, fields of key or "
        "value. By default all fields.",
        group="Data Mapping",
    ),
    ConfigKey(
        "fields.whitelist",
        Type.LIST,
        (),
        MEDIUM,
        "The fields of the value to write; by default all. Those of the key come in any case.",
        group="Data Mapping",
    ),
    ConfigKey(
        "replace.null.with.default",
        Type.BOOLEAN,
        True,
        MEDIUM,
        "Whether a field that is null is written as its schema's default.",
        group="Data Mapping",
    ),
]
_DDL = [
    ConfigKey(
        "auto.create",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "Whether a missing table is created, by the record's schema.",
        group="DDL Support",
    ),
    ConfigKey(
        "auto.evolve",
        Type.BOOLEAN,
        False,
        MEDIUM,
        "Whether missing columns are added to a table.",
        group="DDL Support",
    ),
]
_RETRIES = [
    ConfigKey(
        "max.retries",
        Type.INT,
        10,
        MEDIUM,
        "How often a write is tried again before the task fails; -1 for ever.",
        Range(-1),
        group="Retries",
    ),
    ConfigKey(
        "retry.backoff.ms",
        Type.INT,
        3000,
        MEDIUM,
        "The pause before that.",
        Range(0),
        group="Retries",
    ),
]

SINK = ConfigDef([*CONNECTION, *_WRITES, *_DATA, *_DDL, *_RETRIES])


def validate_sink(settings: Settings) -> dict[str, ConfigValue]:
    """With the rules that concern several settings."""
    found = SINK.validate(settings)
    mode, keys = str(found["pk.mode"].value).lower(), found["pk.fields"].value or ()
    if found["delete.enabled"].value and mode != RECORD_KEY:
        found["delete.enabled"].errors.append("Deletes are only supported for pk.mode record_key")
    if str(found["insert.mode"].value).lower() in (UPSERT, UPDATE) and mode == NONE:
        found["pk.mode"].errors.append(
            f"Primary key mode must be set to kafka, record_key or record_value with insert.mode "
            f"{found['insert.mode'].value}"
        )
    if mode == KAFKA and keys and len(keys) != len(KAFKA_COLUMNS):
        found["pk.fields"].errors.append(
            f"Must be 3 names with pk.mode kafka: for topic, partition and offset, not {len(keys)}"
        )
    return found
