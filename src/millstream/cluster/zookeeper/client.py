"""A ZooKeeper client on the event loop: one session after the other, each over as many connections as it
takes.

A *session* is what ZooKeeper knows us by; ephemeral nodes belong to it, and it ends when ZooKeeper has not
heard of us for the session timeout. A lost *connection* is not the end of a session: the client connects
again, to another server perhaps, under the same session, and sets its watches anew. Only a server can say
that a session has expired; then `Session.lost` is set, every watch fires (its node may have changed, nobody
knows), and a new session begins by itself.

A request waits for a connection, within the client's patience. One that was sent and not answered fails with
`ConnectionLoss`, and its outcome is unknown: repeating it is the caller's decision. All work is done on the
loop, on purpose: a broker whose loop hangs must lose its session.
"""

import asyncio
import contextlib
import logging
import random
import ssl as tls
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from millstream.cluster.zookeeper import protocol
from millstream.cluster.zookeeper.connect_string import ConnectString
from millstream.cluster.zookeeper.connection import Connection
from millstream.cluster.zookeeper.protocol import (
    ANYBODY,
    CREATOR,
    ConnectionLoss,
    NodeExists,
    Part,
    PartFailed,
    Reader,
    Stat,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
Watch = Callable[[], None]  # called once, when what it watches has changed, or may have

FIRST_BACKOFF = 0.02
MAX_BACKOFF = 1.0
CLOSE_SECONDS = 2.0  # for ZooKeeper to confirm the end of the session


class Session:
    """What ZooKeeper knows us by. `expires_at` is when it may forget us, at the earliest, by our clock."""

    def __init__(self, session_id: int, password: bytes, timeout: float) -> None:
        self.id = session_id
        self.password = password
        self.timeout = timeout  # seconds, as the server has granted it
        self.lost = asyncio.Event()
        self.heard = 0.0  # when the last request was sent that has been answered

    @property
    def expires_at(self) -> float:
        return self.heard + self.timeout


class Node(NamedTuple):
    data: bytes
    stat: Stat


class Client:
    """`start` it, then use it from one loop. Paths are relative to the chroot."""

    def __init__(
        self,
        connect: ConnectString,
        *,
        session_timeout: float = 18.0,
        patience: float | None = None,
        credentials: Sequence[tuple[str, bytes]] = (),
        set_acl: bool = False,
        ssl: tls.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> None:
        self.connect = connect
        self.patience = session_timeout if patience is None else patience
        self.acl = CREATOR if set_acl else ANYBODY
        self._timeout_ms = int(session_timeout * 1000)
        self._credentials = tuple(credentials)
        self._ssl = ssl
        self._server_hostname = server_hostname
        self._hosts = list(connect.hosts)
        random.shuffle(self._hosts)
        self._session: Session | None = None
        self._last_zxid = 0
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._problem = "not connected yet"
        self._reconnected: set[Watch] = set()
        # By path: those who want to hear of its data, of its creation, of its children.
        self._data: dict[str, set[Watch]] = {}
        self._exist: dict[str, set[Watch]] = {}
        self._child: dict[str, set[Watch]] = {}

    # --- session --------------------------------------------------------------------------------------------

    async def start(self, patience: float) -> Session:
        """Returns the first session, or raises `ConnectionLoss` with the reason."""
        self._task = asyncio.create_task(self._run(), name="zookeeper")
        try:
            return await self.session(patience)
        except BaseException:
            await self.close()
            raise

    async def session(self, patience: float | None = None) -> Session:
        """The session, as soon as there is a connection. What is sent before the next await is sent in
        it."""
        if self._connection is not None and self._connection.closed.done() and not self._closed:
            self._connected.clear()  # `_run` has not had its turn yet
        if not self._connected.is_set():
            limit = self.patience if patience is None else patience
            try:
                async with asyncio.timeout(limit):
                    await self._connected.wait()
            except TimeoutError:
                raise ConnectionLoss(
                    f"no connection to ZooKeeper at {self.connect} within {limit:g} s: {self._problem}"
                ) from None
        if self._closed or self._session is None:
            raise ConnectionLoss("the ZooKeeper client is closed")
        return self._session

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connected.is_set()

    @property
    def problem(self) -> str:
        """Why there is no connection at the moment."""
        return self._problem

    def on_reconnect(self, watch: Watch) -> None:
        """Called after every further connection, of whatever session."""
        self._reconnected.add(watch)

    def forget(self, watch: Watch) -> None:
        """Undoes `on_reconnect`."""
        self._reconnected.discard(watch)

    @property
    def current(self) -> Session | None:
        """The session, whether there is a connection or not."""
        return self._session

    async def close(self) -> None:
        """Ends the session, so that its ephemeral nodes vanish at once."""
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        if connection is not None and self._connected.is_set():
            with contextlib.suppress(protocol.ZooKeeperError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await connection.send(protocol.CLOSE_SESSION, b"", _nothing, "close")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._connected.set()  # those who wait for a connection hear that there will be none
        self._end_session()

    # --- operations -----------------------------------------------------------------------------------------

    async def create(self, path: str, data: bytes = b"", flags: int = 0) -> tuple[str, Stat]:
        """The path, which is longer than the given one for a sequence, and the new node's state."""
        chroot = len(self.connect.chroot)
        return await self._call(
            protocol.CREATE2,
            protocol.create(self.connect.chroot + path, data, flags, self.acl),
            lambda reader: (reader.string()[chroot:], reader.stat()),
            path,
        )

    async def delete(self, path: str, version: int = -1) -> None:
        body = protocol.path_and_version(self.connect.chroot + path, version)
        await self._call(protocol.DELETE, body, _nothing, path)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        full = self.connect.chroot + path

        def parse(reader: Reader) -> Node:
            node = Node(reader.buffer(), reader.stat())
            _add(self._data, full, watch)
            return node

        return await self._call(
            protocol.GET_DATA, protocol.path_and_watch(full, watch is not None), parse, path
        )

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        body = protocol.set_data(self.connect.chroot + path, data, version)
        return await self._call(protocol.SET_DATA, body, Reader.stat, path)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        full = self.connect.chroot + path

        def parse(reader: Reader) -> Stat:
            stat = reader.stat()
            _add(self._data, full, watch)
            return stat

        def missing() -> None:
            _add(self._exist, full, watch)

        try:
            return await self._call(
                protocol.EXISTS, protocol.path_and_watch(full, watch is not None), parse, path, missing
            )
        except protocol.NoNode:
            return None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        full = self.connect.chroot + path or "/"

        def parse(reader: Reader) -> list[str]:
            names = reader.strings()
            _add(self._child, full, watch)
            return names

        return await self._call(
            protocol.GET_CHILDREN, protocol.path_and_watch(full, watch is not None), parse, path
        )

    async def sync(self, path: str = "/") -> None:
        """Waits until the server has everything that was written before this call."""
        full = self.connect.chroot + path if path != "/" else self.connect.chroot or "/"
        await self._call(protocol.SYNC, protocol.string(full), _nothing, path)

    async def multi(self, parts: Sequence[Part]) -> PartFailed | None:
        """All or nothing; returns what failed."""
        full = [replace(part, path=self.connect.chroot + part.path) for part in parts]
        return await self._call(
            protocol.MULTI, protocol.multi(full, self.acl), Reader.multi_failure, "several at once"
        )

    async def ensure(self, path: str) -> None:
        """Makes this node and those above it, the chroot's included, where they are missing."""
        chroot, whole = self.connect, self.connect.chroot + path
        made = ""
        for part in filter(None, whole.split("/")):
            made += f"/{part}"
            # Other clusters may have their chroots beside ours; what is in ours is ours alone.
            acl = self.acl if len(made) >= len(chroot.chroot) else ANYBODY
            body = protocol.create(made, b"", 0, acl)
            with contextlib.suppress(NodeExists):
                await self._call(protocol.CREATE, body, _nothing, made)

    async def _call(
        self,
        operation: int,
        body: bytes,
        parse: Callable[[Reader], T],
        about: str,
        missing: Callable[[], None] | None = None,
    ) -> T:
        await self.session()
        connection = self._connection
        if connection is None:
            raise ConnectionLoss(f"{about}: {self._problem}")
        return await connection.send(operation, body, parse, about, missing)

    # --- connections ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = FIRST_BACKOFF
        said_lost = False
        turn = 0
        while True:
            host, port = self._hosts[turn % len(self._hosts)]
            turn += 1
            try:
                connection = await self._open(host, port)
            except (OSError, TimeoutError, protocol.ZooKeeperError, UnicodeError) as problem:
                self._problem = f"{host}:{port}: {problem or 'no answer in time'}"
                if self._session is not None and not said_lost:
                    said_lost = True
                    log.warning("no connection to ZooKeeper, trying again: %s", self._problem)
                if turn % len(self._hosts) == 0:
                    await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
                    backoff = min(backoff * 2, MAX_BACKOFF)
                continue
            if connection is None:  # the session had expired: the same server gives us a new one
                turn -= 1
                continue
            if said_lost:
                log.info("connected to ZooKeeper again, at %s:%d", host, port)
            said_lost, backoff = False, FIRST_BACKOFF
            for watch in list(self._reconnected):
                watch()
            try:
                self._problem = await asyncio.shield(connection.closed)
            finally:
                self._connected.clear()
                self._connection = None
                connection.abort("the ZooKeeper client is closed")
            log.info("lost the connection to ZooKeeper at %s:%d: %s", host, port, self._problem)

    async def _open(self, host: str, port: int) -> Connection | None:
        """A connection that can be used; None if the session turned out to have expired."""
        loop = asyncio.get_running_loop()
        session = self._session
        async with asyncio.timeout(max(self._timeout_ms / 1000 / len(self._hosts), 1.0)):
            _, connection = await loop.create_connection(
                lambda: Connection(self._event, self._heard),
                host,
                port,
                ssl=self._ssl,
                server_hostname=(self._server_hostname or host) if self._ssl else None,
            )
            try:
                began = time.monotonic()
                answer = await connection.handshake(
                    self._last_zxid,
                    self._timeout_ms,
                    session.id if session else 0,
                    session.password if session else bytes(16),
                )
                if answer.timeout_ms <= 0:
                    log.warning("the session with ZooKeeper has expired")
                    connection.abort("the session has expired")
                    self._end_session()
                    return None
                if session is None:
                    session = Session(answer.session_id, answer.password, answer.timeout_ms / 1000)
                    log.info(
                        "session 0x%x with ZooKeeper at %s:%d, timeout %g s",
                        session.id,
                        host,
                        port,
                        session.timeout,
                    )
                session.timeout = answer.timeout_ms / 1000
                session.heard = max(session.heard, began)
                self._session = session
                connection.keep_alive(session.timeout)
                for scheme, credentials in self._credentials:
                    await connection.authenticate(scheme, credentials)
                if self._data or self._exist or self._child:
                    await connection.set_watches(
                        self._last_zxid, list(self._data), list(self._exist), list(self._child)
                    )
            except BaseException:
                connection.abort("the connection could not be used")
                raise
        self._connection = connection
        self._connected.set()
        return connection

    def _heard(self, sent: float, zxid: int) -> None:
        """A request that was sent then has been answered."""
        if zxid > self._last_zxid:
            self._last_zxid = zxid
        session = self._session
        if session is not None and sent > session.heard:
            session.heard = sent

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.heard = -session.timeout
            session.lost.set()
        fired: set[Watch] = set()
        for table in (self._data, self._exist, self._child):
            for watches in table.values():
                fired |= watches
            table.clear()
        for watch in fired:
            watch()

    def _event(self, kind: int, path: str) -> None:
        fired: set[Watch] = set()
        if kind in (protocol.CREATED, protocol.CHANGED, protocol.DELETED):
            fired |= self._data.pop(path, set()) | self._exist.pop(path, set())
        if kind in (protocol.CHILD, protocol.DELETED):
            fired |= self._child.pop(path, set())
        for watch in fired:
            watch()


def _nothing(reader: Reader) -> Any:
    return None


def _add(table: dict[str, set[Watch]], path: str, watch: Watch | None) -> None:
    if watch is not None:
        table.setdefault(path, set()).add(watch)
