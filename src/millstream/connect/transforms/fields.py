"""Transforms that take fields out, put them in, rename, nest and flatten them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from millstream.connect.config.config_def import (
    REQUIRED,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ValidList,
)
from millstream.connect.data.java_names import class_name
from millstream.connect.data.logical import TIMESTAMP_SCHEMA, from_millis
from millstream.connect.data.record import Record, SinkRecord
from millstream.connect.data.schema import OPTIONAL, Schema, Type, struct_schema
from millstream.connect.data.schema import REQUIRED as REQUIRED_SCHEMAS
from millstream.connect.data.struct import Struct, type_of
from millstream.connect.errors import DataError, IllegalArgumentError
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
from millstream.connect.transforms.field_path import FIELD_SYNTAX_VERSION, FieldPath
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType


class ExtractField(KeyOrValueTransform):
    """The key or value becomes one of its fields."""

    config = ConfigDef(
        [
            ConfigKey(
                "field", SettingType.STRING, REQUIRED, Importance.MEDIUM, "Name of the field to extract."
            ),
            REPLACE_NULL_WITH_DEFAULT,
            FIELD_SYNTAX_VERSION,
        ]
    )

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings, target)
        self.path = FieldPath(self.settings["field"], self.settings[FIELD_SYNTAX_VERSION.name])

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        purpose = "field extraction"
        if schema is None:
            found = None if value is None else self.path.value_of_map(require_map(value, purpose))
            return self.write(record, None, found)
        struct = None if value is None else require_struct(value, purpose, schema)
        field = self.path.field_of(schema)
        if field is None:
            raise IllegalArgumentError(f"Unknown field: {self.settings['field']}")
        found = None if struct is None else self.path.value_of_struct(struct, self.with_default)
        return self.write(record, field.schema, found)


class HoistField(KeyOrValueTransform):
    """The key or value becomes the only field of a struct or map."""

    config = ConfigDef(
        [ConfigKey("field", SettingType.STRING, REQUIRED, Importance.MEDIUM, "Name of the only field.")]
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        if schema is None:
            return self.write(record, None, {self.settings["field"]: value})
        updated = self.updated_schema(schema)
        return self.write(record, updated, Struct(updated, {self.settings["field"]: value}))

    def update_schema(self, schema: Schema) -> Schema:
        return struct_schema([(self.settings["field"], schema)])


def _renames(entries: Sequence[str]) -> dict[str, str]:
    renames = {}
    for entry in entries:
        parts = _split(entry)
        if len(parts) != 2:
            raise ConfigError.of("renames", entries, f"Invalid rename mapping: {entry}")
        renames[parts[0]] = parts[1]
    return renames


def _split(entry: str) -> list[str]:
    """At colons; what is empty at the end does not count, as in Java."""
    parts = entry.split(":")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


class ReplaceField(KeyOrValueTransform):
    """Leaves fields out and renames others. `exclude` counts more than `include`, and both go by the old
    names."""

    config = ConfigDef(
        [
            ConfigKey(
                "exclude", SettingType.LIST, (), Importance.MEDIUM, "Fields to leave out.", ValidList()
            ),
            ConfigKey(
                "include",
                SettingType.LIST,
                (),
                Importance.MEDIUM,
                "If given, the only fields to keep.",
                ValidList(),
            ),
            ConfigKey(
                "renames",
                SettingType.LIST,
                (),
                Importance.MEDIUM,
                "Old and new names, `old:new,old:new`.",
                CheckedBy(
                    lambda _name, value: _check_renames(value),
                    "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>",
                ),
            ),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings, target)
        self._exclude, self._include = set(self.settings["exclude"]), set(self.settings["include"])
        self._renames = _renames(self.settings["renames"])
        self._originals = {new: old for old, new in self._renames.items()}

    def original(self, name: str) -> str:
        """The old name of a field."""
        return self._originals.get(name, name)

    def _kept(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        if value is None:
            return record
        if schema is None:
            fields = require_map(value, "field replacement")
            kept = {self._renames.get(name, name): one for name, one in fields.items() if self._kept(name)}
            return self.write(record, None, kept)
        struct = require_struct(value, "field replacement", schema)
        updated = self.updated_schema(struct.schema)
        result = Struct(updated)
        for field in updated.fields:
            original = self.original(field.name)
            one = struct.get(original) if self.with_default else struct.get_without_default(original)
            result.put(field.name, one)
        return self.write(record, updated, result)

    def update_schema(self, schema: Schema) -> Schema:
        fields = [
            (self._renames.get(field.name, field.name), field.schema)
            for field in schema.fields
            if self._kept(field.name)
        ]
        return struct_like(schema, fields)


def _check_renames(value: Any) -> None:
    _renames(value)


class ValueToKey(Transform):
    """The key becomes a struct or map of fields of the value."""

    config = ConfigDef(
        [
            ConfigKey(
                "fields",
                SettingType.LIST,
                REQUIRED,
                Importance.HIGH,
                "Fields of the value that make the key.",
                ValidList(may_be_empty=False),
            ),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.with_default = bool(self.settings[REPLACE_NULL_WITH_DEFAULT.name])

    def apply(self, record: AnyRecord) -> AnyRecord:
        purpose = "copying fields from value to key"
        fields = self.settings["fields"]
        if record.value_schema is None:
            value = require_map(record.value, purpose)
            return record.replace(key_schema=None, key={name: value.get(name) for name in fields})
        struct = require_struct(record.value, purpose, record.value_schema)
        schema = self.key_schema(struct.schema)
        with_default = self.with_default
        key = Struct(schema)
        for name in fields:
            key.put(name, struct.get(name) if with_default else struct.get_without_default(name))
        return record.replace(key_schema=schema, key=key, value_schema=struct.schema)

    def key_schema(self, schema: Schema) -> Schema:
        fields = []
        for name in self.settings["fields"]:
            field = schema.field(name)
            if field is None:
                raise DataError(f"Field does not exist: {name}")
            fields.append((name, field.schema))
        return struct_schema(fields)


class _Insertion(NamedTuple):
    name: str
    optional: bool

    @classmethod
    def of(cls, spec: str | None) -> _Insertion | None:
        if spec is None:
            return None
        return cls(spec[:-1], spec[-1] == "?") if spec[-1:] in ("?", "!") else cls(spec, True)

    def schema(self, kind: Type) -> Schema:
        return OPTIONAL[kind] if self.optional else REQUIRED_SCHEMAS[kind]


_OPTIONALITY = "With `!` at its end the field is required, with `?` or without it is optional."


class InsertField(KeyOrValueTransform):
    """Adds where a record comes from, its time, or a fixed text."""

    config = ConfigDef(
        [
            *(
                ConfigKey(
                    f"{what}.field",
                    SettingType.STRING,
                    None,
                    Importance.MEDIUM,
                    f"Field for {text}. {_OPTIONALITY}",
                )
                for what, text in (
                    ("topic", "the topic"),
                    ("partition", "the partition"),
                    ("offset", "the offset, in sink connectors only"),
                    ("timestamp", "the record's timestamp"),
                    ("static", "the text of static.value"),
                )
            ),
            ConfigKey("static.value", SettingType.STRING, None, Importance.MEDIUM, "Text for static.field."),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any], target: Target) -> None:
        super().__init__(settings, target)
        named = (
            self.settings[f"{what}.field"] for what in ("topic", "partition", "offset", "timestamp", "static")
        )
        self._topic, self._partition, self._offset, self._timestamp, self._static = map(_Insertion.of, named)
        self.insertions = {
            "topic": self._topic,
            "partition": self._partition,
            "offset": self._offset,
            "timestamp": self._timestamp,
            "static": self._static,
        }
        if not any((self._topic, self._partition, self._offset, self._timestamp, self._static)):
            raise ConfigError("No field insertion configured")
        if self._static is not None and self.settings["static.value"] is None:
            raise ConfigError.of(
                "static.value", None, f"No value specified for static field: {self._static.name}"
            )

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        if value is None:
            return record
        if schema is None:
            fields = require_map(value, "field insertion")
            return self.write(record, None, fields | self._inserted(record))
        struct = require_struct(value, "field insertion", schema)
        updated = self.updated_schema(struct.schema)
        result = Struct(updated)
        for field in struct.schema.fields:
            result.put(field.name, struct.read(field, self.with_default))
        for name, one in self._inserted(record).items():
            is_time = self._timestamp is not None and name == self._timestamp.name and type(one) is int
            field_schema = updated.field(name)
            as_time = (
                is_time and field_schema is not None and field_schema.schema.name == TIMESTAMP_SCHEMA.name
            )
            result.put(name, from_millis(one) if as_time else one)
        return self.write(record, updated, result)

    def _inserted(self, record: Record) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._topic is not None:
            found[self._topic.name] = record.topic
        if self._partition is not None and record.partition is not None:
            found[self._partition.name] = record.partition
        if self._offset is not None:
            if not isinstance(record, SinkRecord):
                raise DataError(
                    "Only SinkRecord supported for [field insertion], found: "
                    "org.apache.kafka.connect.source.SourceRecord"
                )
            found[self._offset.name] = record.offset
        if self._timestamp is not None and record.timestamp is not None:
            found[self._timestamp.name] = record.timestamp
        if self._static is not None:
            found[self._static.name] = self.settings["static.value"]
        return found

    def update_schema(self, schema: Schema) -> Schema:
        fields = [(field.name, field.schema) for field in schema.fields]
        if self._topic is not None:
            fields.append((self._topic.name, self._topic.schema(Type.STRING)))
        if self._partition is not None:
            fields.append((self._partition.name, self._partition.schema(Type.INT32)))
        if self._offset is not None:
            fields.append((self._offset.name, self._offset.schema(Type.INT64)))
        if self._timestamp is not None:
            fields.append((self._timestamp.name, TIMESTAMP_SCHEMA.replace(optional=self._timestamp.optional)))
        if self._static is not None:
            fields.append((self._static.name, self._static.schema(Type.STRING)))
        return struct_like(schema, fields)


class Flatten(KeyOrValueTransform):
    """Nested fields become fields of the outermost struct or map, their names joined. Lists stay."""

    config = ConfigDef(
        [
            ConfigKey(
                "delimiter", SettingType.STRING, ".", Importance.MEDIUM, "Stands between the joined names."
            )
        ]
    )

    def _join(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.settings['delimiter']}{name}" if prefix else name

    def apply(self, record: AnyRecord) -> AnyRecord:
        schema, value = self.read(record)
        if value is None:
            return record
        if schema is None:
            flat: dict[str, Any] = {}
            self._flatten_map(require_map(value, "flattening"), "", flat)
            return self.write(record, None, flat)
        struct = require_struct(value, "flattening", schema)
        updated = self.updated_schema(schema)
        result = Struct(updated)
        self._flatten_struct(struct, "", result)
        return self.write(record, updated, result)

    def _flatten_map(self, value: dict[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for key, one in value.items():
            name = self._join(prefix, key)
            kind = type_of(one) if one is not None else Type.STRING
            if kind is None:
                raise DataError(
                    f"Flatten transformation was passed a value of type class {class_name(one)} which is not "
                    "supported by Connect's data API"
                )
            if kind is Type.STRUCT:
                raise DataError(
                    f"Flatten transformation does not support class {class_name(one)} for record without "
                    f"schemas (for field {name})."
                )
            if kind is Type.MAP:
                self._flatten_map(one, name, flat)
            else:
                flat[name] = one

    def _flatten_struct(self, struct: Struct | None, prefix: str, result: Struct) -> None:
        if struct is None:
            return
        for field in struct.schema.fields:
            name = self._join(prefix, field.name)
            if field.schema.type is Type.STRUCT:
                self._flatten_struct(struct.get_without_default(field.name), name, result)
            else:
                result.put(name, struct.read(field, True))

    def update_schema(self, schema: Schema) -> Schema:
        fields: list[tuple[str, Schema]] = []
        self._flatten_schema(schema, "", fields, schema.optional, schema.default)
        return struct_like(schema, fields)

    def _flatten_schema(
        self,
        schema: Schema,
        prefix: str,
        fields: list[tuple[str, Schema]],
        optional: bool,
        default: Struct | None,
    ) -> None:
        """Optional if any struct around it is; the default of a struct gives those of its fields."""
        for field in schema.fields:
            name = self._join(prefix, field.name)
            field_default = field.schema.default
            if field_default is None and default is not None:
                field_default = default.read(field, True)
            field_optional = optional or field.schema.optional
            if field.schema.type is Type.STRUCT:
                self._flatten_schema(field.schema, name, fields, field_optional, field_default)
            elif field.schema.type is Type.MAP:
                raise DataError(
                    f"Flatten transformation does not support {field.schema.type} for record with schemas "
                    f"(for field {name})."
                )
            else:
                fields.append((name, field.schema.replace(optional=field_optional, default=field_default)))
