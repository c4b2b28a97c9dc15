"""Requests that offer another protocol are answered in HTTP/1.1 (RFC 9110, section 7.8).

Java's HTTP client offers HTTP/2 with the first request of every connection. uvicorn's parser takes each such
offer for the end of HTTP and drops the body of the request. Nothing here speaks another protocol, so the
header is renamed before the parser sees it.
"""

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

UPGRADE = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)


class HttpProtocol(HttpToolsProtocol):
    def data_received(self, data: bytes) -> None:
        # Not inside of a body, which may hold anything.
        if self.cycle is None or not self.cycle.more_body:
            end = data.find(b"\r\n\r\n")
            found = UPGRADE.search(data, 0, len(data) if end < 0 else end)
            if found is not None:
                data = data[: found.start()] + b"\r\nX-Upgrade" + data[found.end() :]
        super().data_received(data)
