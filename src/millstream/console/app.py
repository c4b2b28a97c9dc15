"""The application: all pages, and errors as pages that say what happened."""

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import RedirectResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.console.context import HERE, Console, draw
from millstream.console.pages import (
    groups,
    login,
    messages,
    monitoring,
    overview,
    pipelines,
    schemas,
    searches,
    topics,
)
from millstream.console.security import Gate, Refused
from millstream.http.bodies import limited
from millstream.http.metrics import counted
from millstream.serdes import RegistryRefused, RegistryUnreachable
from millstream.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

NOT_FOUND = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.group_id_not_found,
    ErrorCode.offset_out_of_range,
    ErrorCode.unknown_topic_id,
)
AWAY = (ErrorCode.network_exception, ErrorCode.request_timed_out, ErrorCode.broker_not_available)


def make_app(console: Console) -> ASGIApp:
    app = FastAPI(
        title="Millstream console", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.console = console
    for module in (monitoring, overview, login, messages, searches, topics, schemas, groups, pipelines):
        app.include_router(module.router)
    app.mount("/static", _Static(directory=HERE / "static"))
    app.add_exception_handler(KafkaError, _kafka)
    app.add_exception_handler(RegistryUnreachable, _registry)
    app.add_exception_handler(RegistryRefused, _registry)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)

    @app.get("/favicon.ico")
    async def favicon() -> Response:
        return RedirectResponse("/static/icon.svg", 301)

    largest = console.settings.value("max.request.size")

    async def sized(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await limited(app, scope, receive, send, largest, "application/json")
        else:
            await app(scope, receive, send)

    gate = Gate(GZipMiddleware(sized, minimum_size=1000, compresslevel=4), console.sessions, console.settings)
    return counted(gate, console.metrics)


class _Static(StaticFiles):
    """Addresses carry a mark of the content, so browsers may keep what they get."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def _problem(request: Request, status: int, title: str, text: str) -> Response:
    part = bool(request.headers.get("hx-request")) and not request.headers.get("hx-boosted")
    return draw(request, "problem_part.html" if part else "problem.html", status, title=title, text=text)


async def _kafka(request: Request, error: Any) -> Response:
    if error.code in NOT_FOUND:
        return _problem(request, 404, "Not there", error.message)
    if error.code in AWAY:
        return _problem(request, 502, "The cluster does not answer", error.message)
    return _problem(request, 502, "The cluster refused", error.message)


async def _registry(request: Request, error: Any) -> Response:
    if isinstance(error, RegistryUnreachable):
        return _problem(request, 502, "The registry does not answer", str(error))
    return _problem(request, 404 if error.status == 404 else 502, "The registry refused", str(error))


async def _refused(request: Request, error: Any) -> Response:
    return _problem(request, error.status, "Not done", error.message)


async def _http(request: Request, error: Any) -> Response:
    if error.status_code == 404:
        return _problem(request, 404, "Not there", "There is no such page.")
    return _problem(request, error.status_code, "Not done", str(error.detail))


async def _failed(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _problem(request, 500, "Something is broken here", "The console's log says more.")
