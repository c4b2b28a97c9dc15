"""Putting a new segment into a living log, in place of the ones it was made from.

The steps, each of which leaves a folder from which the log loads whole (swap_recovery.py):

    1  *.cleaned -> *.swap       .log first; from the last of these renames on, the new segment is the truth
    2  old files -> *.deleted    unlinked after file.delete.delay.ms
    3  *.swap -> final names     .log first

All are renames in one folder, on the log's own thread. Between two steps the folder is synced, by another
thread: a power failure may keep any of the names that were not, whatever their order. Who reads an old
segment at the second step holds its file and reads on; the next read finds the new one. Offsets, start and
end of the log stay what they were.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from millstream.storage.cleaning.cleaned_segment import (
    CLEANED,
    SEGMENT_SUFFIXES,
    SWAP,
    Replacement,
    remove_files,
)
from millstream.storage.files import remove_quietly, sync_path
from millstream.storage.segment import LOG, Segment, file_stem

if TYPE_CHECKING:
    from millstream.storage.log import PartitionLog


class LogChanged(Exception):
    """The log is not what it was when the cleaning began: truncated, shortened or closed."""


def find(log: PartitionLog, old: list[int]) -> int:
    """Where in the log these segments stand, one after the other. LogChanged if they do not, or one is the
    active one."""
    try:
        first = log.bases.index(old[0])
    except ValueError:
        raise LogChanged(f"{log.name} no longer has a segment {old[0]}") from None
    if log.closed or log.bases[first : first + len(old)] != old or first + len(old) >= len(log.bases):
        raise LogChanged(f"the segments of {log.name} are not what they were")
    return first


def replace_segments(log: PartitionLog, replacement: Replacement, now_ms: int) -> Segment:
    """All three steps at once, in this thread."""
    announce(log, replacement)
    sync_path(log.folder)
    segment = exchange_segments(log, replacement, now_ms)
    sync_path(log.folder)
    name_finally(segment)
    return segment


def announce(log: PartitionLog, replacement: Replacement) -> None:
    """The first step."""
    find(log, replacement.old)
    base_offset = replacement.new.base_offset
    try:
        _rename_all(os.path.join(log.folder, file_stem(base_offset)), CLEANED, SWAP)
    except OSError:  # half of it as *.swap must not look complete to the next start
        remove_files(log.folder, base_offset, SWAP)
        raise


def exchange_segments(log: PartitionLog, replacement: Replacement, now_ms: int) -> Segment:
    """The second step: the log has the new segment, under the names of its *.swap files.

    OSError: the log goes on with the old segments, and the next start finishes or undoes what was begun.
    Until then it must not be cleaned again.
    """
    new = replacement.new
    try:
        first = find(log, replacement.old)
    except LogChanged:
        remove_files(log.folder, new.base_offset, SWAP)
        raise
    old = log.segments[first : first + len(replacement.old)]
    segment = Segment(log.folder, new.base_offset, log.pool, new.size)
    segment.suffix = SWAP
    segment.end_offset = old[-1].end_offset
    segment.created_ms = old[-1].created_ms
    segment.set_newest(new.max_timestamp, new.max_timestamp_offset)
    doomed: list[str] = []
    for each in old:
        doomed += each.doom()
    log.exchange(first, len(old), segment)
    log.reaper.add(now_ms + log.config.file_delete_delay_ms, doomed)
    return segment


def name_finally(segment: Segment) -> None:
    """The third step, unless the segment has gone meanwhile. OSError: the next start does it; until then the
    log must not be cleaned again."""
    if segment.suffix != SWAP:
        return
    try:
        _rename_all(segment.stem, SWAP, "")
    finally:
        if not os.path.exists(segment.path):  # an index that kept its old name is made anew
            segment.lose_suffix()


def _rename_all(stem: str, suffix: str, new_suffix: str) -> None:
    """.log first: recovery reads the order of these renames."""
    for file_type in SEGMENT_SUFFIXES:
        try:
            os.rename(stem + file_type + suffix, stem + file_type + new_suffix)
        except FileNotFoundError:
            if file_type == LOG:
                raise


def remove_leftovers(folder: str) -> None:
    """The *.cleaned files of a cleaning that was given up; unless there is a *.swap that only the next start
    can judge, for which it needs both."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    if not any(name.endswith(SWAP) for name in names):
        for name in names:
            if name.endswith(CLEANED):
                remove_quietly(os.path.join(folder, name))
