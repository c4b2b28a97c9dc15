"""Queries whose rows go to the client: /query, /query-stream, and their end.

Both streams are sent as rows come: /query as the elements of one JSON array, /query-stream as lines, or as
the client prefers by its Accept. A client that goes away ends its query; one that does not
read holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from millstream.http.negotiation import preferred
from millstream.sql.errors import SqlError
from millstream.sql.results import End, ResultStream, Row, Tombstone, schema_text
from millstream.sql.row_json import RowWriter
from millstream.sql.server.entities import generic_error
from millstream.sql.server.routes.requests import (
    DELIMITED,
    MEDIA_TYPE,
    answer,
    bad_request,
    body_of,
    in_thread,
    map_of,
    of_sql_error,
    service_of,
    text_of,
)

router = APIRouter()
_GONE = b',"tombstone":true}}'


async def parts(result: ResultStream) -> AsyncIterator[tuple[list[Row], End | None]]:
    """What a result has, as it comes; the query ends with the reader."""
    loop = asyncio.get_running_loop()
    more = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server is on its way out
            loop.call_soon_threadsafe(more.set)

    result.on_rows(wake)
    try:
        while True:
            more.clear()
            rows, end = result.take()
            if rows or end is not None:
                yield rows, end
            if end is not None or result.closed.is_set():
                return
            if not rows:
                await more.wait()
    finally:
        result.close()  # not awaited: the client's going cancels whatever waits here


async def _opened(
    request: Any, sql: str, properties: dict[str, Any], variables: dict[str, Any]
) -> ResultStream:
    service = service_of(request)
    try:
        return await in_thread(lambda: service.query(sql, properties, variables))
    except SqlError as error:
        raise of_sql_error(error, sql) from None


# /query ---------------------------------------------------------------------------------------------------


@router.post("/query")
async def query(request: Request) -> Response:
    body = await body_of(request)
    sql = text_of(body, "ksql" if "ksql" in body else "sql")
    properties, variables = map_of(body, "streamsProperties", "properties"), map_of(body, "sessionVariables")
    printing = await _print_of(request, sql, variables)
    if printing is not None:
        return StreamingResponse(_printed(printing), media_type="text/plain")
    result = await _opened(request, sql, properties, variables)
    return StreamingResponse(_chunks(result), media_type=MEDIA_TYPE)


async def _print_of(request: Request, sql: str, variables: dict[str, Any]) -> ResultStream | None:
    """None if the text is no PRINT."""
    if sql.lstrip()[:6].upper() == "SELECT":
        return None
    service = service_of(request)
    return await in_thread(lambda: service.print_topic(sql, variables))


async def _printed(result: ResultStream) -> AsyncIterator[bytes]:
    async for rows, end in parts(result):
        yield b"".join(str(row[0]).encode() + b"\n" for row in rows)
        if end is not None and end.error is not None:
            yield end.error.encode() + b"\n"


async def _chunks(result: ResultStream) -> AsyncIterator[bytes]:
    """One JSON array, an element a line. ksqlDB's clients read line by line, so what a lasting query has is
    sent with the end of its line, before the next element is there; such an array ends with a message."""
    writer = RowWriter(result.columns)
    header = {"header": {"queryId": result.query_id, "schema": schema_text(result.columns)}}
    before, after = (b"", b",\n") if result.lasting else (b",\n", b"")
    last = b'{"finalMessage":"Query Completed"}' if result.lasting else b""
    yield b"[" + orjson.dumps(header) + after
    async for rows, end in parts(result):
        yield b"".join(
            before
            + b'{"row":{"columns":'
            + writer.array(row)
            + (_GONE if isinstance(row, Tombstone) else b"}}")
            + after
            for row in rows
        )
        if end is not None and end.error is not None:
            last = before + orjson.dumps({"errorMessage": generic_error(end.error, 50000)})
        elif end is not None and end.message is not None:
            last = before + orjson.dumps({"finalMessage": end.message})
    yield last + b"]\n"


# /query-stream --------------------------------------------------------------------------------------------


@router.post("/query-stream")
async def query_stream(request: Request) -> Response:
    body = await body_of(request)
    sql = text_of(body, "sql")
    properties, variables = map_of(body, "properties", "streamsProperties"), map_of(body, "sessionVariables")
    accept = preferred(request.headers.get("accept", ""), _FORMS, DELIMITED) or DELIMITED
    printing = await _print_of(request, sql, variables)
    if printing is not None:
        if accept != DELIMITED:
            printing.close()
            raise bad_request(f"PRINT is answered as {DELIMITED} only", 40600, 406)
        return StreamingResponse(_printed(printing), media_type=DELIMITED)
    result = await _opened(request, sql, properties, variables)
    return StreamingResponse(_FORMS[accept](result), media_type=accept)


def _metadata(result: ResultStream) -> bytes:
    return orjson.dumps(
        {
            "queryId": result.query_id,
            "columnNames": [one.name for one in result.columns],
            "columnTypes": [str(one.type) for one in result.columns],
        }
    )


async def _lines(result: ResultStream) -> AsyncIterator[bytes]:
    yield _metadata(result) + b"\n"
    async for out in _rows(result, lambda line: line + b"\n"):
        yield out


async def _array(result: ResultStream) -> AsyncIterator[bytes]:
    yield b"[" + _metadata(result)
    async for out in _rows(result, lambda line: b",\n" + line):
        yield out
    yield b"]\n"


async def _rows(result: ResultStream, framed: Callable[[bytes], bytes]) -> AsyncIterator[bytes]:
    writer = RowWriter(result.columns)
    async for rows, end in parts(result):
        out = b"".join(framed(writer.array(row)) for row in rows)
        if end is not None and end.error is not None:
            out += framed(orjson.dumps(generic_error(end.error, 50000)))
        yield out


# What a client may accept; the last is the form of /query, which ksqlDB's Java client asks for.
_FORMS: dict[str, Callable[[ResultStream], AsyncIterator[bytes]]] = {
    DELIMITED: _lines,
    "application/json": _array,
    MEDIA_TYPE: _chunks,
}


@router.post("/close-query")
async def close_query(request: Request) -> Response:
    body = await body_of(request)
    query_id = text_of(body, "queryId")
    service = service_of(request)
    if not await in_thread(lambda: service.close_query(query_id)):
        raise bad_request(f"No query with id {query_id}", 40000)
    return answer({})
