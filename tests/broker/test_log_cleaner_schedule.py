"""The log cleaner's schedule without a broker around it: which log is next, and what follows a failure."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker import log_cleaner
from millstream.broker.log_cleaner import LogCleaner
from millstream.settings.resolve import BrokerSettings
from millstream.storage.cleaning import cleaner_process, planning, swap
from millstream.storage.cleaning.cleaned_segment import Replacement
from millstream.storage.log import PartitionLog
from millstream.storage.log_dirs import LogDirs
from tests.support.waiting import wait_until_async

from ..storage.batches import NOW
from ..storage.cleaning.helpers import compacted, put, rows

CONFIG = compacted(segment_bytes=100_000)


class World:
    """What the schedule sees of a broker."""

    def __init__(self, path: Path) -> None:
        self.log_dirs = LogDirs([path])
        self.log_dirs.open(1)
        self.settings = BrokerSettings({"log.cleaner.backoff.ms": "10"})
        self.partitions: list[Any] = []
        self.log_cleaner = LogCleaner(self)  # type: ignore[arg-type]

    def log(self, topic: str, rounds: int = 2, clean_rounds: int = 0, **changes: Any) -> PartitionLog:
        """A log with so many closed segments of the same key, some of which count as clean."""
        log = self.log_dirs.create(topic, 0, None, replace(CONFIG, **changes))
        for number in range(rounds):
            if number == clean_rounds:
                log.cleaned_to = log.end_offset
            put(log, (b"k", b"v" * 100))
            log.roll(NOW)
        self.partitions.append(SimpleNamespace(log=log))
        return log


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.log_cleaner.stop()
    world.log_dirs.close(clean=False)


async def test_the_dirtiest_first_and_each_once(world: World) -> None:
    half = world.log("half", rounds=4, clean_rounds=2)
    full = world.log("full")
    world.log("not-compacted", cleanup_policy=frozenset({"delete"}))
    world.log("clean-enough", rounds=4, clean_rounds=3, min_cleanable_dirty_ratio=0.9)
    cleaner = world.log_cleaner
    assert await cleaner._next() is full
    assert await cleaner._next() is half
    assert await cleaner._next() is None
    assert cleaner.owns(full) and cleaner.owns(half)


async def test_logs_are_cleaned_until_nothing_is_due(world: World) -> None:
    logs = [world.log(f"t{number}", rounds=3) for number in range(3)]
    world.log_cleaner.start()
    await wait_until_async(lambda: world.log_cleaner.cleanings == 3)
    assert all(log.cleaned_to == 3 and len(rows(log)) == 1 for log in logs)
    await wait_until_async(lambda: (Path(world.log_dirs.paths[0]) / "cleaner-offset-checkpoint").exists())
    assert world.log_cleaner.failures == 0


async def test_a_child_that_cannot_run_is_no_fault_of_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.log("t")
    monkeypatch.setattr(cleaner_process, "COMMAND", ("/bin/false",))
    world.log_cleaner.start()
    await wait_until_async(lambda: world.log_cleaner.failures == 1)
    assert not world.log_cleaner.uncleanable
    assert await world.log_cleaner._next() is None, "it pauses"
    monkeypatch.undo()
    world.log_cleaner._backoff.clear()
    await wait_until_async(lambda: log.cleaned_to == 2)


async def test_the_pause_after_a_failure_grows(world: World) -> None:
    log = world.log("t")
    pauses = []
    for _ in range(10):
        world.log_cleaner._retry_later(log, "because")
        pauses.append(world.log_cleaner._backoff[log][1])
    assert pauses[:3] == [60, 120, 240] and pauses[-1] == 3600


async def test_a_failed_rename_sets_the_log_aside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.log("t")
    other = world.log("u", rounds=3)

    def refuse(log: PartitionLog, replacement: Replacement) -> None:
        if log.topic == "t":
            raise OSError(5, "the disk says no")
        real(log, replacement)

    real = swap.announce
    monkeypatch.setattr(swap, "announce", refuse)
    world.log_cleaner.start()
    await wait_until_async(lambda: other.cleaned_to == 3 and world.log_cleaner.uncleanable)
    assert list(world.log_cleaner.uncleanable) == [log]
    assert len(rows(log)) == 2
    assert not world.log_cleaner.owns(log), "its retention is housekeeping's again"
    assert not [name for name in os.listdir(log.folder) if name.endswith(".cleaned")]


async def test_names_are_durable_between_the_steps_of_a_swap(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.log("t")
    steps: list[str] = []

    def recording(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any) -> Any:
            steps.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, call)

    for name in ("announce", "exchange_segments", "name_finally"):
        recording(swap, name)
    recording(log_cleaner, "sync_path")
    world.log_cleaner.start()
    await wait_until_async(lambda: log.cleaned_to > 0)
    assert steps[:5] == ["announce", "sync_path", "exchange_segments", "sync_path", "name_finally"]


async def test_a_log_that_is_truncated_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.log("t", rounds=4)
    original = cleaner_process.CleanerProcess.clean

    async def clean(self: Any, job: Any, put_in_place: Any) -> Any:
        async def later(replacement: Replacement) -> None:
            if log.generation == 0:
                log.truncate_to(2)
            await put_in_place(replacement)

        return await original(self, job, later)

    monkeypatch.setattr(cleaner_process.CleanerProcess, "clean", clean)
    cleaner = world.log_cleaner
    assert await cleaner._next() is log
    assert await cleaner._clean(0, None, log) is None
    assert (log.end_offset, log.cleaned_to, len(rows(log))) == (2, 0, 2)
    assert cleaner.failures == 0 and not cleaner.uncleanable
    assert not cleaner._busy


async def test_a_topic_that_is_no_longer_compacted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.log("t")
    cleaner = world.log_cleaner
    assert await cleaner._next() is log
    log.config = replace(CONFIG, cleanup_policy=frozenset({"delete"}))
    assert await cleaner._clean(0, None, log) is None
    assert len(rows(log)) == 2 and cleaner.failures == 0


async def test_retention_of_compacted_logs(world: World) -> None:
    both = frozenset({"compact", "delete"})
    old = world.log("old", cleanup_policy=both, retention_ms=1000)
    kept = world.log("kept", cleanup_policy=both, retention_ms=-1)
    cut = world.log("cut")
    cut.advance_start(1)
    busy = world.log("busy", cleanup_policy=both, retention_ms=1000)
    world.log_cleaner._busy.add(busy)
    await world.log_cleaner._delete_old_segments()
    assert old.start_offset == 2 and len(old.segments) == 1
    assert len(kept.segments) == 3
    assert len(cut.segments) == 2
    assert len(busy.segments) == 3


async def test_retention_that_fails_does_not_hold_up_the_cleaner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = world.log("bad")
    good = world.log("good")
    delete = PartitionLog.delete_old_segments

    def refuse(log: PartitionLog, now_ms: int) -> int:
        if log is bad:
            raise OSError(5, "the disk says no")
        return delete(log, now_ms)

    monkeypatch.setattr(PartitionLog, "delete_old_segments", refuse)
    world.log_cleaner.start()
    await wait_until_async(lambda: good.cleaned_to == bad.cleaned_to == 2)


async def test_threads_may_change(world: World) -> None:
    world.log_cleaner.start()
    await wait_until_async(lambda: len(world.log_cleaner._tasks) == 1)
    world.settings = BrokerSettings({"log.cleaner.backoff.ms": "10", "log.cleaner.threads": "2"})
    await wait_until_async(lambda: len(world.log_cleaner._tasks) == 2)
    world.settings = BrokerSettings({"log.cleaner.backoff.ms": "10", "log.cleaner.threads": "1"})
    await wait_until_async(lambda: world.log_cleaner._tasks[1].done())
    assert not world.log_cleaner._tasks[0].done()
    log = world.log("t")
    await wait_until_async(lambda: log.cleaned_to == 2)


async def test_the_map_gets_its_share_of_the_memory(world: World) -> None:
    log = world.log("t")
    world.settings = BrokerSettings(
        {
            "log.cleaner.threads": "4",
            "log.cleaner.dedupe.buffer.size": "8000000",
            "log.cleaner.io.buffer.size": "800000",
        }
    )
    job = await world.log_cleaner._job(log, planning.survey(log, 0, NOW))
    assert (job.map_bytes, job.buffer_bytes) == (2_000_000, 100_000)
    assert job.bytes_per_second > 1e300
