"""A value under another version of its schema, as Connect's SchemaProjector makes it."""

from __future__ import annotations

from typing import Any

from millstream.connect.data.schema import Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError

_WIDER = {
    Type.INT8: (Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64),
    Type.INT16: (Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64),
    Type.INT32: (Type.INT64, Type.FLOAT32, Type.FLOAT64),
    Type.INT64: (Type.FLOAT32, Type.FLOAT64),
    Type.FLOAT32: (Type.FLOAT64,),
}


def project(source: Schema, value: Any, target: Schema) -> Any:
    """DataError where the value does not fit."""
    if source == target:
        return value
    if value is None:
        if target.optional or target.default is not None:
            return target.default
        raise DataError("a null value has no place in a schema that is neither optional nor has a default")
    if source.type is not target.type:
        if target.type in _WIDER.get(source.type, ()):
            return float(value) if target.type in (Type.FLOAT32, Type.FLOAT64) else value
        raise DataError(f"Schema type mismatch. source type: {source.type} and target type: {target.type}")
    if source.name != target.name:
        raise DataError(f"Schema name mismatch. source name: {source.name} and target name: {target.name}")
    if target.type is Type.STRUCT:
        return _struct(source, value, target)
    if target.type is Type.ARRAY and source.value_schema and target.value_schema:
        return [project(source.value_schema, one, target.value_schema) for one in value]
    if target.type is Type.MAP and source.value_schema and target.value_schema:
        return {key: project(source.value_schema, one, target.value_schema) for key, one in value.items()}
    return value


def _struct(source: Schema, value: Struct, target: Schema) -> Struct:
    values: list[Any] = []
    for field in target.fields:
        known = source.field(field.name)
        if known is not None:
            values.append(project(known.schema, value.get(field.name), field.schema))
        elif field.schema.optional or field.schema.default is not None:
            values.append(field.schema.default)
        else:
            raise DataError(f"Required field `{field.name}` is missing from source schema {source}")
    return Struct(target, values)
