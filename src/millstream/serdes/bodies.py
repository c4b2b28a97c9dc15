"""The bodies in the three languages. One object per schema; it keeps what is costly to make."""

import io
import json
from collections.abc import Sequence
from typing import Any, Protocol

from millstream.serdes.client import RegisteredSchema
from millstream.serdes.frame import path_bytes, split_path


class Body(Protocol):
    def decode(self, body: memoryview) -> Any: ...

    def encode(self, value: Any) -> bytes: ...


def body_of(
    schema: RegisteredSchema, reader: RegisteredSchema | None = None, *, validate: bool = False
) -> Body:
    if schema.type == "AVRO":
        return AvroBody(schema, reader)
    if schema.type == "JSON":
        return JsonBody(schema, validate)
    if schema.type == "PROTOBUF":
        return ProtobufBody(schema)
    raise ValueError(f"a schema of type {schema.type} is not known")


class AvroBody:
    """Values are dicts, lists, strings, numbers; logical types are Python's (datetime, Decimal, UUID)."""

    def __init__(self, schema: RegisteredSchema, reader: RegisteredSchema | None) -> None:
        import fastavro

        self._read = fastavro.schemaless_reader
        self._write = fastavro.schemaless_writer
        self._schema = _avro(schema)
        self._reader = None if reader is None else _avro(reader)

    def decode(self, body: memoryview) -> Any:
        return self._read(io.BytesIO(body), self._schema, self._reader)

    def encode(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, self._schema, value)
        return out.getvalue()


def _avro(schema: RegisteredSchema) -> Any:
    from fastavro import parse_schema

    names: dict[str, Any] = {}
    for text in schema.resolved.values():
        parse_schema(json.loads(text), named_schemas=names)
    return parse_schema(json.loads(schema.text), named_schemas=names)


class JsonBody:
    def __init__(self, schema: RegisteredSchema, validate: bool) -> None:
        self._validate = _validator(schema) if validate else None

    def decode(self, body: memoryview) -> Any:
        value = json.loads(bytes(body))
        if self._validate is not None:
            self._validate(value)
        return value

    def encode(self, value: Any) -> bytes:
        if self._validate is not None:
            self._validate(value)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _validator(schema: RegisteredSchema) -> Any:
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    document = json.loads(schema.text)
    resources = [
        (name, Resource.from_contents(json.loads(text), default_specification=DRAFT7))
        for name, text in schema.resolved.items()
    ]
    made: Any = validator_for(document)(document, registry=Registry().with_resources(resources))
    return made.validate


class ProtobufBody:
    """Values are dicts (see protobuf_values), or messages where they are given."""

    def __init__(self, schema: RegisteredSchema) -> None:
        from google.protobuf import descriptor_pool, message_factory

        from millstream.schemas.protobuf import ProtobufSchema

        parsed = schema.parsed
        assert isinstance(parsed, ProtobufSchema)
        pool = descriptor_pool.DescriptorPool()
        for descriptor in parsed.dependency_descriptors():
            pool.Add(descriptor)
        own = parsed.descriptor()
        pool.Add(own)
        self._file = pool.FindFileByName(own.name)
        self._order = [message.name for message in own.message_type]
        self._class = message_factory.GetMessageClass
        self._classes: dict[tuple[int, ...], Any] = {}
        self.path: Sequence[int] = (0,)

    def message_class(self, path: Sequence[int]) -> Any:
        key = tuple(path)
        found = self._classes.get(key)
        if found is None:
            try:
                descriptor = self._file.message_types_by_name[self._order[key[0]]]
                for index in key[1:]:
                    descriptor = descriptor.nested_types[index]
            except IndexError:
                raise ValueError(f"the schema has no message at {list(path)}") from None
            found = self._classes[key] = self._class(descriptor)
        return found

    def path_to(self, name: str) -> list[int]:
        """Where in the file the message with that name is."""

        def search(descriptors: Sequence[Any], path: list[int]) -> list[int] | None:
            for index, descriptor in enumerate(descriptors):
                if name in (descriptor.full_name, descriptor.name):
                    return [*path, index]
                found = search(descriptor.nested_types, [*path, index])
                if found is not None:
                    return found
            return None

        found = search([self._file.message_types_by_name[one] for one in self._order], [])
        if found is None:
            raise ValueError(f"the schema has no message {name}")
        return found

    def message(self, body: memoryview) -> Any:
        """The message itself, for whoever wants to treat it in its own way."""
        path, rest = split_path(body)
        return self.message_class(path).FromString(bytes(rest))

    def decode(self, body: memoryview) -> Any:
        from millstream.serdes.protobuf_values import to_python

        return to_python(self.message(body))

    def encode(self, value: Any) -> bytes:
        from google.protobuf.message import Message

        from millstream.serdes.protobuf_values import fill

        path = list(self.path)
        if isinstance(value, Message):
            path = self.path_to(value.DESCRIPTOR.full_name)
            data = value.SerializeToString()
        else:
            data = fill(self.message_class(path)(), value).SerializeToString()
        return path_bytes(path) + data
