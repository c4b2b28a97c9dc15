"""The metadata log in a file: the contract, and what a crash, a full disk or a damaged disk does to it."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cluster import local_file
from millstream.cluster.local_file import (
    FILE_NAME,
    HEADER_SIZE,
    NEW_FILE_NAME,
    FolderLocked,
    LogFile,
    MetadataDamaged,
)
from millstream.cluster.local_store import LocalStore
from millstream.cluster.store import Conflict, MetadataStore, NotWritten, StoreBroken
from tests.support.effort import examples

from .store_contract import Opener, StoreContract

WRITER = str(uuid.uuid4())


class LocalOpener(Opener):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    async def make(self) -> MetadataStore:
        return await LocalStore.open(self.folder)


class TestLocalStore(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return LocalOpener(tmp_path / "deep" / "metadata")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LogFile]:
    opened = LogFile(tmp_path / "metadata", WRITER)
    yield opened
    opened.close()


def payloads(file: LogFile) -> list[bytes]:
    return [entry.payload for entry in file.read(file.first_version - 1, 10_000)]


def written(folder: Path) -> bytes:
    """A folder with a snapshot at 3, a kept entry, four later ones, and two broker epochs; returns the file's
    bytes."""
    file = LogFile(folder, WRITER)
    for version in range(1, 5):
        file.append(version, f"entry {version}".encode())
    file.next_epoch()
    file.compact(3, [b"chunk one", b"chunk two"], keep=1)
    for version in range(5, 8):
        file.append(version, f"entry {version}".encode())
        if version == 6:
            file.next_epoch()
    file.close()
    return (folder / FILE_NAME).read_bytes()


def test_a_crash_at_every_byte(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever part of the file reached the disk: a prefix of the entries is there, and the log goes on from
    it."""
    folder = tmp_path / "metadata"
    whole = written(folder)
    path = folder / FILE_NAME
    found = []
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        caplog.clear()
        try:
            file = LogFile(folder, WRITER)
        except MetadataDamaged:
            found.append(-1)  # only where a rename has put the whole file there: no crash can do this
            continue
        assert file.snapshot() == (3, [b"chunk one", b"chunk two"])
        assert payloads(file) == [f"entry {n}".encode() for n in range(file.first_version, file.version + 1)]
        cut = path.stat().st_size < size
        assert cut == ("a write that a crash interrupted" in caplog.text)
        found.append(file.version)
        epoch = file.epoch
        assert file.next_epoch() == epoch + 1
        file.append(file.version + 1, b"goes on")
        version = file.version
        file.close()
        again = LogFile(folder, WRITER)
        assert (again.version, again.epoch) == (version, epoch + 1)
        again.close()
    assert found == sorted(found)
    assert sorted(set(found)) == [-1, 3, 4, 5, 6, 7]


def test_a_torn_tail_of_any_content_is_cut(tmp_path: Path) -> None:
    folder = tmp_path / "metadata"
    whole = written(folder)
    for tail in (b"\0" * 4096, os.urandom(500), b"\2" * 300, struct.pack(">II", 2**31, 7) + b"x" * 50):
        (folder / FILE_NAME).write_bytes(whole + tail)
        file = LogFile(folder, WRITER)
        assert file.version == 7
        assert (folder / FILE_NAME).read_bytes() == whole
        file.close()


def test_a_flipped_bit_is_never_taken_for_data(tmp_path: Path) -> None:
    """In the last entry it looks like a torn write; anywhere else the file is refused, not shortened."""
    folder = tmp_path / "metadata"
    whole = written(folder)
    path = folder / FILE_NAME
    last = whole.index(b"entry 7") - local_file.FRAME_OVERHEAD
    refused = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            file = LogFile(folder, WRITER)
        except MetadataDamaged:
            refused += 1
            assert position < last
            assert path.read_bytes() == damaged  # left for a person to look at
            continue
        assert file.snapshot() == (3, [b"chunk one", b"chunk two"])
        assert payloads(file) == [f"entry {n}".encode() for n in range(file.first_version, file.version + 1)]
        assert file.version >= 6
        file.close()
    assert refused >= whole.index(b"entry 6")


