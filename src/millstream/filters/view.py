"""A record as an expression sees it: text and trees are made of its bytes when they are needed, once."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Decode = Callable[[bytes], Any]

_UNREAD = object()


def _json_reader() -> Decode:
    try:
        import orjson
    except ImportError:  # the tools alone do without the services' libraries
        return json.loads
    return orjson.loads


read_json = _json_reader()


class View:
    """`record` has topic, partition, offset, timestamp, key, value and headers (pairs of name and bytes). Key
    and value are bytes or None, or what a decoder has made of them already."""

    __slots__ = ("_key", "_read_key", "_read_value", "_value", "record")

    def __init__(self, record: Any, read_key: Decode, read_value: Decode) -> None:
        self.record = record
        self._read_key = read_key
        self._read_value = read_value
        self._value = _UNREAD
        self._key = _UNREAD

    def value_tree(self) -> Any:
        found = self._value
        if found is _UNREAD:
            found = self._value = _tree(self.record.value, self._read_value)
        return found

    def key_tree(self) -> Any:
        found = self._key
        if found is _UNREAD:
            found = self._key = _tree(self.record.key, self._read_key)
        return found

    def value_text(self) -> str | None:
        raw = self.record.value
        return None if raw is None else as_text(raw)

    def key_text(self) -> str | None:
        raw = self.record.key
        return None if raw is None else as_text(raw)

    def header(self, name: str) -> str | None:
        for known, value in reversed(self.record.headers):
            if known == name:
                return None if value is None else as_text(value)
        return None


def _tree(raw: Any, read: Decode) -> Any:
    if type(raw) is not bytes:
        return raw
    try:
        return read(raw)
    except (ValueError, RecursionError):
        return None


def as_text(found: Any) -> str:
    """How a value reads: text as it is, the rest as JSON would have it."""
    if type(found) is str:
        return found
    if isinstance(found, bytes | bytearray | memoryview):
        return str(bytes(found), "utf-8", "replace")
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, dict | list | tuple):
        return json.dumps(found, ensure_ascii=False, default=as_text)
    return str(found)


def plain(found: Any) -> Any:
    """What a decoder may give (bytes, decimals, dates, ids) as something that can be compared."""
    if found is None or isinstance(found, str | bool | int | float | list | dict):
        return found
    if isinstance(found, Decimal):
        return float(found)
    return found.isoformat() if hasattr(found, "isoformat") else as_text(found)


def to_number(text: str) -> int | float | None:
    try:
        return int(text) if len(text) < 20 else float(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return None
