"""What every request has to pass: a host name that is ours, no page of another site, a login if there are
users, and, for anything that changes something, a form that this console made (CSRF), a user who may, and a
console that is not read-only.

A browser's session is one signed cookie with a random id, which Starlette's SessionMiddleware keeps. Who is
logged in is kept here, by that id, and not in the cookie: a logout or the end of the session's hours ends it
for every copy of the cookie. Programs may come with a bearer token instead, and everybody with a client
certificate, where the settings say so: that counts for the one request. The token in a form is made from the
id and the secret, so a page of another site, which can send our cookie along but not read our pages, cannot
know it.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.console.console_config import ConsoleConfig
from millstream.console.users import User, user_of
from millstream.http.browser_guard import BrowserPolicy
from millstream.http.certificate_callers import CERTIFICATE
from millstream.http.cluster_authentication import authorization
from millstream.http.cluster_login import Caller, ClusterLogin, LoginNotChecked, LoginRefused
from millstream.http.errors import HttpError
from millstream.http.lasting_requests import RequestEnded, serve_while_allowed
from millstream.http.login_failures import TooManyTries

COOKIE = "millstream_console"
MONITORING_PATHS = ("/health", "/health/live", "/health/ready", "/metrics", "/metrics/all")
OPEN_PATHS = ("/login", "/favicon.ico", *MONITORING_PATHS)
MAX_SESSIONS = 10_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; manifest-src 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class RequestRefused(HttpError):
    """A request that may not be."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, status, message)


@dataclass(frozen=True, slots=True)
class Session:
    """Who is at the other end."""

    id: str
    user: User | None
    csrf: str
    may_change: bool
    unmasked: bool


class Sessions:
    """`login` is there where users are those of the cluster. Then the session's login is checked again at
    every request (which asks the brokers at most once a second), so it ends with the user or the key."""

    def __init__(self, settings: ConsoleConfig, has_users: bool, login: ClusterLogin | None = None) -> None:
        self._secret = settings.signing
        self._seconds = settings.value("session.hours") * 3600
        self._read_only = bool(settings.value("read.only"))
        self.has_users = has_users
        self._login = login
        self._methods = frozenset(settings.methods)
        self._logged_in: dict[str, tuple[User, float]] = {}
        self._callers: dict[str, Caller] = {}

    def open(self, cookie: MutableMapping[str, Any]) -> Session:
        """The session of a browser, by the content of its cookie; a browser without one gets an id."""
        session_id = cookie.get("id")
        if not isinstance(session_id, str):
            session_id = cookie["id"] = secrets.token_urlsafe(24)
        user, until = self._logged_in.get(session_id, (None, 0.0))
        if user is not None and until < time.time():
            self.log_out(session_id)
            user = None
        may = (user is not None and user.may_change) if self.has_users else True
        unmasked = user is not None and "unmasked" in user.roles
        return Session(session_id, user, self._csrf_token(session_id), may and not self._read_only, unmasked)

    async def token_user(self, scope: Scope, address: str) -> User | None:
        """Who a request with a bearer token is from; None without one. LoginRefused, LoginNotChecked or
        TooManyTries."""
        token = authorization(scope, b"bearer ")
        if self._login is None or token is None or "BEARER" not in self._methods:
            return None
        return user_of(await self._login.token(token.decode("latin-1"), address))

    async def certificate_user(self, scope: Scope, address: str) -> User | None:
        """The same for a client certificate; one that is not good for anything is none."""
        if self._login is None or CERTIFICATE not in scope or "CERTIFICATE" not in self._methods:
            return None
        try:
            user = user_of(await self._login.certificate(scope[CERTIFICATE], address))
        except LoginRefused:
            return None
        return user if user.roles else None

    def as_user(self, session: Session, user: User) -> Session:
        """The session of a request that says itself who it is from."""
        may = user.may_change and not self._read_only
        return replace(session, user=user, may_change=may, unmasked="unmasked" in user.roles)

    async def check(self, cookie: MutableMapping[str, Any], address: str) -> None:
        """Whether a user of the cluster may still come, and do what. LoginNotChecked or TooManyTries if
        nobody can say it now; the session stays."""
        session_id = cookie.get("id")
        caller = self._callers.get(session_id) if isinstance(session_id, str) else None
        if self._login is None or caller is None or not isinstance(session_id, str):
            return
        try:
            user = user_of(await self._login.password(caller.sasl.username, caller.sasl.password, address))
        except LoginRefused:
            self.log_out(session_id)
            return
        known = self._logged_in.get(session_id)
        if not user.roles:
            self.log_out(session_id)
        elif known is not None:
            self._logged_in[session_id] = (user, known[1])

    def log_in(self, user: User, caller: Caller | None = None) -> str:
        """A new id: one that was known before the login is worth nothing afterwards."""
        if len(self._logged_in) >= MAX_SESSIONS:
            self.log_out(next(iter(self._logged_in)))
        session_id = secrets.token_urlsafe(24)
        self._logged_in[session_id] = (user, time.time() + self._seconds)
        if caller is not None:
            self._callers[session_id] = caller
        return session_id

    def log_out(self, session_id: str) -> None:
        self._logged_in.pop(session_id, None)
        self._callers.pop(session_id, None)

    def _csrf_token(self, session_id: str) -> str:
        return hmac.new(self._secret, f"csrf:{session_id}".encode(), hashlib.sha256).hexdigest()[:40]


