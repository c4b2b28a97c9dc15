"""TimestampConverter and TimestampRouter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from millstream.connect.config.config_def import REQUIRED, ConfigDef, ConfigError, ConfigKey, ValidString
from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name
from millstream.connect.data.logical import DATE_SCHEMA, MILLIS_PER_DAY, TIME_SCHEMA, TIMESTAMP_SCHEMA
from millstream.connect.data.schema import REQUIRED as REQUIRED_SCHEMAS
from millstream.connect.data.schema import Schema, Type
from millstream.connect.data.simple_date_format import SimpleDateFormat
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError, DataError
from millstream.connect.transforms.base import (
    REPLACE_NULL_WITH_DEFAULT,
    AnyRecord,
    KeyOrValueTransform,
    Target,
    Transform,
    require_map,
    require_struct,
    struct_like,
)
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

_SCHEMAS = {
    "string": REQUIRED_SCHEMAS[Type.STRING],
    "unix": REQUIRED_SCHEMAS[Type.INT64],
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}
_BY_NAME = {logical.DATE: "Date", logical.TIME: "Time", logical.TIMESTAMP: "Timestamp"}
# Units of unix.precision in a millisecond, or milliseconds in a unit.
_FINER = {"nanoseconds": 1_000_000, "microseconds": 1000, "milliseconds": 1}


class TimestampConverter(KeyOrValueTransform):
    """A field, or the whole key or value, from one way to write a moment to another."""

    config = ConfigDef(
        [
            ConfigKey(
                "field",
                SettingType.STRING,
                "",
                Importance.HIGH,
                "The field that has the moment; empty if it is the whole key or value.",
            ),
            ConfigKey(
                "target.type",
                SettingType.STRING,
                REQUIRED,
                Importance.HIGH,
                "string, unix, Date, Time or Timestamp.",
                ValidString(tuple(_SCHEMAS)),
            ),
            ConfigKey(
                "format",
                SettingType.STRING,
                "",
                Importance.MEDIUM,
                "How a text is read or written, as Java's SimpleDateFormat has it.",
            ),
            ConfigKey(
                "unix.precision",
                SettingType.STRING,
                "milliseconds",
                Importance.LOW,
                "Unit of unix times: seconds, milliseconds, microseconds or nanoseconds. What is finer than "
                "a millisecond is lost.",
                ValidString((*_FINER, "seconds")),
            ),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings, target)
        self._field, self._type = self.settings["field"], self.settings["target.type"]
        pattern = self.settings["format"]
        if self._type == "string" and not pattern.strip():
            raise ConfigError(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )
        try:
            self._format = SimpleDateFormat(pattern) if pattern.strip() else None
        except ValueError:
            raise ConfigError(
                "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: "
                f"{pattern}"
            ) from None

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        if schema is None:
            return self.write(record, None, self._without_schema(value))
        if not self._field:
            updated = _SCHEMAS[self._type].replace(optional=schema.optional)
            return self.write(record, updated, self._converted(value, _written_as(schema)))
        struct = None if value is None else require_struct(value, "converting timestamp formats", schema)
        updated = self.updated_schema(schema)
        return self.write(record, updated, self._convert_struct(struct, updated))

    def _without_schema(self, value: Any) -> Any:
        if value is None:
            return None
        if not self._field:
            return self._converted(value, _looks_like(value))
        fields = require_map(value, "converting timestamp formats")
        found = fields.get(self._field)
        converted = None if found is None else self._converted(found, _looks_like(found))
        return fields | {self._field: converted}

    def _convert_struct(self, struct: Struct | None, updated: Schema) -> Struct | None:
        if struct is None:
            return None
        result = Struct(updated)
        for field in struct.schema.fields:
            one = struct.read(field, self.with_default)
            if field.name == self._field:
                one = self._converted(one, _written_as(field.schema))
            result.put(field.name, one)
        return result

    def update_schema(self, schema: Schema) -> Schema:
        fields = [
            (
                field.name,
                _SCHEMAS[self._type].replace(optional=field.schema.optional)
                if field.name == self._field
                else field.schema,
            )
            for field in schema.fields
        ]
        updated = struct_like(schema, fields, optional=schema.optional)
        if schema.default is None:
            return updated
        return updated.replace(default=self._convert_struct(schema.default, updated))

    def _converted(self, value: Any, written_as: str) -> Any:
        return None if value is None else self._write(self._read(value, written_as))

    def _read(self, value: Any, written_as: str) -> datetime:
        if written_as == "string":
            if not isinstance(value, str):
                raise DataError(
                    f"Expected string timestamp to be a String, but found class {class_name(value)}"
                )
            if self._format is None:
                raise DataError(f"Could not parse timestamp: value ({value}), there is no format")
            try:
                return self._format.parse(value)
            except ValueError:
                raise DataError(
                    f"Could not parse timestamp: value ({value}) does not match pattern "
                    f"({self._format.pattern})"
                ) from None
        if written_as == "unix":
            if type(value) is not int:
                raise DataError(f"Expected Unix timestamp to be a Long, but found class {class_name(value)}")
            precision = self.settings["unix.precision"]
            if precision == "seconds":
                return logical.from_millis(value * 1000)
            return logical.from_millis(_towards_zero(value, _FINER[precision]))
        if not isinstance(value, datetime):
            raise DataError(
                f"Expected {written_as} to be a java.util.Date, but found class {class_name(value)}"
            )
        return value

    def _write(self, moment: datetime) -> Any:
        millis = logical.to_millis(moment)
        if self._type == "string":
            assert self._format is not None
            return self._format.format(moment)
        if self._type == "unix":
            precision = self.settings["unix.precision"]
            return _towards_zero(millis, 1000) if precision == "seconds" else millis * _FINER[precision]
        if self._type == "Date":
            return logical.from_millis(millis - millis % MILLIS_PER_DAY)
        return logical.from_millis(millis % MILLIS_PER_DAY) if self._type == "Time" else moment


def _towards_zero(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)


def _written_as(schema: Schema) -> str:
    if schema.name in _BY_NAME:
        return _BY_NAME[schema.name]
    if schema.type is Type.STRING:
        return "string"
    if schema.type is Type.INT64:
        return "unix"
    raise ConnectError(f"Schema {schema} does not correspond to a known timestamp type format")


def _looks_like(value: Any) -> str:
    if isinstance(value, datetime):
        return "Timestamp"
    if type(value) is int:
        return "unix"
    if isinstance(value, str):
        return "string"
    raise DataError(f"TimestampConverter does not support class {class_name(value)} objects as timestamps")


class TimestampRouter(Transform):
    """The topic's name gets the time of the record."""

    config = ConfigDef(
        [
            ConfigKey(
                "topic.format",
                SettingType.STRING,
                "${topic}-${timestamp}",
                Importance.HIGH,
                "The new name, with ${topic} and ${timestamp} for the old name and the time.",
            ),
            ConfigKey(
                "timestamp.format",
                SettingType.STRING,
                "yyyyMMdd",
                Importance.HIGH,
                "How the time is written, as Java's SimpleDateFormat has it.",
            ),
        ]
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record: {record}")
        try:
            time = SimpleDateFormat(self.settings["timestamp.format"]).format(
                logical.from_millis(record.timestamp)
            )
        except ValueError as error:
            raise ConfigError(str(error)) from None
        topic = self.settings["topic.format"].replace("${topic}", record.topic).replace("${timestamp}", time)
        return record.replace(topic=topic)
