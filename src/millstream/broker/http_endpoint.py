"""The smallest HTTP server that Prometheus and a load balancer need: GET of a few fixed paths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Page = Callable[[], tuple[int, str, str]]  # status, content type, body

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_TIMEOUT = 10.0  # seconds, to receive the request and again to send the response
_MAX_REQUEST = 16 * 1024


async def serve(host: str, port: int, pages: dict[str, Page]) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _TIMEOUT)
            status, content_type, body = _respond(request, pages)
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


def _respond(request: bytes, pages: dict[str, Page]) -> tuple[int, str, str]:
    request_line = request.split(b"\r\n", 1)[0].split(b" ")
    if len(request_line) != 3:
        return 400, "text/plain", "bad request\n"
    method, path, _ = request_line
    if method not in (b"GET", b"HEAD"):
        return 405, "text/plain", "only GET\n"
    page = pages.get(path.split(b"?")[0].decode("latin-1"))
    if page is None:
        return 404, "text/plain", f"try {' or '.join(sorted(pages))}\n"
    return page()
