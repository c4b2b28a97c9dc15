"""`/ws/query`: a query's rows as messages of a websocket.

The request is a parameter of the address, as ksqlDB has it: `?request={"ksql": "SELECT ...;"}`. The first
message is the schema, then one for each row; the end of the query closes the socket. What guards the other
resources (users, host names, pages of other sites) guards the handshake too: it is shown to them as the GET
that it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.http.lasting_requests import AGAIN_SECONDS
from millstream.sql.errors import SqlError
from millstream.sql.results import ResultStream, Tombstone
from millstream.sql.row_json import RowWriter
from millstream.sql.server.entities import type_info
from millstream.sql.server.routes.queries import parts
from millstream.sql.server.routes.requests import in_thread
from millstream.sql.server.service import SqlService

_DONE, _BAD_REQUEST, _REFUSED, _FAILED = 1000, 1003, 1008, 1011
_REASON_BYTES = 123


def with_websocket(
    app: ASGIApp, service: SqlService, guard: Callable[[ASGIApp], ASGIApp], *, callers_change: bool
) -> ASGIApp:
    """The application, and the websocket beside it behind the same guard. `callers_change`: who was let in
    may be refused later, so the guard is asked again about every second."""

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        await receive()  # websocket.connect
        if scope["path"] != "/ws/query" or service.headless or await _refusal(scope, guard) is not None:
            await send({"type": "websocket.close", "code": _BAD_REQUEST})
            return
        await send({"type": "websocket.accept"})
        refused = asyncio.ensure_future(_until_refused(scope, guard)) if callers_change else None
        try:
            await _serve(service, scope, receive, send, refused)
        finally:
            if refused is not None:
                refused.cancel()

    return both


async def _until_refused(scope: Scope, guard: Callable[[ASGIApp], ASGIApp]) -> None:
    refusal = None
    while refusal not in (401, 403):  # others pass: no broker answers, or too many logins are tried
        await asyncio.sleep(AGAIN_SECONDS)
        refusal = await _refusal(scope, guard)


async def _refusal(scope: Scope, guard: Callable[[ASGIApp], ASGIApp]) -> int | None:
    """The status with which the guard refuses the handshake; None if it does not."""
    status: int | None = 403

    async def inner(_scope: Scope, _receive: Receive, _send: Send) -> None:
        nonlocal status
        status = None

    async def nothing() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def swallowed(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]

    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], "http")
    shown = {**scope, "type": "http", "method": "GET", "scheme": scheme, "http_version": "1.1"}
    await guard(inner)(shown, nothing, swallowed)
    return status


async def _serve(
    service: SqlService, scope: Scope, receive: Receive, send: Send, refused: asyncio.Future[None] | None
) -> None:
    try:
        sql, properties, variables = _request(scope["query_string"])
        result = await in_thread(lambda: service.query(sql, properties, variables))
    except (SqlError, ValueError) as error:
        await _close(send, _BAD_REQUEST, str(error))
        return
    writing = asyncio.ensure_future(_write(result, send))
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait(filter(None, (leaving, refused)), return_when=asyncio.FIRST_COMPLETED)
        still_open = not leaving.done() and not writing.done()
    finally:
        result.close()
        writing.cancel()
        leaving.cancel()
        await asyncio.gather(writing, leaving, return_exceptions=True)
    if still_open:
        await _close(send, _REFUSED, "the caller may no longer read this")


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass  # what the client says is nothing to a query


def _request(query: bytes) -> tuple[str, dict[str, Any], dict[str, Any]]:
    given = parse_qs(query.decode("ascii", "replace")).get("request", [""])[0]
    if not given:
        raise ValueError("Error parsing request: missing request parameter")
    try:
        found = orjson.loads(given)
        sql = found["ksql"]
        properties, variables = found.get("streamsProperties") or {}, found.get("sessionVariables") or {}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"Error parsing request: {error}") from None
    if not isinstance(sql, str) or not isinstance(properties, dict) or not isinstance(variables, dict):
        raise ValueError("Error parsing request: the request is not a JSON object with ksql")
    return sql, properties, variables


async def _write(result: ResultStream, send: Send) -> None:
    writer = RowWriter(result.columns)
    await _text(
        send, orjson.dumps([{"name": one.name, "schema": type_info(one.type)} for one in result.columns])
    )
    async for rows, end in parts(result):
        for row in rows:
            gone = b',"tombstone":true' if isinstance(row, Tombstone) else b""
            await _text(send, b'{"row":{"columns":' + writer.array(row) + gone + b"}}")
        if end is not None:
            await _close(send, *((_DONE, "done") if end.error is None else (_FAILED, end.error)))


async def _text(send: Send, data: bytes) -> None:
    await send({"type": "websocket.send", "text": data.decode()})


async def _close(send: Send, code: int, reason: str) -> None:
    cut = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
    await send({"type": "websocket.close", "code": code, "reason": cut})
