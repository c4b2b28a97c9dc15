"""What remains of one batch.

A batch stays as it is, byte for byte, if all its records stay. Otherwise it is written anew with the records
that do:
same base offset, same last offset and same sequence numbers, so that offsets keep their meaning and the log
still tells which sequence a producer wrote last. Records keep their bytes; only the records section is
compressed again.

A batch of which nothing remains is dropped, unless it is needed as a bare header: the last batch of a
producer that the broker still remembers (it holds the last sequence and epoch), and the last batch of the
whole cleaned part.

Tombstones and markers must stay for `delete.retention.ms` after they were first cleaned, so that a reader on
its way through the log still meets them. The first cleaning writes the time from which they may go into the
batch (attribute bit 6, the delete horizon takes the place of the base timestamp, the records' relative
timestamps follow); a cleaning after that time removes them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from millstream.storage.cleaning.batch_records import marked_spans, plain_records, record_spans
from millstream.storage.cleaning.cleaned_transactions import CleanedTransactions
from millstream.storage.cleaning.offset_map import Marks, OffsetMap
from millstream.wire.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
)
from millstream.wire.compression import compress
from millstream.wire.record_walk import RecordSpan, timestamp_delta
from millstream.wire.varint import varint

LastOfProducer = tuple[int, int]  # last offset of its data (-1: none in this epoch), epoch


class Remains(NamedTuple):
    """What to write instead of a batch. `batch` is None: nothing. It is the very object that came in: no
    change."""

    batch: memoryview | bytearray | None
    max_timestamp: int
    records: int


NOTHING = Remains(None, NO_TIMESTAMP, 0)


class RecordFilter:
    __slots__ = (
        "delete_retention_ms",
        "map_end",
        "marks",
        "newest",
        "now_ms",
        "producers",
        "transactions",
        "upper",
    )

    def __init__(
        self,
        newest: OffsetMap,
        map_end: int,
        marks: Marks,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastOfProducer],
        upper: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """`map_end`: the map knows every key written from the first dirty offset up to here (exclusive), and
        `marks` where each was written last. `upper`: where the cleanable part of the log ends."""
        self.newest = newest
        self.map_end = map_end
        self.marks = marks
        self.transactions = transactions
        self.producers = producers
        self.upper = upper
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms

    def apply(self, header: BatchHeader, last: int, batch: memoryview) -> Remains:
        """`last`: the batch's last offset, which the caller knows already. A batch without any of the `marks`
        need not come here: nothing of it would remain."""
        attributes = header.attributes
        may_go = False
        if attributes & (TRANSACTIONAL | CONTROL):
            may_go = self.transactions.may_go(header, batch)
        if not header.record_count:
            return self._emptied(header, last, batch)
        if not attributes & CONTROL and (may_go or not self.marks.may_keep(header.base_offset, last)):
            return self._emptied(header, last, batch)
        horizon = header.base_timestamp if attributes & DELETE_HORIZON else None
        passed = horizon is not None and horizon <= self.now_ms
        if attributes & CONTROL:
            if may_go and passed:
                return self._emptied(header, last, batch)
            if may_go and horizon is None:
                return self._rewritten(header, plain_records(header, batch), None, self._new_horizon())
            return _unchanged(header, batch)
        if header.base_offset >= self.map_end:
            return _unchanged(header, batch)
        data = plain_records(header, batch)
        kept = self._survivors(header, last, data, keep_tombstones=not passed)
        if not kept:
            return self._emptied(header, last, batch)
        starts_clock = last < self.map_end and horizon is None and not all([span[4] for span in kept])
        if len(kept) == header.record_count and not starts_clock:
            return _unchanged(header, batch)
        return self._rewritten(header, data, kept, self._new_horizon() if starts_clock else None)

    def _survivors(
        self, header: BatchHeader, last: int, data: bytes, *, keep_tombstones: bool
    ) -> list[RecordSpan]:
        base_offset = header.base_offset
        marks = self.marks.of_records(base_offset, last)
        if marks is not None and len(marks) == header.record_count:
            # One offset a record, and all of them were looked at when the keys were learned.
            kept = marked_spans(header, data, marks)
            return kept if keep_tombstones else [span for span in kept if span[4]]
        found = record_spans(header, data)
        if last < self.map_end:
            return self.newest.survivors(base_offset, found, keep_tombstones)
        judged = [span for span in found if base_offset + span[2] < self.map_end]
        return self.newest.survivors(base_offset, judged, keep_tombstones) + found[len(judged) :]

    def _new_horizon(self) -> int:
        return self.now_ms + self.delete_retention_ms

    def _emptied(self, header: BatchHeader, last: int, batch: memoryview) -> Remains:
        """No record remains: a bare header if somebody needs it, else nothing."""
        if last + 1 != self.upper and not self._is_last_of_producer(header):
            return NOTHING
        if not header.record_count:
            return _unchanged(header, batch)
        bare = bytearray(HEADER_SIZE)
        attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
        _write_header(
            bare,
            header,
            attributes=attributes,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=header.max_timestamp,
            count=0,
        )
        return Remains(bare, header.max_timestamp, 0)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Does the broker's memory of a producer rest on this batch?"""
        if header.producer_id < 0:
            return False
        known = self.producers.get(header.producer_id)
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return header.last_offset == last_offset
        return bool(header.attributes & CONTROL) and header.producer_epoch == epoch

    def _rewritten(
        self, header: BatchHeader, data: bytes, kept: list[RecordSpan] | None, horizon: int | None
    ) -> Remains:
        """The batch with only the records in `kept` (None: all), and with a new delete horizon if there is
        one."""
        if kept is None:
            kept = record_spans(header, data)
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if attributes & LOG_APPEND_TIME:
            newest = header.max_timestamp  # one time for all records; their own are not looked at
            body = _join(data, kept)
        elif horizon is None:
            newest = base_timestamp + max([timestamp_delta(data, span[0])[0] for span in kept])
            body = _join(data, kept)
        else:
            newest, body = _moved(data, kept, base_timestamp, horizon)
        if horizon is not None:
            attributes |= DELETE_HORIZON
            base_timestamp = horizon
        codec = attributes & CODEC_MASK
        fresh = bytearray(HEADER_SIZE)
        fresh += compress(codec, body) if codec else body
        _write_header(
            fresh,
            header,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=newest,
            count=len(kept),
        )
        return Remains(fresh, newest, len(kept))


