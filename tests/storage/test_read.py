"""Reading: the right bytes, whole batches, never more than allowed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from millstream.storage import lookup
from millstream.storage.files import FilePool
from millstream.storage.log import NOTHING, PartitionLog
from millstream.wire import record_walk
from millstream.wire.batch import read_header
from millstream.wire.errors import ErrorCode, KafkaError

from .batches import NOW, batch, contents, fill, headers, real, sealed, small
from .conftest import OpenLog


@pytest.fixture
def log(open_log: OpenLog) -> PartitionLog:
    """200 batches of 3 records in many segments."""
    log = open_log(small(segment_bytes=2500, index_interval_bytes=300))
    fill(log, 200, records=3)
    return log


def test_every_offset_leads_to_its_batch(log: PartitionLog) -> None:
    for offset in range(600):
        found = log.read(offset, 100)
        assert read_header(found.read()).base_offset == offset // 3 * 3
        assert found.next_offset == (offset // 3 + 1) * 3


@pytest.mark.parametrize("max_bytes", [1, 99, 100, 101, 250, 999, 5000])
def test_whole_batches_within_the_limit(log: PartitionLog, max_bytes: int) -> None:
    offset, sizes = 0, set()
    while offset < log.end_offset:
        found = log.read(offset, max_bytes)
        sizes.add(found.size)
        assert found.size % 100 == 0
        assert found.size <= max(max_bytes, 100)
        assert found.next_offset - offset == found.size // 100 * 3
        offset = found.next_offset
    assert max(sizes) >= max_bytes // 100 * 100 // 2
    assert len(headers(log, max_bytes=max_bytes)) == 200


def test_no_batch_at_all_if_the_first_is_too_large_and_not_wanted(log: PartitionLog) -> None:
    assert log.read(0, 99, min_one=False) is NOTHING
    assert log.read(0, 100, min_one=False).size == 100


def damage(log: PartitionLog, number: int, position: int) -> None:
    """From here on a segment is four bytes off, as if somebody had cut them out."""
    path = log.segments[number].path
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(position)
        file.write(content[position + 4 :] + bytes(4))


def test_damage_is_no_gap(log: PartitionLog) -> None:
    """A reader that was led behind it would never know what it has missed."""
    damage(log, 1, 500)
    first, following = log.bases[1], log.bases[2]
    assert log.read(first, 500).size >= 400
    for offset in (first + 15, following - 1):
        for max_bytes in (1, 500, 1 << 20):
            log._hints.clear()
            with pytest.raises(KafkaError) as raised:
                log.read(offset, max_bytes)
            assert raised.value.code is ErrorCode.corrupt_message
    assert read_header(log.read(following, 500).read()).base_offset == following


def test_damage_behind_what_was_read(log: PartitionLog) -> None:
    damage(log, 1, 500)
    first = log.bases[1]
    assert log.read(first + 12, 100).next_offset == first + 15
    with pytest.raises(KafkaError) as raised:
        log.read(first + 15, 100)
    assert raised.value.code is ErrorCode.corrupt_message


def test_damage_is_not_skipped_by_time(log: PartitionLog) -> None:
    assert log.offset_for_timestamp(log.segments[0].newest()[0]) is not None
    damage(log, 0, 0)
    with pytest.raises(KafkaError) as raised:
        log.offset_for_timestamp(log.segments[0].newest()[0])
    assert raised.value.code is ErrorCode.corrupt_message


def test_a_file_that_became_shorter_is_no_gap(log: PartitionLog) -> None:
    os.truncate(log.segments[1].path, 500)
    log._hints.clear()
    with pytest.raises(KafkaError) as raised:
        log.read(log.bases[2] - 1, 100)
    assert raised.value.code is ErrorCode.corrupt_message


def test_out_of_range(log: PartitionLog) -> None:
    log.advance_start(6)
    for offset in (-1, 0, 5, 601, 1 << 40):
        with pytest.raises(KafkaError) as raised:
            log.read(offset, 100)
        assert raised.value.code is ErrorCode.offset_out_of_range
    assert log.read(600, 100) is NOTHING
    assert read_header(log.read(7, 100).read()).base_offset == 6


def test_bounds(log: PartitionLog) -> None:
    fill_end = log.end_offset
    log.append_leader(batch(2), 0, NOW)
    log.append_leader(batch(2), 0, NOW)
    assert log.read(fill_end, 1000) is NOTHING
    assert log.read(fill_end, 1000, "lso") is NOTHING
    assert log.read(fill_end, 1000, "end").size == 200
    log.set_high_watermark(fill_end + 2)
    assert log.read(fill_end, 1000).size == 100
    assert log.read(fill_end + 2, 1000) is NOTHING
    assert log.read(fill_end + 1, 1000, "end").size == 200


def test_a_high_watermark_inside_an_old_segment_bounds_readers(open_log: OpenLog) -> None:
    log = open_log(small())
    for _ in range(50):
        log.append_leader(batch(2), 0, NOW)
    for high in (0, 2, 18, 20, 44, 100):
        log.set_high_watermark(high)
        assert [header.base_offset for header in headers(log, "hw")] == list(range(0, high, 2))
        assert [header.base_offset for header in headers(log, "hw", 150)] == list(range(0, high, 2))


def test_the_tail_is_served_without_any_file_access(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 10)
    end = log.end_offset
    assert log.read(end, 1000) is NOTHING

    def no_access(*_: object) -> bytes:
        raise AssertionError("the tail must not be looked up")

    monkeypatch.setattr(os, "pread", no_access)
    for _ in range(5):
        log.append_leader(batch(3), 0, NOW)
        log.set_high_watermark(log.end_offset)
        found = log.read(end, 1000)
        assert found.size == 100
        end = found.next_offset
        assert log.read(end, 1000) is NOTHING


def test_hints_survive_a_roll(open_log: OpenLog) -> None:
    log = open_log(small())
    offset = 0
    for _ in range(35):
        assert log.read(offset, 1000) is NOTHING
        fill(log, 1)
        found = log.read(offset, 1000)
        assert read_header(found.read()).base_offset == offset
        offset = found.next_offset
    assert len(log.segments) == 4


def test_a_slice_in_flight_keeps_its_file(log: PartitionLog) -> None:
    found = log.read(0, 1000)
    assert found.segment is not None
    descriptor = found.segment.acquire()
    want = found.read()
    log.config = small(retention_ms=0)
    log.delete_old_segments(NOW + 10)
    log.reaper.run(NOW + 1000)
    assert log.start_offset == log.end_offset
    assert os.pread(descriptor, found.size, found.position) == want
    found.segment.release()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_few_descriptors_suffice(folder, tmp_path) -> None:
    pool = FilePool(3)
    logs = [PartitionLog.open(tmp_path / f"t-{number}", small(), pool=pool) for number in range(6)]
    for _ in range(4):
        for log in logs:
            fill(log, 9)
            assert len(pool) <= 3
    for log in logs:
        assert len(headers(log)) == 36
        assert len(pool) <= 3
    held = [log.read(0, 100).segment for log in logs]
    for segment in held:
        assert segment is not None
        segment.acquire()
    assert len(pool) == 6, "those in flight are never closed"
    for segment in held:
        assert segment is not None
        segment.release()
    fill(logs[0], 12)
    assert len(pool) <= 6
    for log in logs:
        log.close()
    assert len(pool) == 0


def test_reading_a_reopened_log(open_log: OpenLog) -> None:
    log = open_log(small())
    fill(log, 60, records=2)
    before = list(contents(log))
    log.close()
    assert list(contents(open_log(small(), clean=True))) == before


def test_a_batch_that_is_too_large_to_search_is_answered_by_its_header(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append_leader(real([b"small"] * 3, step=10), 0, NOW)
    log.append_leader(real([bytes(3 << 20)] * 2, codec=4, timestamp=NOW + 100, step=10), 0, NOW + 200)
    assert log.offset_for_timestamp(NOW + 15) == (NOW + 20, 2, 0)
    assert log.offset_for_timestamp(NOW + 105) == (NOW + 110, 3, 0), "6 MB once decompressed"
    monkeypatch.setattr(lookup, "MAX_BYTES", 8 << 20)
    assert log.offset_for_timestamp(NOW + 105) == (NOW + 110, 4, 0)
    monkeypatch.setattr(lookup, "MAX_RECORDS", 1)
    assert log.offset_for_timestamp(NOW + 15) == (NOW + 20, 0, 0)


def test_headers_that_promise_too_much_are_opened_a_few_times_only(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    for _ in range(20):
        data = bytearray(real([b"v"]))
        data[35:43] = (NOW + 1000).to_bytes(8, "big")
        log.append_leader(sealed(data), 0, NOW + 1000)
    opened = 0
    whole = record_walk.record_times

    def counting(*arguments: Any, **named: Any) -> Any:
        nonlocal opened
        opened += 1
        return whole(*arguments, **named)

    monkeypatch.setattr(record_walk, "record_times", counting)
    assert log.offset_for_timestamp(NOW + 500) == (NOW + 1000, lookup.MAX_FRUITLESS, 0)
    assert opened == lookup.MAX_FRUITLESS
