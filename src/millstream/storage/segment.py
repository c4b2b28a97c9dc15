"""A segment: one file of record batches and the small files beside it, all named after its first offset.

    00000000000000000042.log        batches, back to back, exactly as they go over the wire
    00000000000000000042.index      sparse: offset -> position           (index.py)
    00000000000000000042.timeindex  sparse: timestamp -> offset          (index.py)
    00000000000000000042.txnindex   aborted transactions, if there are any (transactions.py)

A segment opens its files when they are first needed and may lose them again to the `FilePool`. Whoever hands
a file range to the kernel (a fetch being sent) calls `acquire` first and `release` afterwards: the descriptor
then stays valid, even if retention deletes the segment meanwhile.

Positions are found by the offset index and a short walk over batch headers; records are never read.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
from collections.abc import Iterator

from millstream.storage.files import DELETED, FilePool, storage_error
from millstream.storage.index import OffsetIndex, TimeIndex
from millstream.storage.transactions import AbortedIndex
from millstream.wire.batch import HEADER_SIZE, LENGTH_END, BatchHeader, read_header
from millstream.wire.errors import ErrorCode, KafkaError

LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
OPEN_END = (1 << 63) - 1  # the end offset of the active segment: not known yet
UNKNOWN = -2  # a timestamp nobody has looked up yet

# base offset, length, last offset delta, max timestamp: what a walk needs from a header
WALK = struct.Struct(">qi11xi8xq")
_WALK_CHUNK = 8192


# a segment larger than this must have index entries, whatever the interval was (it is one per batch at most)
REBUILD_FROM = 64 << 20

logger = logging.getLogger(__name__)


def file_stem(offset: int) -> str:
    return f"{offset:020d}"


class Segment:
    __slots__ = (
        "_index",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "end_offset",
        "fd",
        "max_timestamp",
        "max_timestamp_offset",
        "pool",
        "refs",
        "retired",
        "size",
        "stem",
        "suffix",
        "unindexed",
        "used",
        "writable",
    )

    def __init__(self, folder: str, base_offset: int, pool: FilePool, size: int = 0) -> None:
        self.base_offset = base_offset
        self.end_offset = OPEN_END  # where the next segment begins, once this one is closed
        self.size = size
        self.stem = os.path.join(folder, file_stem(base_offset))
        self.suffix = ""
        self.pool = pool
        self.fd = -1
        self.refs = 0
        self.used = False
        self.writable = True
        self.retired = False
        self.created_ms = 0
        self.unindexed = 0  # bytes since the last index entry
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: AbortedIndex | None = None
        self.max_timestamp = UNKNOWN if size else -1
        self.max_timestamp_offset = base_offset

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes)"

    # -- files -----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Is this the segment that is being written?"""
        return self.end_offset == OPEN_END

    @property
    def path(self) -> str:
        return self.stem + LOG + self.suffix

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            self._open_indexes()
        return self._index  # type: ignore[return-value]

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._open_indexes()
        return self._time_index  # type: ignore[return-value]

    def _open_indexes(self) -> None:
        """Open both; rebuild both if one of them cannot belong to this log file."""
        problem = self.index_problem()
        if problem is not None:
            logger.warning("the indexes of %s are rebuilt: %s", self.path, problem)
            self.rebuild_indexes()

    def index_problem(self) -> str | None:
        """Open both indexes; why they cannot belong to this log file, None if they can."""
        self._index = OffsetIndex(self.stem + INDEX + self.suffix, self.base_offset)
        self._time_index = TimeIndex(self.stem + TIME_INDEX + self.suffix, self.base_offset)
        if self.size > REBUILD_FROM and not len(self._index):
            return "there is no offset index"
        if len(self._index) and not len(self._time_index) and self.first_timestamp() >= 0:
            return "there is no time index"
        return self._index.problem(self.size) or self._time_index.problem(self.end_offset)

    def clear_indexes(self) -> None:
        self.index.clear()
        self.time_index.clear()
        self.unindexed = 0
        self.max_timestamp, self.max_timestamp_offset = -1, self.base_offset

    def rebuild_indexes(self, interval: int = 4096) -> None:
        """Write both indexes anew from the batch headers."""
        self.clear_indexes()
        size, self.size = self.size, 0
        before = self.base_offset - 1
        for position, _, length, last, newest in self.walk(0, size):
            if last <= before:
                break
            before = last
            self.add_to_indexes(last, position, length, newest, interval)
        self.size = size
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset)

    @property
    def txn_index(self) -> AbortedIndex:
        index = self._txn_index
        if index is None:
            index = self._txn_index = AbortedIndex(self.stem + TXN_INDEX + self.suffix)
        return index

    def create(self) -> None:
        """Make the empty files, the log last: without it the others are nobody's, and the next start removes
        them. Indexes are not preallocated, and are opened again when they have something to save."""
        index = OffsetIndex(self.stem + INDEX, self.base_offset, saved=0)
        time_index = TimeIndex(self.stem + TIME_INDEX, self.base_offset, saved=0)
        index.create()
        time_index.create()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._adopt(fd)
        self._index, self._time_index = index, time_index

    def open_file(self) -> int:
        """The descriptor of the .log file, opened now if it is not."""
        if self.fd < 0:
            writable = True
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                raise KafkaError(ErrorCode.offset_out_of_range, f"{self.path} was deleted") from None
            except OSError as error:  # a read-only disk still serves readers
                try:
                    fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                    writable = False
                except OSError:
                    raise storage_error(f"open {self.path}", error) from error
            self._adopt(fd, writable)
        self.used = True
        return self.fd

    def open_for_writing(self) -> int:
        """The same, but an OSError if the file cannot be written."""
        if self.fd >= 0 and not self.writable:
            self.close_files()
        if self.fd < 0:
            self._adopt(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
        if not self.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return self.fd

    def _adopt(self, fd: int, writable: bool = True) -> None:
        self.fd = fd
        self.writable = writable
        self.used = True
        self.refs += 1  # the pool may evict others to make room, not this one
        self.pool.opened(self)
        self.refs -= 1

    def close_files(self) -> None:
        """Give the descriptors back (as soon as nobody uses them); unsaved index entries stay in memory."""
        if self.refs:
            self.retired = True
            return
        if self._index is not None:
            self._index.close_file()
        if self._time_index is not None:
            self._time_index.close_file()
        if self.fd >= 0:
            self.pool.closed(self)
            fd, self.fd = self.fd, -1  # closed even if close reports an error
            os.close(fd)

    def acquire(self) -> int:
        """The descriptor, guaranteed to stay open until `release`."""
        fd = self.fd if self.fd >= 0 else self.open_file()
        self.used = True
        self.refs += 1
        return fd

    def release(self) -> None:
        self.refs -= 1
        if self.retired and self.refs == 0:
            self.retired = False
            self.close_files()

    def doom(self) -> list[str]:
        """Rename every file of the segment away; the paths to unlink later. Readers in flight keep their
        file."""
        renamed = []
        for file_type in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            try:
                os.rename(self.stem + file_type + self.suffix, self.stem + file_type + DELETED)
                renamed.append(self.stem + file_type + DELETED)
            except FileNotFoundError:
                pass
            except OSError:
                if file_type == LOG:  # nothing happened yet; a left index would be removed by the next start
                    raise
        self.suffix = DELETED
        for index in (self._index, self._time_index):
            if index is not None:
                index.close_file()
                index.path += DELETED
        self.close_files()
        return renamed

    def lose_suffix(self) -> None:
        """The files have their final names now."""
        self.suffix = ""
        for index, file_type in (
            (self._index, INDEX),
            (self._time_index, TIME_INDEX),
            (self._txn_index, TXN_INDEX),
        ):
            if index is not None:
                index.path = self.stem + file_type

    def moved_to(self, folder: str) -> None:
        self.stem = os.path.join(folder, file_stem(self.base_offset))
        self._index = self._time_index = self._txn_index = None

    def save_indexes(self) -> None:
        """Put the unsaved entries into the files (that is, the page cache)."""
        if self._index is not None:
            self._index.save()
        if self._time_index is not None:
            self._time_index.save()
        if self._txn_index is not None:
            self._txn_index.save()

    # -- writing ---------------------------------------------------------------------------------------------

    def add_to_indexes(
        self, last_offset: int, position: int, size: int, max_timestamp: int, interval: int
    ) -> None:
        """A batch of `size` bytes was found at `position` (an append does the same in
        `WritableLog._end_append`)."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.unindexed > interval:
            self.index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self.unindexed = 0
        self.unindexed += size
        self.size = position + size

    def seal(self, end_offset: int) -> None:
        """Close the segment for writing: its newest timestamp becomes the last time index entry."""
        if self.size:
            timestamp, offset = self.newest()
            self.time_index.append(timestamp, offset)
        self.save_indexes()
        self.index.ensure()
        self.time_index.ensure()
        self.end_offset = end_offset

    # -- finding ---------------------------------------------------------------------------------------------

    def find(self, offset: int, *, whole: bool = False) -> tuple[int, int, int] | None:
        """(position, base offset, size) of the first batch that ends at `offset` or later; None if there is
        none."""
        start = self.index.lookup(offset)
        for position, base, size, last, _ in self.walk(start if start < self.size else 0, whole=whole):
            if last >= offset:
                return position, base, size
        return None

    def walk(
        self, position: int, stop: int | None = None, *, whole: bool = False
    ) -> Iterator[tuple[int, int, int, int, int]]:
        """(position, base offset, size, last offset, max timestamp) of the batches from a known batch start
        on. It ends where there is no whole batch; with `whole`, which is for readers of a log that has been
        opened, that is CORRUPT_MESSAGE."""
        end = self.size if stop is None else stop
        fd = self.acquire()
        try:
            unpack = WALK.unpack_from
            chunk, at, limit = b"", 0, -HEADER_SIZE
            while position + HEADER_SIZE <= end:
                if at > limit:
                    chunk, at = os.pread(fd, _WALK_CHUNK, position), 0
                    limit = len(chunk) - HEADER_SIZE
                    if limit < 0:
                        break
                base, length, delta, newest = unpack(chunk, at)
                size = length + LENGTH_END
                if size < HEADER_SIZE or position + size > end:
                    break
                yield position, base, size, base + delta, newest
                position += size
                at += size
            if whole and position != end:
                raise self._no_batch_at(position)
        except OSError as error:
            raise storage_error(f"read {self.path}", error) from error
        finally:
            self.release()

    def walk_headers(self, position: int) -> Iterator[tuple[BatchHeader, bytes | None]]:
        """Whole headers from a known batch start on; control batches come with their bytes."""
        fd = self.acquire()
        try:
            chunk, at = b"", 0
            while position + HEADER_SIZE <= self.size:
                if at + HEADER_SIZE > len(chunk):
                    chunk, at = os.pread(fd, _WALK_CHUNK, position), 0
                    if len(chunk) < HEADER_SIZE:
                        return
                header = read_header(chunk, at)
                if header.length < HEADER_SIZE - LENGTH_END or position + header.size > self.size:
                    return
                yield header, os.pread(fd, header.size, position) if header.is_control else None
                position += header.size
                at += header.size
        except OSError as error:
            raise storage_error(f"read {self.path}", error) from error
        finally:
            self.release()

    def _no_batch_at(self, position: int) -> KafkaError:
        return KafkaError(ErrorCode.corrupt_message, f"{self.path} has no batch at position {position}")

    def fit(self, position: int, max_bytes: int) -> tuple[int, int]:
        """How many bytes of whole batches from `position` on fit into `max_bytes`, and the offset that comes
        next.

        (0, -1) if not even the first batch fits. The index gives the last batch start in reach; without one
        there, the headers are walked.
        """
        start = self.index.batch_start_before(position + max_bytes)
        if start > position:
            fd = self.fd if self.fd >= 0 else self.open_file()
            return start - position, int.from_bytes(os.pread(fd, 8, start), "big")
        end, following = position, -1
        for at, base, size, last, _ in self.walk(position):
            if at + size - position > max_bytes:
                return end - position, base if end > position else -1
            end, following = at + size, last + 1
        return end - position, following

    def first_batch(self, position: int) -> tuple[int, int]:
        """Size of the batch that begins at `position`, and the offset behind it."""
        header = self.header_at(position)
        if header.size < HEADER_SIZE or position + header.size > self.size:
            raise self._no_batch_at(position)
        return header.size, header.next_offset

    def header_at(self, position: int) -> BatchHeader:
        return read_header(self.read(position, HEADER_SIZE))

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file; an error if they are not there."""
        fd = self.acquire()
        try:
            data = os.pread(fd, size, position)
        except OSError as error:
            raise storage_error(f"read {self.path}", error) from error
        finally:
            self.release()
        if len(data) != size:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.path} ends before byte {position + size}")
        return data

    # -- time ------------------------------------------------------------------------------------------------

    def newest(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the batch that has it; (-1, base) when there is
        none."""
        if self.max_timestamp == UNKNOWN:
            self.learn_newest()
        return self.max_timestamp, self.max_timestamp_offset

    def set_newest(self, timestamp: int, offset: int) -> None:
        self.max_timestamp, self.max_timestamp_offset = timestamp, offset

    def learn_newest(self) -> None:
        """From the last time index entry and the headers behind the last offset index entry."""
        timestamp, offset = self.time_index.last_timestamp, self.time_index.last_offset
        last = self.index.last()
        for _, _, _, end, newest in self.walk(last[1] if last else 0):
            if newest > timestamp:
                timestamp, offset = newest, end
        self.max_timestamp, self.max_timestamp_offset = timestamp, offset

    def newest_or_mtime(self) -> int:
        """For retention: the newest record's time, or the file's own where records carry none."""
        timestamp, _ = self.newest()
        if timestamp >= 0:
            return timestamp
        try:
            return int(os.stat(self.path).st_mtime * 1000)
        except OSError:
            return 0

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, by which the segment's age is measured; -1 if there is
        none."""
        return self.header_at(0).max_timestamp if self.size >= HEADER_SIZE else -1