def with_session_cookie(app: ASGIApp, secret: bytes) -> ASGIApp:
    """Starlette's cookie around the application. It has no age of its own, so it goes with the browser, and
    it is Secure on listeners with TLS; the library decides that once, so there is one of it for each
    scheme."""
    plain, secure = (
        SessionMiddleware(app, secret.hex(), session_cookie=COOKIE, max_age=None, https_only=https_only)
        for https_only in (False, True)
    )

    async def by_scheme(scope: Scope, receive: Receive, send: Send) -> None:
        await (secure if scope.get("scheme") == "https" else plain)(scope, receive, send)

    return by_scheme


class SecurityMiddleware:
    """Around the application, inside `with_session_cookie`."""

    def __init__(self, app: ASGIApp, sessions: Sessions, settings: ConsoleConfig) -> None:
        self._app = app
        self._sessions = sessions
        self._browsers = BrowserPolicy(settings.host_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        path = scope["path"]
        static = path.startswith("/static/")
        # A file that browsers may keep carries no cookie of one of them.
        cookie = dict(scope["session"]) if static else scope["session"]
        user: User | None = None
        if not static:
            try:
                user = await self._user(scope)
            except LoginRefused:
                await PlainTextResponse("The token is not good.\n", 401)(scope, receive, send)
                return
            except LoginNotChecked:
                answer = PlainTextResponse("The cluster does not answer, so nobody can log in.\n", 503)
                await answer(scope, receive, send)
                return
            except TooManyTries as error:
                retry = {"Retry-After": str(error.seconds)}
                await PlainTextResponse(f"{error}\n", 429, headers=retry)(scope, receive, send)
                return
        session = self._sessions.open(cookie)
        if user is not None:
            session = self._sessions.as_user(session, user)
        scope.setdefault("state", {})["session"] = session

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                changed = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    changed.setdefault(name, value)
                if not static:
                    changed.setdefault("cache-control", "no-store")
            await send(message)

        # With users, a page under another name has no login, so only what needs none is kept from it.
        check_host = not self._sessions.has_users or path in MONITORING_PATHS
        refusal = self._browsers.refusal(scope, check_host=check_host)
        if refusal is not None:
            response = PlainTextResponse(f"{refusal.message}\n", refusal.status)
            await response(scope, receive, with_headers)
            return
        if self._sessions.has_users and session.user is None and not static and path not in OPEN_PATHS:
            await self._to_login(scope, receive, with_headers, headers)
            return
        if session.user is None:
            await self._app(scope, receive, with_headers)
            return
        if not session.user.roles:
            answer = PlainTextResponse("The console needs DESCRIBE on the cluster.\n", 403)
            await answer(scope, receive, with_headers)
            return
        try:
            await serve_while_allowed(
                self._app, scope, receive, with_headers, lambda: self._may_go_on(scope, session)
            )
        except RequestEnded:
            await self._to_login(scope, receive, with_headers, headers)

    async def _may_go_on(self, scope: Scope, session: Session) -> bool:
        """Whether the user is still there, and may still see what is masked. What cannot be said now is no
        refusal."""
        cookie = {"id": session.id}
        try:
            user = await self._user({**scope, "session": cookie})
        except (LoginNotChecked, TooManyTries):
            return True
        except LoginRefused:
            return False
        now = self._sessions.open(cookie)
        if user is not None:
            now = self._sessions.as_user(now, user)
        return now.user is not None and bool(now.user.roles) and now.unmasked >= session.unmasked

    async def _user(self, scope: Scope) -> User | None:
        """Who the request itself says that it is from. None: nobody, or a session does, which is looked at
        here, too; it goes before a certificate, by which a browser always comes."""
        address = str((scope.get("client") or ("",))[0])
        user = await self._sessions.token_user(scope, address)
        if user is None:
            await self._sessions.check(scope["session"], address)
            if self._sessions.open(dict(scope["session"])).user is None:
                user = await self._sessions.certificate_user(scope, address)
        return user

    async def _to_login(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]
    ) -> None:
        query = scope["query_string"].decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        url = f"/login?next={quote(target)}" if scope["method"] == "GET" else "/login"
        if headers.get(b"hx-request"):
            answer = PlainTextResponse("Log in first.\n", 401, headers={"HX-Redirect": "/login"})
        elif b"text/event-stream" in headers.get(b"accept", b""):
            answer = PlainTextResponse("Log in first.\n", 401)
        else:
            await RedirectResponse(url, 303)(scope, receive, send)
            return
        await answer(scope, receive, send)


def get_session(request: Request) -> Session:
    found: Session = request.state.session
    return found


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that this console made. RequestRefused if it is somebody else's."""
    session = get_session(request)
    if (
        request.headers.get("content-type", "").partition(";")[0].strip()
        != "application/x-www-form-urlencoded"
    ):
        raise RequestRefused(415, "Expected a form.")
    body = await request.body()
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=500))
    except ValueError:
        raise RequestRefused(400, "The form cannot be read.") from None
    token = request.headers.get("x-csrf-token") or fields.get("csrf", "")
    if not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise RequestRefused(403, "The form is too old, or not from this console. Load the page again.")
    return fields


async def read_change_form(request: Request) -> dict[str, str]:
    """The same, for what changes something: only who may, and not in a read-only console."""
    fields = await read_form(request)
    if not get_session(request).may_change:
        raise RequestRefused(
            403, "Nothing can be changed here: the console is read-only, or you may only look."
        )
    return fields
