"""Putting new segments in place: every step can be the last one, and every rename can fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from millstream.storage.cleaning import swap
from millstream.storage.cleaning.cleaned_segment import NewSegment, Replacement
from millstream.storage.log import PartitionLog

from ..batches import NOW, files
from ..conftest import OpenLog
from .helpers import LATER, clean, compacted, put, read_committed, rows
from .history import Crash

CONFIG = compacted(segment_bytes=10_000)
TXN = {"producer_epoch": 0, "transactional": True}
# cleaned -> swap, three old segments -> deleted, swap -> final; four kinds of files each
RENAMES = 4 + 3 * 4 + 4


def written(log: PartitionLog) -> None:
    """Three closed segments with values that replace each other, and an aborted transaction over two of
    them."""
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"wrong"), producer_id=1, base_sequence=0, **TXN)
    log.roll(NOW)
    put(log, (b"a", b"2"))
    log.append_marker(1, 0, False, 0, 0, NOW)
    log.set_high_watermark(log.end_offset)
    log.roll(NOW)
    put(log, (b"c", b"1"), (b"c", b"2"))
    log.roll(NOW)
    put(log, (b"z", b"1"))


BEFORE = [
    (0, b"a", b"1"),
    (1, b"b", b"1"),
    (3, b"a", b"2"),
    (5, b"c", b"1"),
    (6, b"c", b"2"),
    (7, b"z", b"1"),
]
AFTER = [(1, b"b", b"1"), (3, b"a", b"2"), (6, b"c", b"2"), (7, b"z", b"1")]


def committed(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_committed(log)]


def stopping_at(number: int, error: BaseException) -> Callable[[str, str], None]:
    real, done = os.rename, 0

    def rename(source: str, target: str) -> None:
        nonlocal done
        done += 1
        if done == number:
            raise error
        real(source, target)

    return rename


def test_all_goes_well(open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(CONFIG)
    written(log)
    assert committed(log) == BEFORE
    count = 0
    real = os.rename

    def rename(source: str, target: str) -> None:
        nonlocal count
        count += 1
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    clean(log)
    monkeypatch.undo()
    assert count == RENAMES, "or the tests below do not stop at every step"
    assert committed(log) == AFTER
    assert log.bases == [0, 7]
    assert {path.rpartition(".")[2] for path in files(folder) if path.startswith("0000")} == {
        "log",
        "index",
        "timeindex",
        "txnindex",
        "snapshot",
        "deleted",
    }
    assert log.size == sum(segment.size for segment in log.segments)
    log.reaper.run(1 << 60)
    assert not [name for name in files(folder) if name.endswith(".deleted")]
    log.close()
    assert committed(open_log(CONFIG, clean=True, high_watermark=8)) == AFTER


@pytest.mark.parametrize("step", range(1, RENAMES + 1))
@pytest.mark.parametrize("flushed", [True, False])
def test_the_end_at_any_step(
    open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, flushed: bool
) -> None:
    """kill -9 before a rename: the log is what it was before the cleaning or what it is after it."""
    log = open_log(CONFIG)
    written(log)
    monkeypatch.setattr(os, "rename", stopping_at(step, Crash()))
    with pytest.raises(Crash):
        clean(log)
    monkeypatch.undo()
    point = log.recovery_point if flushed else 0
    log.close(clean=False)
    log = open_log(CONFIG, recovery_point=point, high_watermark=8)
    assert committed(log) == (BEFORE if step <= 4 else AFTER)
    assert (log.start_offset, log.end_offset, log.last_stable_offset) == (0, 8, 8)
    assert not [name for name in files(folder) if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert log.producers.by_id[1].last_sequence == 0
    assert [entry.first_offset for entry in log.aborted_transactions(0, 8)] == [2]
    clean(log)
    assert committed(log) == AFTER
    put(log, (b"a", b"3"))
    assert committed(log)[-1] == (8, b"a", b"3")


@pytest.mark.parametrize("step", range(1, RENAMES + 1))
def test_a_rename_that_fails(
    open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The broker goes on with the old segments, writes, and the next start finds a log that is whole."""
    log = open_log(CONFIG)
    written(log)
    monkeypatch.setattr(os, "rename", stopping_at(step, OSError(5, "the disk says no")))
    try:
        clean(log)
    except OSError:
        assert committed(log) in (BEFORE, AFTER)
    else:
        assert committed(log) == AFTER, "an index that could not be renamed away does not matter"
    monkeypatch.undo()
    swap.remove_leftovers(log.folder)
    put(log, (b"d", b"1"))
    log.reaper.run(1 << 60)
    log.close(clean=False)
    log = open_log(CONFIG, recovery_point=8, high_watermark=9)
    assert committed(log) in ([*BEFORE, (8, b"d", b"1")], [*AFTER, (8, b"d", b"1")])
    assert [entry.first_offset for entry in log.aborted_transactions(0, 8)] == [2]


