"""What happens to every request before a resource sees it: which versions are served, their media types, and
as whom."""

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.http.bodies import refuse
from millstream.http.cluster_authentication import caller_of
from millstream.http.errors import HttpError
from millstream.http.negotiation import DOCUMENTATION, MediaTypes
from millstream.rest.api.responses import CLIENTS, EMBEDDED, JSON, V2, is_v3
from millstream.rest.clients import CallerClients

_READS_V2 = frozenset({V2, JSON, "application/octet-stream", *EMBEDDED})
_WRITES_V2 = frozenset({V2, JSON, *EMBEDDED})
_V2 = MediaTypes(V2, _READS_V2, _WRITES_V2, aliases=frozenset({JSON}))
# Records come in the format of their consumer instance: the resource chooses the type.
_V2_RECORDS = MediaTypes(V2, _READS_V2, _WRITES_V2)
_V3 = MediaTypes(JSON, frozenset({JSON, "application/octet-stream"}), frozenset({JSON}))
# A stream of records, each of which has a limit of its own.
_V3_RECORDS = MediaTypes(JSON, _V3.reads, _V3.writes, unlimited=True)


def media_types(path: str) -> MediaTypes:
    if is_v3(path):
        return _V3_RECORDS if path.endswith("/records") else _V3
    return _V2_RECORDS if path.endswith("/records") else _V2


class ApiVersions:
    """404 for a version of the API that is switched off."""

    def __init__(self, app: ASGIApp, *, v2: bool, v3: bool) -> None:
        self._app = app
        self._v2 = v2
        self._v3 = v3

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(DOCUMENTATION):
            v3 = is_v3(scope["path"])
            if not (self._v3 if v3 else self._v2):
                await refuse(send, 404, "HTTP 404 Not Found", JSON if v3 else V2)
                return
        await self._app(scope, receive, send)


class AsCaller:
    """A request of a user of the cluster is served by clients that log in as this user."""

    def __init__(self, app: ASGIApp, callers: CallerClients) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = caller_of(scope)
        if caller is None:
            await self._app(scope, receive, send)
            return
        try:
            clients = self._callers.of(caller)
        except HttpError as error:
            await refuse(send, error.status, error.message, V2, code=error.code)
            return
        scope[CLIENTS] = clients
        clients.requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            clients.requests -= 1


def reads_only(method: str, path: str) -> bool:
    """Whether a user who may only read may send this request. Reading records moves the position of an
    instance."""
    return method in ("GET", "HEAD", "OPTIONS") and not path.endswith("/records")
