"""Pull queries by key, in front of the application.

A lookup whose like was asked for before (`prepared_pulls.py`) takes a read from a view and a line of JSON;
the way through FastAPI, a thread and a stream takes four times as much. So a POST to /query-stream or /query
that is such a lookup, of a table without windows and with an open view, is answered here, in one piece;
everything else goes to the application, its body replayed. A thread is used only where the cluster has to be
asked how far the topic goes. Both ways give the same rows in the same form.
"""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.sql.prepared_pulls import Lookup
from millstream.sql.server.entities import generic_error
from millstream.sql.server.routes.requests import DELIMITED, MEDIA_TYPE, in_thread
from millstream.sql.server.service import SqlService
from millstream.sql.views import TableView, ViewUnavailable
from millstream.streams.errors import StreamsError

log = logging.getLogger("millstream.sql")

MAX_BODY = 64 << 10
_READS = ("", MEDIA_TYPE, "application/json", "application/vnd.ksqlapi.v1+json", DELIMITED)
_READS_AS_BYTES = frozenset(name.encode() for name in _READS)


class _Route:
    """What the metrics count a request under."""

    def __init__(self, path: str) -> None:
        self.path_format = path


class _Form(NamedTuple):
    """How one resource writes a result in one media type."""

    route: _Route
    text: tuple[str, ...]
    properties: tuple[str, ...]
    media_type: bytes

    def body(self, lookup: Lookup, row: bytes | None, error: str | None) -> bytes:
        number = time.time_ns() // 1_000_000
        if self.media_type == _LINES:
            out = b'{"queryId":"query_%d"%b\n' % (number, lookup.metadata)
            if row is not None:
                out += row + b"\n"
            return out if error is None else out + orjson.dumps(generic_error(error, 50000)) + b"\n"
        out = b'[{"header":{"queryId":"query_%d"%b}' % (number, lookup.header)
        if row is not None:
            out += b',\n{"row":{"columns":' + row + b"}}"
        if error is not None:
            out += b",\n" + orjson.dumps({"errorMessage": generic_error(error, 50000)})
        return out + b"]\n"


_LINES, _CHUNKS = DELIMITED.encode(), MEDIA_TYPE.encode()
_STREAMED = (_Route("/query-stream"), ("sql",), ("properties", "streamsProperties"))
_LINE_FORM, _CHUNK_FORM = _Form(*_STREAMED, _LINES), _Form(*_STREAMED, _CHUNKS)
_QUERY_FORM = _Form(_Route("/query"), ("ksql", "sql"), ("streamsProperties", "properties"), _CHUNKS)
# By path and by what a client accepts.
_FORMS = {
    "/query-stream": {b"": _LINE_FORM, b"*/*": _LINE_FORM, _LINES: _LINE_FORM, _CHUNKS: _CHUNK_FORM},
    "/query": {b"": _QUERY_FORM, b"*/*": _QUERY_FORM, _CHUNKS: _QUERY_FORM},
}


def with_lookups(app: ASGIApp, service: SqlService) -> ASGIApp:
    """The application, with a fast path for lookups."""

    async def lookups(scope: Scope, receive: Receive, send: Send) -> None:
        forms = _FORMS.get(scope["path"]) if scope["type"] == "http" else None
        form = None if forms is None or scope["method"] != "POST" else _form(scope, forms)
        if form is None:
            await app(scope, receive, send)
            return
        first = await receive()
        found = None if first.get("more_body") else _find(service, form, first.get("body", b""))
        if found is None:
            await app(scope, _replayed(first, receive), send)
            return
        scope["route"] = form.route
        body = await _answer(form, *found)
        headers = [(b"content-type", form.media_type), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return lookups


def _form(scope: Scope, forms: dict[bytes, _Form]) -> _Form | None:
    """None if the headers say something that the application has to think about."""
    content_type = accept = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"accept":
            accept = value if not accept else b"several"
        elif name == b"content-length" and (len(value) > 5 or not value.isdigit() or int(value) > MAX_BODY):
            return None
    return forms.get(accept) if content_type.partition(b";")[0] in _READS_AS_BYTES else None


def _find(service: SqlService, form: _Form, body: bytes) -> tuple[Lookup, bytes, TableView] | None:
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(asked, dict):
        return None
    sql = asked.get(next((name for name in form.text if name in asked), "sql"))
    properties = next((asked[name] for name in form.properties if asked.get(name) is not None), None)
    variables = asked.get("sessionVariables")
    if not isinstance(sql, str) or not _is_map(properties) or not _is_map(variables):
        return None
    return service.queries.lookup(sql, properties or {})


def _is_map(value: Any) -> bool:
    return value is None or isinstance(value, dict)


async def _answer(form: _Form, lookup: Lookup, key: bytes, view: TableView) -> bytes:
    try:
        if not view.is_current:
            await in_thread(view.catch_up)
        return form.body(lookup, lookup.row(view, key), None)
    except (ViewUnavailable, StreamsError) as error:
        return form.body(lookup, None, str(error))
    except Exception as error:
        log.exception("a pull query failed")
        return form.body(lookup, None, str(error) or type(error).__name__)


def _replayed(first: Message, receive: Receive) -> Receive:
    """What was received already, then the rest."""
    waiting: list[Message] = [first]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
