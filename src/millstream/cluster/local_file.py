"""The metadata log in one file: bytes, checksums, and what survives a crash. Synchronous; `local_store` gives
it a thread.

    header  "MILLMETA", format u32, snapshot chunks u32, snapshot version u64, last broker epoch u64, crc u32
    frame   length u32, crc u32, then `length` bytes: type u8, version u64, writer (uuid) 16 bytes, payload

Types: 1 a chunk of the snapshot, 2 an entry of the log, 3 a broker epoch handed out (no payload, the epoch
stands for the version). The header and the snapshot are written to a new file that is synced and renamed into
place, so they are never torn: damage there is damage. Afterwards the file only grows, by one synced frame at
a time. So after a crash only the last frame can be torn, and it was never acknowledged: it is cut off. A bad
frame with intact later entries behind it is no torn tail but a damaged disk, and refused: cutting there would
forget topics that still have data.

A full disk must not keep a broker from starting, nor a topic from being deleted, and both are entries of this
log. So the blocks behind the end of the file are reserved while there is room.
"""

import errno
import fcntl
import logging
import os
import struct
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from millstream.cluster.store import Compacted, Conflict, Entry, NotWritten, StoreBroken, StoreError
from millstream.storage.files import reserve_space
from millstream.wire.checksum import crc32c

log = logging.getLogger(__name__)

FILE_NAME = "metadata.log"
NEW_FILE_NAME = "metadata.log.new"
FORMAT = 1

MAGIC = b"MILLMETA"
_HEADER = struct.Struct(">8sIIQQ")
_CRC = struct.Struct(">I")
HEADER_SIZE = _HEADER.size + _CRC.size
_FRAME = struct.Struct(">II")  # length, crc
_BODY = struct.Struct(">BQ16s")  # type, version, writer
FRAME_OVERHEAD = _FRAME.size + _BODY.size

_SNAPSHOT, _ENTRY, _EPOCH = 1, 2, 3
_NO_WRITER = bytes(16)
_MAX_FRAME = 64 * 1024 * 1024
MIN_RESERVE = 1024 * 1024


class MetadataDamaged(StoreError):
    """The metadata file cannot be trusted; a person has to look at it."""


class FolderLocked(StoreError):
    """Another process uses this folder."""


class _FramePosition(NamedTuple):
    """Where in the file an entry's (or chunk's) frame begins, and how long its payload is."""

    position: int
    size: int


class _Frame(NamedTuple):
    frame_type: int
    version: int
    position: int
    end: int


def _header(chunks: int, snapshot_version: int, epoch: int) -> bytes:
    head = _HEADER.pack(MAGIC, FORMAT, chunks, snapshot_version, epoch)
    return head + _CRC.pack(crc32c(head))


def _frame(frame_type: int, version: int, writer: bytes, payload: bytes) -> bytes:
    body = _BODY.pack(frame_type, version, writer) + payload
    return _FRAME.pack(len(body), crc32c(body)) + body


