"""A metadata log shared by several processes, in memory: what ZooKeeper will be, for tests of the driver.

A `Hub` is the service; each `MemoryStore` is one process's session with it. Tests may end a session, make an
append fail as a lost connection would (before or after it took effect), and choose who should lead.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence

from millstream.cluster.store import (
    Compacted,
    Conflict,
    Entry,
    IdTaken,
    Member,
    StoreClosed,
    StoreError,
    Unavailable,
    Version,
)


class Hub:
    def __init__(self) -> None:
        self.entries: dict[Version, Entry] = {}
        self.version = 0
        self.saved: tuple[Version, list[bytes]] = (0, [])
        self.members: dict[int, Member] = {}
        self.owners: dict[int, str] = {}
        self.last_epoch = 0
        self.candidates: list[str] = []
        self.changed = asyncio.Event()

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class MemoryStore:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.writer = str(uuid.uuid4())
        self.broker_id: int | None = None
        self.fail_next: str | None = None  # "before" or "after" the append takes effect
        self.barred = False  # registrations fail, as if the service could not be reached
        self.appends: list[bytes] = []
        self.gate = asyncio.Event()  # appends wait here while it is clear
        self.gate.set()
        self._closed = asyncio.Event()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StoreClosed("closed")

    async def snapshot(self) -> tuple[Version, list[bytes]]:
        self._check_open()
        return self.hub.saved[0], list(self.hub.saved[1])

    async def read(self, after: Version, limit: int = 100) -> list[Entry]:
        self._check_open()
        if after >= self.hub.version:
            return []
        if after + 1 not in self.hub.entries:
            raise Compacted(f"{after + 1} is gone")
        last = min(self.hub.version, after + limit)
        return [self.hub.entries[version] for version in range(after + 1, last + 1)]

    async def append(self, at: Version, payload: bytes) -> None:
        self._check_open()
        await self.gate.wait()
        failure, self.fail_next = self.fail_next, None
        if failure == "before":
            raise Unavailable("the connection was lost")
        if at != self.hub.version + 1:
            raise Conflict(f"{at} after {self.hub.version}")
        self.hub.entries[at] = Entry(at, self.writer, payload)
        self.hub.version = at
        self.appends.append(payload)
        self.hub.wake()
        if failure == "after":
            raise Unavailable("the connection was lost")

    async def tail(self, after: Version) -> AsyncIterator[Entry]:
        while not self._closed.is_set():
            changed = self.hub.changed
            entries = await self.read(after)
            for entry in entries:
                yield entry
                after = entry.version
            if not entries:
                await changed.wait()

    async def compact(self, at: Version, chunks: Sequence[bytes], keep: int) -> None:
        self._check_open()
        if not self.hub.saved[0] <= at <= self.hub.version:
            raise Conflict("a snapshot only goes forward")
        self.hub.saved = at, list(chunks)
        for version in [v for v in self.hub.entries if v <= at - keep]:
            del self.hub.entries[version]

    async def register(self, broker_id: int, data: bytes) -> int:
        self._check_open()
        if self.barred:
            raise Unavailable("barred")
        if self.hub.owners.get(broker_id, self.writer) != self.writer:
            raise IdTaken(f"broker id {broker_id} is taken")
        self.hub.last_epoch += 1
        self.hub.owners[broker_id] = self.writer
        self.hub.members[broker_id] = Member(broker_id, self.hub.last_epoch, data)
        self.broker_id = broker_id
        self.hub.wake()
        return self.hub.last_epoch

    async def update(self, data: bytes) -> None:
        self._check_open()
        if self.broker_id is None:
            raise StoreError("update before register")
        mine = self.hub.members[self.broker_id]
        self.hub.members[self.broker_id] = Member(mine.broker_id, mine.epoch, data)
        self.hub.wake()

    async def members(self) -> AsyncIterator[Mapping[int, Member]]:
        last: Mapping[int, Member] | None = None
        while not self._closed.is_set():
            changed = self.hub.changed
            if self.hub.members != last:
                last = dict(self.hub.members)
                yield last
            else:
                await changed.wait()

    async def depose(self, broker_id: int, epoch: int) -> None:
        member, owner = self.hub.members.get(broker_id), self.hub.owners.get(broker_id)
        if member is not None and member.epoch > epoch:
            return
        if self.hub.candidates and self.hub.candidates[0] == owner:
            self.hub.candidates.pop(0)
            self.hub.wake()

    async def campaign(self) -> None:
        self._check_open()
        if self.writer not in self.hub.candidates:
            self.hub.candidates.append(self.writer)
        while self.hub.candidates[0] != self.writer:
            await self.hub.changed.wait()

    def lease(self) -> float:
        return math.inf

    async def lost(self) -> None:
        await self._closed.wait()

    def expire(self) -> None:
        """The service forgets this session: no member, no candidate. The process does not know yet."""
        if self.broker_id is not None and self.hub.owners.get(self.broker_id) == self.writer:
            del self.hub.members[self.broker_id], self.hub.owners[self.broker_id]
        if self.writer in self.hub.candidates:
            self.hub.candidates.remove(self.writer)
        self.hub.wake()

    async def close(self) -> None:
        self._closed.set()
        self.expire()
