"""Cutting a log at its new end: what a follower does when its leader knows better.

The order matters for a crash in between: newest segments go first, and indexes are cut before the log file,
so that what remains is at any moment a valid log, whose indexes may say too little but never too much.

Everything derived from the log follows it: indexes, leader epochs, aborted transactions, and the producers,
which are rebuilt from the newest snapshot that is not behind the cut, and the batches after it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from millstream.storage.files import remove_quietly, storage_error
from millstream.storage.producer_replay import restore_producers
from millstream.storage.segment import OPEN_END, Segment

if TYPE_CHECKING:
    from millstream.storage.log import PartitionLog


def truncate_to(log: PartitionLog, offset: int) -> None:
    """Nothing at `offset` or later remains. A batch that reaches over it goes as a whole."""
    if offset >= log.end_offset:
        log.epochs.truncate_end(offset)
        return
    if offset < log.segments[0].base_offset:
        reset_at(log, offset)
        return
    log.generation += 1
    try:
        while log.segments[-1].base_offset >= offset and len(log.segments) > 1:
            log.reaper.add(_now_ms() + log.config.file_delete_delay_ms, log.segments[-1].doom())
            log.segments.pop()
            log.bases.pop()
        end = cut_segment(log.segments[-1], offset)
        finish(log, end)
    except OSError as error:
        raise storage_error(f"truncate {log.name}", error) from error


def cut_segment(segment: Segment, offset: int) -> int:
    """Cut one segment's files and make it the open end of its log. Returns the log's new end offset."""
    found = segment.find(offset) if segment.size else None
    end, position = offset, segment.size
    if found is not None:
        position, base, _ = found
        end = min(offset, base)
    segment.index.truncate(end)
    segment.time_index.truncate(end)
    segment.txn_index.truncate(end)
    os.ftruncate(segment.open_for_writing(), position)
    segment.size = position
    segment.end_offset = OPEN_END
    segment.learn_newest()
    last = segment.index.last()
    segment.unindexed = position - (last[1] if last else 0)
    return end


def reset_at(log: PartitionLog, offset: int) -> None:
    """Drop everything and start again, empty, at `offset`."""
    log.generation += 1
    try:
        for segment in reversed(log.segments):
            log.reaper.add(_now_ms() + log.config.file_delete_delay_ms, segment.doom())
        fresh = Segment(log.folder, offset, log.pool)
        fresh.created_ms = _now_ms()
        fresh.create()
        log.segments[:] = [fresh]
        log.bases[:] = [offset]
        log.start_offset = offset
        log.high_watermark = offset
        log.epochs.clear()
        while log.snapshots:
            remove_quietly(log.snapshot_path(log.snapshots.pop()))
        finish(log, offset)
    except OSError as error:
        raise storage_error(f"reset {log.name}", error) from error


def finish(log: PartitionLog, end: int) -> None:
    """Bring everything beside the segments to the new end."""
    log.become_shorter(end)
    log.epochs.truncate_end(end)
    while log.snapshots and log.snapshots[-1] > end:
        remove_quietly(log.snapshot_path(log.snapshots.pop()))
    log.snapshots[:] = restore_producers(log.folder, log.segments, log.producers, log.snapshots, end)
    log.producers.touch(_now_ms())
    log.epochs.save(log.folder, sync=False)
    log.producers_changed()


def _now_ms() -> int:
    return int(time.time() * 1000)
