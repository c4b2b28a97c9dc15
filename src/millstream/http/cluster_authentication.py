"""Around an application whose callers are users of the cluster: 401 without a login that a broker accepts.

The application finds the caller by `caller_of`. A service that reaches the cluster as the caller leaves it to
the brokers what the caller may do. One that works as itself (Connect, SQL) would lend everybody what its own
ACLs allow; there a caller needs DESCRIBE on the cluster to look, and ALTER on it to change anything, for as
long as the request lasts.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.client import ClientConfig
from millstream.http.bodies import refuse
from millstream.http.certificate_callers import CERTIFICATE
from millstream.http.cluster_login import DELEGATION, Caller, ClusterLogin, LoginNotChecked, LoginRefused
from millstream.http.lasting_requests import RequestEnded, serve_while_allowed
from millstream.http.login_failures import TooManyTries
from millstream.http.service_config import ServiceConfig
from millstream.http.tls import client_authentication
from millstream.wire.acls import Operation

METHODS = ("BASIC", "BEARER", "CERTIFICATE")
CALLER = "millstream.caller"


def authentication_methods(config: ServiceConfig) -> list[str]:
    """ValueError for one that there is not."""
    found = [str(one).upper() for one in config.value("authentication.method")]
    found = [one for one in found if one != "NONE"]
    unknown = [one for one in found if one not in METHODS]
    if unknown:
        raise ValueError(
            f"authentication.method={unknown[0]} is unknown: use NONE, BASIC, BEARER or CERTIFICATE"
        )
    for one in ("BEARER", "CERTIFICATE"):
        if one in found and config.value("authentication.user.file"):
            raise ValueError(f"authentication.method={one} is for users of the cluster, not for a user file")
    return found


def cluster_login(config: ServiceConfig, client: ClientConfig) -> ClusterLogin | None:
    """Where callers are users of the cluster: with an authentication method, and without a user file. The
    service has to close it. ValueError for a cluster without logins."""
    methods = authentication_methods(config)
    if not methods or config.value("authentication.user.file"):
        return None
    return ClusterLogin(
        client,
        config.value("authentication.failures.per.address"),
        mechanisms=config.value("authentication.sasl.mechanisms"),
        mapping_rules=mapping_rules(config, methods),
    )


def mapping_rules(config: ServiceConfig, methods: Iterable[str]) -> str | None:
    """How certificates of callers become users; None if they do not. ValueError where nobody is asked for
    one."""
    if "CERTIFICATE" not in methods:
        return None
    if client_authentication(config) == "NONE":
        raise ValueError(
            "authentication.method=CERTIFICATE needs ssl.client.authentication=REQUESTED or REQUIRED, and an "
            "https listener"
        )
    return config.tls("ssl.principal.mapping.rules") or "DEFAULT"


def caller_of(scope: Scope) -> Caller | None:
    """Who sent the request; None where the service does not ask."""
    found: Caller | None = scope.get(CALLER)
    return found


def basic_credentials(scope: Scope, scheme: str = "Basic") -> tuple[str, str] | None:
    value = authorization(scope, scheme.lower().encode() + b" ")
    if value is None:
        return None
    try:
        user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return user, password


def authorization(scope: Scope, scheme: bytes) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[: len(scheme)].lower() == scheme:
            return bytes(value[len(scheme) :]).strip()
    return None


def _has_credentials(scope: Scope) -> bool:
    """Who names somebody is not taken for the one of the certificate, which may be a service's."""
    return any(name == b"authorization" for name, _ in scope["headers"])


class ClusterAuthentication:
    """`codes` are Confluent's error codes by status, where a service has its own. `as_caller`: the
    application reaches the cluster as the caller."""

    def __init__(
        self,
        app: ASGIApp,
        login: ClusterLogin,
        methods: Iterable[str],
        *,
        reads_only: Callable[[str, str], bool],
        media_type: str,
        realm: str,
        open_paths: Iterable[str],
        as_caller: bool,
        codes: Mapping[int, int],
    ) -> None:
        self._app = app
        self._login = login
        self._methods = frozenset(methods)
        self._reads_only = reads_only
        self._type = media_type
        self._challenges = [
            (b"www-authenticate", f'{method.title()} realm="{realm}"'.encode())
            for method in methods
            if method != "CERTIFICATE"
        ]
        self._open = frozenset(open_paths)
        self._as_caller = as_caller
        self._codes = codes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open or scope["method"] == "OPTIONS":
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._caller(scope)
        except LoginRefused:
            await self._refuse(send, 401, "Unauthorized", *self._challenges)
            return
        except TooManyTries as error:
            retry = (b"retry-after", str(error.seconds).encode())
            await self._refuse(send, 429, str(error), retry)
            return
        except LoginNotChecked:
            await self._refuse(send, 503, "The cluster does not answer, so nobody can log in.")
            return
        scope[CALLER] = caller
        if self._as_caller:
            await self._app(scope, receive, send)
            return
        reads = self._reads_only(scope["method"], scope["path"])
        needed = Operation.DESCRIBE if reads else Operation.ALTER
        if not caller.may(needed):
            await self._refuse(send, 403, f"Not authorized: this needs {needed.name} on the cluster")
            return
        try:
            await serve_while_allowed(self._app, scope, receive, send, lambda: self._may_go_on(scope, needed))
        except RequestEnded:
            await self._refuse(send, 403, "The caller may no longer send this request")

    async def _may_go_on(self, scope: Scope, needed: Operation) -> bool:
        """What cannot be said now is no refusal."""
        try:
            return (await self._caller(scope)).may(needed)
        except LoginRefused:
            return False
        except (LoginNotChecked, TooManyTries):
            return True

    async def _caller(self, scope: Scope) -> Caller:
        client = scope.get("client")
        address = str(client[0]) if client else ""
        if "BASIC" in self._methods:
            given = basic_credentials(scope)
            if given is not None:
                return await self._login.password(*given, address)
        if "BEARER" in self._methods:
            token = authorization(scope, b"bearer ")
            if token is not None:
                return await self._login.token(token.decode("latin-1"), address)
        if "CERTIFICATE" in self._methods and not _has_credentials(scope):
            return await self._login.certificate(scope.get(CERTIFICATE) or b"", address)
        if "CERTIFICATE" in self._methods:
            passed_on = basic_credentials(scope, DELEGATION)
            if passed_on is not None:
                return await self._login.delegated(*passed_on, address)
        raise LoginRefused

    async def _refuse(self, send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        code = self._codes.get(status, status)
        await refuse(send, status, message, self._type, *headers, code=code)
