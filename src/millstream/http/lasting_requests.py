"""Requests that last: they end when their caller may no longer send them.

A stream of rows goes on for hours, and the service reads it as a user of its own. So while a request lasts
its caller is looked at again about every second, for the first time after a second: short requests pay
nothing. Only a request that sends or receives is ended; one that is at work is let finish what it began.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0


class RequestEnded(Exception):
    """The caller may no longer send the request, and nothing has been answered yet."""


async def serve_while_allowed(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, is_allowed: Callable[[], Awaitable[bool]]
) -> None:
    """The application, until it is done or `is_allowed` says no. RequestEnded."""
    loop = asyncio.get_running_loop()
    receiving = sending = ended = False
    watch: asyncio.Task[None] | None = None

    async def receive_watched() -> Message:
        nonlocal receiving
        receiving = True
        event = await receive()
        receiving = event["type"] == "http.request" and bool(event.get("more_body", False))
        return event

    async def send_watched(event: Message) -> None:
        nonlocal sending, ended
        sending = True
        ended = event["type"] == "http.response.body" and not event.get("more_body", False)
        await send(event)

    async def look() -> None:
        try:
            while await is_allowed() or not (sending or receiving):  # noqa: ASYNC110 - others decide
                await asyncio.sleep(AGAIN_SECONDS)
        except Exception:
            log.exception("a caller could not be looked at again; the request ends")
        if not ended:
            limit.reschedule(loop.time())

    def begin() -> None:
        nonlocal watch
        watch = asyncio.ensure_future(look())

    timer = loop.call_later(AGAIN_SECONDS, begin)
    try:
        async with asyncio.timeout(None) as limit:
            await app(scope, receive_watched, send_watched)
    except TimeoutError:
        if not limit.expired():
            raise
        if not sending:
            raise RequestEnded from None
        # The client sees the end; its next request is told why.
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()
