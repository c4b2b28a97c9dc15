"""The names under which browsers may reach a service (`allowed.hosts`).

A web page can have its own name resolve to the address of a service (DNS rebinding). To the browser, page and
service are of one origin then, and the page may read everything. But the browser still says `Host:` with the
page's name, so a name that is not the service's own is refused.

Addresses cannot be rebound, nor can names that public DNS does not have. Elsewhere the service cannot know
under which names it is reached, so only browsers are refused there; a service that is bound to loopback
knows, and refuses everybody.

Nothing of the HTTP stack is imported here: the broker's metrics endpoint uses it as well.
"""

import socket
from collections.abc import Iterable

# Every browser sends at least one of these, and a page cannot take Accept-Language away. Clients in other
# languages send none.
BROWSER_HEADERS = frozenset({b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode", b"accept-language"})
# RFC 6761, RFC 6762, RFC 8375, and ICANN's reservation of .internal
_PRIVATE_DOMAINS = (".localhost", ".local", ".home.arpa", ".internal")


class HostNames:
    """`bound` are the hosts of the listeners, `allowed` what the setting says: more names, or `*` for any."""

    def __init__(
        self, bound: Iterable[str], allowed: Iterable[str] = (), *, setting: str = "allowed.hosts"
    ) -> None:
        listeners = [host.lower() for host in bound]
        self._setting = setting
        self._known = {"localhost", socket.gethostname().lower(), *listeners, *map(str.lower, allowed)}
        self._loopback = all(map(_is_loopback, listeners))

    def accept(self, host: str, *, from_browser: bool) -> bool:
        """Whether a request may have this Host header."""
        name = _without_port(host).lower().removesuffix(".")
        if "*" in self._known or name in self._known or name.endswith(".localhost") or _is_address(name):
            return True
        return not self._loopback and (not from_browser or _is_private(name))

    def refusal(self, host: str) -> str:
        return f"This service does not go by the name {host[:200]}. If it should, add it to {self._setting}."


def is_from_browser(header_names: Iterable[bytes]) -> bool:
    return not BROWSER_HEADERS.isdisjoint(header_names)


def _without_port(host: str) -> str:
    """`[::1]:8080` and `[::1]` are the address ::1."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or (host.startswith("127.") and _is_address(host))


def _is_private(name: str) -> bool:
    """Whether a stranger can have no such name: one without a dot, as containers have, or in a domain that
    public DNS does not have."""
    return bool(name) and ("." not in name or name.endswith(_PRIVATE_DOMAINS))


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
            return True
        except (OSError, ValueError):
            continue
    return False
