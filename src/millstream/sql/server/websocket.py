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

from millstream.sql.errors import SqlError
from millstream.sql.results import ResultStream, Tombstone
from millstream.sql.row_json import RowWriter
from millstream.sql.server.entities import type_info
from millstream.sql.server.routes.queries import parts
from millstream.sql.server.routes.requests import in_thread
from millstream.sql.server.service import SqlService

_DONE, _BAD_REQUEST, _FAILED = 1000, 1003, 1011
_REASON_BYTES = 123


def with_websocket(app: ASGIApp, service: SqlService, guard: Callable[[ASGIApp], ASGIApp]) -> ASGIApp:
    """The application, and the websocket beside it behind the same guard."""

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        await receive()  # websocket.connect
        if scope["path"] != "/ws/query" or service.headless or not await _is_allowed(scope, guard):
            await send({"type": "websocket.close", "code": _BAD_REQUEST})
            return
        await send({"type": "websocket.accept"})
        await _serve(service, scope, receive, send)

    return both


async def _is_allowed(scope: Scope, guard: Callable[[ASGIApp], ASGIApp]) -> bool:
    reached = False

    async def inner(_scope: Scope, _receive: Receive, _send: Send) -> None:
        nonlocal reached
        reached = True

    async def nothing() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def swallowed(_message: Message) -> None:
        return None

    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], "http")
    shown = {**scope, "type": "http", "method": "GET", "scheme": scheme, "http_version": "1.1"}
    await guard(inner)(shown, nothing, swallowed)
    return reached


async def _serve(service: SqlService, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        sql, properties, variables = _request(scope["query_string"])
        result = await in_thread(lambda: service.query(sql, properties, variables))
    except (SqlError, ValueError) as error:
        await _close(send, _BAD_REQUEST, str(error))
        return
    writing = asyncio.ensure_future(_write(result, send))
    try:
        while (await receive())["type"] != "websocket.disconnect":
            pass  # what the client says is nothing to a query
    finally:
        result.close()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


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
