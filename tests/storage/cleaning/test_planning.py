"""Which log is next, from where to where, and what is joined."""

from __future__ import annotations

from millstream.storage.cleaning import planning
from millstream.storage.cleaning.planning import Dirt, SegmentSizes
from millstream.storage.log import PartitionLog

from ..batches import NOW
from ..conftest import OpenLog
from .helpers import compacted, put

DAY = 24 * 3600 * 1000


def three_segments(log: PartitionLog) -> None:
    """Two closed segments of one record each, and an active one, a second apart."""
    for number in range(3):
        put(log, (b"k", b"v"), now=NOW + number * 1000)
        if number < 2:
            log.roll(NOW)


def test_the_active_segment_is_never_cleaned(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"k", b"v"))
    dirt = planning.survey(log, 0, NOW)
    assert (dirt.first_dirty, dirt.upper, dirt.dirty_bytes) == (0, 0, 0)
    assert not dirt.is_due(0.0)
    log.roll(NOW)
    dirt = planning.survey(log, 0, NOW)
    assert (dirt.upper, dirt.clean_bytes, dirt.dirty_bytes) == (1, 0, log.segments[0].size)
    assert dirt.is_due(0.0) and dirt.ratio == 1.0


def test_the_dirty_share(open_log: OpenLog) -> None:
    log = open_log(compacted())
    three_segments(log)
    size = log.segments[0].size
    dirt = planning.survey(log, 1, NOW)
    assert (dirt.first_dirty, dirt.upper, dirt.clean_bytes, dirt.dirty_bytes) == (1, 2, size, size)
    assert dirt.ratio == 0.5
    assert not dirt.is_due(0.5) and dirt.is_due(0.49), "the share must be passed, not reached"


def test_a_checkpoint_outside_the_log_counts_for_nothing(open_log: OpenLog) -> None:
    log = open_log(compacted())
    three_segments(log)
    assert planning.survey(log, 99, NOW).first_dirty == 0
    log.advance_start(1)
    assert planning.survey(log, 0, NOW).first_dirty == 1


def test_not_beyond_the_last_stable_offset(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"k", b"v"))
    log.roll(NOW)
    put(log, (b"k", b"v"))
    put(log, (b"k", b"v"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(NOW)
    put(log, (b"k", b"v"))
    assert log.bases == [0, 1, 3]
    assert planning.survey(log, 0, NOW).upper == 1, "the segment with the open transaction stays whole"
    log.append_marker(1, 0, True, 0, 0, NOW)
    log.set_high_watermark(log.end_offset)
    assert planning.survey(log, 0, NOW).upper == 3


def test_not_beyond_the_high_watermark(open_log: OpenLog) -> None:
    log = open_log(compacted())
    three_segments(log)
    log.high_watermark = 1
    assert planning.survey(log, 0, NOW).upper == 1
    log.high_watermark = 0
    assert not planning.survey(log, 0, NOW).is_due(0.0)


def test_young_records_wait(open_log: OpenLog) -> None:
    log = open_log(compacted(min_compaction_lag_ms=5000))
    three_segments(log)
    assert planning.survey(log, 0, NOW + 4000).upper == 0
    assert planning.survey(log, 0, NOW + 5500).upper == 1
    assert planning.survey(log, 0, NOW + 60_000).upper == 2


def test_old_records_do_not_wait_for_the_share(open_log: OpenLog) -> None:
    log = open_log(compacted(max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0))
    three_segments(log)
    assert not planning.survey(log, 0, NOW + 4000).is_due(1.0)
    dirt = planning.survey(log, 0, NOW + 7000)
    assert dirt.overdue_ms == 2000 and dirt.is_due(1.0)
    assert not planning.survey(log, 2, NOW + 7000).is_due(1.0), "nothing is dirty"


def test_the_active_segment_rolls_in_time_for_the_longest_lag(open_log: OpenLog) -> None:
    log = open_log(compacted(max_compaction_lag_ms=5000))
    put(log, (b"k", b"v"), now=NOW)
    put(log, (b"k", b"v"), now=NOW + 4000)
    assert len(log.segments) == 1
    put(log, (b"k", b"v"), now=NOW + 6000)
    assert len(log.segments) == 2


def test_the_dirtiest_of_those_that_are_due(open_log: OpenLog) -> None:
    log = open_log(compacted(min_cleanable_dirty_ratio=0.5))
    some, more, max_segments = Dirt(0, 9, 50, 60, 0), Dirt(0, 9, 10, 90, 0), Dirt(0, 9, 60, 40, 1)
    assert planning.dirtiest([(log, some), (log, more), (log, max_segments)]) == (log, more)
    assert planning.dirtiest([(log, max_segments)]) == (log, max_segments), "overdue"
    assert planning.dirtiest([(log, Dirt(0, 9, 60, 40, 0)), (log, Dirt(0, 0, 0, 0, 5))]) is None


def sizes(*rows: tuple[int, int, int]) -> list[SegmentSizes]:
    return [SegmentSizes(base, end, size, 8, 12) for base, end, size in rows]


def joined(
    segments: list[SegmentSizes], size: int = 100, index: int = 1000, max_segments: int = 64
) -> list[list[int]]:
    return [
        [segment.base_offset for segment in group]
        for group in planning.groups(segments, size, index, max_segments)
    ]


def test_neighbours_are_joined_up_to_the_size_of_a_segment() -> None:
    three = sizes((0, 10, 40), (10, 20, 60), (20, 30, 1))
    assert joined(three) == [[0, 10], [20]]
    assert joined(three, size=101) == [[0, 10, 20]]
    assert joined(sizes((0, 10, 500), (10, 20, 0), (20, 30, 50))) == [[0], [10, 20]]
    assert joined([]) == []


def test_indexes_and_numbers_bound_a_group_too() -> None:
    three = sizes((0, 10, 1), (10, 20, 1), (20, 30, 1))
    assert joined(three, index=24) == [[0, 10], [20]]
    assert joined(three, max_segments=2) == [[0, 10], [20]]


def test_offsets_of_a_group_fit_into_its_index() -> None:
    far = 1 << 31
    assert joined(sizes((0, 10, 1), (10, far, 1), (far, far + 1, 1))) == [[0, 10], [far]]
    assert joined(sizes((0, 10, 1), (far, far + 5, 0), (far + 5, far + 9, 1))) == [[0, far], [far + 5]]
