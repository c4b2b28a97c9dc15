"""Server-sent events: answers that go on until the browser leaves or the console ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from starlette.responses import StreamingResponse

from millstream.console.context import get_console

KEEPALIVE_SECONDS = 15.0  # seconds after which a comment shows that the line is alive


def event(name: str, data: Any) -> str:
    """One event. Its data is JSON, or text that may have several lines."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    lines = "\n".join(f"data: {line}" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n\n"


def event_stream(request: Request, events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no", "content-encoding": "identity"}
    return StreamingResponse(
        _until_shutdown(request, events), media_type="text/event-stream", headers=headers
    )


async def _until_shutdown(request: Request, events: AsyncIterator[str]) -> AsyncIterator[str]:
    ending = asyncio.ensure_future(get_console(request).ending.wait())
    iterator = events.__aiter__()
    waiting: asyncio.Task[str] | None = None

    async def following() -> str:
        return await anext(iterator)

    try:
        yield ": hello\n\n"
        while not ending.done():
            if waiting is None:
                waiting = asyncio.ensure_future(following())
            await asyncio.wait(
                {ending, waiting}, timeout=KEEPALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not waiting.done():
                yield ": still here\n\n"
                continue
            try:
                yield waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
    finally:
        ending.cancel()
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()
