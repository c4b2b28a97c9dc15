"""Records without columns: read and written one at a time, in Python.

Columns (`wire.arrow`, `columns.blocks`) pay for many records; an answer or a commit of a few costs more in
them than the records themselves (benchmarks/streams_few_records.py), and with many partitions there are only
a few in each. And they need compiled loops, which a fresh installation does not have yet: while another
process compiles those, all records go this way instead of waiting (`spark.precompile`).

The records, and the partitions they go to, are the same either way (tests/streams/runtime/test_plain.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from millstream.client.fetch import Fetched, visible_batches
from millstream.streams.operators.base import Headers
from millstream.wire.murmur2 import partition_for
from millstream.wire.records import Record, iter_batches, iter_records
from millstream.wire.topic_partition import TopicPartition

FEW = 16
"""Fewer than this are done sooner one by one, as in `columns.plan`."""
_FEW_BYTES = 16 << 10
_LOOPS = "millstream.wire.arrow.encode_loops"
_RECORD_OVERHEAD = 16
_AT_A_TIME = 1000

Read = tuple[int, bytes | None, bytes | None, int, Headers]


def loops_are_there() -> bool:
    """Whether columns can be used now: not while another process of this machine compiles their loops."""
    if _LOOPS in sys.modules:
        return True
    from millstream.spark.precompile import is_compiling

    return not is_compiling()


# --- reading ------------------------------------------------------------------------------------------------


class PlainRecords:
    """Records of one partition, in its order; what `Inputs` needs of `columns.blocks.Records`."""

    __slots__ = ("_reads",)

    def __init__(self, reads: list[Read]) -> None:
        self._reads = reads

    def __len__(self) -> int:
        return len(self._reads)

    def __iter__(self) -> Iterator[Read]:
        return iter(self._reads)

    @property
    def last_offset(self) -> int:
        return self._reads[-1][0]

    @property
    def stamps(self) -> Any:
        return np.array([read[3] for read in self._reads], np.int64)

    def slice(self, first: int, count: int) -> PlainRecords:
        return PlainRecords(self._reads[first : first + count])


def holds_few(records: memoryview) -> bool:
    """Whether an answer is to be read here."""
    if len(records) > _FEW_BYTES:
        return False
    found = 0
    for header, _ in iter_batches(records):
        found += header.record_count
        if found >= FEW:
            return False
    return True


def read_plain(fetched: Fetched, first: int, until: int) -> Iterator[PlainRecords]:
    """The committed records of an answer with first <= offset < until, some at a time."""
    reads: list[Read] = []
    for _, batch in visible_batches(fetched, first, read_committed=True):
        reads += [
            (record.offset, record.key, record.value, record.timestamp, _readable(record.headers))
            for record in iter_records(batch)
            if first <= record.offset < until
        ]
        if len(reads) >= _AT_A_TIME:
            yield PlainRecords(reads)
            reads = []
    if reads:
        yield PlainRecords(reads)


def _readable(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    """Names that are not UTF-8 with marks in place of the bytes, as a column of text has them."""
    return tuple(
        (
            name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
            value,
        )
        for name, value in headers
    )


# --- writing ------------------------------------------------------------------------------------------------


class NoSuchPartition(Exception):
    """A record was sent to a partition that its topic does not have."""


def by_partition(
    topic: str,
    count: int,
    rows: Iterator[tuple[bytes | None, bytes | None, int, Headers, int | None]],
    *,
    turn: int,
    batch_bytes: int,
) -> dict[TopicPartition, list[Record]]:
    """Records of (key, value, timestamp, headers, partition) for a topic of `count` partitions; those without
    key and partition begin at partition `turn`, and go to the next one after `batch_bytes`."""
    of_partitions: dict[int, list[Record]] = {}
    taken = 0
    for key, value, timestamp, headers, partition in rows:
        if partition is not None:
            if not 0 <= partition < count:
                raise NoSuchPartition(f"partition {partition} of '{topic}', which has 0 to {count - 1}")
        elif key is not None:
            partition = partition_for(key, count)
        else:
            partition = turn % count
            taken += _RECORD_OVERHEAD + len(value or b"")
            if taken >= batch_bytes:
                turn, taken = turn + 1, 0
        of_partitions.setdefault(partition, []).append(Record(0, timestamp, key, value, headers))
    return {TopicPartition(topic, number): records for number, records in sorted(of_partitions.items())}


def in_batches(records: list[Record], batch_bytes: int) -> Iterator[list[Record]]:
    """A batch holds `batch_bytes`, or one record that is larger."""
    first = size = 0
    for index, record in enumerate(records):
        size += _size(record)
        if size > batch_bytes and index > first:
            yield records[first:index]
            first, size = index, _size(record)
    yield records[first:]


def _size(record: Record) -> int:
    """At most, but for headers."""
    return 2 * _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
