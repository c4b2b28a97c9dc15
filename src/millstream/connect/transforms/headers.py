"""Transforms of headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.connect.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigError,
    ConfigKey,
    NonEmptyList,
    NonNull,
    ValidList,
    ValidString,
)
from millstream.connect.data.record import Header
from millstream.connect.data.schema import Schema
from millstream.connect.data.struct import Struct
from millstream.connect.data.value_parser import parse_string
from millstream.connect.errors import NullPointerError
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


class DropHeaders(Transform):
    config = ConfigDef(
        [
            ConfigKey(
                "headers",
                SettingType.LIST,
                REQUIRED,
                Importance.HIGH,
                "Names of the headers to remove.",
                ValidList(may_be_empty=False),
            )
        ]
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        dropped = self.settings["headers"]
        return record.replace(
            headers=tuple(header for header in record.headers if header.name not in dropped)
        )


class InsertHeader(Transform):
    config = ConfigDef(
        [
            ConfigKey(
                "header", SettingType.STRING, REQUIRED, Importance.HIGH, "Name of the header.", NonNull()
            ),
            ConfigKey(
                "value.literal",
                SettingType.STRING,
                REQUIRED,
                Importance.HIGH,
                "Value of the header in all records. Its type is guessed from the text: 1 is a number.",
                NonNull(),
            ),
        ]
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        schema, value = parse_string(self.settings["value.literal"])
        self._header = Header(self.settings["header"], schema, value)

    def apply(self, record: AnyRecord) -> AnyRecord:
        return record.replace(headers=(*record.headers, self._header))


class HeaderFrom(KeyOrValueTransform):
    """Moves or copies fields of the key or value into headers."""

    config = ConfigDef(
        [
            ConfigKey(
                "fields",
                SettingType.LIST,
                REQUIRED,
                Importance.HIGH,
                "Fields to move or copy.",
                NonEmptyList(),
            ),
            ConfigKey(
                "headers",
                SettingType.LIST,
                REQUIRED,
                Importance.HIGH,
                "Names of their headers, in the same order.",
                NonEmptyList(),
            ),
            ConfigKey(
                "operation",
                SettingType.STRING,
                REQUIRED,
                Importance.HIGH,
                "`move` takes the fields out of the key or value, `copy` leaves them there.",
                ValidString(("move", "copy")),
            ),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings, target)
        self._fields, self._headers = self.settings["fields"], self.settings["headers"]
        if len(self._fields) != len(self._headers):
            raise ConfigError("'fields' config must have the same number of elements as 'headers' config.")
        self._move = self.settings["operation"] == "move"

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        purpose = f"header {self.settings['operation']}"
        if schema is None:
            fields = require_map(value, purpose)
            added = [Header(header, None, fields.get(name)) for name, header in self._pairs()]
            kept = {name: one for name, one in fields.items() if not self._move or name not in self._fields}
            return self.write(record.replace(headers=(*record.headers, *added)), None, kept)
        struct = require_struct(value, purpose, schema)
        updated, result = schema, struct
        if self._move:
            updated = self.updated_schema(schema)
            result = Struct(updated)
            for field in updated.fields:
                # By name: the fields of the new schema have other places than those of the old one.
                original = struct.schema.field(field.name)
                result.put(field.name, None if original is None else struct.read(original, self.with_default))
        added = [self._header(schema, struct, name, header) for name, header in self._pairs()]
        return self.write(record.replace(headers=(*record.headers, *added)), updated, result)

    def _pairs(self) -> list[tuple[str, str]]:
        return list(zip(self._fields, self._headers, strict=True))

    def _header(self, schema: Schema, struct: Struct, name: str, header: str) -> Header:
        field = schema.field(name)
        if field is None:
            raise NullPointerError(f"the schema has no field {name}")
        return Header(header, field.schema, struct.read(field, self.with_default))

    def update_schema(self, schema: Schema) -> Schema:
        return struct_like(
            schema, [(field.name, field.schema) for field in schema.fields if field.name not in self._fields]
        )
