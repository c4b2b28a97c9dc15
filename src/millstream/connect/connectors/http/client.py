"""Requests that are tried again, and who may make them.

A request is given up for the moment with a RetriableError: the task's next turn is after the pause, and
nobody waits in between. What is tried is remembered, so that a limit holds over turns. Errors name the URL
without its user and password, and never a header.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.connect.config.config_def import ConfigError
from millstream.connect.errors import ConnectError, RetriableError

MAX_PAUSE_SECONDS = 60.0
_PASSING = frozenset({408, 425, 429})
_WHO_WE_ARE = frozenset({401, 403, 407})
"""No record's fault: dead letters would be all of them."""


class Refused(ConnectError):
    """The server does not want this request, and will not want it later."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class Retries:
    """`limit` -1: for ever. The pause doubles, up to a minute."""

    limit: int
    backoff_ms: int
    failed: int = 0

    def again(self, text: str) -> Exception:
        self.failed += 1
        if 0 <= self.limit < self.failed:
            return ConnectError(f"{text}; given up after {self.limit} retries (max.retries)")
        pause = min(self.backoff_ms / 1000 * 2 ** min(self.failed - 1, 16), MAX_PAUSE_SECONDS)
        return RetriableError(text, delay=pause)


class Authorization:
    """The header of each request. `renew` is called after a 401: whether another try makes sense."""

    def header(self) -> str | None:
        return None

    def renew(self) -> bool:
        return False


class Static(Authorization):
    def __init__(self, value: str) -> None:
        self._value = value

    def header(self) -> str | None:
        return self._value


def basic(user: str, password: str) -> Authorization:
    return Static("Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


class OAuth2(Authorization):
    """Client credentials (RFC 6749, 4.4): a token is taken once and renewed when it is not accepted."""

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: str,
        *,
        scope: str | None = None,
        token_property: str = "access_token",  # noqa: S107 - the name of a field
        in_header: bool = True,
        post: Callable[..., Any],
    ) -> None:
        self._url, self._client, self._scope = url, (client_id, secret), scope
        self._property, self._in_header, self._post = token_property, in_header, post
        self._token: str | None = None

    def header(self) -> str | None:
        if self._token is None:
            self._token = self._fetch()
        return f"Bearer {self._token}"

    def renew(self) -> bool:
        self._token = None
        return True

    def _fetch(self) -> str:
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        headers = {}
        if self._in_header:
            headers["Authorization"] = basic(*self._client).header()
        else:
            form |= {"client_id": self._client[0], "client_secret": self._client[1]}
        answer = self._post(self._url, data=form, headers=headers)
        if answer.status_code >= 500:
            raise RetriableError(f"the token server answered {answer.status_code}")
        try:
            token = answer.json()[self._property]
        except (ValueError, KeyError, TypeError):
            token = None
        if answer.status_code >= 400 or not isinstance(token, str):
            raise ConnectError(f"the token server gave no token (status {answer.status_code})")
        return token


class HttpClient:
    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        retries: Retries,
        timeout: float,
        verify: Any = True,
        connect_timeout: float | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise ConfigError('this connector needs httpx: pip install "millstream[services]"') from None
        self._errors = httpx.TransportError
        limit = httpx.Timeout(timeout, connect=connect_timeout or timeout)
        self.http = httpx.Client(headers=dict(headers), timeout=limit, verify=verify)
        self.retries = retries
        self.authorization = Authorization()

    def send(self, method: str, url: str, content: bytes, headers: Mapping[str, str] | None = None) -> Any:
        """The answer, of a status below 400. RetriableError, Refused, or ConnectError at the limit."""
        import httpx

        target = httpx.URL(url)
        where = str(target.copy_with(username=None, password=None, query=None))
        answer = None
        for first in (True, False):
            allowed = self.authorization.header()
            own = dict(headers or {})
            if allowed:  # httpx would take the URL's user instead
                own["Authorization"] = allowed
                target = target.copy_with(username=None, password=None)
            try:
                answer = self.http.request(method, target, content=content, headers=own)
            except self._errors as error:
                reason = str(error) or type(error).__name__
                raise self.retries.again(f"{where} cannot be reached: {reason}") from None
            if answer.status_code != 401 or not first or not self.authorization.renew():
                break
        assert answer is not None
        if answer.status_code < 400:
            self.retries.failed = 0
            return answer
        text = f"{where} answered {answer.status_code}: {answer.text[:200]}".rstrip(": ")
        if answer.status_code >= 500 or answer.status_code in _PASSING:
            raise self.retries.again(text)
        if answer.status_code in _WHO_WE_ARE:
            raise ConnectError(text)
        raise Refused(text, answer.status_code)

    def close(self) -> None:
        self.http.close()
