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
from millstream.registry.api import compatibility, config_and_mode, contexts, schemas, subjects
from millstream.registry.api.cache import Cache
from millstream.registry.api.forwarding import LeaderClient
from millstream.registry.api.middleware import Around
from millstream.registry.api.openapi import document
from millstream.registry.api.responses import MEDIA_TYPE, answer
from millstream.registry.api.users import reads_only
from millstream.registry.errors import RegistryError
from millstream.registry.metrics import add_own
from millstream.registry.registry_config import RegistrySettings
from millstream.registry.service import RegistryService

log = logging.getLogger(__name__)


def make_app(service: RegistryService, options: RegistrySettings, client: LeaderClient) -> ASGIApp:
    app = FastAPI(
        title="Millstream Schema Registry",
        version=__version__,
        description="Confluent's Schema Registry API.",
        openapi_tags=[
            {"name": name} for name in ("Subjects", "Schemas", "Compatibility", "Config", "Modes", "Contexts")
        ],
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.client = client
    for router in (  # what is asked most comes first
        schemas.router,
        subjects.router,
        compatibility.router,
        contexts.about_router,
        config_and_mode.config_router,
        config_and_mode.mode_router,
        contexts.router,
    ):
        app.include_router(router)
    app.add_exception_handler(RegistryError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failed)
    document(app)
    metrics = Metrics("registry", lambda page: add_own(service, page))
    wrapped: ASGIApp = Around(Cache(app, service.state), largest_body=options.value("max.request.size"))
    return counted(protected(with_page(wrapped, metrics), options, reads_only, MEDIA_TYPE), metrics)


async def _refused(request: Request, error: Any) -> Response:
    if error.status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error.message)
    return answer(error.body(), error.status)


async def _http_error(request: Request, error: Any) -> Response:
    phrase = HTTPStatus(error.status_code).phrase
    response = answer(
        {"error_code": error.status_code, "message": f"HTTP {error.status_code} {phrase}"}, error.status_code
    )
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, TooMuch):
        raise error
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return answer({"error_code": 500, "message": "Internal Server Error"}, 500)
