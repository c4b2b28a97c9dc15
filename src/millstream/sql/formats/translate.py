"""Between SQL's types and Connect's: schemas in both directions, and values from a writer's schema to a
column's type.

Values come as the schema languages' own decoders give them (`avro.py`, `protobuf.py`, `json_sr.py`) with
every logical type as its number: dates in days, times and timestamps in milliseconds, decimals as Decimal.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millstream.serdes.java_text import double_text
from millstream.sql.errors import SqlError
from millstream.sql.formats import connect
from millstream.sql.formats.connect import ConnectField, ConnectType
from millstream.sql.formats.values import DoesNotFit, fit_decimal
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    Base,
    DecimalType,
    MapType,
    SqlType,
    StructType,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)

_TO_CONNECT = {
    Base.BOOLEAN: connect.BOOLEAN,
    Base.INTEGER: connect.INT32,
    Base.BIGINT: connect.INT64,
    Base.DOUBLE: connect.FLOAT64,
    Base.STRING: connect.STRING,
    Base.BYTES: connect.BYTES,
    Base.DATE: connect.DATE_TYPE,
    Base.TIME: connect.TIME_TYPE,
    Base.TIMESTAMP: connect.TIMESTAMP_TYPE,
}


def to_connect(type_: SqlType) -> ConnectType:
    if isinstance(type_, DecimalType):
        return connect.decimal(type_.precision, type_.scale)
    if isinstance(type_, ArrayType):
        return connect.array(to_connect(type_.item))
    if isinstance(type_, MapType):
        return connect.mapping(to_connect(type_.key), to_connect(type_.value))
    if isinstance(type_, StructType):
        return connect.struct(tuple(ConnectField(name, to_connect(one)) for name, one in type_.fields))
    return _TO_CONNECT[type_.base]


def row_type(columns: tuple[tuple[str, SqlType], ...], *, unwrapped: bool) -> ConnectType:
    """What a whole key or value is: a struct, or its only column."""
    if unwrapped:
        return to_connect(columns[0][1]).required()
    return connect.struct(tuple(ConnectField(name, to_connect(one)) for name, one in columns)).required()


# Schemas from a registry ----------------------------------------------------------------------------------

_LOGICAL = {connect.DATE: DATE, connect.TIME: TIME, connect.TIMESTAMP: TIMESTAMP}
_TO_SQL = {
    "INT8": INTEGER,
    "INT16": INTEGER,
    "INT32": INTEGER,
    "INT64": BIGINT,
    "FLOAT32": DOUBLE,
    "FLOAT64": DOUBLE,
    "STRING": STRING,
    "BOOLEAN": BOOLEAN,
    "BYTES": BYTES,
}
_MAP_KEYS = frozenset({"INT8", "INT16", "INT32", "INT64", "BOOLEAN", "STRING"})


class _Unsupported(Exception):
    """SQL has no such type; a field of it is left out."""


def to_sql(type_: ConnectType, *, upper: bool) -> SqlType:
    """The column type for a schema's type. `upper`: names of fields in upper case, as unquoted ones are."""
    if type_.kind == "ARRAY":
        assert type_.value is not None
        return array_type(to_sql(type_.value, upper=upper))
    if type_.kind == "MAP":
        assert type_.key is not None
        assert type_.value is not None
        if type_.key.kind not in _MAP_KEYS:
            raise _Unsupported(f"Unsupported type for map key: {type_.key.kind.lower()}")
        return map_type(STRING, to_sql(type_.value, upper=upper))
    if type_.kind == "STRUCT":
        fields = []
        for one in type_.fields:
            try:
                fields.append((one.name.upper() if upper else one.name, to_sql(one.type, upper=upper)))
            except _Unsupported:
                continue
        return struct_type(*fields)
    if type_.name == connect.DECIMAL:
        return decimal_type(type_.precision, type_.scale)
    return _LOGICAL.get(type_.name or "") or _TO_SQL[type_.kind]


def to_columns(
    type_: ConnectType, *, is_key: bool, unwrapped: bool, upper: bool
) -> tuple[tuple[str, SqlType], ...]:
    """The columns of a key or value with that schema; SqlError if it has none."""
    if unwrapped:
        type_ = connect.struct((ConnectField("ROWKEY" if is_key else "ROWVAL", type_),))
    if type_.kind != "STRUCT":
        raise SqlError(
            "Schema returned from schema registry is anonymous type. "
            "To use this schema with ksqlDB, set 'WRAP_SINGLE_VALUE=false' in the WITH clause properties."
        )
    try:
        row = to_sql(type_, upper=upper)
    except _Unsupported as error:
        raise SqlError(f"Unsupported type at root of schema: {error}") from None
    assert isinstance(row, StructType)
    if not row.fields:
        raise SqlError("Schema does not include any columns with types that ksqlDB supports.")
    return row.fields


