"""Custom options of .proto files, `(confluent.field_meta).tags = "PII"` for example, in descriptors.

A custom option is stored as a field of the options message, under the number that its `extend` gives it. So
the file that declares it must be at hand. For writing, the schema's imports are. For reading, there is only
the descriptor, and Confluent's options are known: they carry documentation and the tags of data contracts.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_encoding, text_format

from millstream.schemas.proto_descriptor import known_files, to_descriptor
from millstream.schemas.proto_model import Enum, Message, Names, Option, ProtoFile, Word

DESCRIPTOR_FILE = "google/protobuf/descriptor.proto"
META_FILE = "confluent/meta.proto"


def write_custom_options(file: Any, proto: ProtoFile, dependencies: Iterable[Any]) -> None:
    """Add a schema's custom options to its descriptor. One that no import declares is only in the text."""
    custom = [
        (target, option, scope)
        for target, options, scope in _with_options(file, proto)
        for option in options
        if option.parenthesized
    ]
    if not custom:
        return
    pool = descriptor_pool.DescriptorPool()
    for descriptor in dependencies:
        pool.Add(descriptor)
    pool.Add(file)
    for target, option, scope in custom:
        written = _encoded(pool, target.options.DESCRIPTOR.full_name, option, scope)
        if written is not None:
            target.options.MergeFromString(written)


def _encoded(pool: Any, options_type: str, option: Option, scope: str) -> bytes | None:
    name = _extension(pool, option.name, scope)
    if name is None:
        return None
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(options_type))()
    try:
        text_format.Parse(f"[{name}]: {_text(option.value)}", made, descriptor_pool=pool)
    except text_format.ParseError:
        return None
    encoded: bytes = made.SerializeToString()
    return encoded


def _extension(pool: Any, name: str, scope: str) -> str | None:
    """The full name of an option that is written as `name` inside of `scope`, innermost first."""
    if name.startswith("."):
        return name[1:]
    while True:
        candidate = f"{scope}.{name}" if scope else name
        try:
            pool.FindExtensionByName(candidate)
        except KeyError:
            if not scope:
                return None
            scope = scope.rpartition(".")[0]
        else:
            return candidate


def _text(value: Any) -> str:
    """A value in protobuf's text format."""
    if isinstance(value, Word):
        return value.text
    if isinstance(value, Option):
        key = f"[{value.name[1:-1]}]" if value.name.startswith("(") else value.name
        return _text({key: value.value})
    if isinstance(value, dict):
        return "{" + " ".join(f"{key}: {_text(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return f'"{text_encoding.CEscape(str(value).encode(), False)}"'


def _with_options(file: Any, proto: ProtoFile) -> Iterator[tuple[Any, list[Option], str]]:
    """Every element of a descriptor that can have options, with those of the text and its scope."""
    package = proto.package or ""
    yield file, proto.options, package
    yield from _types(file.message_type, file.enum_type, proto.types, package)
    for service, target in zip(proto.services, file.service, strict=True):
        yield target, service.options, package
        for rpc, method in zip(service.rpcs, target.method, strict=True):
            yield method, rpc.options, package


def _types(
    messages: Any, enums: Any, types: Iterable[Message | Enum], scope: str
) -> Iterator[tuple[Any, list[Option], str]]:
    by_name = {target.name: target for target in (*messages, *enums)}
    for one in types:
        target = by_name[one.name]
        inner = f"{scope}.{one.name}" if scope else one.name
        yield target, one.options, scope
        if isinstance(one, Enum):
            for constant, value in zip(one.constants, target.value, strict=True):
                yield value, constant.options, inner
            continue
        fields = {field.name: field for field in target.field}
        oneofs = {oneof.name: oneof for oneof in target.oneof_decl}
        for field in (*one.fields, *(field for oneof in one.oneofs for field in oneof.fields)):
            yield fields[field.name], field.options, inner
        for oneof in one.oneofs:
            yield oneofs[oneof.name], oneof.options, inner
        yield from _types(target.nested_type, target.enum_type, one.types, inner)


def read_file(data: bytes) -> Any:
    """A FileDescriptorProto whose options are read with those of Confluent; DecodeError if it is none."""
    return _file_class().FromString(data)


@cache
def _file_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    meta = known_files()[META_FILE]
    names = Names(meta, {DESCRIPTOR_FILE: known_files()[DESCRIPTOR_FILE]})
    pool.Add(to_descriptor(meta, names, META_FILE))
    pool.FindFileByName(META_FILE)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
