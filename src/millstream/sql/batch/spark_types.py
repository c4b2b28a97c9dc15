"""Types of SQL as Spark's and Arrow's, and back.

TIME has no type that all of Spark can take: it is text there. What Spark has and SQL has not (intervals,
variants, maps whose keys are no text) comes back as text.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.sql.times import days_of
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
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

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_DDL = {
    Base.BOOLEAN: "boolean",
    Base.INTEGER: "int",
    Base.BIGINT: "bigint",
    Base.DOUBLE: "double",
    Base.STRING: "string",
    Base.BYTES: "binary",
    Base.DATE: "date",
    Base.TIME: "string",
    Base.TIMESTAMP: "timestamp",
}


def ddl(type_: SqlType) -> str:
    """As Spark writes the type."""
    if isinstance(type_, DecimalType):
        return f"decimal({type_.precision},{type_.scale})"
    if isinstance(type_, ArrayType):
        return f"array<{ddl(type_.item)}>"
    if isinstance(type_, MapType):
        return f"map<{ddl(type_.key)},{ddl(type_.value)}>"
    if isinstance(type_, StructType):
        return f"struct<{','.join(f'{spark_name(name)}:{ddl(one)}' for name, one in type_.fields)}>"
    return _DDL[type_.base]


def spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def arrow_type(type_: SqlType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, ArrayType):
        return pa.list_(arrow_type(type_.item))
    if isinstance(type_, MapType):
        return pa.map_(arrow_type(type_.key), arrow_type(type_.value))
    if isinstance(type_, StructType):
        return pa.struct([pa.field(name, arrow_type(one)) for name, one in type_.fields])
    plain = {
        Base.BOOLEAN: pa.bool_(),
        Base.INTEGER: pa.int32(),
        Base.BIGINT: pa.int64(),
        Base.DOUBLE: pa.float64(),
        Base.BYTES: pa.binary(),
        Base.DATE: pa.date32(),
        Base.TIMESTAMP: pa.timestamp("us", "UTC"),
    }
    return plain.get(type_.base, pa.string())


def to_arrow(type_: SqlType) -> Convert | None:
    """What makes a value one that Arrow takes for the type; None where it is one already."""
    if type_.base is Base.TIMESTAMP:
        return lambda value: None if value is None else value * 1000
    if type_.base is Base.TIME:
        return lambda value: None if value is None else _time_text(value)
    if isinstance(type_, ArrayType):
        item = to_arrow(type_.item)
        return None if item is None else lambda value: None if value is None else [item(one) for one in value]
    if isinstance(type_, MapType):
        inner = to_arrow(type_.value) or (lambda value: value)
        return lambda value: None if value is None else [(key, inner(one)) for key, one in value.items()]
    if isinstance(type_, StructType):
        fields = {name: convert for name, one in type_.fields if (convert := to_arrow(one)) is not None}
        if not fields:
            return None
        return lambda value: (
            None
            if value is None
            else {name: fields[name](one) if name in fields else one for name, one in value.items()}
        )
    return None


def _time_text(millis: int) -> str:
    seconds, millis = divmod(millis, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis:03}"


def from_spark(type_: Any) -> tuple[SqlType, Convert | None]:
    """SQL's type for one of Spark's, and what makes a value of a Row one of it."""
    from pyspark.sql import types as spark

    match type_:
        case spark.BooleanType():
            return BOOLEAN, None
        case spark.ByteType() | spark.ShortType() | spark.IntegerType():
            return INTEGER, None
        case spark.LongType():
            return BIGINT, None
        case spark.FloatType() | spark.DoubleType():
            return DOUBLE, None
        case spark.DecimalType():
            return decimal_type(type_.precision, type_.scale), None
        case spark.BinaryType():
            return BYTES, bytes
        case spark.DateType():
            return DATE, lambda value: days_of(value.year, value.month, value.day)
        case spark.TimestampType() | spark.TimestampNTZType():
            return TIMESTAMP, _millis
        case spark.ArrayType():
            item, convert = from_spark(type_.elementType)
            return array_type(item), lambda value: [_applied(convert, one) for one in value]
        case spark.MapType() if isinstance(type_.keyType, spark.StringType):
            inner, convert = from_spark(type_.valueType)
            return map_type(STRING, inner), lambda value: {
                key: _applied(convert, one) for key, one in value.items()
            }
        case spark.StructType():
            parts = [(field.name, *from_spark(field.dataType)) for field in type_.fields]
            return struct_type(*((name, one) for name, one, _ in parts)), lambda value: {
                name: _applied(convert, one) for (name, _, convert), one in zip(parts, value, strict=True)
            }
        case spark.StringType():
            return STRING, None
    return STRING, str


def _applied(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _millis(value: datetime.datetime) -> int:
    at = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
    return (at - _EPOCH) // _MILLISECOND


def row_converter(types: list[Any]) -> tuple[tuple[SqlType, ...], Callable[[Any], tuple[Any, ...]]]:
    """For the columns of a result: their types, and a function from a Row to SQL's values."""
    found = [from_spark(one) for one in types]
    converters = [convert for _, convert in found]

    def convert(row: Any) -> tuple[Any, ...]:
        return tuple(_applied(one, value) for one, value in zip(converters, row, strict=True))

    return tuple(type_ for type_, _ in found), convert
