"""From a frame to the handler of its API, and from what the handler returns to the response.

An `Api` names the versions served and the function that serves them. Handlers of the control plane get a
`Call` with the decoded request and return the response, as an object or packed, or a coroutine that will;
Produce and Fetch get the raw frame. An unknown API, an unsupported version and a body that cannot be read
close the connection with one log line, as in Kafka; only ApiVersions is answered whatever its version, so
that any client can find out what is served.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from millstream.wire.messages import API_VERSIONS, Codec, body_start, codec
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.varint import Malformed

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection

logger = logging.getLogger("millstream.requests")

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, size of the client id
ANONYMOUS = "User:ANONYMOUS"

_clock = time.perf_counter


class Call:
    """One request of the control plane, with what a handler may want to know about it."""

    __slots__ = ("codec", "connection", "correlation_id", "request", "version")

    def __init__(self, connection: Connection, codec: Codec, correlation_id: int, request: Any) -> None:
        self.connection = connection
        self.codec = codec
        self.version = codec.version
        self.correlation_id = correlation_id
        self.request = request

    @property
    def listener(self) -> str:
        return self.connection.context.name

    @property
    def principal(self) -> str:
        return ANONYMOUS

    def make(self, structure: str, /, **fields: Any) -> Any:
        return self.codec.make(structure, **fields)

    def answer(self, **fields: Any) -> Any:
        return self.codec.answer(**fields)


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
    requests: int = 0
    seconds: float = 0.0
    versions_seen: set[int] = field(default_factory=set)


class FastPath(Protocol):
    """Serves the requests of a connection that repeat an earlier one, without decoding them."""

    @property
    def api(self) -> Api: ...

    def try_handle(self, connection: Connection, view: memoryview, start: int, end: int) -> bool:
        """Handle the frame `view[start:end]`, or change nothing and return False: the full path serves it."""


class Dispatcher:
    def __init__(self) -> None:
        self.apis: dict[int, Api] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.malformed = 0

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
                request = message_codec.read(frame, start)
                self._run(api, connection, Call(connection, message_codec, correlation_id, request))
            api.seconds += _clock() - began
        except BAD_FRAME as error:
            self.malformed += 1
            connection.close(f"request cannot be served: {error}")
        except Exception:
            logger.exception("request from %s failed", connection.peer)
            connection.close("the request failed with an unexpected error, see above")

    def _run(self, api: Api, connection: Connection, call: Call) -> None:
        assert api.handler is not None
        result = api.handler(call)
        if asyncio.iscoroutine(result):
            task = connection.loop.create_task(self._finish(api, connection, call, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            connection.park(None)
        else:
            connection.send(_frame(call, result))

    async def _finish(
        self, api: Api, connection: Connection, call: Call, work: Coroutine[Any, Any, Any]
    ) -> None:
        """Await the handler and send its response. It runs to its end even if the client has left."""
        try:
            frame = _frame(call, await work)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("%s request from %s failed", api.name, connection.peer)
            connection.close("the request failed with an unexpected error, see above")
            return
        if not connection.closed:
            connection.send(frame)
            connection.resume()


def _frame(call: Call, result: Any) -> bytes:
    """What a handler returned, as a frame; handlers that are called very often have packed it already."""
    return result if type(result) is bytes else call.codec.pack(call.correlation_id, result)
