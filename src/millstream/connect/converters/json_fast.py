"""The short way from JSON with its schema to a struct.

Producers write the same schema in front of every message. Where the bytes in front of the payload are those
of the message before, the schema is known, and only the payload is parsed; a struct of plain fields whose
values have the types that they should is made at once. Everything else is for the converter itself: None
means that it has to look. `tests/connect/test_json_fast.py` holds both to the same answers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import orjson

from millstream.connect.data.schema import INTEGERS, Schema, Type
from millstream.connect.data.struct import Struct

_BEGIN, _BETWEEN = b'{"schema":', b',"payload":'
_FINITE = (-sys.float_info.max, sys.float_info.max)
_PLAIN: dict[Type, type] = {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT64: float}
_decode = json.JSONDecoder().raw_decode


def prefix_of(data: bytes) -> bytes | None:
    """What stands before the payload, if the schema stands first and nothing but the payload follows."""
    if not data.startswith(_BEGIN):
        return None
    try:
        text = data.decode("ascii")
        _, end = _decode(text, len(_BEGIN))
    except ValueError:
        return None
    return data[: end + len(_BETWEEN)] if data.startswith(_BETWEEN, end) else None


class PayloadReader:
    """Of messages with this prefix."""

    def __init__(self, prefix: bytes, schema: Schema, *, with_default: bool) -> None:
        self.prefix, self.schema = prefix, schema
        self._length = len(prefix)
        self._fields: list[tuple[str, Any, float, float, bool]] | None = []
        if schema.type is not Type.STRUCT:
            self._fields = None
            return
        for field in schema.fields:
            kind, bits = field.schema.type, INTEGERS.get(field.schema.type)
            if field.schema.name is not None or (bits is None and kind not in _PLAIN):
                self._fields = None
                return
            nullable = field.schema.optional and (field.schema.default is None or not with_default)
            low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if bits else _FINITE
            self._fields.append((field.name, _PLAIN.get(kind, int), low, high, nullable))

    @property
    def useful(self) -> bool:
        return self._fields is not None

    def read(self, data: bytes) -> Struct | None:
        if data[-1] != 125:
            return None
        try:
            node: Any = orjson.loads(data[self._length : -1])
        except ValueError:
            return None
        if type(node) is not dict or self._fields is None:
            return None
        values: list[Any] = []
        for name, kind, low, high, nullable in self._fields:
            value = node.get(name)
            if value is None:
                if not nullable:
                    return None
            elif type(value) is not kind or (kind is not str and not low <= value <= high):
                return None
            values.append(value)
        return Struct(self.schema, values)
