"""The two sparse indexes of a segment, in Kafka's bytes.

    .index      i32 offset - base, i32 position      the batch that *ends* with that offset starts there
    .timeindex  i64 timestamp, i32 offset - base     up to that offset, no record is newer than that timestamp

An entry is added about every `index.interval.bytes`. New entries stay in memory (`tail`) and go to the file
in blocks of 512, at a roll, at a flush and at a clean stop: a lost tail costs nothing, because recovery
rebuilds what lies behind the recovery point anyway, and a flush saves the index before the recovery point
moves.

Lookups read the file with pread, never through mmap: a bad disk then raises an error instead of a SIGBUS, and
nothing stays mapped. A block of 512 entries is kept decoded, so that a reader moving forward asks the disk
once per block.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator

from millstream.storage.files import write_all

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
BLOCK = 512
OFFSETS, POSITIONS = 0, 1
MAX_RELATIVE = 0x7FFFFFFF

_SWAP = sys.byteorder == "little"


class _IndexFile:
    """The saved part of an index: whole entries of one size, read by pread, appended in blocks."""

    __slots__ = ("base_offset", "entry_size", "fd", "path", "saved")

    def __init__(self, path: str, base_offset: int, entry_size: int, saved: int | None) -> None:
        self.path = path
        self.base_offset = base_offset
        self.entry_size = entry_size
        self.fd = -1
        if saved is None:
            try:
                saved = os.stat(path).st_size // entry_size
            except FileNotFoundError:
                saved = 0
        self.saved = saved

    def _file(self) -> int:
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self.fd

    def _read(self, first: int, count: int) -> bytes:
        if self.fd < 0:
            try:
                self._file()
            except OSError:  # a read-only disk still serves readers
                self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(self.fd, count * self.entry_size, first * self.entry_size)
        if len(data) != count * self.entry_size:
            raise OSError(5, f"{self.path} is shorter than it was")
        return data

    def close_file(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1  # closed even if close reports an error
            os.close(fd)

    def save(self) -> None:
        raise AssertionError("each kind of index saves its own entries")

    def save_if_possible(self) -> None:
        """A full disk must not fail an append whose batch is already written: the tail just grows."""
        try:
            self.save()
        except OSError:
            pass

    def _store(self, data: bytes, entries: int) -> None:
        try:
            write_all(self._file(), data, self.saved * self.entry_size)
        except OSError:
            self.close_file()  # it may have been opened for reading only; the entries stay in the tail
            raise
        self.saved += entries

    def create(self) -> None:
        """Make the file of a new segment, empty whatever an interrupted attempt may have left there."""
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def ensure(self) -> None:
        """Create the file, empty, if it does not exist: Kafka expects one beside every segment."""
        if self.fd < 0 and not self.saved:
            self._file()
            self.close_file()

    def _cut(self, entries: int) -> None:
        """Keep the first `entries` saved ones. The file is cut even when it only holds rubbish behind
        them."""
        self.saved = entries
        size = entries * self.entry_size
        try:
            if os.stat(self.path).st_size != size:
                os.ftruncate(self._file(), size)
        except FileNotFoundError:
            pass

    def sync(self) -> None:
        """Durable, if there is anything to make durable."""
        if self.saved:
            os.fdatasync(self._file())


class OffsetIndex(_IndexFile):
    __slots__ = ("_block", "_block_columns", "offsets", "positions")

    def __init__(self, path: str, base_offset: int, saved: int | None = None) -> None:
        super().__init__(path, base_offset, OFFSET_ENTRY.size, saved)
        self.offsets = array("I")  # the tail: relative offsets ...
        self.positions = array("I")  # ... and positions, not yet in the file
        self._block = -1
        self._block_columns = (self.offsets, self.positions)

    def __len__(self) -> int:
        return self.saved + len(self.offsets)

    def append(self, offset: int, position: int) -> None:
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)
        if len(self.offsets) >= BLOCK:
            self.save_if_possible()

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`; 0 when the index knows nothing smaller."""
        found = self._floor(OFFSETS, offset - self.base_offset)
        return 0 if found is None else found[1]

    def batch_start_before(self, position: int) -> int:
        """The largest known start of a batch at or before `position`; 0 when there is none."""
        found = self._floor(POSITIONS, position)
        return 0 if found is None else found[1]

    def last(self) -> tuple[int, int] | None:
        """The newest entry, as (offset, position)."""
        if self.offsets:
            return self.base_offset + self.offsets[-1], self.positions[-1]
        return self.entry(self.saved - 1) if self.saved else None

    def entry(self, number: int) -> tuple[int, int]:
        if number >= self.saved:
            number -= self.saved
            return self.base_offset + self.offsets[number], self.positions[number]
        relative, position = OFFSET_ENTRY.unpack(self._read(number, 1))
        return self.base_offset + relative, position

    def entries(self) -> Iterator[tuple[int, int]]:
        """Every entry as (offset, position), oldest first."""
        for first in range(0, self.saved, BLOCK):
            data = self._read(first, min(BLOCK, self.saved - first))
            for relative, position in OFFSET_ENTRY.iter_unpack(data):
                yield self.base_offset + relative, position
        for relative, position in zip(self.offsets, self.positions, strict=True):
            yield self.base_offset + relative, position

    def save(self) -> None:
        """Put the tail into the file (the page cache, that is)."""
        count = len(self.offsets)
        if count:
            mixed = array("I", bytes(8 * count))
            mixed[0::2] = self.offsets
            mixed[1::2] = self.positions
            if _SWAP:
                mixed.byteswap()
            self._store(mixed.tobytes(), count)
            self._forget()

    def clear(self) -> None:
        self._forget()
        self._cut(0)

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches that end at `offset` or later."""
        relative = offset - self.base_offset
        keep = bisect_right(self.offsets, relative - 1) if relative > 0 else 0
        del self.offsets[keep:]
        del self.positions[keep:]
        if keep == 0:
            low, high = 0, self.saved
            while low < high:
                middle = (low + high) // 2
                if self.entry(middle)[0] < offset:
                    low = middle + 1
                else:
                    high = middle
            self._block = -1
            self._cut(low)

    def problem(self, log_size: int) -> str | None:
        """Why this index cannot belong to a log file of `log_size` bytes; None if it can. Looks at the last
        entry only:
        an index that was preallocated and never trimmed ends in zeros, a file cut short lies before it."""
        try:
            if self.saved and os.stat(self.path).st_size % self.entry_size:
                return "its size is no multiple of 8"
            last = self.last()
        except OSError as error:
            return str(error)
        if last is not None and not (0 < last[1] < log_size and last[0] >= self.base_offset):
            return f"its last entry says offset {last[0]} at position {last[1]} of {log_size}"
        return None

    def _forget(self) -> None:
        self._block = -1
        self.offsets = array("I")
        self.positions = array("I")

    def _floor(self, column: int, value: int) -> tuple[int, int] | None:
        """The last entry whose `column` is <= value, as (relative offset, position)."""
        tail = self.positions if column else self.offsets
        if tail and tail[0] <= value:
            at = bisect_right(tail, value) - 1
            return self.offsets[at], self.positions[at]
        if not self.saved:
            return None
        if self._block < 0 or not self._block_columns[column][0] <= value <= self._block_columns[column][-1]:
            low, high = 0, (self.saved - 1) // BLOCK  # the last block that starts at or before the value
            while low < high:
                middle = (low + high + 1) // 2
                if OFFSET_ENTRY.unpack(self._read(middle * BLOCK, 1))[column] <= value:
                    low = middle
                else:
                    high = middle - 1
            self._load_block(low)
        columns = self._block_columns
        at = bisect_right(columns[column], value) - 1
        return (columns[0][at], columns[1][at]) if at >= 0 else None

    def _load_block(self, number: int) -> None:
        if number == self._block:
            return
        first = number * BLOCK
        mixed = array("I", self._read(first, min(BLOCK, self.saved - first)))
        if _SWAP:
            mixed.byteswap()
        self._block_columns = (mixed[0::2], mixed[1::2])
        self._block = number


class TimeIndex(_IndexFile):
    __slots__ = ("last_offset", "last_timestamp", "tail")

    def __init__(self, path: str, base_offset: int, saved: int | None = None) -> None:
        super().__init__(path, base_offset, TIME_ENTRY.size, saved)
        self.tail: list[tuple[int, int]] = []  # (timestamp, offset), not yet in the file
        self._learn_last()

    def __len__(self) -> int:
        return self.saved + len(self.tail)

    def problem(self, end_offset: int) -> str | None:
        """Why this index cannot belong to a segment that ends before `end_offset`; None if it can."""
        try:
            if self.saved and os.stat(self.path).st_size % self.entry_size:
                return "the size of the time index is no multiple of 12"
            newest = self.entry(len(self) - 1) if len(self) else None
        except OSError as error:
            return str(error)
        if newest is not None and not (newest[0] >= 0 and self.base_offset <= newest[1] < end_offset):
            return f"the last entry of the time index says offset {newest[1]} at {newest[0]}"
        if len(self) > 1 and newest == (0, self.base_offset):
            return "the time index ends in zeros"
        return None

    def _learn_last(self) -> None:
        count = len(self)
        self.last_timestamp, self.last_offset = self.entry(count - 1) if count else (-1, self.base_offset)

    def append(self, timestamp: int, offset: int) -> None:
        """Remember a timestamp, if it is newer than what the index already says."""
        if timestamp > self.last_timestamp and offset >= self.last_offset:
            self.tail.append((timestamp, offset))
            self.last_timestamp = timestamp
            self.last_offset = offset
            if len(self.tail) >= BLOCK:
                self.save_if_possible()

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry not newer than `timestamp`, as (timestamp, offset); the segment's base when there is
        none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else (-1, self.base_offset)

    def entry(self, number: int) -> tuple[int, int]:
        if number >= self.saved:
            return self.tail[number - self.saved]
        timestamp, relative = TIME_ENTRY.unpack(self._read(number, 1))
        return timestamp, self.base_offset + relative

    def entries(self) -> Iterator[tuple[int, int]]:
        for first in range(0, self.saved, BLOCK):
            data = self._read(first, min(BLOCK, self.saved - first))
            for timestamp, relative in TIME_ENTRY.iter_unpack(data):
                yield timestamp, self.base_offset + relative
        yield from self.tail

    def save(self) -> None:
        if self.tail:
            base, pack = self.base_offset, TIME_ENTRY.pack
            self._store(b"".join([pack(when, offset - base) for when, offset in self.tail]), len(self.tail))
            self.tail = []

    def clear(self) -> None:
        self.tail = []
        self._cut(0)
        self._learn_last()

    def truncate(self, offset: int) -> None:
        """Drop the entries that speak about `offset` or later."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < offset:
                low = middle + 1
            else:
                high = middle
        if low > self.saved:
            del self.tail[low - self.saved :]
        else:
            self.tail = []
            self._cut(low)
        self._learn_last()
