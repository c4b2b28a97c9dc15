"""When segments end, and when they go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.storage.log import PartitionLog
from millstream.wire.errors import ErrorCode, KafkaError

from .batches import NOW, batch, contents, files, fill, headers, real, small
from .cleaning.helpers import clean
from .conftest import OpenLog

HOUR = 3_600_000


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# -- rolling -------------------------------------------------------------------------------------------------


def test_roll_by_size(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    fill(log, 25, records=2)
    assert bases(log) == [0, 20, 40]
    assert [segment.size for segment in log.segments] == [1000, 1000, 500]
    assert log.size == 2500
    assert {name for name in files(folder) if name.endswith(".log")} == {
        f"{offset:020d}.log" for offset in (0, 20, 40)
    }


def test_roll_by_time_of_the_records(open_log: OpenLog) -> None:
    log = open_log(small(segment_ms=HOUR))
    for minutes in (0, 30, 60, 61, 20, 122):
        log.append_leader(batch(timestamp=NOW + minutes * 60_000), 0, NOW + 3 * HOUR)
    assert bases(log) == [0, 3, 5]


def test_roll_by_the_clock_where_records_have_no_time(open_log: OpenLog) -> None:
    log = open_log(small(segment_ms=HOUR))
    log.active.created_ms = NOW
    for minutes in (0, 60, 61, 121, 122):
        log.append_leader(batch(timestamp=-1), 0, NOW + minutes * 60_000)
    assert bases(log) == [0, 2, 4]


def test_roll_time_is_remembered_over_a_restart(open_log: OpenLog) -> None:
    log = open_log(small(segment_ms=HOUR))
    fill(log, 3)
    log.close()
    log = open_log(small(segment_ms=HOUR), clean=True)
    log.append_leader(batch(timestamp=NOW + HOUR), 0, NOW + HOUR)
    log.append_leader(batch(timestamp=NOW + HOUR + 1), 0, NOW + HOUR)
    assert bases(log) == [0, 4]


def test_jitter_only_shortens(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    log = open_log(small(segment_ms=HOUR, segment_jitter_ms=HOUR // 2))
    for minutes in (0, 45, 46):
        log.append_leader(batch(timestamp=NOW + minutes * 60_000), 0, NOW)
    assert bases(log) == [0, 2]


def test_roll_by_a_full_index(open_log: OpenLog) -> None:
    log = open_log(small(segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=80))
    fill(log, 30)
    assert len(log.segments) == 3
    assert all(len(segment.index) <= 10 for segment in log.segments)
    log = open_log(small(segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=80))
    assert len(headers(log)) == 30


def test_roll_by_a_full_time_index(open_log: OpenLog) -> None:
    log = open_log(small(segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=84))
    for number in range(30):
        log.append_leader(batch(timestamp=NOW + number), 0, NOW)
    assert len(log.segments) > 3
    assert all(len(segment.time_index) <= 7 for segment in log.segments)


def test_roll_before_a_relative_offset_overflows(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 1)
    log.append_leader(batch(records=(1 << 31) - 2, attributes=1), 0, NOW)
    assert bases(log) == [0]
    fill(log, 1)
    assert bases(log) == [0]
    fill(log, 1)
    assert bases(log) == [0, 1 << 31]


def test_roll_of_an_empty_segment_is_nothing(open_log: OpenLog) -> None:
    log = open_log()
    log.roll(NOW)
    log.roll(NOW)
    assert bases(log) == [0]
    fill(log, 1)
    log.roll(NOW)
    log.roll(NOW)
    assert bases(log) == [0, 1]
    assert log.size == 100


def test_a_changed_segment_size_counts_at_once(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 15)
    log.config = small()
    fill(log, 1)
    assert bases(log) == [0, 15]


def test_closed_segments_are_complete_files(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    fill(log, 11)
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} <= files(folder)
    assert os.path.getsize(folder / "00000000000000000000.index") == 3 * 8
    assert log.segments[0].time_index.last_timestamp == NOW


# -- retention -----------------------------------------------------------------------------------------------


@pytest.fixture
def hourly(open_log: OpenLog) -> PartitionLog:
    """Five segments of ten batches, an hour apart."""
    log = open_log(small(retention_ms=HOUR * 2))
    for number in range(50):
        log.append_leader(batch(timestamp=NOW + number // 10 * HOUR), 0, NOW + 4 * HOUR)
    log.set_high_watermark(50)
    return log


def test_retention_by_time(hourly: PartitionLog, folder: Path) -> None:
    assert hourly.delete_old_segments(NOW + 2 * HOUR) == 0
    assert hourly.delete_old_segments(NOW + 3 * HOUR + 1) == 2
    assert (hourly.start_offset, bases(hourly), hourly.size) == (20, [20, 30, 40], 3000)
    assert [header.base_offset for header in headers(hourly)] == list(range(20, 50))
    assert "00000000000000000000.log.deleted" in files(folder)
    hourly.reaper.run(NOW + 10 * HOUR)
    assert not [name for name in files(folder) if name.endswith(".deleted")]
    assert "00000000000000000010.log" not in files(folder)


def test_an_expired_active_segment_is_rolled_then_deleted(hourly: PartitionLog) -> None:
    assert hourly.delete_old_segments(NOW + 100 * HOUR) == 5
    assert (hourly.start_offset, hourly.end_offset, hourly.size) == (50, 50, 0)
    assert bases(hourly) == [50]
    assert hourly.delete_old_segments(NOW + 200 * HOUR) == 0
    fill(hourly, 1)
    assert [header.base_offset for header in headers(hourly)] == [50]


def test_nothing_above_the_high_watermark_goes(open_log: OpenLog) -> None:
    log = open_log(small(retention_ms=0))
    fill(log, 10)
    for _ in range(30):
        log.append_leader(batch(), 0, NOW)
    assert log.high_watermark == 10
    assert log.delete_old_segments(NOW + HOUR) == 1
    assert log.start_offset == 10
    log.set_high_watermark(35)
    assert log.delete_old_segments(NOW + HOUR) == 2
    assert log.start_offset == 30


def test_retention_by_size(hourly: PartitionLog) -> None:
    hourly.config = small(retention_ms=-1, retention_bytes=2500)
    assert hourly.delete_old_segments(NOW) == 2
    assert hourly.size == 3000
    hourly.config = small(retention_ms=-1, retention_bytes=2000)
    assert hourly.delete_old_segments(NOW) == 1
    assert hourly.size == 2000
    hourly.config = small(retention_ms=-1, retention_bytes=-1)
    assert hourly.delete_old_segments(NOW + 1000 * HOUR) == 0


def test_compacted_topics_keep_what_is_old(hourly: PartitionLog) -> None:
    hourly.config = small(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    assert hourly.delete_old_segments(NOW + 1000 * HOUR) == 0
    hourly.config = small(retention_ms=0, cleanup_policy=frozenset({"compact", "delete"}))
    assert hourly.delete_old_segments(NOW + 1000 * HOUR) == 5


def test_records_without_time_age_with_their_file(open_log: OpenLog) -> None:
    log = open_log(small(retention_ms=HOUR))
    fill(log, 25, timestamp=-1)
    for segment in log.segments[:2]:
        os.utime(segment.path, (NOW / 1000 - 7200, NOW / 1000 - 7200))
    os.utime(log.active.path, (NOW / 1000, NOW / 1000))
    assert log.delete_old_segments(NOW) == 2


def test_segments_that_compaction_emptied_age_too(open_log: OpenLog) -> None:
    """They must not stand in the way of the ones behind them, nor go in their stead."""
    log = open_log(small(retention_ms=HOUR, cleanup_policy=frozenset({"compact", "delete"})))
    for _ in range(30):
        log.append_leader(real([b"x" * 24], key=b"same", timestamp=NOW), 0, NOW)
    for number in range(10):
        log.append_leader(real([b"x" * 24], key=b"%d" % number, timestamp=NOW), 0, NOW)
    log.roll(NOW)
    log.append_leader(real([b"x"], timestamp=NOW + 2 * HOUR), 0, NOW + 2 * HOUR)
    log.set_high_watermark(log.end_offset)
    clean(log, segment_bytes=100)
    sizes = [segment.size for segment in log.segments]
    assert sizes[0] == 0 < sizes[-2]
    for segment in log.segments:
        os.utime(segment.path, (NOW / 1000, NOW / 1000))
    assert log.delete_old_segments(NOW + 2 * HOUR) == len(sizes) - 1
    assert [header.base_offset for header in headers(log)] == [40]


def test_delete_records(hourly: PartitionLog, folder: Path) -> None:
    assert hourly.advance_start(25) == 25
    assert hourly.advance_start(3) == 25, "never backwards"
    with pytest.raises(KafkaError) as raised:
        hourly.advance_start(51)
    assert raised.value.code is ErrorCode.offset_out_of_range
    assert bases(hourly) == [0, 10, 20, 30, 40]
    hourly.config = small(retention_ms=-1)
    assert hourly.delete_old_segments(NOW) == 2
    assert (hourly.start_offset, bases(hourly)) == (25, [20, 30, 40])
    assert hourly.advance_start(50) == 50
    assert hourly.delete_old_segments(NOW) == 2
    assert (hourly.start_offset, bases(hourly)) == (50, [40])
    fill(hourly, 1)
    assert [header.base_offset for header in headers(hourly)] == [50]


def test_the_delay_before_files_are_unlinked(hourly: PartitionLog, folder: Path) -> None:
    hourly.config = small(retention_ms=0, file_delete_delay_ms=60_000)
    later = NOW + 100 * HOUR
    hourly.delete_old_segments(later)
    count = len(files(folder))
    assert hourly.reaper.run(later + 59_999) == 0
    assert len(files(folder)) == count
    assert hourly.reaper.run(later + 60_000) > 0
    assert len(files(folder)) < count


def test_snapshots_go_with_their_segments(hourly: PartitionLog, folder: Path) -> None:
    hourly.delete_old_segments(NOW + 4 * HOUR + 1)
    assert hourly.snapshots == [30, 40]
    assert sorted(path.name for path in folder.glob("*.snapshot")) == [
        f"{offset:020d}.snapshot" for offset in (30, 40)
    ]


def test_retention_after_a_restart(hourly: PartitionLog, open_log: OpenLog) -> None:
    hourly.close()
    log = open_log(small(retention_ms=HOUR * 2), clean=True, high_watermark=50)
    assert log.delete_old_segments(NOW + 3 * HOUR + 1) == 2
    assert len(list(contents(log))) == 30


# -- questions by time ---------------------------------------------------------------------------------------


def test_offset_for_timestamp_is_exact(open_log: OpenLog) -> None:
    from .batches import real

    log = open_log(small(index_interval_bytes=100))
    for number in range(60):
        log.append_leader(
            real([b"a", b"b", b"c"], timestamp=NOW + number * 30, step=10, codec=number % 5), 4, NOW
        )
    assert len(log.segments) > 3
    for offset in range(180):
        assert log.offset_for_timestamp(NOW + offset * 10) == (NOW + offset * 10, offset, 4)
        assert log.offset_for_timestamp(NOW + offset * 10 - 5) == (NOW + offset * 10, offset, 4)
    assert log.offset_for_timestamp(0) == (NOW, 0, 4)
    assert log.offset_for_timestamp(NOW + 1791) is None
    assert log.max_timestamp() == (NOW + 1790, 179, 4)
    log.set_high_watermark(180)
    log.advance_start(50)
    assert log.offset_for_timestamp(0) == (NOW + 500, 50, 4)


def test_time_questions_when_time_goes_backwards(open_log: OpenLog) -> None:
    from .batches import real

    log = open_log(small(index_interval_bytes=0, segment_bytes=400))
    times = [50, 10, 90, 90, 20, 70, 200, 5]
    for when in times:
        log.append_leader(real([b"v"], timestamp=NOW + when), 0, NOW)
    for asked in range(0, 210):
        want = next(((NOW + when, offset, 0) for offset, when in enumerate(times) if when >= asked), None)
        assert log.offset_for_timestamp(NOW + asked) == want
    assert log.max_timestamp() == (NOW + 200, 6, 0)
    log.close()
    assert open_log(clean=True).max_timestamp() == (NOW + 200, 6, 0)


def test_max_timestamp_is_the_first_of_equals(open_log: OpenLog) -> None:
    from .batches import real

    log = open_log()
    assert log.max_timestamp() is None
    log.append_leader(real([b"a"], timestamp=NOW), 0, NOW)
    log.append_leader(real([b"a", b"b", b"c"], timestamp=NOW + 5), 1, NOW)
    log.append_leader(real([b"a"], timestamp=NOW + 5), 2, NOW)
    assert log.max_timestamp() == (NOW + 5, 1, 1)
    log = open_log()
    assert log.max_timestamp() == (NOW + 5, 1, 1)
