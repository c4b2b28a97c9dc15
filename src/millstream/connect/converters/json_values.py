"""JSON as Jackson has it: text in Jackson's escapes, and the value of Connect that a node stands for.

Numbers keep all their digits until the schema says what they are. What is of another type than the schema
says counts as nothing where Kafka's converter lets it, and is refused with its message elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, NoReturn

from millstream.connect.data import logical
from millstream.connect.data.logical import DATE, DECIMAL, TIMESTAMP
from millstream.connect.data.numbers import to_float, to_integer
from millstream.connect.data.schema import INTEGERS, Schema, Type
from millstream.connect.errors import DataError

_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_SHORT_ESCAPES = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


_BLANKS = " \t\r\n"
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
_ZEROS = re.compile(r"^(-?)0+(?=[0-9])")
_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)


def parse_json(data: bytes) -> Any:
    """Numbers with a point as decimals, so that no digit is lost."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(data, parse_float=Decimal, parse_constant=_refuse)
    try:
        return _first_value(data.decode())
    except (ValueError, RecursionError):
        raise DataError(
            "Converting byte[] to Kafka Connect data failed due to serialization error: "
        ) from None


def _first_value(text: str) -> Any:
    """What Kafka's parser takes beyond the standard: zeros before a number, anything behind the first value
    (behind a number, true, false or null: after a blank), and nothing at all, which is null."""
    text = _TOKENS.sub(lambda token: _ZEROS.sub(r"\1", token[0]), text.strip(_BLANKS))
    if not text:
        return None
    value, end = _DECODER.raw_decode(text)
    if not isinstance(value, dict | list | str) and text[end : end + 1].strip(_BLANKS):
        raise ValueError(text)
    return value


def quoted(text: str) -> str:
    """As Jackson escapes: what has to be, with capital hexadecimal digits."""
    simply_quoted: str = encode_basestring(text)
    if "\\u" not in simply_quoted:
        return simply_quoted
    # Python's differs from Jackson's in the digits only.
    return (
        '"' + _ESCAPED.sub(lambda found: _SHORT_ESCAPES.get(found[0], f"\\u{ord(found[0]):04X}"), text) + '"'
    )


def node_type(node: Any) -> str:
    if isinstance(node, bool):
        return "BOOLEAN"
    names = ((str, "STRING"), (int | float | Decimal, "NUMBER"), (list, "ARRAY"), (dict, "OBJECT"))
    return next((name for kind, name in names if isinstance(node, kind)), "NULL")


def plain_value(node: Any) -> Any:
    """Without a schema: whole numbers are 64 bits wide, others doubles."""
    if isinstance(node, dict):
        return {key: plain_value(one) for key, one in node.items()}
    if isinstance(node, list):
        return [plain_value(one) for one in node]
    if isinstance(node, Decimal):
        return to_float(node, Type.FLOAT64)
    return to_integer(node, Type.INT64) if type(node) is int else node


def primitive_value(kind: Type, node: Any) -> Any:
    """What is of another type counts as nothing: 0, false, or null, as Jackson has it."""
    if kind is Type.BOOLEAN:
        return node is True
    if kind is Type.STRING:
        return node if isinstance(node, str) else None
    if kind is Type.BYTES:
        return bytes_value(node)
    number = node if isinstance(node, int | Decimal) and not isinstance(node, bool) else 0
    if kind in INTEGERS:
        return to_integer(to_integer(number, Type.INT64 if kind is Type.INT64 else Type.INT32), kind)
    return to_float(number, kind)


def bytes_value(node: Any) -> bytes | None:
    if not isinstance(node, str):
        return None
    try:
        return base64.b64decode(node, validate=True)
    except (binascii.Error, ValueError):
        raise DataError("Invalid bytes field") from None


def logical_value(schema: Schema, node: Any) -> Any:
    integral = type(node) is int
    if schema.name == DECIMAL:
        if integral or isinstance(node, Decimal):
            return Decimal(node)
        if not isinstance(node, str):
            raise DataError(
                "Invalid type for Decimal, underlying representation should be numeric or bytes but was "
                f"{node_type(node)}"
            )
        try:
            data = bytes_value(node)
            assert data is not None
            return logical.decimal_from_bytes(schema, data)
        except DataError:
            raise DataError("Invalid bytes for Decimal field") from None
    if schema.name == TIMESTAMP:
        if not integral:
            raise DataError(
                "Invalid type for Timestamp, underlying representation should be integral but was "
                f"{node_type(node)}"
            )
        return logical.from_millis(to_integer(node, Type.INT64))
    if not integral or not -(1 << 31) <= node < 1 << 31:
        short = str(schema.name).rpartition(".")[2]
        raise DataError(
            f"Invalid type for {short}, underlying representation should be integer but was {node_type(node)}"
        )
    return logical.days_to_date(node) if schema.name == DATE else logical.millis_to_time(node)
