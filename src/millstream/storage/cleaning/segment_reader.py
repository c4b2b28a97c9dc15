"""A closed segment, a piece at a time, and what is checked of every batch.

A batch that does not verify must not be copied under a new checksum, nor be dropped silently: it makes the
log `Damaged` and the log stays as it is. Every batch is verified while its keys are learned. What the second
reading does not look at again is what goes.
"""

from __future__ import annotations

import os
import struct

from millstream.storage.cleaning.batch_records import Damaged

OUTLINE = struct.Struct(">qi4xbIhi30xi")
"""Of a header: base offset, length, magic, checksum, attributes, last offset delta, record count."""


class SegmentReader:
    """One segment's file. Read a chunk, walk over its batches, and say with `take` how far that went."""

    __slots__ = ("_chunk_bytes", "_room", "base", "end", "expected", "fd", "path", "position", "size")

    def __init__(self, path: str, base_offset: int, end_offset: int, size: int, chunk_bytes: int) -> None:
        self.path = path
        self.size = size
        self.base = base_offset
        self.end = end_offset
        self.position = 0  # of the next chunk
        self.expected = base_offset  # the lowest offset that may come next
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._chunk_bytes = self._room = chunk_bytes
        try:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        except (AttributeError, OSError):
            pass  # only a hint

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ended(self) -> bool:
        return self.position >= self.size

    def read(self, size: int | None = None) -> bytes:
        """The next chunk, of this size if it is known. It begins with a batch and may end inside one."""
        room = min(size or self._room, self.size - self.position)
        chunk = os.pread(self.fd, room, self.position)
        if len(chunk) < room:
            raise self.damaged(len(chunk), f"the file ends before its {self.size} bytes")
        return chunk

    def take(self, taken: int, following: int, expected: int) -> None:
        """The first `taken` bytes of the chunk were whole batches, the next batch has `following` bytes and
        begins at the offset `expected` or later."""
        if not taken and self.position + following > self.size:
            raise self.damaged(0, f"the file ends inside a batch of {following} bytes")
        self._room = self._chunk_bytes if taken else following  # that one batch needs more room
        self.position += taken
        self.expected = expected

    def no_batch(self, at: int) -> Damaged:
        return self.damaged(at, "there is no batch of format v2")

    def wrong_offsets(self, at: int, base: int, last: int, expected: int) -> Damaged:
        """They are not covered by the checksum."""
        return self.damaged(at, f"offsets {base} to {last} where {expected} to {self.end - 1} are due")

    def wrong_checksum(self, at: int, base: int) -> Damaged:
        return self.damaged(at, f"the batch at offset {base} has a wrong checksum")

    def damaged(self, at: int, what: str) -> Damaged:
        """For the batch at this position in the chunk."""
        return Damaged(f"{os.path.basename(self.path)}, position {self.position + at}: {what}")
