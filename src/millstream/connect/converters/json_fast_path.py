"""The fast path between a struct and its JSON.

Producers write the same schema in front of every message. Where the bytes in front of the payload are those
of the message before, the schema is known, and only the payload is parsed; a struct of plain fields whose
values have the types that they should is made at once, by a loop that is generated for the schema. Everything
else is for the converter itself: None means that it has to look. Each payload is parsed by itself: of several
that are parsed as one text, one could end what another begins. The other way, a struct of plain fields is
written by a function that is generated for its schema. `tests/connect/test_json_fast_path.py` holds both to
the same answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from millstream.connect.converters.base import Converted
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
        self._read = _payload_reader(prefix, schema, with_default=with_default)

    @property
    def useful(self) -> bool:
        return self._read is not None

    def read(self, data: bytes) -> Struct | None:
        (found,) = self.read_many((data,))
        return None if found is None else found[1]

    def read_many(self, many: Sequence[bytes | None]) -> list[Converted]:
        """Each with its schema."""
        return [None] * len(many) if self._read is None else self._read(many)


def _payload_reader(
    prefix: bytes, schema: Schema, *, with_default: bool
) -> Callable[[Sequence[bytes | None]], list[Converted]] | None:
    """A loop over messages. There is none for a schema with other than plain fields."""
    if schema.type is not Type.STRUCT or not schema.fields:
        return None
    reads, checks = [], []
    for field in schema.fields:
        own, name = field.schema, f"v{field.index}"
        bits, kind = INTEGERS.get(own.type), _PLAIN.get(own.type, int)
        if own.name is not None or (bits is None and own.type not in _PLAIN):
            return None
        fits = f"type({name}) is {kind.__name__}"
        if bits is not None:
            fits += f" and {-(1 << (bits - 1))} <= {name} < {1 << (bits - 1)}"
        elif own.type is Type.FLOAT64:
            fits += f" and {_FINITE[0]} <= {name} <= {_FINITE[1]}"
        if own.optional and (own.default is None or not with_default):
            fits = f"{name} is None or {fits}"
        reads.append(f"            {name} = get({field.name!r})\n")
        checks.append(f"({fits})")
    known: dict[str, Any] = {
        "prefix": prefix, "loads": orjson.loads, "new": object.__new__, "Struct": Struct, "schema": schema,
        "nothing": (None, None), "length": len(prefix),
    }  # fmt: skip
    source = (
        "def read(many):\n"
        "    found = []\n"
        "    add = found.append\n"
        "    for data in many:\n"
        "        if data is None:\n"
        "            add(nothing)\n"
        "            continue\n"
        "        try:\n"
        "            if not data.startswith(prefix) or data[-1] != 125: raise ValueError\n"
        "            node = loads(data[length:-1])\n"
        "            if type(node) is not dict: raise ValueError\n"
        "            get = node.get\n"
        f"{''.join(reads)}"
        f"            if not ({' and '.join(checks)}): raise ValueError\n"
        "        except ValueError:\n"
        "            add(None)\n"
        "            continue\n"
        "        made = new(Struct)\n"
        "        made.schema = schema\n"
        f"        made.values = [{', '.join(f'v{field.index}' for field in schema.fields)}]\n"
        "        add((schema, made))\n"
        "    return found\n"
    )
    exec(compile(source, "<structs of payloads>", "exec"), known)  # noqa: S102
    made: Callable[[Sequence[bytes | None]], list[Converted]] = known["read"]
    return made


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
            fits, text = f"type({name}) is int and {-limit} <= {name} < {limit}", f"str({name})"
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
        texts.append(f"{quoted(field.name) + ':'!r}, {text}")
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
