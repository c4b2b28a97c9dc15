"""From a frame to the handler of its API, and from what the handler returns to the response.

An `Api` names the versions served and the function that serves them. Handlers of the control plane get a
`Call` with the decoded request and return the response, as an object or packed, or a coroutine or a generator
(see `slices`) that will; a generator may end with a coroutine. Produce and Fetch get the raw frame.

A large request is checked and decoded by a thread, and its response encoded there (a handler that packs by
hand returns a `partial` that does), because both take about 10 microseconds an element. One interpreter runs
one thread at a time, so the loop would get its turn back only after Python's switch interval, at every system
call; the interval is short while such a thread is at work.

An unknown API, an unsupported version and a body that cannot be read close the connection with one log line,
as in Kafka; only ApiVersions is answered whatever its version, so that any client can find out what is
served.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from millstream.broker.network.slices import Outcome, Slices, run_slice, run_slices
from millstream.wire.messages import API_VERSIONS, Codec, body_start, codec
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.varint import Malformed

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection

logger = logging.getLogger("millstream.requests")

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, size of the client id
LARGE_FRAME = 4 * 1024  # bytes; an element has at least one
MAX_ELEMENTS = 100_000  # of all lists of a request, whatever the cluster has
THREADS = 2  # that decode and encode
SWITCH_INTERVAL, BUSY_SWITCH_INTERVAL = 0.005, 0.0005  # seconds; the first is Python's own

Returned = TypeVar("Returned")

_clock = time.perf_counter


class Call:
    """One request of the control plane, with what a handler may want to know about it."""

    __slots__ = (
        "codec",
        "connection",
        "correlation_id",
        "frame",
        "is_forwarded",
        "is_large",
        "request",
        "version",
    )

    def __init__(self, connection: Connection, codec: Codec, correlation_id: int, request: Any) -> None:
        self.connection = connection
        self.codec = codec
        self.version = codec.version
        self.correlation_id = correlation_id
        self.request = request
        self.is_large = False  # its response is encoded by a thread
        self.frame: bytes | None = None  # as it came, where the controller has to answer it
        self.is_forwarded = False  # another broker sent it here, in the name of its client

    @property
    def listener(self) -> str:
        return self.connection.context.name

    @property
    def principal(self) -> str:
        """Who is asking, as ACLs name him: `User:alice`."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The address that the request came from."""
        return self.connection.client_host

    def make(self, structure: str, /, **fields: Any) -> Any:
        return self.codec.make(structure, **fields)

    def answer(self, **fields: Any) -> Any:
        return self.codec.answer(**fields)

    async def in_slices(self, slices: Slices[Outcome]) -> Outcome:
        """For handlers that are coroutines: run a generator that yields after each element to its end."""
        try:
            run_slice(slices)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        self.is_large = True
        await asyncio.sleep(0)
        return await run_slices(slices)


class ForwardedClient:
    """Stands for the connection of a client that is connected to another broker, which forwards its
    request."""

    __slots__ = ("client_host", "client_id", "closed", "context", "loop", "peer", "principal", "software")

    def __init__(self, connection: Connection, principal: str, client_host: str, client_id: str) -> None:
        self.context = connection.context
        self.loop = connection.loop
        self.peer = f"{client_host} (by way of {connection.peer})"
        self.principal = principal
        self.client_host = client_host
        self.client_id = client_id
        self.software = ""
        self.closed = False


class Forwarding(Protocol):
    """The way to the controller, see `broker/forwarding.py`."""

    @property
    def is_controller(self) -> bool: ...

    async def forward(self, call: Call) -> bytes | None: ...


Handler = Callable[[Call], Any]
RawHandler = Callable[["Connection", memoryview, int, int, int], None]


@dataclass(slots=True)
class Api:
    """One row of the table of what this broker serves."""

    key: int
    name: str
    lowest: int
    highest: int
    handler: Handler | None = None
    raw: RawHandler | None = None  # (connection, frame, size of the client id, version, correlation id)
    advertised_from: int = -1  # where it differs from `lowest`
    forwarded: bool = False  # the controller answers: any other broker forwards the whole request to it
    forwardable: bool = False  # the handler itself forwards what the controller has to decide
    between_brokers: bool = False  # not listed to clients, and not served by a broker that is alone
    requests: int = 0
    seconds: float = 0.0
    versions_seen: set[int] = field(default_factory=set)


