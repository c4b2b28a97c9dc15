"""Which requests of browsers are refused, and under which names a service is reached."""

from typing import Any

import pytest

from millstream.http.browser_guard import BrowserPolicy
from millstream.http.host_names import HostNames

HERE = {"host": "127.0.0.1:8081"}
EVIL = "http://evil.example"


def status(policy: BrowserPolicy, method: str, headers: dict[str, str], path: str = "/x") -> int:
    """200 for a request that passes."""
    raw = [(name.encode(), value.encode()) for name, value in {**HERE, **headers}.items()]
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": raw}
    refusal = policy.refusal(scope)
    return 200 if refusal is None else refusal.status


def reads_only(method: str, path: str) -> bool:
    return not path.endswith("/records")


CLOSED = BrowserPolicy(HostNames(["127.0.0.1"]), reads_only=reads_only)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8081"}, 200),
        ({"origin": EVIL}, 403),
        ({"origin": "http://127.0.0.1:3000"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        # A proxy may have changed Host; the browser knows better.
        ({"sec-fetch-site": "same-origin", "origin": "https://registry.corp.example"}, 200),
        ({"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8081"}, 403),
    ],
)
def test_pages_of_other_sites(headers: dict[str, str], expected: int) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "GET"):
        assert status(CLOSED, method, headers) == expected, method


def test_links_may_open_what_only_reads() -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert status(CLOSED, "GET", link) == 200
    assert status(CLOSED, "GET", link, "/consumers/g/instances/i/records") == 403
    # A form is a navigation, too.
    assert status(CLOSED, "POST", link) == 403
    assert status(CLOSED, "GET", {**link, "sec-fetch-mode": "no-cors"}) == 403


def test_pages_that_cors_lets_in() -> None:
    hosts = HostNames(["0.0.0.0"])  # noqa: S104
    policy = BrowserPolicy(hosts, origins=["http://ui.example"], methods=["GET", "POST"])
    page = {"origin": "http://ui.example", "sec-fetch-site": "cross-site", "accept-language": "en"}
    assert status(policy, "POST", page) == 200
    assert status(policy, "DELETE", page) == 403
    assert status(policy, "POST", {**page, "origin": EVIL}) == 403
    # It came by a name that nobody configured, but its own name is another one: it is not rebound.
    assert status(policy, "GET", {**page, "host": "registry.corp.example"}) == 200
    assert status(policy, "GET", {"host": "registry.corp.example", "accept-language": "en"}) == 421
    assert status(BrowserPolicy(hosts, origins=["*"]), "POST", {"origin": EVIL}) == 200


def test_every_host_header_counts() -> None:
    hosts = [(b"host", b"127.0.0.1:8081"), (b"host", b"evil.example")]
    for headers in (hosts, hosts[::-1]):
        refusal = CLOSED.refusal({"type": "http", "method": "GET", "path": "/", "headers": headers})
        assert refusal is not None and refusal.status == 421


OWN_NAMES = ("localhost", "LOCALHOST:8080", "a.localhost", "127.0.0.1:80", "10.1.2.3", "[::1]:8080", "[::1]")
PRIVATE_NAMES = ("registry:8081", "registry.kafka.svc.cluster.local:8081", "kafka-1.internal")
STRANGE_NAMES = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "evil.example.")


def test_names_of_a_service_on_loopback() -> None:
    hosts = HostNames(["127.0.0.1", "::1", "localhost"], ["Registry.corp.example"])
    for from_browser in (True, False):
        for name in (*OWN_NAMES, "registry.corp.example:8081"):
            assert hosts.accept(name, from_browser=from_browser), name
        for name in ("", *PRIVATE_NAMES, *STRANGE_NAMES):
            assert not hosts.accept(name, from_browser=from_browser), name


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "10.1.2.3", "registry.corp.example"])  # noqa: S104
def test_names_of_a_service_on_the_network(bound: str) -> None:
    """Programs may use any name that leads here; a browser's could be a stranger's."""
    hosts = HostNames([bound])
    for name in (*OWN_NAMES, *PRIVATE_NAMES, bound if ":" not in bound else f"[{bound}]"):
        assert hosts.accept(name, from_browser=True), name
    for name in STRANGE_NAMES:
        assert not hosts.accept(name, from_browser=True), name
        assert hosts.accept(name, from_browser=False), name


def test_any_name() -> None:
    assert HostNames(["127.0.0.1"], ["*"]).accept("anything.example", from_browser=True)
