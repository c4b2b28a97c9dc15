"""What Kafka's server does with every path: a slash at its end does not count, HEAD is GET without a body,
and OPTIONS names the methods there are, as does the refusal of any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Paths:
    """Around the application with these routes."""

    def __init__(self, app: ASGIApp, routes: Iterable[Any]) -> None:
        self._app = app
        self._routes = [route for route in routes if isinstance(route, APIRoute)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].rstrip("/") or "/"
        scope = {**scope, "path": path}
        if scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, _without_body(send))
            return
        allowed = self._allowed(scope)
        if scope["method"] == "OPTIONS" and allowed:
            listed = ", ".join(allowed)
            response = Response(listed, media_type="text/plain", headers={"allow": ",".join(allowed)})
            await response(scope, receive, send)
            return
        if allowed and scope["method"] not in allowed:
            send = _with_allow(send, ",".join(allowed))
        await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> list[str]:
        found = {
            method
            for route in self._routes
            if route.matches(scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
        return sorted({*found, *({"HEAD"} if "GET" in found else ()), "OPTIONS"}) if found else []


def _without_body(send: Send) -> Send:
    async def only_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return only_head


def _with_allow(send: Send, allowed: str) -> Send:
    async def allow(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [pair for pair in message["headers"] if pair[0] != b"allow"]
            message = {**message, "headers": [*others, (b"allow", allowed.encode())]}
        await send(message)

    return allow
