"""Basic authentication, and bearer tokens. Users are those of the cluster (`cluster_authentication`), or come
from a file in the format of Jetty's property files:

    alice: secret, admin
    bob: MD5:5ebe2294ecd0e0f08eab7690d2a6ee69, developer
    carol: {SHA256}2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, readonly

A user who has only read-only roles may read everything and change nothing; the service says which requests
only read.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.http.bodies import refuse
from millstream.http.browser_guard import BrowserPolicy, guarded
from millstream.http.cluster_authentication import (
    ClusterAuthentication,
    authentication_methods,
    basic_credentials,
)
from millstream.http.cluster_login import ClusterLogin
from millstream.http.service_config import ServiceConfig


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str
    roles: frozenset[str]

    def accepts(self, password: str) -> bool:
        stored, given = self.password, password
        if stored.startswith("MD5:"):
            stored = stored[4:].lower()
            given = hashlib.md5(password.encode(), usedforsecurity=False).hexdigest()
        elif stored.startswith("{SHA256}"):
            stored = stored[8:].lower()
            given = hashlib.sha256(password.encode()).hexdigest()
        return hmac.compare_digest(stored.encode(), given.encode())


def read_users(path: str) -> dict[str, User]:
    """ValueError says which line is wrong."""
    users = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            line = line.strip()
            if not line or line.startswith(("#", "!")):
                continue
            name, colon, rest = line.partition(":")
            password, *roles = (item.strip() for item in rest.split(","))
            if not colon or not name.strip() or not password:
                raise ValueError(f"{path}, line {number}: expected `name: password,role,...`")
            users[name.strip()] = User(name.strip(), password, frozenset(filter(None, roles)))
    return users


class BasicAuthentication:
    """Around the application: 401 without a known user, 403 for one who may not."""

    def __init__(
        self,
        app: ASGIApp,
        users: Mapping[str, User],
        *,
        reads_only: Callable[[str, str], bool],
        media_type: str,
        realm: str,
        roles: Iterable[str] = ("*",),
        read_only_roles: Iterable[str] = (),
        open_paths: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._users = users
        self._reads_only = reads_only
        self._type = media_type
        self._realm = realm
        self._roles = frozenset(roles)
        self._read_only = frozenset(read_only_roles)
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open or scope["method"] == "OPTIONS":
            await self._app(scope, receive, send)
            return
        user = self._user(scope)
        if user is None:
            challenge = (b"www-authenticate", f'Basic realm="{self._realm}"'.encode())
            await refuse(send, 401, "Unauthorized", self._type, challenge)
        elif "*" not in self._roles and not user.roles & self._roles:
            await refuse(send, 403, "User is not authorized to use this service", self._type)
        elif (
            user.roles
            and user.roles <= self._read_only
            and not self._reads_only(scope["method"], scope["path"])
        ):
            await refuse(send, 403, "User may read only", self._type)
        else:
            await self._app(scope, receive, send)

    def _user(self, scope: Scope) -> User | None:
        given = basic_credentials(scope)
        if given is None:
            return None
        found = self._users.get(given[0])
        return found if found is not None and found.accepts(given[1]) else None


def protected(
    app: ASGIApp,
    config: ServiceConfig,
    reads_only: Callable[[str, str], bool],
    media_type: str,
    login: ClusterLogin | None = None,
    *,
    as_caller: bool = False,
    codes: Mapping[int, int] | None = None,
) -> ASGIApp:
    """The application behind the users, the host names and the web pages (CORS) that the configuration
    allows. CORS is on the outside: a page that may use the service may read its refusals, too.

    `login` is what `cluster_login` has made of the same configuration. `as_caller` and `codes` are those of
    ClusterAuthentication."""
    methods = authentication_methods(config)
    if login is not None:
        app = ClusterAuthentication(
            app,
            login,
            methods,
            reads_only=reads_only,
            media_type=media_type,
            realm=config.value("authentication.realm"),
            open_paths=config.value("authentication.skip.paths"),
            as_caller=as_caller,
            codes=codes or {},
        )
    elif methods and not config.value("authentication.user.file"):
        raise ValueError("authentication.method needs authentication.user.file here")
    elif methods:
        app = BasicAuthentication(
            app,
            read_users(config.value("authentication.user.file")),
            reads_only=reads_only,
            media_type=media_type,
            realm=config.value("authentication.realm"),
            roles=config.value("authentication.roles"),
            read_only_roles=config.value("authentication.readonly.roles"),
            open_paths=config.value("authentication.skip.paths"),
        )
    origins = _items(config.value("access.control.allow.origin"))
    allowed = _items(config.value("access.control.allow.methods") or "GET,POST,PUT,DELETE,OPTIONS,HEAD")
    policy = BrowserPolicy(config.host_names, reads_only=reads_only, origins=origins, methods=allowed)
    app = guarded(app, policy, media_type)
    if origins:
        app = CORSMiddleware(app, allow_origins=origins, allow_methods=allowed, allow_headers=["*"])
    return app


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
