from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.storage.files import FilePool, Reaper, replace_file, sync_file_system, write_all


class Item:
    def __init__(self, pool: FilePool) -> None:
        self.pool = pool
        self.refs = 0
        self.used = True
        self.open = True
        pool.opened(self)

    def close_files(self) -> None:
        self.open = False
        self.pool.closed(self)


def test_the_least_used_goes_first() -> None:
    pool = FilePool(3)
    a, b, c = (Item(pool) for _ in range(3))
    for item in (a, b, c):
        item.used = False
    b.used = True
    d = Item(pool)
    assert [item.open for item in (a, b, c, d)] == [False, True, True, True]
    a = Item(pool)
    assert [item.open for item in (b, c, d)] == [True, False, True], "b was used, so it got a second chance"
    assert len(pool) == 3


def test_items_in_use_are_never_closed() -> None:
    pool = FilePool(2)
    items = [Item(pool) for _ in range(2)]
    for item in items:
        item.refs = 1
    more = Item(pool)
    assert all(item.open for item in (*items, more))
    assert len(pool) == 3
    items[0].refs = 0
    Item(pool)
    assert not items[0].open


def test_all_just_used() -> None:
    pool = FilePool(2)
    items = [Item(pool) for _ in range(10)]
    assert sum(item.open for item in items) == 2


def test_replace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    replace_file(str(path), b"one")
    replace_file(str(path), b"two", durable=False)
    assert path.read_bytes() == b"two"

    def broken(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(OSError):
        replace_file(str(path), b"three")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["f"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: true_pwrite(fd, bytes(data)[:3], at))
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    write_all(fd, b"0123456789", 2)
    assert os.pread(fd, 100, 0) == b"\0\x000123456789"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError):
        write_all(fd, b"x", 0)
    os.close(fd)


def test_reaper(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    reaper = Reaper()
    reaper.add(10, [str(tmp_path / "file"), str(tmp_path / "missing")])
    reaper.add(20, [str(tmp_path / "folder")])
    assert (reaper.run(9), len(reaper)) == (0, 3)
    assert (reaper.run(10), len(reaper)) == (2, 1)
    assert (reaper.run(30), len(reaper)) == (1, 0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")

    def broken(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "unlink", broken)
    reaper.add(0, [str(tmp_path / "file")])
    reaper.run(1)
    assert "cannot remove" in caplog.text


def test_sync_file_system(tmp_path: Path) -> None:
    sync_file_system(str(tmp_path))
    with pytest.raises(OSError):
        sync_file_system(str(tmp_path / "missing"))
