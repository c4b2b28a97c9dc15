"""A crash between any two changes to the disk leaves a log that opens, with everything that was
acknowledged."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from millstream.storage.log import PartitionLog
from millstream.wire.batch import TRANSACTIONAL

from .batches import NOW, batch, contents, small
from .crashes import Crash, ProcessFiles, crashing

CONFIG = small(segment_bytes=600, index_interval_bytes=150, retention_ms=1000)


def prepare(folder: Path, flush: bool, process: ProcessFiles) -> PartitionLog:
    log = PartitionLog.open(folder, CONFIG, pool=process)
    for number in range(20):
        transactional = TRANSACTIONAL if number % 2 else 0
        log.append_leader(
            batch(
                2,
                producer=number % 2,
                sequence=number // 2 * 2,
                timestamp=NOW + number * 100,
                attributes=transactional,
            ),
            number // 6,
            NOW,
        )
        if number % 5 == 4:
            log.append_marker(1, 0, number % 2 == 0, 0, number // 6, NOW)
        if flush and number == 11:
            log.flush_now()
    log.set_high_watermark(log.end_offset)
    return log


def every_crash(
    tmp_path: Path, act: Callable[[PartitionLog], None], check: Callable[[PartitionLog, list], None]
) -> int:
    """Run `act` again and again, crashing one change later each time, until it gets through."""
    for flush in (False, True):
        at = 0
        while True:
            folder = tmp_path / f"run-{int(flush)}-{at}" / "t-0"
            folder.parent.mkdir()
            process = ProcessFiles()
            log = prepare(folder, flush, process)
            before = list(contents(log))
            recovery_point = log.recovery_point
            with crashing(at) as disk:
                try:
                    act(log)
                except Crash:
                    pass
            crashed = disk.count > at
            process.end()
            again = PartitionLog.open(folder, CONFIG, recovery_point=recovery_point)
            check(again, before)
            check_sound(again)
            recovered = list(contents(again))
            again.close()
            clean = PartitionLog.open(folder, CONFIG, clean=True)
            assert list(contents(clean)) == recovered
            clean.close()
            if not crashed:
                assert at > 2, "the test must have seen some changes"
                break
            at += 1
    return at


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is processes that end here, not machines: what was written is there."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)


@pytest.fixture(autouse=True)
def every_file_is_closed(tmp_path: Path) -> Iterator[None]:
    """Of this test's own folder: threads of other tests in this process open and close what they like."""
    yield
    gc.collect()
    files = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            files.append(os.readlink(f"/proc/self/fd/{number}"))
    assert not [path for path in files if path.startswith(str(tmp_path))]


def check_sound(log: PartitionLog) -> None:
    """The parts agree with each other, and the log can be written."""
    every = [header for header, _ in contents(log)]
    for one, following in pairwise(every):
        assert following.base_offset == one.next_offset
    for segment in log.segments:
        for offset, position in segment.index.entries():
            assert segment.header_at(position).last_offset == offset
        for timestamp, offset in segment.time_index.entries():
            found = segment.find(offset)
            assert found is not None
            assert segment.header_at(found[0]).max_timestamp == timestamp
    rebuilt = log.describe_producers()
    log.append_leader(batch(4, producer=99, sequence=0), 50, NOW)
    assert log.describe_producers()[:-1] == rebuilt
    log.truncate_to(log.end_offset - 4)
    assert sorted(log.describe_producers()) == sorted(rebuilt)


def test_append_and_roll(tmp_path: Path) -> None:
    acknowledged: list[int] = []

    def act(log: PartitionLog) -> None:
        acknowledged.clear()
        for number in range(14):
            log.append_leader(batch(3, size=150, timestamp=NOW + number), 9, NOW)
            acknowledged.append(log.end_offset)

    def check(log: PartitionLog, before: list) -> None:
        now = list(contents(log))
        assert now[: len(before)] == before
        end = acknowledged[-1] if acknowledged else before[-1][0].next_offset
        assert log.end_offset >= end
        assert log.end_offset <= end + 3

    every_crash(tmp_path, act, check)


def test_marker(tmp_path: Path) -> None:
    def act(log: PartitionLog) -> None:
        log.append_marker(1, 0, False, 3, 9, NOW)
        log.append_leader(batch(producer=1, sequence=20, attributes=TRANSACTIONAL), 9, NOW)
        log.append_marker(1, 0, False, 3, 9, NOW)
        log.roll(NOW)
        log.append_leader(batch(), 9, NOW)

    def check(log: PartitionLog, before: list) -> None:
        assert list(contents(log))[: len(before)] == before

    every_crash(tmp_path, act, check)


@pytest.mark.parametrize("to", [0, 9, 22, 38])
def test_truncate(tmp_path: Path, to: int) -> None:
    def check(log: PartitionLog, before: list) -> None:
        now = list(contents(log))
        assert now == before[: len(now)], "what is left is a prefix"
        kept = [entry for entry in before if entry[0].next_offset <= to]
        assert now[: len(kept)] == kept

    every_crash(tmp_path, lambda log: log.truncate_to(to), check)


def test_retention(tmp_path: Path) -> None:
    def act(log: PartitionLog) -> None:
        log.delete_old_segments(NOW + 2200)
        log.reaper.run(1 << 62)

    def check(log: PartitionLog, before: list) -> None:
        now = list(contents(log))
        assert now == before[len(before) - len(now) :], "what is left is a suffix"
        assert log.end_offset == before[-1][0].next_offset
        assert all(entry in now for entry in before if entry[0].max_timestamp >= NOW + 1200)

    every_crash(tmp_path, act, check)


def test_retention_of_everything(tmp_path: Path) -> None:
    def act(log: PartitionLog) -> None:
        log.delete_old_segments(NOW + 1_000_000)
        log.reaper.run(1 << 62)

    def check(log: PartitionLog, before: list) -> None:
        now = list(contents(log))
        assert now == before[len(before) - len(now) :]
        assert log.end_offset == before[-1][0].next_offset, "the end offset outlives the records"

    every_crash(tmp_path, act, check)


def test_reset(tmp_path: Path) -> None:
    def check(log: PartitionLog, before: list) -> None:
        now = list(contents(log))
        assert now == before[: len(now)]

    every_crash(tmp_path, lambda log: log.reset_at(500), check)


def test_flush_and_clean_stop(tmp_path: Path) -> None:
    def act(log: PartitionLog) -> None:
        log.flush_now()
        log.append_leader(batch(), 9, NOW)
        log.close()

    def check(log: PartitionLog, before: list) -> None:
        now = list(contents(log))
        assert now[: len(before)] == before

    every_crash(tmp_path, act, check)


def test_crash_during_recovery(tmp_path: Path) -> None:
    """Recovery itself may be interrupted, any number of times."""
    folder = tmp_path / "t-0"
    process = ProcessFiles()
    log = prepare(folder, flush=True, process=process)
    before = list(contents(log))
    with open(log.active.path, "r+b") as file:
        file.truncate(log.active.size - 20)
    process.end()
    at = 0
    while True:
        with crashing(at) as disk:
            try:
                log = PartitionLog.open(folder, CONFIG, recovery_point=log.recovery_point, pool=process)
            except Crash:
                process.end()
        if disk.count <= at:
            break
        at += 1
    assert at >= 2
    assert list(contents(log)) == before[:-1]
    check_sound(log)
    log.close(clean=False)
