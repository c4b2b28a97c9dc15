"""Which protocol a connection speaks.

One that begins with HTTP/2's preface is handed over to `http2.py`. Requests that offer another protocol are
answered in HTTP/1.1 (RFC 9110, section 7.8): Java's HTTP client offers HTTP/2 with the first request of every
connection. uvicorn's parser takes each such offer for the end of HTTP and drops the body of the request, so
the header is renamed before the parser sees it; a head that comes in pieces is held until it is whole, as
some clients send each of its lines on its own. An offer of websockets stays, where the service has some.
"""

import asyncio
import re
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millstream.http.certificate_callers import CERTIFICATE

UPGRADE = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_WEBSOCKET = re.compile(rb"[ \t]*:[ \t]*websocket[ \t]*(?:\r\n|\Z)", re.IGNORECASE)
# No method of HTTP/1.1 begins so.
_PREFACE = b"PRI"
# Longer heads are left to the parser, which refuses them.
MAX_HELD = 64 << 10


class HttpProtocol(HttpToolsProtocol):
    _held = b""
    certificate: bytes | None = None  # the client's, in DER

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.certificate = tls.getpeercert(binary_form=True)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.certificate is not None:
            cast(dict[str, Any], self.scope)[CERTIFICATE] = self.certificate

    def data_received(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        if self.cycle is None and data.startswith(_PREFACE):
            self._begin_http2(data)
            return
        # Not inside of a body, which may hold anything.
        if self.cycle is None or not self.cycle.more_body:
            end = data.find(b"\r\n\r\n")
            if end < 0 and len(data) < MAX_HELD:
                self._unset_keepalive_if_required()
                self._held = data
                return
            found = UPGRADE.search(data, 0, len(data) if end < 0 else end)
            websocket = found is not None and self.ws_protocol_class is not None
            if found is not None and not (websocket and _WEBSOCKET.match(data, found.end())):
                data = data[: found.start()] + b"\r\nX-Upgrade" + data[found.end() :]
        super().data_received(data)

    def _begin_http2(self, data: bytes) -> None:
        from millstream.http.http2 import Http2Protocol

        self._unset_keepalive_if_required()
        self.connections.discard(self)
        http2 = Http2Protocol(self)
        self.transport.set_protocol(http2)
        http2.begin(data)
