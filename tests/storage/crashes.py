"""Stopping a process at the n-th change it makes to the disk, as kill -9 would, without killing anything."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.storage import append_fast_path
from millstream.storage.files import FilePool
from millstream.storage.segment import Segment


class Crash(BaseException):
    """Not an Exception, so that no handler mistakes it for an error."""


class Disk:
    """Counts changes; `at` is the one that does not happen any more (a write happens by half)."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def due(self) -> bool:
        self.count += 1
        return self.count - 1 == self.at


class ProcessFiles(FilePool):
    """Every segment that one process has open; when it dies, the kernel closes them."""

    def end(self) -> None:
        # Not those in the pool alone: an index may be open without its log.
        for segment in gc.get_referrers(self):
            if isinstance(segment, Segment):
                segment.close_files()


@contextmanager
def crashing(at: int) -> Iterator[Disk]:
    disk = Disk(at)
    true = {
        name: getattr(os, name)
        for name in ("pwrite", "open", "rename", "replace", "unlink", "ftruncate", "truncate")
    }

    def changes(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if disk.due():
                raise Crash(name)
            return true[name](*args, **kwargs)

        return call

    def pwrite(fd: int, data: Any, position: int) -> int:
        if disk.due():
            true["pwrite"](fd, bytes(data)[: len(data) // 2], position)
            raise Crash("pwrite")
        return int(true["pwrite"](fd, data, position))

    def create(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT and not os.path.exists(path) and disk.due():
            raise Crash("open")
        return int(true["open"](path, flags, *args, **kwargs))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "replace", "unlink", "ftruncate", "truncate"):
            patch.setattr(os, name, changes(name))
        patch.setattr(os, "pwrite", pwrite)
        patch.setattr(append_fast_path, "_pwrite", pwrite)
        patch.setattr(os, "open", create)
        yield disk
