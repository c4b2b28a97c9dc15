"""What is durable, and when the log says so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from millstream.settings.log_config import LogConfig
from millstream.storage import flush
from millstream.wire.errors import ErrorCode, KafkaError

from .batches import NOW, batch, files, fill, small
from .conftest import OpenLog


async def test_flush_moves_the_recovery_point(open_log: OpenLog, folder: Path) -> None:
    log = open_log(small())
    fill(log, 25)
    assert (log.recovery_point, log.unflushed) == (0, 25)
    assert await log.flush() == 25
    assert (log.recovery_point, log.unflushed, log.unsynced) == (25, 0, [])
    assert "leader-epoch-checkpoint" in files(folder)
    assert os.path.getsize(folder / "00000000000000000020.index") > 0, "the active index is saved with it"
    assert await log.flush() == 25


async def test_nothing_is_synced_twice(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    true_sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), true_sync(fd)))
    log = open_log(small())
    fill(log, 25)
    await log.flush()
    assert len(synced) == 3
    await log.flush()
    assert len(synced) == 3
    fill(log, 1)
    await log.flush()
    assert len(synced) == 4


async def test_closed_segments_can_be_synced_alone(open_log: OpenLog) -> None:
    log = open_log(small())
    fill(log, 5)
    assert await log.flush(closed_segments_only=True) == 0
    fill(log, 20)
    assert len(log.unsynced) == 2
    assert await log.flush(closed_segments_only=True) == 20
    assert log.unsynced == []
    assert log.unflushed == 5


async def test_appends_during_a_flush_are_not_covered(open_log: OpenLog) -> None:
    log = open_log(small())
    fill(log, 5)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    fill(log, 30)
    assert await flushing == 5
    assert log.unflushed == 30
    assert await log.flush() == 35


async def test_a_segment_that_grew_and_rolled_during_a_flush_is_synced_again(open_log: OpenLog) -> None:
    log = open_log(small())
    fill(log, 5)
    active = log.active
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    fill(log, 10)
    assert log.unsynced == [active], "it grew behind the fdatasync under way, and rolled"
    await flushing
    assert log.unsynced == [active]
    assert await log.flush(closed_segments_only=True) == 10
    assert log.unsynced == []


async def test_names_that_a_failed_flush_saw_are_synced_by_the_next(
    open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 2)
    synced: list[str] = []

    def refuse(path: str) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(flush, "replace_file", lambda *arguments: refuse(""))
        with pytest.raises(KafkaError):
            await log.flush()
    assert (log.recovery_point, log.offline) == (0, None), "no fsync failed: it may be tried again"
    monkeypatch.setattr(flush, "sync_path", synced.append)
    assert await log.flush() == 2
    assert str(folder.parent) in synced, "the folder's own name is durable with the first flush"
    assert files(folder) >= {"leader-epoch-checkpoint"}


async def test_names_that_change_during_a_flush_belong_to_the_next(open_log: OpenLog) -> None:
    log = open_log(small())
    fill(log, 5)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    log.roll()
    await flushing
    assert log.names_synced < log.name_changes
    await log.flush()
    assert log.names_synced == log.name_changes


async def test_epochs_that_change_during_a_flush_belong_to_the_next(open_log: OpenLog, folder: Path) -> None:
    log = open_log()
    fill(log, 5)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    log.append_leader(batch(), 7, NOW)
    await flushing
    assert log.epochs.dirty
    await log.flush()
    assert not log.epochs.dirty
    assert "7 5" in (folder / "leader-epoch-checkpoint").read_text()


async def test_a_truncation_during_a_flush(open_log: OpenLog) -> None:
    log = open_log(small())
    fill(log, 25)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    log.truncate_to(8)
    fill(log, 3)
    await flushing
    assert log.recovery_point <= 8


def test_when_a_flush_is_due(open_log: OpenLog) -> None:
    log = open_log(LogConfig(flush_messages=3))
    fill(log, 2)
    assert not log.flush_due(NOW)
    fill(log, 1)
    assert log.flush_due(NOW)
    log.flush_now()
    assert not log.flush_due(1 << 60)
    log.config = LogConfig(flush_ms=1000)
    fill(log, 1)
    assert not log.flush_due(log.last_flush_ms + 999)
    assert log.flush_due(log.last_flush_ms + 1000)


async def test_after_a_failed_fsync_nothing_is_called_durable(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 2)
    await log.flush()
    fill(log, 2)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(KafkaError) as raised:
            await log.flush()
        assert raised.value.code is ErrorCode.kafka_storage_error
    with pytest.raises(KafkaError):  # the kernel would call the next one a success
        await log.flush()
    assert log.recovery_point == 2
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            log.append_leader(batch(), 0, NOW)
        assert raised.value.code is ErrorCode.kafka_storage_error
    with pytest.raises(KafkaError):
        log.append_marker(1, 0, True, 0, 0, NOW)
    with pytest.raises(KafkaError):
        log.close()
    log = open_log(recovery_point=2)
    assert log.end_offset == 4
    assert await log.flush() == 4


async def test_a_retry_of_what_was_not_made_durable_is_no_duplicate(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is in the page cache, perhaps, so it looks as if it had been written."""
    log = open_log()
    written = batch(producer=7, sequence=0)
    log.append_leader(memoryview(bytearray(written)), 0, NOW)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(KafkaError):
        await log.flush()
    with pytest.raises(KafkaError) as raised:
        log.append_leader(memoryview(bytearray(written)), 0, NOW)
    assert raised.value.code is ErrorCode.kafka_storage_error


def test_a_snapshot_bounds_what_recovery_replays(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.storage.log.SNAPSHOT_EVERY", 1000)
    log = open_log()
    for sequence in range(30):
        log.append_leader(batch(producer=1, sequence=sequence), 0, NOW)
        log.flush_now()
    assert log.snapshots == [22]
    log = open_log(recovery_point=30)
    assert log.producers.by_id[1].next_sequence == 30


def test_an_idle_log_is_closed_without_any_write(open_log: OpenLog, folder: Path, monkeypatch) -> None:
    log = open_log()
    fill(log, 3)
    log.close()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    log = open_log(clean=True)
    log.begin_epoch(9)
    log.close()
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_after_a_crash_a_flush_covers_the_segments_that_were_closed_before_it(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was killed: what it wrote is in the page cache, and nobody has synced it."""
    fill(open_log(small()), 25)
    log = open_log(small())
    paths = [segment.path for segment in log.segments]
    assert len(paths) == 3
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    assert log.flush_now() == 25
    assert synced == paths
