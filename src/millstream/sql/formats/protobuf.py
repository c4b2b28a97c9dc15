"""Protobuf rows, with and without a registry, with schemas in the form of Confluent's Connect converter.

Messages are `ConnectDefault1`, `ConnectDefault2`, ... unless the row has a name; a map is a repeated message
with key and value. Null cannot be written unless the format says how (`optional` fields or wrapper
messages): a column that was null reads as 0, "" or false. A oneof is a struct with one field for each of its
members.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millstream.schemas import ParsedSchema
from millstream.schemas.proto_model import Message, Option, walk
from millstream.schemas.protobuf import ProtobufSchema
from millstream.sql.errors import SqlError
from millstream.sql.formats import connect
from millstream.sql.formats.connect import ConnectField, ConnectType
from millstream.sql.formats.values import DoesNotFit
from millstream.sql.types import ArrayType, Base, MapType, SqlType, StructType

_EPOCH = datetime.date(1970, 1, 1).toordinal()

# Schemas from SQL -----------------------------------------------------------------------------------------

_SCALARS = {
    "INT32": "int32",
    "INT64": "int64",
    "FLOAT64": "double",
    "BOOLEAN": "bool",
    "STRING": "string",
    "BYTES": "bytes",
}
_WRAPPERS = {
    "INT32": "Int32Value",
    "INT64": "Int64Value",
    "FLOAT64": "DoubleValue",
    "BOOLEAN": "BoolValue",
    "STRING": "StringValue",
    "BYTES": "BytesValue",
}
_LOGICAL = {
    connect.DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    connect.DATE: ("google.type.Date", "google/type/date.proto"),
    connect.TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    connect.TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}


class _Text:
    """The text of a file with one message."""

    def __init__(self, nullable: str | None) -> None:
        self._nullable = nullable
        self._imports: set[str] = set()
        self._unnamed = 0

    def _name(self) -> str:
        self._unnamed += 1
        return f"ConnectDefault{self._unnamed}"

    def file(self, type_: ConnectType, full_name: str | None) -> str:
        package, _, name = (full_name or "").rpartition(".")
        body = self._message(name or self._name(), type_.fields, "")
        if any(path.startswith("confluent/type/decimal") for path in self._imports):
            self._imports.add("confluent/meta.proto")
        lines = ['syntax = "proto3";']
        if package:
            lines.append(f"package {package};")
        if self._imports:
            lines += ["", *(f'import "{path}";' for path in sorted(self._imports))]
        return "\n".join([*lines, "", body, ""])

    def _message(self, name: str, fields: tuple[ConnectField, ...], indent: str) -> str:
        inner = indent + "  "
        lines: list[str] = []
        nested: list[str] = []
        for number, one in enumerate(fields, 1):
            label, type_name, options = self._field(one.type, inner, nested)
            lines.append(f"{inner}{label}{type_name} {one.name} = {number}{options};")
        parts = "\n".join(lines)
        if nested:
            parts += "\n\n" + "\n".join(nested)
        return f"{indent}message {name} {{\n{parts}\n{indent}}}"

    def _field(self, type_: ConnectType, indent: str, nested: list[str]) -> tuple[str, str, str]:
        """Label, type and options; messages that it needs go into `nested`."""
        if type_.kind == "ARRAY":
            assert type_.value is not None
            if type_.value.kind in ("ARRAY", "MAP"):
                raise SqlError("Array cannot be nested")
            _, name, options = self._plain(type_.value, indent, nested)
            return "repeated ", name, options
        if type_.kind == "MAP":
            assert type_.key is not None
            assert type_.value is not None
            entry = self._name() + "Entry"
            fields = (ConnectField("key", type_.key), ConnectField("value", type_.value))
            nested.append(self._message(entry, fields, indent))
            return "repeated ", entry, ""
        if type_.kind in _SCALARS and type_.name is None and self._nullable == "wrapper":
            self._imports.add("google/protobuf/wrappers.proto")
            return "", f"google.protobuf.{_WRAPPERS[type_.kind]}", ""
        label, name, options = self._plain(type_, indent, nested)
        return ("optional " if self._nullable == "optional" else label), name, options

    def _plain(self, type_: ConnectType, indent: str, nested: list[str]) -> tuple[str, str, str]:
        if type_.kind == "STRUCT":
            name = self._name()
            nested.append(self._message(name, type_.fields, indent))
            return "", name, ""
        if type_.name in _LOGICAL:
            name, path = _LOGICAL[type_.name]
            self._imports.add(path)
            if type_.name != connect.DECIMAL:
                return "", name, ""
            pairs = (("precision", type_.precision), ("scale", type_.scale))
            params = ", ".join(f'{{ value: "{value}", key: "{key}" }}' for key, value in pairs)
            return "", name, f" [(confluent.field_meta) = {{ params: [{params}] }}]"
        return "", _SCALARS[type_.kind], ""


def schema_text(type_: ConnectType, full_name: str | None, nullable: str | None) -> str:
    return _Text(nullable).file(type_, full_name)


# Schemas from descriptors ---------------------------------------------------------------------------------

_KINDS: dict[int, connect.Kind] = {
    FieldDescriptor.TYPE_INT32: "INT32",
    FieldDescriptor.TYPE_SINT32: "INT32",
    FieldDescriptor.TYPE_SFIXED32: "INT32",
    FieldDescriptor.TYPE_UINT32: "INT64",
    FieldDescriptor.TYPE_FIXED32: "INT64",
    FieldDescriptor.TYPE_INT64: "INT64",
    FieldDescriptor.TYPE_SINT64: "INT64",
    FieldDescriptor.TYPE_SFIXED64: "INT64",
    FieldDescriptor.TYPE_UINT64: "INT64",
    FieldDescriptor.TYPE_FIXED64: "INT64",
    FieldDescriptor.TYPE_FLOAT: "FLOAT32",
    FieldDescriptor.TYPE_DOUBLE: "FLOAT64",
    FieldDescriptor.TYPE_BOOL: "BOOLEAN",
    FieldDescriptor.TYPE_STRING: "STRING",
    FieldDescriptor.TYPE_BYTES: "BYTES",
    FieldDescriptor.TYPE_ENUM: "STRING",
}
_WRAPPER_KINDS: dict[str, connect.Kind] = {
    "google.protobuf.DoubleValue": "FLOAT64",
    "google.protobuf.FloatValue": "FLOAT32",
    "google.protobuf.Int64Value": "INT64",
    "google.protobuf.UInt64Value": "INT64",
    "google.protobuf.Int32Value": "INT32",
    "google.protobuf.UInt32Value": "INT64",
    "google.protobuf.BoolValue": "BOOLEAN",
    "google.protobuf.StringValue": "STRING",
    "google.protobuf.BytesValue": "BYTES",
}


def _is_map(one: FieldDescriptor) -> bool:
    message = one.message_type
    if message is None or not one.is_repeated:
        return False
    if message.GetOptions().map_entry:
        return True
    names = [inner.name for inner in message.fields]
    return message.name.endswith("Entry") and names == ["key", "value"]


def _real_oneofs(message: Descriptor) -> list[Any]:
    """`optional` makes a oneof of its own, which is none."""
    return [
        one for one in message.oneofs if not (len(one.fields) == 1 and one.name == f"_{one.fields[0].name}")
    ]


class ProtobufType:
    """A message type in Connect's model. `decode` gives what `translate` takes."""

    def __init__(self, descriptor: Descriptor, schema: ParsedSchema) -> None:
        assert isinstance(schema, ProtobufSchema)
        self._decimals = decimal_params(schema)
        self._open: list[str] = []
        self.type, self.decode = self._struct(descriptor)

    def _struct(self, message: Descriptor) -> tuple[ConnectType, Callable[[Any], Any]]:
        if message.full_name in self._open:
            raise SqlError("ksqlDB does not support recursive schemas")
        self._open.append(message.full_name)
        fields: list[ConnectField] = []
        readers: list[tuple[str, Callable[[Any], Any]]] = []
        members: set[str] = set()
        for index, oneof in enumerate(_real_oneofs(message)):
            name = f"{oneof.name}_{index}"
            members |= {one.name for one in oneof.fields}
            inner = [(one.name, *self._field(one)) for one in oneof.fields]
            kinds = tuple(ConnectField(own, type_) for own, type_, _ in inner)
            fields.append(ConnectField(name, connect.struct(kinds)))
            readers.append((name, _oneof_reader(oneof.name, {own: read for own, _, read in inner})))
        for one in message.fields:
            if one.name not in members:
                type_, read = self._field(one)
                fields.append(ConnectField(one.name, type_))
                readers.append((one.name, read))
        self._open.pop()

        def decode(found: Any) -> dict[str, Any]:
            return {name: read(found) for name, read in readers}

        return ConnectType("STRUCT", message.full_name, True, tuple(fields)), decode

    def _field(self, one: FieldDescriptor) -> tuple[ConnectType, Callable[[Any], Any]]:
        name, entry = one.name, one.message_type
        if entry is not None and _is_map(one):
            key_type, key = self._value(entry.fields_by_name["key"])
            value_field = entry.fields_by_name["value"]
            value_type, value = self._value(value_field)
            made = connect.mapping(key_type, value_type)
            if entry.GetOptions().map_entry:
                return made, lambda found: {
                    key(own): value(item) for own, item in getattr(found, name).items()
                }
            _, own_key = self._field(entry.fields_by_name["key"])
            _, own_value = self._field(value_field)
            return made, lambda found: {own_key(item): own_value(item) for item in getattr(found, name)}
        type_, convert = self._value(one)
        if one.is_repeated:
            return connect.array(type_), lambda found: [convert(item) for item in getattr(found, name)]
        if one.has_presence:
            return type_, lambda found: convert(getattr(found, name)) if found.HasField(name) else None
        return type_, lambda found: convert(getattr(found, name))

    def _value(self, one: FieldDescriptor) -> tuple[ConnectType, Callable[[Any], Any]]:
        message = one.message_type
        if message is None:
            kind = ConnectType(_KINDS[one.type])
            if one.enum_type is not None:
                names = one.enum_type.values_by_number
                return kind, lambda value: names[value].name if value in names else str(value)
            return kind, _same
        full_name = message.full_name
        if full_name == "google.protobuf.Timestamp":
            return connect.TIMESTAMP_TYPE, lambda value: value.seconds * 1000 + value.nanos // 1_000_000
        if full_name == "google.type.Date":
            return connect.DATE_TYPE, _days
        if full_name == "google.type.TimeOfDay":
            return connect.TIME_TYPE, _milliseconds
        if full_name == "confluent.type.Decimal":
            return connect.decimal(*self._decimals.get(one.full_name, (64, 0))), _decimal
        if full_name in _WRAPPER_KINDS:
            return ConnectType(_WRAPPER_KINDS[full_name]), lambda value: value.value
        return self._struct(message)


