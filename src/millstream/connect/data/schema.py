"""Schemas: what a value is. Immutable, compared by content, hashed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.connect.errors import DataError, SchemaBuilderError


class Type(Enum):
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    def __str__(self) -> str:
        return self.name


INTEGERS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
"""Integer types and their bits."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    index: int
    schema: Schema


class Schema:
    """`fields` of a struct, `key` and `value` of a map, `value` of an array. The default counts where a value
    is null."""

    __slots__ = (
        "_fields",
        "_fields_by_name",
        "_hash",
        "_key",
        "_value",
        "default",
        "doc",
        "name",
        "optional",
        "parameters",
        "type",
        "version",
    )

    def __init__(
        self,
        schema_type: Type,
        *,
        optional: bool = False,
        default: Any = None,
        name: str | None = None,
        version: int | None = None,
        doc: str | None = None,
        parameters: Mapping[str, str] | None = None,
        fields: Sequence[tuple[str, Schema]] = (),
        key: Schema | None = None,
        value: Schema | None = None,
    ) -> None:
        self.type = schema_type
        self.optional = optional
        self.default = default
        self.name = name
        self.version = version
        self.doc = doc
        self.parameters = dict(parameters) if parameters else None
        self._fields = tuple(Field(field, index, schema) for index, (field, schema) in enumerate(fields))
        self._fields_by_name = {field.name: field for field in self._fields}
        self._key = key
        self._value = value
        self._hash: int | None = None
        if len(self._fields_by_name) != len(self._fields):
            raise SchemaBuilderError(
                f"Cannot create field because of field name duplication {_repeated(self._fields)}"
            )
        if "" in self._fields_by_name:
            raise SchemaBuilderError("fieldName cannot be null.")

    @property
    def fields(self) -> tuple[Field, ...]:
        if self.type is not Type.STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        return self._fields

    def field(self, name: str) -> Field | None:
        if self.type is not Type.STRUCT:
            raise DataError("Cannot look up fields on non-struct type")
        return self._fields_by_name.get(name)

    @property
    def key_schema(self) -> Schema | None:
        if self.type is not Type.MAP:
            raise DataError("Cannot look up key schema on non-map type")
        return self._key

    @property
    def value_schema(self) -> Schema | None:
        if self.type not in (Type.MAP, Type.ARRAY):
            raise DataError("Cannot look up value schema on non-array and non-map type")
        return self._value

    def replace(self, **changes: Any) -> Schema:
        """The same schema but for `changes`, which are arguments of the constructor."""
        same: dict[str, Any] = {
            "optional": self.optional,
            "default": self.default,
            "name": self.name,
            "version": self.version,
            "doc": self.doc,
            "parameters": self.parameters,
            "fields": [(field.name, field.schema) for field in self._fields],
            "key": self._key,
            "value": self._value,
        }
        return Schema(changes.pop("schema_type", self.type), **(same | changes))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema) or hash(self) != hash(other):
            return False
        return self._content() == other._content() and self.default == other.default

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._content())
        return self._hash

    def _content(self) -> tuple[Any, ...]:
        """All but the default, which may be a struct or a list and cannot be hashed."""
        parameters = tuple(sorted(self.parameters.items())) if self.parameters else None
        return (
            self.type,
            self.optional,
            self.name,
            self.version,
            self.doc,
            parameters,
            self._fields,
            self._key,
            self._value,
        )

    def __repr__(self) -> str:
        return f"Schema{{{self.name}:{self.type}}}" if self.name is not None else f"Schema{{{self.type}}}"


def _repeated(fields: Sequence[Field]) -> str:
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            return field.name
        seen.add(field.name)
    return ""


def struct_schema(fields: Sequence[tuple[str, Schema]], **attributes: Any) -> Schema:
    return Schema(Type.STRUCT, fields=fields, **attributes)


def array_schema(element: Schema | None, **attributes: Any) -> Schema:
    return Schema(Type.ARRAY, value=element, **attributes)


def map_schema(key: Schema | None, value: Schema | None, **attributes: Any) -> Schema:
    return Schema(Type.MAP, key=key, value=value, **attributes)


REQUIRED: dict[Type, Schema] = {
    kind: Schema(kind) for kind in Type if kind not in (Type.ARRAY, Type.MAP, Type.STRUCT)
}
"""The plain schema of each primitive type."""
OPTIONAL: dict[Type, Schema] = {kind: Schema(kind, optional=True) for kind in REQUIRED}
