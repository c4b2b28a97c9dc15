"""What a cleaning keeps and drops, case by case. (Random histories are in test_model.py.)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.storage.cleaning import compacting, planning, record_filter
from millstream.storage.cleaning.batch_records import Damaged
from millstream.storage.cleaning.throttle import Throttle
from millstream.storage.producers import parse_marker
from millstream.wire.batch import CONTROL, BatchHeader
from millstream.wire.records import Record, encode_batch

from ..batches import NOW, contents, files
from ..conftest import OpenLog
from .helpers import LATER, batches, clean, compacted, put, read_committed, rows

TXN = {"producer_epoch": 0, "transactional": True}


def test_only_the_last_record_of_a_key_remains(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW)
    put(log, (b"a", b"3"))
    summary = clean(log)
    assert rows(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"a", b"3")], (
        "the active segment is not looked at"
    )
    assert (summary.records_before, summary.records_after, summary.end_offset) == (3, 2, 3)
    assert (log.start_offset, log.end_offset, log.bases) == (0, 4, [0, 3])


def test_offsets_sequences_and_epochs_stay(open_log: OpenLog) -> None:
    log = open_log(compacted())
    fields = {"producer_id": 5, "producer_epoch": 3, "base_sequence": 0}
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), **fields)
    put(log, (b"a", b"2"), (b"c", b"2"))
    log.roll(NOW)
    clean(log)
    header = batches(log)[0].header
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        5,
        3,
        0,
        2,
    )
    assert header.leader_epoch == 0
    assert [record.offset for record in batches(log)[0].records] == [1]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_codec_and_headers_survive_rewriting(open_log: OpenLog, codec: int) -> None:
    log = open_log(compacted())
    kept = Record(1, NOW + 7, b"b", b"v" * 100, (("h", b"1"), ("n", None)))
    data = encode_batch([Record(0, NOW, b"a", b"1"), kept], codec)
    log.append_leader(memoryview(data), 0, NOW)
    put(log, (b"a", b"2"))
    log.roll(NOW)
    clean(log)
    assert batches(log)[0].records == [kept]
    assert batches(log)[0].header.codec == codec
    assert batches(log)[0].header.max_timestamp == NOW + 7


def test_a_record_without_key_goes(open_log: OpenLog) -> None:
    """They can be there if the topic was not always compacted."""
    log = open_log(compacted(cleanup_policy=frozenset({"delete"})))
    put(log, (None, b"1"), (b"a", b"1"))
    put(log, (None, b"2"))
    put(log, (b"b", b"2"))
    log.roll(NOW)
    log.config = compacted()
    clean(log)
    assert rows(log) == [(1, b"a", b"1"), (3, b"b", b"2")]


def test_a_tombstone_lives_for_delete_retention_after_its_first_cleaning(open_log: OpenLog) -> None:
    log = open_log(compacted(delete_retention_ms=1000))
    put(log, (b"a", b"1"), now=NOW)
    put(log, (b"a", None), (b"b", b"1"), now=NOW + 1)
    log.roll(NOW)
    clean(log, LATER)
    seen = batches(log)[0]
    assert seen.records == [Record(1, NOW + 1, b"a", None), Record(2, NOW + 1, b"b", b"1")]
    assert seen.horizon == LATER + 1000
    put(log, (b"c", b"1"))
    log.roll(NOW)
    clean(log, LATER + 999)
    assert (1, b"a", None) in rows(log)
    assert batches(log)[0].horizon == LATER + 1000, "the first cleaning set it"
    put(log, (b"d", b"1"))
    log.roll(NOW)
    clean(log, LATER + 1000)
    assert rows(log) == [(2, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]
    assert batches(log)[0].records[0].timestamp == NOW + 1


def test_an_aborted_transaction_goes_and_its_marker_follows(open_log: OpenLog) -> None:
    log = open_log(compacted(delete_retention_ms=1000))
    put(log, (b"a", b"1"))
    put(log, (b"a", b"wrong"), producer_id=1, base_sequence=0, **TXN)
    log.append_marker(1, 0, False, 0, 0, NOW)
    log.roll(NOW)
    log.producers.by_id.pop(1)  # long forgotten
    put(log, (b"z", b"1"))
    clean(log, LATER)
    assert rows(log)[0] == (0, b"a", b"1"), "an aborted record replaces nothing"
    assert [s.header.base_offset for s in batches(log)] == [0, 2, 3], "the marker stays while it had data"
    assert [entry.producer_id for entry in log.aborted_transactions(0, 3)] == [1]

    def again(now: int) -> list[tuple[int, int | None]]:
        put(log, (b"z", b"1"))
        log.roll(NOW)
        put(log, (b"z", b"1"))
        clean(log, now)
        return [(s.header.base_offset, s.horizon) for s in batches(log) if s.header.attributes & CONTROL]

    assert again(LATER + 1) == [(2, LATER + 1001)]
    assert log.aborted_transactions(0, 3) == []
    assert again(LATER + 1000) == [(2, LATER + 1001)]
    assert again(LATER + 1001) == []


def test_a_committed_transaction_keeps_its_marker_while_it_has_data(open_log: OpenLog) -> None:
    log = open_log(compacted(delete_retention_ms=0))
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=1, base_sequence=0, **TXN)
    log.append_marker(1, 0, True, 0, 0, NOW)
    log.roll(NOW)
    log.producers.by_id.pop(1)
    put(log, (b"a", b"2"))
    log.roll(NOW)
    put(log, (b"z", b"1"))
    clean(log, LATER)
    clean(log, LATER)
    assert [s.header.base_offset for s in batches(log)] == [0, 2, 3, 4]
    put(log, (b"b", b"2"))
    log.roll(NOW)
    clean(log, LATER)
    assert batches(log)[0].header.base_offset == 2, "seen with data for the last time"
    for _ in range(2):
        put(log, (b"y", b"1"))
        log.roll(NOW)
        clean(log, LATER)
    assert not any(s.header.attributes & CONTROL for s in batches(log))


def test_an_open_transaction_is_left_alone(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW)
    put(log, (b"a", b"3"), producer_id=1, base_sequence=0, **TXN)
    log.roll(NOW)
    put(log, (b"x", b"1"))
    clean(log)
    assert rows(log) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"x", b"1")]


def test_the_last_batch_of_a_known_producer_stays_as_a_bare_header(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"a", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=1)
    put(log, (b"a", b"3"))
    log.roll(NOW)
    put(log, (b"a", b"4"))
    clean(log)
    first = batches(log)[0].header
    assert (first.base_offset, first.record_count, first.size, first.base_sequence) == (1, 0, 61, 1)
    log.close(clean=False)
    log = open_log(compacted())
    assert log.producers.by_id[1].next_sequence == 2, "a restart still knows the sequence"


def test_a_marker_that_holds_the_epoch_of_a_known_producer_stays(open_log: OpenLog) -> None:
    log = open_log(compacted(delete_retention_ms=0))
    put(log, (b"a", b"1"), producer_id=1, base_sequence=0, **TXN)
    log.append_marker(1, 1, False, 0, 0, NOW)  # the newer protocol: the end of a transaction raises the epoch
    log.roll(NOW)
    for _ in range(3):
        put(log, (b"z", b"1"))
        log.roll(NOW)
        clean(log, LATER)
    first = batches(log)[0].header
    assert (first.base_offset, first.record_count, first.producer_epoch) == (1, 0, 1)
    assert parse_marker(next(contents(log))[1]) is None
    log.close(clean=False)
    assert open_log(compacted()).last_stable_offset == 0


def test_the_last_batch_of_the_cleaned_part_stays(open_log: OpenLog) -> None:
    log = open_log(compacted(delete_retention_ms=0))
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    log.roll(NOW)
    clean(log, LATER)
    put(log, (b"b", b"1"))
    log.roll(NOW)
    put(log, (b"b", None))
    log.roll(NOW)
    clean(log, LATER)
    assert [s.header.base_offset for s in batches(log)] == [3], (
        "the tombstone of b; a and its tombstone are gone"
    )
    put(log, (b"b", None), producer_id=-1)
    log.roll(NOW)
    clean(log, LATER)
    assert [(s.header.base_offset, s.header.record_count) for s in batches(log)] == [(4, 1)]
    assert log.end_offset == 5


def test_a_segment_that_loses_everything_is_still_a_segment(open_log: OpenLog) -> None:
    config = compacted(segment_bytes=200)
    log = open_log(config)
    put(log, (b"a", b"v" * 100))
    log.roll(NOW)
    put(log, (b"a", b"w" * 100))
    log.roll(NOW)
    clean(log)
    assert log.bases == [0, 1, 2]
    assert [segment.size > 0 for segment in log.segments] == [False, True, False]
    assert [s.header.base_offset for s in batches(log)] == [1]
    log.close(clean=False)
    log = open_log(config)
    assert (log.start_offset, log.end_offset) == (0, 2)
    assert rows(log) == [(1, b"a", b"w" * 100)]


def test_small_segments_become_one(open_log: OpenLog, folder: Path) -> None:
    log = open_log(compacted(segment_bytes=10_000))
    for number in range(10):
        put(log, (b"%d" % number, b"v"))
        log.roll(NOW)
    clean(log)
    assert log.bases == [0, 10]
    assert [row[0] for row in rows(log)] == list(range(10))
    log.reaper.run(1 << 60)
    assert {name for name in files(folder) if name.endswith(".log")} == {f"{0:020d}.log", f"{10:020d}.log"}
    assert [name for name in files(folder) if name.endswith(".snapshot")] == [f"{10:020d}.snapshot"]


@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_that_loses_everything_is_opened_only_once(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    log = open_log(compacted(segment_bytes=100_000))
    put(log, (b"old", b"v"), (b"a", b"v"))
    log.roll(NOW)
    clean(log)
    for number in range(50):
        put(log, (b"a", b"%d" % number), (b"b", b"%d" % number), codec=codec)
    log.roll(NOW)
    opened: list[int] = []
    original = record_filter.plain_records

    def note(header: BatchHeader, batch: memoryview) -> bytes:
        opened.append(header.base_offset)
        return original(header, batch)

    monkeypatch.setattr(record_filter, "plain_records", note)
    clean(log)
    assert rows(log) == [(0, b"old", b"v"), (100, b"a", b"49"), (101, b"b", b"49")]
    assert opened == [0, 100], "of the clean part everything, of the dirty part what remains"


def test_a_segment_in_which_nothing_changes_is_not_touched(open_log: OpenLog) -> None:
    log = open_log(compacted(segment_bytes=1000))
    for number in range(8):
        put(log, (b"%d" % number, b"v" * 300))
    log.roll(NOW)
    clean(log)
    inodes = [os.stat(segment.path).st_ino for segment in log.segments[:-1]]
    put(log, (b"7", b"v" * 300))
    log.roll(NOW)
    summary = clean(log)
    after = [os.stat(segment.path).st_ino for segment in log.segments[:-1]]
    assert after[:3] == inodes[:3] and after[3] != inodes[3]
    assert 0 < summary.bytes_written < summary.bytes_before


def test_the_unchanged_beginning_of_a_segment_is_copied(open_log: OpenLog) -> None:
    log = open_log(compacted(segment_bytes=100_000))
    for number in range(40):
        put(log, (b"%d" % number, b"v" * 500), codec=number % 5)
    log.roll(NOW)
    put(log, (b"39", b"new"))
    log.roll(NOW)
    before = {row[0]: row for row in rows(log)}
    log.cleaned_to = 40
    clean(log, buffer_bytes=1)
    assert rows(log) == [before[offset] for offset in (*range(39), 40)]
    for offset in range(log.end_offset):
        assert log.read(offset, 1, "end").segment is not None


def test_a_map_that_is_too_small_takes_several_rounds(open_log: OpenLog) -> None:
    log = open_log(compacted(segment_bytes=100_000))
    for _ in range(2):
        put(log, *[(b"%d" % number, b"v") for number in range(50)])
    log.roll(NOW)
    rounds = 0
    while planning.survey(log, log.cleaned_to, LATER).is_due(0.0):
        before = log.cleaned_to
        summary = clean(log, map_bytes=24 * 17)
        assert summary.map_bytes <= 24 * 17 and summary.keys <= 15
        assert log.cleaned_to > before
        rounds += 1
    assert rounds > 3
    assert [row[0] for row in rows(log)] == list(range(50, 100))


def test_log_append_time_is_kept(open_log: OpenLog) -> None:
    log = open_log(compacted(message_timestamp_type="LogAppendTime"))
    put(log, (b"a", b"1"), (b"b", None), now=NOW)
    put(log, (b"a", b"2"), now=NOW + 5)
    log.roll(NOW)
    clean(log)
    first = batches(log)[0]
    assert first.records == [Record(1, NOW, b"b", None)]
    assert first.horizon == LATER + 1000 and first.header.max_timestamp == NOW


def test_a_reader_in_the_middle_keeps_its_file(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW)
    part = log.read(0, 1 << 20, "end")
    assert part.segment is not None
    descriptor = part.segment.acquire()
    clean(log)
    log.reaper.run(1 << 60)
    assert os.pread(descriptor, 8, 0) == bytes(8), "offset 0 is still there for this reader"
    assert part.segment.refs == 1
    part.segment.release()
    assert part.segment.fd < 0, "and its file is closed when it is done"
    assert [row[0] for row in rows(log)] == [1]


def test_reading_goes_on_where_it_stopped(open_log: OpenLog) -> None:
    """A reader's next offset may lie in a gap afterwards, and places remembered from before must not be
    used."""
    log = open_log(compacted(segment_bytes=5000))
    for number in range(40):
        put(log, (b"a" if number % 3 else b"b", b"v" * 50))
    log.roll(NOW)
    put(log, (b"z", b"1"))
    offsets = []
    part = log.read(0, 700, "hw")
    while part.segment is not None:
        offsets.append(part.next_offset)
        part = log.read(part.next_offset, 700, "hw")
    clean(log)
    for offset in offsets[:-1]:
        part = log.read(offset, 1 << 20, "hw")
        assert part.segment in log.segments
        expected = next(row for row in rows(log) if row[0] >= offset)
        assert int.from_bytes(part.read()[:8], "big") == expected[0]


def test_deletion_by_age_sees_the_times_of_what_is_left(open_log: OpenLog) -> None:
    both = frozenset({"compact", "delete"})
    log = open_log(compacted(cleanup_policy=both, retention_ms=1000, segment_bytes=10_000))
    put(log, (b"a", b"1"), now=NOW)
    put(log, (b"b", b"1"), now=NOW + 500)
    log.roll(NOW)
    put(log, (b"b", b"2"), now=NOW + 600)
    log.roll(NOW)
    clean(log)
    assert log.segments[0].newest() == (NOW + 600, 2)
    assert log.delete_old_segments(NOW + 1600) == 0
    assert log.delete_old_segments(NOW + 1601) == 1
    assert (log.start_offset, log.end_offset) == (3, 3)


@pytest.mark.parametrize("where", [17, 40, 70, 8])
def test_damage_stops_the_cleaning_and_changes_nothing(open_log: OpenLog, folder: Path, where: int) -> None:
    log = open_log(compacted())
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW)
    path = Path(log.segments[0].path)
    content = bytearray(path.read_bytes())
    content[where] ^= 0x55
    path.write_bytes(content)
    log.flush_now()
    before = files(folder)
    with pytest.raises(Damaged):
        clean(log)
    assert path.read_bytes() == content
    assert files(folder) == before


def test_damage_inside_a_batch_stops_the_cleaning(open_log: OpenLog, folder: Path) -> None:
    """A batch whose checksum is right and whose records are not; nobody looked inside when it was written."""
    from ..batches import batch

    log = open_log(compacted(cleanup_policy=frozenset({"delete"})))
    log.append_leader(batch(3, 200), 0, NOW)
    log.set_high_watermark(3)
    log.roll(NOW)
    log.config = compacted()
    with pytest.raises(Damaged, match="offset 0"):
        clean(log)
    assert not [name for name in files(folder) if name.endswith(".cleaned")]


def test_aborted_data_before_the_dirty_part_does_not_hide_later_transactions(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"a", b"1"), producer_id=1, base_sequence=0, **TXN)
    log.append_marker(1, 0, False, 0, 0, NOW)
    put(log, (b"a", b"2"))
    log.roll(NOW)
    put(log, (b"x", b"1"))
    clean(log)
    put(log, (b"a", b"3"), producer_id=1, base_sequence=1, **TXN)
    log.append_marker(1, 0, True, 0, 0, NOW)
    log.set_high_watermark(log.end_offset)
    log.roll(NOW)
    clean(log)
    assert [record.value for record in read_committed(log) if record.key == b"a"] == [b"3"]


@pytest.mark.parametrize("call", ["pwritev", "fsync", "fdatasync", "utime"])
def test_a_full_disk_changes_nothing(
    open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log = open_log(compacted())
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW)
    log.flush_now()
    before = rows(log)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="No space"):
        clean(log)
    monkeypatch.undo()
    assert rows(log) == before
    assert not [name for name in files(folder) if name.endswith(".cleaned")]
    clean(log)
    assert len(rows(log)) == 2


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_throttle_keeps_the_rate() -> None:
    clock = Clock()
    throttle = Throttle(1000.0, clock, clock.sleep)
    for _ in range(100):
        throttle.spend(100)
        clock.now += 0.001
    assert 9.5 < clock.now < 10.5
    assert throttle.slept > 9


def test_without_a_limit_nobody_sleeps() -> None:
    clock = Clock()
    throttle = Throttle(1.7976931348623157e308, clock, clock.sleep)
    throttle.spend(1 << 40)
    assert clock.now == 0.0


@pytest.mark.parametrize("chunk", [1, 200, 1 << 16])
def test_nothing_goes_behind_the_point_where_the_map_was_full(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """One record a batch, so that marks are batches; where the map ends, they say nothing."""
    monkeypatch.setattr(compacting, "SMALLEST_BUFFER", chunk)
    log = open_log(compacted(segment_bytes=100_000))
    for number in range(20):
        put(log, (b"%d" % (number % 10), b"v"))
    log.roll(NOW)
    summary = clean(log, map_bytes=24 * 7, buffer_bytes=1)
    assert 0 < summary.end_offset < 10
    assert [row[0] for row in rows(log)] == list(range(20))
    while planning.survey(log, log.cleaned_to, LATER).is_due(0.0):
        clean(log, map_bytes=24 * 7, buffer_bytes=1)
    assert [row[0] for row in rows(log)] == list(range(10, 20))


def test_a_tombstone_that_is_a_batch_starts_its_clock(open_log: OpenLog) -> None:
    log = open_log(compacted(segment_bytes=100_000))
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", None), (b"c", b"1")):
        put(log, (key, value))
    log.roll(NOW)
    clean(log, LATER)
    assert rows(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert [seen.horizon for seen in batches(log)] == [None, LATER + 1000, None]
