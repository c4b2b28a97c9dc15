"""How far a log is clean is remembered in Kafka's file, and never too far."""

from __future__ import annotations

from pathlib import Path

from millstream.storage.checkpoints import CLEANED_OFFSETS, read_offsets
from millstream.storage.log import PartitionLog
from millstream.storage.log_dirs import LogFolders

from ..batches import NOW
from .helpers import clean, compacted, put


def opened(path: Path) -> LogFolders:
    folders = LogFolders([path])
    folders.open(1)
    folders.load(lambda topic: compacted())
    return folders


def filled(folders: LogFolders, topic: str = "t") -> PartitionLog:
    log = folders.create(topic, 0, None, compacted())
    for _ in range(3):
        put(log, (b"k", b"v"))
        log.roll(NOW)
    clean(log)
    return log


def test_survives_a_restart(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    log = filled(folders)
    assert log.cleaned_to == 3
    filled(folders, "other").cleaned_to = 0
    folders.checkpoint_cleaned_offsets()
    folders.close()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    folders = opened(tmp_path)
    assert folders.logs["t", 0].cleaned_to == 3
    assert folders.logs["other", 0].cleaned_to == 0
    folders.close()


def test_a_log_that_lost_its_end_is_dirty(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    filled(folders)
    folders.checkpoint_cleaned_offsets()
    folders.close()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    folders = opened(tmp_path)
    assert folders.logs["t", 0].cleaned_to == 0
    assert read_offsets(str(tmp_path), CLEANED_OFFSETS) == {}, "it may grow beyond 99 again"
    folders.close()


def test_truncation_takes_it_back(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    log = filled(folders)
    log.truncate_to(2)
    assert log.cleaned_to == 2
    log.truncate_to(2)
    log.reset_at(50)
    assert log.cleaned_to == 2, "before the start: the whole log is dirty"
    folders.close()


def test_a_namesake_does_not_inherit(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    log = filled(folders)
    folders.checkpoint_cleaned_offsets()
    folders.delete(log, NOW)
    folders.create("t", 0, None, compacted())
    assert read_offsets(str(tmp_path), CLEANED_OFFSETS) == {}
    folders.close()


def test_a_damaged_file_only_costs_time(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    filled(folders)
    folders.close()
    (tmp_path / "cleaner-offset-checkpoint").write_text("nonsense")
    folders = opened(tmp_path)
    assert folders.logs["t", 0].cleaned_to == 0
    folders.close()
