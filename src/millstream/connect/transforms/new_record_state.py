"""Debezium's ExtractNewRecordState: of an event of change capture, the row as it is now.

An event is an envelope: the row before and after, where the change comes from (`source`), and what it was
(`op`). What the row gets of that in addition, and what becomes of deletions, are settings. Records that are
no such events pass, but for tombstones: they follow deletions, and are treated with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from millstream.connect.config.config_def import CheckedBy, ConfigDef, ConfigKey, ValidString
from millstream.connect.data.record import Header
from millstream.connect.data.schema import REQUIRED, Field, Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError, IllegalArgumentError, NullPointerError
from millstream.connect.transforms.base import (
    REPLACE_NULL_WITH_DEFAULT,
    AnyRecord,
    Target,
    Transform,
    require_struct,
    struct_like,
)
from millstream.connect.transforms.fields import ExtractField, InsertField, ReplaceField
from millstream.settings.config_key import Importance
from millstream.settings.values import Type as SettingType

DROP, TOMBSTONE, DELETE_TO_TOMBSTONE = "drop", "tombstone", "delete-to-tombstone"
REWRITE, REWRITE_WITH_TOMBSTONE = "rewrite", "rewrite-with-tombstone"
MODES = (DROP, TOMBSTONE, REWRITE, REWRITE_WITH_TOMBSTONE, DELETE_TO_TOMBSTONE)
_OF_ENVELOPE = ("op", "ts_ms", "ts_us", "ts_ns")
_OF_TRANSACTION = ("id", "data_collection_order", "total_order")


def _check_mode(name: str, value: Any) -> None:
    ValidString(MODES)(name, str(value).lower())


def _added(what: str, where: str) -> tuple[ConfigKey, ConfigKey]:
    return (
        ConfigKey(
            f"add.{what}s.prefix",
            SettingType.STRING,
            "__",
            Importance.LOW,
            f"In front of each {what}'s name.",
        ),
        ConfigKey(
            f"add.{what}s",
            SettingType.LIST,
            (),
            Importance.LOW,
            f"Fields of the envelope that become {where}: `op`, `table` (of the source, whose name may be "
            "left out) or `source.ts_ms`; with another name behind a colon.",
        ),
    )


class _Reference(NamedTuple):
    """A field of the envelope, or of a struct in it, and the name that it gets."""

    struct: str | None
    field: str
    name: str

    @classmethod
    def of(cls, prefix: str, text: str) -> _Reference:
        parts = _split(text, ":")
        where = _split(parts[0], ".")
        if len(parts) > 2:
            raise IllegalArgumentError(f"Unexpected field name: {text}")
        struct, field = (_home(where[0]), where[0]) if len(where) == 1 else (where[0], where[1])
        plain = field if len(where) == 1 else f"{struct}_{field}"
        return cls(struct, field, prefix + (parts[1] if len(parts) == 2 else plain))

    def schema(self, envelope: Schema) -> Schema | None:
        """None where there is no such field."""
        parent: Schema = envelope
        if self.struct is not None:
            parent = _required(envelope.field(self.struct), self.struct).schema
        # It may have been put into the envelope itself, by another transform.
        found = parent.field(self.field) or envelope.field(self.field)
        if found is None:
            return None
        element = found.schema.value_schema if found.schema.type is Type.ARRAY else None
        return Schema(
            found.schema.type,
            optional=True,
            name=found.schema.name,
            version=found.schema.version,
            doc=found.schema.doc,
            parameters=found.schema.parameters,
            value=element,
        )

    def value(self, envelope: Struct) -> Any:
        parent = envelope if self.struct is None else envelope.get_without_default(self.struct)
        if parent is None:
            return None
        holder = parent if parent.schema.field(self.field) is not None else envelope
        return holder.get_without_default(self.field)


def _split(text: str, separator: str) -> list[str]:
    """What is empty at the end does not count, as in Java."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _home(field: str) -> str | None:
    """Where a field is that is named without its struct."""
    if field in _OF_ENVELOPE:
        return None
    if field in _OF_TRANSACTION:
        return "transaction"
    return field if field == "updateDescription" else "source"


