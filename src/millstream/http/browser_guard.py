"""What web pages may have a browser do to a service: nothing, unless they are the service's own pages or
`access.control.allow.origin` names them.

A browser sends some requests of any page to any address without asking first (`simple` requests, in CORS):
GET, and POST without a body or with the content types of forms. Three things keep them out:

    Host              is one of the service's own names (millstream.http.host_names)
    Sec-Fetch-Site    or Origin, where the browser sends no Sec-Fetch-Site, says that the page is the
                      service's own; a link from elsewhere may open what only reads
    Content-Type      must be there with a body, and is none of those that forms have (415, negotiation)

Clients that are no browsers send neither Origin nor Sec-Fetch-Site, and are not concerned.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.http.bodies import refuse
from millstream.http.host_names import BROWSER_HEADERS, HostNames

_OWN_SITE = (b"same-origin", b"none")


class Refusal(NamedTuple):
    status: int
    message: str


class BrowserPolicy:
    """`origins` are the pages that CORS lets in, `*` for all; `methods` what they may send, all if empty.
    `reads_only` says whether a GET changes nothing, by method and path."""

    def __init__(
        self,
        hosts: HostNames,
        *,
        reads_only: Callable[[str, str], bool] = lambda method, path: True,
        origins: Iterable[str] = (),
        methods: Iterable[str] = (),
    ) -> None:
        self._hosts = hosts
        self._reads_only = reads_only
        self._origins = frozenset(origins)
        self._methods = frozenset(methods)

    def refusal(self, scope: Scope, *, check_host: bool = True) -> Refusal | None:
        """Why a request is refused; None for one that may pass."""
        hosts = []
        sent: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name in BROWSER_HEADERS:
                sent[name] = value
        origin = sent.get(b"origin", b"").decode("latin-1")
        if origin and self._is_allowed(origin, scope["method"]):
            return None
        if check_host:
            for host in hosts:
                if not self._hosts.accept(host, from_browser=bool(sent)):
                    return Refusal(421, self._hosts.refusal(host))
        if not sent or not _is_foreign(sent, origin, hosts):
            return None
        if sent.get(b"sec-fetch-mode") == b"navigate" and self._may_be_linked(scope):
            return None
        page = origin if origin not in ("", "null") else "another site"
        return Refusal(
            403, f"The request comes from a web page of {page[:200]}, which may not use this service."
        )

    def _is_allowed(self, origin: str, method: str) -> bool:
        return ("*" in self._origins or origin in self._origins) and (
            not self._methods or method in self._methods
        )

    def _may_be_linked(self, scope: Scope) -> bool:
        return scope["method"] in ("GET", "HEAD") and self._reads_only(scope["method"], scope["path"])


def _is_foreign(sent: dict[bytes, bytes], origin: str, hosts: list[str]) -> bool:
    """Whether another site's page made the browser send this. Browsers send Sec-Fetch-Site only over https
    and to loopback; Origin goes with every POST."""
    site = sent.get(b"sec-fetch-site")
    if site is not None:
        return site not in _OWN_SITE
    return bool(origin) and urlsplit(origin).netloc.lower() not in [host.lower() for host in hosts]


def guarded(app: ASGIApp, policy: BrowserPolicy, media_type: str) -> ASGIApp:
    """The application, with refusals as Confluent's services render errors."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = policy.refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await app(scope, receive, send)
        else:
            await refuse(send, refusal.status, refusal.message, media_type)

    return guard
