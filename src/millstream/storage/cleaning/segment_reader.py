"""The batches of a closed segment, a buffer full at a time, each with its checksum verified.

A batch that does not verify must not be copied under a new checksum, nor be dropped silently: it makes the
log `Damaged` and the log stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from crc32c import crc32c

from millstream.storage.cleaning.batch_records import Damaged
from millstream.wire.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader

Found = tuple[int, int, int, BatchHeader]
"""A batch: where in the bytes of its chunk it begins and ends, its last offset, its header."""

Chunk = tuple[int, memoryview, list[Found]]
"""Position in the file, the bytes of whole batches, and the batches."""

_header = tuple.__new__  # what BatchHeader._make does, without its checks


class SegmentReader:
    """One segment's file. `chunks` reuses its buffer: what it gave is gone when the next chunk is asked
    for."""

    __slots__ = ("_buffer", "_end", "_expected", "fd", "path", "size")

    def __init__(self, path: str, base_offset: int, end_offset: int, size: int, buffer: bytearray) -> None:
        self.path = path
        self.size = size
        self._expected = base_offset  # the lowest offset that may come next
        self._end = end_offset
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._buffer = buffer
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

    def chunks(self) -> Iterator[Chunk]:
        position = 0
        buffer = self._buffer
        while position < self.size:
            view = memoryview(buffer)
            filled = os.preadv(self.fd, [view[: self.size - position]], position)
            batches, used, wanted = self._whole_batches(view, filled, position)
            if batches:
                yield position, view[:used], batches
                position += used
            elif position + wanted > self.size or filled < min(len(buffer), self.size - position):
                raise self._damaged(position, f"the file ends inside a batch of {wanted} bytes")
            else:
                buffer = bytearray(wanted)  # this one batch needs more room

    def _whole_batches(self, view: memoryview, filled: int, position: int) -> tuple[list[Found], int, int]:
        """The batches that are wholly in the buffer, how many bytes they take, and the size of the next
        one."""
        batches = []
        at = 0
        size = HEADER_SIZE
        expected, end = self._expected, self._end
        unpack = HEADER.unpack_from
        while at + HEADER_SIZE <= filled:
            header = _header(BatchHeader, unpack(view, at))
            base, length, _, magic, crc, _, delta, _, _, _, _, _, count = header
            size = length + LENGTH_END
            if magic != MAGIC or size < HEADER_SIZE or delta < 0 or count < 0:
                raise self._damaged(position + at, "there is no batch of format v2")
            stop = at + size
            if stop > filled:
                break
            last = base + delta
            if base < expected or last >= end:  # not covered by the checksum
                raise self._damaged(
                    position + at, f"offsets {base} to {last} where {expected} to {end - 1} are due"
                )
            if crc32c(view[at + CRC_START : stop]) != crc:
                raise self._damaged(position + at, f"the batch at offset {base} has a wrong checksum")
            batches.append((at, stop, last, header))
            expected = last + 1
            at = stop
        self._expected = expected
        return batches, at, size

    def _damaged(self, position: int, what: str) -> Damaged:
        return Damaged(f"{os.path.basename(self.path)}, position {position}: {what}")