class FastPath(Protocol):
    """Serves the requests of a connection that repeat an earlier one, without decoding them."""

    @property
    def api(self) -> Api: ...

    def try_handle(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        """Handle the frame `view[start:end]`, or change nothing and return False: the full path serves it."""


class Dispatches(Protocol):
    """Takes the frames of a connection: the dispatcher of all APIs, or the login before it
    (`broker/login`)."""

    def dispatch(self, connection: Connection, view: memoryview, start: int, end: int) -> None: ...


class Dispatcher:
    def __init__(self, partition_count: Callable[[], int] = lambda: 0) -> None:
        self.apis: dict[int, Api] = {}
        self.malformed = 0
        self.metered = False  # a quota has its own `dispatch` in the place of this one's
        self.forwarding: Forwarding | None = None  # set by a broker; without, everything is answered here
        self._partition_count = partition_count
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(THREADS, "large-request")
        self._in_threads = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def at_work(self) -> int:
        """Requests that are answered later."""
        return len(self._tasks)

    def max_elements(self) -> int:
        """How many elements the lists of a request may have in all: enough to name every partition four
        times."""
        return max(MAX_ELEMENTS, 4 * self._partition_count())

    def serve(self, api: Api) -> None:
        self.apis[api.key] = api

    def dispatch(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """Handle the frame `view[start:end]`. Nothing that a client sends makes this raise."""
        began = _clock()
        try:
            fast_path = connection.fast_path
            if fast_path is not None and fast_path.try_handle(connection, view, start, end):
                fast_path.api.requests += 1
                fast_path.api.seconds += _clock() - began
                return
            frame = view[start:end]
            if len(frame) < _HEADER.size:
                raise Malformed(f"a frame of {len(frame)} bytes is shorter than a request header")
            key, version, correlation_id, size = _HEADER.unpack_from(frame)
            api = self.apis.get(key)
            if api is None:
                raise Malformed(f"API {key} is not served here")
            api.requests += 1
            if version < api.lowest or version > api.highest:
                if key != API_VERSIONS:
                    raise Malformed(
                        f"{api.name} version {version} is not served here ({api.lowest} to {api.highest} are)"
                    )
                self._run(api, connection, Call(connection, codec(key, 0), correlation_id, None))
            elif api.raw is not None:
                api.raw(connection, frame, size, version, correlation_id)
            else:
                message_codec = codec(key, version)
                start = body_start(frame, size, message_codec.flexible)
                if size > 0:
                    connection.client_id = str(frame[10 : 10 + size], "utf-8", "replace")
                call = Call(connection, message_codec, correlation_id, None)
                if api.forwarded and self.forwarding is not None and not self.forwarding.is_controller:
                    call.frame = bytes(frame)
                if len(frame) > LARGE_FRAME:
                    self._later(connection, self._read_and_run(api, connection, call, frame, start))
                else:
                    call.request = message_codec.read(frame, start)
                    self._run(api, connection, call)
            api.seconds += _clock() - began
        except BAD_FRAME as error:
            self.malformed += 1
            connection.close(f"request cannot be served: {error}")
        except Exception:
            logger.exception("request from %s failed", connection.peer)
            connection.close("the request failed with an unexpected error, see above")

    def dispatch_repeated(
        self, connection: Connection, stand_in: Any, view: memoryview, start: int, end: int
    ) -> bool:
        """Handle a frame before the last one is answered, if it repeats an earlier one: its fast path sees
        `stand_in` in the place of the connection. Otherwise nothing is changed."""
        began = _clock()
        fast_path = connection.fast_path
        try:
            if fast_path is None or not fast_path.try_handle(stand_in, view, start, end):
                return False
        except BAD_FRAME:
            return False  # `dispatch` will say what is wrong with it
        except Exception:
            logger.exception("request from %s failed", connection.peer)
            connection.close("the request failed with an unexpected error, see above")
            return True
        fast_path.api.requests += 1
        fast_path.api.seconds += _clock() - began
        return True

    def _run(self, api: Api, connection: Connection, call: Call) -> None:
        assert api.handler is not None
        result = api.handler(call) if call.frame is None else self._forward(api, call)
        if type(result) is GeneratorType:
            try:
                run_slice(result)
            except StopIteration as end:
                result = end.value
            else:
                call.is_large = True
                result = _all_of(result)
        if type(result) is CoroutineType:
            self._later(connection, self._finish(api, connection, call, result))
        else:
            connection.send(_frame(call, result))

    def _later(self, connection: Connection, work: Coroutine[Any, Any, None]) -> None:
        """The response comes later; until then the connection's next request is not looked at."""
        task = connection.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection.park(None)

    async def _finish(
        self, api: Api, connection: Connection, call: Call, work: Coroutine[Any, Any, Any]
    ) -> None:
        """Await the handler and send its response. It runs to its end even if the client has left."""
        try:
            result = await work
            if connection.closed:
                return
            if call.is_large and type(result) is not bytes:
                frame = await self.in_thread(_frame, call, result)
            else:
                frame = _frame(call, result)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("%s request from %s failed", api.name, connection.peer)
            connection.close("the request failed with an unexpected error, see above")
            return
        if not connection.closed:
            connection.send(frame)
            connection.resume()

    # ------------------------------------------------------------------ large requests

    def _read_and_run(
        self, api: Api, connection: Connection, call: Call, frame: memoryview, start: int
    ) -> Coroutine[Any, Any, None]:
        kept = connection.keep_frame(frame)
        limit = self.max_elements()

        async def read_and_run() -> None:
            try:
                call.request = await self.in_thread(call.codec.read, kept.frame, start, limit)
            except BAD_FRAME as error:
                self.malformed += 1
                connection.close(f"request cannot be served: {error}")
                return
            finally:
                kept.give_back()
            call.is_large = True
            await self._finish(api, connection, call, self._handle(api, call))

        return read_and_run()

    async def _handle(self, api: Api, call: Call) -> Any:
        assert api.handler is not None
        result = api.handler(call) if call.frame is None else self._forward(api, call)
        if type(result) is GeneratorType:
            return await _all_of(result)
        return await result if type(result) is CoroutineType else result

    # ------------------------------------------------------------------ the controller's requests

    async def _forward(self, api: Api, call: Call) -> Any:
        """The controller's response; this broker's own if there is nobody else to ask."""
        assert self.forwarding is not None
        response = await self.forwarding.forward(call)
        if response is not None:
            return response
        call.frame = None
        return await self._handle(api, call)

    async def run_forwarded(self, api: Api, call: Call) -> bytes:
        """At the controller: the response frame to a request that another broker forwards."""
        api.requests += 1
        began = _clock()
        result = await self._handle(api, call)
        if call.is_large and type(result) is not bytes:
            frame = await self.in_thread(_frame, call, result)
        else:
            frame = _frame(call, result)
        api.seconds += _clock() - began
        return frame

    async def in_thread(self, work: Callable[..., Returned], *arguments: Any) -> Returned:
        """Work that takes long and touches nothing that the loop changes."""
        if not self._in_threads:
            sys.setswitchinterval(BUSY_SWITCH_INTERVAL)
        self._in_threads += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        finally:
            self._in_threads -= 1
            if not self._in_threads:
                sys.setswitchinterval(SWITCH_INTERVAL)


async def _all_of(slices: Slices[Any]) -> Any:
    result = await run_slices(slices)
    return await result if type(result) is CoroutineType else result


def _frame(call: Call, result: Any) -> bytes:
    """What a handler returned, as a frame; handlers that are called very often have packed it already."""
    if type(result) is bytes:
        return result
    if type(result) is partial:
        frame: bytes = result()
        return frame
    return call.codec.pack(call.correlation_id, result)
