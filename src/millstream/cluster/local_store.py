"""The metadata log of a cluster of one: a file, and a thread that writes and syncs it (see `local_file`).

The loop never waits for the disk. One helper thread does all work on the file, in the order of the calls,
so the file needs no locks. There is one process, hence no contest: this process is always the
controller, its lease never ends.
"""

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from millstream.cluster.local_file import LogFile
from millstream.cluster.store import Entry, Member, StoreClosed, StoreError, Version

T = TypeVar("T")


class LocalStore:
    """A `MetadataStore` in a folder of this machine. Open it with `LocalStore.open`."""

    def __init__(self, file: LogFile, thread: ThreadPoolExecutor, writer: str) -> None:
        self.writer = writer
        self._file = file
        self._thread = thread
        self._version = file.version
        self._newest: Entry | None = None  # spares those who tail the log a read of the file
        self._log_changed = asyncio.Event()
        self._member: Member | None = None
        self._members_changed = asyncio.Event()
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, folder: Path) -> "LocalStore":
        """Locks and reads the folder; makes it when it is not there.

        Raises `FolderLocked` or `MetadataDamaged`, whose text is for the person who starts the broker.
        """
        writer = str(uuid.uuid4())
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        try:
            file = await asyncio.get_running_loop().run_in_executor(thread, LogFile, folder, writer)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(file, thread, writer)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._check_open()
        # Shielded: a caller that gives up must not take work that the thread has begun out of the books.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    # --- the log --------------------------------------------------------------------------------------------

    async def snapshot(self) -> tuple[Version, list[bytes]]:
        return await self._in_thread(self._file.snapshot)

    async def read(self, after: Version, limit: int = 100) -> list[Entry]:
        newest = self._newest
        if newest is not None and newest.version == after + 1 == self._version:
            return [newest][:limit]
        return await self._in_thread(lambda: self._file.read(after, limit))

    async def append(self, at: Version, payload: bytes) -> None:
        self._check_open()
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._file.append, at, payload)
        # By callback, not after the await: those who tail the log must hear of it even if the caller has
        # given up.
        written.add_done_callback(lambda done: self._appended(done, at, payload))
        await asyncio.shield(written)

    def _appended(self, done: asyncio.Future[None], at: Version, payload: bytes) -> None:
        if not done.cancelled() and done.exception() is None:
            self._version = at
            self._newest = Entry(at, self.writer, payload)
            self._log_changed = _wake(self._log_changed)

    async def tail(self, after: Version) -> AsyncIterator[Entry]:
        while not self._closed.is_set():
            if after >= self._version:
                await self._log_changed.wait()
                continue
            for entry in await self.read(after):
                yield entry
                after = entry.version

    async def compact(self, at: Version, chunks: Sequence[bytes], keep: int) -> None:
        await self._in_thread(lambda: self._file.compact(at, chunks, keep))

    # --- liveness -------------------------------------------------------------------------------------------

    async def register(self, broker_id: int, data: bytes) -> int:
        epoch = await self._in_thread(self._file.next_epoch)
        self._set_member(Member(broker_id, epoch, data))
        return epoch

    async def update(self, data: bytes) -> None:
        self._check_open()
        if self._member is None:
            raise StoreError("update before register")
        self._set_member(Member(self._member.broker_id, self._member.epoch, data))

    def _set_member(self, member: Member) -> None:
        self._member = member
        self._members_changed = _wake(self._members_changed)

    async def members(self) -> AsyncIterator[Mapping[int, Member]]:
        while not self._closed.is_set():
            changed = self._members_changed
            yield {} if self._member is None else {self._member.broker_id: self._member}
            await changed.wait()

    async def campaign(self) -> None:
        self._check_open()

    async def depose(self, broker_id: int, epoch: int) -> None:
        """There is nobody else."""

    def lease(self) -> float:
        return math.inf

    async def lost(self) -> None:
        await self._closed.wait()

    async def close(self) -> None:
        """Ends after the write under way; iterators of the log and the members end too."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._log_changed = _wake(self._log_changed)
        self._members_changed = _wake(self._members_changed)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StoreClosed("the metadata store is closed")


def _wake(event: asyncio.Event) -> asyncio.Event:
    """Wakes everyone who waits for this event, and returns the one to wait for next."""
    event.set()
    return asyncio.Event()
