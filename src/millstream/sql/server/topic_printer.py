"""PRINT: the records of a topic as text, and what their bytes seem to be.

Keys and values each begin with all formats. Every record strikes those that cannot read it, and what is left
is announced whenever it has changed: `Key format: JSON or KAFKA_STRING`. The first of them shows the record.
Bytes alone do not tell an integer from four characters, so this is a guess. Windows are only guessed where
the bytes at the end of a key are times between 1970 and 2100: ksqlDB takes any eight bytes for one.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.serdes import RegistryRefused, RegistryUnreachable
from millstream.serdes.codec import Decoder
from millstream.sql.push import Raw

if TYPE_CHECKING:
    from millstream.serdes.client import SchemaRegistry
    from millstream.sql.results import ResultStream

_NOTHING = "¯\\_(ツ)_/¯ - no data processed"
_YEAR_2100 = 4_102_444_800_000
_STRUCTURED = ("AVRO", "PROTOBUF", "JSON_SR", "JSON")
_REGISTERED = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON": "JSON_SR"}

# The text of a value; a ValueError says that the format is another.
Reader = Callable[[bytes], str]


def _number(size: int, code: str) -> Reader:
    def read(data: bytes) -> str:
        if len(data) != size:
            raise ValueError
        return str(struct.unpack(code, data)[0])

    return read


def _json(data: bytes) -> str:
    text = data.decode()
    try:
        json.loads(text)
    except RecursionError:  # nested more deeply than Python goes; a text then
        raise ValueError("nested too deeply") from None
    return text


def _time(data: bytes) -> int:
    found = int.from_bytes(data, "big", signed=True)
    if not 0 <= found < _YEAR_2100:
        raise ValueError
    return found


def _windowed(inner: Reader) -> Reader:
    def read(data: bytes) -> str:
        if len(data) <= 8:
            raise ValueError
        return f"[{inner(data[:-8])}@{_time(data[-8:])}/-]"

    return read


def _session(inner: Reader) -> Reader:
    def read(data: bytes) -> str:
        if len(data) <= 16:
            raise ValueError
        end, start = _time(data[-16:-8]), _time(data[-8:])
        if start > end:
            raise ValueError
        return f"[{inner(data[:-16])}@{start}/{end}]"

    return read


def _registered(decoder: Decoder, format_: str) -> Reader:
    def read(data: bytes) -> str:
        try:
            found = decoder.decode_with_schema(data)
        except (RegistryRefused, RegistryUnreachable) as error:
            raise ValueError from error
        if found is None or _REGISTERED[found.schema.type] != format_:
            raise ValueError
        return json.dumps(found.value, default=_shown, ensure_ascii=False)

    return read


def _shown(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def formats(registry: SchemaRegistry | None, *, is_key: bool) -> dict[str, Reader]:
    """All that a key or a value may be, in the order in which they are tried and named."""
    found: dict[str, Reader] = {}
    if registry is not None:
        decoder = Decoder(registry)
        found |= {name: _registered(decoder, name) for name in ("AVRO", "PROTOBUF", "JSON_SR")}
    plain: dict[str, Reader] = {
        "KAFKA_INT": _number(4, ">i"),
        "KAFKA_BIGINT": _number(8, ">q"),
        "KAFKA_DOUBLE": _number(8, ">d"),
        "KAFKA_STRING": bytes.decode,
    }
    found["JSON"] = _json
    if is_key:
        for name, windowed in (("SESSION", _session), ("HOPPING", _windowed), ("TUMBLING", _windowed)):
            found |= {f"{name}({inner})": windowed(read) for inner, read in plain.items()}
    return found | plain


class _Side:
    """Keys or values: the formats that could read all of them so far."""

    def __init__(self, label: str, readers: dict[str, Reader]) -> None:
        self._label, self._readers = label, readers
        self._seen, self._announced = False, ""

    def text(self, data: bytes | None) -> str:
        if data is None:
            return "<null>"
        self._seen = True
        shown: dict[str, str] = {}
        for name, read in list(self._readers.items()):
            try:
                shown[name] = read(data)
            except ValueError:
                del self._readers[name]
        if not shown:
            return _mixed(data)
        text = shown.get("KAFKA_STRING", "")
        own = next(iter(shown))
        # Four letters could be an integer, but are not shown as one.
        return text if own not in _STRUCTURED and text.isprintable() and text else shown[own]

    def news(self) -> str | None:
        """What to say about the format, if that has changed."""
        found = " or ".join(self._readers) or "MIXED" if self._seen else _NOTHING
        if found == self._announced:
            return None
        self._announced = found
        return f"{self._label} format: {found}"


def _mixed(data: bytes) -> str:
    """Text as text, all else as characters and bytes in hex."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02X}" for byte in data)


class TopicPrinter:
    """Stands where a topology would: gets the records of the topic."""

    def __init__(self, result: ResultStream, every: int, limit: int | None, registry: Any) -> None:
        self._result, self._every, self._left, self._seen = result, every, limit, 0
        self._key = _Side("Key", formats(registry, is_key=True))
        self._value = _Side("Value", formats(registry, is_key=False))

    def deliver(self, _topic: str, partition: int, _offset: int, record: Raw) -> None:
        self._seen += 1
        if (self._seen - 1) % self._every or self._left == 0:
            return
        key, value = self._key.text(record.key), self._value.text(record.value)
        for news in (self._key.news(), self._value.news()):
            if news is not None:
                self._result.put((news,))
        at = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(record.timestamp / 1000))
        self._result.put(
            (
                f"rowtime: {at}.{record.timestamp % 1000:03} Z, key: {key}, value: {value}, "
                f"partition: {partition}",
            )
        )
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._result.end("Limit Reached")

    def tick(self) -> None:
        pass

    def size(self) -> int:
        return 0

    def close(self) -> None:
        pass
