"""Aiven's S3 sink, by its own settings: file names from a template, records in an envelope.

`{{topic}}`, `{{partition}}`, `{{start_offset}}` (both with `:padding=true`) and `{{timestamp:unit=yyyy}}`
(MM, dd, HH too; of the clock) may stand in `file.name.template`. Without `file.max.records` a file ends every
minute, as the offsets of Aiven's would be committed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from millstream.connect.api import Settings
from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    NonEmptyString,
    Range,
    ValidList,
    ValidString,
)
from millstream.connect.connectors.storage.formats import Format, line_format
from millstream.connect.connectors.storage.partitioners import Clock, Partitioner, TimeBasedPartitioner
from millstream.connect.connectors.storage.sink import Names, S3Task, StorageSink
from millstream.connect.connectors.storage.sink_config import HIGH, LOW, MEDIUM, S3
from millstream.connect.converters.json import JsonConverter
from millstream.connect.data.record import SinkRecord
from millstream.settings.values import Type

_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*(?::\s*(\w+)\s*=\s*(\w+)\s*)?\}\}")
_UNITS = ("yyyy", "MM", "dd", "HH")
_FIELDS = ("key", "value", "offset", "timestamp", "headers")
ONE_MINUTE_MS = 60_000
NO_LIMIT = 2**31 - 1


def _template(name: str, value: Any) -> None:
    for variable, option, chosen in _VARIABLE.findall(value or ""):
        timed = variable == "timestamp" and (option, chosen) in {("unit", unit) for unit in _UNITS}
        padded = variable in ("partition", "start_offset") and option in ("", "padding")
        if not (timed or padded or (variable == "topic" and not option)):
            raise ConfigError.of(name, value, f"unsupported variable {variable}")
    if not {"topic", "partition", "start_offset"} <= {found[0] for found in _VARIABLE.findall(value or "")}:
        raise ConfigError.of(name, value, "it has to contain topic, partition and start_offset")


CONFIG = ConfigDef(
    [
        ConfigKey("aws.access.key.id", Type.STRING, "", HIGH, "Empty: as boto3 finds it."),
        ConfigKey("aws.secret.access.key", Type.PASSWORD, None, HIGH, "The secret that belongs to it."),
        ConfigKey("aws.s3.bucket.name", Type.STRING, REQUIRED, HIGH, "The bucket.", NonEmptyString()),
        ConfigKey("aws.s3.region", Type.STRING, "us-west-2", MEDIUM, "Its region."),
        ConfigKey("aws.s3.endpoint", Type.STRING, "", LOW, "Where S3 is, if it is not Amazon's."),
        ConfigKey("aws.s3.prefix", Type.STRING, "", MEDIUM, "What stands before every name."),
        ConfigKey(
            "file.name.template",
            Type.STRING,
            "{{topic}}-{{partition:padding=true}}-{{start_offset:padding=true}}",
            MEDIUM,
            "The name of a file.",
            CheckedBy(_template, "a template with topic, partition and start_offset"),
        ),
        ConfigKey("file.max.records", Type.INT, 0, MEDIUM, "How many records make a file; 0: any.", Range(0)),
        ConfigKey("file.compression.type", Type.STRING, "gzip", MEDIUM, "", ValidString(("none", "gzip"))),
        ConfigKey("timestamp.timezone", Type.STRING, "UTC", LOW, "Of the times in names."),
        ConfigKey(
            "format.output.type",
            Type.STRING,
            "jsonl",
            MEDIUM,
            "A line of JSON each.",
            ValidString(("jsonl",)),
        ),
        ConfigKey(
            "format.output.fields",
            Type.LIST,
            ("value",),
            MEDIUM,
            "What of a record is written.",
            ValidList(may_be_empty=False, allowed=_FIELDS),
        ),
        ConfigKey(
            "format.output.envelope",
            Type.BOOLEAN,
            True,
            MEDIUM,
            "Whether a line has its fields by name; false, with one field: only that.",
        ),
    ]
)


class _Template(Partitioner):
    """The time in a name makes it another "folder"; the rest is filled in when the file begins."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.wall_clock = "timestamp" in settings["file.name.template"]
        self._template: str = settings["file.name.template"]
        self._units = {
            unit: TimeBasedPartitioner(settings, 3_600_000, unit.replace("y", "Y")) for unit in _UNITS
        }

    def path(self, record: SinkRecord, clock: Clock) -> str:
        return self.path_at(clock())

    def path_at(self, millis: int | None) -> str:
        return _VARIABLE.sub(
            lambda found: self._units[found[3]].path_at(millis) if found[1] == "timestamp" else found[0],
            self._template,
        )


