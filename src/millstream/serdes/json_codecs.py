"""Bodies from JSON and to JSON, each in its language's own way: what the REST Proxy and the console tools
speak.

Avro has its JSON encoding (unions say their branch), Protobuf its JSON mapping, JSON is itself.
"""

import json
import re
from typing import Any, Protocol

from millstream.serdes.avro_json import AvroJson
from millstream.serdes.bodies import JsonBody, ProtobufBody, body_of
from millstream.serdes.client import RegisteredSchema
from millstream.serdes.frame import path_bytes
from millstream.serdes.json_text import check_json, loads, minified, one_line

# Bytes are strings with a character for each: those that control terminals or end lines are escaped.
_INVISIBLE = re.compile("[\x7f-\x9f\u2028\u2029]")


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


class TextBody:
    """Bodies to JSON text and back; nothing is lost on the way, so what was printed can be written again.

    Avro by its JSON encoding, as Confluent's console tools print and read it; JSON is the stored text. What
    is read may leave out the branches of unions, if it is clear without them.
    """

    def __init__(self, schema: RegisteredSchema) -> None:
        self._is_json = schema.type == "JSON"
        self._codec = codec_of(schema)
        self._plain = body_of(schema, validate=True)

    def decode(self, body: memoryview) -> str:
        if self._is_json:
            return one_line(check_json(bytes(body).decode()))
        text = json.dumps(self._codec.decode(bytes(body)), ensure_ascii=False, allow_nan=False)
        return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

    def encode(self, text: str) -> bytes:
        if self._is_json:
            self._codec.encode(json.loads(check_json(text)))  # refuses what does not fit
            return minified(text).encode()
        value = loads(text)
        try:
            return self._codec.encode(value)
        except Exception:
            try:
                return self._plain.encode(value)
            except Exception:  # noqa: S110  # the first error says more: no common ground, as in Decoder
                pass
            raise


def codec_of(schema: RegisteredSchema) -> Codec:
    if schema.type == "AVRO":
        return AvroJson(schema.text, schema.resolved)
    return JsonCodec(schema) if schema.type == "JSON" else ProtobufCodec(schema)
