"""HTTP/2: in clear text for clients that begin with it, over TLS by ALPN (RFC 9113, sections 3.2 and 3.3).

ksqlDB's Java client speaks HTTP/2 with prior knowledge and nothing else. A connection whose first bytes are
HTTP/2's preface is handed over to this protocol; every other one stays where it is, and `h2` is not even
imported for it. `h2` keeps the state of the connection; here are sockets, streams and the application: one
ASGI call for each stream.

Both directions wait: what the application has not read is not acknowledged, so that the peer's window closes;
a response waits for the window of its stream and for the socket. By the Upgrade header of HTTP/1.1, HTTP/2 is
not offered: such clients get HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from millstream.http.certificate_callers import CERTIFICATE

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("uvicorn.error")

MAX_STREAMS = 256
# A client that opens streams only to reset them makes work and none for itself (CVE-2023-44487).
MAX_RESETS = 1_000
# Bytes that make no frame: h2 looks at the length of one only when it has all of it.
MAX_UNFINISHED = 256 << 10
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})

Message = dict[str, Any]


class _Stream:
    """One request and its response."""

    def __init__(self, connection: Http2Protocol, number: int) -> None:
        self._connection, self.number = connection, number
        self._body: deque[tuple[bytes, int]] = deque()
        self._ended = self.gone = False
        self._changed = asyncio.Event()
        self.window = asyncio.Event()

    def feed(self, data: bytes, size: int) -> None:
        self._body.append((data, size))
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    def disconnect(self) -> None:
        self.gone = True
        self._changed.set()
        self.window.set()

    async def receive(self) -> Message:
        while not self._body and not self.gone:
            if self._ended:
                self._ended = False
                return {"type": "http.request", "body": b"", "more_body": False}
            self._changed.clear()
            await self._changed.wait()
        if self.gone:
            return {"type": "http.disconnect"}
        parts = []
        while self._body:
            data, size = self._body.popleft()
            parts.append(data)
            self._connection.acknowledge(size, self.number)
        more, self._ended = not self._ended, False
        return {"type": "http.request", "body": b"".join(parts), "more_body": more}

    async def send(self, message: Message) -> None:
        if self.gone:
            return
        connection = self._connection
        if message["type"] == "http.response.start":
            headers = [(b":status", str(message["status"]).encode())]
            headers += [
                (name.lower(), value)
                for name, value in message.get("headers", ())
                if name.lower() not in _HOP_BY_HOP
            ]
            connection.send_headers(self.number, headers)
            return
        await connection.send_body(self, message.get("body", b""), end=not message.get("more_body", False))


class Http2Protocol(asyncio.Protocol):
    """Takes the place of `before`, on the same connection."""

    def __init__(self, before: HttpToolsProtocol) -> None:
        self._app, self._loop = before.app, before.loop
        self._server, self._client = before.server, before.client
        self._connections, self._tasks = before.connections, before.tasks
        self._scheme = before.scheme
        self._certificate = getattr(before, "certificate", None)
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._streams: dict[int, _Stream] = {}
        self._resets = self._unfinished = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport = before.transport
        self._closing = False

    # What the event loop calls

    def begin(self, data: bytes) -> None:
        self._connections.add(cast(Any, self))
        self._h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = MAX_STREAMS
        self._h2.initiate_connection()
        self._flush()
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
            self._unfinished = 0 if events else self._unfinished + len(data)
            if self._unfinished > MAX_UNFINISHED:
                raise ProtocolError("a frame is larger than any may be")
            for event in events:
                self._handle(event)
        except ProtocolError:
            self._flush()  # h2 has written why
            self._transport.close()
            return
        self._flush()

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(cast(Any, self))
        for stream in self._streams.values():
            stream.disconnect()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def shutdown(self) -> None:
        """The server is on its way out: no new streams; the connection closes behind the last one."""
        self._closing = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._closing and not self._streams:
            with contextlib.suppress(ProtocolError):
                self._h2.close_connection()
            self._flush()
            self._transport.close()

    # Events

    def _handle(self, event: Any) -> None:
        if isinstance(event, RequestReceived):
            self._request(event)
        elif isinstance(event, DataReceived):
            stream = self._streams.get(event.stream_id)
            if stream is None:
                self.acknowledge(event.flow_controlled_length, event.stream_id)
            else:
                stream.feed(event.data, event.flow_controlled_length)
        elif isinstance(event, StreamEnded):
            ended = self._streams.get(event.stream_id)
            if ended is not None:
                ended.end()
        elif isinstance(event, StreamReset):
            self._reset(event.stream_id)
        elif isinstance(event, WindowUpdated):
            waiting = self._streams.values() if not event.stream_id else ()
            for stream in (*waiting, *filter(None, [self._streams.get(event.stream_id)])):
                stream.window.set()
        elif isinstance(event, RemoteSettingsChanged):
            for stream in self._streams.values():
                stream.window.set()
        elif isinstance(event, ConnectionTerminated):
            self._transport.close()

    def _reset(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.disconnect()
        self._resets += 1
        if self._resets > MAX_RESETS:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._flush()
            self._transport.close()

    def _request(self, event: RequestReceived) -> None:
        if self._closing:
            self._h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        pseudo: dict[bytes, bytes] = {}
        headers: list[tuple[bytes, bytes]] = []
        for name, value in cast("list[tuple[bytes, bytes]]", event.headers or []):
            if name.startswith(b":"):
                pseudo[name] = value
            else:
                headers.append((name, value))
        if b":authority" in pseudo and not any(name == b"host" for name, _ in headers):
            headers.insert(0, (b"host", pseudo[b":authority"]))
        path, _, query = pseudo.get(b":path", b"/").partition(b"?")
        number = event.stream_id
        stream = self._streams[number] = _Stream(self, number)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "method": pseudo.get(b":method", b"GET").decode("ascii", "replace"),
            "root_path": "",
            "path": unquote(path.decode("ascii", "replace")),
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "state": {},
        }
        if self._certificate is not None:
            scope[CERTIFICATE] = self._certificate
        task = self._loop.create_task(self._run(scope, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, scope: dict[str, Any], stream: _Stream) -> None:
        try:
            await self._app(cast(Any, scope), cast(Any, stream.receive), cast(Any, stream.send))
        except Exception:
            if not stream.gone:
                log.exception("Exception in ASGI application")
                with contextlib.suppress(ProtocolError):
                    self._h2.reset_stream(stream.number, ErrorCodes.INTERNAL_ERROR)
        finally:
            self._streams.pop(stream.number, None)
            self._flush()
            self._close_if_done()

    # Writing

    def send_headers(self, number: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._h2.send_headers(number, headers)
        self._flush()

    async def send_body(self, stream: _Stream, body: bytes, *, end: bool) -> None:
        view = memoryview(body)
        while len(view) and not stream.gone:
            await self._writable.wait()
            room = 0 if stream.gone else self._room(stream.number)
            if room <= 0:
                stream.window.clear()
                await stream.window.wait()
                continue
            self._h2.send_data(stream.number, bytes(view[:room]))
            view = view[room:]
            self._flush()
        if end and not stream.gone:
            self._h2.end_stream(stream.number)
            self._flush()

    def _room(self, number: int) -> int:
        return min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)

    def acknowledge(self, size: int, number: int) -> None:
        """The application has read so much of the body: the peer may send as much again."""
        if size and self._h2.state_machine.state is not ConnectionState.CLOSED:
            with contextlib.suppress(ProtocolError):
                self._h2.acknowledge_received_data(size, number)
            self._flush()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)