def _same(value: Any) -> Any:
    return value


def _oneof_reader(name: str, readers: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read(found: Any) -> Any:
        member = found.WhichOneof(name)
        return None if member is None else {member: readers[member](found)}

    return read


def _days(value: Any) -> int:
    return datetime.date(value.year, value.month, value.day).toordinal() - _EPOCH


def _milliseconds(value: Any) -> int:
    seconds: int = (value.hours * 60 + value.minutes) * 60 + value.seconds
    return seconds * 1000 + int(value.nanos) // 1_000_000


def _decimal(value: Any) -> Decimal:
    return Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale)


def decimal_params(schema: ProtobufSchema) -> dict[str, tuple[int, int]]:
    """Precision and scale of decimal fields by their full names, from `(confluent.field_meta)`."""
    found = {}
    for file in (schema.file, *schema.dependencies.values()):
        for name, declared in walk(file.types, file.package or ""):
            for one in declared.fields if isinstance(declared, Message) else ():
                if one.type.endswith("Decimal"):
                    params = _params(one.options)
                    found[f"{name}.{one.name}"] = (
                        int(params.get("precision", 64)),
                        int(params.get("scale", 0)),
                    )
    return found


def _params(options: list[Option]) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in options:
        if option.name != "confluent.field_meta":
            continue
        value = option.value
        if isinstance(value, Option):
            value = {value.name: value.value}
        params = value.get("params", []) if isinstance(value, dict) else []
        for one in params if isinstance(params, list) else [params]:
            found[str(one["key"])] = str(one["value"])
    return found