def _unchanged(header: BatchHeader, batch: memoryview) -> Remains:
    return Remains(batch, header.max_timestamp, header.record_count)


def _join(data: bytes, kept: list[RecordSpan]) -> bytes:
    """The bytes of these records; neighbours are copied together."""
    parts = []
    start, stop = kept[0][0], kept[0][1]
    for first, end, _, _, _ in kept:
        if first > stop:
            parts.append(data[start:stop])
            start = first
        stop = end
    parts.append(data[start:stop])
    return b"".join(parts)


def _moved(data: bytes, kept: list[RecordSpan], base: int, new_base: int) -> tuple[int, bytes]:
    """The records with timestamps relative to another base; the newest timestamp and the bytes."""
    out = bytearray()
    newest = NO_TIMESTAMP
    for start, stop, _, _, _ in kept:
        delta, at, behind = timestamp_delta(data, start)
        newest = max(newest, base + delta)
        moved = varint(base + delta - new_base)
        out += varint(1 + len(moved) + stop - behind)  # attributes, timestamp, the rest
        out += data[at - 1 : at]
        out += moved
        out += data[behind:stop]
    return newest, bytes(out)


def _write_header(
    batch: bytearray,
    old: BatchHeader,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> None:
    """The header of a rewritten batch: offsets, epochs and sequence are the old one's."""
    HEADER.pack_into(
        batch,
        0,
        old.base_offset,
        len(batch) - LENGTH_END,
        old.leader_epoch,
        old.magic,
        0,
        attributes,
        old.last_offset_delta,
        base_timestamp,
        max_timestamp,
        old.producer_id,
        old.producer_epoch,
        old.base_sequence,
        count,
    )
    struct.pack_into(">I", batch, CRC_START - 4, crc_of(batch))
