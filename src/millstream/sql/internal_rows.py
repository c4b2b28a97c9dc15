"""How rows, keys and aggregates are written to stores and repartition topics: JSON, with what JSON lacks in
tagged objects.

    {"$d": "1.50"}      a decimal
    {"$b": "aGk="}      bytes
    {"$f": "NaN"}       a double that is no number
    {"$m": [[1, 2]]}    a map with other keys than text, or with a key that looks like a tag
    {"$w": [[...], 0, 9]}   a key in its window

Plain values take the fast way: orjson as it is. Only a row with something else in it is walked.
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

import orjson

from millstream.streams.serdes import Serde, serde
from millstream.streams.windows import Window, Windowed

_TAG = b'{"$'
_PLAIN = frozenset({int, str, bool, type(None)})


def _write(row: Any) -> bytes:
    for value in row:
        kind = type(value)
        # A double that is no number is unequal to itself, or stays infinite: JSON has neither.
        if kind not in _PLAIN and (kind is not float or value - value != 0):
            return orjson.dumps([_tagged(value) for value in row])
    try:
        return orjson.dumps(row)
    except TypeError:  # an integer beyond 64 bits, or text with half a surrogate pair
        return orjson.dumps([_tagged(value) for value in row])


def _read(data: bytes) -> Any:
    row = orjson.loads(data)
    if _TAG in data:
        return tuple([_untagged(value) for value in row])
    return tuple(row)


def _tagged(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$f": repr(value)}
    if kind is list or kind is tuple:
        return [_tagged(item) for item in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _tagged(item) for key, item in value.items()}
        return {"$m": [[_tagged(key), _tagged(item)] for key, item in value.items()]}
    if kind is Decimal:
        return {"$d": str(value)}
    if kind is bytes:
        return {"$b": base64.b64encode(value).decode()}
    raise TypeError(f"{kind.__name__} has no place in a row")


def _untagged(value: Any) -> Any:
    if type(value) is list:
        return [_untagged(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((tag, body),) = value.items()
        if tag == "$d":
            return Decimal(body)
        if tag == "$b":
            return base64.b64decode(body)
        if tag == "$f":
            return float(body)
        if tag == "$m":
            return {_untagged(key): _untagged(item) for key, item in body}
    return {key: _untagged(item) for key, item in value.items()}


def _write_key(key: Any) -> bytes:
    if type(key) is Windowed:
        row = [_tagged(value) for value in key.key]
        return orjson.dumps({"$w": [row, key.window.start, key.window.end]})
    return _write(key)


def _read_key(data: bytes) -> Any:
    if data.startswith(b'{"$w"'):
        row, start, end = orjson.loads(data)["$w"]
        return Windowed(tuple(_untagged(value) for value in row), Window(start, end))
    return _read(data)


def _row_serde() -> Serde:
    return ROWS


def _key_serde() -> Serde:
    return KEYS


ROWS = serde("sql row", _write, _read)
KEYS = serde("sql key", _write_key, _read_key)