# Values to messages ---------------------------------------------------------------------------------------

Set = Callable[[Any, Any], None]


def message_writer(descriptor: Descriptor, type_: StructType) -> Set:
    """A function that puts a struct's values into a message of that type."""
    setters: list[tuple[str, Set]] = []
    for name, inner in type_.fields:
        one = descriptor.fields_by_name.get(name)
        if one is None:
            raise SqlError(f"Schema from Schema Registry misses field with name: {name}")
        setters.append((name, _setter(one, inner)))

    def write(message: Any, value: Any) -> None:
        for name, put in setters:
            item = value[name]
            if item is not None:
                put(message, item)

    return write


def _setter(one: FieldDescriptor, type_: SqlType) -> Set:
    name = one.name
    if isinstance(type_, MapType):
        return _map_setter(one, type_)
    if isinstance(type_, ArrayType):
        fill = _filler(one, type_.item)
        if fill is None:

            def extend(message: Any, values: Any) -> None:
                if None in values:
                    raise DoesNotFit("Protobuf has no null in arrays")
                getattr(message, name).extend(values)

            return extend

        put_item = fill

        def add(message: Any, values: Any) -> None:
            target = getattr(message, name)
            for value in values:
                if value is None:
                    raise DoesNotFit("Protobuf has no null in arrays")
                put_item(target.add(), value)

        return add
    put_value = _filler(one, type_)
    if put_value is None:
        if one.enum_type is not None:
            numbers = {value.name: value.number for value in one.enum_type.values}
            return lambda message, value: setattr(message, name, numbers[value])
        return lambda message, value: setattr(message, name, value)

    def put(message: Any, value: Any) -> None:
        target = getattr(message, name)
        target.SetInParent()
        put_value(target, value)

    return put


