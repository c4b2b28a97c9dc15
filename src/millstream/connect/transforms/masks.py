"""MaskField and SetSchemaMetadata: other values, or another name, in the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigError,
    ConfigKey,
    NonEmptyString,
    ValidList,
)
from millstream.connect.data.java_names import class_name
from millstream.connect.data.logical import EPOCH
from millstream.connect.data.numbers import parse_decimal
from millstream.connect.data.schema import Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.data.values import convert_to_float, convert_to_integer
from millstream.connect.errors import DataError
from millstream.connect.transforms.base import (
    REPLACE_NULL_WITH_DEFAULT,
    AnyRecord,
    KeyOrValueTransform,
    Target,
    require_map,
    require_struct,
)
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType


class MaskField(KeyOrValueTransform):
    """Fields become the zero of their type, or a replacement."""

    config = ConfigDef(
        [
            ConfigKey(
                "fields",
                SettingType.LIST,
                REQUIRED,
                Importance.HIGH,
                "Names of the fields to mask.",
                ValidList(may_be_empty=False),
            ),
            ConfigKey(
                "replacement",
                SettingType.STRING,
                None,
                Importance.LOW,
                "What stands there instead, for numbers and text; otherwise 0, false, or nothing.",
                NonEmptyString(),
            ),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        masked = self.settings["fields"]
        if schema is None:
            fields = require_map(value, "mask fields")
            return self.write(
                record, None, fields | {name: self._masked(fields.get(name), None) for name in masked}
            )
        struct = require_struct(value, "mask fields", schema)
        result = Struct(struct.schema)
        for field in struct.schema.fields:
            one = struct.read(field, self.with_default)
            result.put(field.name, self._masked(one, field.schema) if field.name in masked else one)
        return self.write(record, schema, result)

    def _masked(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        replacement = self.settings["replacement"]
        return _zero(value) if replacement is None else _replaced(value, schema, replacement)


def _zero(value: Any) -> Any:
    if isinstance(value, datetime):
        return EPOCH
    if isinstance(value, bool | int | float | Decimal | str | list | dict):
        return type(value)()
    raise DataError(f"Cannot mask value of type: class {class_name(value)}")


def _replaced(value: Any, schema: Schema | None, replacement: str) -> Any:
    if isinstance(value, str):
        return replacement
    if isinstance(value, Decimal):
        try:
            return parse_decimal(replacement)
        except ValueError:
            raise DataError(f"Unable to convert {replacement} (class java.lang.String) to number") from None
    if type(value) is int:
        return convert_to_integer(schema.type if schema is not None else Type.INT64, replacement)
    if isinstance(value, float):
        return convert_to_float(schema.type if schema is not None else Type.FLOAT64, replacement)
    raise DataError(f"Cannot mask value of type class {class_name(value)} with custom replacement.")


class SetSchemaMetadata(KeyOrValueTransform):
    """Another name or version of the schema."""

    config = ConfigDef(
        [
            ConfigKey("schema.name", SettingType.STRING, None, Importance.HIGH, "Name of the schema."),
            ConfigKey("schema.version", SettingType.INT, None, Importance.HIGH, "Version of the schema."),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings, target)
        if self.settings["schema.name"] is None and self.settings["schema.version"] is None:
            raise ConfigError("Neither schema name nor version configured")

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        updated = self.updated_schema(schema)
        if isinstance(value, Struct):
            result = Struct(updated)
            for field in updated.fields:
                result.put(field.name, value.read(field, self.with_default))
            value = result
        return self.write(record, updated, value)

    def update_schema(self, schema: Schema) -> Schema:
        name, version = self.settings["schema.name"], self.settings["schema.version"]
        # Kafka takes the fields along whatever the type is, so that it refuses all that is not a struct.
        fields = [(field.name, field.schema) for field in schema.fields]
        return schema.replace(
            fields=fields,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
