"""Avro's JSON encoding to Avro's binary encoding and back, without a step between.

In Avro's JSON a value of a union says which branch it is, {"string": "x"}, and null is null; bytes and fixed
are strings with a character for each byte. Logical types are what they are made of: a date is a number of
days. Confluent's proxy speaks that JSON, so this one has to know the branch of every union exactly, which
Python values do not tell (an int or a long?).

A schema is compiled once into functions, one for each type in it.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

from millstream.wire.varint import Malformed, append_varint, read_varlong

Encode = Callable[[Any, bytearray], None]
Decode = Callable[[bytes, int], tuple[Any, int]]

MAX_EMPTY_ITEMS = 1_000_000  # items that take no bytes, in one block: beyond that, the count is nonsense
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Mismatch(ValueError):
    """A value does not fit its schema, or the bytes do not."""


class AvroJson:
    """One schema. `resolved` holds the texts of what it refers to, what is needed first first."""

    def __init__(self, text: str, resolved: Mapping[str, str] | None = None) -> None:
        from fastavro import parse_schema  # makes all names full ones

        self._encoders: dict[str, Encode] = {}
        self._decoders: dict[str, Decode] = {}
        names: dict[str, Any] = {}
        for other in (resolved or {}).values():
            self._compile(parse_schema(json.loads(other), named_schemas=names))
        self._encode, self._decode = self._compile(parse_schema(json.loads(text), named_schemas=names))

    def encode(self, value: Any) -> bytes:
        out = bytearray()
        try:
            self._encode(value, out)
        except RecursionError:
            raise Mismatch("nested too deeply") from None
        return bytes(out)

    def decode(self, data: bytes) -> Any:
        try:
            value, _ = self._decode(data, 0)
        except (IndexError, struct.error):
            raise Mismatch("the bytes end before the value does") from None
        except (Malformed, UnicodeDecodeError, RecursionError) as error:
            raise Mismatch(str(error)) from None
        return value

    # One type

    def _compile(self, schema: Any) -> tuple[Encode, Decode]:
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return _PRIMITIVES[schema]
            return self._named(schema)
        if isinstance(schema, list):
            return self._union(schema)
        avro_type = schema["type"]
        if not isinstance(avro_type, str):
            return self._compile(avro_type)
        if avro_type in ("record", "error"):
            return self._record(schema)
        if avro_type == "enum":
            return self._remember(schema["name"], *_enum(schema["name"], schema["symbols"]))
        if avro_type == "fixed":
            return self._remember(schema["name"], *_fixed(schema["name"], int(schema["size"])))
        if avro_type == "array":
            return _array(*self._compile(schema["items"]))
        if avro_type == "map":
            return _map(*self._compile(schema["values"]))
        return self._compile(avro_type)

    def _named(self, name: str) -> tuple[Encode, Decode]:
        """A type by its name: it may be the one that is being compiled, so it is looked up when it is
        used."""
        encoders, decoders = self._encoders, self._decoders
        return (
            lambda value, out: encoders[name](value, out),
            lambda data, at: decoders[name](data, at),
        )

    def _remember(self, name: str, encode: Encode, decode: Decode) -> tuple[Encode, Decode]:
        self._encoders[name], self._decoders[name] = encode, decode
        return encode, decode

    def _record(self, schema: Any) -> tuple[Encode, Decode]:
        name = schema["name"]
        fields = [(one["name"], *self._compile(one["type"])) for one in schema["fields"]]
        known = frozenset(field for field, _, _ in fields)

        def encode(value: Any, out: bytearray) -> None:
            if not isinstance(value, dict):
                raise Mismatch(f"{name}: expected an object, found {_shown(value)}")
            for field, write, _ in fields:
                if field not in value:
                    raise Mismatch(f"{name}: the field {field} is missing")
                try:
                    write(value[field], out)
                except Mismatch as error:
                    raise Mismatch(f"{field}: {error}") from None
            if len(value) > len(known):
                extra = ", ".join(sorted(map(str, value.keys() - known)))
                raise Mismatch(f"{name} has no field {extra}")

        def decode(data: bytes, at: int) -> tuple[Any, int]:
            found = {}
            for field, _, read in fields:
                found[field], at = read(data, at)
            return found, at

        return self._remember(name, encode, decode)

    def _union(self, schema: list[Any]) -> tuple[Encode, Decode]:
        names = [_branch(one) for one in schema]
        branches = [self._compile(one) for one in schema]
        numbers = {name: number for number, name in enumerate(names)}
        wanted = " or ".join("null" if name == "null" else f'{{"{name}": ...}}' for name in names)

        def encode(value: Any, out: bytearray) -> None:
            if value is None and "null" in numbers:
                append_varint(out, numbers["null"])
                return
            if isinstance(value, dict) and len(value) == 1:
                ((name, inner),) = value.items()
                number = numbers.get(name)
                if number is not None:
                    append_varint(out, number)
                    branches[number][0](inner, out)
                    return
            raise Mismatch(f"expected {wanted}, found {_shown(value)}")

        def decode(data: bytes, at: int) -> tuple[Any, int]:
            number, at = read_varlong(data, at)
            if not 0 <= number < len(names):
                raise Mismatch(f"a union of {len(names)} has no branch {number}")
            value, at = branches[number][1](data, at)
            return (None if names[number] == "null" else {names[number]: value}), at

        return encode, decode


def _branch(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    avro_type = schema["type"]
    if avro_type in ("record", "error", "enum", "fixed"):
        return str(schema["name"])
    return avro_type if isinstance(avro_type, str) else _branch(avro_type)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Numbers


def _integer(name: str, bits: int) -> Encode:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not int:
            raise Mismatch(f"expected {name}, found {_shown(value)}")
        if not low <= value <= high:
            raise Mismatch(f"{value} is out of range for {name}")
        append_varint(out, value)

    return encode


def _real(name: str, form: struct.Struct) -> tuple[Encode, Decode]:
    size = form.size

    def encode(value: Any, out: bytearray) -> None:
        if isinstance(value, str) and value in _SPECIAL:
            value = _SPECIAL[value]
        elif type(value) not in (int, float) or value in (math.inf, -math.inf):
            raise Mismatch(f"expected {name}, found {_shown(value)}")
        try:
            out += form.pack(value)
        except OverflowError:
            raise Mismatch(f"{value} is out of range for {name}") from None

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        value = form.unpack_from(data, at)[0]
        if math.isfinite(value):
            return value, at + size
        return ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"), at + size

    return encode, decode


def _encode_null(value: Any, out: bytearray) -> None:
    if value is not None:
        raise Mismatch(f"expected null, found {_shown(value)}")


def _encode_boolean(value: Any, out: bytearray) -> None:
    if type(value) is not bool:
        raise Mismatch(f"expected boolean, found {_shown(value)}")
    out.append(value)


# Text and bytes


def _encode_string(value: Any, out: bytearray) -> None:
    if type(value) is not str:
        raise Mismatch(f"expected string, found {_shown(value)}")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise Mismatch("a string with half of a surrogate pair") from None
    append_varint(out, len(data))
    out += data


def _as_bytes(value: Any, name: str) -> bytes:
    if type(value) is not str:
        raise Mismatch(f"expected {name} as a string, found {_shown(value)}")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise Mismatch(f"{name}: each character stands for a byte, up to \\u00ff") from None


def _encode_bytes(value: Any, out: bytearray) -> None:
    data = _as_bytes(value, "bytes")
    append_varint(out, len(data))
    out += data


def _get_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_varlong(data, at)
    if length < 0 or at + length > len(data):
        raise Mismatch("the bytes end before the value does")
    return data[at : at + length], at + length


def _decode_string(data: bytes, at: int) -> tuple[Any, int]:
    found, at = _get_bytes(data, at)
    return found.decode(), at


def _decode_bytes(data: bytes, at: int) -> tuple[Any, int]:
    found, at = _get_bytes(data, at)
    return found.decode("latin-1"), at


def _fixed(name: str, size: int) -> tuple[Encode, Decode]:
    def encode(value: Any, out: bytearray) -> None:
        data = _as_bytes(value, name)
        if len(data) != size:
            raise Mismatch(f"{name} has {size} bytes, found {len(data)}")
        out += data

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise Mismatch("the bytes end before the value does")
        return data[at : at + size].decode("latin-1"), at + size

    return encode, decode


def _enum(name: str, symbols: list[str]) -> tuple[Encode, Decode]:
    numbers = {symbol: number for number, symbol in enumerate(symbols)}

    def encode(value: Any, out: bytearray) -> None:
        number = numbers.get(value) if isinstance(value, str) else None
        if number is None:
            raise Mismatch(f"{name} has no symbol {_shown(value)}")
        append_varint(out, number)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        number, at = read_varlong(data, at)
        if not 0 <= number < len(symbols):
            raise Mismatch(f"{name} has no symbol {number}")
        return symbols[number], at

    return encode, decode


# Arrays and maps


def _blocks(data: bytes, at: int) -> tuple[int, int]:
    """How many items the block at `at` has; 0 at the end."""
    count, at = read_varlong(data, at)
    if count < 0:
        count = -count
        _, at = read_varlong(data, at)
    if count > max(MAX_EMPTY_ITEMS, len(data) - at):
        raise Mismatch(f"a block of {count} items in {len(data) - at} bytes")
    return count, at


def _array(put: Encode, get: Decode) -> tuple[Encode, Decode]:
    def encode(value: Any, out: bytearray) -> None:
        if not isinstance(value, list):
            raise Mismatch(f"expected an array, found {_shown(value)}")
        if value:
            append_varint(out, len(value))
            for item in value:
                put(item, out)
        out.append(0)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _blocks(data, at)
            if count == 0:
                return found, at
            for _ in range(count):
                item, at = get(data, at)
                found.append(item)

    return encode, decode


def _map(put: Encode, get: Decode) -> tuple[Encode, Decode]:
    def encode(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise Mismatch(f"expected an object, found {_shown(value)}")
        if value:
            append_varint(out, len(value))
            for key, item in value.items():
                _encode_string(key, out)
                put(item, out)
        out.append(0)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _blocks(data, at)
            if count == 0:
                return found, at
            for _ in range(count):
                key, at = _decode_string(data, at)
                found[key], at = get(data, at)

    return encode, decode


_PRIMITIVES: dict[str, tuple[Encode, Decode]] = {
    "null": (_encode_null, lambda data, at: (None, at)),
    "boolean": (_encode_boolean, lambda data, at: (data[at] != 0, at + 1)),
    "int": (_integer("int", 32), read_varlong),
    "long": (_integer("long", 64), read_varlong),
    "float": _real("float", _FLOAT),
    "double": _real("double", _DOUBLE),
    "bytes": (_encode_bytes, _decode_bytes),
    "string": (_encode_string, _decode_string),
}