def _map_setter(one: FieldDescriptor, type_: MapType) -> Set:
    name, entry = one.name, one.message_type
    assert entry is not None
    value_field = entry.fields_by_name["value"]
    if entry.GetOptions().map_entry:
        fill = _filler(value_field, type_.value)

        def put(message: Any, values: Any) -> None:
            target = getattr(message, name)
            for key, value in values.items():
                if fill is not None:
                    fill(target[key], value)
                else:
                    target[key] = value

        return put
    set_key, set_value = _setter(entry.fields_by_name["key"], type_.key), _setter(value_field, type_.value)

    def add(message: Any, values: Any) -> None:
        target = getattr(message, name)
        for key, value in values.items():
            made = target.add()
            if key is not None:
                set_key(made, key)
            if value is not None:
                set_value(made, value)

    return add


def _filler(one: FieldDescriptor, type_: SqlType) -> Set | None:
    """How a message gets a value; None for what is no message."""
    message = one.message_type
    if message is None:
        return None
    if message.full_name in _WRAPPER_KINDS and not isinstance(type_, StructType):
        return lambda target, value: setattr(target, "value", value)
    if type_.base is Base.TIMESTAMP:
        return _put_timestamp
    if type_.base is Base.DATE:
        return _put_date
    if type_.base is Base.TIME:
        return _put_time
    if type_.base is Base.DECIMAL:
        return _put_decimal
    assert isinstance(type_, StructType)
    return message_writer(message, type_)


def _put_timestamp(target: Any, value: int) -> None:
    target.seconds, rest = divmod(value, 1000)
    target.nanos = rest * 1_000_000


def _put_date(target: Any, value: int) -> None:
    date = datetime.date.fromordinal(value + _EPOCH)
    target.year, target.month, target.day = date.year, date.month, date.day


def _put_time(target: Any, value: int) -> None:
    seconds, rest = divmod(value, 1000)
    target.hours, seconds = divmod(seconds, 3600)
    target.minutes, target.seconds = divmod(seconds, 60)
    target.nanos = rest * 1_000_000


def _put_decimal(target: Any, value: Decimal) -> None:
    scale = -int(value.as_tuple().exponent)
    number = int(value.scaleb(scale))
    target.value = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    target.precision, target.scale = len(value.as_tuple().digits), scale
