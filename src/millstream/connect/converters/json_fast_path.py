"""The fast path between a struct and its JSON.

Producers write the same schema in front of every message. Where the bytes in front of the payload are those
of the message before, the schema is known, and only the payload is parsed; a struct of plain fields whose
values have the types that they should is made at once, by a loop that is generated for the schema. Everything
else is for the converter itself: None means that it has to look. Each payload is parsed by itself: of several
that are parsed as one text, one could end what another begins. The other way, a struct is written by a
function that is generated for its schema, alone or inside of a loop over a source's records.
`tests/connect/test_json_fast_path.py` holds both to the same answers.
"""

from __future__ import annotations

import ast
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from millstream.connect.converters.base import Converted, Variables, Writing
from millstream.connect.data.logical import LOGICAL_NAMES
from millstream.connect.data.schema import INTEGERS, Schema, Type
from millstream.connect.data.struct import Struct
from millstream.connect.errors import ConnectError

_BEGIN, _BETWEEN = b'{"schema":', b',"payload":'
_FINITE = (-sys.float_info.max, sys.float_info.max)
_PLAIN: dict[Type, type] = {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT64: float}
_numbers = itertools.count()
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


class Texts(NamedTuple):
    """What the converter writes values with: text, numbers, and whatever else there is."""

    quoted: Callable[[str], str]
    number: Callable[[Any, Schema], str]
    other: Callable[[Schema, Any], str]


class _Expressions:
    """How values are written: a condition and an expression for each, and the objects that they name. A
    struct inside of another has a function of its own; what is neither plain nor a struct `Texts.other` is
    to write or to refuse."""

    def __init__(self, texts: Texts, *, with_default: bool) -> None:
        # Keys and values may have converters with different settings in one function.
        self._other = f"other_{next(_numbers)}"
        self.objects: dict[str, Any] = {
            "quoted": texts.quoted, "number": texts.number, self._other: texts.other
        }  # fmt: skip
        self._texts, self._with_default = texts, with_default

    def of(self, own: Schema, name: str) -> tuple[str, str]:
        kind = own.type
        plain = kind in INTEGERS or kind in _PLAIN
        write = None
        if kind is Type.STRUCT:
            write = payload_writer(own, self._texts, with_default=self._with_default)
        if own.name in LOGICAL_NAMES or (not plain and write is None):
            schema = f"schema_{id(own)}"
            self.objects[schema] = own
            return "True", f"{self._other}({schema}, {name})"
        if write is not None:
            function = f"struct_{next(_numbers)}"
            self.objects[function] = write
            fits, text = f"{name} is not None", f"{function}({name})"
        elif kind in INTEGERS:
            limit = 1 << (INTEGERS[kind] - 1)
            fits, text = f"type({name}) is int and {-limit} <= {name} < {limit}", f"str({name})"
        elif kind is Type.STRING:
            fits, text = f"type({name}) is str", f"quoted({name})"
        elif kind is Type.BOOLEAN:
            fits, text = f"type({name}) is bool", f"('true' if {name} else 'false')"
        else:
            schema = f"schema_{id(own)}"
            self.objects[schema] = own
            fits = f"type({name}) is float and {_FINITE[0]} <= {name} <= {_FINITE[1]}"
            text = f"number({name}, {schema})"
        if own.optional and (own.default is None or not self._with_default):
            fits, text = f"{name} is None or {fits}", f"('null' if {name} is None else {text})"
        return fits, text


def payload_writer(schema: Schema, texts: Texts, *, with_default: bool) -> Callable[[Any], str | None] | None:
    """A function that writes structs of this schema, all but those that do not fit it: None for them. There
    is none for what is no struct."""
    if schema.type is not Type.STRUCT or not schema.fields:
        return None
    expressions = _Expressions(texts, with_default=with_default)
    checks, pieces = [], []
    before = "{"
    for field in schema.fields:
        fits, text = expressions.of(field.schema, f"v{field.index}")
        checks.append(f"({fits})")
        pieces += [repr(f"{before}{texts.quoted(field.name)}:"), text]
        before = ","
    names = ", ".join(f"v{field.index}" for field in schema.fields)
    source = (
        "def write(value):\n"
        "    if type(value) is not Struct: return None\n"
        "    if value.schema is not schema and value.schema != schema: return None\n"
        f"    {names}, = value.values\n"
        f"    if not ({' and '.join(checks)}): return None\n"
        "    try:\n"
        f"        return ''.join(({', '.join(pieces)}, '}}'))\n"
        "    except (TypeError, ConnectError):\n"  # None for a struct inside that does not fit
        "        return None\n"
    )
    known = {**expressions.objects, "schema": schema, "Struct": Struct, "ConnectError": ConnectError}
    exec(compile(source, "<json of a struct>", "exec"), known)  # noqa: S102
    made: Callable[[Any], str | None] = known["write"]
    return made


def payload_writing(
    schema: Schema,
    variables: Variables,
    texts: Texts,
    around: tuple[str, str],
    *,
    with_default: bool,
) -> Writing | None:
    """The same for variables of a generated function. What is constant is written once, now; `around` is what
    stands before and after the payload."""
    expressions = _Expressions(texts, with_default=with_default)
    conditions: list[str] = []
    pieces: list[str] = [repr(around[0])]  # expressions of text, in their order

    def add(own: Schema, name: str) -> bool:
        fits, text = expressions.of(own, name)
        if name in variables.constants:
            objects = {**expressions.objects, name: variables.constants[name]}
            written = eval(text, objects) if eval(fits, objects) else None  # noqa: S307 - what `of` has written
            if written is None:
                return False
            pieces.append(repr(written))
        else:
            conditions.extend([] if fits == "True" else [fits])
            pieces.append(text)
        return True

    if variables.fields is None:
        if schema.type is Type.STRUCT or not add(schema, variables.whole):
            return None
    else:
        before = "{"
        for field, name in zip(schema.fields, variables.fields, strict=True):
            pieces.append(repr(f"{before}{texts.quoted(field.name)}:"))
            before = ","
            if not add(field.schema, name):
                return None
        pieces.append(repr("}" if schema.fields else "{}"))
    pieces.append(repr(around[1]))
    joined = _joined(pieces)
    if len(joined) == 1 and not conditions:
        data = ast.literal_eval(joined[0]).encode("utf-8", "surrogatepass")
        return Writing((), repr(data), {})
    text = f"''.join(({', '.join(joined)},))" if len(joined) > 3 else f"({' + '.join(joined)})"
    return Writing(conditions, f"{text}.encode('utf-8', 'surrogatepass')", expressions.objects)


def _joined(pieces: Sequence[str]) -> list[str]:
    """Literals that follow each other are one."""
    found: list[str] = []
    for literal, group in itertools.groupby(pieces, lambda piece: piece.startswith(("'", '"'))):
        members = list(group)
        found += [repr("".join(map(ast.literal_eval, members)))] if literal else members
    return found
