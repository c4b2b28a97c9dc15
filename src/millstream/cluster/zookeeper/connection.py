"""One TCP connection to a ZooKeeper server: requests in order, responses in the same order, pings between.

The connection ends when the server closes it, when nothing was heard for two thirds of the session timeout
(so that another server can be tried while the session lasts), or when something comes that is not
ZooKeeper's protocol. Whatever is unanswered then fails with `ConnectionLoss`.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from millstream.cluster.zookeeper import protocol
from millstream.cluster.zookeeper.protocol import (
    AccessDenied,
    Connected,
    ConnectionLoss,
    MalformedResponse,
    Reader,
    ZooKeeperError,
)

T = TypeVar("T")

MAX_IN_FLIGHT = 1000  # requests without an answer; more wait for their turn
_SIZE = struct.Struct(">i")


class _Sent(NamedTuple):
    xid: int
    at: float
    future: "asyncio.Future[Any]"
    parse: Callable[[Reader], Any]
    missing: Callable[[], None] | None
    about: str
    is_multi: bool


class Connection(asyncio.Protocol):
    """`event(kind, path)` is called for every watch event, `heard(sent at, zxid)` for every response."""

    def __init__(self, event: Callable[[int, str], None], heard: Callable[[float, int], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = event
        self._heard_of = heard
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._sent: deque[_Sent] = deque()
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._xid = 0
        self._last_heard = time.monotonic()
        self._last_sent = 0.0
        self._pings: deque[float] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Future[Connected] | None = None
        self._special: dict[int, asyncio.Future[None]] = {}
        self.closed: asyncio.Future[str] = self._loop.create_future()  # with the reason

    # --- asyncio's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._last_heard = time.monotonic()
        received = self._received
        received += data
        while len(received) >= 4:
            size = _SIZE.unpack_from(received)[0]
            if not 0 <= size <= protocol.MAX_FRAME:
                self.abort(f"a response of {size} bytes")
                return
            if len(received) < 4 + size:
                return
            content = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            try:
                self._frame(content)
            except MalformedResponse as problem:
                self.abort(str(problem))
                return

    def connection_lost(self, error: Exception | None) -> None:
        self.abort(str(error) if error else "the server closed it")

    # --- the client's side ----------------------------------------------------------------------------------

    async def handshake(self, last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> Connected:
        self._handshake = self._loop.create_future()
        self._write(protocol.connect_request(last_zxid, timeout_ms, session_id, password))
        return await self._handshake

    def keep_alive(self, timeout: float) -> None:
        """From now on pings are sent, and silence ends the connection."""
        self._tick(timeout)

    async def authenticate(self, scheme: str, credentials: bytes) -> None:
        await self._specially(protocol.AUTH_XID, protocol.AUTH, protocol.auth(scheme, credentials))

    async def set_watches(
        self, last_zxid: int, data: Sequence[str], exist: Sequence[str], child: Sequence[str]
    ) -> None:
        """Sets watches again; what happened since that zxid is told at once. In parts, as a frame has a
        limit."""
        step = 500
        for start in range(0, max(map(len, (data, exist, child))), step):
            end = start + step
            body = protocol.set_watches(last_zxid, data[start:end], exist[start:end], child[start:end])
            await self._specially(protocol.SET_WATCHES_XID, protocol.SET_WATCHES, body)

    async def send(
        self,
        operation: int,
        body: bytes,
        parse: Callable[[Reader], T],
        about: str,
        missing: Callable[[], None] | None = None,
    ) -> T:
        """`missing` is called if there is no such node, as soon as that is known."""
        # Gives up the turn only if there are no slots: what a caller sends at once is sent in its order.
        await self._slots.acquire()
        if self.closed.done():
            self._slots.release()
            raise ConnectionLoss(f"{about}: {self.closed.result()}")
        self._xid = self._xid % 0x7FFFFFF0 + 1
        future: asyncio.Future[T] = self._loop.create_future()
        sent = _Sent(self._xid, time.monotonic(), future, parse, missing, about, operation == protocol.MULTI)
        self._sent.append(sent)
        self._write(protocol.request(self._xid, operation, body))
        return await future

    def abort(self, why: str) -> None:
        if self.closed.done():
            return
        self.closed.set_result(why)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting: list[asyncio.Future[Any]] = [sent.future for sent in self._sent]
        waiting += self._special.values()
        if self._handshake is not None:
            waiting.append(self._handshake)
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionLoss(f"the connection was lost: {why}"))
        for _ in self._sent:
            self._slots.release()
        self._sent.clear()
        self._special.clear()

    # --- inside ---------------------------------------------------------------------------------------------

    async def _specially(self, xid: int, operation: int, body: bytes) -> None:
        if self.closed.done():
            raise ConnectionLoss(self.closed.result())
        future: asyncio.Future[None] = self._loop.create_future()
        self._special[xid] = future
        self._write(protocol.request(xid, operation, body))
        await future

    def _write(self, data: bytes) -> None:
        self._last_sent = time.monotonic()
        if self._transport is not None:
            self._transport.write(data)

    def _tick(self, timeout: float) -> None:
        """Pings after a third of the timeout without a request, gives up after two thirds of silence."""
        now = time.monotonic()
        silent = now - self._last_heard
        if silent > timeout * 2 / 3 and (self._sent or self._pings):
            self.abort(f"no answer for {silent:.1f} s")
            return
        if now - self._last_sent >= timeout / 3 - 0.01:
            self._pings.append(now)
            self._write(protocol.request(protocol.PING_XID, protocol.PING))
        self._timer = self._loop.call_later(timeout / 9, self._tick, timeout)

    def _frame(self, content: bytes) -> None:
        reader = Reader(content)
        handshake = self._handshake
        if handshake is not None:
            self._handshake = None
            if not handshake.done():
                handshake.set_result(reader.connected())
            return
        xid, zxid, error = reader.head()
        if xid == protocol.WATCH_XID:
            self._event(*reader.watch_event())
        elif xid == protocol.PING_XID:
            if self._pings:
                self._heard_of(self._pings.popleft(), zxid)
        elif xid in self._special:
            future = self._special.pop(xid)
            if not future.done():
                if error:
                    future.set_exception(AccessDenied("ZooKeeper refused the credentials"))
                else:
                    future.set_result(None)
        elif self._sent and self._sent[0].xid == xid:
            sent = self._sent.popleft()
            self._slots.release()
            self._heard_of(sent.at, zxid)
            self._answer(sent, error, reader)
        else:
            raise MalformedResponse(f"a response to request {xid}, which is not the next one")

    def _answer(self, sent: _Sent, error: int, reader: Reader) -> None:
        outcome: Any = None
        problem: ZooKeeperError | None = None
        try:
            if not error:
                outcome = sent.parse(reader)
            elif sent.is_multi and error not in protocol.NOT_DECIDED:
                failed = sent.parse(reader)  # says which part it was
                outcome = failed or protocol.PartFailed(-1, protocol.error_for(error, sent.about))
            else:
                problem = protocol.error_for(error, sent.about)
                if isinstance(problem, protocol.NoNode) and sent.missing is not None:
                    sent.missing()
        except MalformedResponse as malformed:
            problem = malformed
        if not sent.future.done():
            if problem is not None:
                sent.future.set_exception(problem)
            else:
                sent.future.set_result(outcome)
        if isinstance(problem, MalformedResponse):
            raise problem
