"""DatagenConnector: Confluent's settings, offsets and headers.

A record's offset is the state that the next one is made from: how many there were, and a number that seeds
what is random in it. A task that starts again goes on with exactly the record that was not written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import orjson

from millstream.connect.api import Settings, SourceConnector, SourceContext, SourceTask
from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigValue,
    NonEmptyString,
    Range,
)
from millstream.connect.connectors.datagen.generator import Generator, build_generator
from millstream.connect.connectors.datagen.quickstarts import QUICKSTARTS
from millstream.connect.data.record import Header, SourceRecord
from millstream.connect.data.schema import REQUIRED as REQUIRED_SCHEMAS
from millstream.connect.data.schema import Schema, Type
from millstream.connect.errors import ConnectError
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

_TASK_ID, _GENERATION, _ITERATION, _SEED = "task.id", "task.generation", "current.iteration", "random.seed"
_LONG = REQUIRED_SCHEMAS[Type.INT64]
BATCH = 500
"""Records of a poll where there is no pause between them."""


class DatagenTask(SourceTask):
    steady: ClassVar[bool] = True

    def __init__(self) -> None:
        self._topic = ""
        self._interval_ms = 500
        self._limit = -1
        self._count = self._generation = self._seed = 0
        self._random = Random()
        self._partition: dict[str, int] = {}
        self._due = 0.0
        self._uncommitted = False

    def start(self, settings: Settings, context: SourceContext) -> None:
        parsed = DatagenSource.config.parse(settings)
        self._topic, self._interval_ms = parsed["kafka.topic"], parsed["max.interval"]
        self._limit = parsed["iterations"]
        task_id = int(settings.get(_TASK_ID, "0"))
        self._partition = {_TASK_ID: task_id}
        seed = parsed["random.seed"]
        self._seed = Random().getrandbits(62) if seed is None else Random(f"{seed}/{task_id}").getrandbits(62)
        offset = context.offset(self._partition)
        if offset is not None:
            self._count, self._generation = int(offset[_ITERATION]), int(offset[_GENERATION])
            self._seed = int(offset[_SEED])
        self._generator, self._key_field = _generator(parsed, self._count)

    def poll(self) -> Sequence[SourceRecord]:
        if 0 < self._limit <= self._count:
            if self._uncommitted:
                self.idle_ms = 50  # what there is has to be written before the task ends
                return []
            raise ConnectError(
                f"Stopping connector: generated the configured {self._count} number of messages"
            )
        now = time.monotonic()
        if now < self._due:
            self.idle_ms = (self._due - now) * 1000
            return []
        if self._interval_ms > 0:
            self._due = now + Random().random() * self._interval_ms / 1000
        wanted = 1 if self._interval_ms > 0 else BATCH
        if self._limit > 0:
            wanted = min(wanted, self._limit - self._count)
        self._uncommitted = True
        return [self._record() for _ in range(wanted)]

    def _record(self) -> SourceRecord:
        self._random.seed(self._seed)
        value = self._generator.make(self._random)
        self._seed = self._random.getrandbits(62)
        key_schema, key = self._key(value)
        headers = (
            Header(_GENERATION, _LONG, self._generation),
            Header(_TASK_ID, _LONG, self._partition[_TASK_ID]),
            Header(_ITERATION, _LONG, self._count),
        )
        self._count += 1
        return SourceRecord(
            topic=self._topic,
            key_schema=key_schema,
            key=key,
            value_schema=self._generator.schema,
            value=value,
            headers=headers,
            source_partition=self._partition,
            source_offset={
                _GENERATION: self._generation + 1,
                _ITERATION: self._count,
                _SEED: self._seed,
            },
        )

    def _key(self, value: Any) -> tuple[Schema | None, Any]:
        if not self._key_field:
            return None, None
        field = self._generator.schema.field(self._key_field)
        assert field is not None
        return field.schema, value.values[field.index]

    def committed(self) -> None:
        self._uncommitted = False


def _generator(parsed: Mapping[str, Any], made_before: int) -> tuple[Generator, str]:
    """What makes the records, and the name of the field that is their key, or nothing."""
    if parsed["quickstart"]:
        quickstart = QUICKSTARTS[parsed["quickstart"].upper()]
        return build_generator(quickstart.schema, made_before), quickstart.key
    if parsed["schema.string"]:
        text = parsed["schema.string"].encode()
    else:
        try:
            text = Path(parsed["schema.filename"]).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"Unable to read the '{parsed['schema.filename']}' schema file: {error.strerror}"
            ) from None
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"the schema is not JSON: {error}") from None
    generator = build_generator(schema, made_before)
    key = parsed["schema.keyfield"]
    if key and generator.schema.field(key) is None:
        raise ConfigError.of("schema.keyfield", key, "the schema has no such field")
    return generator, key


def _quickstart(name: str, value: Any) -> None:
    if value and value.upper() not in QUICKSTARTS:
        known = ", ".join(one.lower() for one in QUICKSTARTS)
        raise ConfigError.of(name, value, f"String must be one of: {known}")


class DatagenSource(SourceConnector):
    task = DatagenTask
    config = ConfigDef(
        [
            ConfigKey(
                "kafka.topic",
                SettingType.STRING,
                REQUIRED,
                Importance.HIGH,
                "The topic to write to.",
                NonEmptyString(),
            ),
            ConfigKey(
                "quickstart",
                SettingType.STRING,
                "",
                Importance.HIGH,
                "One of the well-known kinds of records: "
                + ", ".join(f"`{name.lower()}`" for name in QUICKSTARTS)
                + ".",
                CheckedBy(_quickstart, ""),
            ),
            ConfigKey(
                "schema.string",
                SettingType.STRING,
                "",
                Importance.HIGH,
                "An Avro schema of the records, with `arg.properties`, instead of a quickstart.",
            ),
            ConfigKey(
                "schema.filename",
                SettingType.STRING,
                "",
                Importance.HIGH,
                "A file with such a schema, instead of both.",
            ),
            ConfigKey(
                "schema.keyfield",
                SettingType.STRING,
                "",
                Importance.HIGH,
                "The field that is the record's key, with a schema of one's own.",
            ),
            ConfigKey(
                "max.interval",
                SettingType.LONG,
                500,
                Importance.HIGH,
                "The longest pause between two records, in milliseconds; 0 for as fast as it goes.",
                Range(0),
            ),
            ConfigKey(
                "iterations",
                SettingType.INT,
                -1,
                Importance.HIGH,
                "How many records each task makes; then it fails, as Confluent's does. -1: no end.",
            ),
            ConfigKey(
                "random.seed",
                SettingType.LONG,
                None,
                Importance.LOW,
                "The same seed makes the same records.",
            ),
        ]
    )

    def task_settings(self, max_tasks: int) -> list[Settings]:
        return [{**self.settings, _TASK_ID: str(number)} for number in range(max_tasks)]

    @classmethod
    def validate(cls, settings: Settings) -> dict[str, ConfigValue]:
        found = cls.config.validate(settings)
        names = ("quickstart", "schema.string", "schema.filename")
        given = [name for name in names if settings.get(name)]
        if len(given) != 1:
            for name in given or names:
                found[name].errors.append(f"Exactly one of {', '.join(names)} has to be given")
        elif not any(value.errors for value in found.values()):
            try:
                _generator(cls.config.parse(settings), 0)
            except ConfigError as error:
                found[given[0]].errors.append(str(error))
        return found
