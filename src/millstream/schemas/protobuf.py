"""Protobuf schemas: a .proto file as text, or a FileDescriptorProto in base64, which is turned into text."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from millstream.schemas.proto_descriptor import from_descriptor, known_files, to_descriptor
from millstream.schemas.proto_model import Message, Names, ProtoFile, walk
from millstream.schemas.proto_options import read_file, write_custom_options
from millstream.schemas.proto_parser import parse_file
from millstream.schemas.proto_printer import canonical_text, normalized_text
from millstream.schemas.schema import InvalidSchema, ParsedSchema, Reference

LARGE = 32 * 1024  # characters; larger files are not kept


class ProtobufSchema(ParsedSchema):
    schema_type = "PROTOBUF"

    def __init__(self, text: str, references: Sequence[Reference], resolved: Mapping[str, str]) -> None:
        super().__init__(references, resolved)
        self.file = _read(text)
        self.dependencies = self._closure()

    def _closure(self) -> dict[str, ProtoFile]:
        """Everything imported, directly or not, that is needed first first."""
        found: dict[str, ProtoFile] = {}
        pending: set[str] = set()

        def add(name: str) -> None:
            if name in found or name in pending:
                return
            if name in self.resolved:
                proto = _read(self.resolved[name])
            else:
                known = known_files().get(name)
                if known is None:
                    raise InvalidSchema(f'Could not find import "{name}": no reference has that name')
                proto = known
            pending.add(name)
            for imported in proto.all_imports():
                add(imported)
            found[name] = proto

        for imported in self.file.all_imports():
            add(imported)
        for name in self.resolved:
            add(name)
        return found

    @cached_property
    def names(self) -> Names:
        return Names(self.file, self.dependencies)

    @cached_property
    def canonical(self) -> str:
        return canonical_text(self.file)

    @property
    def name(self) -> str | None:
        for full_name, declared in walk(self.file.types, self.file.package or ""):
            if isinstance(declared, Message):
                return full_name
        return None

    def normalized(self) -> "ProtobufSchema":
        text = normalized_text(self.file, self.names)
        made = ProtobufSchema(text, self.sorted_references(), self.resolved)
        # Printed once more, defaults and JSON names would leave their place among the options.
        made.canonical = text
        return made

    def descriptor(self, name: str = "default") -> Any:
        return to_descriptor(self.file, self.names, name)

    def dependency_descriptors(self) -> list[Any]:
        return [
            to_descriptor(proto, Names(proto, self.dependencies), name)
            for name, proto in self.dependencies.items()
        ]

    def formatted(self, form: str) -> str:
        if form == "serialized":
            descriptor = self.descriptor()
            write_custom_options(descriptor, self.file, self.dependency_descriptors())
            return base64.b64encode(descriptor.SerializeToString()).decode("ascii")
        if form == "ignore_extensions":
            return canonical_text(self.file, extensions=False)
        return self.canonical

    def validate(self, *, strict: bool = False) -> None:
        """Let protobuf itself check numbers, names, types and defaults. `strict`: types come from imports; a
        reference alone is not enough."""
        from google.protobuf import descriptor_pool

        if strict:
            to_descriptor(self.file, Names(self.file, self._visible()), "default")
        pool = descriptor_pool.DescriptorPool()
        try:
            for descriptor in self.dependency_descriptors():
                pool.Add(descriptor)
            descriptor = self.descriptor()
            pool.Add(descriptor)
            pool.FindFileByName(descriptor.name)
        except (TypeError, KeyError, ValueError) as error:
            if isinstance(error, InvalidSchema):
                raise
            raise InvalidSchema(_reason(error)) from None

    def _visible(self) -> dict[str, ProtoFile]:
        """The files that are imported, and those that they import for others."""
        found: dict[str, ProtoFile] = {}
        pending = self.file.all_imports()
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = self.dependencies[name]
                pending += found[name].public_imports
        return found

    def has_top_level_field(self, field: str) -> bool:
        for declared in self.file.types:
            if isinstance(declared, Message):
                members = [*declared.fields, *(one for oneof in declared.oneofs for one in oneof.fields)]
                return any(one.name == field for one in members)
        return False

    def problems_reading(self, previous: ParsedSchema) -> list[str]:
        from millstream.schemas.proto_compatibility import Side, problems

        assert isinstance(previous, ProtobufSchema)
        sides = [
            Side(schema.file, schema.names, {reference.name: reference for reference in schema.references})
            for schema in (previous, self)
        ]
        return problems(sides[0], sides[1])


def _reason(error: Exception) -> str:
    text = str(error.args[0]) if error.args else str(error)
    return text.strip() or type(error).__name__


def _read(text: str) -> ProtoFile:
    return _read_once(text) if len(text) < LARGE else _parse(text)


@lru_cache(maxsize=1024)
def _read_once(text: str) -> ProtoFile:
    return _parse(text)


def _parse(text: str) -> ProtoFile:
    try:
        return parse_file(text)
    except InvalidSchema as error:
        decoded = _decode(text)
        if decoded is None:
            raise error
        return decoded
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None


def _decode(text: str) -> ProtoFile | None:
    from google.protobuf.message import DecodeError

    try:
        file = read_file(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return from_descriptor(file)
