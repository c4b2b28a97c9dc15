"""Cast: fields, or the whole key or value, to another type."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    printed,
)
from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name, to_string
from millstream.connect.data.numbers import parse_float, parse_integer, to_float, to_integer
from millstream.connect.data.schema import INTEGERS, Schema, Type
from millstream.connect.data.struct import Struct, type_of
from millstream.connect.data.values import moment_text
from millstream.connect.errors import DataError
from millstream.connect.transforms.base import (
    REPLACE_NULL_WITH_DEFAULT,
    AnyRecord,
    KeyOrValueTransform,
    Target,
    require_map,
    require_struct,
    struct_like,
)
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

_OUTPUTS = tuple(kind for kind in Type if kind not in (Type.BYTES, Type.ARRAY, Type.MAP, Type.STRUCT))
_INPUTS = (*_OUTPUTS, Type.BYTES)
_WHOLE = ""


def _spec(entries: Sequence[str]) -> dict[str, Type]:
    """Types by field; the one of the whole value is that of no field."""
    casts: dict[str, Type] = {}
    for entry in entries:
        parts = entry.split(":")
        if len(parts) > 2:
            raise ConfigError.of("renames", entries, f"Invalid rename mapping: {entry}")
        text = parts[-1].strip()
        try:
            kind = Type[text.upper()]
        except KeyError:
            raise ConfigError(f"Invalid type found in casting spec: {text}") from None
        if kind not in _OUTPUTS:
            raise ConfigError(
                f"Cast transformation does not support casting to {kind}; supported types are "
                f"{printed(_OUTPUTS)}"
            )
        casts[parts[0].strip() if len(parts) == 2 else _WHOLE] = kind
    if _WHOLE in casts and len(entries) > 1:
        raise ConfigError(
            "Cast transformations that specify a type to cast the entire value to may only specify a single "
            "cast in their spec"
        )
    return casts


def _check(_name: str, value: Any) -> None:
    if not value:
        raise ConfigError("Must specify at least one field to cast.")
    _spec(value)


class Cast(KeyOrValueTransform):
    config = ConfigDef(
        [
            ConfigKey(
                "spec",
                SettingType.LIST,
                REQUIRED,
                Importance.HIGH,
                "Fields and their types, `field1:type,field2:type`, or one type for the whole key or value: "
                "int8, int16, int32, int64, float32, float64, boolean, string. Bytes only become a string.",
                CheckedBy(_check, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
            ),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings, target)
        self.casts = _spec(self.settings["spec"])
        self.whole = self.casts.pop(_WHOLE, None)

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        if value is None:
            return record
        if self.whole is not None:
            updated = self.updated_schema(schema) if schema is not None else None
            return self.write(record, updated, cast(schema, value, self.whole))
        if schema is None:
            fields = require_map(value, "cast types")
            changed = {name: cast(None, fields.get(name), kind) for name, kind in self.casts.items()}
            return self.write(record, None, fields | changed)
        updated = self.updated_schema(schema)
        struct = require_struct(value, "cast types", schema)
        result = Struct(updated)
        for field in struct.schema.fields:
            kind = self.casts.get(field.name)
            one = struct.read(field, self.with_default)
            result.put(field.name, one if kind is None else cast(field.schema, one, kind))
        return self.write(record, updated, result)

    def update_schema(self, schema: Schema) -> Schema:
        if self.whole is not None:
            return Schema(
                self.whole,
                name=schema.name,
                version=schema.version,
                doc=schema.doc,
                parameters=schema.parameters,
                optional=schema.optional,
                default=cast(schema, schema.default, self.whole),
            )
        fields = [
            (field.name, self._field_schema(field.schema, self.casts.get(field.name)))
            for field in schema.fields
        ]
        return struct_like(schema, fields, optional=schema.optional, default=schema.default)

    @staticmethod
    def _field_schema(schema: Schema, kind: Type | None) -> Schema:
        if kind is None:
            return schema
        return Schema(kind, optional=schema.optional, default=cast(schema, schema.default, kind))


def cast(schema: Schema | None, value: Any, kind: Type) -> Any:
    if value is None:
        return None
    found = schema.type if schema is not None else type_of(value)
    if found is None:
        raise DataError(
            f"Cast transformation was passed a value of type class {class_name(value)} which is not "
            "supported by Connect's data API"
        )
    if found not in _INPUTS:
        raise DataError(
            f"Cast transformation does not support casting from {found}; supported types are "
            f"{printed(_INPUTS)}"
        )
    if kind is Type.STRING:
        return _to_string(schema, value)
    if isinstance(value, datetime) and schema is not None:
        value = _stored(schema, value)
    try:
        return _to_number(schema, value, kind)
    except ValueError:
        raise DataError(
            f"Value ({to_string(value, schema)}) was out of range for requested data type"
        ) from None


def _stored(schema: Schema, value: datetime) -> Any:
    """The number behind a date."""
    if schema.name == logical.DATE:
        return logical.date_to_days(value)
    if schema.name == logical.TIME:
        return logical.time_to_millis(value)
    return logical.to_millis(value) if schema.name == logical.TIMESTAMP else value


def _to_number(schema: Schema | None, value: Any, kind: Type) -> Any:
    if kind is Type.BOOLEAN:
        if isinstance(value, str):
            return value.lower() == "true"
        if isinstance(value, int | float | Decimal):
            return to_integer(value, Type.INT64) != 0
    elif isinstance(value, str):
        return parse_integer(value, kind) if kind in INTEGERS else parse_float(value, kind)
    elif isinstance(value, int | float | Decimal):
        number = int(value) if isinstance(value, bool) else value
        return to_integer(number, kind) if kind in INTEGERS else to_float(number, kind)
    raise DataError(f"Unexpected type in Cast transformation: class {class_name(value, schema)}")


def _to_string(schema: Schema | None, value: Any) -> str:
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return to_string(value, schema)
