"""The application that the services share: FastAPI routes and documents, the services read requests
themselves.

    request_metrics > guard > /metrics > (a service's middleware) > FastAPI

Requests are counted on the outside, so those that the guard turns away count as well.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from millstream import __version__
from millstream.http.bodies import BodyTooLarge
from millstream.http.errors import HttpError
from millstream.http.metrics import ServiceMetrics, count_requests, with_metrics_page
from millstream.http.openapi import ApiDescription, describe

log = logging.getLogger(__name__)


def make_app(
    title: str,
    routers: Iterable[APIRouter],
    render_error: Callable[[Request, HttpError], Response],
    api: ApiDescription | None = None,
    authorize: Callable[[Request], Awaitable[None]] | None = None,
) -> FastAPI:
    """FastAPI with these routers, in the order in which paths are matched. Every error becomes an HttpError,
    and `render_error` makes the response of it. Without `api` there are no pages of documentation.
    `authorize` runs before every resource, and raises an HttpError for who may not."""
    app = FastAPI(
        title=title,
        dependencies=[] if authorize is None else [Depends(authorize)],
        version=__version__,
        openapi_url=None if api is None else "/openapi.json",
        redirect_slashes=False,
    )
    for router in routers:
        app.include_router(router)
    if api is not None:
        describe(app, api)

    async def refused(request: Request, error: Any) -> Response:
        if error.status >= 500:
            log.warning("%s %s: %s", request.method, request.url.path, error.message)
        return render_error(request, error)

    async def not_routed(request: Request, error: Any) -> Response:
        status = error.status_code
        message = f"HTTP {status} {HTTPStatus(status).phrase}"
        response = render_error(request, HttpError(status, status, message))
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    async def not_valid(request: Request, error: Any) -> Response:
        """A path whose number is none leads nowhere; a parameter is named with what is wrong with it."""
        first = error.errors()[0]
        if first["loc"][0] == "path":
            return await not_routed(request, HTTPException(404))
        return render_error(request, HttpError(422, 422, f"{first['loc'][-1]}: {first['msg']}"))

    async def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, BodyTooLarge):
            raise error
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return render_error(request, HttpError(500, 500, "Internal Server Error"))

    app.add_exception_handler(HttpError, refused)
    app.add_exception_handler(HTTPException, not_routed)
    app.add_exception_handler(RequestValidationError, not_valid)
    app.add_exception_handler(Exception, failed)
    return app


def surrounded(app: ASGIApp, metrics: ServiceMetrics, guard: Callable[[ASGIApp], ASGIApp]) -> ASGIApp:
    """The application with its metrics page, behind `guard`, which turns away who may not use it."""
    return count_requests(guard(with_metrics_page(app, metrics)), metrics)
