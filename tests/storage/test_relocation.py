"""A partition moves to another data folder: what the copy must follow, and what a start finds after a crash
at every step."""

from __future__ import annotations

import os
import random
from pathlib import Path
from uuid import uuid4

import pytest

from millstream.storage import relocation
from millstream.storage.files import storage_error
from millstream.storage.log import PartitionLog
from millstream.storage.log_dirs import LogDirs
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

from .batches import NOW, batch, contents, fill, small

T0 = TopicPartition("t", 0)


def start(tmp_path: Path) -> LogDirs:
    log_dirs = LogDirs([tmp_path / "a", tmp_path / "b"])
    log_dirs.open(1)
    log_dirs.load(lambda topic: small())
    return log_dirs


def begin(log_dirs: LogDirs, log: PartitionLog) -> PartitionLog:
    (other,) = [path for path in log_dirs.paths if path != log_dirs.folder_of(log)]
    return relocation.begin(log_dirs, log, other)


def copy(future: PartitionLog, log: PartitionLog, pieces: int = 1 << 30) -> None:
    """What the broker's task does."""
    for _ in range(pieces):
        relocation.reconcile(future, log)
        found = log.read(max(future.end_offset, log.start_offset), 500, "hw")
        if found.segment is None:
            return
        future.append_follower(memoryview(found.read()))


def finish(log_dirs: LogDirs, log: PartitionLog) -> None:
    future = log_dirs.futures[TopicPartition(log.topic, log.partition)]
    copy(future, log)
    relocation.mark_complete(future)
    assert relocation.copy_tail(future, log)
    relocation.settle(log_dirs, log, relocation.take_over(log_dirs, log))


def state(log: PartitionLog) -> tuple[object, ...]:
    return log.start_offset, log.end_offset, log.high_watermark, log.epochs.encode(), list(contents(log))


def test_a_log_moves_with_everything_and_goes_on(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    for number in range(40):
        log.append_leader(batch(producer=7, sequence=number), 0, NOW)
    log.set_high_watermark(log.end_offset)
    before, old = state(log), log.folder
    begin(log_dirs, log)
    finish(log_dirs, log)
    assert state(log) == before
    assert os.path.dirname(log.folder) != os.path.dirname(old)
    assert not os.path.exists(old) and not log_dirs.futures
    fill(log, 30)
    log_dirs.reap(NOW * 2)
    assert [name for path in log_dirs.paths for name in os.listdir(path) if name.startswith("t-")] == ["t-0"]
    moved = state(log)
    log_dirs.close()
    again = start(tmp_path)
    assert state(again.logs[T0]) == moved
    assert again.folder_of(again.logs[T0]) == log_dirs.folder_of(log)
    again.close()


def test_readers_in_flight_keep_their_file(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 20)
    found = log.read(0, 300, "hw")
    assert found.segment is not None
    fd = found.segment.acquire()
    expected = os.pread(fd, found.size, found.position)
    begin(log_dirs, log)
    finish(log_dirs, log)
    log_dirs.reap(NOW * 2)
    assert os.pread(fd, found.size, found.position) == expected
    found.segment.release()
    log_dirs.close()


def test_the_copy_follows_truncation(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 20)
    future = begin(log_dirs, log)
    copy(future, log)
    log.truncate_to(10)
    for _ in range(15):
        log.append_leader(batch(size=120), 3, NOW)
    log.set_high_watermark(log.end_offset)
    finish(log_dirs, log)
    assert [header.leader_epoch for header, _ in contents(log)] == [0] * 10 + [3] * 15
    log_dirs.close()


def test_the_copy_follows_deleted_records(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 20, records=5)
    log.advance_start(12)
    future = begin(log_dirs, log)
    assert future.end_offset == 10  # the batch that holds the start
    copy(future, log, pieces=2)
    log.advance_start(93)
    finish(log_dirs, log)
    assert (log.start_offset, log.end_offset) == (93, 100)
    assert [header.base_offset for header, _ in contents(log)] == [90, 95]
    log_dirs.checkpoint_start_offsets()
    log_dirs.close(clean=False)
    again = start(tmp_path)
    assert again.logs[T0].start_offset == 93
    again.close()


def test_an_empty_log_and_one_without_a_tail(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    begin(log_dirs, log)
    finish(log_dirs, log)
    fill(log, 3)
    # As if compaction had left nothing of what came then.
    relocation.skip_to(log, 50)
    log.set_high_watermark(50)
    begin(log_dirs, log)
    finish(log_dirs, log)
    assert (log.end_offset, len(list(contents(log)))) == (50, 3)
    log_dirs.close(clean=False)
    again = start(tmp_path)
    assert again.logs[T0].end_offset == 50
    fill(again.logs[T0], 1)
    assert again.logs[T0].end_offset == 51
    again.close()


def test_a_start_goes_on_with_the_copy(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 30)
    copy(begin(log_dirs, log), log, pieces=3)
    copied = log_dirs.futures[T0].end_offset
    assert 0 < copied < 30
    log_dirs.close()
    again = start(tmp_path)
    assert again.futures[T0].end_offset == copied
    log = again.logs[T0]
    log.set_high_watermark(30)
    before = state(log)
    finish(again, log)
    assert state(log) == before
    again.close()


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", ["marked", "set aside", "named", "settled"])
def test_a_crash_while_taking_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 30)
    log.flush_now()
    future = begin(log_dirs, log)
    copy(future, log)
    before = list(contents(log))
    left = {"marked": 0, "set aside": 1, "named": 2, "settled": 2}[step]
    rename = os.rename

    def crash(source: str, target: str) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        rename(source, target)

    relocation.mark_complete(future)
    with monkeypatch.context() as patched:
        patched.setattr(relocation.os, "rename", crash)
        try:
            old = relocation.take_over(log_dirs, log)
            if step == "settled":
                relocation.settle(log_dirs, log, old)
        except Killed:
            pass
    log_dirs._unlock()
    again = start(tmp_path)
    assert list(contents(again.logs[T0])) == before
    assert (T0 in again.futures) is (step == "marked")
    assert not [name for path in again.paths for name in os.listdir(path) if name.endswith("-stray")]
    again.close()


def test_a_power_failure_that_keeps_the_second_name_and_not_the_first(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 10)
    old = log.folder
    future = begin(log_dirs, log)
    copy(future, log)
    relocation.mark_complete(future)
    set_aside = relocation.take_over(log_dirs, log)
    fill(log, 5)  # the new folder has more than the old one
    moved = list(contents(log))
    log_dirs.close(clean=False)
    os.rename(set_aside, old)
    again = start(tmp_path)
    assert list(contents(again.logs[T0])) == moved
    assert again.folder_of(again.logs[T0]) != os.path.dirname(old)
    again.close()
    once_more = start(tmp_path)
    assert list(contents(once_more.logs[T0])) == moved
    once_more.close()


def test_a_copy_that_was_not_complete_is_kept_but_not_served(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 30)
    copy(begin(log_dirs, log), log, pieces=2)
    old = log.folder
    log_dirs.close()
    os.rename(old, tmp_path / "lost")
    again = start(tmp_path)
    assert not again.logs and not again.futures
    assert any(name.endswith("-stray") for path in again.paths for name in os.listdir(path))
    again.close()


def test_a_disk_that_refuses_leaves_the_log_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 10)
    future = begin(log_dirs, log)
    copy(future, log)
    before, old = state(log), log.folder
    rename = os.rename

    def refuse(source: str, target: str) -> None:
        if source == future.folder:
            raise OSError(28, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as patched, pytest.raises(KafkaError):
        patched.setattr(relocation.os, "rename", refuse)
        relocation.mark_complete(future)
        relocation.take_over(log_dirs, log)
    assert state(log) == before and log.folder == old
    finish(log_dirs, log)
    assert log.folder != old and state(log) == before
    log_dirs.close()


def test_a_deleted_partition_takes_its_copy_along(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 10)
    begin(log_dirs, log)
    log_dirs.delete(log, NOW)
    assert not log_dirs.futures
    log_dirs.reap(NOW * 2)
    assert not [name for path in log_dirs.paths for name in os.listdir(path) if name.startswith("t-")]
    log_dirs.close()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("t-0.0123abcd-future", T0),
        ("a.b-c-12.ff-future", TopicPartition("a.b-c", 12)),
        ("t-0", None),
        ("t-future", None),
        ("t-0-future", None),
        ("t-x.ff-future", None),
        ("-0.ff-future", None),
        ("t-0.ff-delete", None),
    ],
)
def test_names(name: str, key: TopicPartition | None) -> None:
    assert relocation.future_of(name) == key


