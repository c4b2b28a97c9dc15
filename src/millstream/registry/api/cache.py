"""Answers to GET requests, kept until the next change of the state."""

from collections import OrderedDict
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.registry.state import State

LARGEST = 64 * 1024
ALL_TOGETHER = 32 * 1024 * 1024
EACH = 500  # bytes that an entry takes beside its body
OPEN = ("/schemas", "/subjects", "/config", "/mode", "/contexts")  # what depends on the state alone


class Cache:
    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state
        self._changes = -1
        self._size = 0
        self._kept: OrderedDict[tuple[str, bytes], tuple[Message, Message, Any]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(OPEN):
            await self._app(scope, receive, send)
            return
        if self._changes != self._state.changes:
            self._kept.clear()
            self._size = 0
            self._changes = self._state.changes
        key = (scope["path"], scope["query_string"])
        kept = self._kept.get(key)
        if kept is not None:
            scope["route"] = kept[2]
            await send(kept[0])
            await send(kept[1])
            return
        before = self._changes
        messages: list[Message] = []

        async def watched(message: Message) -> None:
            messages.append(message)
            await send(message)

        await self._app(scope, receive, watched)
        if len(messages) != 2 or messages[0].get("status") != 200 or before != self._state.changes:
            return
        size = len(messages[1].get("body", b"")) + EACH
        if size <= LARGEST and not messages[1].get("more_body") and key not in self._kept:
            self._kept[key] = (messages[0], messages[1], scope.get("route"))
            self._size += size
            while self._size > ALL_TOGETHER:
                _, oldest = self._kept.popitem(last=False)
                self._size -= len(oldest[1].get("body", b"")) + EACH
