"""The application: all resources, what is around them, and errors as Confluent's JSON."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from millstream import __version__
from millstream.http.bodies import TooMuch
from millstream.http.metrics import Metrics, counted, with_page
from millstream.http.users import protected
from millstream.rest.api import (
    v2_consumers,
    v2_produce,
    v2_topics,
    v3_acls,
    v3_clusters,
    v3_configs,
    v3_groups,
    v3_records,
    v3_topics,
)
from millstream.rest.api.middleware import Around
from millstream.rest.api.openapi import document
from millstream.rest.api.responses import V2, v2, v3
from millstream.rest.errors import RestError
from millstream.rest.service import RestService

log = logging.getLogger(__name__)
TAGS = ("v2 records", "v2 topics", "v2 consumers", "v3 records", "v3 clusters", "v3 topics", "v3 configs")


def make_app(service: RestService) -> ASGIApp:
    settings = service.settings
    app = FastAPI(
        title="Millstream REST Proxy",
        version=__version__,
        description="Confluent's REST Proxy API, versions 2 and 3.",
        openapi_tags=[{"name": name} for name in (*TAGS, "v3 consumer groups", "v3 ACLs")],
        redirect_slashes=False,
    )
    app.state.service = service
    for router in (  # what is asked most comes first
        v2_produce.router,
        v2_consumers.router,
        v3_records.router,
        v2_topics.router,
        v3_clusters.router,
        v3_configs.router,
        v3_topics.router,
        v3_groups.router,
        v3_acls.router,
    ):
        app.include_router(router)
    app.add_exception_handler(RestError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failed)
    document(app)
    around = Around(
        app,
        largest_body=settings.value("max.request.size"),
        v2=settings.value("api.v2.enable"),
        v3=settings.value("api.v3.enable"),
    )
    metrics = Metrics("rest", service.add_metrics)
    return counted(protected(with_page(around, metrics), settings, _reads_only, V2), metrics)


def _reads_only(method: str, path: str) -> bool:
    return method in ("GET", "HEAD", "OPTIONS") and not path.endswith("/records")


def _answer(request: Request, body: Any, status: int) -> Response:
    return v3(body, status) if request.url.path.startswith("/v3/") else v2(body, status)


async def _refused(request: Request, error: Any) -> Response:
    if error.status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error.message)
    return _answer(request, error.body(), error.status)


async def _http_error(request: Request, error: Any) -> Response:
    phrase = HTTPStatus(error.status_code).phrase
    body = {"error_code": error.status_code, "message": f"HTTP {error.status_code} {phrase}"}
    response = _answer(request, body, error.status_code)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, TooMuch):
        raise error
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _answer(request, {"error_code": 500, "message": "Internal Server Error"}, 500)