# Values ---------------------------------------------------------------------------------------------------

Convert = Callable[[Any], Any]

_ACCEPTED = {
    "INT64": connect.INTEGERS,
    "INT32": frozenset({"INT8", "INT16", "INT32"}),
    "FLOAT64": frozenset({"FLOAT32", "FLOAT64"}),
    "STRING": connect.INTEGERS | {"FLOAT32", "FLOAT64", "BOOLEAN", "STRING"},
}


def value_converter(target: SqlType, written: ConnectType, path: str = "") -> Convert:
    """From a decoded value of the writer's type to the column's. A type that does not fit is an error of
    every record, null or not, as in ksqlDB; it is raised when the first one comes."""
    wanted = to_connect(target)
    if written.kind not in _ACCEPTED.get(wanted.kind, {wanted.kind}):
        return _mismatch(written, wanted, path)
    if isinstance(target, StructType):
        return _struct_converter(target, written, path)
    if isinstance(target, ArrayType):
        assert written.value is not None
        return _array_converter(value_converter(target.item, written.value, f"{path}->ARRAY"))
    if isinstance(target, MapType):
        assert written.key is not None
        assert written.value is not None
        key = value_converter(target.key, written.key, f"{path}->MAP_KEY")
        return _map_converter(key, value_converter(target.value, written.value, f"{path}->MAP_VAL"))
    if isinstance(target, DecimalType):
        return lambda value: None if value is None else _decimal(value, target)
    if target.base is Base.STRING and written.kind != "STRING":
        return _java_text
    if target.base is Base.DOUBLE:
        return lambda value: None if value is None else float(value)
    return lambda value: value


def _decimal(value: Any, target: DecimalType) -> Decimal:
    if not isinstance(value, Decimal):
        raise DoesNotFit("Cannot deserialize type bytes as a decimal")
    return fit_decimal(value, target)


def _mismatch(written: ConnectType, wanted: ConnectType, path: str) -> Convert:
    def refuse(_value: Any) -> Any:
        raise DoesNotFit(
            f"Cannot deserialize type {written.kind.lower()} as type {wanted.kind.lower()} for path: {path}"
        )

    return refuse


def _java_text(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return double_text(value) if isinstance(value, float) else str(value)


def _array_converter(inner: Convert) -> Convert:
    return lambda value: None if value is None else [inner(item) for item in value]


def _map_converter(key: Convert, inner: Convert) -> Convert:
    return lambda value: None if value is None else {key(one): inner(item) for one, item in value.items()}


def field_converters(
    fields: tuple[tuple[str, SqlType], ...], written: ConnectType, path: str
) -> list[tuple[str, int, Convert]]:
    """(field of the writer, index of the column, conversion) for each field that is a column too."""
    wanted = {name: index for index, (name, _) in enumerate(fields)}
    found = []
    for one in written.fields:
        index = wanted.get(one.name, wanted.get(one.name.upper()))
        if index is not None:
            convert = value_converter(fields[index][1], one.type, f"{path}->{fields[index][0]}")
            found.append((one.name, index, convert))
    return found


def _struct_converter(target: StructType, written: ConnectType, path: str) -> Convert:
    converters = field_converters(target.fields, written, path)
    names = [name for name, _ in target.fields]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        row: dict[str, Any] = dict.fromkeys(names)
        for source, index, inner in converters:
            row[names[index]] = inner(value.get(source))
        return row

    return convert


def row_converter(
    columns: tuple[tuple[str, SqlType], ...], written: ConnectType, *, unwrapped: bool
) -> Callable[[Any], tuple[Any, ...]]:
    """From a decoded key or value to a row."""
    if unwrapped:
        single = value_converter(columns[0][1], written)
        return lambda value: (single(value),)
    if written.kind != "STRUCT":
        refuse = _mismatch(written, connect.struct(()), "")
        return lambda value: (refuse(value),)
    converters, width = field_converters(columns, written, ""), len(columns)

    def convert(value: Any) -> tuple[Any, ...]:
        if value is None:
            raise DoesNotFit("the value is null")
        row: list[Any] = [None] * width
        for source, index, inner in converters:
            row[index] = inner(value.get(source))
        return tuple(row)

    return convert
