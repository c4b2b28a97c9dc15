"""Between Connect's schemas and .proto files, by the rules of Confluent's ProtobufData.

A struct is a message with the messages of its fields inside; a map is `repeated` of an entry message; a oneof
is a struct with one field per member. Numbers of fields are parameters, so they survive a round trip. What
only Connect knows (int8, int16, the scale of a decimal) is in `confluent.field_meta`. A message that contains
itself is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.connect.converters.names import scrubbed, split_name
from millstream.connect.data import logical
from millstream.connect.data.schema import Schema, Type
from millstream.connect.errors import DataError
from millstream.schemas.proto_descriptor import TYPE_NAMES
from millstream.schemas.proto_model import Constant, Enum, Field, Message, OneOf, Option, ProtoFile

NAMESPACE = "io.confluent.connect.protobuf"
ENUM, UNION = f"{NAMESPACE}.Enum", f"{NAMESPACE}.Union."
TAG, TYPE, WRAPPER = f"{NAMESPACE}.Tag", f"{NAMESPACE}.Type", f"{NAMESPACE}.Wrapper"
_PRECISION = "connect.decimal.precision"
META = "confluent.field_meta"
LOGICAL_MESSAGES = {
    logical.DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    logical.DATE: ("google.type.Date", "google/type/date.proto"),
    logical.TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    logical.TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
WRAPPERS_FILE = "google/protobuf/wrappers.proto"
WRAPPERS = {
    "google.protobuf.DoubleValue": Type.FLOAT64,
    "google.protobuf.FloatValue": Type.FLOAT32,
    "google.protobuf.Int64Value": Type.INT64,
    "google.protobuf.UInt64Value": Type.INT64,
    "google.protobuf.Int32Value": Type.INT32,
    "google.protobuf.UInt32Value": Type.INT64,
    "google.protobuf.BoolValue": Type.BOOLEAN,
    "google.protobuf.StringValue": Type.STRING,
    "google.protobuf.BytesValue": Type.BYTES,
}
_SCALARS = {
    Type.INT8: ("int32", "Int32"),
    Type.INT16: ("int32", "Int32"),
    Type.INT32: ("int32", "Int32"),
    Type.INT64: ("int64", "Int64"),
    Type.FLOAT32: ("float", "Float"),
    Type.FLOAT64: ("double", "Double"),
    Type.BOOLEAN: ("bool", "Bool"),
    Type.STRING: ("string", "String"),
    Type.BYTES: ("bytes", "Bytes"),
}
_WIDE = {"uint32": "UInt32", "fixed32": "UInt32", "uint64": "UInt64", "fixed64": "UInt64"}


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    enhanced: bool = False
    scrub: bool = False
    int_for_enums: bool = False
    optional_for_nullables: bool = False
    optional_for_proto2: bool = True
    wrapper_for_nullables: bool = False
    wrapper_for_raw_primitives: bool = True
    struct_for_nulls: bool = False
    index_for_unions: bool = True
    flatten_unions: bool = False


def is_union(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and (schema.name or "").startswith(f"{NAMESPACE}.Union")


def root_wrapper(schema: Schema) -> str | None:
    """The message that a plain value is wrapped in; None for structs."""
    if schema.name in LOGICAL_MESSAGES:
        return LOGICAL_MESSAGES[schema.name][0]
    if schema.type in _SCALARS:
        return f"google.protobuf.{_SCALARS[schema.type][1]}Value"
    return None


# --- to .proto ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ToProtobuf:
    options: ProtobufOptions
    _unnamed: int = 0
    _imports: dict[str, None] = field(default_factory=dict)

    def file(self, schema: Schema) -> tuple[ProtoFile, str]:
        """The file, and the full name of the message that the schema is."""
        if schema.type is not Type.STRUCT:
            raise DataError(f"Unsupported root schema of type {schema.type}")
        package, name = split_name(self._named(schema.name), scrub=self.options.scrub)
        message = self._message(name, schema)
        proto = ProtoFile(
            syntax="proto3", package=package or None, imports=list(self._imports), types=[message]
        )
        return proto, f"{package}.{name}" if package else name

    def _named(self, name: str | None) -> str:
        if name is not None:
            return name
        self._unnamed += 1
        return f"ConnectDefault{self._unnamed}"

    def _short(self, name: str | None) -> str:
        return self._legal(self._named(name).rpartition(".")[2])

    def _legal(self, name: str) -> str:
        return scrubbed(name) if self.options.scrub else name

    def _message(self, name: str, schema: Schema) -> Message:
        message = Message(name)
        index = 1
        for one in schema.fields:
            tag = (one.schema.parameters or {}).get(TAG)
            if tag is None and not is_union(one.schema):
                tag, index = str(index), index + 1
            made = self._field(message, one.schema, self._legal(one.name), int(tag or 0), in_oneof=False)
            if made is not None:
                message.fields.append(made)
        return message

    def _field(
        self, message: Message, schema: Schema, name: str, tag: int, *, in_oneof: bool
    ) -> Field | None:
        if is_union(schema):
            oneof = OneOf(self._short((schema.name or "").removeprefix(UNION)))
            for one in schema.fields:
                number = int((one.schema.parameters or {}).get(TAG, 0))
                made = self._field(message, one.schema, self._legal(one.name), number, in_oneof=True)
                assert made is not None
                oneof.fields.append(made)
            message.oneofs.append(oneof)
            return None
        label = "repeated" if schema.type in (Type.ARRAY, Type.MAP) else None
        if label is None and self.options.optional_for_nullables and schema.optional and not in_oneof:
            label = "optional"
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            schema = schema.value_schema
        parameters: dict[str, str] = {}
        type_name = self._type(message, schema, name, parameters, in_oneof)
        made = Field(name, type_name, tag, label)
        if parameters:
            entries = [{"key": key, "value": value} for key, value in parameters.items()]
            made.options.append(Option(META, {"params": entries}, parenthesized=True))
            self._imports["confluent/meta.proto"] = None
        return made

    def _type(
        self, message: Message, schema: Schema, name: str, parameters: dict[str, str], in_oneof: bool
    ) -> str:
        own = schema.parameters or {}
        if schema.name in LOGICAL_MESSAGES:
            if schema.name == logical.DECIMAL:
                if _PRECISION in own:
                    parameters["precision"] = own[_PRECISION]
                parameters["scale"] = own.get("scale", "0")
            type_name, imported = LOGICAL_MESSAGES[schema.name]
            self._imports[imported] = None
            return f".{type_name}" if type_name.startswith("google.type") else type_name
        if ENUM in own and schema.type in (Type.STRING, Type.INT32):
            return self._enum(message, schema, own)
        if schema.type is Type.STRUCT:
            return self._nested(message, schema, name)
        if schema.type is Type.MAP:
            return self._map_entry(message, schema)
        if schema.type is Type.ARRAY:
            raise DataError("Array cannot be nested")
        if schema.type in (Type.INT8, Type.INT16):
            parameters["connect.type"] = schema.type.value
        scalar, wrapper = _SCALARS[schema.type]
        if schema.type in (Type.INT32, Type.INT64):
            scalar = own.get(TYPE, scalar)
            wrapper = _WIDE.get(scalar, wrapper)
        wrapped = schema.optional and (not in_oneof or own.get(WRAPPER) == "true")
        if self.options.wrapper_for_nullables and wrapped:
            self._imports[WRAPPERS_FILE] = None
            return f"google.protobuf.{wrapper}Value"
        return scalar

    def _nested(self, message: Message, schema: Schema, name: str) -> str:
        type_name = self._short(schema.name)
        if type_name == name:
            # A message and a field of one scope cannot have the same name.
            type_name += "Message"
        if all(declared.name != type_name for declared in message.types):
            placeholder = Message(type_name)
            message.types.append(placeholder)
            made = self._message(type_name, schema)
            placeholder.fields, placeholder.oneofs, placeholder.types = made.fields, made.oneofs, made.types
        return type_name

    def _map_entry(self, message: Message, schema: Schema) -> str:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        name = self._short(schema.name)
        name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
        entry = Message(name)
        for tag, (part, inner) in enumerate((("key", schema.key_schema), ("value", schema.value_schema)), 1):
            made = self._field(entry, inner, part, tag, in_oneof=False)
            assert made is not None
            entry.fields.append(made)
        message.types.append(entry)
        return name

    def _enum(self, message: Message, schema: Schema, parameters: dict[str, str]) -> str:
        name = self._short(schema.name or parameters[ENUM])
        prefix = f"{ENUM}."
        if all(declared.name != name for declared in message.types):
            constants = [
                Constant(key.removeprefix(prefix), int(tag))
                for key, tag in parameters.items()
                if key.startswith(prefix)
            ]
            # The first constant of an enum in proto3 is its zero.
            constants.sort(key=lambda constant: constant.tag != 0)
            message.types.append(Enum(name, constants))
        return name


# --- from .proto --------------------------------------------------------------------------------------------


def field_params(options: list[Option]) -> dict[str, str]:
    """The parameters in `confluent.field_meta`."""
    found: dict[str, str] = {}
    for option in options:
        if option.name.lstrip(".") != META:
            continue
        value = option.value
        if isinstance(value, Option):
            value = {value.name: value.value}
        params = value.get("params", []) if isinstance(value, dict) else []
        for entry in params if isinstance(params, list) else [params]:
            if isinstance(entry, dict) and "key" in entry:
                found[str(entry["key"])] = str(entry.get("value", ""))
    return found


@dataclass(slots=True)
class FromProtobuf:
    """`params` gives the parameters of a field, by the names of its message and of itself."""

    options: ProtobufOptions
    params: Any
    _open: list[str] = field(default_factory=list)

    def schema_of(self, descriptor: Any, version: int | None = None) -> Schema:
        if self.options.wrapper_for_raw_primitives and descriptor.full_name in WRAPPERS:
            return Schema(WRAPPERS[descriptor.full_name], version=version)
        return Schema(Type.STRUCT, version=version, **self._struct(descriptor))

    def _struct(self, descriptor: Any) -> dict[str, Any]:
        if descriptor.full_name in self._open:
            raise DataError(
                f"the message {descriptor.full_name} contains itself; such schemas are not supported"
            )
        self._open.append(descriptor.full_name)
        fields: list[tuple[str, Schema]] = []
        for oneof in real_oneofs(descriptor):
            members = [(one.name, self._field(one, in_oneof=True)) for one in oneof.fields]
            if self.options.flatten_unions:
                fields += members
            else:
                name = oneof.full_name if self.options.enhanced else oneof.name
                union = Schema(Type.STRUCT, name=UNION + name, optional=True, fields=members)
                fields.append((self.union_field(oneof), union))
        fields += [
            (one.name, self._field(one, in_oneof=False))
            for one in descriptor.fields
            if not in_real_oneof(one)
        ]
        self._open.pop()
        return {"fields": fields, "name": self._name(descriptor)}

    def union_field(self, oneof: Any) -> str:
        return f"{oneof.name}_{oneof.index}" if self.options.index_for_unions else str(oneof.name)

    def _name(self, descriptor: Any) -> str:
        return str(descriptor.full_name if self.options.enhanced else descriptor.name)

    def _field(self, one: Any, *, in_oneof: bool) -> Schema:
        kind, attributes = self._attributes(one)
        parameters = attributes.setdefault("parameters", {})
        nullable = one.message_type is not None or one.enum_type is not None
        if one.is_repeated and kind is not Type.MAP:
            element = Schema(kind, **(attributes | {"optional": True}))
            kind, attributes, nullable = Type.ARRAY, {"value": element}, True
            parameters = attributes.setdefault("parameters", {})
        if in_oneof:
            nullable = True
            wrapper = one.message_type is not None and one.message_type.full_name in WRAPPERS
            if self.options.wrapper_for_nullables and wrapper:
                parameters[WRAPPER] = "true"
        elif self.options.optional_for_nullables:
            nullable = nullable or has_optional_keyword(one)
        elif not self.options.wrapper_for_nullables:
            nullable = True
        parameters[TAG] = str(one.number)
        return Schema(kind, **(attributes | {"optional": nullable}))

    def _attributes(self, one: Any) -> tuple[Type, dict[str, Any]]:
        if one.enum_type is not None:
            names = {f"{ENUM}.{value.name}": str(value.number) for value in one.enum_type.values}
            kind = Type.INT32 if self.options.int_for_enums else Type.STRING
            return kind, {
                "name": self._name(one.enum_type),
                "parameters": {ENUM: one.enum_type.name} | names,
            }
        if one.message_type is not None:
            return self._message(one)
        scalar = scalar_name(one)
        if scalar in ("int32", "sint32", "sfixed32"):
            narrow = self.params(one.containing_type.full_name, one.name).get("connect.type")
            if narrow in ("int8", "int16"):
                return Type(narrow), {}
            return Type.INT32, {} if scalar == "int32" else {"parameters": {TYPE: scalar}}
        plain = {
            "float": Type.FLOAT32,
            "double": Type.FLOAT64,
            "bool": Type.BOOLEAN,
            "string": Type.STRING,
            "bytes": Type.BYTES,
            "int64": Type.INT64,
        }.get(scalar)
        return (Type.INT64, {"parameters": {TYPE: scalar}}) if plain is None else (plain, {})

    def _message(self, one: Any) -> tuple[Type, dict[str, Any]]:
        full_name = one.message_type.full_name
        if full_name == "confluent.type.Decimal":
            params = self.params(one.containing_type.full_name, one.name)
            parameters = {"scale": params.get("scale", "0")}
            if "precision" in params:
                parameters[_PRECISION] = params["precision"]
            return Type.BYTES, {"name": logical.DECIMAL, "version": 1, "parameters": parameters}
        for name, known in (
            (logical.DATE, logical.DATE_SCHEMA),
            (logical.TIME, logical.TIME_SCHEMA),
            (logical.TIMESTAMP, logical.TIMESTAMP_SCHEMA),
        ):
            if full_name == LOGICAL_MESSAGES[name][0]:
                return known.type, {"name": name, "version": 1}
        if self.options.wrapper_for_nullables and full_name in WRAPPERS:
            return WRAPPERS[full_name], {}
        if is_map(one):
            key, value = (one.message_type.fields_by_name[part] for part in ("key", "value"))
            return Type.MAP, {
                "key": self._field(key, in_oneof=False),
                "value": self._field(value, in_oneof=False),
                "name": _map_field(self._name(one.message_type)),
            }
        return Type.STRUCT, self._struct(one.message_type)


def _map_field(name: str) -> str:
    """`LineItemsEntry` is the entry of `line_items`."""
    space, dot, short = name.removesuffix("Entry").rpartition(".")
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in short)
    return f"{space}{dot}{words.removeprefix('_')}"


def scalar_name(one: Any) -> str:
    return TYPE_NAMES.get(one.type, "")


def is_map(one: Any) -> bool:
    """Also a message that looks like an entry: what Confluent's converter makes of a map."""
    if not one.is_repeated or one.message_type is None:
        return False
    names = [inner.name for inner in one.message_type.fields]
    return one.message_type.name.endswith("Entry") and names == ["key", "value"]


def real_oneofs(descriptor: Any) -> list[Any]:
    return [oneof for oneof in descriptor.oneofs if not _is_synthetic(oneof)]


def in_real_oneof(one: Any) -> bool:
    return one.containing_oneof is not None and not _is_synthetic(one.containing_oneof)


def _is_synthetic(oneof: Any) -> bool:
    """`optional` in proto3 is a oneof of its own."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def has_optional_keyword(one: Any) -> bool:
    return bool(
        not one.is_repeated and one.has_presence and not one.is_required and not in_real_oneof(one)
    ) and (one.message_type is None or one.containing_oneof is not None)
