"""The new segment: a `.log.cleaned` file with its indexes, durable before anybody is told of it.

Most of a large compacted log does not change from one cleaning to the next. So as long as the output equals
the source byte for byte, nothing is written; at the first difference the equal part is copied inside the
kernel. If there never is one, the segment stays where it is.

Written bytes are synced every few megabytes: one fsync of a whole segment at the end would hold up every
other write to the disk, the broker's own among them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from millstream.storage.cleaning.cleaned_segment import CLEANED, NewSegment, remove_files
from millstream.storage.cleaning.segment_reader import SegmentReader
from millstream.storage.files import sync_path
from millstream.storage.index import OffsetIndex, TimeIndex
from millstream.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_stem
from millstream.storage.transactions import ENTRY, VERSION, AbortedTransaction

SYNC_EVERY = 16 << 20
MAX_BUFFERS = 512  # buffers in one writev; the kernel takes 1024


class SegmentWriter:
    __slots__ = (
        "_equals",
        "_fd",
        "_folder",
        "_index",
        "_interval",
        "_last_start",
        "_parts",
        "_stem",
        "_time_index",
        "_unindexed",
        "_unsynced",
        "_written",
        "base_offset",
        "copied",
        "max_timestamp",
        "max_timestamp_offset",
        "position",
    )

    def __init__(self, folder: str, base_offset: int, interval: int, may_equal: SegmentReader | None) -> None:
        """`may_equal`: the only source, whose bytes may turn out to stay as they are."""
        remove_files(folder, base_offset, CLEANED)
        self._folder = folder
        self._stem = os.path.join(folder, file_stem(base_offset))
        self._fd = os.open(
            self._stem + LOG + CLEANED, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644
        )
        self._index = OffsetIndex(self._stem + INDEX + CLEANED, base_offset, saved=0)
        self._time_index = TimeIndex(self._stem + TIME_INDEX + CLEANED, base_offset, saved=0)
        self._interval = interval
        self._equals = may_equal
        self._parts: list[memoryview | bytearray] = []
        # In the chunk, of the unchanged bytes that are the last part; -1: it is something else.
        self._last_start = -1
        self._unindexed = 0
        self._unsynced = 0
        self._written = 0
        self.copied = 0  # bytes that were copied without having been read here
        self.base_offset = base_offset
        self.position = 0  # size of the segment so far
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset

    @property
    def unchanged(self) -> bool:
        """Is everything so far equal to the source?"""
        return self._equals is not None

    def keep(self, chunk: memoryview, at: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """The batch at `at` in the chunk stays as it is."""
        if self._equals is None:
            if self._last_start >= 0 and self._last_start + len(self._parts[-1]) == at:
                self._parts[-1] = chunk[self._last_start : at + size]
            else:
                self._parts.append(chunk[at : at + size])
                self._last_start = at
        self._add_to_indexes(last_offset, size, max_timestamp)

    def replace(self, batch: bytearray, last_offset: int, max_timestamp: int) -> None:
        """A batch of the source becomes this one."""
        self.drop()
        self._parts.append(batch)
        self._last_start = -1
        self._add_to_indexes(last_offset, len(batch), max_timestamp)

    def drop(self) -> None:
        """Nothing remains of a batch of the source."""
        if self._equals is not None:
            self._diverge(self._equals)

    def end_chunk(self) -> int:
        """Write what the chunk gave. How many bytes were written."""
        parts, self._parts = self._parts, []
        self._last_start = -1
        before = self._written
        for first in range(0, len(parts), MAX_BUFFERS):
            self._write(parts[first : first + MAX_BUFFERS])
        return self._written - before

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ns: int) -> NewSegment:
        """Everything to disk, with the file time of the segment that it replaces."""
        self.end_chunk()
        self._time_index.append(self.max_timestamp, self.max_timestamp_offset)
        for index in (self._index, self._time_index):
            index.save()
            index.ensure()
            index.sync()
            index.close_file()
        if aborted:
            path = self._stem + TXN_INDEX + CLEANED
            with open(path, "wb") as file:
                file.write(b"".join([ENTRY.pack(VERSION, *entry) for entry in aborted]))
                file.flush()
                os.fsync(file.fileno())
        os.utime(self._fd, ns=(modified_ns, modified_ns))
        os.fsync(self._fd)
        self._close()
        sync_path(self._folder)
        return NewSegment(self.base_offset, self.position, self.max_timestamp, self.max_timestamp_offset)

    def discard(self) -> None:
        """Nothing of this is wanted."""
        self._close()
        self._index.close_file()
        self._time_index.close_file()
        remove_files(self._folder, self.base_offset, CLEANED)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _add_to_indexes(self, last_offset: int, size: int, max_timestamp: int) -> None:
        """As `Segment.add_to_indexes` does it for an append."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._unindexed > self._interval:
            self._index.append(last_offset, self.position)
            self._time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self._unindexed = 0
        self._unindexed += size
        self.position += size

    def _diverge(self, source: SegmentReader) -> None:
        """From here on the output is another: copy what was equal up to now."""
        self._equals = None
        done = 0
        while done < self.position:
            count = min(self.position - done, SYNC_EVERY)
            count = _copy(source.fd, self._fd, done, count)
            if count <= 0:
                raise OSError(5, f"{source.path} is shorter than it was")
            done += count
            self._sync_now_and_then(count)
        self.copied = self._written = done

    def _write(self, parts: list[memoryview | bytearray]) -> None:
        total = sum([len(part) for part in parts])
        done = os.pwritev(self._fd, parts, self._written)
        if done != total:  # a signal, or a disk about to be full: the rest says which
            rest = memoryview(b"".join(parts))[done:]
            while rest:
                step = os.pwrite(self._fd, rest, self._written + done)
                done += step
                rest = rest[step:]
        self._written += total
        self._sync_now_and_then(total)

    def _sync_now_and_then(self, count: int) -> None:
        self._unsynced += count
        if self._unsynced >= SYNC_EVERY:
            os.fdatasync(self._fd)
            self._unsynced = 0


def _copy(source: int, target: int, position: int, count: int) -> int:
    """Copy bytes between files at the same position, inside the kernel where it can do that."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, target, count, position, position)
        except OSError:
            pass  # not on this file system
    return os.pwrite(target, os.pread(source, count, position), position)