def test_damage_that_appears_while_running_is_found(file: LogFile) -> None:
    file.append(1, b"precious")
    with file.path.open("r+b") as other:
        other.seek(HEADER_SIZE + local_file.FRAME_OVERHEAD)
        other.write(b"X")
    with pytest.raises(MetadataDamaged):
        file.read(0, 10)
    with pytest.raises(MetadataDamaged):
        file.compact(1, [b"chunk"], keep=1)


def header(format_: int) -> bytes:
    head = struct.pack(">8sIIQQ", b"MILLMETA", format_, 0, 0, 0)
    return head + struct.pack(">I", crc32c(head))


def test_a_newer_format_is_refused_clearly(tmp_path: Path) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(header(2) + b"whatever the future holds")
    with pytest.raises(
        MetadataDamaged, match=r"has format 2, which a newer version of Millstream wrote; .* up to 1"
    ):
        LogFile(folder, WRITER)
    (folder / FILE_NAME).write_bytes(header(1))
    LogFile(folder, WRITER).close()


@pytest.mark.parametrize("content", [b"", b"MILL", b"#!/bin/sh\n" * 10, header(0)])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(content)
    with pytest.raises(MetadataDamaged):
        LogFile(folder, WRITER)
    assert (folder / FILE_NAME).read_bytes() == content


