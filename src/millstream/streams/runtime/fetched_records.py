"""The records of a fetch's answer: as columns, or one at a time where that is sooner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.client.fetch import Fetched, next_offset
from millstream.streams.columns.blocks import Records
from millstream.streams.runtime.plain_records import PlainRecords, holds_few, loops_are_there, read_plain

if TYPE_CHECKING:
    from millstream.wire.arrow import Chunk

SomeRecords = Records | PlainRecords
_ALL_OFFSETS = (1 << 63) - 1


def records_of(
    fetched: Fetched, first: int, until: int = _ALL_OFFSETS, *, chunk_bytes: int
) -> tuple[Iterator[SomeRecords], int]:
    """The committed records with first <= offset < until, decoded as they are asked for, and the offset after
    the answer; at least `first`."""
    if holds_few(fetched.records) or not loops_are_there():
        return read_plain(fetched, first, until), next_offset(fetched, first)
    from millstream.wire.arrow import Answer, Columns

    answer = Answer(fetched.records)
    after = answer.next_offset
    chunks = answer.chunks(
        first,
        until,
        read_committed=True,
        aborted=fetched.aborted,
        columns=Columns(headers=True),
        chunk_bytes=chunk_bytes,
    )
    return _records(chunks), first if after is None else max(first, after)


def _records(chunks: Iterator[Chunk]) -> Iterator[Records]:
    for chunk in chunks:
        yield Records.of(chunk)
