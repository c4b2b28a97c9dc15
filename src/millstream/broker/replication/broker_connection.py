"""Requests from this broker to another one.

`BrokerConnections` finds a broker by its id: the image names the address of its inter-broker listener.
Control requests to one broker share a connection, are sent ahead of each other's responses, and are decoded
as they arrive. A follower's fetches have a connection of their own (`open`), whose requests and responses are
bytes, packed and read by hand.

A connection that breaks, or on which a response does not come in time, is closed and fails everything that
waits on it with `Unreachable` or `TimedOut` (client/errors.py): whether the request was carried out is then
unknown. The next request opens another one, after a back-off that doubles with each failure. Nothing is
repeated here.

`Security` is the seam for TLS and SASL: a context for the socket, and a log-in before the first request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from millstream import __version__
from millstream.client.errors import TimedOut, Unreachable
from millstream.client.messages import API_KEYS, exchange, known_versions, request_header
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.cluster.image import Image
    from millstream.cluster.metadata_records import Endpoint

logger = logging.getLogger("millstream.replication")

LARGEST_RESPONSE = 1 << 29  # a size beyond this is not a response but another protocol
FIRST_BUFFER = 64 * 1024
KEEP_BUFFER = 4 * 1024 * 1024  # a larger one is given back after its response
MAX_IN_FLIGHT = 1024  # requests that wait on one connection
FIRST_BACKOFF, LAST_BACKOFF = 0.05, 1.0  # seconds
CONNECT_TIMEOUT = 10.0
# What every broker serves to other brokers and does not list to clients; versions that all releases have.
BETWEEN_BROKERS = {
    "alter_partition": (3, 3),
    "assign_replicas_to_dirs": (0, 0),
    "envelope": (0, 0),
    "allocate_producer_ids": (0, 0),
}

_SIZE_AND_ID = struct.Struct(">ii")
_SIZE = struct.Struct(">i")

Buffer = bytes | bytearray | memoryview


class Security(Protocol):
    """How brokers prove to each other who they are."""

    def ssl_context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """For the socket; None for plain text."""

    async def log_in(self, connection: BrokerConnection) -> None:
        """On a fresh connection that knows the other side's versions. Raises KafkaError if it is refused."""


class NoSecurity:
    """The inter-broker listener speaks plain text, and everybody may."""

    def ssl_context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if endpoint.security_protocol != "PLAINTEXT":
            raise Unreachable(
                f"{endpoint.host}:{endpoint.port} wants {endpoint.security_protocol} between brokers, "
                "which this broker is not set up for",
                again=False,
            )
        return None

    async def log_in(self, connection: BrokerConnection) -> None:
        pass


class _Pending(NamedTuple):
    correlation_id: int
    read: Callable[[memoryview], Any]
    future: asyncio.Future[Any]
    patience: float
    deadline: float


