"""A disk that is full, read-only or broken: the write fails with a clear error, and the log stays what it
was."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millstream.storage import append_fast_path, checkpoints
from millstream.storage.files import FilePool
from millstream.storage.log import PartitionLog
from millstream.storage.log_dirs import LogDirs
from millstream.wire.batch import TRANSACTIONAL
from millstream.wire.errors import ErrorCode, KafkaError

from .batches import NOW, batch, contents, fill, headers, real, small
from .conftest import OpenLog

CODES = [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT]


class FullDisk:
    """pwrite fails, after taking `room` bytes more; optionally cutting back fails too."""

    def __init__(
        self, patch: pytest.MonkeyPatch, code: int = errno.ENOSPC, room: int = 0, cut_fails: bool = False
    ):
        self.code, self.room, self.cut_fails = code, room, cut_fails
        self.active = True
        self.pwrite, self.ftruncate = os.pwrite, os.ftruncate
        patch.setattr(os, "pwrite", self.write)
        patch.setattr(append_fast_path, "_pwrite", self.write)
        patch.setattr(os, "ftruncate", self.cut)

    def write(self, fd: int, data: Any, position: int) -> int:
        if not self.active:
            return self.pwrite(fd, data, position)
        if self.room <= 0:
            raise OSError(self.code, os.strerror(self.code))
        written = self.pwrite(fd, bytes(data)[: self.room], position)
        self.room -= written
        return written

    def cut(self, fd: int, size: int) -> None:
        if self.active and self.cut_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.ftruncate(fd, size)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(KafkaError) as raised:
        act()
    assert raised.value.code is ErrorCode.kafka_storage_error
    return raised.value.message


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("room", [0, 1, 50, 99])
def test_a_failed_append_leaves_no_trace(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, code: int, room: int
) -> None:
    log = open_log()
    for sequence in range(5):
        log.append_leader(batch(producer=1, sequence=sequence), 0, NOW)
    disk = FullDisk(monkeypatch, code, room)
    message = refused(lambda: log.append_leader(batch(producer=1, sequence=5), 3, NOW))
    assert "orders-7" in message
    assert os.strerror(code) in message
    assert os.path.getsize(log.active.path) == log.size == 500
    assert (log.end_offset, log.last_epoch(), log.producers.by_id[1].next_sequence) == (5, 0, 5)
    assert len(headers(log)) == 5, "reading goes on"
    disk.active = False
    assert log.append_leader(batch(producer=1, sequence=5), 3, NOW).base_offset == 5
    assert len(headers(open_log())) == 6


@pytest.mark.parametrize("room", [0, 120, 399])
def test_several_batches_fail_as_one(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    log = open_log()
    fill(log, 2)
    disk = FullDisk(monkeypatch, room=room)
    data = memoryview(bytearray(b"".join(bytes(batch()) for _ in range(4))))
    refused(lambda: log.append_leader(data, 0, NOW))
    refused(lambda: log.append_follower(memoryview(contents_of(log, 2))))
    disk.active = False
    assert os.path.getsize(log.active.path) == 200
    fill(log, 1)
    assert len(headers(log)) == 3


def contents_of(log: PartitionLog, offset: int) -> bytes:
    data = bytearray(batch())
    data[0:8] = offset.to_bytes(8, "big")
    return bytes(data)


def test_rubbish_that_could_not_be_cut_is_cut_before_the_next_write(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 2)
    disk = FullDisk(monkeypatch, room=90, cut_fails=True)
    refused(lambda: log.append_leader(batch(size=150), 0, NOW))
    assert os.path.getsize(log.active.path) == 290
    assert log.size == 200
    disk.room = 1000
    refused(lambda: log.append_leader(batch(), 0, NOW))  # still not cut
    assert len(headers(log)) == 2
    disk.active = False
    log.append_leader(batch(size=70), 0, NOW)
    assert os.path.getsize(log.active.path) == log.size == 270
    assert len(headers(open_log())) == 3


def test_a_crash_while_rubbish_is_there(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    fill(log, 2)
    with monkeypatch.context() as patch:
        FullDisk(patch, room=90, cut_fails=True)
        refused(lambda: log.append_leader(batch(size=150), 0, NOW))
    log = open_log()
    assert (len(headers(log)), log.size) == (2, 200)


def test_a_roll_that_fails(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(small())
    fill(log, 10)
    disk = FullDisk(monkeypatch)
    for _ in range(3):
        refused(lambda: log.append_leader(batch(), 0, NOW))
    disk.active = False
    fill(log, 15)
    assert [header.base_offset for header in headers(log)] == list(range(25))
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20]
    assert len(headers(open_log(small()))) == 25


def test_no_new_file_can_be_made(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(small())
    fill(log, 10)
    true_open = os.open
    with monkeypatch.context() as patch:

        def no_new_files(path: str, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT and not os.path.exists(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return true_open(path, flags, *args, **kwargs)

        patch.setattr(os, "open", no_new_files)
        refused(lambda: log.append_leader(batch(), 0, NOW))
        assert len(headers(log)) == 10
    fill(log, 10)
    assert len(headers(log)) == 20


def test_index_entries_wait_for_room(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the log file itself must be written for a batch to count."""
    monkeypatch.setattr("millstream.storage.index.BLOCK", 2)
    log = open_log(small(segment_bytes=1 << 20, index_interval_bytes=0))
    true_pwrite = os.pwrite
    full = [True]

    def pwrite(fd: int, data: Any, position: int) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true_pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)  # append_leader itself uses the one it knew at import
    fill(log, 20)
    assert len(log.active.index) == 19
    full[0] = False
    fill(log, 1)
    log.close()
    log = open_log(small(), clean=True)
    assert len(log.active.index) == 20
    assert len(headers(log)) == 21


