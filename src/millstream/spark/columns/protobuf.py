"""Protobuf bodies into Arrow columns.

Types are those of Spark's own Protobuf functions, with unsigned numbers as the next larger type: messages are
structs, enums their constants' names, wrappers the value inside, Timestamp a timestamp, Duration an interval;
Struct, Value and Any are JSON text (an Any of an unknown type its name and its bytes). Protobuf's evolution
is by field number, so bodies are parsed with the reader's message; the writer's schema only tells which
message of its file a body holds.
"""

import base64
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millstream.serdes.bodies import ProtobufBody
from millstream.serdes.frame import split_path
from millstream.serdes.protobuf_values import DURATION, TIMESTAMP, to_python
from millstream.spark.columns.avro.types import INSTANT, Unsuitable
from millstream.spark.columns.outcome import Decoded, by_halves, reason_of

SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_ENUM: pa.string(),
}
WRAPPERS = frozenset(
    f"google.protobuf.{wrapped}Value"
    for wrapped in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
JSON_LIKE = frozenset(
    f"google.protobuf.{wrapped}" for wrapped in ("Struct", "Value", "ListValue", "Any", "FieldMask")
)
ANY = "google.protobuf.Any"
UNSIGNED_64 = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


def message_of(body: ProtobufBody, name: str | None) -> Any:
    """The class of a message: the named one, or the first of the file."""
    try:
        return body.message_class(body.path_to(name) if name else (0,))
    except ValueError as error:
        raise Unsuitable(str(error)) from None


def arrow_type(descriptor: Descriptor, inside: tuple[str, ...] = ()) -> pa.DataType:
    if descriptor.full_name in inside:
        raise Unsuitable(f"the message {descriptor.full_name} contains itself, which no column can")
    inside = (*inside, descriptor.full_name)
    return pa.struct([(field.name, _field_type(field, inside)) for field in descriptor.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = (_entry(field, name) for name in ("key", "value"))
        return pa.map_(_single_type(key, inside), pa.field("value", _single_type(value, inside)))
    single = _single_type(field, inside)
    return pa.list_(pa.field("element", single)) if field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is None:
        return SCALARS[field.type]
    name = field.message_type.full_name
    if name == TIMESTAMP:
        return INSTANT
    if name == DURATION:
        return pa.duration("us")
    if name in WRAPPERS:
        return SCALARS[_entry(field, "value").type]
    if name in JSON_LIKE:
        return pa.string()
    return arrow_type(field.message_type, inside)


def _entry(field: FieldDescriptor, name: str) -> FieldDescriptor:
    """The key or the value of a map, the value of a wrapper."""
    assert field.message_type is not None
    return field.message_type.fields_by_name[name]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


class ProtobufDecoder:
    """Bodies of one writer's file, read as one message of the reader's."""

    def __init__(self, writer: ProtobufBody, reader: Any) -> None:
        self._writer = writer
        self._class = reader
        self.type = arrow_type(reader.DESCRIPTOR)
        self._known: dict[tuple[int, ...], str | None] = {}  # path -> what is wrong with it

    def decode(self, data: np.ndarray[Any, Any], starts: Any, ends: Any) -> Decoded:
        view = memoryview(data)  # type: ignore[arg-type]
        parse = self._class.FromString
        messages: list[Any] = []
        bad: dict[int, str] = {}
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            try:
                path, body = split_path(view[start:end])
                problem = self._problem(path)
                if problem is not None:
                    raise ValueError(problem)
                messages.append(parse(bytes(body)))
            except Exception as error:  # DecodeError and ValueError have no common ground
                messages.append(None)
                bad[row] = reason_of(error)
        # What can be parsed need not be a value: a Timestamp may lie outside of all calendars, text may not
        # be UTF-8.
        array = by_halves(
            messages, lambda some: _structs(some, self._class.DESCRIPTOR, self.type), self.type, bad
        )
        return Decoded(array, bad)

    def _problem(self, path: list[int]) -> str | None:
        key = tuple(path)
        if key not in self._known:
            wanted = self._class.DESCRIPTOR.full_name
            name = self._writer.message_class(path).DESCRIPTOR.full_name
            self._known[key] = None if name == wanted else f"the message is a {name}, not a {wanted}"
        return self._known[key]


def _structs(messages: Sequence[Any], descriptor: Descriptor, arrow_type: pa.DataType) -> pa.Array:
    """A column per field. Going field by field keeps the work per value to reading one attribute."""
    columns = [_column(messages, field, arrow_type.field(field.name).type) for field in descriptor.fields]
    missing = pa.array([message is None for message in messages])
    if not columns:
        return pa.array([None if message is None else {} for message in messages], arrow_type)
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type), mask=missing)


def _column(messages: Sequence[Any], field: FieldDescriptor, arrow_type: pa.DataType) -> pa.Array:
    name = field.name
    if _is_map(field):
        value = _entry(field, "value")
        one = _converter(value)
        maps = [
            None if message is None else [(key, one(item)) for key, item in getattr(message, name).items()]
            for message in messages
        ]
        return pa.array(maps, arrow_type)
    if field.is_repeated:
        one = _converter(field)
        return pa.array(
            [
                None if message is None else [one(item) for item in getattr(message, name)]
                for message in messages
            ],
            arrow_type,
        )
    if field.message_type is not None and pa.types.is_struct(arrow_type):
        inner = [
            getattr(message, name) if message is not None and message.HasField(name) else None
            for message in messages
        ]
        return _structs(inner, field.message_type, arrow_type)
    one = _converter(field)
    if field.has_presence:
        return pa.array(
            [
                one(getattr(message, name)) if message is not None and message.HasField(name) else None
                for message in messages
            ],
            arrow_type,
        )
    if one is _as_it_is:
        return pa.array(
            [None if message is None else getattr(message, name) for message in messages], arrow_type
        )
    return pa.array(
        [None if message is None else one(getattr(message, name)) for message in messages], arrow_type
    )


def _as_it_is(value: Any) -> Any:
    return value


def _converter(field: FieldDescriptor) -> Any:
    """How a single value of that field becomes one that Arrow takes."""
    if field.enum_type is not None:
        names = {number: constant.name for number, constant in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if field.message_type is None:
        if field.type in UNSIGNED_64:
            return Decimal
        return _as_it_is
    name = field.message_type.full_name
    if name == ANY:
        return _any_text
    if name in JSON_LIKE:
        return lambda message: json_format.MessageToJson(message, indent=None)
    if name in (TIMESTAMP, DURATION):
        return _moment
    if name in WRAPPERS:
        inner = _converter(_entry(field, "value"))
        return lambda message: inner(message.value)
    return lambda message: {one.name: _value(message, one) for one in message.DESCRIPTOR.fields}


def _moment(message: Any) -> Any:
    try:
        return to_python(message)
    except OverflowError:
        raise ValueError(f"a {message.DESCRIPTOR.name} is out of range") from None


def _any_text(message: Any) -> str:
    """JSON with the type's name. Types are looked for beside the schema's own, then among those that Python
    knows; to meet one of neither is ordinary, and then its bytes are kept as they are."""
    for pool in (message.DESCRIPTOR.file.pool, None):
        try:
            return json_format.MessageToJson(message, indent=None, descriptor_pool=pool)
        except TypeError:
            continue
    content = base64.b64encode(message.value).decode("ascii")
    return json.dumps({"@type": message.type_url, "value": content})


def _value(message: Any, field: FieldDescriptor) -> Any:
    """A field of a message inside an array or a map."""
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        one = _converter(_entry(field, "value"))
        return [(key, one(item)) for key, item in value.items()]
    one = _converter(field)
    return [one(item) for item in value] if field.is_repeated else one(value)


def to_fill(value: Any, descriptor: Descriptor) -> Any:
    """The way back: a struct of a column as a dict that a message takes. Nulls are left out, JSON text is
    what it says."""
    if not isinstance(value, dict):
        return value
    return {
        name: _field_to_fill(item, descriptor.fields_by_name[name])
        for name, item in value.items()
        if item is not None
    }


def _field_to_fill(value: Any, field: FieldDescriptor) -> Any:
    if _is_map(field):
        one = _entry(field, "value")
        return {_single_to_fill(key, None): _single_to_fill(item, one) for key, item in value.items()}
    return (
        [_single_to_fill(item, field) for item in value]
        if field.is_repeated
        else _single_to_fill(value, field)
    )


def _single_to_fill(value: Any, field: FieldDescriptor | None) -> Any:
    if isinstance(value, Decimal):  # an unsigned number of 64 bits, or the wrapper of one
        return int(value)
    message_type = None if field is None else field.message_type
    if value is None or message_type is None:
        return value
    if message_type.full_name in JSON_LIKE:
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"{field.name if field else ''} is not JSON text: {error}") from None
    return to_fill(value, message_type)
