"""Files: how many may be open, how they are replaced, and when deleted ones really go.

Three small helpers that every other module here leans on:

* `FilePool` bounds the number of open segments. A segment opens its files on first use; beyond that, the
  pool closes one that nobody used lately (second chance, so that use costs one attribute store and no list
  surgery).
* `replace_file` writes a small file so that a crash leaves the old or the new content, never a mixture.
* `Reaper` remembers renamed files until their delay is over: unlinking happens later and off the loop.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

DELETED = ".deleted"
FULL = (errno.ENOSPC, errno.EDQUOT)
MAX_NAME = 255  # bytes that a file system allows in the name of a file


class Closable(Protocol):
    used: bool
    refs: int

    def close_files(self) -> None: ...


class FilePool:
    """Counts open segments and closes idle ones beyond `limit`. A segment in flight (`refs > 0`) is never
    closed."""

    __slots__ = ("_open", "limit")

    def __init__(self, limit: int = 1024) -> None:
        self.limit = max(1, limit)
        self._open: OrderedDict[Closable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, item: Closable) -> None:
        if len(self._open) >= self.limit:
            self._evict()
        self._open[item] = None

    def closed(self, item: Closable) -> None:
        self._open.pop(item, None)

    def _evict(self) -> None:
        for _ in range(2 * len(self._open)):  # the first round may only find segments that were just used
            item, _ = self._open.popitem(last=False)
            if item.refs == 0 and not item.used:
                try:
                    item.close_files()
                except OSError:  # no business of the segment that is being opened; an fsync would say it
                    pass
                return
            item.used = False
            self._open[item] = None  # to the end of the line


def storage_error(doing: str, error: OSError) -> KafkaError:
    """What a client and an operator are told when the disk says no."""
    return KafkaError(ErrorCode.kafka_storage_error, f"cannot {doing}: {error.strerror or error}")


class SyncFailed(OSError):
    """An fsync failed, and nothing in that data folder can be promised any more: the kernel may have dropped
    what it could not write, and would call the next fsync a success. A restart checks what is there."""


def sync(fd: int, path: str, data_only: bool = False) -> None:
    """fsync (fdatasync with `data_only`) of an open file."""
    try:
        if data_only:
            os.fdatasync(fd)
        else:
            os.fsync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def write_all(fd: int, data: bytes | memoryview, position: int) -> None:
    """pwrite until everything is written; a short write means that the next one will say why."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        if written <= 0:
            raise OSError(5, "write returned no progress")
        position += written
        view = view[written:]


def read_small(path: str) -> bytes:
    """A file of a few lines, with as few calls as can be: a start reads two for each partition."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 1 << 16)
        while len(data) >= 1 << 16 and (more := os.read(fd, 1 << 20)):
            data += more
        return data
    finally:
        os.close(fd)


def sync_path(path: str) -> None:
    """fsync a file, or a folder (which makes the names in it durable)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        sync(fd, path)
    finally:
        os.close(fd)


def sync_file_system(path: str) -> None:
    """Make everything on the file system of `path` durable."""
    import ctypes

    fd = os.open(path, os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise SyncFailed(number, os.strerror(number), path)
    finally:
        os.close(fd)


def reserve_space(fd: int, start: int, size: int) -> bool:
    """Give the bytes from `start` on their blocks now, without making the file longer, so that a full disk
    cannot refuse them later. OSError if there is no room; False if the file system cannot do it."""
    import ctypes

    keep_size = 1  # FALLOC_FL_KEEP_SIZE
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    if fallocate(fd, keep_size, start, size) == 0:
        return True
    number = ctypes.get_errno()
    if number in FULL:
        raise OSError(number, os.strerror(number))
    return False


def replace_file(path: str, content: bytes, durable: bool = True) -> None:
    """Write `content` beside `path` and rename it into place; with `durable`, synced when this returns."""
    temporary = f"{path}.{threading.get_ident()}.tmp"  # two threads may replace the same file
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            write_all(fd, content, 0)
            if durable:
                sync(fd, path)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except OSError:
        remove_quietly(temporary)
        raise
    if durable:
        sync_path(os.path.dirname(path) or ".")


def remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


class Reaper:
    """Files and folders that are already renamed away, waiting for their time to be unlinked. The log's
    thread adds, any thread may remove."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due_ms: int, paths: Iterable[str]) -> None:
        with self._lock:
            self._waiting.extend((due_ms, path) for path in paths)

    def run(self, now_ms: int) -> int:
        """Remove what is due; how many paths that were."""
        with self._lock:
            due = [path for when, path in self._waiting if when <= now_ms]
            self._waiting = [entry for entry in self._waiting if entry[0] > now_ms]
        for path in due:
            remove_tree(path)
        return len(due)


def remove_tree(path: str) -> None:
    """Remove a file or a folder; say so when it cannot be done, and leave it for the next start."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error)