def _required(field: Field | None, name: str) -> Field:
    if field is None:
        raise NullPointerError(f"the envelope has no field {name}")
    return field


class ExtractNewRecordState(Transform):
    config = ConfigDef(
        [
            ConfigKey(
                "delete.tombstone.handling.mode",
                SettingType.STRING,
                TOMBSTONE,
                Importance.MEDIUM,
                "What becomes of a deletion and the tombstone behind it: nothing (`drop`), one tombstone "
                "(`tombstone`, `delete-to-tombstone`), the row before with `__deleted` (`rewrite`), or that "
                "and the tombstone (`rewrite-with-tombstone`).",
                CheckedBy(_check_mode, str(ValidString(MODES))),
            ),
            ConfigKey(
                "route.by.field",
                SettingType.STRING,
                "",
                Importance.LOW,
                "A field of the row whose value is the record's topic.",
            ),
            *_added("field", "fields of the row"),
            *_added("header", "headers"),
            ConfigKey(
                "drop.fields.header.name",
                SettingType.STRING,
                None,
                Importance.LOW,
                "A header with a list of fields that the row is to go without.",
            ),
            ConfigKey(
                "drop.fields.from.key",
                SettingType.BOOLEAN,
                False,
                Importance.LOW,
                "Whether the key goes without them, too.",
            ),
            ConfigKey(
                "drop.fields.keep.schema.compatible",
                SettingType.BOOLEAN,
                True,
                Importance.LOW,
                "Whether only optional fields may be dropped.",
            ),
            REPLACE_NULL_WITH_DEFAULT,
        ]
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        parsed = self.settings
        self._mode = parsed["delete.tombstone.handling.mode"].lower()
        self._route = parsed["route.by.field"]
        self._fields = _references(parsed["add.fields.prefix"], parsed["add.fields"])
        self._headers = _references(parsed["add.headers.prefix"], parsed["add.headers"])
        self._drop_header = (parsed["drop.fields.header.name"] or "").strip()
        self._drop_from_key = parsed["drop.fields.from.key"]
        self._keep_compatible = parsed["drop.fields.keep.schema.compatible"]
        self._after, self._before = (ExtractField({"field": one}, "value") for one in ("after", "before"))
        default = {REPLACE_NULL_WITH_DEFAULT.name: parsed[REPLACE_NULL_WITH_DEFAULT.name]}
        self._deleted, self._there = (
            InsertField({"static.field": "__deleted", "static.value": text, **default}, "value")
            for text in ("true", "false")
        )
        self._rewrites = self._mode in (REWRITE, REWRITE_WITH_TOMBSTONE)
        # A connector sees few schemas, each very often.
        self._with_fields = lru_cache(maxsize=64)(self._make_with_fields)
        self._without = lru_cache(maxsize=64)(_without)

    def apply(self, record: AnyRecord) -> AnyRecord | None:
        schema = record.value_schema
        is_envelope = schema is not None and (schema.name or "").endswith(".Envelope")
        if record.value is None:
            record = self._add_headers(record)
            return record if self._mode == REWRITE_WITH_TOMBSTONE else None
        if not is_envelope:
            return record
        record = self._add_headers(record)
        after = self._after.apply(record)
        envelope: Struct = record.value
        if after.value is not None:
            return self._changed(envelope, after)
        before = self._before.apply(record)
        if before.value is None:
            return None  # the whole table was emptied
        return self._removed(envelope, record, after, before)

    def _changed(self, envelope: Struct, row: AnyRecord) -> AnyRecord:
        if self._rewrites and isinstance(row.value, Struct):
            row = self._there.apply(row)
        if self._route:
            row = self._routed(
                row, require_struct(row.value, "Read record to set topic routing for CREATE / UPDATE")
            )
        return self._drop_fields(self._add_fields(envelope, row))

    def _removed(
        self, envelope: Struct, record: AnyRecord, after: AnyRecord, before: AnyRecord
    ) -> AnyRecord | None:
        if self._mode == DROP:
            return None
        if self._mode == TOMBSTONE:
            row = after  # with the schema of a row, and no row
        elif self._mode == DELETE_TO_TOMBSTONE:
            row = record.replace(value_schema=None, value=None)
        else:
            row = self._deleted.apply(before) if isinstance(before.value, Struct) else before
        if self._route:
            row = self._routed(row, _typed(envelope, "before", Type.STRUCT))
        row = self._drop_fields(row)
        return row if row.value is None else self._add_fields(envelope, row)

    def _routed(self, row: AnyRecord, source: Struct) -> AnyRecord:
        topic = _typed(source, self._route, Type.STRING)
        return row.replace(topic=topic) if topic is not None and topic.strip() else row

    # --- what is added --------------------------------------------------------------------------------------

    def _add_headers(self, record: AnyRecord) -> AnyRecord:
        if not self._headers:
            return record
        if record.value is None:
            added = [
                Header(one.name, REQUIRED[Type.STRING], "d") for one in self._headers if one.field == "op"
            ]
        else:
            envelope = require_struct(record.value, "adding headers", record.value_schema)
            found = [(one, one.schema(envelope.schema)) for one in self._headers]
            added = [
                Header(one.name, schema, one.value(envelope)) for one, schema in found if schema is not None
            ]
        return record.replace(headers=(*record.headers, *added))

    def _add_fields(self, envelope: Struct, row: AnyRecord) -> AnyRecord:
        struct = require_struct(row.value, "source field insertion", row.value_schema)
        _typed(envelope, "op", Type.STRING)  # what has no such field is no event
        schema, references = self._with_fields(struct.schema, envelope.schema)
        made = Struct(schema)
        for field in struct.schema.fields:
            made.put(field.name, struct.values[field.index])
        for one in references:
            made.put(one.name, one.value(envelope))
        return row.replace(value_schema=schema, value=made)

    def _make_with_fields(self, row: Schema, envelope: Schema) -> tuple[Schema, list[_Reference]]:
        """The schema of a row with its further fields, and those that this envelope has."""
        found = [(one, one.schema(envelope)) for one in self._fields]
        there = [(one, schema) for one, schema in found if schema is not None]
        fields = [(field.name, field.schema) for field in row.fields]
        added = [(one.name, schema) for one, schema in there]
        return struct_like(row, fields + added), [one for one, _ in there]

    # --- what is left out -----------------------------------------------------------------------------------

    def _drop_fields(self, row: AnyRecord) -> AnyRecord:
        if not self._drop_header:
            return row
        names = next((header.value for header in row.headers if header.name == self._drop_header), None)
        if not names:
            return row
        if not isinstance(names, list):
            raise DataError(f"the header {self._drop_header} is no list of names")
        if self._drop_from_key and row.key is not None:
            row = self._without_fields(row, "key", row.key_schema, names)
        return self._without_fields(row, "value", row.value_schema, names)

    def _without_fields(
        self, row: AnyRecord, target: Target, schema: Schema | None, names: Sequence[str]
    ) -> AnyRecord:
        if self._keep_compatible:
            if schema is None:
                raise NullPointerError(f"the {target} has no schema")
            names = [one.name for one in schema.fields if one.schema.optional and one.name in names]
        return self._without(target, ",".join(names)).apply(row) if names else row


def _references(prefix: str, texts: Sequence[str]) -> list[_Reference]:
    wanted = list(texts)
    while wanted and not wanted[-1]:
        wanted.pop()
    return [_Reference.of(prefix, text) for text in wanted]


def _without(target: Target, names: str) -> ReplaceField:
    return ReplaceField({"exclude": names}, target)


def _typed(struct: Struct, name: str, kind: Type) -> Any:
    field = struct.schema.field(name)
    if field is None:
        raise DataError(f"{name} is not a valid field name")
    if field.schema.type is not kind:
        raise DataError(f"Field '{name}' is not of type {kind}")
    return struct.values[field.index]
