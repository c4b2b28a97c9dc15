"""The fast path between a struct and its JSON.

Producers write the same schema in front of every message. Where the bytes in front of the payload are those
of the message before, the schema is known, and only the payload is parsed; a struct of plain fields whose
values have the types that they should is made at once. Everything else is for the converter itself: None
means that it has to look. The other way, a struct of plain fields is written by a function that is generated
for its schema. `tests/connect/test_json_fast_path.py` holds both to the same answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
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


def payload_writer(
    schema: Schema, quoted: Callable[[str], str], number: Callable[[Any, Schema], str], *, with_default: bool
) -> Callable[[Any], str | None] | None:
    """A function that writes structs of this schema, all but those that do not fit it: None for them. There
    is none for a schema with other than plain fields."""
    if schema.type is not Type.STRUCT or not schema.fields:
        return None
    known: dict[str, Any] = {"schema": schema, "quoted": quoted, "number": number, "Struct": Struct}
    checks, texts = [], []
    for field in schema.fields:
        kind, name, own = field.schema.type, f"v{field.index}", field.schema
        if own.name is not None or (kind not in INTEGERS and kind not in _PLAIN):
            return None
        if kind in INTEGERS:
            limit = 1 << (INTEGERS[kind] - 1)
            fits, text = f"type({name}) is int and {-limit} <= {name} < {limit}", name
        elif kind is Type.STRING:
            fits, text = f"type({name}) is str", f"quoted({name})"
        elif kind is Type.BOOLEAN:
            fits, text = f"type({name}) is bool", f"'true' if {name} else 'false'"
        else:
            known[f"s{field.index}"] = own
            fits = f"type({name}) is float and {_FINITE[0]} <= {name} <= {_FINITE[1]}"
            text = f"number({name}, s{field.index})"
        if own.optional and (own.default is None or not with_default):
            fits, text = f"{name} is None or {fits}", f"'null' if {name} is None else ({text})"
        checks.append(f"({fits})")
        texts.append(f"{quoted(field.name) + ':'!r}, str({text})")
    names = ", ".join(f"v{field.index}" for field in schema.fields)
    parts = ", ',', ".join(texts)
    source = (
        "def write(value):\n"
        "    if type(value) is not Struct: return None\n"
        "    if value.schema is not schema and value.schema != schema: return None\n"
        f"    {names}, = value.values\n"
        f"    if not ({' and '.join(checks)}): return None\n"
        f"    return ''.join(('{{', {parts}, '}}'))\n"
    )
    exec(compile(source, "<json of a struct>", "exec"), known)  # noqa: S102
    made: Callable[[Any], str | None] = known["write"]
    return made
