"""Records as connectors and transforms see them. A transform makes a new one and leaves the old one alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from millstream.connect.data.schema import Schema


class SchemaAndValue(NamedTuple):
    schema: Schema | None
    value: Any


class Header(NamedTuple):
    name: str
    schema: Schema | None
    value: Any


_Record = TypeVar("_Record", bound="Record")


@dataclass(slots=True, kw_only=True)
class Record:
    topic: str
    partition: int | None = None
    key_schema: Schema | None = None
    key: Any = None
    value_schema: Schema | None = None
    value: Any = None
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()

    def replace(self: _Record, **changes: Any) -> _Record:
        return replace(self, **changes)


@dataclass(slots=True, kw_only=True)
class SinkRecord(Record):
    """A record on its way out of Kafka. Where it comes from stays known when a transform renames its topic
    (KIP-793). `wire` is the record as it was in its topic, for the dead letters."""

    offset: int = -1
    timestamp_type: str = "CreateTime"
    original_topic: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None
    wire: Any = field(default=None, repr=False, compare=False)


@dataclass(slots=True, kw_only=True)
class SourceRecord(Record):
    """A record on its way into Kafka, and where in its source it was read."""

    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None
