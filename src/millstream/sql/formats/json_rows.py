"""JSON rows, as generated code.

A row is an object whose fields are found by name, first exactly, then without regard to case; objects of one
topic mostly have the same fields in the same order, so the names are looked up once for each such shape.
Values are converted as ksqlDB does it: "1" and 1.5 are fine for an INT, anything is fine for a STRING.

orjson reads numbers with a fraction as doubles. Where that loses something (DECIMAL columns, a number in a
STRING column) the record is read again with exact numbers, which is slower.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

import orjson

from millstream.sql.formats.values import (
    DoesNotFit,
    base64_text,
    checked_time,
    finite,
    fit_decimal,
    parse_bytes,
    parse_decimal,
    parse_double,
    parse_integer,
    wrapped_int,
    wrapped_long,
)
from millstream.sql.types import ArrayType, Base, DecimalType, MapType, SqlType, StructType

Columns = tuple[tuple[str, SqlType], ...]
Read = Callable[[bytes], tuple[Any, ...]]
Write = Callable[[tuple[Any, ...]], bytes | None]

_SHAPES = 1_000
# What the serializers of JSON Schema write in front: this byte and the schema's id. JSON reads that, too.
_MAGIC, _HEADER = b"\0", 5


class _Inexact(Exception):
    """A number's own digits are needed, and orjson did not keep them."""


# Reading --------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> NoReturn:
    raise DoesNotFit(f"{name} is not JSON")


