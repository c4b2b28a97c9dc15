"""Functions between strings, bytes and numbers."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable
from typing import Any

from millstream.sql.casts import parse_base64
from millstream.sql.errors import EvaluationError
from millstream.sql.functions.table import Function, Overload, overload, scalar

_TEXT, _CONVERSIONS = "STRING", "CONVERSIONS"
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]")


def _ascii(text: str) -> bytes:
    return text.encode("ascii", "replace")


def _from_ascii(value: bytes) -> str:
    return value.decode("ascii", "replace")


def _unhex(text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError(f"not hex: {error}") from None


_TO_BYTES: dict[str, Callable[[str], bytes]] = {
    "hex": _unhex,
    "utf8": str.encode,
    "ascii": _ascii,
    "base64": parse_base64,
}
_FROM_BYTES: dict[str, Callable[[bytes], str]] = {
    "hex": lambda value: value.hex().upper(),
    "utf8": lambda value: value.decode("utf-8", "replace"),
    "ascii": _from_ascii,
    "base64": lambda value: base64.b64encode(value).decode(),
}


def _encoding(table: dict[str, Any], name: str) -> Any:
    found = table.get(name.lower())
    if found is None:
        raise EvaluationError(
            f"Unknown encoding type '{name}'. Supported formats are 'hex', 'utf8', 'ascii', and 'base64'."
        )
    return found


def _strip_hex(text: str) -> str:
    """`0x6b` and `X'6b'` are hex, too."""
    if text.startswith("0x"):
        return ("0" if len(text) % 2 else "") + text[2:]
    if len(text) > 2 and text[:2] in ("x'", "X'") and text.endswith("'"):
        return text[2:-1]
    return text


def _lenient_base64(text: str) -> bytes:
    """What is no base64 is skipped, and padding is not needed."""
    kept = _NOT_BASE64.sub(b"", text.encode().replace(b"-", b"+").replace(b"_", b"/"))
    if len(kept) % 4 == 1:
        kept = kept[:-1]
    return base64.b64decode(kept + b"=" * (-len(kept) % 4))


_ENCODE_IN: dict[str, Callable[[str], bytes]] = {
    "hex": lambda text: _unhex(_strip_hex(text)),
    "utf8": str.encode,
    "ascii": _ascii,
    "base64": _lenient_base64,
}
_ENCODE_OUT: dict[str, Callable[[bytes], str]] = _FROM_BYTES | {"hex": lambda value: value.hex()}


def _encode(text: str, source: str, target: str) -> str:
    source, target = source.lower(), target.lower()
    if source == target or source not in _ENCODE_IN or target not in _ENCODE_OUT:
        raise EvaluationError("Supported input and output encodings are: hex, utf8, ascii and base64")
    return _ENCODE_OUT[target](_ENCODE_IN[source](text))


def _number(code: str) -> Callable[..., Any]:
    big, little = struct.Struct(f">{code}"), struct.Struct(f"<{code}")

    def read(value: bytes | None, order: str | None = "BIG_ENDIAN") -> Any:
        chosen = {"BIG_ENDIAN": big, "LITTLE_ENDIAN": little}.get((order or "null").upper())
        if chosen is None:
            raise EvaluationError(
                f"Byte order must be BIG_ENDIAN or LITTLE_ENDIAN. Unknown byte order '{order}'."
            )
        if value is None:
            return None
        if len(value) != chosen.size:
            raise EvaluationError(f"Number of bytes must be equal to {chosen.size}, but found {len(value)}")
        return chosen.unpack(value)[0]

    return read


def _numbers(code: str, type_: str) -> tuple[Overload, ...]:
    return (
        overload(f"(BYTES value) -> {type_}", _number(code), own_nulls=True),
        overload(f"(BYTES value, VARCHAR byteOrder) -> {type_}", _number(code), own_nulls=True),
    )


_ORDER = " The order is BIG_ENDIAN, or LITTLE_ENDIAN as a second argument."

ROWS: list[Function] = [
    scalar(
        "encode",
        _TEXT,
        "A string in another encoding: hex, utf8, ascii or base64.",
        overload("(VARCHAR str, VARCHAR inputEncoding, VARCHAR outputEncoding) -> VARCHAR", _encode),
    ),
    scalar(
        "from_bytes",
        _TEXT,
        "Bytes as a string: hex, utf8, ascii or base64.",
        overload(
            "(BYTES value, VARCHAR encoding) -> VARCHAR",
            lambda value, encoding: _encoding(_FROM_BYTES, encoding)(value),
        ),
    ),
    scalar(
        "to_bytes",
        _TEXT,
        "The bytes of a string in hex, utf8, ascii or base64.",
        overload(
            "(VARCHAR value, VARCHAR encoding) -> BYTES",
            lambda value, encoding: _encoding(_TO_BYTES, encoding)(value),
        ),
    ),
    scalar("int_from_bytes", _CONVERSIONS, "An INT from 4 bytes." + _ORDER, *_numbers("i", "INT")),
    scalar("bigint_from_bytes", _CONVERSIONS, "A BIGINT from 8 bytes." + _ORDER, *_numbers("q", "BIGINT")),
    scalar("double_from_bytes", _CONVERSIONS, "A DOUBLE from 8 bytes." + _ORDER, *_numbers("d", "DOUBLE")),
]
