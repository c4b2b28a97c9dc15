"""Keys and values in requests and answers: base64, JSON, text, or by a schema."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

import orjson

from millstream.rest import errors

V2_FORMATS = ("BINARY", "JSON", "AVRO", "JSONSCHEMA", "PROTOBUF")
WITH_SCHEMA = frozenset({"AVRO", "JSONSCHEMA", "PROTOBUF"})


def encode_binary(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise errors.bad_request(f"data={_shown(value)} is not a base64 string.")
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise errors.bad_request(f"data={_shown(value)} is not a valid base64 string.") from None


def encode_json(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return orjson.dumps(value)
    except TypeError:  # a number of more than 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def encode_string(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise errors.bad_request(f"data={_shown(value)} is not a string.")
    return value.encode("utf-8", "surrogatepass")


PLAIN: dict[str, Callable[[Any], bytes | None]] = {
    "BINARY": encode_binary,
    "JSON": encode_json,
    "STRING": encode_string,
}


def decode_binary(data: bytes) -> Any:
    return base64.b64encode(data).decode("ascii")


def decode_json(data: bytes) -> Any:
    """The bytes themselves, once it is clear that they are JSON."""
    orjson.loads(data)
    return orjson.Fragment(data)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."
