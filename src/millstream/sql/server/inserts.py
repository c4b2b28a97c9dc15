"""Rows that clients insert: INSERT VALUES, and the lines of /inserts-stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from millstream.client import ClientConfig, Cluster, Producer
from millstream.sql.catalog import Source
from millstream.sql.environment import Environment
from millstream.sql.errors import SqlError
from millstream.sql.formats.json_rows import converter
from millstream.sql.formats.values import DoesNotFit
from millstream.sql.insert_values import Inserted, column_type, record
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
                values[own] = converter(type_)(value)
            except DoesNotFit as error:
                raise SqlError(f"Can't coerce a field of {name} into type {type_}: {error}") from None
        self._send(record(self._source, values, self._environment))
