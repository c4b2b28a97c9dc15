"""Which columns a record has: the primary key's and the others, each with schema and where its value is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.connect.connectors.jdbc.sink_config import KAFKA, KAFKA_COLUMNS, NONE, RECORD_KEY
from millstream.connect.data.record import SinkRecord
from millstream.connect.data.schema import REQUIRED, Schema, Type
from millstream.connect.errors import ConnectError, DataError

Get = Callable[[SinkRecord], Any]


@dataclass(frozen=True, slots=True)
class SinkField:
    name: str
    schema: Schema
    in_key: bool
    get: Get

    @property
    def optional(self) -> bool:
        return not self.in_key and self.schema.optional


@dataclass(frozen=True, slots=True)
class SinkFields:
    keys: tuple[SinkField, ...]
    others: tuple[SinkField, ...]

    @property
    def all(self) -> tuple[SinkField, ...]:
        return self.keys + self.others


@dataclass(frozen=True, slots=True)
class FieldSettings:
    connector: str
    pk_mode: str
    pk_fields: tuple[str, ...]
    whitelist: tuple[str, ...]
    deletes: bool
    null_to_default: bool

    def fields(self, table: str, record: SinkRecord) -> SinkFields:
        """Of all records with the schemas of this one. DataError where the record cannot be mapped."""
        self._check(record)
        keys = self._keys(table, record)
        names = {field.name for field in keys}
        others = []
        if record.value_schema is not None and record.value is not None:
            for field in record.value_schema.fields:
                if field.name in names or (self.whitelist and field.name not in self.whitelist):
                    continue
                others.append(
                    SinkField(field.name, field.schema, False, self._of_value(field.index, field.schema))
                )
        if not keys and not others:
            raise DataError(f"No fields found using key and value schemas for table: {table}")
        return SinkFields(tuple(keys), tuple(others))

    def _check(self, record: SinkRecord) -> None:
        """A value has to be a struct with its schema; so does a key that keys come from."""
        deletes = self.deletes and record.value is None
        schema = record.value_schema
        if not deletes and (record.value is None or schema is None or schema.type is not Type.STRUCT):
            raise DataError(
                f"Sink connector '{self.connector}' is configured with "
                f"'delete.enabled={_java(self.deletes)}' and 'pk.mode={self.pk_mode}' and therefore requires "
                f"records with a non-null Struct value and non-null Struct schema, but found record at "
                f"{_coordinates(record)} with {_kind(record.value, schema)}."
            )
        if self.pk_mode == RECORD_KEY and (record.key is None or record.key_schema is None):
            raise DataError(
                f"Sink connector '{self.connector}' is configured with 'pk.mode={self.pk_mode}' and "
                f"therefore requires records with a non-null key and non-null Struct or primitive key "
                f"schema, but found record at {_coordinates(record)} with a null key or key schema."
            )

    def _keys(self, table: str, record: SinkRecord) -> list[SinkField]:
        if self.pk_mode == NONE:
            return []
        if self.pk_mode == KAFKA:
            names = self.pk_fields or KAFKA_COLUMNS
            kinds = (Type.STRING, Type.INT32, Type.INT64)
            getters: tuple[Get, ...] = (
                lambda one: one.original_topic or one.topic,
                lambda one: one.original_partition,
                lambda one: one.original_offset,
            )
            return [
                SinkField(name, REQUIRED[kind], True, get)
                for name, kind, get in zip(names, kinds, getters, strict=True)
            ]
        schema = record.key_schema if self.pk_mode == RECORD_KEY else record.value_schema
        assert schema is not None
        if schema.type is not Type.STRUCT:
            if len(self.pk_fields) != 1:
                raise ConnectError(
                    f"Need exactly one PK column defined since the key schema for records is a primitive "
                    f"type, defined columns are: [{', '.join(self.pk_fields)}]"
                )
            return [SinkField(self.pk_fields[0], schema, True, lambda one: one.key)]
        found = []
        for name in self.pk_fields or tuple(field.name for field in schema.fields):
            field = schema.field(name)
            if field is None:
                where = "key" if self.pk_mode == RECORD_KEY else "value"
                raise ConnectError(
                    f"PK mode for table '{table}' is {self.pk_mode.upper()} with configured PK fields "
                    f"[{', '.join(self.pk_fields)}], but record {where} schema does not contain field: {name}"
                )
            get = self._of_value(field.index, field.schema)
            if self.pk_mode == RECORD_KEY:
                get = _of_key(field.index, field.schema)
            found.append(SinkField(name, field.schema, True, get))
        return found

    def _of_value(self, index: int, schema: Schema) -> Get:
        default = schema.default
        if default is None or not self.null_to_default:
            return lambda one: one.value.values[index]

        def get(one: SinkRecord) -> Any:
            value = one.value.values[index]
            return default if value is None else value

        return get


def _of_key(index: int, schema: Schema) -> Get:
    default = schema.default

    def get(one: SinkRecord) -> Any:
        value = one.key.values[index]
        return default if value is None else value

    return get


def _java(value: bool) -> str:
    return "true" if value else "false"


def _coordinates(record: SinkRecord) -> str:
    return (
        f"(topic='{record.topic}',partition={record.partition},offset={record.offset},"
        f"timestamp={record.timestamp})"
    )


def _kind(value: Any, schema: Schema | None) -> str:
    what = "null" if value is None else type(value).__name__
    return f"a {what} value and {'null' if schema is None else str(schema.type).lower()} value schema"
