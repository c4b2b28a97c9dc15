"""The application: all resources, what is around them, and errors as Confluent's JSON."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from millstream import __version__
from millstream.registry.api import compatibility, contexts, schemas, settings, subjects
from millstream.registry.api.answers import answer
from millstream.registry.api.around import Around, TooMuch
from millstream.registry.api.cache import Cache
from millstream.registry.api.documents import document
from millstream.registry.api.leading import LeaderClient
from millstream.registry.api.users import BasicAuthentication, read_users
from millstream.registry.errors import RegistryError
from millstream.registry.service import RegistryService
from millstream.registry.settings import RegistrySettings

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
        settings.config_router,
        settings.mode_router,
        contexts.router,
    ):
        app.include_router(router)
    app.add_exception_handler(RegistryError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failed)
    document(app)
    wrapped: ASGIApp = Around(Cache(app, service.state), largest_body=options.value("max.request.size"))
    if str(options.value("authentication.method")).upper() == "BASIC":
        path = options.value("authentication.user.file")
        if not path:
            raise ValueError("authentication.method=BASIC needs authentication.user.file")
        wrapped = BasicAuthentication(
            wrapped,
            read_users(path),
            realm=options.value("authentication.realm"),
            roles=options.value("authentication.roles"),
            read_only_roles=options.value("authentication.readonly.roles"),
            open_paths=options.value("authentication.skip.paths"),
        )
    origins = str(options.value("access.control.allow.origin"))
    if origins:
        methods = str(options.value("access.control.allow.methods")) or "GET,POST,PUT,DELETE,OPTIONS,HEAD"
        wrapped = CORSMiddleware(
            wrapped,
            allow_origins=[one.strip() for one in origins.split(",")],
            allow_methods=[one.strip() for one in methods.split(",")],
            allow_headers=["*"],
        )
    return wrapped


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
