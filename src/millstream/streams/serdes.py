"""How keys and values of a topic or a store become bytes, and back.

    STRING, LONG, INTEGER, SHORT, DOUBLE, FLOAT, BYTES, BOOLEAN, UUID, VOID,    Kafka's own encodings (JSON:
    JSON, list_of(inner)                                                        as orjson writes it)
    time_windowed(key, size), session_windowed(key)            keys of windowed tables, as Kafka Streams
                                                               writes them
    avro(registry, schema), json_schema(...), protobuf(...)    by a schema registry

A serde is a pair of functions. `shared` says that what `read` gives may be kept and handed out twice because
nobody can change it: text, numbers, bytes. Stores keep the bytes of everything else, so that an aggregator
may change its aggregate in place, as in Kafka Streams, without changing what was sent before.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from millstream.streams.windows import FOREVER, Window, Windowed
from millstream.wire.varint import read_varint, varint

if TYPE_CHECKING:
    from millstream.serdes import SchemaRegistry

Write = Callable[[str, Any], bytes | None]
Read = Callable[[str, bytes | None], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Serde:
    """write(topic, value) and read(topic, data); both give None for None.

    `plain_write` and `plain_read` do the same without the topic and without None, where a serde can: the fast
    way.
    """

    name: str
    write: Write
    read: Read
    shared: bool = False
    plain_write: Callable[[Any], bytes] | None = None
    plain_read: Callable[[bytes], Any] | None = None
    made: tuple[Any, ...] | None = None
    """The function that made it and its arguments: that is what goes to another process."""
    window_bytes: int = 0
    """How many bytes behind a key are its window: the key alone decides the partition."""

    def __reduce__(self) -> tuple[Any, ...]:
        if self.made is not None:
            return (self.made[0], self.made[1:])
        return (
            Serde,
            (self.name, self.write, self.read, self.shared, self.plain_write, self.plain_read),
        )

    def writer(self, topic: str) -> Callable[[Any], bytes | None]:
        """For one topic, None included."""
        plain, write = self.plain_write, self.write
        if plain is not None:
            return lambda value: None if value is None else plain(value)
        return lambda value: None if value is None else write(topic, value)

    def reader(self, topic: str) -> Callable[[bytes | None], Any]:
        """For one topic, None included."""
        plain, read = self.plain_read, self.read
        if plain is not None:
            return lambda data: None if data is None else plain(data)
        return lambda data: None if data is None else read(topic, data)


def serde(
    name: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any], shared: bool = False
) -> Serde:
    """A serde of your own from two functions that need not care about None or the topic."""
    return Serde(
        name,
        lambda _topic, value: None if value is None else write(value),
        lambda _topic, data: None if data is None else read(data),
        shared,
        write,
        read,
        (serde, name, write, read, shared),
    )


def _built_in(name: str) -> Serde:
    return _BUILT_IN[name]


def _known(found: Serde) -> Serde:
    return replace(found, made=(_built_in, found.name))


def _number(name: str, layout: str) -> Serde:
    packed = struct.Struct(layout)
    pack, unpack = packed.pack, packed.unpack
    return serde(name, pack, lambda data: unpack(data)[0], shared=True)


def _boolean_read(data: bytes) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    raise ValueError(f"not a boolean: {data!r}")


def _bytes_write(value: Any) -> bytes:
    """`bytes(3)` would be three zeros."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"bytes are needed, not {type(value).__name__}")
    return bytes(value)


def _text_read(data: bytes) -> str:
    """What is not UTF-8 becomes U+FFFD, as Kafka's deserializer has it."""
    return data.decode("utf-8", "replace")  # by place: names take Python three times as long


STRING = _known(serde("string", str.encode, _text_read, shared=True))
BYTES = _known(serde("bytes", _bytes_write, bytes, shared=True))
LONG = _known(_number("long", ">q"))
INTEGER = _known(_number("integer", ">i"))
SHORT = _known(_number("short", ">h"))
DOUBLE = _known(_number("double", ">d"))
FLOAT = _known(_number("float", ">f"))
BOOLEAN = _known(serde("boolean", lambda value: b"\x01" if value else b"\x00", _boolean_read, shared=True))
UUID = _known(
    serde(
        "uuid", lambda value: str(value).encode(), lambda data: uuid.UUID(bytes(data).decode()), shared=True
    )
)
JSON = _known(serde("json", lambda value: orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), orjson.loads))


def _nothing_but_none(_value: Any) -> Any:
    raise ValueError("void has no value but None")


VOID = _known(serde("void", _nothing_but_none, _nothing_but_none, shared=True))

_BUILT_IN = {
    found.name: found
    for found in (STRING, BYTES, LONG, INTEGER, SHORT, DOUBLE, FLOAT, BOOLEAN, UUID, JSON, VOID)
}

_FIXED_SIZES = {"short": 2, "integer": 4, "float": 4, "long": 8, "double": 8, "uuid": 36}
_INT = struct.Struct(">i")
_NONE = _INT.pack(-1)
_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")


