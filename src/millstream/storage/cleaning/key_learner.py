"""The first reading of a log: which offset each key was written at last.

Every batch is verified here. A batch with one record that is not compressed, which is what a producer without
linger writes, has its key at a known position behind the header and is not opened; all others are. Nothing is
called for each record but what hashes it, because this is the longest loop of compaction
(benchmarks/broker_compaction.py).

Where batches begin is recorded on the way, so that the second reading finds those it has to look at without
walking over the others.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import NamedTuple

from millstream.storage.cleaning.batch_records import collect_keys, plain_records
from millstream.storage.cleaning.cleaned_transactions import CleanedTransactions
from millstream.storage.cleaning.offset_map import Marks, OffsetMap
from millstream.storage.cleaning.segment_reader import OUTLINE, SegmentReader
from millstream.wire.batch import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    read_header,
)
from millstream.wire.checksum import crc32c
from millstream.wire.record_walk import FIRST_OF_TWO, ONE_BYTE_LENGTH, SECOND_OF_TWO

KEYS_AT_ONCE = 4096
MAX_SCANNED_CHUNKS = 50_000
MAX_SCANNED_BATCHES = 2_000_000  # 8 MB
ATTRIBUTES_LOW_AT = 22  # in a batch


class SingleLayout(NamedTuple):
    """A batch of one plain record up to the length of its key, if size, timestamp, offset and that length are
    numbers of one byte. The size takes one byte or two."""

    fields: (
        struct.Struct
    )  # those of OUTLINE, then two bytes of the size, timestamp, offset, length of the key
    key_at: int
    length: int  # of the batch, as its header gives it, without what the record's size says
    first_of_size: list[int]
    second_of_size: list[int]


# The second byte is the record's attributes, which say nothing yet.
SHORT_RECORD = SingleLayout(
    struct.Struct(OUTLINE.format + "5B"),
    HEADER_SIZE + 5,
    HEADER_SIZE - LENGTH_END + 1,
    ONE_BYTE_LENGTH,
    [0] * 256,
)
LONG_RECORD = SingleLayout(
    struct.Struct(OUTLINE.format + "2Bx3B"),
    HEADER_SIZE + 6,
    HEADER_SIZE - LENGTH_END + 2,
    FIRST_OF_TWO,
    SECOND_OF_TWO,
)


class ScannedChunk(NamedTuple):
    """What the second reading will find in a chunk of the dirty part."""

    taken: int  # bytes of whole batches
    first: int  # offset
    last: int
    records: int
    plain: bool  # every batch is one record with a value, not compressed, of no transaction
    starts: array[int] | None  # of each batch in the chunk, if each has one offset and none is missing


class KeyLearner:
    """Fills the map, and marks the batches that the second reading has to look at whatever their keys."""

    __slots__ = (
        "_first_dirty",
        "_keys",
        "_marks",
        "_newest",
        "_offsets",
        "_scanned_batches",
        "_transactions",
        "full_at",
        "scanned",
    )

    def __init__(
        self, newest: OffsetMap, marks: Marks, transactions: CleanedTransactions, first_dirty: int
    ) -> None:
        self._newest = newest
        self._marks = marks
        self._transactions = transactions
        self._first_dirty = first_dirty
        self._keys: list[bytes] = []
        self._offsets: list[int] = []
        self._scanned_batches = 0
        self.scanned: dict[tuple[int, int], ScannedChunk] = {}  # by base offset of the segment, and position
        self.full_at: int | None = None  # offset of the first record that found no room in the map

    def learn(self, reader: SegmentReader) -> int:
        """The next chunk; returns its size."""
        chunk = reader.read()
        keys, offsets = self._keys, self._offsets
        view = memoryview(chunk)
        filled, at, size = len(chunk), 0, HEADER_SIZE
        expected, end, first_dirty = reader.expected, reader.end, self._first_dirty
        first, records, plain = -1, 0, True
        starts: list[int] = []
        unpack = OUTLINE.unpack_from
        while at + HEADER_SIZE <= filled:
            base, length, magic, crc, attributes, delta, count = unpack(chunk, at)
            if count == 1 and base == expected >= first_dirty:
                many = self._learn_singles(chunk, view, at, expected, starts)
                if many is not None:
                    if first < 0:
                        first = base
                    at, expected, with_values = many
                    records += expected - base
                    plain = plain and with_values
                    if expected > end:
                        raise reader.wrong_offsets(starts[-1], base, expected - 1, base)
                    continue
            size = length + LENGTH_END
            if magic != MAGIC or size < HEADER_SIZE or delta < 0 or count < 0:
                raise reader.no_batch(at)
            stop = at + size
            if stop > filled:
                break
            last = base + delta
            if base < expected or last >= end:
                raise reader.wrong_offsets(at, base, last, expected)
            if crc32c(view[at + CRC_START : stop]) != crc:
                raise reader.wrong_checksum(at, base)
            if first < 0:
                first = base
            records += count
            starts.append(at)
            expected = last + 1
            start, at = at, stop
            if base < first_dirty and last < first_dirty:
                continue
            plain = False
            if attributes & ~LOG_APPEND_TIME or base < first_dirty:
                self._open(view[start:stop])
            else:
                collect_keys(read_header(chunk, start), chunk, keys, offsets, start + HEADER_SIZE, stop)
            if len(keys) >= KEYS_AT_ONCE:
                self._hand_over()
        if first >= first_dirty:
            self._remember(reader, ScannedChunk(at, first, expected - 1, records, plain, None), starts)
        reader.take(at, size, expected)
        self._hand_over()
        return at

    def _learn_singles(
        self, chunk: bytes, view: memoryview, at: int, expected: int, starts: list[int]
    ) -> tuple[int, int, bool] | None:
        """Learn the batches from `at` on that are one plain record each, without a missing offset. Returns
        where they end, the offset that is due there, and whether all have a value; None if there is none.

        What is unusual or wrong about the next batch is for the caller to find.
        """
        # Compared as bytes: the chunk may end here.
        layout = LONG_RECORD if chunk[at + HEADER_SIZE : at + HEADER_SIZE + 1] > b"\x7f" else SHORT_RECORD
        fields, key_at, header_length, first_of_size, second_of_size = layout
        keys = self._keys
        add_key, add_start, unpack = keys.append, starts.append, fields.unpack_from
        key_lengths = ONE_BYTE_LENGTH
        timestamp_type = chunk[at + ATTRIBUTES_LOW_AT] & LOG_APPEND_TIME
        filled, first = len(chunk), expected
        last_start = filled - fields.size
        with_values = True
        while at <= last_start:
            base, length, magic, crc, attributes, delta, count, low, high, timestamp, offset, key_length = (
                unpack(chunk, at)
            )
            stop = at + LENGTH_END + length
            key_start = at + key_at
            key_end = key_start + key_lengths[key_length]
            if (
                base != expected
                or magic != MAGIC
                or count != 1
                or delta
                or attributes != timestamp_type
                or length != header_length + first_of_size[low] + second_of_size[high]
                or timestamp > 0x7F
                or offset
                or key_end >= stop
                or stop > filled
                or crc32c(view[at + CRC_START : stop]) != crc
            ):
                break
            add_key(chunk[key_start:key_end])
            add_start(at)
            if chunk[key_end] == 1:  # the length of a null
                with_values = False
            expected += 1
            at = stop
        if expected == first:
            return None
        self._offsets.extend(range(first, expected))
        return at, expected, with_values

    def _remember(self, reader: SegmentReader, chunk: ScannedChunk, starts: list[int]) -> None:
        if len(self.scanned) >= MAX_SCANNED_CHUNKS:
            return
        single = len(starts) == chunk.last - chunk.first + 1
        if single and self._scanned_batches + len(starts) <= MAX_SCANNED_BATCHES:
            self._scanned_batches += len(starts)
            chunk = chunk._replace(starts=array("I", starts))
        self.scanned[reader.base, reader.position] = chunk

    def _open(self, batch: memoryview) -> None:
        """A batch of any other form."""
        header = read_header(batch)
        attributes = header.attributes
        if attributes & (TRANSACTIONAL | CONTROL):
            self._marks.look_at(header.last_offset)
            may_go = self._transactions.may_go(header, batch)
            if may_go or attributes & CONTROL:
                return
        keys, offsets = self._keys, self._offsets
        before = len(keys)
        collect_keys(header, plain_records(header, batch), keys, offsets)
        if header.base_offset < self._first_dirty:  # the last round ended inside this batch
            known = bisect_left(offsets, self._first_dirty, before)
            del keys[before:known], offsets[before:known]

    def _hand_over(self) -> None:
        keys, offsets = self._keys, self._offsets
        if self.full_at is None:
            taken = self._newest.learn(keys, offsets)
            if taken < len(keys):
                self.full_at = offsets[taken]
        keys.clear()
        offsets.clear()
