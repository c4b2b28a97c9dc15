"""The settings of the search sink: Confluent's, and Aiven's where they have other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.config.config_def import REQUIRED as NEEDED
from millstream.connect.config.config_def import (
    CaseInsensitiveValidString,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    Range,
)
from millstream.connect.connectors.http.sink_config import is_url
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _urls(name: str, value: Any) -> None:
    if not value:
        raise ConfigError.of(name, value, "at least one URL")
    for url in value:
        is_url(name, url)


def _pairs(name: str, value: Any) -> None:
    for entry in value or ():
        if ":" not in entry:
            raise ConfigError.of(name, entry, "an entry is topic:index")


def _choice(name: str, default: str, doc: str, *allowed: str) -> ConfigKey:
    return ConfigKey(name, Type.STRING, default, LOW, doc, CaseInsensitiveValidString(allowed))


CONFIG = ConfigDef(
    [
        ConfigKey(
            "connection.url",
            Type.LIST,
            NEEDED,
            HIGH,
            "Servers; the next one is asked where one is away.",
            CheckedBy(_urls, "URLs of http or https"),
        ),
        ConfigKey("connection.username", Type.STRING, None, MEDIUM, "Who we are, by basic authentication."),
        ConfigKey("connection.password", Type.PASSWORD, None, MEDIUM, "The password that belongs to it."),
        ConfigKey("connection.timeout.ms", Type.INT, 1000, LOW, "Until a connection has failed.", Range(1)),
        ConfigKey("read.timeout.ms", Type.INT, 3000, LOW, "Until a request has failed.", Range(1)),
        ConfigKey("batch.size", Type.INT, 2000, MEDIUM, "Documents in a bulk request.", Range(1, 1_000_000)),
        ConfigKey("linger.ms", Type.LONG, 1, LOW, "How long a smaller request waits for more.", Range(0)),
        ConfigKey(
            "max.retries", Type.INT, 5, LOW, "How often a request is repeated; -1: for ever.", Range(-1)
        ),
        ConfigKey("retry.backoff.ms", Type.LONG, 100, LOW, "The first pause; it doubles.", Range(0)),
        ConfigKey("key.ignore", Type.BOOLEAN, False, HIGH, "Whether ids are topic+partition+offset."),
        ConfigKey("topic.key.ignore", Type.LIST, (), LOW, "Topics for which key.ignore is true."),
        _choice(
            "key.ignore.id.strategy",
            "topic.partition.offset",
            "Ids where the key is ignored: topic+partition+offset, or whatever the server gives (one more "
            "document for each repetition).",
            "TOPIC.PARTITION.OFFSET",
            "NONE",
        ),
        ConfigKey("schema.ignore", Type.BOOLEAN, False, LOW, "Whether an index guesses the types of fields."),
        ConfigKey("topic.schema.ignore", Type.LIST, (), LOW, "Topics for which schema.ignore is true."),
        ConfigKey("compact.map.entries", Type.BOOLEAN, True, LOW, "Maps with text keys as objects."),
        ConfigKey(
            "topic.index.map",
            Type.LIST,
            (),
            LOW,
            "Indices of topics, topic:index; else an index is called as its topic, in lower case.",
            CheckedBy(_pairs, "topic:index"),
        ),
        _choice(
            "write.method",
            "insert",
            "insert: a document takes the place of an older one. upsert: its fields do. "
            "`index.write.method` means the same.",
            "INSERT",
            "UPSERT",
        ),
        _choice(
            "behavior.on.null.values",
            "fail",
            "What becomes of a record without a value; delete: the document of its key goes.",
            "IGNORE",
            "DELETE",
            "FAIL",
        ),
        _choice(
            "behavior.on.malformed.documents",
            "fail",
            "What becomes of a document that the server refuses: fail (a dead letter where errors are "
            "tolerated), or it is left out, with a warning or without.",
            "IGNORE",
            "WARN",
            "FAIL",
            "REPORT",
        ),
        _choice(
            "behavior.on.version.conflict",
            "ignore",
            "What becomes of a document that is newer at the server already: nothing, by default.",
            "IGNORE",
            "WARN",
            "FAIL",
            "REPORT",
        ),
        _choice(
            "data.stream.type", "none", "Write to data streams: logs or metrics.", "NONE", "LOGS", "METRICS"
        ),
        ConfigKey("data.stream.dataset", Type.STRING, "", LOW, "The middle of a data stream's name."),
        ConfigKey("data.stream.namespace", Type.STRING, "${topic}", LOW, "The end of a data stream's name."),
        ConfigKey(
            "data.stream.timestamp.field", Type.LIST, (), LOW, "Fields for @timestamp; else the record's."
        ),
    ]
)
SYNONYMS = {"index.write.method": "write.method"}


def pairs(entries: Any) -> Mapping[str, str]:
    return {topic: index for topic, _, index in (entry.partition(":") for entry in entries)}
