"""The application: all pages, and errors as pages that say what happened."""

from typing import Any

from fastapi import Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import RedirectResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.console.context import HERE, Console, render_page
from millstream.console.pages import (
    clients,
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
from millstream.console.security import SecurityMiddleware, with_session_cookie
from millstream.http.app import make_app as make_http_app
from millstream.http.app import surrounded
from millstream.http.bodies import limited
from millstream.http.errors import HttpError
from millstream.serdes import RegistryRefused, RegistryUnreachable
from millstream.wire.errors import ErrorCode, KafkaError

NOT_FOUND = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.group_id_not_found,
    ErrorCode.offset_out_of_range,
    ErrorCode.unknown_topic_id,
)
AWAY = (ErrorCode.network_exception, ErrorCode.request_timed_out, ErrorCode.broker_not_available)


def make_app(console: Console) -> ASGIApp:
    pages = (monitoring, overview, login, messages, searches, topics, schemas, groups, clients, pipelines)
    app = make_http_app("Millstream console", [module.router for module in pages], _render_error)
    app.state.console = console
    app.mount("/static", _Static(directory=HERE / "static"))
    app.add_exception_handler(KafkaError, _kafka)
    app.add_exception_handler(RegistryUnreachable, _registry)
    app.add_exception_handler(RegistryRefused, _registry)

    @app.get("/favicon.ico")
    async def favicon() -> Response:
        return RedirectResponse("/static/icon.svg", 301)

    largest = console.settings.value("max.request.size")

    async def sized(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await limited(app, scope, receive, send, largest, "application/json")
        else:
            await app(scope, receive, send)

    def guard(inner: ASGIApp) -> ASGIApp:
        compressed = GZipMiddleware(inner, minimum_size=1000, compresslevel=4)
        secured = SecurityMiddleware(compressed, console.sessions, console.settings)
        return with_session_cookie(secured, console.settings.signing)

    return surrounded(sized, console.metrics, guard)


class _Static(StaticFiles):
    """Addresses carry a mark of the content, so browsers may keep what they get."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def _problem(request: Request, status: int, title: str, text: str) -> Response:
    part = bool(request.headers.get("hx-request")) and not request.headers.get("hx-boosted")
    return render_page(
        request, "problem_fragment.html" if part else "problem.html", status, title=title, text=text
    )


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


def _render_error(request: Request, error: HttpError) -> Response:
    if error.status == 404 and error.message.startswith("HTTP 404"):
        return _problem(request, 404, "Not there", "There is no such page.")
    if error.status == 500:
        return _problem(request, 500, "Something is broken here", "The console's log says more.")
    return _problem(request, error.status, "Not done", error.message)
