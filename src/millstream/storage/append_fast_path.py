"""The fast paths of an append: one batch that needs no change, from a producer that is known or has no id; or
such batches as a leader has sent them.

A produced record set is nearly always just that. It is judged by one unpack, one checksum and one chain of
comparisons; offset and epoch are stamped into its first 16 bytes, and one pwrite puts it at the end of the
log. Everything else, right or wrong, is left to the full path (append.py), which gives the same answer to
every batch that this one takes:
tests/storage/test_append_fast_path.py sends random and hostile batches both ways. Worth its code by
benchmarks/broker_produce.py. A follower's (`append_follower_fast`) by benchmarks/cluster_produce.py.
"""

from __future__ import annotations

import os
from struct import Struct

from millstream.storage.files import write_all
from millstream.storage.validate import MAX_CODEC, stamp_time
from millstream.storage.writable_log import WritableLog
from millstream.wire.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    SMALLEST_RECORD,
    TRANSACTIONAL,
)
from millstream.wire.checksum import crc32c

# Base offset, length, leader epoch.
stamp = Struct(">qii").pack_into
_pwrite = os.pwrite
_unpack_header = HEADER.unpack_from
_PLAIN_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME


class FastAppendLog(WritableLog):
    __slots__ = ()

    def append_fast(self, batch: memoryview, header: tuple[int, ...], epoch: int, now_ms: int) -> int:
        """Append one batch that needs no change, from a producer that is known here; returns its first
        offset.

        `header` is what `wire.batch.HEADER` finds in it. -1 says that nothing was done, because the batch is
        not plain or not right: `append_leader` knows which.
        """
        (
            zero,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            base_timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            sequence,
            count,
        ) = (  # fmt: skip
            header
        )
        size = len(batch)
        if (
            length != size - LENGTH_END
            or magic != MAGIC
            or zero
            or delta < 0
            or count != delta + 1
            or (count * SMALLEST_RECORD > size - HEADER_SIZE and not attributes & CODEC_MASK)
            or size > self._fast_max_bytes
            or timestamp < base_timestamp
            or timestamp > now_ms + self._after_ms
            or base_timestamp < now_ms - self._before_ms
            or not 0 <= (attributes & ~TRANSACTIONAL) <= MAX_CODEC
            or crc32c(batch[CRC_START:]) != crc
        ):
            return -1
        producer = None
        if producer_id >= 0:
            producer = self._by_id.get(producer_id)
            if (
                producer is None
                or producer.next_sequence != sequence
                or producer.epoch != producer_epoch
                or sequence < 0
                or (producer.txn_first_offset < 0) is (attributes >= TRANSACTIONAL)
            ):
                return -1
        stamps_time = self.stamps_time
        if stamps_time:
            timestamp = now_ms
        active = self.active
        position = active.size
        base_offset = self.end_offset
        last_offset = base_offset + delta
        if (
            position + size > self._roll_size
            or timestamp > self._roll_time
            or now_ms > self._roll_clock
            or last_offset > self._roll_offset
        ):
            self._prepare(size, last_offset, timestamp, now_ms)
            active = self.active
            position = active.size
        if stamps_time:
            stamp_time(batch, attributes, now_ms)
        stamp(batch, 0, base_offset, length, epoch)
        try:
            fd = active.fd
            if fd < 0:
                fd = active.open_for_writing()
            active.used = True
            written = _pwrite(fd, batch, position)
            if written != size:
                write_all(fd, batch[written:], position + written)
        except OSError as error:
            raise self._undo_write(error) from error
        self._end_append(size, base_offset, delta, timestamp, epoch, producer, sequence, now_ms)
        return base_offset

    def append_follower_fast(self, batches: memoryview, now_ms: int) -> bool:
        """Store batches of a leader that are plain: whole, right behind each other and this log's end, of
        known producers in their epochs and without transactions. False says that nothing was done."""
        expected, at, end = self.end_offset, 0, len(batches)
        newest = -1
        found = []
        while end - at >= HEADER_SIZE:
            (
                base_offset, length, epoch, magic, crc, attributes, delta, _, timestamp, producer_id,
                producer_epoch, sequence, _,
            ) = _unpack_header(batches, at)  # fmt: skip
            size = length + LENGTH_END
            stop = at + size
            if (
                base_offset != expected
                or magic != MAGIC
                or size < HEADER_SIZE
                or stop > end
                or delta < 0
                or attributes & ~_PLAIN_ATTRIBUTES
                or crc32c(batches[at + CRC_START : stop]) != crc
            ):
                return False
            producer = None
            if producer_id >= 0:
                producer = self._by_id.get(producer_id)
                if producer is None or producer.epoch != producer_epoch:
                    return False
            if timestamp > newest:
                newest = timestamp
            found.append((size, base_offset, delta, timestamp, epoch, producer, sequence))
            expected = base_offset + delta + 1
            at = stop
        active = self.active
        position = active.size
        if (
            at != end
            or not found
            or self.closed
            or position + end > self._roll_size
            or newest > self._roll_time
            or now_ms > self._roll_clock
            or expected - 1 > self._roll_offset
        ):
            return False
        try:
            fd = active.fd
            if fd < 0:
                fd = active.open_for_writing()
            active.used = True
            written = _pwrite(fd, batches, position)
            if written != end:
                write_all(fd, batches[written:], position + written)
        except OSError as error:
            raise self._undo_write(error) from error
        for size, base_offset, delta, timestamp, epoch, producer, sequence in found:
            self._end_append(size, base_offset, delta, timestamp, epoch, producer, sequence, now_ms)
        return True
