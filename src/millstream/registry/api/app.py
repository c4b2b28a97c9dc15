"""The registry's application: its resources, and what surrounds them."""

from fastapi import Request, Response
from starlette.types import ASGIApp

from millstream.http.app import make_app as make_http_app
from millstream.http.app import surrounded
from millstream.http.authentication import protected
from millstream.http.cluster_authentication import cluster_login
from millstream.http.cluster_login import ClusterLogin
from millstream.http.errors import HttpError
from millstream.http.metrics import ServiceMetrics
from millstream.http.negotiation import ContentNegotiation
from millstream.http.response_headers import SETTING as RESPONSE_HEADERS
from millstream.http.response_headers import with_response_headers
from millstream.registry.api import (
    associations,
    compatibility,
    config_and_mode,
    contexts,
    deks,
    schemas,
    subjects,
)
from millstream.registry.api.authorization import authorize
from millstream.registry.api.cache import Cache
from millstream.registry.api.forwarding import LeaderClient
from millstream.registry.api.middleware import ContextPaths, media_types, reads_only
from millstream.registry.api.openapi import API
from millstream.registry.api.responses import MEDIA_TYPE, answer
from millstream.registry.metrics import collect
from millstream.registry.registry_config import RegistryConfig
from millstream.registry.service import RegistryService
from millstream.registry.topic_authorizer import TopicAuthorizer

# What is requested most often comes first.
ROUTERS = (
    schemas.router,
    subjects.router,
    compatibility.router,
    contexts.about_router,
    config_and_mode.config_router,
    config_and_mode.mode_router,
    contexts.router,
    associations.router,
    deks.router,
)


class Callers:
    """Users of the cluster: who they are, and what they may do."""

    def __init__(self, login: ClusterLogin, authorizer: TopicAuthorizer) -> None:
        self.login = login
        self.authorizer = authorizer
        login.on_refused.append(authorizer.end)

    def close(self) -> None:
        self.login.close()
        self.authorizer.close()


def callers_of(config: RegistryConfig) -> Callers | None:
    """None where there are no users, or those of a file."""
    client = config.client()
    login = cluster_login(config, client)
    return None if login is None else Callers(login, TopicAuthorizer(client))


def make_app(
    service: RegistryService, config: RegistryConfig, client: LeaderClient, callers: Callers | None = None
) -> ASGIApp:
    routers = [
        router
        for router in ROUTERS
        if router is not associations.router or config.value("associations.enable")
    ]
    app = make_http_app(
        "Millstream Schema Registry", routers, _render_error, API, None if callers is None else authorize
    )
    app.state.service = service
    app.state.client = client
    app.state.authorizer = None if callers is None else callers.authorizer
    # What somebody may read is not what somebody else may.
    cached = Cache(app, service.state) if callers is None else app
    negotiated = ContentNegotiation(ContextPaths(cached), media_types, max_bytes=config.max_request_bytes)
    whole = surrounded(
        negotiated,
        ServiceMetrics("registry", lambda: collect(service)),
        lambda inner: protected(
            inner, config, reads_only, MEDIA_TYPE, None if callers is None else callers.login, as_caller=True
        ),
    )
    return with_response_headers(whole, config.value(RESPONSE_HEADERS))


def _render_error(request: Request, error: HttpError) -> Response:
    return answer(error.body(), error.status)
