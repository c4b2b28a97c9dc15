"""The proxy's application: its resources, and what surrounds them."""

from fastapi import Request, Response
from starlette.types import ASGIApp

from millstream.http.app import make_app as make_http_app
from millstream.http.app import surrounded
from millstream.http.authentication import protected
from millstream.http.errors import HttpError
from millstream.http.metrics import ServiceMetrics
from millstream.http.negotiation import ContentNegotiation
from millstream.http.response_headers import SETTING as RESPONSE_HEADERS
from millstream.http.response_headers import with_response_headers
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
from millstream.rest.api.middleware import ApiVersions, AsCaller, media_types, reads_only
from millstream.rest.api.openapi import API
from millstream.rest.api.responses import V2, is_v3, v2, v3
from millstream.rest.errors import UNAUTHENTICATED
from millstream.rest.service import RestService

# What is requested most often comes first.
ROUTERS = (
    v2_produce.router,
    v2_consumers.router,
    v3_records.router,
    v2_topics.router,
    v3_clusters.router,
    v3_configs.router,
    v3_topics.router,
    v3_groups.router,
    v3_acls.router,
)


def make_app(service: RestService) -> ASGIApp:
    config = service.config
    app = make_http_app("Millstream REST Proxy", ROUTERS, _render_error, API)
    app.state.service = service
    negotiated = ContentNegotiation(app, media_types, max_bytes=config.value("max.request.size"))
    versions = ApiVersions(negotiated, v2=config.value("api.v2.enable"), v3=config.value("api.v3.enable"))
    whole = surrounded(
        AsCaller(versions, service.callers),
        ServiceMetrics("rest", service.collect_metrics),
        lambda inner: protected(
            inner, config, reads_only, V2, service.login, as_caller=True, codes={401: UNAUTHENTICATED}
        ),
    )
    return with_response_headers(whole, config.value(RESPONSE_HEADERS))


def _render_error(request: Request, error: HttpError) -> Response:
    render = v3 if is_v3(request.url.path) else v2
    return render(error.body(), error.status)
