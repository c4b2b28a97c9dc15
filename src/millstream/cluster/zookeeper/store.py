"""The metadata log of a cluster of several brokers, in ZooKeeper.

An append is one transaction of ZooKeeper: the snapshot's pointer is still the one we know, the entry before
is there, and the entry itself is created. So an entry gets exactly the position it names; a writer who has
slept through a compaction cannot fill a position whose entry has been deleted meanwhile.

When the connection breaks between the request and its answer, the same transaction is sent again. If the
node then exists, its header says whether the first attempt made it: every attempt has a number.

Readers follow the log by a watch on the next position. Watches survive a change of the connection; to be
sure, readers also look after every reconnection and at least three times a session timeout.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

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
from millstream.cluster.zookeeper import election, layout
from millstream.cluster.zookeeper.client import Client, Node, Session
from millstream.cluster.zookeeper.layout import BROKERS, ELECTIONS, LOG, SNAPSHOT, Pointer
from millstream.cluster.zookeeper.protocol import (
    EPHEMERAL,
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    NodeExists,
    NoNode,
    Part,
    SessionExpired,
    ZooKeeperError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOCK_MARGIN = 0.9  # of a session timeout: clocks of two machines may differ in their pace by a tenth
READ_AHEAD = 16  # entries that are asked for at once, at most
DELETE_AHEAD = 100
LEFTOVER_SESSIONS = 1.5  # session timeouts after which a registration that is still there has a living owner
PAUSE = 0.1  # before something that ZooKeeper refused for no known reason is tried again


class ZooKeeperStore:
    """A `MetadataStore` in ZooKeeper. The client has been started; the store closes it."""

    def __init__(self, client: Client, directory_id: str, inode: str = "") -> None:
        self._client = client
        self._folder = layout.FolderIdentity(directory_id, inode)
        self._writer = uuid.uuid4()
        self.writer = str(self._writer)
        self._attempts = itertools.count(1)
        self._pointer = Pointer()
        self._pointer_version = -1  # of the node, not of the snapshot
        self._broker_id: int | None = None
        self._registered: Session | None = None
        self._epoch = -1  # of the last registration
        self._registration = asyncio.Event()  # set while `_registered` is the session that we have
        self._closed = asyncio.Event()
        self._closing = False

    @classmethod
    async def open(cls, client: Client, directory_id: str, inode: str = "") -> "ZooKeeperStore":
        """Makes the nodes that every store needs."""
        store = cls(client, directory_id, inode)
        for path in (LOG, SNAPSHOT, BROKERS, ELECTIONS):
            await store._again(lambda path=path: client.ensure(path))  # type: ignore[misc]
        return store

    # --- the log --------------------------------------------------------------------------------------------

    async def snapshot(self) -> tuple[Version, list[bytes]]:
        while True:
            pointer = await self._read_pointer()
            try:
                chunks = []
                for nodes in pointer.nodes:
                    parts = [(await self._get(node)).data for node in nodes]
                    chunks.append(layout.decode_chunk(parts))
                return pointer.version, chunks
            except NoNode:
                # A newer snapshot has taken its place, unless somebody deleted nodes by hand.
                if await self._read_pointer() == pointer:
                    raise StoreError(
                        f"parts of the snapshot of version {pointer.version} are missing in ZooKeeper"
                    ) from None

    async def read(self, after: Version, limit: int = 100) -> list[Entry]:
        found: list[Entry] = []
        ahead = 1  # mostly there is one entry or none
        while len(found) < limit:
            first = after + 1 + len(found)
            wanted = range(first, first + min(ahead, limit - len(found)))
            ahead = min(ahead * 2, READ_AHEAD)
            nodes = await asyncio.gather(*(self._entry(version) for version in wanted))
            for version, data in zip(wanted, nodes, strict=True):
                if data is None:
                    if not found and (await self._read_pointer()).version >= version:
                        # It may have been appended and compacted since, but then it is gone, too.
                        raise Compacted(f"entry {version} of the metadata log has been compacted")
                    return found
                found.append(layout.decode_entry(version, data)[0])
        return found

    async def append(self, at: Version, payload: bytes) -> None:
        attempt = next(self._attempts)
        data = layout.encode_entry(self._writer, attempt, payload)
        in_doubt = False
        deadline = self._deadline()
        if self._pointer_version < 0:
            await self._read_pointer()
        while True:
            pointer, pointer_version = self._pointer, self._pointer_version
            if at <= pointer.version:
                if in_doubt:
                    await self._settle(at, attempt)
                    return
                raise Conflict(f"position {at} of the metadata log is behind snapshot {pointer.version}")
            parts: list[Part] = [Check(SNAPSHOT, pointer_version)]
            if at - 1 > pointer.version:
                parts.append(Check(layout.entry_path(at - 1)))
            parts.append(Create(layout.entry_path(at), data))
            self._check_open()
            try:
                failed = await self._client.multi(parts)
            except (ConnectionLoss, SessionExpired) as problem:
                in_doubt = True
                self._give_up_after(deadline, problem)
                continue
            except ZooKeeperError as problem:
                raise Unavailable(str(problem)) from problem
            if failed is None:
                return
            if isinstance(failed.error, BadVersion) and failed.part == 0:
                await self._read_pointer()
            elif isinstance(failed.error, NodeExists):
                if not in_doubt:
                    raise Conflict(f"position {at} of the metadata log is taken")
                await self._settle(at, attempt)
                return
            elif isinstance(failed.error, NoNode):
                raise Conflict(f"position {at} of the metadata log is not the next one")
            else:
                raise Unavailable(str(failed.error))

    async def _settle(self, at: Version, attempt: int) -> None:
        """The position is taken and one of our requests for it was not answered: was it ours?"""
        data = await self._entry(at)
        if data is None:
            raise Unavailable(f"whether entry {at} was written is unknown: it has been compacted")
        entry, by = layout.decode_entry(at, data)
        if (entry.writer, by) != (self.writer, attempt):
            raise Conflict(f"position {at} of the metadata log is taken")

    async def tail(self, after: Version) -> AsyncIterator[Entry]:
        changed = asyncio.Event()
        overtaken = True  # whether a snapshot may have overtaken us while we did not look

        def reconnected() -> None:
            nonlocal overtaken
            overtaken = True
            changed.set()

        self._client.on_reconnect(reconnected)
        try:
            while not self._closed.is_set():
                changed.clear()
                entries: list[Entry] = []
                try:
                    if await self._client.exists(layout.entry_path(after + 1), changed.set) is not None:
                        entries = await self.read(after)
                    elif overtaken and (await self._read_pointer()).version > after:
                        raise Compacted(f"entry {after + 1} of the metadata log has been compacted")
                    else:
                        overtaken = False
                        overtaken = not await self._wait_for(changed) or overtaken
                except (Unavailable, ConnectionLoss, SessionExpired):
                    continue  # each try waits for a connection by itself
                except StoreClosed:
                    return
                for entry in entries:
                    yield entry
                    after = entry.version
        finally:
            self._client.forget(reconnected)

    async def compact(self, at: Version, chunks: Sequence[bytes], keep: int) -> None:
        before = await self._read_pointer()
        if at < before.version:
            raise Conflict(f"there is a snapshot of version {before.version} already")
        if at > before.version and await self._entry(at) is None:
            raise Conflict(f"the metadata log does not reach version {at}")
        pointer = await self._write_snapshot(at, chunks, before.first)
        await self._delete_chunks(pointer)
        last = at - max(keep, 0)
        for start in range(pointer.first, last + 1, DELETE_AHEAD):
            versions = range(start, min(start + DELETE_AHEAD, last + 1))
            await asyncio.gather(*(self._remove(layout.entry_path(version)) for version in versions))
        if last >= pointer.first:
            await self._move_pointer(pointer._replace(first=last + 1), self._pointer_version)

    async def begin_with(self, at: Version, chunks: Sequence[bytes]) -> None:
        """Makes these the snapshot of an empty log, which then goes on at the next position."""
        pointer = await self._read_pointer()
        if pointer.version or await self._entry(1) is not None:
            raise Conflict("the metadata log in ZooKeeper is not empty")
        await self._write_snapshot(at, chunks, at + 1)

    async def _write_snapshot(self, at: Version, chunks: Sequence[bytes], first: Version) -> Pointer:
        """On top of the pointer that was read last."""
        node_version = self._pointer_version
        name = layout.snapshot_name(at, self._writer, next(self._attempts))
        cut = [layout.encode_chunk(chunk) for chunk in chunks]
        pointer = Pointer(at, name, tuple(map(len, cut)), first)
        for nodes, parts in zip(pointer.nodes, cut, strict=True):
            for node, data in zip(nodes, parts, strict=True):
                await self._put(node, data)
        await self._move_pointer(pointer, node_version)
        return pointer

    async def _move_pointer(self, pointer: Pointer, node_version: int) -> int:
        """Compare and set; returns the new version of the node."""
        data = pointer.encode()
        while True:
            try:
                stat = await self._again(lambda: self._client.set(SNAPSHOT, data, node_version))
                self._know(pointer, stat.version)
                return stat.version
            except BadVersion:
                found = await self._read_pointer()
                if found == pointer:  # set by an attempt whose answer was lost
                    return self._pointer_version
                raise Conflict("another process has written a snapshot meanwhile") from None

    async def _delete_chunks(self, pointer: Pointer) -> None:
        """Chunks of older snapshots, and of some that were never finished."""
        names = await self._again(lambda: self._client.children(SNAPSHOT))
        for name in names:
            mine = name.startswith(f"{pointer.name}-")
            if not mine and 0 <= layout.version_of_snapshot(name) <= pointer.version:
                await self._remove(f"{SNAPSHOT}/{name}")

    # --- liveness -------------------------------------------------------------------------------------------

    async def register(self, broker_id: int, data: bytes) -> int:
        path = f"{BROKERS}/{broker_id}"
        content = layout.encode_member(self._folder, data)
        in_doubt = False  # whether a node of our session may be the result of this very call
        deadline = self._deadline()
        given_up = math.inf  # when a node that may be a leftover has outlived every session
        while True:
            self._check_open()
            try:
                session = await self._client.session()
                try:
                    _, stat = await self._client.create(path, content, EPHEMERAL)
                    epoch = stat.czxid
                except NodeExists:
                    node = await self._client.get(path)
                    made = in_doubt and node.data == content and node.stat.czxid != self._epoch
                    if made and node.stat.ephemeral_owner == session.id:
                        epoch = node.stat.czxid
                    elif self._is_leftover(node, session):
                        await self._client.delete(path, node.stat.version)
                        continue
                    else:
                        given_up = min(given_up, time.monotonic() + session.timeout * LEFTOVER_SESSIONS)
                        await self._until_gone(broker_id, node, given_up)
                        deadline = self._deadline()
                        continue
            except (ConnectionLoss, SessionExpired) as problem:
                in_doubt = True
                self._give_up_after(deadline, problem)
                continue
            except (NoNode, BadVersion):
                continue
            except ZooKeeperError as problem:
                raise Unavailable(str(problem)) from problem
            self._broker_id, self._epoch = broker_id, epoch
            self._registered = session
            self._registration.set()
            return epoch

    def _is_leftover(self, node: Node, session: Session) -> bool:
        """Whether an earlier life of this broker made the node: this process did, or one that had our data
        folder locked, as we have now."""
        ours = {session.id} if self._registered is None else {session.id, self._registered.id}
        try:
            folder, _ = layout.decode_member(node.data)
        except StoreError:
            return False
        return node.stat.ephemeral_owner in ours or (bool(folder.inode) and folder == self._folder)

    async def _until_gone(self, broker_id: int, node: Node, given_up: float) -> None:
        """The folder has the same id but was elsewhere, or before a reboot: its broker may be dead, and then
        its session ends. A copy of a folder in use does not end. Raises IdTaken."""
        try:
            folder, _ = layout.decode_member(node.data)
        except StoreError:
            folder = layout.FolderIdentity("")
        if folder.directory_id != self._folder.directory_id:
            raise IdTaken(
                f"broker id {broker_id} is registered by another running broker; "
                "give this one an id of its own (broker.id)"
            )
        if time.monotonic() >= given_up:
            raise IdTaken(
                f"broker id {broker_id} is registered by another running broker, whose data folder has the "
                "same directory.id: one is a copy of the other, and only one of them may run"
            )
        log.warning("broker id %d is registered from elsewhere, waiting for that session to end", broker_id)
        changed = asyncio.Event()
        if await self._client.exists(f"{BROKERS}/{broker_id}", changed.set) is not None:
            await self._wait_for(changed)

    async def update(self, data: bytes) -> None:
        self._check_open()
        if self._broker_id is None or self._registered is None:
            raise StoreError("update before register")
        path, content = f"{BROKERS}/{self._broker_id}", layout.encode_member(self._folder, data)
        try:
            node = await self._again(lambda: self._client.get(path))
            if node.stat.ephemeral_owner != self._registered.id:
                raise Unavailable("the registration is another process's")
            await self._again(lambda: self._client.set(path, content))
        except NoNode:
            raise Unavailable("the registration is gone: the session has expired") from None

    async def members(self) -> AsyncIterator[Mapping[int, Member]]:
        changed = asyncio.Event()
        last: dict[int, Member] | None = None
        while not self._closed.is_set():
            changed.clear()
            try:
                names = await self._client.children(BROKERS, changed.set)
                found = await asyncio.gather(*(self._member(name, changed.set) for name in names))
            except (ConnectionLoss, SessionExpired):
                continue
            except ZooKeeperError as problem:
                log.warning("the members cannot be read, trying again: %s", problem)
                await asyncio.sleep(PAUSE)
                continue
            members = {member.broker_id: member for member in found if member is not None}
            if members != last:
                last = members
                yield dict(members)
            await self._wait_for(changed)

    async def _member(self, name: str, watch: Callable[[], None]) -> Member | None:
        try:
            node = await self._client.get(f"{BROKERS}/{name}", watch)
        except NoNode:
            return None
        try:
            return Member(int(name), node.stat.czxid, layout.decode_member(node.data)[1])
        except (ValueError, StoreError) as problem:
            log.warning("%s/%s is not a broker's registration and is ignored: %s", BROKERS, name, problem)
            return None

    async def campaign(self) -> None:
        changed = asyncio.Event()
        while True:
            self._check_open()
            changed.clear()
            try:
                # Who is not a member has no business leading: first the registration, then the campaign.
                if self._broker_id is not None and not await self._is_registered():
                    continue
                if await election.win(self._client, self._broker_id, changed.set):
                    return
                await self._wait_for(changed)
            except (ConnectionLoss, SessionExpired):
                continue
            except ZooKeeperError as problem:
                log.warning("cannot become the controller, trying again: %s", problem)
                await asyncio.sleep(PAUSE)

    async def depose(self, broker_id: int, epoch: int) -> None:
        await self._again(lambda: election.depose(self._client, broker_id, epoch))

    async def _is_registered(self) -> bool:
        """Whether the present session is the one of the registration; waits for that if it is not."""
        if self._registered is not None and not self._registered.lost.is_set():
            return True
        self._registration.clear()
        await self._wait_for(self._registration)
        return False

    def lease(self) -> float:
        session = self._registered
        if session is None or session.lost.is_set():
            return 0.0 if self._broker_id is not None else self._unregistered_lease()
        return session.heard + session.timeout * CLOCK_MARGIN

    def _unregistered_lease(self) -> float:
        session = self._client.current
        return 0.0 if session is None else session.heard + session.timeout * CLOCK_MARGIN

    async def lost(self) -> None:
        session = self._registered or self._client.current
        if session is None:
            await self._closed.wait()
        else:
            await session.lost.wait()

    async def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        await self._client.close()  # fires every watch, so those who wait here wake up

    # --- inside ---------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StoreClosed("the metadata store is closed")

    def _deadline(self) -> float:
        return time.monotonic() + self._client.patience

    def _give_up_after(self, deadline: float, problem: ZooKeeperError) -> None:
        self._check_open()
        if time.monotonic() > deadline:
            raise Unavailable(str(problem)) from problem

    async def _again(self, request: Callable[[], Awaitable[T]]) -> T:
        """For requests that may be repeated: until there is an answer, within the client's patience."""
        deadline = self._deadline()
        while True:
            self._check_open()
            try:
                return await request()
            except (ConnectionLoss, SessionExpired) as problem:
                self._give_up_after(deadline, problem)
            except (NoNode, NodeExists, BadVersion):
                raise
            except ZooKeeperError as problem:
                raise Unavailable(str(problem)) from problem

    async def _wait_for(self, event: asyncio.Event) -> bool:
        """Until it is set, the store is closed, or it is time to look again (False)."""
        session = self._client.current
        interval = (session.timeout if session is not None else self._client.patience) / 3
        closed = asyncio.ensure_future(self._closed.wait())
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((closed, waiting), timeout=interval, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            waiting.cancel()
        return event.is_set()

    async def _get(self, path: str) -> layout.Content:
        node = await self._again(lambda: self._client.get(path))
        return layout.Content(node.data, node.stat.version)

    async def _entry(self, version: Version) -> bytes | None:
        try:
            return (await self._get(layout.entry_path(version))).data
        except NoNode:
            return None

    async def _read_pointer(self) -> Pointer:
        node = await self._get(SNAPSHOT)
        pointer = layout.decode_pointer(node.data)
        self._know(pointer, node.version)
        return pointer

    def _know(self, pointer: Pointer, node_version: int) -> None:
        if node_version >= self._pointer_version:
            self._pointer, self._pointer_version = pointer, node_version

    async def _put(self, path: str, data: bytes) -> None:
        """Creates a node whose name nobody else uses."""
        with contextlib.suppress(NodeExists):
            await self._again(lambda: self._client.create(path, data))

    async def _remove(self, path: str) -> None:
        with contextlib.suppress(NoNode):
            await self._again(lambda: self._client.delete(path))