def _exact(data: bytes) -> Any:
    if data[:1] == _MAGIC:
        data = data[_HEADER:]
    try:
        return json.loads(data, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DoesNotFit(f"not JSON: {error}") from None


def _fast(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if data[:1] == _MAGIC:
            with contextlib.suppress(orjson.JSONDecodeError):
                return orjson.loads(data[_HEADER:])
        return _exact(data)  # it knows what is wrong, or accepts more (lone surrogates)


def _source(value: Any) -> str:
    names = {
        bool: "BooleanNode",
        int: "IntNode",
        float: "DecimalNode",
        Decimal: "DecimalNode",
        str: "TextNode",
        list: "ArrayNode",
        dict: "ObjectNode",
        type(None): "NullNode",
    }
    return names.get(type(value), type(value).__name__)


def _refuse(value: Any, name: object) -> NoReturn:
    raise DoesNotFit(f"Can't convert type. sourceType: {_source(value)}, requiredType: {name}")


def to_boolean(value: Any) -> Any:
    if value is None or value is True or value is False:
        return value
    _refuse(value, "BOOLEAN")


def to_integer(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return wrapped_int(value)
    if kind is float or kind is Decimal:
        return wrapped_int(int(value))
    if kind is str:
        return parse_integer(value, 32, "INTEGER")
    return None if value is None else _refuse(value, "INTEGER")


def _long(value: Any, name: str) -> Any:
    kind = type(value)
    if kind is int:
        return wrapped_long(value)
    if kind is float or kind is Decimal:
        return wrapped_long(int(value))
    if kind is str:
        return parse_integer(value, 64, name)
    return None if value is None else _refuse(value, name)


def to_bigint(value: Any) -> Any:
    return _long(value, "BIGINT")


def to_timestamp(value: Any) -> Any:
    return _long(value, "TIMESTAMP")


def to_date(value: Any) -> Any:
    return _long(value, "DATE")


def to_time(value: Any) -> Any:
    found = _long(value, "TIME")
    return None if found is None else checked_time(found)


def to_double(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return value
    if kind is int or kind is Decimal:
        return float(value)
    if kind is str:
        return parse_double(value)
    return None if value is None else _refuse(value, "DOUBLE")


def to_bytes(value: Any) -> Any:
    if type(value) is str:
        return parse_bytes(value)
    return None if value is None else _refuse(value, "BYTES")


def _number_text(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError(f"no JSON: {type(value).__name__}")


def to_string(value: Any) -> Any:
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        raise _Inexact
    if kind is dict:
        if _has_float(value):
            raise _Inexact
        return orjson.dumps(value, _number_text).decode()
    if kind is list:
        return f"[{', '.join('null' if item is None else to_string(item) for item in value)}]"
    return str(value)


def _has_float(value: Any) -> bool:
    if type(value) is dict:
        return any(map(_has_float, value.values()))
    return any(map(_has_float, value)) if type(value) is list else type(value) is float


def _to_decimal(type_: DecimalType) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        kind = type(value)
        if kind is Decimal:
            return fit_decimal(value, type_)
        if kind is int:
            return fit_decimal(Decimal(value), type_)
        if kind is str:
            return fit_decimal(parse_decimal(value), type_)
        return None if value is None else _refuse(value, type_)

    return convert


_CONVERT: dict[Base, Callable[[Any], Any]] = {
    Base.BOOLEAN: to_boolean,
    Base.INTEGER: to_integer,
    Base.BIGINT: to_bigint,
    Base.DOUBLE: to_double,
    Base.STRING: to_string,
    Base.BYTES: to_bytes,
    Base.DATE: to_date,
    Base.TIME: to_time,
    Base.TIMESTAMP: to_timestamp,
}

# Tests that make the call of the converter needless, by far the most frequent case.
_GUARD: dict[Base, str] = {
    Base.BOOLEAN: "type({0}) is not bool",
    Base.INTEGER: "type({0}) is not int or not -2147483648 <= {0} <= 2147483647",
    Base.BIGINT: "type({0}) is not int or not -9223372036854775808 <= {0} <= 9223372036854775807",
    Base.TIMESTAMP: "type({0}) is not int or not -9223372036854775808 <= {0} <= 9223372036854775807",
    Base.DOUBLE: "type({0}) is not float",
    Base.STRING: "type({0}) is not str",
}


def converter(type_: SqlType) -> Callable[[Any], Any]:
    """From what a JSON parser gives to a value of that type."""
    if isinstance(type_, DecimalType):
        return _to_decimal(type_)
    if isinstance(type_, ArrayType):
        return _to_array(type_)
    if isinstance(type_, MapType):
        return _to_map(type_)
    if isinstance(type_, StructType):
        return _to_struct(type_)
    return _CONVERT[type_.base]


def _to_array(type_: ArrayType) -> Callable[[Any], Any]:
    inner = converter(type_.item)

    def convert(value: Any) -> Any:
        if type(value) is list:
            return [None if item is None else inner(item) for item in value]
        return None if value is None else _refuse(value, type_)

    return convert


def _to_map(type_: MapType) -> Callable[[Any], Any]:
    inner = converter(type_.value)

    def convert(value: Any) -> Any:
        if type(value) is dict:
            return {key: None if item is None else inner(item) for key, item in value.items()}
        return None if value is None else _refuse(value, type_)

    return convert


def _to_struct(type_: StructType) -> Callable[[Any], Any]:
    read = _fields_reader(type_.fields)
    names = [name for name, _ in type_.fields]

    def convert(value: Any) -> Any:
        if type(value) is dict:
            return dict(zip(names, read(value), strict=True))
        return None if value is None else _refuse(value, type_)

    return convert


def _fields_reader(columns: Columns) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """An object's fields as a tuple, in the order of the columns; generated."""
    shapes: dict[tuple[str, ...], tuple[str | None, ...]] = {}

    def shape(fields: tuple[str, ...]) -> tuple[str | None, ...]:
        upper = {name.upper(): name for name in fields}
        found = tuple(name if name in fields else upper.get(name) for name, _ in columns)
        if len(shapes) >= _SHAPES:
            shapes.clear()
        shapes[fields] = found
        return found

    scope: dict[str, Any] = {"shapes": shapes, "shape": shape, "DoesNotFit": DoesNotFit}
    lines = ["def read(o):", " f = tuple(o)", " k = shapes.get(f)", " if k is None: k = shape(f)"]
    lines.append(" g = o.get")
    values = []
    for index, (name, type_) in enumerate(columns):
        scope[f"c{index}"] = _named(name, converter(type_))
        value = f"v{index}"
        values.append(value)
        lines.append(f" {value} = g(k[{index}])")
        guard = _GUARD.get(type_.base)
        test = f"{value} is not None" + (f" and ({guard.format(value)})" if guard else "")
        lines.append(f" if {test}: {value} = c{index}({value})")
    lines.append(f" return ({''.join(value + ', ' for value in values)})")
    exec("\n".join(lines), scope)  # noqa: S102  # names and types only come from `columns`, as indexes
    read: Callable[[dict[str, Any]], tuple[Any, ...]] = scope["read"]
    return read


_PATH = ", path: $"


def _named(name: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The converter, with the path of the field behind what it complains about."""

    def call(value: Any) -> Any:
        try:
            return convert(value)
        except DoesNotFit as error:
            why, _, inner = str(error).partition(_PATH)
            raise DoesNotFit(f"{why}{_PATH}.{name}{inner}") from None

    return call


def _keeps_digits(columns: Columns) -> bool:
    from millstream.sql.formats.table import walk

    return any(inner.base is Base.DECIMAL for _, type_ in columns for inner in walk(type_))


def reader(columns: Columns, *, unwrapped: bool) -> Read:
    load = _exact if _keeps_digits(columns) else _fast
    if unwrapped:
        convert = converter(columns[0][1])

        def read_one(data: bytes) -> tuple[Any, ...]:
            try:
                return (convert(load(data)),)
            except _Inexact:
                return (convert(_exact(data)),)

        return read_one
    fields = _fields_reader(columns)

    def read(data: bytes) -> tuple[Any, ...]:
        value = load(data)
        if type(value) is not dict:
            _refuse(value, "STRUCT")
        try:
            return fields(value)
        except _Inexact:
            return fields(_exact(data))

    return read


# Writing --------------------------------------------------------------------------------------------------


def plain_converter(type_: SqlType) -> Callable[[Any], Any] | None:
    """From a SQL value to what orjson writes; None if it is that already."""
    base = type_.base
    if base is Base.DOUBLE:
        return finite
    if base is Base.DECIMAL:
        return lambda value: None if value is None else orjson.Fragment(str(value))
    if base is Base.BYTES:
        return lambda value: None if value is None else base64_text(value)
    if isinstance(type_, ArrayType):
        inner = plain_converter(type_.item)
        if inner is None:
            return None
        return lambda value: None if value is None else [inner(item) for item in value]
    if isinstance(type_, MapType):
        values = plain_converter(type_.value)
        if values is None:
            return None
        return lambda value: None if value is None else {key: values(item) for key, item in value.items()}
    if isinstance(type_, StructType):
        converters = {
            name: found for name, one in type_.fields if (found := plain_converter(one)) is not None
        }
        if not converters:
            return None
        return lambda value: (
            None
            if value is None
            else {
                name: converters[name](item) if name in converters else item for name, item in value.items()
            }
        )
    return None


_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATETIME


def writer(columns: Columns, *, unwrapped: bool) -> Write:
    if unwrapped:
        convert = plain_converter(columns[0][1])

        def write_one(row: tuple[Any, ...]) -> bytes | None:
            value = row[0]
            if value is None:
                return None
            return orjson.dumps(value if convert is None else convert(value), option=_OPTIONS)

        return write_one
    scope: dict[str, Any] = {"dumps": orjson.dumps, "options": _OPTIONS}
    items = []
    for index, (name, type_) in enumerate(columns):
        plain = plain_converter(type_)
        scope[f"c{index}"] = plain
        items.append(f"{name!r}: " + (f"r[{index}]" if plain is None else f"c{index}(r[{index}])"))
    exec(f"def write(r): return dumps({{{', '.join(items)}}}, option=options)", scope)  # noqa: S102
    write: Write = scope["write"]
    return write
