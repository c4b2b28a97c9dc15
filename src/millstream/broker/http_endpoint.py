"""The smallest HTTP server that Prometheus and a load balancer need: GET of a few fixed paths, under the
names that the services accept, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millstream.http.host_names import HostNames, is_from_browser

Page = Callable[[], tuple[int, str, str]]  # status, content type, body

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    503: "Service Unavailable",
}
_TIMEOUT = 10.0  # seconds, to receive the request and again to send the response
_MAX_REQUEST = 16 * 1024


async def serve(host: str, port: int, pages: dict[str, Page], host_names: HostNames) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _TIMEOUT)
            status, content_type, body = _respond(request, pages, host_names)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            status, content_type, body = 400, "text/plain", "bad request\n"
        content = body.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        try:
            writer.write(head.encode() + content)
            await asyncio.wait_for(writer.drain(), _TIMEOUT)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=_MAX_REQUEST)


def _respond(request: bytes, pages: dict[str, Page], host_names: HostNames) -> tuple[int, str, str]:
    first_line, *header_lines = request.rstrip(b"\r\n").split(b"\r\n")
    request_line = first_line.split(b" ")
    if len(request_line) != 3:
        return 400, "text/plain", "bad request\n"
    method, path, _ = request_line
    headers = [
        (name.strip().lower(), value) for name, _, value in (line.partition(b":") for line in header_lines)
    ]
    from_browser = is_from_browser(name for name, _ in headers)
    for host in (value.decode("latin-1").strip() for name, value in headers if name == b"host"):
        if not host_names.accept(host, from_browser=from_browser):
            return 421, "text/plain", f"{host_names.refusal(host)}\n"
    if method not in (b"GET", b"HEAD"):
        return 405, "text/plain", "only GET\n"
    page = pages.get(path.split(b"?")[0].decode("latin-1"))
    if page is None:
        return 404, "text/plain", f"try {' or '.join(sorted(pages))}\n"
    return page()
