"""How far a log is clean is remembered in Kafka's file, and never too far."""

from __future__ import annotations

from pathlib import Path

from millstream.storage.checkpoints import CLEANED_OFFSETS, read_offsets
from millstream.storage.log import PartitionLog
from millstream.storage.log_dirs import LogDirs

from ..batches import NOW
from .helpers import clean, compacted, put


def opened(path: Path) -> LogDirs:
    log_dirs = LogDirs([path])
    log_dirs.open(1)
    log_dirs.load(lambda topic: compacted())
    return log_dirs


def filled(log_dirs: LogDirs, topic: str = "t") -> PartitionLog:
    log = log_dirs.create(topic, 0, None, compacted())
    for _ in range(3):
        put(log, (b"k", b"v"))
        log.roll(NOW)
    clean(log)
    return log


def test_survives_a_restart(tmp_path: Path) -> None:
    log_dirs = opened(tmp_path)
    log = filled(log_dirs)
    assert log.cleaned_to == 3
    filled(log_dirs, "other").cleaned_to = 0
    log_dirs.checkpoint_cleaned_offsets()
    log_dirs.close()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    log_dirs = opened(tmp_path)
    assert log_dirs.logs["t", 0].cleaned_to == 3
    assert log_dirs.logs["other", 0].cleaned_to == 0
    log_dirs.close()


def test_a_log_that_lost_its_end_is_dirty(tmp_path: Path) -> None:
    log_dirs = opened(tmp_path)
    filled(log_dirs)
    log_dirs.checkpoint_cleaned_offsets()
    log_dirs.close()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    log_dirs = opened(tmp_path)
    assert log_dirs.logs["t", 0].cleaned_to == 0
    assert read_offsets(str(tmp_path), CLEANED_OFFSETS) == {}, "it may grow beyond 99 again"
    log_dirs.close()


def test_truncation_takes_it_back(tmp_path: Path) -> None:
    log_dirs = opened(tmp_path)
    log = filled(log_dirs)
    log.truncate_to(2)
    assert log.cleaned_to == 2
    log.truncate_to(2)
    log.reset_at(50)
    assert log.cleaned_to == 2, "before the start: the whole log is dirty"
    log_dirs.close()


def test_a_namesake_does_not_inherit(tmp_path: Path) -> None:
    log_dirs = opened(tmp_path)
    log = filled(log_dirs)
    log_dirs.checkpoint_cleaned_offsets()
    log_dirs.delete(log, NOW)
    log_dirs.create("t", 0, None, compacted())
    assert read_offsets(str(tmp_path), CLEANED_OFFSETS) == {}
    log_dirs.close()


def test_a_damaged_file_only_costs_time(tmp_path: Path) -> None:
    log_dirs = opened(tmp_path)
    filled(log_dirs)
    log_dirs.close()
    (tmp_path / "cleaner-offset-checkpoint").write_text("nonsense")
    log_dirs = opened(tmp_path)
    assert log_dirs.logs["t", 0].cleaned_to == 0
    log_dirs.close()
