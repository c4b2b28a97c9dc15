"""Connect's structs as columns of Arrow.

A schema is turned into Arrow's once; after that a batch of structs is transposed and every column is made in
one call. Columns that hold structs, maps or defaults go value by value first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millstream.connect.data import logical
from millstream.connect.data.schema import Schema, Type
from millstream.connect.errors import DataError

MAX_PRECISION = 38
_TYPES = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_LOGICAL = {
    logical.DATE: pa.date32(),
    logical.TIME: pa.time32("ms"),
    logical.TIMESTAMP: pa.timestamp("ms", tz="UTC"),
}
Plain = Callable[[Any], Any]


def arrow_type(schema: Schema) -> pa.DataType:
    if schema.name == logical.DECIMAL:
        given = int((schema.parameters or {}).get("connect.decimal.precision", MAX_PRECISION))
        return pa.decimal128(min(given, MAX_PRECISION), logical.scale_of(schema))
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    if schema.type is Type.STRUCT:
        return pa.struct([_field(field.name, field.schema) for field in schema.fields])
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return pa.list_(_field("element", schema.value_schema))
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        return pa.map_(arrow_type(schema.key_schema), _field("value", schema.value_schema))
    return _TYPES[schema.type]


def _field(name: str, schema: Schema) -> pa.Field:
    return pa.field(name, arrow_type(schema), nullable=schema.optional)


class Columns:
    """Batches of one struct schema."""

    def __init__(self, schema: Schema) -> None:
        if schema.type is not Type.STRUCT:
            raise DataError("Parquet files have columns: the value has to be a struct")
        self.schema = pa.schema([_field(field.name, field.schema) for field in schema.fields])
        self._plain = [_plain(field.schema) for field in schema.fields]

    def batch(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """`rows` are the values of structs."""
        arrays = []
        for field, plain, column in zip(self.schema, self._plain, zip(*rows, strict=True), strict=True):
            values = column if plain is None else [plain(value) for value in column]
            try:
                array = pa.array(values, field.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise DataError(f"field {field.name}: {error}") from None
            if not field.nullable and array.null_count:
                raise DataError(f"field {field.name} is null, and not optional")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _plain(schema: Schema) -> Plain | None:
    """What makes a value one that Arrow takes; None where it does already."""
    inner = _present(schema)
    default = schema.default
    if inner is None and default is None:
        return None
    filler = default if inner is None or default is None else inner(default)

    def plain(value: Any) -> Any:
        if value is None:
            return filler
        return value if inner is None else inner(value)

    return plain


def _present(schema: Schema) -> Plain | None:
    if schema.name == logical.DATE:
        return logical.date_to_days
    if schema.name == logical.TIME:
        return logical.time_to_millis
    if schema.name in logical.LOGICAL_NAMES:
        return None
    if schema.type is Type.STRUCT:
        fields = [(field.name, _plain(field.schema)) for field in schema.fields]
        return lambda struct: {
            name: value if plain is None else plain(value)
            for (name, plain), value in zip(fields, struct.values, strict=True)
        }
    if schema.type is Type.ARRAY:
        element = _plain(schema.value_schema) if schema.value_schema is not None else None
        return None if element is None else lambda values: [element(value) for value in values]
    if schema.type is Type.MAP:
        inner = _plain(schema.value_schema) if schema.value_schema is not None else None
        return lambda values: [
            (key, value if inner is None else inner(value)) for key, value in values.items()
        ]
    return None
