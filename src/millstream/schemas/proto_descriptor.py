"""Between .proto files as objects and protobuf's own descriptors (FileDescriptorProto).

Clients of some languages register and ask for schemas as descriptors in base64. Options that protobuf itself
defines are carried over in both directions; proto_options adds custom ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as PbMessage

from millstream.schemas.proto_model import (
    MAX_TAG,
    SCALARS,
    Constant,
    Enum,
    Extend,
    Field,
    Group,
    Message,
    Names,
    OneOf,
    Option,
    ProtoFile,
    Ranges,
    Rpc,
    Service,
    Word,
    map_types,
)
from millstream.schemas.schema import InvalidSchema

Pb = descriptor_pb2.FieldDescriptorProto
TYPE_NUMBERS = {name: Pb.Type.Value(f"TYPE_{name.upper()}") for name in SCALARS}
TYPE_NAMES = {number: name for name, number in TYPE_NUMBERS.items()}
LABEL_NUMBERS = {
    "optional": Pb.LABEL_OPTIONAL,
    "required": Pb.LABEL_REQUIRED,
    "repeated": Pb.LABEL_REPEATED,
}
# These first, the others by number.
FILE_OPTIONS_ORDER = [
    "java_package",
    "java_outer_classname",
    "java_multiple_files",
    "java_generate_equals_and_hash",
    "java_string_check_utf8",
    "optimize_for",
    "go_package",
]


def default_json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


# Descriptor to file


def from_descriptor(file: Any) -> ProtoFile:
    proto = ProtoFile(package=file.package or None)
    if file.syntax in ("proto2", "proto3"):
        proto.syntax = file.syntax
    elif file.syntax == "editions":
        proto.edition = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    for index, name in enumerate(file.dependency):
        imports = (
            proto.public_imports
            if index in public
            else proto.weak_imports
            if index in weak
            else proto.imports
        )
        imports.append(name)
    proto.options = _read_options(file.options)
    proto3 = file.syntax == "proto3"
    proto.types += [_read_message(message, proto3) for message in file.message_type]
    proto.types += [_read_enum(enum) for enum in file.enum_type]
    proto.extends = _read_extends(file.extension, proto3)
    for service in file.service:
        made = Service(service.name, options=_read_options(service.options))
        for rpc in service.method:
            made.rpcs.append(
                Rpc(
                    rpc.name,
                    rpc.input_type,
                    rpc.output_type,
                    rpc.client_streaming,
                    rpc.server_streaming,
                    _read_options(rpc.options),
                )
            )
        proto.services.append(made)
    return proto


def _read_message(descriptor: Any, proto3: bool) -> Message:
    message = Message(descriptor.name, options=_read_options(descriptor.options))
    oneofs = [OneOf(oneof.name, options=_read_options(oneof.options)) for oneof in descriptor.oneof_decl]
    for one in descriptor.field:
        if one.HasField("oneof_index") and not one.proto3_optional:
            oneofs[one.oneof_index].fields.append(_read_field(one, proto3, in_oneof=True))
        else:
            message.fields.append(_read_field(one, proto3))
    message.oneofs = [oneof for oneof in oneofs if oneof.fields]
    message.types += [_read_message(nested, proto3) for nested in descriptor.nested_type]
    message.types += [_read_enum(nested) for nested in descriptor.enum_type]
    message.reserved += [Ranges([_range(one.start, one.end - 1)]) for one in descriptor.reserved_range]
    message.reserved += [Ranges([name]) for name in descriptor.reserved_name]
    message.extensions += [Ranges([_range(one.start, one.end - 1)]) for one in descriptor.extension_range]
    message.extends = _read_extends(descriptor.extension, proto3)
    return message


def _range(first: int, last: int) -> int | tuple[int, int]:
    return first if first == last else (first, last)


def _read_field(one: Any, proto3: bool, *, in_oneof: bool = False) -> Field:
    type_name = TYPE_NAMES.get(one.type) or one.type_name
    label: str | None = {1: "optional", 2: "required", 3: "repeated"}[one.label]
    if label == "optional" and (in_oneof or (proto3 and not one.proto3_optional)):
        label = None
    made = Field(one.name, type_name, one.number, label, _read_options(one.options))
    if one.HasField("default_value"):
        made.default = one.default_value
    if one.HasField("json_name") and one.json_name != default_json_name(one.name):
        made.json_name = one.json_name
    return made


def _read_enum(descriptor: Any) -> Enum:
    enum = Enum(descriptor.name, options=_read_options(descriptor.options))
    enum.constants = [
        Constant(value.name, value.number, _read_options(value.options)) for value in descriptor.value
    ]
    enum.reserved += [Ranges([_range(one.start, one.end)]) for one in descriptor.reserved_range]
    enum.reserved += [Ranges([name]) for name in descriptor.reserved_name]
    return enum


def _read_extends(fields: Sequence[Any], proto3: bool) -> list[Extend]:
    extends: dict[str, Extend] = {}
    for one in fields:
        extends.setdefault(one.extendee, Extend(one.extendee)).fields.append(_read_field(one, proto3))
    return list(extends.values())


def _read_options(options: PbMessage) -> list[Option]:
    read = []
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            continue
        parenthesized = field.is_extension
        name = field.full_name if parenthesized else field.name
        for single in value if field.is_repeated else [value]:
            read.append(Option(name, _read_value(field, single), parenthesized))
    order = {name: index for index, name in enumerate(FILE_OPTIONS_ORDER)}
    return sorted(read, key=lambda option: order.get(option.name, len(order)))


def _read_value(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return Word(known.name if known else str(value))
    if field.message_type is not None:
        return {one.name: _read_member(one, inner) for one, inner in value.ListFields()}
    if isinstance(value, bool):
        return Word("true" if value else "false")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else Word(str(value))


def _read_member(field: FieldDescriptor, value: Any) -> Any:
    if not field.is_repeated:
        return _read_value(field, value)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, item = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return [
            {"key": _read_value(key, name), "value": _read_value(item, value[name])} for name in sorted(value)
        ]
    return [_read_value(field, item) for item in value]


# File to descriptor


def to_descriptor(proto: ProtoFile, names: Names, name: str) -> Any:
    """A FileDescriptorProto with all names in full. InvalidSchema where a type is not known."""
    file = descriptor_pb2.FileDescriptorProto(name=name)
    if proto.package:
        file.package = proto.package
    if proto.edition:
        file.syntax = "editions"
        try:
            file.edition = descriptor_pb2.Edition.Value(f"EDITION_{proto.edition}")
        except ValueError:
            raise InvalidSchema(f"unknown edition: {proto.edition}") from None
    elif proto.syntax == "proto3":
        file.syntax = "proto3"
    for index, imported in enumerate(proto.all_imports()):
        file.dependency.append(imported)
        if imported in proto.public_imports:
            file.public_dependency.append(index)
        elif imported in proto.weak_imports:
            file.weak_dependency.append(index)
    builder = _Builder(names, proto3=proto.syntax == "proto3")
    package = proto.package or ""
    for declared in proto.types:
        if isinstance(declared, Message):
            builder.message(file.message_type.add(), declared, package)
        else:
            builder.enum(file.enum_type.add(), declared)
    builder.extends(file.extension, proto.extends, package)
    for service in proto.services:
        made = file.service.add(name=service.name)
        for rpc in service.rpcs:
            made.method.add(
                name=rpc.name,
                input_type=builder.type_name(rpc.request, package),
                output_type=builder.type_name(rpc.response, package),
                client_streaming=rpc.request_streams or None,
                server_streaming=rpc.response_streams or None,
            )
    _write_options(file, proto.options)
    return file


class _Builder:
    def __init__(self, names: Names, *, proto3: bool) -> None:
        self._names = names
        self._proto3 = proto3

    def type_name(self, name: str, scope: str) -> str:
        found = self._names.resolve(name, scope)
        if found is None:
            raise InvalidSchema(f'"{name}" is not defined.')
        return f".{found.full_name}"

    def message(self, target: Any, message: Message, scope: str) -> None:
        scope = f"{scope}.{message.name}" if scope else message.name
        target.name = message.name
        for one in message.fields:
            self._field(target, one, scope)
        for index, oneof in enumerate(message.oneofs):
            target.oneof_decl.add(name=oneof.name)
            for one in oneof.fields:
                self._field(target, one, scope).oneof_index = index
            for group in oneof.groups:
                self._group(target, group, scope).oneof_index = index
        for group in message.groups:
            self._group(target, group, scope)
        for declared in message.types:
            if isinstance(declared, Message):
                self.message(target.nested_type.add(), declared, scope)
            else:
                self.enum(target.enum_type.add(), declared)
        for one in target.field:
            if one.proto3_optional:  # a oneof of its own, after all others
                one.oneof_index = len(target.oneof_decl)
                target.oneof_decl.add(name=f"_{one.name}")
        for ranges in message.reserved:
            for value in ranges.values:
                if isinstance(value, str):
                    target.reserved_name.append(value)
                else:
                    first, last = (value, value) if isinstance(value, int) else value
                    target.reserved_range.add(start=first, end=last + 1)
        for ranges in message.extensions:
            for value in ranges.values:
                if not isinstance(value, str):
                    first, last = (value, value) if isinstance(value, int) else value
                    target.extension_range.add(start=first, end=min(last, MAX_TAG) + 1)
        self.extends(target.extension, message.extends, scope)
        _write_options(target, message.options)

    def _field(self, message: Any, one: Field, scope: str) -> Any:
        pair = map_types(one.type)
        if pair is None:
            return self._set(message.field.add(), one, scope)
        # A map is a repeated message of two fields, named after the map's field.
        entry = message.nested_type.add(
            name="".join(part[:1].upper() + part[1:] for part in one.name.split("_")) + "Entry"
        )
        entry.options.map_entry = True
        for tag, (name, type_name) in enumerate(zip(("key", "value"), pair, strict=True), start=1):
            self._set(entry.field.add(), Field(name, type_name, tag), scope).label = Pb.LABEL_OPTIONAL
        target = message.field.add(
            name=one.name,
            number=one.tag,
            label=Pb.LABEL_REPEATED,
            type=Pb.TYPE_MESSAGE,
            type_name=f".{scope}.{entry.name}",
        )
        if one.json_name is not None:
            target.json_name = one.json_name
        _write_options(target, one.options)
        return target

    def _set(self, target: Any, one: Field, scope: str) -> Any:
        target.name = one.name
        target.number = one.tag
        target.label = LABEL_NUMBERS[one.label or "optional"]
        if one.type in SCALARS:
            target.type = TYPE_NUMBERS[one.type]
        else:
            found = self._names.resolve(one.type, scope)
            if found is None:
                raise InvalidSchema(f'"{one.type}" is not defined.')
            target.type = Pb.TYPE_ENUM if isinstance(found.type, Enum) else Pb.TYPE_MESSAGE
            target.type_name = f".{found.full_name}"
        if self._proto3 and one.label == "optional":
            target.proto3_optional = True
        if one.default is not None:
            target.default_value = one.default
        if one.json_name is not None:
            target.json_name = one.json_name
        _write_options(target, one.options)
        return target

    def _group(self, message: Any, group: Group, scope: str) -> Any:
        self.message(message.nested_type.add(), group.body, scope)
        return message.field.add(
            name=group.name.lower(),
            number=group.tag,
            label=LABEL_NUMBERS[group.label or "optional"],
            type=Pb.TYPE_GROUP,
            type_name=f".{scope}.{group.name}",
        )

    def enum(self, target: Any, enum: Enum) -> None:
        target.name = enum.name
        for constant in enum.constants:
            _write_options(target.value.add(name=constant.name, number=constant.tag), constant.options)
        for ranges in enum.reserved:
            for value in ranges.values:
                if isinstance(value, str):
                    target.reserved_name.append(value)
                else:
                    first, last = (value, value) if isinstance(value, int) else value
                    target.reserved_range.add(start=first, end=min(last, 2**31 - 1))
        _write_options(target, enum.options)

    def extends(self, target: Any, extends: list[Extend], scope: str) -> None:
        for extend in extends:
            for one in extend.fields:
                self._set(target.add(), one, scope).extendee = self.type_name(extend.name, scope)


def _write_options(target: Any, options: list[Option]) -> None:
    for option in options:
        field = target.options.DESCRIPTOR.fields_by_name.get(option.name)
        if option.parenthesized or field is None or field.message_type is not None:
            continue
        value = option.value.text if isinstance(option.value, Word) else option.value
        if not isinstance(value, str):
            continue
        try:
            if field.enum_type is not None:
                parsed: Any = field.enum_type.values_by_name[value].number
            elif field.cpp_type == field.CPPTYPE_BOOL:
                parsed = {"true": True, "false": False}[value]
            elif field.cpp_type == field.CPPTYPE_STRING:
                parsed = value
            else:
                parsed = int(value, 0)
        except (KeyError, ValueError):
            raise InvalidSchema(f"Value {value} does not fit option {option.name}") from None
        if field.is_repeated:
            getattr(target.options, option.name).append(parsed)
        else:
            setattr(target.options, option.name, parsed)


def known_files() -> Mapping[str, ProtoFile]:
    """Files that a schema may import without a reference: protobuf's own, Google's common types,
    Confluent's."""
    return _KNOWN


class _Known(dict[str, ProtoFile]):
    """Filled file by file, when a schema imports it."""

    def __missing__(self, name: str) -> ProtoFile:
        from millstream.schemas import proto_known

        made = proto_known.load(name)
        if made is None:
            raise KeyError(name)
        self[name] = made
        return made

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


_KNOWN = _Known()
