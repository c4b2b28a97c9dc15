"""Deleting from the old end of a log: by age, by size, by request.

Whole segments go, oldest first, and only below the high watermark. If all of them are too old, even the
active one, it is rolled first, so that the log keeps its end offset in an empty segment.

A deleted segment's files are renamed `*.deleted` at once and unlinked after `file.delete.delay.ms` by the
`Reaper`; a fetch that is being sent keeps its file either way.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING

from millstream.storage.files import storage_error
from millstream.storage.segment import Segment
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.storage.log import PartitionLog

logger = logging.getLogger(__name__)


def advance_start(log: PartitionLog, offset: int) -> int:
    """Records below `offset` are gone for readers (DeleteRecords); their segments go at the next cleaning."""
    if offset > log.high_watermark or offset < 0:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"cannot delete up to {offset} in {log.name}: the high watermark is {log.high_watermark}",
        )
    if offset > log.start_offset:
        log.start_offset = offset
        log.epochs.truncate_start(offset)
    return log.start_offset


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Apply retention.ms, retention.bytes and the start offset; how many segments went."""
    config = log.config
    count = 0
    if config.delete:
        count = max(_too_old(log, now_ms), _too_many_bytes(log))
    count = max(count, _below_start(log))
    return drop_oldest(log, count, now_ms) if count else 0


def _droppable(log: PartitionLog) -> list[Segment]:
    """The segments that retention may consider, oldest first: all below the high watermark, and not an empty
    active one. An older one may be empty too, where compaction left nothing of it."""
    count = bisect_right(log.bases, log.high_watermark, lo=1) - 1  # closed ones that end at or below it
    segments = log.segments[:count]
    if count == len(log.bases) - 1 and log.active.size and log.high_watermark >= log.end_offset:
        segments.append(log.active)
    return segments


def _too_old(log: PartitionLog, now_ms: int) -> int:
    keep_ms = log.config.retention_ms
    count = 0
    if keep_ms >= 0:
        for segment in _droppable(log):
            if now_ms - segment.newest_or_mtime() <= keep_ms:
                break
            count += 1
    return count


def _too_many_bytes(log: PartitionLog) -> int:
    limit = log.config.retention_bytes
    surplus = log.size - limit
    count = 0
    if limit >= 0 and surplus >= 0:
        for segment in _droppable(log):
            surplus -= segment.size
            if surplus < 0:
                break
            count += 1
    return count


def _below_start(log: PartitionLog) -> int:
    return sum(1 for segment in log.segments[:-1] if segment.end_offset <= log.start_offset)


def drop_oldest(log: PartitionLog, count: int, now_ms: int) -> int:
    if count >= len(log.segments):
        log.roll(now_ms)  # keeps the end offset
        count = len(log.segments) - 1
    dropped = 0
    try:
        for segment in log.segments[:count]:
            log.reaper.add(now_ms + log.config.file_delete_delay_ms, segment.doom())
            dropped += 1
    except OSError as error:
        raise storage_error(f"delete old segments of {log.name}", error) from error
    finally:
        if dropped:
            log.forget_oldest(dropped)
    logger.info("%s: deleted %d old segments, the log now starts at %d", log.name, dropped, log.start_offset)
    return dropped