# What `read` returns where it has sent another request in the place of the one that is answered, for the same
# future.
ASKED_AGAIN = object()


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection to one broker. A broker answers a connection's requests in order."""

    def __init__(self, address: str, client_id: str, timeout: float) -> None:
        self.address = address
        self.timeout = timeout  # seconds, unless a request has its own
        self.versions: dict[int, tuple[int, int]] = {}
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._client_id = client_id.encode()
        self._next_id = 0
        self._pending: deque[_Pending] = deque()
        self._watchdog: asyncio.TimerHandle | None = None  # looks for answers that are late
        self._watched_until = math.inf
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._filled = 0

    # --- requests -------------------------------------------------------------------------------------------

    async def request(
        self, api: str, /, *, within: float | None = None, up_to: int | None = None, **fields: Any
    ) -> Any:
        """Send a request, in the highest version that both sides know, and wait for its response. All else
        are the fields of the request, times in milliseconds."""
        form = exchange(api, self.version(api, up_to))
        return await self.send(
            form.key, form.version, form.flexible, [form.encode(fields)], form.decode, within
        )

    def version(self, api: str, up_to: int | None = None) -> int:
        mine, theirs = known_versions(api), self.versions.get(API_KEYS[api])
        if theirs is None and api in BETWEEN_BROKERS:
            theirs = BETWEEN_BROKERS[api]
        if theirs is None:
            raise KafkaError(
                ErrorCode.unsupported_version, f"the broker at {self.address} does not offer {api}"
            )
        high = min(mine[1], theirs[1], mine[1] if up_to is None else up_to)
        if high < max(mine[0], theirs[0]):
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"the broker at {self.address} speaks {api} in versions {theirs[0]} to {theirs[1]}, "
                "none of which this broker can use",
            )
        return high

    def send(
        self,
        key: int,
        version: int,
        flexible: bool,
        body: Sequence[Buffer],
        read: Callable[[memoryview], Any] = bytes,
        within: float | None = None,
        future: asyncio.Future[Any] | None = None,
    ) -> asyncio.Future[Any]:
        """Send a request whose body is packed. The future has what `read` makes of the response, which it is
        given from after the correlation id on. A view of it is good until the next response arrives.

        `read` may send the next request of a series itself, with the future of the first, and return
        ASKED_AGAIN: whoever waits is not woken in between."""
        if future is None:
            future = self._loop.create_future()
        if self.closed or self._transport is None:
            future.set_exception(Unreachable(f"the connection to the broker at {self.address} is closed"))
            return future
        if len(self._pending) >= MAX_IN_FLIGHT:
            future.set_exception(
                Unreachable(f"{MAX_IN_FLIGHT} requests wait for the broker at {self.address} already")
            )
            return future
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        header = request_header(key, version, correlation_id, self._client_id, flexible)
        size = len(header) + sum(len(part) for part in body)
        patience = self.timeout if within is None else within
        now = self._loop.time()
        deadline = now + patience
        if deadline < self._watched_until:
            self._watch(deadline, now)
        self._pending.append(_Pending(correlation_id, read, future, patience, deadline))
        self._transport.write(b"".join((_SIZE.pack(size), header, *body)))
        return future

    # --- what arrives ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        at = 0
        try:
            while self._filled - at >= 8:
                size, correlation_id = _SIZE_AND_ID.unpack_from(self._buffer, at)
                if not 4 <= size <= LARGEST_RESPONSE:
                    raise Unreachable(
                        f"what answers at {self.address} does not speak Kafka's protocol", again=False
                    )
                end = at + 4 + size
                if end > self._filled:
                    if 4 + size > len(self._buffer):
                        self._grow(at, 4 + size)
                        at = 0
                    break
                self._answer(correlation_id, self._view[at + 8 : end])
                at = end
        except Unreachable as error:
            self._fail(error)
            return
        if at:
            rest = self._filled - at
            if rest:
                self._view[:rest] = bytes(self._view[at : self._filled])
            self._filled = rest
            if not rest and len(self._buffer) > KEEP_BUFFER:
                self._buffer = bytearray(FIRST_BUFFER)
                self._view = memoryview(self._buffer)

    def _grow(self, at: int, size: int) -> None:
        """Room for the whole response whose beginning has arrived."""
        bigger = bytearray(size)
        rest = self._filled - at
        bigger[:rest] = self._view[at : self._filled]
        self._buffer, self._filled = bigger, rest
        self._view = memoryview(bigger)

    def _answer(self, correlation_id: int, body: memoryview) -> None:
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise Unreachable(f"the broker at {self.address} answered something that was not asked")
        pending = self._pending.popleft()
        if pending.future.done():  # whoever asked has given up
            return
        try:
            result = pending.read(body)
            if result is not ASKED_AGAIN:
                pending.future.set_result(result)
        except Exception as error:
            if pending.future.done():
                return
            if not isinstance(error, KafkaError):
                error = KafkaError(
                    ErrorCode.unknown_server_error,
                    f"the response of the broker at {self.address} makes no sense ({error})",
                )
            pending.future.set_exception(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error else ""
        self._fail(Unreachable(f"the broker at {self.address} closed the connection{reason}"))

    # --- the end --------------------------------------------------------------------------------------------

    def _watch(self, deadline: float, now: float) -> None:
        """One timer for the connection: requests come and go much faster than they time out."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._watched_until = deadline
        self._watchdog = self._loop.call_later(deadline - now, self._look_for_late_answers)

    def _look_for_late_answers(self) -> None:
        self._watchdog, self._watched_until = None, math.inf
        now = self._loop.time()
        late = [each for each in self._pending if each.deadline <= now]
        if late:
            self._timed_out(late[0])
        elif self._pending:
            self._watch(min(each.deadline for each in self._pending), now)

    def _timed_out(self, late: _Pending) -> None:
        """A request has waited too long. What was sent behind it will not be answered before it is."""
        if not late.future.done():
            late.future.set_exception(
                TimedOut(f"the broker at {self.address} did not answer within {late.patience:g} s")
            )
        self._fail(Unreachable(f"the broker at {self.address} does not answer"))

    def _fail(self, error: KafkaError) -> None:
        self.closed = True
        pending, self._pending = self._pending, deque()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        for each in pending:
            if not each.future.done():
                each.future.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self._fail(Unreachable("this broker closed the connection"))


async def connect(
    endpoint: Endpoint, client_id: str, request_timeout: float, security: Security
) -> BrokerConnection:
    """A connection that knows the other side's versions and is logged in. Raises Unreachable."""
    loop = asyncio.get_running_loop()
    context = security.ssl_context(endpoint)
    address = f"{endpoint.host}:{endpoint.port}"
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, connection = await loop.create_connection(
                lambda: BrokerConnection(address, client_id, request_timeout),
                endpoint.host,
                endpoint.port,
                ssl=context,
                server_hostname=endpoint.host if context is not None else None,
            )
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"cannot connect to the broker at {address}: {error or 'timeout'}") from error
    try:
        connection.versions = await _versions(connection)
        await security.log_in(connection)
    except BaseException:
        connection.close()
        raise
    return connection


