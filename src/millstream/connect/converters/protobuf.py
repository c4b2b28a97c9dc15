"""ProtobufConverter: Protobuf with a Schema Registry, as Confluent's converter has it.

protobuf's own library reads and writes the bytes; each message type is compiled once into a function over its
fields. A oneof is a struct in Connect, with one field per member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from millstream.connect.config.config_def import ConfigDef
from millstream.connect.converters.names import scrubbed
from millstream.connect.converters.protobuf_schemas import (
    LOGICAL_MESSAGES,
    WRAPPERS,
    WRAPPERS_FILE,
    FromProtobuf,
    ProtobufOptions,
    ToProtobuf,
    field_params,
    has_optional_keyword,
    in_real_oneof,
    is_map,
    is_union,
    real_oneofs,
    root_wrapper,
)
from millstream.connect.converters.registry import COMMON, RegistryConverter, ValueReader, flag
from millstream.connect.data import logical
from millstream.connect.data.java_names import class_name
from millstream.connect.data.numbers import narrow
from millstream.connect.data.schema import INTEGERS, Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.errors import DataError
from millstream.schemas.proto_known import load
from millstream.schemas.proto_model import Message as ProtoMessage
from millstream.schemas.proto_printer import canonical_text
from millstream.schemas.protobuf import ProtobufSchema
from millstream.serdes.bodies import ProtobufBody
from millstream.serdes.client import RegisteredSchema
from millstream.serdes.frame import path_bytes, split_path

Function = Callable[[Any], Any]


class ProtobufConverter(RegistryConverter):
    language = "PROTOBUF"
    write_error = "Failed to serialize Protobuf data from topic {}:"
    read_error = "Failed to deserialize data for topic {} to Protobuf:"
    config = COMMON + ConfigDef(
        [
            flag("enhanced.protobuf.schema.support", False, "Whether names keep their package."),
            flag("scrub.invalid.names", False, "Whether characters that names cannot have are replaced."),
            flag("int.for.enums", False, "Whether enums are numbers in Connect."),
            flag("optional.for.nullables", False, "Whether optional fields have the label `optional`."),
            flag("optional.for.proto2", True, "Whether `optional` in proto2 counts."),
            flag("wrapper.for.nullables", False, "Whether optional fields use Google's wrapper messages."),
            flag(
                "wrapper.for.raw.primitives", True, "Whether a wrapper message as a whole is a plain value."
            ),
            flag("generate.struct.for.nulls", False, "Whether a message that is not set is an empty struct."),
            flag(
                "generate.index.for.unions", True, "Whether a oneof's field has its number behind its name."
            ),
            flag("flatten.unions", False, "Whether the members of a oneof are fields of the struct itself."),
        ]
    )

    def __init__(self, settings: Any, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._options = ProtobufOptions(
            enhanced=self.settings["enhanced.protobuf.schema.support"],
            scrub=self.settings["scrub.invalid.names"],
            int_for_enums=self.settings["int.for.enums"],
            optional_for_nullables=self.settings["optional.for.nullables"],
            optional_for_proto2=self.settings["optional.for.proto2"],
            wrapper_for_nullables=self.settings["wrapper.for.nullables"],
            wrapper_for_raw_primitives=self.settings["wrapper.for.raw.primitives"],
            struct_for_nulls=self.settings["generate.struct.for.nulls"],
            index_for_unions=self.settings["generate.index.for.unions"],
            flatten_unions=self.settings["flatten.unions"],
        )

    def _schema_text(self, schema: Schema | None) -> tuple[str, str | None]:
        if schema is None:
            raise DataError("Protobuf needs a schema")
        wrapper = root_wrapper(schema)
        if wrapper is not None:
            file = load(
                LOGICAL_MESSAGES[schema.name][1] if schema.name in LOGICAL_MESSAGES else WRAPPERS_FILE
            )
            assert file is not None
            return canonical_text(file), wrapper
        proto, name = ToProtobuf(self._options).file(schema)
        return canonical_text(proto), name

    def _encoder(self, schema: Schema | None, target: RegisteredSchema) -> Callable[[Any], bytes]:
        assert schema is not None
        body = ProtobufBody(target)
        _, name = self._schema_text(schema)
        assert name is not None
        path = body.path_to(name)
        message_class = body.message_class(path)
        front = path_bytes(path)
        if root_wrapper(schema) is None:
            encode = self._struct_encoder(schema, message_class.DESCRIPTOR)
        elif schema.name in LOGICAL_MESSAGES:
            encode = _logical_encoder(schema)
        else:
            encode = _wrapped
        return lambda value: front + message_class(**encode(value)).SerializeToString()

    # --- from Connect: arguments of the message's constructor -----------------------------------------------

    def _value_encoder(self, schema: Schema, target: Any) -> Function:
        if schema.name in LOGICAL_MESSAGES:
            return _logical_encoder(schema)
        if schema.type is Type.STRUCT:
            return self._struct_encoder(schema, target.message_type)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            element = self._value_encoder(schema.value_schema, target)
            return lambda values: [_missing() if one is None else element(one) for one in values]
        if schema.type is Type.MAP:
            return self._map_encoder(schema, target)
        if target.message_type is not None and target.message_type.full_name in WRAPPERS:
            return _wrapped
        if schema.type is Type.INT64 and target.cpp_type in (target.CPPTYPE_UINT32, target.CPPTYPE_UINT64):
            mask = 0xFFFFFFFF if target.cpp_type == target.CPPTYPE_UINT32 else 0xFFFFFFFFFFFFFFFF
            return lambda value: value & mask
        return _same

    def _struct_encoder(self, schema: Schema, descriptor: Any) -> Function:
        steps: list[tuple[int, str | None, Any, Function]] = []
        for one in schema.fields:
            default = one.schema.default if self._with_default else None
            if is_union(one.schema):
                steps.append((one.index, None, default, self._union_encoder(one.schema, descriptor)))
                continue
            name = scrubbed(one.name) if self._options.scrub else one.name
            target = descriptor.fields_by_name.get(name)
            if target is None:
                raise DataError(f"Cannot find field with name {name}")
            steps.append((one.index, name, default, self._value_encoder(one.schema, target)))

        def encode(struct: Struct) -> dict[str, Any]:
            if struct.schema is not schema and struct.schema != schema:
                raise DataError("Mismatching struct schema")
            found: dict[str, Any] = {}
            values = struct.values
            for index, name, default, encode_one in steps:
                value = values[index]
                if value is None:
                    value = default
                if value is None:
                    continue
                if name is None:
                    found.update(encode_one(value))
                else:
                    found[name] = encode_one(value)
            return found

        return encode

    def _union_encoder(self, schema: Schema, descriptor: Any) -> Function:
        members = []
        for one in schema.fields:
            name = scrubbed(one.name) if self._options.scrub else one.name
            members.append(
                (one.index, name, self._value_encoder(one.schema, descriptor.fields_by_name[name]))
            )

        def encode(struct: Struct) -> dict[str, Any]:
            for index, name, encode_one in members:
                if struct.values[index] is not None:
                    return {name: encode_one(struct.values[index])}
            raise DataError("Cannot find non-null field")

        return encode

    def _map_encoder(self, schema: Schema, target: Any) -> Function:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        entry = target.message_type
        key = self._value_encoder(schema.key_schema, entry.fields_by_name["key"])
        value = self._value_encoder(schema.value_schema, entry.fields_by_name["value"])
        if entry.GetOptions().map_entry:
            return lambda entries: {key(one): value(other) for one, other in entries.items()}

        def encode(entries: Mapping[Any, Any]) -> list[dict[str, Any]]:
            return [
                {"key": key(one)} | ({} if other is None else {"value": value(other)})
                for one, other in entries.items()
            ]

        return encode

    # --- to Connect -----------------------------------------------------------------------------------------

    def _decoder(self, registered: RegisteredSchema, version: int | None) -> ValueReader:
        body = ProtobufBody(registered)
        parsed = registered.parsed
        assert isinstance(parsed, ProtobufSchema)
        known: dict[tuple[int, ...], tuple[Schema, Callable[[memoryview], Any]]] = {}

        def params(message: str, field: str) -> dict[str, str]:
            named = parsed.names.resolve(f".{message}", "")
            if named is None or not isinstance(named.type, ProtoMessage):
                return {}
            members = [*named.type.fields, *(one for oneof in named.type.oneofs for one in oneof.fields)]
            return next((field_params(one.options) for one in members if one.name == field), {})

        def select(data: memoryview) -> tuple[Schema, Callable[[memoryview], Any]]:
            path = tuple(split_path(data)[0])
            found = known.get(path)
            if found is None:
                message_class = body.message_class(path)
                schemas = FromProtobuf(self._options, params)
                schema = schemas.schema_of(message_class.DESCRIPTOR, version)
                decode = self._struct_decoder(schema, message_class.DESCRIPTOR, schemas)
                found = known[path] = (
                    schema,
                    lambda one: decode(message_class.FromString(bytes(split_path(one)[1]))),
                )
            return found

        return ValueReader(select)

    def _struct_decoder(self, schema: Schema, descriptor: Any, schemas: FromProtobuf) -> Function:
        if schema.type is not Type.STRUCT:
            return _unwrapping(schema)
        steps: list[tuple[int, str, bool, Function]] = []
        for one in descriptor.fields:
            if in_real_oneof(one) and not self._options.flatten_unions:
                continue
            field = schema.field(one.name)
            assert field is not None
            steps.append(
                (field.index, one.name, self._asks(one), self._value_decoder(field.schema, one, schemas))
            )
        unions = []
        if not self._options.flatten_unions:
            unions = [self._union_decoder(schema, oneof, schemas) for oneof in real_oneofs(descriptor)]
        count = len(schema.fields)

        def decode(message: Any) -> Struct:
            values: list[Any] = [None] * count
            for index, name, asks, decode_one in steps:
                if not asks or message.HasField(name):
                    values[index] = decode_one(getattr(message, name))
            for index, union in unions:
                values[index] = union(message)
            return Struct(schema, values)

        return decode

    def _asks(self, one: Any) -> bool:
        """Whether a field that is not set is null."""
        if one.is_repeated:
            return False
        if in_real_oneof(one):
            return True
        if one.message_type is not None:
            return not self._options.struct_for_nulls
        proto2 = one.containing_oneof is None
        return has_optional_keyword(one) and (not proto2 or self._options.optional_for_proto2)

    def _union_decoder(self, schema: Schema, oneof: Any, schemas: FromProtobuf) -> tuple[int, Function]:
        field = schema.field(schemas.union_field(oneof))
        assert field is not None
        union = field.schema
        members = {}
        for one in oneof.fields:
            member = union.field(one.name)
            assert member is not None
            members[one.name] = (member.index, self._value_decoder(member.schema, one, schemas))

        def decode(message: Any) -> Struct | None:
            name = message.WhichOneof(oneof.name)
            if name is None:
                return None
            index, decode_one = members[name]
            values: list[Any] = [None] * len(members)
            values[index] = decode_one(getattr(message, name))
            return Struct(union, values)

        return field.index, decode

    def _value_decoder(self, schema: Schema, one: Any, schemas: FromProtobuf) -> Function:
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            element = self._one_decoder(schema.value_schema, one, schemas)
            return lambda values: [element(value) for value in values]
        if schema.type is Type.MAP and is_map(one):
            return self._map_decoder(schema, one, schemas)
        return self._one_decoder(schema, one, schemas)

    def _one_decoder(self, schema: Schema, one: Any, schemas: FromProtobuf) -> Function:
        if one.enum_type is not None:
            if schema.type is Type.INT32:
                return _same
            numbers = {number: value.name for number, value in one.enum_type.values_by_number.items()}
            # As Java prints a constant that the schema does not know.
            unknown = f"UNKNOWN_ENUM_VALUE_{one.enum_type.name}_"
            return lambda number: numbers.get(number, f"{unknown}{number}")
        if schema.name in LOGICAL_MESSAGES:
            return _logical_decoder(schema)
        if one.message_type is not None:
            if schema.type is Type.STRUCT:
                return self._struct_decoder(schema, one.message_type, schemas)
            return _unwrapping(schema)
        return _plain(schema)

    def _map_decoder(self, schema: Schema, one: Any, schemas: FromProtobuf) -> Function:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        entry = one.message_type.fields_by_name
        key = self._value_decoder(schema.key_schema, entry["key"], schemas)
        value = self._value_decoder(schema.value_schema, entry["value"], schemas)
        if one.message_type.GetOptions().map_entry:
            return lambda entries: {key(name): value(entries[name]) for name in entries}
        return lambda entries: {key(pair.key): value(pair.value) for pair in entries}


def _same(value: Any) -> Any:
    return value


def _wrapped(value: Any) -> dict[str, Any]:
    return {"value": value}


def _missing() -> Any:
    raise DataError("a repeated field cannot have null in it")


def _plain(schema: Schema) -> Function:
    """Unsigned numbers become signed ones of the same bits, as in Java."""
    kind = schema.type
    return (lambda number: narrow(number, kind)) if kind in INTEGERS else _same


def _unwrapping(schema: Schema) -> Function:
    convert = _plain(schema)
    return lambda message: convert(message.value)


# --- logical types ------------------------------------------------------------------------------------------


def _logical_encoder(schema: Schema) -> Function:
    wanted: type = Decimal if schema.name == logical.DECIMAL else datetime
    short = (schema.name or "").rpartition(".")[2]
    convert = {
        logical.DECIMAL: lambda value: _decimal(schema, value),
        logical.DATE: _date,
        logical.TIME: _time,
        logical.TIMESTAMP: _timestamp,
    }[schema.name or ""]

    def encode(value: Any) -> dict[str, Any]:
        if not isinstance(value, wanted):
            expected = "BigDecimal" if wanted is Decimal else "Date"
            raise DataError(
                f"Invalid type for {short}, expected {expected} but was class {class_name(value)}"
            )
        return convert(value)

    return encode


def _decimal(schema: Schema, value: Decimal) -> dict[str, Any]:
    return {
        "value": logical.decimal_to_bytes(schema, value),
        "scale": logical.scale_of(schema),
        "precision": len(value.as_tuple().digits),
    }


def _date(value: datetime) -> dict[str, Any]:
    logical.date_to_days(value)
    return {"year": value.year, "month": value.month, "day": value.day}


def _time(value: datetime) -> dict[str, Any]:
    millis = logical.time_to_millis(value)
    seconds, rest = divmod(millis, 1000)
    minutes, seconds = divmod(seconds, 60)
    return {
        "hours": minutes // 60,
        "minutes": minutes % 60,
        "seconds": seconds,
        "nanos": rest * 1_000_000,
    }


def _timestamp(value: datetime) -> dict[str, Any]:
    seconds, rest = divmod(logical.to_millis(value), 1000)
    return {"seconds": seconds, "nanos": rest * 1_000_000}


def _logical_decoder(schema: Schema) -> Function:
    if schema.name == logical.DECIMAL:
        return lambda message: logical.decimal_from_unscaled(
            int.from_bytes(message.value, "big", signed=True), message.scale
        )
    if schema.name == logical.DATE:
        return lambda message: datetime(message.year, message.month, message.day, tzinfo=UTC)
    if schema.name == logical.TIME:
        return lambda message: (
            logical.EPOCH
            + timedelta(
                hours=message.hours,
                minutes=message.minutes,
                seconds=message.seconds,
                milliseconds=message.nanos // 1_000_000,
            )
        )
    return lambda message: logical.from_millis(message.seconds * 1000 + message.nanos // 1_000_000)