def list_of(inner: Serde) -> Serde:
    """Lists of what another serde takes, Nones included, in the format of Kafka's ListSerde: elements of one
    size have the places of Nones in front, others their length each."""
    size = _FIXED_SIZES.get(inner.name)

    def write(topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        items = [inner.write(topic, item) for item in value]
        if size is None:
            each = (_NONE if item is None else _INT.pack(len(item)) + item for item in items)
            return b"\x01" + _INT.pack(len(items)) + b"".join(each)
        gaps = [number for number, item in enumerate(items) if item is None]
        front = b"".join(_INT.pack(number) for number in (len(gaps), *gaps, len(items)))
        return b"\x00" + front + b"".join(item for item in items if item is not None)

    def read(topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        numbers, gaps = _Numbers(data), set[int]()
        if data[:1] == b"\x00" and size is not None:
            gaps = {numbers.next() for _ in range(numbers.next())}
        elif data[:1] != b"\x01":
            raise ValueError("not a list of this serde")
        found = []
        for number in range(numbers.next()):
            length = -1 if number in gaps else numbers.next() if data[:1] == b"\x01" else size or 0
            found.append(None if length < 0 else inner.read(topic, numbers.take(length)))
        return found

    return Serde(f"list of {inner.name}", write, read, made=(list_of, inner))


class _Numbers:
    """Reads through the bytes of a list."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 1

    def next(self) -> int:
        return int(_INT.unpack(self.take(4))[0])

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("a list ends too early")
        self._at += size
        return found


def time_windowed(key: Serde, size: int) -> Serde:
    """Key, then the window's start. The end is not written: it follows from the size."""

    def write(topic: str, value: Any) -> bytes | None:
        return (
            None if value is None else (key.write(topic, value.key) or b"") + _TIME.pack(value.window.start)
        )

    def read(topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        (start,) = _TIME.unpack(data[-8:])
        return Windowed(key.read(topic, data[:-8]), Window(start, min(start + size, FOREVER)))

    made = (time_windowed, key, size)
    return Serde(f"time-windowed {key.name}", write, read, key.shared, made=made, window_bytes=_TIME.size)


def session_windowed(key: Serde) -> Serde:
    """Key, then the session's end, then its start."""

    def write(topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        return (key.write(topic, value.key) or b"") + _TIMES.pack(value.window.end, value.window.start)

    def read(topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        end, start = _TIMES.unpack(data[-16:])
        return Windowed(key.read(topic, data[:-16]), Window(start, end))

    made = (session_windowed, key)
    return Serde(f"session-windowed {key.name}", write, read, key.shared, made=made, window_bytes=_TIMES.size)


def changes(value: Serde) -> Serde:
    """New and old value of a row on its way to another partition.

    As Kafka Streams writes them: one of the two alone followed by a byte that tells which (1 new, 0 old), or
    the new one's length (as in records: zigzag, seven bits a byte), both of them, and a 2.
    """

    def write(topic: str, change: Any) -> bytes | None:
        if change is None:
            return None
        new, old = value.write(topic, change[0]), value.write(topic, change[1])
        if new is None:
            return b"" if old is None else old + b"\x00"
        if old is None:
            return new + b"\x01"
        return varint(len(new)) + new + old + b"\x02"

    def read(topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        tag, body = data[-1], data[:-1]
        if tag == 1:
            return (value.read(topic, body), None)
        if tag == 0:
            return (None, value.read(topic, body))
        if tag != 2:
            raise ValueError(f"not a change: its last byte is {tag}")
        size, start = read_varint(body, 0)
        return (value.read(topic, body[start : start + size]), value.read(topic, body[start + size :]))

    return Serde(f"changes of {value.name}", write, read, made=(changes, value))


def _by_registry(
    schema_type: str, registry: SchemaRegistry, schema: str | None, is_key: bool, more: Any
) -> Serde:
    from millstream.serdes import Decoder, Encoder  # brings every schema language: only for those who use one

    encoder = Encoder(registry, schema, schema_type, **{"use_latest": schema is None, **more})
    decoder = Decoder(registry, reader=schema if schema_type == "AVRO" else None)
    return Serde(
        schema_type.lower(),
        lambda topic, value: encoder.encode(topic, value, key=is_key),
        lambda _topic, data: decoder.decode(data, key=is_key),
        made=(_by_registry, schema_type, registry, schema, is_key, more),
    )


def avro(registry: SchemaRegistry, schema: str | None = None, *, is_key: bool = False, **more: Any) -> Serde:
    """Avro by a registry; without a schema records are written with the newest one of their subject. `more`
    goes to `millstream.serdes.Encoder` (use_latest, strategy, ...)."""
    return _by_registry("AVRO", registry, schema, is_key, more)


def json_schema(
    registry: SchemaRegistry, schema: str | None = None, *, is_key: bool = False, **more: Any
) -> Serde:
    """JSON by a registry's JSON Schema."""
    return _by_registry("JSON", registry, schema, is_key, more)


def protobuf(
    registry: SchemaRegistry, schema: str | None = None, *, is_key: bool = False, **more: Any
) -> Serde:
    """Protobuf by a registry."""
    return _by_registry("PROTOBUF", registry, schema, is_key, more)