def test_the_folder_is_synced_between_the_steps(
    open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of names that were not synced, a power failure may keep the later and lose the earlier ones."""
    log = open_log(CONFIG)
    written(log)
    done: list[str] = []
    rename, sync_path = os.rename, swap.sync_path

    def renamed(source: str, target: str) -> None:
        rename(source, target)
        done.append(os.path.splitext(target)[1])

    def synced(path: str) -> None:
        sync_path(path)
        done.append("sync" if path == log.folder else path)

    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(swap, "sync_path", synced)
    clean(log)
    order = [step for step, _ in groupby(done)]
    assert order[:4] == [".swap", "sync", ".deleted", "sync"]
    assert ".swap" not in order[4:] and ".deleted" not in order[4:]
    assert committed(log) == AFTER


def test_old_segments_with_nothing_left_may_outlive_a_crash(
    open_log: OpenLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new segment ends before the last old one begins: that one is kept as it was, and cleaned next
    time."""
    config = compacted(segment_bytes=220)
    log = open_log(config)
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"b", b"2"), (b"b", b"3")):
        put(log, (key, value))
        log.roll(NOW)
    monkeypatch.setattr(os, "rename", stopping_at(5, Crash()))
    with pytest.raises(Crash):
        clean(log)
    monkeypatch.undo()
    log.close(clean=False)
    log = open_log(config, high_watermark=4)
    assert [row[0] for row in rows(log)] == [0, 1, 2, 3]
    clean(log)
    assert [row[0] for row in rows(log)] == [0, 3]


def test_the_next_group_says_nothing_about_this_one(open_log: OpenLog, folder: Path) -> None:
    """*.cleaned of a later group beside a *.swap that is complete."""
    log = open_log(CONFIG)
    written(log)

    def only_swap(log: PartitionLog, replacement: Replacement, now: int) -> None:
        swap._rename_all(os.path.join(log.folder, f"{replacement.new.base_offset:020d}"), ".cleaned", ".swap")

    clean(log, put_in_place=only_swap)
    (folder / f"{7:020d}.log.cleaned").write_bytes(b"half")
    log.close(clean=False)
    log = open_log(CONFIG, high_watermark=8)
    assert committed(log) == AFTER
    assert not [name for name in files(folder) if name.endswith((".cleaned", ".swap"))]


def test_an_old_transaction_index_does_not_stay_beside_the_new_log(open_log: OpenLog, folder: Path) -> None:
    log = open_log(CONFIG)
    put(log, (b"a", b"1"))
    log.roll(NOW)
    put(log, (b"b", b"1"))

    def only_swap(log: PartitionLog, replacement: Replacement, now: int) -> None:
        swap._rename_all(os.path.join(log.folder, f"{replacement.new.base_offset:020d}"), ".cleaned", ".swap")

    put(log, (b"a", b"2"))
    log.roll(NOW)
    clean(log, put_in_place=only_swap)
    (folder / f"{0:020d}.txnindex").write_bytes(bytes(34))
    log.close(clean=False)
    log = open_log(CONFIG, high_watermark=3)
    assert log.aborted_transactions(0, 3) == []


def test_a_log_that_changed_meanwhile_is_left_alone(open_log: OpenLog) -> None:
    log = open_log(CONFIG)
    written(log)
    new = NewSegment(0, 1, 1, 1)
    for old in ([1], [0, 5], [5, 7], [7], [0, 3, 5, 7]):
        with pytest.raises(swap.LogChanged):
            swap.replace_segments(log, Replacement(old, new), LATER)
    log.close(clean=False)
    with pytest.raises(swap.LogChanged):
        swap.find(log, [0])


def test_leftovers_of_a_cleaning_that_was_given_up(open_log: OpenLog, folder: Path) -> None:
    log = open_log(CONFIG)
    written(log)
    (folder / f"{0:020d}.log.cleaned").write_bytes(b"half")
    swap.remove_leftovers(log.folder)
    assert not [name for name in files(folder) if name.endswith(".cleaned")]
    swap.remove_leftovers(str(folder / "nowhere"))