@pytest.mark.parametrize("seed", range(30))
def test_any_history(tmp_path: Path, seed: int) -> None:
    """Appends, truncations, deleted records, moves, given up moves and restarts in any order: the log is at
    every moment the one that its twin, which never moves, is."""
    chance = random.Random(seed)
    log_dirs = start(tmp_path)
    topic_id = uuid4()
    log = log_dirs.create("t", 0, topic_id, small())
    twin = PartitionLog.open(tmp_path / "twin-0", small(), clean=True)
    epoch = 0
    for _ in range(60):
        what = chance.choice(
            ["append"] * 4 + ["copy"] * 3 + ["begin", "finish", "cut", "trim", "stop", "off"]
        )
        if what == "append":
            data = batch(chance.randrange(1, 4), chance.randrange(80, 300))
            for each in (log, twin):
                each.append_leader(memoryview(bytearray(data)), epoch, NOW)
                each.set_high_watermark(each.end_offset)
        elif what == "cut":
            epoch += 1
            offset = chance.randrange(log.start_offset, log.end_offset + 1)
            for each in (log, twin):
                each.truncate_to(offset)
        elif what == "trim":
            offset = chance.randrange(log.start_offset, log.end_offset + 1)
            for each in (log, twin):
                each.advance_start(offset)
        elif what == "begin" and T0 not in log_dirs.futures:
            begin(log_dirs, log)
        elif what == "copy" and T0 in log_dirs.futures:
            copy(log_dirs.futures[T0], log, pieces=2)
        elif what == "finish" and T0 in log_dirs.futures:
            finish(log_dirs, log)
        elif what == "off":
            relocation.abandon(log_dirs, T0)
        elif what == "stop":
            log_dirs.close()
            log_dirs = start(tmp_path)
            log = log_dirs.logs[T0]
        log_dirs.reap(NOW * 2)
        assert (log.start_offset, log.end_offset) == (twin.start_offset, twin.end_offset)
        assert list(contents(log)) == list(contents(twin))
    twin.close(clean=False)
    log_dirs.close()


def test_storage_errors_are_kafkas() -> None:
    assert "No space" in str(storage_error("move t-0", OSError(28, "No space left on device")))