@pytest.mark.parametrize("step", ["write", "sync", "rename", "nothing"])
def test_a_crash_during_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The old file or the new one, never a mixture; a leftover new file is removed."""
    folder = tmp_path / "metadata"
    written(folder)
    file = LogFile(folder, WRITER)

    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    if step != "nothing":
        name = {"write": "pwrite", "sync": "fsync", "rename": "rename"}[step]
        monkeypatch.setattr(local_file.os, name, crash)
        with pytest.raises(Crash):
            file.compact(7, [b"all"], keep=0)
        monkeypatch.undo()
    else:
        file.compact(7, [b"all"], keep=0)
    left = (folder / NEW_FILE_NAME).exists()
    file.close()
    again = LogFile(folder, WRITER)
    assert again.version == 7
    assert again.snapshot_version == (7 if step == "nothing" else 3)
    assert left == (step != "nothing") and not (folder / NEW_FILE_NAME).exists()
    again.close()


def test_a_full_disk_fails_the_write_and_leaves_the_log_valid(
    file: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append(1, b"one")
    size = file.path.stat().st_size
    real = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if position > size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data)[:10], position)  # some of it still fits

    monkeypatch.setattr(local_file.os, "pwrite", full)
    with pytest.raises(NotWritten, match="No space left on device"):
        file.append(2, b"two")
    with pytest.raises(NotWritten):
        file.next_epoch()
    with pytest.raises(NotWritten):
        file.compact(1, [b"chunk" * 100], keep=0)
    assert file.path.stat().st_size == size
    monkeypatch.undo()
    file.append(2, b"two again")
    assert payloads(file) == [b"one", b"two again"]
    assert file.next_epoch() == 1


def test_a_sync_that_fails_ends_the_store(file: LogFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local_file.os, "fdatasync", failing)
    with pytest.raises(StoreBroken, match="restart the broker"):
        file.append(1, b"one")
    monkeypatch.undo()  # a sync that works now says nothing about the pages that were dropped
    for attempt in (lambda: file.append(1, b"one"), file.next_epoch, lambda: file.compact(0, [], 0)):
        with pytest.raises(StoreBroken):
            attempt()


def test_a_snapshot_whose_folder_cannot_be_synced_ends_the_store(
    file: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file has its name already. Entries appended to it would be lost if the old one came back."""
    for version in range(1, 6):
        file.append(version, b"entry %d" % version)

    def failing(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(local_file, "_sync_folder", failing)
        with pytest.raises(StoreBroken, match="restart the broker"):
            file.compact(4, [b"everything up to 4"], keep=0)
    with pytest.raises(StoreBroken):
        file.append(6, b"six")
    assert file.snapshot() == (4, [b"everything up to 4"])
    assert payloads(file) == [b"entry 5"]
    file.close()
    again = LogFile(file.path.parent, WRITER)
    assert (again.version, payloads(again)) == (5, [b"entry 5"])
    again.append(6, b"six")
    again.close()


def test_a_write_that_cannot_be_undone_ends_the_store(file: LogFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(local_file.os, "pwrite", failing)
    monkeypatch.setattr(local_file.os, "ftruncate", failing)
    with pytest.raises(StoreBroken):
        file.append(1, b"one")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "metadata"
    file = LogFile(folder, WRITER)
    with pytest.raises(FolderLocked, match="another broker is using this folder"):
        LogFile(folder, WRITER)
    code = (
        "import sys, pathlib, uuid\nfrom millstream.cluster.local_file import LogFile, FolderLocked\n"
        "try: LogFile(pathlib.Path(sys.argv[1]), str(uuid.uuid4()))\nexcept FolderLocked: print('locked')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "locked"
    file.close()
    LogFile(folder, WRITER).close()


def test_the_file_is_for_the_owner_only(file: LogFile) -> None:
    """Settings hold passwords."""
    file.compact(0, [b"secret"], keep=0)
    assert file.path.stat().st_mode & 0o077 == 0


async def test_the_loop_never_writes_or_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[int]] = {}
    for name in ("pwrite", "fdatasync", "fsync", "pread"):

        def recorded(*args: object, real: object = getattr(os, name), name: str = name) -> object:
            threads.setdefault(name, set()).add(threading.get_ident())
            return real(*args)  # type: ignore[operator]

        monkeypatch.setattr(local_file.os, name, recorded)
    store = await LocalStore.open(tmp_path / "metadata")
    await store.register(1, b"data")
    await store.append(1, b"one")
    await store.append(2, b"two")
    await store.read(0)
    await store.compact(1, [b"chunk"], keep=0)
    await store.snapshot()
    await store.close()
    assert set(threads) == {"pwrite", "fdatasync", "fsync", "pread"}
    assert all(threading.get_ident() not in idents for idents in threads.values())


async def test_close_waits_for_the_write_under_way(tmp_path: Path) -> None:
    store = await LocalStore.open(tmp_path / "metadata")
    append = asyncio.create_task(store.append(1, b"one"))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    await append
    again = await LocalStore.open(tmp_path / "metadata")
    assert [entry.payload for entry in await again.read(0)] == [b"one"]
    await again.close()


actions = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(st.integers(0, 30), st.integers(0, 5)),
        st.sampled_from(["reopen", "epoch"]),
    ),
    max_size=30,
)


@settings(max_examples=examples(60), deadline=None)
@given(actions)
def test_any_history_is_what_it_should_be(
    tmp_path_factory: pytest.TempPathFactory, history: list[object]
) -> None:
    """Against a model of a list: appends, compactions, epochs and reopening in any order."""
    folder = tmp_path_factory.mktemp("metadata")
    file = LogFile(folder, WRITER)
    model: list[bytes] = []
    first, snapshot, epoch = 1, (0, []), 0
    for action in history:
        if isinstance(action, bytes):
            model.append(action)
            file.append(len(model), action)
        elif isinstance(action, tuple):
            at, keep = min(action[0], len(model)), action[1]
            if at < snapshot[0]:
                with pytest.raises(Conflict):
                    file.compact(at, [b"no"], keep)
            else:
                chunks = [b"".join(model[:at]), b"second"]
                file.compact(at, chunks, keep)
                snapshot = (at, chunks)
                first = max(first, at + 1 - keep)
        elif action == "epoch":
            epoch += 1
            assert file.next_epoch() == epoch
        else:
            file.close()
            file = LogFile(folder, WRITER)
        assert file.version == len(model)
        assert file.snapshot() == snapshot
        assert file.first_version == first
        assert payloads(file) == model[first - 1 :]
        assert file.epoch == epoch
    file.close()
