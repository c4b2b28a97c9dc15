"""Rows that clients insert: INSERT VALUES, and the lines of /inserts-stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from millstream.client import ClientConfig, Cluster, Producer
from millstream.sql.catalog import Source
from millstream.sql.environment import Environment
from millstream.sql.errors import EvaluationError, SqlError
from millstream.sql.formats.json_rows import converter
from millstream.sql.formats.values import DoesNotFit
from millstream.sql.insert_values import Inserted, column_type, record
from millstream.sql.times import parse_date, parse_time, parse_timestamp
from millstream.sql.types import ArrayType, Base, MapType, SqlType, StructType
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record


class RecordProducer:
    """One idempotent producer for all clients of a server. `written` is told each topic that it wrote to."""

    def __init__(self, client: ClientConfig, written: Callable[[str], None]) -> None:
        self._written = written
        self._cluster = Cluster(client)
        self._producer = Producer(self._cluster, create_topics=False)
        self._lock = threading.Lock()
        self._next = 0

    def send(self, inserted: Inserted) -> int:
        """Returns the record's offset."""
        with self._lock:
            count = len(self._cluster.topic(inserted.topic).partitions)
            if inserted.key is None:
                partition = self._next = (self._next + 1) % count
            else:
                partition = partition_for(inserted.key, count)
            made = Record(0, inserted.timestamp, inserted.key, inserted.value, ())
            offset = self._producer.send(inserted.topic, partition, [made]).offset
        self._written(inserted.topic)
        return offset

    def close(self) -> None:
        self._cluster.close()


def with_times(value: Any, type_: SqlType) -> Any:
    """Times and dates that are text, as the numbers that JSON has for them."""
    if isinstance(value, str):
        return _PARSERS[type_.base](value.strip()) if type_.base in _PARSERS else value
    if isinstance(value, list) and isinstance(type_, ArrayType):
        return [with_times(item, type_.item) for item in value]
    if isinstance(value, dict) and isinstance(type_, MapType):
        return {key: with_times(item, type_.value) for key, item in value.items()}
    if isinstance(value, dict) and isinstance(type_, StructType):
        types = {name.upper(): own for name, own in type_.fields} | dict(type_.fields)
        return {
            name: with_times(item, types.get(name) or types.get(name.upper()) or type_)
            for name, item in value.items()
        }
    return value


_PARSERS: dict[Base, Callable[[str], int]] = {
    Base.TIMESTAMP: parse_timestamp,
    Base.TIME: parse_time,
    Base.DATE: parse_date,
}


class RowInserter:
    """Objects of JSON into a source. Names of columns are found without regard to case."""

    def __init__(self, source: Source, environment: Environment, send: Callable[[Inserted], int]) -> None:
        self._source, self._environment, self._send = source, environment, send
        self._types = {one.name: one.type for one in source.schema.columns if one.namespace != "header"}

    def insert(self, row: Any) -> None:
        if not isinstance(row, dict):
            raise SqlError("a row has to be a JSON object")
        values = {}
        for name, value in row.items():
            own = name if name in self._types else name.strip("`").upper()
            type_ = column_type(self._source, own)
            try:
                values[own] = converter(type_)(with_times(value, type_))
            except (DoesNotFit, EvaluationError) as error:
                raise SqlError(f"Can't coerce a field of {name} into type {type_}: {error}") from None
        self._send(record(self._source, values, self._environment))
