"""Functions of JSON in strings. Numbers keep all their digits, as the text has them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from millstream.serdes.java_text import double_text
from millstream.sql import times
from millstream.sql.casts import java_text
from millstream.sql.errors import EvaluationError, SqlError
from millstream.sql.functions.table import Function, overload, scalar
from millstream.sql.types import Argument, ArrayType, Base, MapType, SqlType, StructType

_JSON = "JSON"
_MISSING = object()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)


def parse(text: str) -> Any:
    """The value at the beginning of a text; `_MISSING` if there is none."""
    stripped = text.lstrip(" \t\r\n")
    if not stripped:
        return _MISSING
    try:
        return _DECODER.raw_decode(stripped)[0]
    except (ValueError, RecursionError):
        raise EvaluationError(f"Invalid JSON format:{text}") from None


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def dump(value: Any) -> str:
    """A parsed value as JSON without spaces."""
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return f"[{','.join(map(dump, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote(key)}:{dump(each)}" for key, each in value.items()) + "}"
    return str(value)


def _is_json(text: str | None) -> bool:
    try:
        return text is not None and parse(text) is not _MISSING
    except EvaluationError:
        return False


_TOKENS: dict[Base, tuple[type, ...]] = {
    Base.INTEGER: (int,),
    Base.BIGINT: (int,),
    Base.DOUBLE: (Decimal,),
    Base.STRING: (str,),
    Base.BOOLEAN: (bool,),
}


def _array_contains(arguments: Sequence[Argument], result: SqlType) -> Callable[..., Any]:
    type_ = arguments[1]
    kinds = _TOKENS.get(type_.base, ()) if isinstance(type_, SqlType) else ()

    def contains(text: str | None, value: Any) -> bool | None:
        if text is None:
            return None
        try:
            items = parse(text)
        except EvaluationError:
            return False
        if not isinstance(items, list):
            return False
        if value is None:
            return None in items
        for item in items:
            # In Python True is an int; in JSON it is not.
            fits = isinstance(item, kinds) and isinstance(item, bool) is (bool in kinds)
            if fits and (float(item) if isinstance(item, Decimal) else item) == value:
                return True
        return False

    return contains


def _array_length(text: str) -> int | None:
    found = parse(text)
    return len(found) if isinstance(found, list) else None


def _concat(*texts: str | None) -> str | None:
    values: list[Any] = []
    for text in texts:
        found = _MISSING if text is None else parse(text)
        if found is _MISSING:
            return None
        values.append(found)
    if not values:
        return None
    if all(isinstance(value, dict) for value in values):
        merged: dict[str, Any] = {}
        for value in values:
            merged.update(value)
        return dump(merged)
    if len(values) == 1:
        return dump(values[0])
    joined: list[Any] = []
    for value in values:
        joined.extend(value if isinstance(value, list) else [value])
    return dump(joined)


@lru_cache(maxsize=512)
def path_tokens(path: str) -> tuple[str, ...]:
    """`$.a["b c"][0]` as its steps."""
    tokens: list[str] = []
    at = 1
    if not path.startswith("$"):
        raise EvaluationError(f"Invalid JSON path: '{path}'")
    while at < len(path):
        start = at + 1
        if path[at] == ".":
            at = _name_end(path, start, ":@_")
            tokens.append(path[start:at])
        elif path[at] == "[" and path[start : start + 1] == '"':
            token, at = _quoted(path, start + 1)
            tokens.append(token)
            if path[at : at + 1] != "]":
                raise EvaluationError(f"Invalid JSON path: '{path}'")
            at += 1
            continue
        elif path[at] == "[":
            at = _name_end(path, start, "_")
            tokens.append(path[start:at])
            if path[at : at + 1] != "]":
                raise EvaluationError(f"Invalid JSON path: '{path}'")
            at += 1
        else:
            raise EvaluationError(f"Invalid JSON path: '{path}'")
        if not tokens[-1]:
            raise EvaluationError(f"Invalid JSON path: '{path}'")
    return tuple(tokens)


def _name_end(path: str, at: int, also: str) -> int:
    while at < len(path) and (path[at].isalnum() or path[at] in also):
        at += 1
    return at


def _quoted(path: str, at: int) -> tuple[str, int]:
    token = ""
    while at < len(path) and path[at] != '"':
        if path[at] == "\\":
            at += 1
            if path[at : at + 1] not in ('"', "\\"):
                raise EvaluationError(f"Invalid JSON path: '{path}'")
        token += path[at]
        at += 1
    if at >= len(path):
        raise EvaluationError(f"Invalid JSON path: '{path}'")
    return token, at + 1


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dump(value)


def _extract(text: str, path: str) -> str | None:
    tokens = path_tokens(path)
    found = parse(text)
    if found is _MISSING:
        return "" if not tokens else None
    for token in tokens:
        if isinstance(found, list):
            if not token.isdecimal() or int(token) >= len(found):
                return None
            found = found[int(token)]
        elif isinstance(found, dict) and token in found:
            found = found[token]
        else:
            return None
    return _plain(found)


def _items(text: str) -> list[str]:
    found = parse(text)
    if not isinstance(found, list):
        raise EvaluationError(f"Invalid JSON format:{text}")
    return [dump(item) for item in found]


def _keys(text: str) -> list[str] | None:
    found = parse(text)
    return list(found) if isinstance(found, dict) else None


def _records(text: str) -> dict[str, str] | None:
    found = parse(text)
    if not isinstance(found, dict):
        return None
    return {key: _plain(value) for key, value in found.items()}


def _double(value: float) -> str:
    return double_text(value) if math.isfinite(value) else f'"{double_text(value)}"'


_PRINTERS: dict[Base, Callable[[Any], str]] = {
    Base.BOOLEAN: lambda value: "true" if value else "false",
    Base.INTEGER: str,
    Base.BIGINT: str,
    Base.DOUBLE: _double,
    Base.DECIMAL: lambda value: f"{value:f}",
    Base.STRING: quote,
    Base.BYTES: lambda value: f'"{base64.b64encode(value).decode()}"',
    Base.DATE: lambda value: f'"{times.format_date(value)}"',
    Base.TIME: lambda value: f'"{times.format_time(value)}"',
    Base.TIMESTAMP: lambda value: f'"{times.format_timestamp(value)}"',
}


def printer(type_: SqlType) -> Callable[[Any], str]:
    """The function that writes a value of a type as JSON: structs and maps with their keys in order."""
    if isinstance(type_, ArrayType):
        item = printer(type_.item)
        return _or_null(lambda value: f"[{','.join(map(item, value))}]")
    if isinstance(type_, MapType):
        key, element = java_text(type_.key), printer(type_.value)

        def show_map(value: dict[Any, Any]) -> str:
            named = sorted((key(name), each) for name, each in value.items())
            return "{" + ",".join(f"{quote(name)}:{element(each)}" for name, each in named) + "}"

        return _or_null(show_map)
    if isinstance(type_, StructType):
        fields = sorted((name, quote(name), printer(field)) for name, field in type_.fields)
        return _or_null(
            lambda value: (
                "{" + ",".join(f"{shown}:{show(value.get(name))}" for name, shown, show in fields) + "}"
            )
        )
    return _or_null(_PRINTERS[type_.base])


def _or_null(show: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "null" if value is None else show(value)


def _to_json(arguments: Sequence[Argument], result: SqlType) -> Callable[..., Any]:
    type_ = arguments[0]
    if type_ is None:
        return lambda value: "null"
    if not isinstance(type_, SqlType):
        raise SqlError("TO_JSON_STRING wants a value")
    return printer(type_)


ROWS: list[Function] = [
    scalar(
        "IS_JSON_STRING",
        _JSON,
        "Whether a string is JSON.",
        overload("(VARCHAR input) -> BOOLEAN", _is_json, own_nulls=True),
    ),
    scalar(
        "JSON_ARRAY_CONTAINS",
        _JSON,
        "Whether a JSON array has a value.",
        overload("(VARCHAR jsonArray, T val) -> BOOLEAN", factory=_array_contains, own_nulls=True),
    ),
    scalar(
        "JSON_ARRAY_LENGTH",
        _JSON,
        "The length of a JSON array; null for other JSON.",
        overload("(VARCHAR jsonArray) -> INT", _array_length),
    ),
    scalar(
        "JSON_CONCAT",
        _JSON,
        "Objects merged, the last value of a key counts; all else as one array. Null if an argument is.",
        overload("(VARCHAR... jsonStrings) -> VARCHAR", _concat, own_nulls=True),
    ),
    scalar(
        "extractjsonfield",
        _JSON,
        "The value at a path such as $.a[0], a string without its quotes; null if it is not there.",
        overload("(VARCHAR input, VARCHAR path) -> VARCHAR", _extract),
    ),
    scalar(
        "JSON_ITEMS",
        _JSON,
        "The items of a JSON array, each as JSON.",
        overload("(VARCHAR jsonItems) -> ARRAY<VARCHAR>", _items),
    ),
    scalar(
        "JSON_KEYS",
        _JSON,
        "The keys of a JSON object; null for other JSON.",
        overload("(VARCHAR jsonObj) -> ARRAY<VARCHAR>", _keys),
    ),
    scalar(
        "JSON_RECORDS",
        _JSON,
        "The entries of a JSON object: strings without their quotes, other values as JSON.",
        overload("(VARCHAR jsonObj) -> MAP<VARCHAR, VARCHAR>", _records),
    ),
    scalar(
        "TO_JSON_STRING",
        _JSON,
        "Any value as JSON; null as 'null'.",
        overload("(T input) -> VARCHAR", factory=_to_json, own_nulls=True),
    ),
]