class _Names(Names):
    def __init__(self, prefix: str, extension: str) -> None:
        self._prefix, self._extension, self._delim = prefix, extension, "\n"

    def folder(self, topic: str, path: str) -> str:
        return path

    def name(self, folder: str, stem: str, first: int, last: int) -> str:
        topic, _, number = stem.partition("\n")

        def filled(found: re.Match[str]) -> str:
            padded = found[3] == "true"
            if found[1] == "topic":
                return topic
            value = int(number) if found[1] == "partition" else first
            return f"{value:0{(10 if found[1] == 'partition' else 20) if padded else 1}d}"

        return self._prefix + _VARIABLE.sub(filled, folder) + self._extension


class AivenS3Task(S3Task):
    config = CONFIG

    def parsed(self, settings: Settings) -> dict[str, Any]:
        """Ours, for what is the same by another name."""
        theirs = CONFIG.parse(settings)
        count = theirs["file.max.records"]
        ours = S3.parse(
            {
                "s3.bucket.name": theirs["aws.s3.bucket.name"],
                "s3.region": theirs["aws.s3.region"],
                "store.url": theirs["aws.s3.endpoint"],
                "aws.access.key.id": theirs["aws.access.key.id"],
                "flush.size": str(count or NO_LIMIT),
                "rotate.schedule.interval.ms": str(-1 if count else ONE_MINUTE_MS),
                "timezone": theirs["timestamp.timezone"],
            }
        )
        return ours | theirs

    def make_partitioner(self, settings: Mapping[str, Any]) -> Partitioner:
        return _Template(settings)

    def make_format(self, settings: Mapping[str, Any]) -> Format:
        level = 6 if settings["file.compression.type"] == "gzip" else None
        fields: tuple[str, ...] = settings["format.output.fields"]
        return line_format("", _Envelope(fields, settings["format.output.envelope"]), level)

    def make_names(self, settings: Mapping[str, Any], extension: str) -> Names:
        return _Names(settings["aws.s3.prefix"], extension)


class _Envelope:
    """A record as a line of JSON."""

    def __init__(self, fields: tuple[str, ...], envelope: bool) -> None:
        self._fields, self._bare = fields, len(fields) == 1 and not envelope
        self._converter = JsonConverter({"schemas.enable": "false"})

    def __call__(self, record: SinkRecord, value: Any) -> bytes:
        texts = {name: self._text(record, name, value) for name in self._fields}
        if self._bare:
            return texts[self._fields[0]]
        return b"{" + b",".join(b'"%s":%s' % (name.encode(), text) for name, text in texts.items()) + b"}"

    def _text(self, record: SinkRecord, name: str, value: Any) -> bytes:
        if name == "headers":
            pairs = [
                b'{"key":%s,"value":%s}'
                % (self._json(None, header.name), self._json(header.schema, header.value))
                for header in record.headers
            ]
            return b"[" + b",".join(pairs) + b"]"
        if name == "offset":
            return str(record.offset).encode()
        if name == "timestamp":
            return b"null" if record.timestamp is None else str(record.timestamp).encode()
        schema = record.key_schema if name == "key" else record.value_schema
        return self._json(schema, record.key if name == "key" else value)

    def _json(self, schema: Any, value: Any) -> bytes:
        return self._converter.from_connect("", schema, value) or b"null"


class AivenS3Sink(StorageSink):
    task = AivenS3Task
    config = CONFIG

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, Any]:
        return CONFIG.validate(settings)
