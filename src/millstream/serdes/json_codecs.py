"""Bodies from JSON and to JSON, each in its language's own way: what the REST Proxy and the console tools
speak.

Avro has its JSON encoding (unions say their branch), Protobuf its JSON mapping, JSON is itself.
"""

import json
from typing import Any, Protocol

from millstream.serdes.avro_json import AvroJson
from millstream.serdes.bodies import JsonBody, ProtobufBody
from millstream.serdes.client import RegisteredSchema
from millstream.serdes.frame import path_bytes


class Codec(Protocol):
    def encode(self, value: Any) -> bytes: ...

    def decode(self, body: bytes) -> Any: ...


class JsonCodec:
    def __init__(self, schema: RegisteredSchema) -> None:
        self._body = JsonBody(schema, validate=True)

    def encode(self, value: Any) -> bytes:
        return self._body.encode(value)

    def decode(self, body: bytes) -> Any:
        return json.loads(body)


class ProtobufCodec:
    """By Protobuf's own JSON mapping, fields without presence always there."""

    def __init__(self, schema: RegisteredSchema) -> None:
        from google.protobuf import json_format

        self._parse = json_format.ParseDict
        self._print = json_format.MessageToDict
        self._body = ProtobufBody(schema)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, dict):
            raise ValueError("a Protobuf message is a JSON object")
        message = self._parse(value, self._body.message_class(self._body.path)())
        return bytes(path_bytes(self._body.path) + message.SerializeToString())

    def decode(self, body: bytes) -> Any:
        return self._print(self._body.message(memoryview(body)), always_print_fields_with_no_presence=True)


def codec_of(schema: RegisteredSchema) -> Codec:
    if schema.type == "AVRO":
        return AvroJson(schema.text, schema.resolved)
    return JsonCodec(schema) if schema.type == "JSON" else ProtobufCodec(schema)
