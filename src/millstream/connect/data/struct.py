"""Structs, and whether a value fits its schema."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name, to_string
from millstream.connect.data.schema import INTEGERS, Field, Schema, Type
from millstream.connect.errors import DataError


class Struct:
    """A value with named fields: a list, in the order of its schema's fields."""

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema, values: list[Any] | Mapping[str, Any] | None = None) -> None:
        if schema.type is not Type.STRUCT:
            raise DataError(f"Not a struct schema: {schema}")
        self.schema = schema
        if isinstance(values, list):
            self.values = values
        else:
            self.values = [None] * len(schema.fields)
            for name, value in (values or {}).items():
                self.put(name, value)

    def get(self, name: str) -> Any:
        """The value of a field, or its default where that is null."""
        field = self._field(name)
        value = self.values[field.index]
        return field.schema.default if value is None else value

    def get_without_default(self, name: str) -> Any:
        return self.values[self._field(name).index]

    def read(self, field: Field, with_default: bool) -> Any:
        """A field of this struct's own schema."""
        value = self.values[field.index]
        return field.schema.default if value is None and with_default else value

    def put(self, name: str, value: Any) -> None:
        field = self._field(name)
        validate_value(field.schema, value, f'field: "{name}"')
        self.values[field.index] = value

    def validate(self) -> None:
        for field in self.schema.fields:
            value = self.values[field.index]
            if value is None and (field.schema.optional or field.schema.default is not None):
                continue
            validate_value(field.schema, value, f'field: "{field.name}"')

    def _field(self, name: str) -> Field:
        field = self.schema.field(name)
        if field is None:
            raise DataError(f"{name} is not a valid field name")
        return field

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema == other.schema and self.values == other.values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return to_string(self)


_CLASSES: dict[Type, type | tuple[type, ...]] = {
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
    Type.STRUCT: Struct,
}
_LOGICAL_CLASSES: dict[str, type] = {
    logical.DECIMAL: Decimal,
    logical.DATE: datetime,
    logical.TIME: datetime,
    logical.TIMESTAMP: datetime,
}


def fits(schema: Schema, value: Any) -> bool:
    """Whether a value that is not null is of its schema's type, what it contains left aside."""
    if schema.name in _LOGICAL_CLASSES:
        return isinstance(value, _LOGICAL_CLASSES[schema.name])
    bits = INTEGERS.get(schema.type)
    if bits is None:
        return isinstance(value, _CLASSES[schema.type])
    if type(value) is not int:
        return False
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def validate_value(schema: Schema, value: Any, location: str = "value") -> None:
    if value is None:
        if not schema.optional:
            raise DataError(f"Invalid value: null used for required {location}, schema type: {schema.type}")
        return
    if not fits(schema, value):
        name = f' "{schema.name}"' if schema.name is not None else ""
        raise DataError(
            f"Invalid Java object for schema{name} with type {schema.type}: "
            f"class {_natural_class(value)} for {location}"
        )
    if schema.type is Type.STRUCT:
        if value.schema != schema:
            raise DataError("Struct schemas do not match.")
        value.validate()
    elif schema.type is Type.ARRAY:
        element = f"element of array {location}"
        element_schema = _present(schema.value_schema, element)
        for one in value:
            validate_value(element_schema, one, element)
    elif schema.type is Type.MAP:
        key_location, value_location = f"key of map {location}", f"value of map {location}"
        key_schema = _present(schema.key_schema, key_location)
        value_schema = _present(schema.value_schema, value_location)
        for key, one in value.items():
            validate_value(key_schema, key, key_location)
            validate_value(value_schema, one, value_location)


def _present(schema: Schema | None, location: str) -> Schema:
    if schema is None:
        raise DataError(f"No schema defined for {location}")
    return schema


def _natural_class(value: Any) -> str:
    """A number that its schema has no room for is of the next class that has."""
    if type(value) is int:
        for kind, bits in INTEGERS.items():
            if -(1 << (bits - 1)) <= value < 1 << (bits - 1) and kind is not Type.INT8:
                return class_name(value, Schema(kind))
    return class_name(value)


def type_of(value: Any) -> Type | None:
    """The type that a value without a schema has; None for what Connect's data does not know (a decimal, a
    date)."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    if isinstance(value, int):
        return Type.INT64
    if isinstance(value, float):
        return Type.FLOAT64
    for kind in (Type.STRING, Type.BYTES, Type.ARRAY, Type.MAP, Type.STRUCT):
        if isinstance(value, _CLASSES[kind]):
            return kind
    return None
