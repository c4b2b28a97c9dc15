"""POST /inserts-stream: a line that names the stream, then a row a line; an answer a line, in the same
order."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.sql.errors import SqlError
from millstream.sql.server.inserts import RowInserter
from millstream.sql.server.routes.requests import DELIMITED, bad_request, in_thread, of_sql_error, service_of

router = APIRouter()

_MAX_LINE = 16 << 20


async def _body_lines(request: Request) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in request.stream():
        rest += chunk
        *whole, rest = rest.split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > _MAX_LINE:
            raise bad_request(f"a line is longer than {_MAX_LINE} bytes")
    if rest.strip():
        yield rest


@router.post("/inserts-stream")
async def inserts_stream(request: Request) -> Response:
    lines = _body_lines(request)
    service = service_of(request)
    try:
        head = orjson.loads(await anext(lines))
        target = head["target"]
    except (StopAsyncIteration, orjson.JSONDecodeError, KeyError, TypeError):
        raise bad_request('the first line has to be {"target": "name of a stream"}') from None
    try:
        inserter = await in_thread(lambda: service.inserter(target))
    except SqlError as error:
        raise of_sql_error(error, f"INSERT INTO {target}") from None
    return _WhileReading(_acks(lines, inserter), media_type=DELIMITED)


class _WhileReading(StreamingResponse):
    """A response that is written while the request is still read. Starlette's own would look for the client's
    going in the same place, and so take rows from the reader."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):
            await self.stream_response(send)


async def _acks(lines: AsyncIterator[bytes], inserter: RowInserter) -> AsyncIterator[bytes]:
    number = 0
    async for line in lines:
        try:
            row = orjson.loads(line)
            await in_thread(functools.partial(inserter.insert, row))
            out: dict[str, Any] = {"status": "ok", "seq": number}
        except (orjson.JSONDecodeError, SqlError, ValueError) as error:
            out = {"status": "error", "seq": number, "error_code": 40000, "message": str(error)}
        yield orjson.dumps(out) + b"\n"
        number += 1
