"""The largest requests that Kafka's protocol allows, by the schema of each API.

Each list of a request in turn has very many elements, once all equal and once all different; every other list
has one element, or none. `broker_lag` measures how long they keep the broker busy, and a test counts the
elements that the broker takes up at a time.
"""

from __future__ import annotations

import dataclasses
import types
import typing
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

TOPIC, GROUP = "wide", "group"
PARTITIONS = 100
# Where another value would be refused before any work is done.
LEGAL: dict[str, Any] = {
    "resource_pattern_type": 3,  # literal
    "pattern_type_filter": 1,  # any
    "resource_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt",
    "salted_password": bytes(32),
    "entity_type": "user",
    "key": "producer_byte_rate",
    "value": 1000.0,
}
LEGAL_IN: dict[str, dict[str, Any]] = {
    "AclCreation": {"operation": 3, "permission_type": 3},
    "AlterClientQuotasRequest": {"validate_only": False},
}


class LargestRequest(NamedTuple):
    name: str
    request: Any


def largest_requests(
    schema: type, count: int, sequence: type[tuple[Any, ...]] = tuple
) -> Iterator[LargestRequest]:
    """Lists are of the type `sequence`. A request without lists is as large as it is."""
    for path in list(lists_in(schema)) or [()]:
        for distinct in (False, True):
            for others in (1, 0):
                name = ", ".join(
                    (
                        ".".join(path),
                        "all different" if distinct else "all equal",
                        "one of all else" if others else "none of all else",
                    )
                )
                yield LargestRequest(name, _Builder(count, distinct, others, sequence).build(schema, path))


def lists_in(schema: type, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths to all lists in a request, the nested ones too."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        element = _element(hints[field.name])
        if element is not None:
            yield (*path, field.name)
            if dataclasses.is_dataclass(element):
                yield from lists_in(typing.cast(type, element), (*path, field.name))


class _Builder(NamedTuple):
    count: int
    distinct: bool
    others: int
    sequence: type[tuple[Any, ...]]

    def build(self, schema: type, wide: tuple[str, ...], number: int = 0) -> Any:
        """A request in which the list at `wide` has `count` elements, and every other list `others`."""
        hints = typing.get_type_hints(schema)
        values: dict[str, Any] = {}
        for field in dataclasses.fields(schema):
            hint = hints[field.name]
            element = _element(hint)
            if element is None:
                legal = LEGAL_IN.get(schema.__name__, {}).get(field.name, LEGAL.get(field.name))
                plain = _plain(hint)
                values[field.name] = (
                    _scalar(field.name, plain, number if self.distinct else 0)
                    if legal is None or not _is_a(plain, type(legal))
                    else legal
                )
                continue
            here = wide[:1] == (field.name,)
            deeper = wide[1:] if here else ()
            times = 1 if deeper else self.count if here else self.others
            values[field.name] = self.sequence(
                self.build(element, deeper, each)
                if dataclasses.is_dataclass(element)
                else _scalar(field.name, element, each if self.distinct else 0)
                for each in range(times)
            )
        return schema(**values)


def _element(hint: Any) -> Any:
    """What a list is made of; None if it is no list."""
    hint = _plain(hint)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


def _plain(hint: Any) -> Any:
    """The type of a field that may be null."""
    if typing.get_origin(hint) is types.UnionType or typing.get_origin(hint) is typing.Union:
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint


def _is_a(field_type: Any, wanted: type) -> bool:
    while hasattr(field_type, "__supertype__"):
        field_type = field_type.__supertype__
    return isinstance(field_type, type) and issubclass(field_type, wanted)


def _scalar(name: str, field_type: Any, number: int) -> Any:
    while hasattr(field_type, "__supertype__"):
        field_type = field_type.__supertype__
    if dataclasses.is_dataclass(field_type):
        return _Builder(1, False, 1, tuple).build(typing.cast(type, field_type), ())
    if issubclass(field_type, timedelta):
        second = timedelta(seconds=1)
        return second if field_type is timedelta else field_type.parse(second)
    if issubclass(field_type, bool):
        return name == "validate_only"
    if issubclass(field_type, int):
        if name == "acks":
            return field_type(-1)
        if name.endswith(("type", "level")):
            return field_type(2) if "resource" in name else field_type(0)
        return field_type(number % PARTITIONS if "partition" in name or "index" in name else 0)
    if issubclass(field_type, float):
        return field_type(0.0)
    if issubclass(field_type, uuid.UUID):
        return uuid.UUID(int=number)
    if issubclass(field_type, bytes):
        return b""
    if issubclass(field_type, str):
        stem = GROUP if "group" in name else "retention.ms" if "config" in name else TOPIC
        if "principal" in name:
            stem = f"User:{TOPIC}"
        return field_type(f"{stem}-{number}" if number else stem)
    return field_type()
