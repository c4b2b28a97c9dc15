"""Bytes of a segment file on their way to a socket, where sendfile takes them from the page cache.

Bytes that are not in the page cache would stop the loop while the disk is read: `not_in_memory` asks the
kernel, and `read_through` brings them there, in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from millstream.storage.segment import Segment

# Reading a small range is cheaper than a sendfile call of its own.
COPY_BELOW = 16 * 1024
# How far apart a range is probed for pages that are not in memory.
COLD_STEP = 512 * 1024


class FileRange:
    """A range of a segment. Holds the file open until `release`."""

    __slots__ = ("newest", "position", "segment", "size")

    def __init__(self, segment: Segment, position: int, size: int, newest: bool) -> None:
        segment.acquire()
        self.segment = segment
        self.position = position
        self.size = size
        self.newest = newest  # in the active segment, which is in memory

    def release(self) -> None:
        self.segment.release()


Part = bytes | bytearray | memoryview | FileRange


def join_parts(parts: Iterable[object]) -> tuple[list[Part], list[FileRange]]:
    """What is small becomes one piece, what is large or cold is left to sendfile. Returns the parts, and
    those of them that have to be read from the disk first."""
    out: list[Part] = []
    small = bytearray()
    cold: list[FileRange] = []
    for part in parts:
        if type(part) is not FileRange:
            small += part  # type: ignore[arg-type]
            continue
        is_cold = not_in_memory(part)
        if part.size < COPY_BELOW and not is_cold:
            small += os.pread(part.segment.fd, part.size, part.position)
            part.release()
            continue
        if small:
            out.append(small)
            small = bytearray()
        out.append(part)
        if is_cold:
            cold.append(part)
    if small:
        out.append(small)
    return out, cold


def release(parts: Iterable[object]) -> None:
    """The parts will not be sent."""
    for part in parts:
        if type(part) is FileRange:
            part.release()


def not_in_memory(file_range: FileRange) -> bool:
    """Whether a page of this range would have to be read from the disk. Asks the kernel about a few of
    them."""
    if file_range.newest:
        return False
    fd = file_range.segment.fd
    last = file_range.position + file_range.size - 1
    probe = [bytearray(1)]
    try:
        for position in (*range(file_range.position, last, COLD_STEP), last):
            os.preadv(fd, probe, position, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:  # a file system without RWF_NOWAIT
        return False
    return False


def read_through(file_ranges: Iterable[FileRange]) -> None:
    """Read every page of the ranges once. Releases the interpreter lock while it waits for the disk."""
    buffer = memoryview(bytearray(1024 * 1024))
    for file_range in file_ranges:
        fd, position, size = file_range.segment.fd, file_range.position, file_range.size
        end = position + size
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
        while position < end:
            count = os.preadv(fd, [buffer[: end - position]], position)
            if not count:
                break
            position += count