def test_an_abort_marker_counts_although_its_index_is_full(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append_leader(batch(producer=1, sequence=0, attributes=TRANSACTIONAL), 0, NOW)
    true_open = os.open

    def no_txn_index(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(".txnindex"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true_open(path, flags, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_txn_index)
        log.append_marker(1, 0, False, 0, 0, NOW)
        assert len(log.aborted_transactions(0, 10)) == 1
    log.close()
    assert len(open_log(clean=True).aborted_transactions(0, 10)) == 1


def test_a_read_only_disk_serves_readers(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(small())
    fill(log, 25)
    before = list(contents(log))
    log.close()
    log = open_log(small(), clean=True, high_watermark=25)
    true_open = os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return true_open(path, flags, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        assert list(contents(log)) == before
        assert log.offset_for_timestamp(NOW + 1) is None
        assert "Read-only" in refused(lambda: log.append_leader(batch(), 0, NOW))
        assert list(contents(log, max_bytes=150)) == before
    fill(log, 1)
    assert len(headers(log)) == 26


def test_a_read_error_is_told(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(small())
    fill(log, 25)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        assert "orders-7" in refused(lambda: log.read(5, 100))
        refused(lambda: log.offset_for_timestamp(NOW))
    assert log.read(5, 100).size == 100


def test_retention_on_a_read_only_disk(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(small(retention_ms=0))
    fill(log, 25)

    def broken(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", broken)
        refused(lambda: log.delete_old_segments(NOW + 10))
    assert len(headers(log)) == 25
    assert log.delete_old_segments(NOW + 10) == 3


def test_truncation_that_fails_can_be_repeated(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(small())
    fill(log, 25)
    with monkeypatch.context() as patch:
        FullDisk(patch, cut_fails=True)
        refused(lambda: log.truncate_to(13))
    log.truncate_to(13)
    assert [header.base_offset for header in headers(log)] == list(range(13))
    fill(log, 1)
    assert open_log(small()).end_offset == 14


def test_creating_a_partition_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    with monkeypatch.context() as patch:

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "mkdir", full)
        refused(lambda: log_dirs.create("t", 0, None, small()))
    log_dirs.create("t", 0, None, small()).append_leader(real([b"a"]), 0, NOW)
    log_dirs.close()


def test_a_stop_on_a_full_disk_is_not_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    fill(log_dirs.create("t", 0, None, small()), 3)
    with monkeypatch.context() as patch:
        FullDisk(patch)
        log_dirs.close()
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    assert log_dirs.clean == {str(tmp_path): False}
    log_dirs.load()
    assert len(headers(log_dirs.logs["t", 0])) == 3
    log_dirs.close()


class OneBadCall:
    """The call to the disk with a certain number fails, all others work. A close that fails has closed."""

    NAMES = ("open", "close", "pread", "pwrite", "ftruncate", "replace", "rename", "unlink", "stat")

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        for name in self.NAMES:
            patch.setattr(os, name, self._counted(name, getattr(os, name)))
        patch.setattr(append_fast_path, "_pwrite", os.pwrite)

    @property
    def happened(self) -> bool:
        return self.left < 0

    def _counted(self, name: str, real_call: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                if name == "close":
                    real_call(*arguments)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real_call(*arguments, **named)

        return call


def two_logs(folder: Path) -> list[PartitionLog]:
    """They share a pool for one open segment, so every append opens its file again."""
    pool = FilePool(1)
    return [PartitionLog.open(folder / name, small(), pool=pool) for name in ("orders-0", "orders-1")]


def write_to(logs: list[PartitionLog]) -> Iterator[tuple[int, str, Callable[[], Any]]]:
    """Writes of every sort: plain ones, retries, a transaction that is aborted, over several segments."""
    for number in range(14):
        for which, log in enumerate(logs):
            yield which, "data", partial(append, log)
            if number in (3, 11):
                yield which, "data", partial(append, log, producer=1, sequence=number // 8)
                yield which, "abort", partial(log.append_marker, 1, 0, False, 0, 0, NOW)


def append(log: PartitionLog, **producer: int) -> None:
    log.append_leader(batch(**producer, attributes=TRANSACTIONAL if producer else 0), 0, NOW)


def test_whatever_call_fails_the_write_is_refused_or_counts(tmp_path: Path) -> None:
    number = 0
    while True:
        folder = tmp_path / str(number)
        logs = two_logs(folder)
        counted = [{"data": 0, "abort": 0}, {"data": 0, "abort": 0}]
        with pytest.MonkeyPatch.context() as patch:
            disk = OneBadCall(patch, number)
            for which, kind, write in write_to(logs):
                for _ in range(2):  # the one that fails is tried again
                    try:
                        write()
                    except KafkaError as error:
                        assert error.code is ErrorCode.kafka_storage_error, (number, error)
                        continue
                    counted[which][kind] += 1
                    break
        if not disk.happened:
            break
        logs += two_logs(folder)
        for log, expected in zip(logs, counted * 2, strict=True):
            written = headers(log)
            assert [header.base_offset for header in written] == list(range(16 + 2)), number
            assert expected == {"data": 16, "abort": 2}, number
            assert len(log.aborted_transactions(0, 100)) == 2, number
            log.close(clean=False)
        number += 1
    assert number > 100


def test_a_full_disk_after_a_crash_serves_readers(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(small())
    fill(log, 25)
    before = list(contents(log))
    for segment in log.segments:
        os.unlink(segment.stem + ".index")
    with monkeypatch.context() as patch:
        no_room(patch)
        log = open_log(small())
        assert list(contents(log)) == before
        assert log.read(13, 100, "end").next_offset == 14
        refused(lambda: log.append_leader(batch(), 0, NOW))
    fill(log, 25)
    assert len(headers(log)) == 50
    log.close()
    assert len(headers(open_log(small(), clean=True))) == 50


def no_room(patch: pytest.MonkeyPatch) -> None:
    """Nothing can be written, and no file be made."""
    true_open = os.open

    def no_new_files(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true_open(path, flags, *args, **kwargs)

    patch.setattr(os, "open", no_new_files)
    FullDisk(patch)


def test_a_start_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has started anew, a log has lost its end, a partition its only segment."""
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    fill(log_dirs.create("t", 0, None, small()), 25)
    log_dirs.create("t", 1, None, small())
    log_dirs.logs["t", 0].cleaned_to = 100
    log_dirs.checkpoint_cleaned_offsets()
    log_dirs.close(clean=False)
    (tmp_path / checkpoints.BOOT_ID).write_text("another")
    for file in (tmp_path / "t-1").iterdir():
        file.unlink()
    with monkeypatch.context() as patch:
        no_room(patch)
        log_dirs = LogDirs([tmp_path])
        log_dirs.open(1)
        assert log_dirs.page_cache_lost
        log_dirs.load(lambda topic: small())
        assert len(headers(log_dirs.logs["t", 0])) == 25
        assert log_dirs.logs["t", 0].cleaned_to == 0
        refused(lambda: log_dirs.create("t", 1, None, small()))
        assert (tmp_path / "t-1").is_dir(), "it is there, but not yet a log"
        refused(lambda: log_dirs.create("t", 2, None, small()))
        assert not (tmp_path / "t-2").exists()
    fill(log_dirs.create("t", 1, None, small()), 1)
    log_dirs.close()
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    assert sorted(log_dirs.load()) == [("t", 0), ("t", 1)]
    assert log_dirs.logs["t", 0].cleaned_to == 0
    log_dirs.close()
