"""Which log should be cleaned, from where to where, and which of its segments become one. All pure.

    start ---- cleaned part ---- first dirty ---- dirty part ---- upper ---- not cleanable ---- end

A log is cleaned from its start up to `upper`, the base of the first segment that must not be touched: the
active one, the one that holds the last stable offset, or the first with a record younger than
`min.compaction.lag.ms`. How dirty it is, is the share of bytes between first dirty and upper in all bytes
below upper. It is due when that passes `min.cleanable.dirty.ratio`, or when its oldest dirty record is older
than `max.compaction.lag.ms`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from millstream.settings.log_config import MAX_LONG
from millstream.storage.index import MAX_RELATIVE

if TYPE_CHECKING:
    from millstream.storage.log import PartitionLog

# Segments that become one at a time: putting them in place takes the loop 0.1 ms for each.
MAX_JOINED_SEGMENTS = 32


@dataclass(frozen=True, slots=True)
class Dirt:
    """The state of one log, as far as cleaning is concerned."""

    first_dirty: int
    upper: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int  # how much too old the oldest dirty record is, 0 if none is

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.ratio > min_ratio)


def survey(log: PartitionLog, cleaned_to: int, now_ms: int) -> Dirt:
    """Look at a log that was cleaned up to `cleaned_to` (anything outside the log means: not at all)."""
    first_dirty = cleaned_to if log.start_offset <= cleaned_to <= log.end_offset else log.start_offset
    bases = log.bases
    dirty_from = max(bisect_right(bases, first_dirty) - 1, 0)
    stop = len(bases) - 1  # the active segment
    stable = log.last_stable_offset
    if stable < bases[stop]:
        stop = max(bisect_right(bases, stable) - 1, 0)
    config = log.config
    if config.min_compaction_lag_ms > 0:
        for number in range(dirty_from, stop):
            if log.segments[number].newest()[0] > now_ms - config.min_compaction_lag_ms:
                stop = number
                break
    overdue_ms = 0
    if config.max_compaction_lag_ms < MAX_LONG:
        times = [log.segments[number].first_timestamp() for number in range(dirty_from, len(bases) - 1)]
        oldest = min([time for time in times if time > 0], default=MAX_LONG)
        overdue_ms = max(0, now_ms - config.max_compaction_lag_ms - oldest)
    upper = max(bases[stop], first_dirty)
    segments = log.segments
    clean_bytes = sum(segment.size for segment in segments[:stop] if segment.base_offset < first_dirty)
    dirty_bytes = sum(segment.size for segment in segments[dirty_from:stop])
    if first_dirty >= bases[stop]:
        dirty_bytes = 0
    return Dirt(first_dirty, upper, clean_bytes, dirty_bytes, overdue_ms)


def dirtiest(candidates: Iterable[tuple[PartitionLog, Dirt]]) -> tuple[PartitionLog, Dirt] | None:
    """The log to clean next: of those that are due, the one with the largest dirty share."""
    best: tuple[PartitionLog, Dirt] | None = None
    for log, dirt in candidates:
        if dirt.is_due(log.config.min_cleanable_dirty_ratio) and (best is None or dirt.ratio > best[1].ratio):
            best = log, dirt
    return best


class SegmentSizes(NamedTuple):
    base_offset: int
    end_offset: int
    size: int
    index_size: int
    time_index_size: int


def groups(
    segments: Sequence[SegmentSizes],
    segment_bytes: int,
    index_bytes: int,
    max_segments: int = MAX_JOINED_SEGMENTS,
) -> list[list[SegmentSizes]]:
    """Neighbours that together stay below the size of a segment and of an index become one segment."""
    joined: list[list[SegmentSizes]] = []
    size = index_size = time_index_size = 0
    for segment in segments:
        if (
            joined
            and len(joined[-1]) < max_segments
            and size + segment.size <= segment_bytes
            and index_size + segment.index_size <= index_bytes
            and time_index_size + segment.time_index_size <= index_bytes
            and (not segment.size or segment.end_offset - 1 - joined[-1][0].base_offset <= MAX_RELATIVE)
        ):
            joined[-1].append(segment)
        else:
            joined.append([segment])
            size = index_size = time_index_size = 0
        size += segment.size
        index_size += segment.index_size
        time_index_size += segment.time_index_size
    return joined
