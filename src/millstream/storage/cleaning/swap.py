"""Putting a new segment into a living log, in place of the ones it was made from.

The steps, each of which leaves a folder from which the log loads whole (leftovers.py):

    1  *.cleaned -> *.swap       .log first; from the last of these renames on, the new segment is the truth
    2  old files -> *.deleted    unlinked after file.delete.delay.ms
    3  *.swap -> final names     .log first

All are renames in one folder, done in one go on the log's own thread. Who reads an old segment at that moment
holds its file and reads on; the next read finds the new one. Offsets, start and end of the log stay what they
were.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from millstream.storage.cleaning.cleaned_segment import CLEANED, KINDS, SWAP, Replacement, remove_files
from millstream.storage.files import remove_quietly
from millstream.storage.segment import LOG, Segment

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
    """Put the *.cleaned files of `replacement` in place.

    OSError: the log goes on with the old segments, and the next start finishes or undoes what was begun.
    Until then it must not be cleaned again.
    """
    first = find(log, replacement.old)
    old = log.segments[first : first + len(replacement.old)]
    new = replacement.new
    segment = Segment(log.folder, new.base_offset, log.pool, new.size)
    segment.end_offset = old[-1].end_offset
    segment.created_ms = old[-1].created_ms
    segment.set_newest(new.max_timestamp, new.max_timestamp_offset)
    try:
        _rename_all(segment.stem, CLEANED, SWAP)
    except OSError:  # half of it as *.swap must not look complete to the next start
        remove_files(log.folder, new.base_offset, SWAP)
        raise
    doomed: list[str] = []
    for each in old:
        doomed += each.doom()
    _rename_all(segment.stem, SWAP, "")
    log.exchange(first, len(old), segment)
    log.reaper.add(now_ms + log.config.file_delete_delay_ms, doomed)
    return segment


def _rename_all(stem: str, suffix: str, new_suffix: str) -> None:
    """.log first: recovery reads the order of these renames."""
    for kind in KINDS:
        try:
            os.rename(stem + kind + suffix, stem + kind + new_suffix)
        except FileNotFoundError:
            if kind == LOG:
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
