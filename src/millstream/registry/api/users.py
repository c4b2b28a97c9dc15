"""Basic authentication. Users come from a file in the format of Jetty's property files:

    alice: secret, admin
    bob: MD5:5ebe2294ecd0e0f08eab7690d2a6ee69, developer
    carol: {SHA256}2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, readonly

A user with only read-only roles may ask anything (GET, looking a schema up, checking compatibility) and change nothing.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.registry.api.answers import MEDIA_TYPE


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str
    roles: frozenset[str]

    def accepts(self, password: str) -> bool:
        kind, given = self.password, password
        if kind.startswith("MD5:"):
            kind, given = kind[4:].lower(), hashlib.md5(password.encode(), usedforsecurity=False).hexdigest()
        elif kind.startswith("{SHA256}"):
            kind, given = kind[8:].lower(), hashlib.sha256(password.encode()).hexdigest()
        return hmac.compare_digest(kind.encode(), given.encode())


def read_users(path: str) -> dict[str, User]:
    """ValueError says which line is wrong."""
    users = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            line = line.strip()
            if not line or line.startswith(("#", "!")):
                continue
            name, colon, rest = line.partition(":")
            password, *roles = (part.strip() for part in rest.split(","))
            if not colon or not name.strip() or not password:
                raise ValueError(f"{path}, line {number}: expected `name: password,role,...`")
            users[name.strip()] = User(name.strip(), password, frozenset(filter(None, roles)))
    return users


def reads_only(method: str, path: str) -> bool:
    if method in ("GET", "HEAD", "OPTIONS"):
        return True
    if method != "POST":
        return False
    return "/compatibility/" in path or (not path.endswith("/versions") and not path.endswith("/tags"))


class BasicAuthentication:
    """Around the application. Lets pass who may, answers the others 401 or 403."""

    def __init__(
        self,
        app: ASGIApp,
        users: dict[str, User],
        *,
        realm: str,
        roles: Iterable[str] = ("*",),
        read_only_roles: Iterable[str] = (),
        open_paths: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._users = users
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
            await _refuse(send, 401, "Unauthorized", challenge)
        elif "*" not in self._roles and not user.roles & self._roles:
            await _refuse(send, 403, "User is not authorized to use this registry")
        elif user.roles and user.roles <= self._read_only and not reads_only(scope["method"], scope["path"]):
            await _refuse(send, 403, "User may read only")
        else:
            await self._app(scope, receive, send)

    def _user(self, scope: Scope) -> User | None:
        for name, value in scope["headers"]:
            if name == b"authorization" and value[:6].lower() == b"basic ":
                try:
                    user, _, password = base64.b64decode(value[6:], validate=True).decode().partition(":")
                except (binascii.Error, UnicodeDecodeError):
                    return None
                found = self._users.get(user)
                return found if found is not None and found.accepts(password) else None
        return None


async def _refuse(send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    body = orjson.dumps({"error_code": status, "message": message})
    start = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
