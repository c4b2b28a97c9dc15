"""The metadata store that all brokers share: entries are seen late, sessions end, answers get lost.

A `Hub` is the service, a `SimStore` one process's client. Every request takes a trip there and one back,
which wait while the process is cut off. A process that is silent for as long as a session loses it, and with
it the registration and the controller's node; it hears of that when it is connected again. What it sends
counts from when it was sent, by its own clock, which is what its lease rests on.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.cluster.store import (
    Compacted,
    Conflict,
    Entry,
    Member,
    StoreClosed,
    Unavailable,
    Version,
)
from millstream.cluster.zookeeper.store import CLOCK_MARGIN

if TYPE_CHECKING:
    from tests.simulation.world import World


SESSION = 2.0  # seconds of silence after which the service gives a process up
LONGEST = 6.0  # seconds that an entry of the log may need to a broker


class Session:
    def __init__(self) -> None:
        self.alive = True
        self.lost = asyncio.Event()
        self.heard = 0.0  # when that was sent which the service last answered, by the process's clock
        self.signs = 0  # of life
        self.timed_out = 0.0  # when, if it did


class Hub:
    def __init__(self) -> None:
        self.entries: dict[Version, Entry] = {}
        self.version = 0
        self.saved: tuple[Version, list[bytes]] = (0, [])
        self.members: dict[int, Member] = {}
        self.owners: dict[int, Session] = {}
        self.controller: Session | None = None
        self.last_epoch = 0
        self.changed = asyncio.Event()
        self.appended: Callable[[Entry], None] = lambda entry: None

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def hear(self, session: Session) -> None:
        """A sign of life."""
        loop = asyncio.get_running_loop()
        session.signs += 1
        loop.call_later(SESSION, self._look, session, session.signs, context=contextvars.Context())

    def _look(self, session: Session, signs: int) -> None:
        if session.alive and session.signs == signs:
            session.timed_out = asyncio.get_running_loop().time()
            self.expire(session)

    def expire(self, session: Session) -> None:
        session.alive = False
        for broker_id in [each for each, owner in self.owners.items() if owner is session]:
            del self.members[broker_id], self.owners[broker_id]
        if self.controller is session:
            self.controller = None
        self.wake()


class SimStore:
    """One process's client of the store."""

    def __init__(self, world: World, broker_id: int) -> None:
        self._world = world
        self._hub = world.hub
        self._id = broker_id
        self.session = Session()
        self._sessions = [self.session]
        self.registered: Session | None = None
        self._registration = asyncio.Event()
        self._closed = asyncio.Event()

    async def _trip(self, scale: float = 1.0) -> None:
        """To the store, or back: takes a while, and longer while this process is cut off."""
        world = self._world
        while True:
            await asyncio.sleep(min(world.delay() * scale, LONGEST))
            if self._closed.is_set():
                raise StoreClosed("closed")
            if world.reaches_store(self._id):
                break
            await world.reconnected(self._id)
        if not self.session.alive and not self.session.lost.is_set():
            self.session.lost.set()

    async def _live_session(self) -> Session:
        sent = time.monotonic()
        await self._trip()
        if not self.session.alive:
            self.session = Session()
            self._sessions.append(self.session)
            self.session.heard = sent
            self._hub.hear(self.session)
        return self.session

    @property
    def timed_out(self) -> float:
        """When a session of this process last ended by its silence."""
        return max(session.timed_out for session in self._sessions)

    async def keep_session(self) -> None:
        """Signs of life, for as long as the process lives."""
        while not self._closed.is_set():
            session, sent = self.session, time.monotonic()
            await self._reach()
            if session.alive:
                self._hub.hear(session)
            await self._reach()
            if session.alive:
                session.heard = sent
            else:
                session.lost.set()
            await asyncio.sleep(SESSION / 3)

    async def _reach(self) -> None:
        await asyncio.sleep(self._world.random.uniform(0.001, 0.02))
        if not self._world.reaches_store(self._id):
            await self._world.reconnected(self._id)

    # --- the log --------------------------------------------------------------------------------------------

    async def snapshot(self) -> tuple[Version, list[bytes]]:
        await self._trip()
        return self._hub.saved[0], list(self._hub.saved[1])

    async def read(self, after: Version, limit: int = 100) -> list[Entry]:
        await self._trip()
        return self._read(after, limit)

    def _read(self, after: Version, limit: int) -> list[Entry]:
        hub = self._hub
        if after >= hub.version:
            return []
        if after + 1 not in hub.entries:
            raise Compacted(f"{after + 1} is gone")
        return [hub.entries[version] for version in range(after + 1, min(hub.version, after + limit) + 1)]

    async def append(self, at: Version, payload: bytes) -> None:
        await self._trip()
        hub, world = self._hub, self._world
        if world.chance("store.append.unavailable"):
            raise Unavailable("the connection was lost before the append")
        if at != hub.version + 1:
            await self._trip()
            raise Conflict(f"{at} after {hub.version}")
        entry = hub.entries[at] = Entry(at, str(self._id), payload)
        hub.version = at
        hub.appended(entry)
        hub.wake()
        await self._trip()
        if world.chance("store.append.unavailable"):
            raise Unavailable("the connection was lost after the append")

    async def tail(self, after: Version) -> AsyncIterator[Entry]:
        while not self._closed.is_set():
            changed = self._hub.changed
            visible = self._world.visible.get(self._id, self._hub.version)
            if visible <= after:
                await changed.wait()
                continue
            await self._trip(self._world.lag(self._id))
            # One at a time: how far behind an image is, is up to the delays.
            for entry in self._read(after, min(self._world.some_entries(), visible - after)):
                yield entry
                after = entry.version

    async def compact(self, at: Version, chunks: Sequence[bytes], keep: int) -> None:
        await self._trip()
        hub = self._hub
        if not hub.saved[0] <= at <= hub.version:
            raise Conflict("a snapshot only goes forward")
        hub.saved = at, list(chunks)
        for version in [v for v in hub.entries if v <= at - self._world.kept_entries]:
            del hub.entries[version]

    # --- liveness -------------------------------------------------------------------------------------------

    async def register(self, broker_id: int, data: bytes) -> int:
        session = await self._live_session()
        hub = self._hub
        hub.last_epoch += 1
        hub.owners[broker_id] = session
        hub.members[broker_id] = Member(broker_id, hub.last_epoch, data)
        epoch = hub.last_epoch
        self._world.trace(f"b{broker_id} registers with epoch {epoch}")
        hub.wake()
        await self._trip()
        self.registered = session
        self._registration.set()
        return epoch

    async def update(self, data: bytes) -> None:
        await self._trip()
        hub = self._hub
        if hub.owners.get(self._id) is not self.session:
            raise Unavailable("the registration is gone")
        mine = hub.members[self._id]
        hub.members[self._id] = Member(mine.broker_id, mine.epoch, data)
        hub.wake()

    async def members(self) -> AsyncIterator[Mapping[int, Member]]:
        last: Mapping[int, Member] | None = None
        while not self._closed.is_set():
            changed = self._hub.changed
            if self._hub.members == last:
                await changed.wait()
                continue
            await self._trip()
            if self._hub.members != last:
                last = dict(self._hub.members)
                yield last

    async def campaign(self) -> None:
        """Who is not a member does not campaign (as ZooKeeperStore)."""
        while True:
            changed = self._hub.changed
            if self.registered is None or not self.registered.alive:
                self._registration.clear()
                await self._registration.wait()
                continue
            await self._trip()
            session = self.session
            if not session.alive:
                continue
            if self._hub.controller is None:
                self._hub.controller = session
            if self._hub.controller is session:
                return
            await changed.wait()

    async def depose(self, broker_id: int, epoch: int) -> None:
        await self._trip()
        controller, member = self._hub.controller, self._hub.members.get(broker_id)
        if member is not None and member.epoch > epoch:
            return
        if controller is not None and controller is self._hub.owners.get(broker_id):
            self._hub.controller = None
            self._hub.wake()

    def lease(self) -> float:
        """As ZooKeeperStore."""
        session = self.registered
        if session is None or session.lost.is_set():
            return 0.0
        return session.heard + SESSION * CLOCK_MARGIN

    async def lost(self) -> None:
        await (self.registered or self.session).lost.wait()

    async def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._hub.expire(self.session)
