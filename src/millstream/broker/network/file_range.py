"""Bytes of a segment file on their way to a socket, which go there from the page cache by sendfile.

What is not in the page cache would stop the loop while the disk is read: `not_in_memory` asks, and `read_through` brings
it there, in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from millstream.storage.segment import Segment

COPY_BELOW = 16 * 1024  # reading a small slice is cheaper than a sendfile call of its own
COLD_STEP = 512 * 1024  # how far apart a slice is probed for pages that are not in memory


class FileRange:
    """A slice of a segment. Holds the file open until `release`."""

    __slots__ = ("newest", "position", "segment", "size")

    def __init__(self, segment: Segment, position: int, size: int, newest: bool) -> None:
        segment.acquire()
        self.segment = segment
        self.position = position
        self.size = size
        self.newest = newest  # in the segment that is being written, so in memory for certain

    def release(self) -> None:
        self.segment.release()


def not_in_memory(part: FileRange) -> bool:
    """Whether a page of this slice would have to be read from the disk. Asks the kernel, at a few places."""
    if part.newest:
        return False
    fd = part.segment.fd
    last = part.position + part.size - 1
    probe = [bytearray(1)]
    try:
        for position in (*range(part.position, last, COLD_STEP), last):
            os.preadv(fd, probe, position, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:  # a file system without RWF_NOWAIT
        return False
    return False


def read_through(slices: Iterable[FileRange]) -> None:
    """Read every page of the slices once (releases the interpreter lock while it waits for the disk)."""
    buffer = bytearray(1024 * 1024)
    for part in slices:
        position, end = part.position, part.position + part.size
        os.posix_fadvise(part.segment.fd, position, part.size, os.POSIX_FADV_WILLNEED)
        while position < end:
            got = os.preadv(
                part.segment.fd, [memoryview(buffer)[: min(len(buffer), end - position)]], position
            )
            if not got:
                break
            position += got
