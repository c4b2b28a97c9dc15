"""The server's application: its resources, and what surrounds them."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.types import ASGIApp

from millstream.http.app import make_app as make_http_app
from millstream.http.app import surrounded
from millstream.http.authentication import protected
from millstream.http.cluster_login import ClusterLogin
from millstream.http.errors import HttpError
from millstream.http.metrics import ServiceMetrics
from millstream.http.negotiation import ContentNegotiation, MediaTypes
from millstream.http.response_headers import SETTING as RESPONSE_HEADERS
from millstream.http.response_headers import with_response_headers
from millstream.sql.server.entities import generic_error
from millstream.sql.server.routes import cluster, inserts, queries, statements
from millstream.sql.server.routes.lookups import with_lookups
from millstream.sql.server.routes.requests import DELIMITED, MEDIA_TYPE, ApiError, answer
from millstream.sql.server.service import SqlService
from millstream.sql.server.websocket import with_websocket

_JSON = frozenset({MEDIA_TYPE, "application/json", "application/vnd.ksqlapi.v1+json"})
# ksqlDB's clients do not say what their bodies are: the Java client never, the Python client when it closes a
# query; the curl commands of ksqlDB's documentation send JSON as a form. Pages of other sites can send both,
# but not without their Origin, which is refused (millstream.http.browser_guard).
_READS = _JSON | {DELIMITED, "", "application/x-www-form-urlencoded"}
_TYPES = MediaTypes(MEDIA_TYPE, _READS, _JSON | {DELIMITED, "text/plain"})
_STREAM = MediaTypes(DELIMITED, _READS, _JSON | {DELIMITED}, unlimited=True)
_BY_PATH = {"/inserts-stream": _STREAM}
_READ_ONLY = frozenset({"/query", "/query-stream", "/close-query"})


def make_app(service: SqlService, login: ClusterLogin | None = None) -> ASGIApp:
    config = service.config
    routers = [cluster.router]
    if not service.headless:
        routers += [statements.router, queries.router, inserts.router]
    app = make_http_app("Millstream SQL", routers, _render_error)
    app.state.service = service

    async def refused(_request: Request, error: Any) -> Response:
        return answer(error.body, error.status)

    app.add_exception_handler(ApiError, refused)
    negotiated: ASGIApp = ContentNegotiation(
        app,
        lambda path: _BY_PATH.get(path, _TYPES),
        max_bytes=config.value("max.request.size"),
    )
    if not service.headless:
        negotiated = with_lookups(negotiated, service)

    def guard(inner: ASGIApp) -> ASGIApp:
        return protected(inner, config, _reads_only, MEDIA_TYPE, login)

    whole = surrounded(negotiated, ServiceMetrics("sql", service.collect_metrics), guard)
    answering = with_response_headers(whole, config.value(RESPONSE_HEADERS))
    return with_websocket(answering, service, guard, callers_change=login is not None)


def _reads_only(method: str, path: str) -> bool:
    return method == "GET" or path in _READ_ONLY


def _render_error(_request: Request, error: HttpError) -> Response:
    code = error.code if error.code >= 1000 else error.status * 100
    return answer(generic_error(error.message, code), error.status)
