"""The records that a task sends, on their way to record batches: Kafka Streams' RecordCollector.

Records are collected in lists, one per topic, or come as columns; at the end of a range the encoder of
`wire.arrow` makes batches of them, without a Python object per record. A few are sooner written one by one
(`plain_records`), and so are all while the encoder is being compiled. A few may also leave as records
(`take_few`): what several tasks have for a partition is one batch then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.client.producer import Batch
from millstream.streams.operators.base import Headers
from millstream.streams.runtime.plain_records import (
    FEW,
    NoSuchPartition,
    by_partition,
    in_batches,
    loops_are_there,
)
from millstream.streams.stores.base import LogRecord
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.wire.arrow.encode import Rows

_BATCH_BYTES = 512 * 1024
_FEW_BYTES = 16 << 10
# What is too large for the topic, the broker refuses.
_ANY_SIZE = 1 << 31


class RecordCollector:
    """What a task sends, by topic, until its range is done."""

    def __init__(self) -> None:
        self._topics: defaultdict[str, _TopicRecords] = defaultdict(_TopicRecords)

    def __len__(self) -> int:
        return sum(len(records) for records in self._topics.values())

    @property
    def size(self) -> int:
        """Bytes of values, about."""
        return sum(records.size for records in self._topics.values())

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int | None,
    ) -> None:
        self._topics[topic].add(key, value, timestamp, headers, partition)

    def send_columns(
        self, topic: str, keys: pa.Array, values: pa.Array, stamps: Any, window_bytes: int = 0
    ) -> None:
        """Many records without headers: Arrow arrays of bytes (or text), and their timestamps."""
        from millstream.wire.arrow.encode import Rows

        self._topics[topic].add_rows(Rows(values, keys, timestamps=stamps, key_suffix=window_bytes))

    def send_changes(self, changelog: str, changes: Sequence[LogRecord], partition: int) -> None:
        """Many records for a changelog."""
        if not changes:
            return
        if len(changes) < FEW or not loops_are_there():
            for key, value, timestamp in changes:
                self._topics[changelog].add(key, value, max(timestamp, 0), (), partition)
        else:
            self._topics[changelog].add_lists(
                [change[0] for change in changes],
                [change[1] for change in changes],
                np.maximum(np.array([change[2] for change in changes], np.int64), 0),
                None,
                [partition] * len(changes),
            )

    def take_few(
        self, partition_count: Callable[[str], int], turn: int
    ) -> dict[TopicPartition, list[Record]]:
        """The records of topics that have only a few, and are to be left out of `batches` from now on."""
        found: dict[TopicPartition, list[Record]] = {}
        for topic, records in list(self._topics.items()):
            if records.in_lists and len(records) < FEW and records.plain_bytes <= _FEW_BYTES:
                found |= _by_partition(topic, records, partition_count, turn)
                del self._topics[topic]
        return found

    def batches(
        self, partition_count: Callable[[str], int], turn: int, transactional: bool
    ) -> Iterator[tuple[TopicPartition, Batch]]:
        """Finished batches and where each goes; records without key and partition begin at partition
        `turn`."""
        for topic, records in self._topics.items():
            if records.in_lists and (len(records) < FEW or not loops_are_there()):
                for where, plain in _by_partition(topic, records, partition_count, turn).items():
                    for some in in_batches(plain, _BATCH_BYTES):
                        yield where, encode_batch(some, transactional=transactional)
            else:
                yield from _in_columns(topic, records, partition_count, turn, transactional)

    def clear(self) -> None:
        self._topics.clear()


def _by_partition(
    topic: str, records: _TopicRecords, partition_count: Callable[[str], int], turn: int
) -> dict[TopicPartition, list[Record]]:
    try:
        return by_partition(
            topic, partition_count(topic), records.rows(), turn=turn, batch_bytes=_BATCH_BYTES
        )
    except NoSuchPartition as error:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, str(error)) from None


def _in_columns(
    topic: str,
    records: _TopicRecords,
    partition_count: Callable[[str], int],
    turn: int,
    transactional: bool,
) -> Iterator[tuple[TopicPartition, memoryview]]:
    from millstream.wire.arrow.encode import BadRow, Encoder

    encoder = Encoder(
        partition_count,
        batch_bytes=_BATCH_BYTES,
        largest_record=_ANY_SIZE,
        transactional=transactional,
        first_turn=turn,
    )
    try:
        for rows in records.close():
            for encoded in encoder.encode(rows, topic):
                yield encoded.topic_partition, encoded.batch
    except BadRow as error:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, str(error)) from None


class _TopicRecords:
    """The records of one topic, in order."""

    __slots__ = ("_count", "_rows", "headers", "keys", "partitions", "stamps", "values")

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self._count = 0
        self._start()

    def _start(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.stamps: list[int] = []
        self.headers: list[Headers] | None = None
        self.partitions: list[int | None] | None = None

    def __len__(self) -> int:
        return self._count + len(self.keys)

    @property
    def size(self) -> int:
        closed = sum(int(rows.value.nbytes) for rows in self._rows)
        return closed + sum(len(value) for value in self.values if value is not None)

    @property
    def plain_bytes(self) -> int:
        """Of keys and values in lists."""
        return sum(len(each) for column in (self.keys, self.values) for each in column if each is not None)

    @property
    def in_lists(self) -> bool:
        """Whether none of them are columns yet."""
        return not self._rows

    def rows(self) -> Iterator[tuple[bytes | None, bytes | None, int, Headers, int | None]]:
        """Those in lists."""
        headers = repeat(()) if self.headers is None else self.headers
        partitions = repeat(None) if self.partitions is None else self.partitions
        return zip(self.keys, self.values, self.stamps, headers, partitions, strict=False)

    def add(
        self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None
    ) -> None:
        if headers and self.headers is None:
            self.headers = [()] * len(self.keys)
        if partition is not None and self.partitions is None:
            self.partitions = [None] * len(self.keys)
        self.keys.append(key)
        self.values.append(value)
        self.stamps.append(timestamp)
        if self.headers is not None:
            self.headers.append(headers)
        if self.partitions is not None:
            self.partitions.append(partition)

    def add_rows(self, rows: Rows) -> None:
        self.close()
        self._rows.append(rows)
        self._count += len(rows)

    def add_lists(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        stamps: Any,
        headers: Sequence[Headers] | None,
        partitions: Sequence[int | None] | None,
    ) -> None:
        from millstream.wire.arrow import HEADERS
        from millstream.wire.arrow.encode import Rows

        key_array, value_array = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
        if isinstance(key_array, pa.ChunkedArray) or isinstance(value_array, pa.ChunkedArray):
            # More than two gigabytes, the limit of an array.
            half = len(keys) // 2
            for some in (slice(0, half), slice(half, None)):
                self.add_lists(
                    keys[some],
                    values[some],
                    stamps[some],
                    None if headers is None else headers[some],
                    None if partitions is None else partitions[some],
                )
            return
        self.add_rows(
            Rows(
                value_array,
                key_array,
                None if headers is None else pa.array(headers, HEADERS),
                partition=None if partitions is None else pa.array(partitions, pa.int32()),
                timestamps=stamps,
            )
        )

    def close(self) -> list[Rows]:
        """All records, in order, as columns."""
        if self.keys:
            collected = self.keys, self.values, np.array(self.stamps, np.int64), self.headers, self.partitions
            self._start()
            self.add_lists(*collected)
        return self._rows
