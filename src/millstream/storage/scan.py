"""Reading a segment's batches one after the other and believing none of them: the heart of recovery.

Each batch must have a sound header, lie wholly in the file, have the right checksum and an offset behind the
one before. The first that does not ends the log. On the way, everything that is derived from batches is
rebuilt: indexes, newest timestamp, leader epochs, producers, aborted transactions.

Speed comes from large reads into one buffer and from checking batches where they lie in it: one unpack and
one checksum over a memoryview each.
"""

from __future__ import annotations

import os
import zlib
from struct import Struct
from typing import NamedTuple

from millstream.storage.checkpoints import FormatError
from millstream.storage.epochs import EpochCache
from millstream.storage.producers import REMEMBERED, ProducerTable
from millstream.storage.segment import Segment
from millstream.wire.batch import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAX_SEQUENCE,
    TRANSACTIONAL,
    crc_of,
    read_header,
)
from millstream.wire.checksum import crc32c

CHUNK = 4 << 20
_HEADER = Struct(">qiibIhi8xqqhi4x")  # all but base timestamp and record count


class ScanEnd(NamedTuple):
    position: int  # up to here the file is sound
    next_offset: int
    problem: str | None  # why the scan ended there, if not at the end of the file


def scan(
    segment: Segment,
    position: int,
    expected: int,
    interval: int,
    epochs: EpochCache,
    producers: ProducerTable,
) -> ScanEnd:
    """Check the batches from `position` on; `expected` is the lowest offset that may stand there."""
    fd = segment.acquire()
    try:
        return _scan(fd, segment, position, expected, interval, epochs, producers)
    finally:
        segment.release()


def _scan(
    fd: int,
    segment: Segment,
    position: int,
    expected: int,
    interval: int,
    epochs: EpochCache,
    producers: ProducerTable,
) -> ScanEnd:
    size = os.fstat(fd).st_size
    buffer = bytearray(min(CHUNK, max(size - position, 1)))
    view = memoryview(buffer)
    unpack = _HEADER.unpack_from
    by_id = producers.by_id
    index, time_index = segment.index, segment.time_index
    unindexed, newest, newest_offset = segment.unindexed, segment.max_timestamp, segment.max_timestamp_offset
    last_epoch = epochs.latest
    problem: str | None = None
    while problem is None and position < size:
        filled = os.preadv(fd, [view], position)
        at, last_start = 0, filled - HEADER_SIZE
        while at <= last_start:
            (
                base,
                length,
                epoch,
                magic,
                crc,
                attributes,
                delta,
                timestamp,
                producer_id,
                producer_epoch,
                sequence,
            ) = unpack(view, at)
            total = length + LENGTH_END
            stop = at + total
            if (
                stop > filled
                or magic != MAGIC
                or total < HEADER_SIZE
                or base < expected
                or delta < 0
                or crc32c(view[at + CRC_START : stop]) != crc
            ):
                break
            last = base + delta
            if timestamp > newest:
                newest, newest_offset = timestamp, last
            if unindexed > interval:
                index.append(last, position)
                time_index.append(newest, newest_offset)
                unindexed = 0
            unindexed += total
            if epoch != last_epoch:
                epochs.assign(epoch, base)
                last_epoch = epoch
            if producer_id >= 0:
                producer = by_id.get(producer_id)
                if (
                    producer is None
                    or producer.epoch != producer_epoch
                    or sequence < 0
                    or (
                        attributes >= TRANSACTIONAL
                        and (attributes & CONTROL or producer.txn_first_offset < 0)
                    )
                ):
                    aborted = producers.replay(read_header(view, at), view[at:stop])
                    if aborted is not None:
                        segment.txn_index.append(aborted)
                else:
                    recent = producer.recent
                    recent.append((sequence, (sequence + delta) & MAX_SEQUENCE, last, timestamp, delta))
                    if len(recent) > 64:  # trimmed now and then, and at the end
                        del recent[:-REMEMBERED]
                    producer.timestamp = timestamp
            expected = last + 1
            at = stop
            position += total
        problem, wanted = _judge(segment, view[at:filled], filled, position, size, expected)
        if wanted > len(buffer):
            buffer = bytearray(wanted)
            view = memoryview(buffer)
    for producer in by_id.values():
        producer.settle()
    segment.unindexed, segment.max_timestamp, segment.max_timestamp_offset = unindexed, newest, newest_offset
    return ScanEnd(position, expected, problem)


def _judge(
    segment: Segment, rest: memoryview, filled: int, position: int, size: int, expected: int
) -> tuple[str | None, int]:
    """Why did the walk stop at `position`? (problem, bytes needed there): a batch may simply reach over the
    buffer."""
    if position == size:
        return None, 0
    if len(rest) < HEADER_SIZE:
        if position + HEADER_SIZE > size or not filled:
            return f"{size - position} bytes are less than a batch header", 0
        return None, 0
    header = read_header(rest)
    if header.magic != MAGIC or header.size < HEADER_SIZE:
        _refuse_old_format(segment, rest, header.length)
        return "there is no batch header", 0
    if position + header.size > size:
        return f"a batch of {header.size} bytes is cut off", 0
    if header.size > len(rest):
        return None, header.size
    if crc_of(rest[: header.size]) != header.crc:
        return "a batch has a wrong checksum", 0
    return f"a batch has offsets {header.base_offset} to {header.last_offset} where {expected} is due", 0


def _refuse_old_format(segment: Segment, data: memoryview, length: int) -> None:
    """Batches of format v0 and v1 are not damage: a log that holds them must not be cut, but converted
    first."""
    total = length + LENGTH_END
    plausible = len(data) > 16 and data[16] in (0, 1) and 26 <= total <= len(data)
    if plausible and zlib.crc32(data[16:total]) == int.from_bytes(data[12:16], "big"):
        raise FormatError(
            f"{segment.path} holds records of the old format v{data[16]}, which is not supported"
        )
