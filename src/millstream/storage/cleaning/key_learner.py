"""The first reading of a log: which offset each key was written at last.

Every batch is verified here. A batch with one record that is not compressed, which is what a producer without
linger writes, has its key at a known position behind the header and is not opened; all others are. Nothing is
called for each record but what hashes it, because this is the longest loop of compaction
(benchmarks/broker_compaction.py).

Where batches begin is noted on the way, so that the second reading finds those it has to look at without
walking over the others.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import NamedTuple

from crc32c import crc32c

from millstream.storage.cleaning.batch_records import collect_keys
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

KEYS_AT_ONCE = 4096
MAX_NOTED_CHUNKS = 50_000
MAX_NOTED_BATCHES = 2_000_000  # 8 MB
# In a batch of one record: behind size (two bytes), attributes, time, offset, length.
KEY_AT = HEADER_SIZE + 6


class NotedChunk(NamedTuple):
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
        "_noted_batches",
        "_offsets",
        "_transactions",
        "full_at",
        "noted",
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
        self._noted_batches = 0
        self.noted: dict[tuple[int, int], NotedChunk] = {}  # by base offset of the segment, and position
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
            if count == 1 and not attributes & ~LOG_APPEND_TIME and size > KEY_AT:
                key_at = start + KEY_AT
                low, high, attributes, timestamp, offset_delta, key_length = chunk[
                    start + HEADER_SIZE : key_at
                ]
                if low < 0x80:
                    # The size has one byte, and everything behind it is one byte nearer.
                    timestamp, offset_delta, key_length = attributes, timestamp, offset_delta
                    key_at -= 1
                else:
                    low = low & 0x7F | high << 7
                key_end = key_at + (key_length >> 1)
                if (
                    high < 0x80
                    and not (low & 1 or offset_delta or key_length & 0x81)
                    and timestamp < 0x80
                    and key_at - 4 + (low >> 1) == stop
                    and key_end < stop
                    and base >= first_dirty
                ):
                    keys.append(chunk[key_at:key_end])
                    offsets.append(base)
                    if chunk[key_end] == 1:  # the length of a null
                        plain = False
                    continue
            plain = False
            self._open(view[start:stop])
            if len(keys) >= KEYS_AT_ONCE:
                self._hand_over()
        if first >= first_dirty:
            self._note(reader, NotedChunk(at, first, expected - 1, records, plain, None), starts)
        reader.take(at, size, expected)
        self._hand_over()
        return at

    def _note(self, reader: SegmentReader, chunk: NotedChunk, starts: list[int]) -> None:
        if len(self.noted) >= MAX_NOTED_CHUNKS:
            return
        single = len(starts) == chunk.last - chunk.first + 1
        if single and self._noted_batches + len(starts) <= MAX_NOTED_BATCHES:
            self._noted_batches += len(starts)
            chunk = chunk._replace(starts=array("I", starts))
        self.noted[reader.base, reader.position] = chunk

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
        collect_keys(header, batch, keys, offsets)
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