async def _versions(connection: BrokerConnection) -> dict[int, tuple[int, int]]:
    form = exchange("api_versions", 3)
    fields = {"client_software_name": "millstream-broker", "client_software_version": __version__}
    answer = await connection.send(form.key, 3, form.flexible, [form.encode(fields)], form.decode)
    if answer.error_code is not ErrorCode.none:
        raise Unreachable(
            f"the broker at {connection.address} answers ApiVersions with {answer.error_code.name}"
        )
    return {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}


class _Link:
    """The shared connection to one broker, and when it may be opened again."""

    __slots__ = ("backoff", "connection", "endpoint", "not_before", "opening")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.connection: BrokerConnection | None = None
        self.opening: asyncio.Task[BrokerConnection] | None = None
        self.not_before = 0.0
        self.backoff = FIRST_BACKOFF


class BrokerConnections:
    """This broker's connections to the others. `image` is read at each request: addresses may change."""

    def __init__(
        self,
        image: Callable[[], Image],
        listener: str,
        client_id: str,
        timeout: float,
        security: Security | None = None,
    ) -> None:
        self._image = image
        self.listener = listener
        self.client_id = client_id
        self.timeout = timeout
        self.security: Security = security or NoSecurity()
        self._links: dict[int, _Link] = {}
        self._closed = False

    async def request(
        self,
        broker_id: int,
        api: str,
        /,
        *,
        within: float | None = None,
        up_to: int | None = None,
        **fields: Any,
    ) -> Any:
        """Ask a broker, on the connection that all such requests share. Raises Unreachable or TimedOut."""
        connection = await self.shared(broker_id)
        return await connection.request(api, within=within, up_to=up_to, **fields)

    async def shared(self, broker_id: int) -> BrokerConnection:
        endpoint = self.endpoint(broker_id)
        link = self._links.get(broker_id)
        if link is None or link.endpoint != endpoint:
            if link is not None:
                _drop(link)
            link = self._links[broker_id] = _Link(endpoint)
        if link.connection is not None and not link.connection.closed:
            return link.connection
        if link.opening is None:
            link.opening = asyncio.get_running_loop().create_task(self._reopen(link))
        opening = link.opening
        await asyncio.wait((opening,))  # who gives up does not end it: the connection is for the others too
        if opening.cancelled():  # which is not our own end: nobody may take it for that
            raise Unreachable(f"broker {broker_id} has another address now, or this broker is stopping")
        return opening.result()

    async def open(self, broker_id: int) -> BrokerConnection:
        """A connection of one's own. The caller closes it, and minds the back-off."""
        if self._closed:
            raise Unreachable("this broker is stopping", again=False)
        return await connect(self.endpoint(broker_id), self.client_id, self.timeout, self.security)

    def endpoint(self, broker_id: int) -> Endpoint:
        """Where other brokers reach that one. Raises Unreachable if it is not alive."""
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            raise Unreachable(f"broker {broker_id} is not alive")
        endpoint = broker.endpoint(self.listener)
        if endpoint is None:
            raise Unreachable(
                f"broker {broker_id} has no listener {self.listener} (inter.broker.listener.name must be the "
                "same on all brokers)"
            )
        return endpoint

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            _drop(link)
        self._links.clear()

    async def _reopen(self, link: _Link) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        try:
            wait = link.not_before - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            if self._closed:
                raise Unreachable("this broker is stopping", again=False)
            link.connection = await connect(link.endpoint, self.client_id, self.timeout, self.security)
        except KafkaError:
            link.not_before = loop.time() + link.backoff
            link.backoff = min(2 * link.backoff, LAST_BACKOFF)
            raise
        finally:
            link.opening = None
        link.backoff = FIRST_BACKOFF
        return link.connection


def _drop(link: _Link) -> None:
    if link.opening is not None:
        link.opening.cancel()
    if link.connection is not None:
        link.connection.close()
