"""Rows of the formats that keep their schemas in a registry: AVRO, JSON_SR and PROTOBUF.

Records are read by the schema that wrote them, whose id is in front of them, and brought to the columns'
types. They are written by the schema of the columns, which is registered under the topic's subject with the
first record, or by the schema that the statement names by its id.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from millstream.serdes.bodies import ProtobufBody
from millstream.serdes.client import RegisteredSchema, SchemaRegistry
from millstream.serdes.frame import NotFramed, path_bytes, split, split_path, with_id
from millstream.sql.formats import avro, json_sr, protobuf
from millstream.sql.formats.json_rows import Columns
from millstream.sql.formats.table import DEFAULT_AVRO_NAME, FULL_SCHEMA_NAME, NULLABLE, Format
from millstream.sql.formats.translate import row_converter, row_type
from millstream.sql.formats.values import DoesNotFit
from millstream.sql.types import SqlType, StructType

LANGUAGES = {"AVRO": "AVRO", "JSON_SR": "JSON", "PROTOBUF": "PROTOBUF", "PROTOBUF_NOSR": "PROTOBUF"}


def subject_of(topic: str, *, is_key: bool) -> str:
    return f"{topic}-{'key' if is_key else 'value'}"


def sink_schema(format_: Format, columns: Columns, *, unwrapped: bool) -> str:
    """The schema of these columns as Confluent's converters write it."""
    type_ = row_type(columns, unwrapped=unwrapped)
    name = format_.get(FULL_SCHEMA_NAME)
    if format_.name == "AVRO":
        return json.dumps(avro.schema_of(type_, (name or DEFAULT_AVRO_NAME).strip()))
    if format_.name == "JSON_SR":
        return json.dumps(json_sr.schema_of(type_))
    return protobuf.schema_text(type_, name, format_.get(NULLABLE))


Decode = Callable[[memoryview], tuple[Any, ...]]
Encode = Callable[[tuple[Any, ...]], bytes]


class RegistryRows:
    """Reads and writes rows; `topic` says under which subject schemas are."""

    def __init__(
        self, format_: Format, columns: Columns, *, is_key: bool, unwrapped: bool, registry: SchemaRegistry
    ) -> None:
        self._format, self._columns = format_, columns
        self._is_key, self._unwrapped = is_key, unwrapped
        self._registry = registry
        self._language = LANGUAGES[format_.name]
        self._decoders: dict[int | str, Decode] = {}
        self._encoders: dict[str, tuple[int, Encode]] = {}

    def read(self, _topic: str, data: bytes) -> tuple[Any, ...]:
        try:
            schema_id, body = split(data)
        except NotFramed as error:
            raise DoesNotFit(str(error)) from None
        decode = self._decoders.get(schema_id)
        if decode is None:
            schema = (
                self._registry.schema(schema_id)
                if isinstance(schema_id, int)
                else self._registry.schema_by_guid(schema_id)
            )
            decode = self._decoders[schema_id] = self._decoder(schema)
        return decode(body)

    def write(self, topic: str, row: tuple[Any, ...]) -> bytes | None:
        if self._unwrapped and row[0] is None:
            return None
        found = self._encoders.get(topic)
        if found is None:
            found = self._encoders[topic] = self._encoder(topic)
        return with_id(found[0], found[1](row))

    def _decoder(self, schema: RegisteredSchema) -> Decode:
        if schema.type != self._language:
            raise DoesNotFit(f"the record has a schema of type {schema.type}, not {self._language}")
        columns, unwrapped = self._columns, self._unwrapped
        if schema.type == "AVRO":
            written = avro.AvroType(schema)
            convert = row_converter(columns, written.type, unwrapped=unwrapped)
            return lambda body: convert(written.decode(body))
        if schema.type == "JSON":
            described = json_sr.JsonSchemaType(schema)
            convert = row_converter(columns, described.type, unwrapped=unwrapped)
            return lambda body: convert(described.decode(_json(body)))
        return protobuf_decoder(schema, columns, self._format)

    def _encoder(self, topic: str) -> tuple[int, Encode]:
        schema_id = self._format.schema_id
        if schema_id is not None:
            schema = self._registry.schema(schema_id)
        else:
            text = sink_schema(self._format, self._columns, unwrapped=self._unwrapped)
            subject = subject_of(topic, is_key=self._is_key)
            schema_id = self._registry.register(subject, text, self._language)
            schema = RegisteredSchema(schema_id, self._language, text)
        return schema_id, _encoder(schema, self._columns, self._format, self._unwrapped)


def _json(body: memoryview) -> Any:
    from decimal import Decimal

    try:
        return json.loads(bytes(body), parse_float=Decimal)
    except ValueError as error:
        raise DoesNotFit(f"not JSON: {error}") from None


def row_struct(columns: Columns, unwrapped: bool) -> SqlType:
    return columns[0][1] if unwrapped else StructType(fields=columns)


def _encoder(schema: RegisteredSchema, columns: Columns, format_: Format, unwrapped: bool) -> Encode:
    type_ = row_struct(columns, unwrapped)
    names = [name for name, _ in columns]

    def whole(row: tuple[Any, ...]) -> Any:
        return row[0] if unwrapped else dict(zip(names, row, strict=True))

    if schema.type == "AVRO":
        resolved = [json.loads(text) for text in schema.resolved.values()]
        writer = avro.AvroWriter(json.loads(schema.text), resolved, type_)
        return lambda row: writer.encode(whole(row))
    if schema.type == "JSON":
        plain = json_sr.to_json(type_)
        return lambda row: orjson.dumps(whole(row) if plain is None else plain(whole(row)))
    encode = protobuf_encoder(schema, columns, format_)
    return lambda row: encode(row)


def _message_path(body: ProtobufBody, format_: Format) -> list[int]:
    name = format_.get(FULL_SCHEMA_NAME)
    return list(body.path) if name is None else body.path_to(name)


def protobuf_encoder(
    schema: RegisteredSchema, columns: Columns, format_: Format, bare: bool = False
) -> Encode:
    """`bare`: without the path to the message type in front."""
    body = ProtobufBody(schema)
    path = _message_path(body, format_)
    made = body.message_class(path)
    fill = protobuf.message_writer(made.DESCRIPTOR, StructType(fields=columns))
    prefix = b"" if bare else path_bytes(path)
    names = [name for name, _ in columns]

    def encode(row: tuple[Any, ...]) -> bytes:
        message = made()
        fill(message, dict(zip(names, row, strict=True)))
        return prefix + bytes(message.SerializeToString())

    return encode


def protobuf_decoder(
    schema: RegisteredSchema, columns: Columns, format_: Format, bare: bool = False
) -> Decode:
    body = ProtobufBody(schema)
    known: dict[tuple[int, ...], tuple[Any, Callable[[Any], tuple[Any, ...]]]] = {}

    def decode(data: memoryview) -> tuple[Any, ...]:
        path, rest = ([0], data) if bare else split_path(data)
        found = known.get(tuple(path))
        if found is None:
            made = body.message_class(path)
            written = protobuf.ProtobufType(made.DESCRIPTOR, schema.parsed)
            convert = row_converter(columns, written.type, unwrapped=False)
            found = known[tuple(path)] = (made, lambda message: convert(written.decode(message)))
        try:
            message = found[0].FromString(bytes(rest))
        except Exception as error:
            raise DoesNotFit(f"not a Protobuf message: {error}") from None
        return found[1](message)

    return decode