def _frame_at(data: memoryview, position: int) -> _Frame | None:
    """The intact frame that begins there, if there is one."""
    start = position + _FRAME.size
    if start + _BODY.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, position)
    end = start + length
    if not _BODY.size <= length <= _MAX_FRAME or end > len(data) or crc32c(data[start:end]) != crc:
        return None
    frame_type, version, _ = _BODY.unpack_from(data, start)
    return _Frame(frame_type, version, position, end)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class LogFile:
    """The open file. Used by one thread at a time."""

    def __init__(self, folder: Path, writer: str) -> None:
        self.path = folder / FILE_NAME
        self._folder = folder
        self._writer = uuid.UUID(writer).bytes
        self._fd = -1
        self._end = 0
        self._reserved = 0  # bytes that have blocks, from the file's beginning
        self._chunks: list[_FramePosition] = []
        self._entries: list[_FramePosition] = []  # of versions first_version ...
        self._failure: str | None = None
        self.snapshot_version = 0
        self.first_version = 1
        self.epoch = 0
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True)  # there are salted passwords in it
            _sync_folder(folder.parent)
        self._lock_fd = self._lock()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> int:
        return self.first_version + len(self._entries) - 1

    # --- opening --------------------------------------------------------------------------------------------

    def _lock(self) -> int:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(fd)
            raise FolderLocked(
                f"Failed to acquire the lock on {self._folder}: another broker is using this folder."
            ) from problem
        return fd

    def _open(self) -> None:
        (self._folder / NEW_FILE_NAME).unlink(missing_ok=True)  # a compaction that a crash interrupted
        if not self.path.exists():
            self._replace(_header(0, 0, 0))
            _sync_folder(self._folder)
            self._end = HEADER_SIZE
            self._reserve()
            return
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        with open(self._fd, "rb", closefd=False) as file:
            data = memoryview(file.read())
        self._load(data)
        # What was read counts from now on, and so must survive a power failure: a process that died may not
        # have synced its last frame, nor the name of its last snapshot.
        os.fsync(self._fd)
        _sync_folder(self._folder)
        self._reserve()

    def _load(self, data: memoryview) -> None:
        chunks = self._load_header(data)
        position = HEADER_SIZE
        while (frame := _frame_at(data, position)) is not None:
            self._take(frame)
            position = frame.end
        if len(self._chunks) < chunks:
            raise MetadataDamaged(
                f"{self.path}: chunk {len(self._chunks) + 1} of {chunks} of the snapshot is "
                f"damaged, at byte {position}"
            )
        if not self._entries:
            self.first_version = self.snapshot_version + 1
        if self.version < self.snapshot_version:
            raise MetadataDamaged(
                f"{self.path}: entries up to the snapshot's are damaged, at byte {position}"
            )
        self._end = position
        if position < len(data):
            self._cut_tail(data, position)

    def _load_header(self, data: memoryview) -> int:
        if len(data) < HEADER_SIZE or bytes(data[: len(MAGIC)]) != MAGIC:
            raise MetadataDamaged(
                f"{self.path} is not a metadata log of Millstream, or its first bytes are damaged"
            )
        _, format_, chunks, self.snapshot_version, self.epoch = _HEADER.unpack_from(data)
        if format_ > FORMAT:
            raise MetadataDamaged(
                f"{self.path} has format {format_}, which a newer version of Millstream wrote; "
                f"this version reads formats up to {FORMAT}. Upgrade Millstream, or restore the "
                "folder of the older version."
            )
        (crc,) = _CRC.unpack_from(data, _HEADER.size)
        if format_ < 1 or crc32c(data[: _HEADER.size]) != crc:
            raise MetadataDamaged(f"{self.path}: the header is damaged")
        return int(chunks)

    def _take(self, frame: _Frame) -> None:
        frame_position = _FramePosition(frame.position, frame.end - frame.position - FRAME_OVERHEAD)
        if frame.frame_type == _SNAPSHOT:
            self._chunks.append(frame_position)
        elif frame.frame_type == _EPOCH:
            self.epoch = max(self.epoch, frame.version)
        elif frame.frame_type != _ENTRY:
            raise MetadataDamaged(
                f"{self.path}: a frame of unknown type {frame.frame_type} at byte {frame.position}"
            )
        elif not self._entries:
            if frame.version > self.snapshot_version + 1:
                raise MetadataDamaged(
                    f"{self.path}: entry {frame.version} follows snapshot {self.snapshot_version}"
                )
            self.first_version = frame.version
            self._entries.append(frame_position)
        else:
            if frame.version != self.version + 1:
                raise MetadataDamaged(f"{self.path}: entry {frame.version} follows entry {self.version}")
            self._entries.append(frame_position)

    def _cut_tail(self, data: memoryview, position: int) -> None:
        torn = self.version + 1
        for later in _frames_anywhere(data, position + 1):
            if later.frame_type == _ENTRY and later.version > torn:
                raise MetadataDamaged(
                    f"{self.path}: entry {torn} is damaged at byte {position}, but entry "
                    f"{later.version} behind it is "
                    "whole. This is not a write cut short by a crash but a damaged file; restore "
                    "it from a copy."
                )
        log.warning(
            "%s: cut %d bytes behind entry %d: a write that a crash interrupted before it was acknowledged",
            self.path,
            len(data) - position,
            self.version,
        )
        os.ftruncate(self._fd, position)
        os.fsync(self._fd)

    # --- reading --------------------------------------------------------------------------------------------

    def _payload(self, frame_position: _FramePosition) -> bytes:
        frame = os.pread(self._fd, frame_position.size + FRAME_OVERHEAD, frame_position.position)
        length, crc = _FRAME.unpack_from(frame)
        body = frame[_FRAME.size :]
        if len(body) != length or crc32c(body) != crc:
            raise MetadataDamaged(
                f"{self.path}: the frame at byte {frame_position.position} has been damaged"
            )
        return frame

    def snapshot(self) -> tuple[int, list[bytes]]:
        return self.snapshot_version, [
            self._payload(frame_position)[FRAME_OVERHEAD:] for frame_position in self._chunks
        ]

    def read(self, after: int, limit: int) -> list[Entry]:
        if after + 1 < self.first_version:
            raise Compacted(f"entry {after + 1} is gone; the oldest is {self.first_version}")
        first = after + 1 - self.first_version
        entries = []
        for number, frame_position in enumerate(self._entries[first : first + limit], after + 1):
            frame = self._payload(frame_position)
            _, _, writer = _BODY.unpack_from(frame, _FRAME.size)
            entries.append(Entry(number, str(uuid.UUID(bytes=writer)), frame[FRAME_OVERHEAD:]))
        return entries

    # --- writing --------------------------------------------------------------------------------------------

    def append(self, at: int, payload: bytes) -> None:
        if at != self.version + 1:
            raise Conflict(f"entry {at} cannot follow entry {self.version}")
        self._grow(_frame(_ENTRY, at, self._writer, payload))
        self._entries.append(_FramePosition(self._end - len(payload) - FRAME_OVERHEAD, len(payload)))

    def next_epoch(self) -> int:
        self._grow(_frame(_EPOCH, self.epoch + 1, self._writer, b""))
        self.epoch += 1
        return self.epoch

    def _grow(self, frame: bytes) -> None:
        """Adds a frame and syncs it. A write that fails is undone; a sync that fails leaves nothing to
        trust."""
        if self._failure is not None:
            raise StoreBroken(self._failure)
        try:
            _write_all(self._fd, frame, self._end)
        except OSError as problem:
            self._undo(problem)
            raise NotWritten(f"{self.path}: cannot write metadata: {problem.strerror}") from problem
        try:
            os.fdatasync(self._fd)
        except OSError as problem:
            # The kernel may have dropped the dirty pages: a second sync would succeed and mean nothing.
            self._failure = f"{self.path}: cannot sync metadata: {problem.strerror}; restart the broker"
            raise StoreBroken(self._failure) from problem
        self._end += len(frame)
        if self._reserved - self._end < MIN_RESERVE // 2:
            self._reserve()

    def _reserve(self) -> None:
        """Room for some restarts, each of which writes an entry for all partitions, and for deletions."""
        size = max(MIN_RESERVE, self._end)
        try:
            if reserve_space(self._fd, self._end, size):
                self._reserved = self._end + size
        except OSError as problem:
            log.warning("%s: no room to reserve %d bytes: %s", self.path, size, problem.strerror)

    def _undo(self, problem: OSError) -> None:
        try:
            os.ftruncate(self._fd, self._end)
            self._reserved = 0
        except OSError as second:
            self._failure = f"{self.path}: {problem.strerror}, then {second.strerror}; restart the broker"
            raise StoreBroken(self._failure) from second

    def compact(self, at: int, chunks: Sequence[bytes], keep: int) -> None:
        if self._failure is not None:
            raise StoreBroken(self._failure)
        if not self.snapshot_version <= at <= self.version:
            raise Conflict(
                f"a snapshot of {at}, while the log goes from {self.snapshot_version} to {self.version}"
            )
        first = max(self.first_version, at + 1 - max(keep, 0))
        kept = self._entries[first - self.first_version :]
        frames = [_frame(_SNAPSHOT, at, _NO_WRITER, chunk) for chunk in chunks]
        # Copied only after the checksum was checked again: a compaction must not make damage look sound.
        frames += (self._payload(frame_position) for frame_position in kept)
        try:
            self._replace(_header(len(chunks), at, self.epoch) + b"".join(frames))
        except OSError as problem:
            (self._folder / NEW_FILE_NAME).unlink(missing_ok=True)
            raise NotWritten(f"{self.path}: cannot write a snapshot: {problem.strerror}") from problem
        self._take_over(chunks, frames, at, first)
        try:
            _sync_folder(self._folder)
        except OSError as problem:
            # The new file is installed, but after a power failure the old one may be back, without what is
            # appended now.
            self._failure = f"{self.path}: cannot sync its folder: {problem.strerror}; restart the broker"
            raise StoreBroken(self._failure) from problem

    def _take_over(self, chunks: Sequence[bytes], frames: list[bytes], at: int, first: int) -> None:
        """From here on positions are those of the new file."""
        positions = []
        position = HEADER_SIZE
        for frame in frames:
            positions.append(_FramePosition(position, len(frame) - FRAME_OVERHEAD))
            position += len(frame)
        self._chunks, self._entries = positions[: len(chunks)], positions[len(chunks) :]
        self.snapshot_version, self.first_version = at, first
        self._end = position
        self._reserve()

    def _replace(self, content: bytes) -> None:
        """Puts a new file in the old one's place, all or nothing. Durable once the folder is synced."""
        new = self._folder / NEW_FILE_NAME
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, content, 0)
            os.fsync(fd)
            os.rename(new, self.path)
        except BaseException:
            os.close(fd)
            raise
        old, self._fd = self._fd, fd
        if old >= 0:
            os.close(old)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        lock, self._lock_fd = self._lock_fd, -1
        if lock >= 0:
            os.close(lock)


def _write_all(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        if written == 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        view = view[written:]
        position += written


def _frames_anywhere(data: memoryview, position: int) -> Iterator[_Frame]:
    """Intact entry frames at any byte from there on, found by their fixed parts."""
    raw = bytes(data[position:])
    mark = bytes([_ENTRY])
    at = raw.find(mark, _FRAME.size)
    while at >= 0:
        frame = _frame_at(data, position + at - _FRAME.size)
        if frame is not None:
            yield frame
        at = raw.find(mark, at + 1)
