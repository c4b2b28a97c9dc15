"""Requests out of keyword arguments, responses as kio's objects: one `Exchange` per API and version.

A caller states the newest form of a request once, with plain lists, dicts and milliseconds. What an older
version does not have is left out, what the caller does not name gets the protocol's default if there is one.
"""

import dataclasses
import io
import struct
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from millstream.wire._kio import (
    api_key_map,
    entity_reader,
    entity_writer,
    load_request_schema,
    load_response_schema,
    schema_name_map,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.message_check import LONGEST_MS, message_checker
from millstream.wire.primitives import skip_tags

API_KEYS = {name: key for key, name in api_key_map.items()}
API_VERSIONS = API_KEYS["api_versions"]
# Answers up to this size are walked for impossible counts before kio makes room for them.
WALKED_FIRST = 1 << 18
NO_ID = uuid.UUID(int=0)

_HEADER = struct.Struct(">hhih")  # api, version, correlation id, length of the client id


class Exchange:
    """How to write one version of a request, and to read its answer."""

    __slots__ = (
        "_check",
        "_read",
        "_write",
        "flexible",
        "key",
        "name",
        "request",
        "response_tags",
        "version",
    )

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.key = API_KEYS[name]
        self.request: Any = load_request_schema(self.key, version)
        response: Any = load_response_schema(self.key, version)
        self.flexible = bool(self.request.__flexible__)
        # The answer to ApiVersions has no tags in its header: a client must be able to read it before it
        # knows versions.
        self.response_tags = bool(response.__flexible__) and self.key != API_VERSIONS
        self._write = entity_writer(self.request)
        self._read = entity_reader(response)
        self._check = message_checker(response)

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        self._write(out, build(self.request, fields))
        return out.getvalue()

    def decode(self, body: memoryview) -> Any:
        """The response in `body` (which begins after the correlation id)."""
        try:
            data = bytes(body[skip_tags(body, 0) :] if self.response_tags else body)
            if len(data) <= WALKED_FIRST:
                data = self._check(data)
            try:
                return self._read(data, 0)[0]
            except KeyError:  # a tagged field newer than kio, in an answer too long to have been walked
                return self._read(self._check(data), 0)[0]
        except (
            BaseException
        ) as error:  # kio has no common base for what bad bytes can raise, a Rust panic among it
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise KafkaError(
                ErrorCode.unknown_server_error,
                f"the broker's answer to {self.name} makes no sense ({reason})",
            ) from None


@cache
def exchange(name: str, version: int) -> Exchange:
    return Exchange(name, version)


def known_versions(name: str) -> tuple[int, int]:
    """Lowest and highest version of an API that this client can speak."""
    versions = schema_name_map[name]
    return min(versions), max(versions)


def request_header(key: int, version: int, correlation_id: int, client_id: bytes, flexible: bool) -> bytes:
    return (
        _HEADER.pack(key, version, correlation_id, len(client_id)) + client_id + (b"\0" if flexible else b"")
    )


# --- plain values into kio's dataclasses --------------------------------------------------------------------


def build(cls: Any, fields: Mapping[str, Any]) -> Any:
    """An object of `cls`, nested ones included, out of plain values."""
    return cls(**{name: convert(fields[name]) for name, convert in _converters(cls) if name in fields})


@cache
def _converters(cls: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((field.name, _converter(field)) for field in dataclasses.fields(cls))


def _period(value: timedelta | int) -> timedelta:
    """Milliseconds, or a period. One that is longer than kio's is the longest."""
    if isinstance(value, timedelta):
        return value
    return timedelta(milliseconds=max(-LONGEST_MS, min(value, LONGEST_MS)))


def _converter(field: "dataclasses.Field[Any]") -> Callable[[Any], Any]:
    kafka_type = field.metadata.get("kafka_type", "")
    if kafka_type.startswith("timedelta"):
        return _period
    if kafka_type == "uuid":
        return _each(field.type, lambda value: None if value == NO_ID else value)
    inner = _structure(field.type)
    if inner is None:
        return _each(field.type, lambda value: value)
    return _each(field.type, lambda value: build(inner, value))


def _each(declared: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`convert` applied to a value, or to each of a list if the field is one; None stays None."""
    if _is_list(declared):
        return lambda value: None if value is None else tuple(convert(item) for item in value)
    return lambda value: None if value is None else convert(value)


def _without_none(declared: Any) -> Any:
    if isinstance(declared, types.UnionType) or typing.get_origin(declared) is typing.Union:
        options = [option for option in typing.get_args(declared) if option is not type(None)]
        return options[0] if len(options) == 1 else declared
    return declared


def _is_list(declared: Any) -> bool:
    return typing.get_origin(_without_none(declared)) is tuple


def _structure(declared: Any) -> Any:
    declared = _without_none(declared)
    if typing.get_origin(declared) is tuple:
        declared = _without_none(typing.get_args(declared)[0])
    return declared if dataclasses.is_dataclass(declared) else None
