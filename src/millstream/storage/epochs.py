"""Leader epochs: which leader wrote from which offset on (the file leader-epoch-checkpoint).

    0                  format version
    2                  number of lines that follow
    0 0                epoch, start offset
    3 1470

Every batch carries its leader's epoch, so this is derived data: rebuilt from headers where it is missing,
trusted only up to the log's end. It is kept in memory and written at a flush, a truncation and a clean stop;
a new partition has an empty file, as Kafka's has.
"""

from __future__ import annotations

import os
from bisect import bisect_right

from millstream.storage.files import read_small, replace_file

FILE_NAME = "leader-epoch-checkpoint"


class EpochCache:
    __slots__ = ("dirty", "epochs", "latest", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []
        self.latest = -1
        self.dirty = False

    def assign(self, epoch: int, start: int) -> None:
        """`epoch` writes from `start` on. Entries that this proves wrong (later start, same or larger epoch)
        go."""
        if epoch <= self.latest and self.starts and start >= self.starts[-1]:
            return
        while self.epochs and (self.epochs[-1] >= epoch or self.starts[-1] >= start):
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start)
        self.latest = epoch
        self.dirty = True

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch <= `epoch` and where it ends; (-1, -1) if nothing is known at all.

        An epoch older than all that is known ends, empty, where the oldest known one starts.
        """
        if not self.epochs or epoch < 0:
            return -1, -1
        at = bisect_right(self.epochs, epoch)
        end = self.starts[at] if at < len(self.starts) else log_end
        return (self.epochs[at - 1] if at else epoch), end

    def at(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 if unknown."""
        at = bisect_right(self.starts, offset)
        return self.epochs[at - 1] if at else -1

    def truncate_end(self, offset: int) -> None:
        """The log now ends at `offset`: no epoch can start there or later."""
        while self.starts and self.starts[-1] >= offset:
            self.starts.pop()
            self.epochs.pop()
            self.dirty = True
        self.latest = self.epochs[-1] if self.epochs else -1

    def truncate_start(self, offset: int) -> None:
        """The log now begins at `offset`: the epoch that wrote it starts there, older ones go."""
        at = bisect_right(self.starts, offset)
        if at and (at > 1 or self.starts[0] < offset):
            del self.starts[: at - 1]
            del self.epochs[: at - 1]
            self.starts[0] = offset
            self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self.epochs)
        self.epochs.clear()
        self.starts.clear()
        self.latest = -1

    def encode(self) -> bytes:
        lines = [f"{epoch} {start}\n" for epoch, start in zip(self.epochs, self.starts, strict=True)]
        return f"0\n{len(lines)}\n{''.join(lines)}".encode()

    def save(self, folder: str, sync: bool) -> None:
        if self.dirty:
            replace_file(os.path.join(folder, FILE_NAME), self.encode(), sync)
            self.dirty = False


def create(folder: str) -> None:
    """The file of a new partition: empty, which both Kafka and `load` take for no epochs known."""
    path = os.path.join(folder, FILE_NAME)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def load(folder: str) -> EpochCache | None:
    """The file's content; None if there is no sound one (it is then rebuilt from the log)."""
    cache = EpochCache()
    try:
        lines = read_small(os.path.join(folder, FILE_NAME)).decode().splitlines()
        if int(lines[0]) != 0 or int(lines[1]) != len(lines) - 2:
            return None
        for line in lines[2:]:
            epoch, start = (int(word) for word in line.split())
            if cache.epochs and (epoch <= cache.epochs[-1] or start < cache.starts[-1]):
                return None
            cache.epochs.append(epoch)
            cache.starts.append(start)
    except (OSError, ValueError, IndexError):
        return None
    cache.latest = cache.epochs[-1] if cache.epochs else -1
    return cache
