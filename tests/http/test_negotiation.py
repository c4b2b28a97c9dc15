"""Content-Type and Accept, and the limit on bodies."""

import asyncio
from typing import Any

import pytest

from millstream.http.negotiation import ContentNegotiation, MediaTypes, parse_accept, preferred

OWN, ALIAS = "application/vnd.own+json", "application/json"
TYPES = MediaTypes(OWN, frozenset({OWN, ALIAS}), frozenset({OWN, ALIAS}), frozenset({ALIAS}))


def test_accept_is_ranked_by_quality() -> None:
    assert parse_accept("a/b;q=0.5, c/d, e/f;q=0, G/H; q=0.9, i/j;q=nonsense, k/l") == [
        "c/d",
        "k/l",
        "g/h",
        "a/b",
    ]
    assert parse_accept("") == []
    assert parse_accept(" , ;q=1") == []


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", OWN),
        ("*/*", OWN),
        ("text/html, application/*;q=0.1", OWN),
        (f"{OWN};q=0.2, {ALIAS};q=0.9", ALIAS),
        ("image/png", None),
        (f"{OWN};q=0", None),
    ],
)
def test_preferred(accept: str, chosen: str | None) -> None:
    assert preferred(accept, TYPES.writes, OWN) == chosen


def ask(method: str, headers: dict[str, str], *chunks: bytes, types: MediaTypes = TYPES) -> tuple[int, str]:
    """Status and content type of the response to a request whose body comes in these chunks."""
    sent: list[Any] = []
    waiting = list(chunks)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", OWN.encode())]}
        )
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive() -> Any:
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    async def send(event: Any) -> None:
        sent.append(event)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/", "headers": raw}
    asyncio.run(ContentNegotiation(app, lambda path: types, max_bytes=10)(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])[b"content-type"].decode()


def test_types() -> None:
    assert ask("GET", {}) == (200, OWN)
    assert ask("GET", {"accept": ALIAS}) == (200, ALIAS)
    assert ask("GET", {"accept": "image/png"}) == (406, OWN)
    assert ask("POST", {"content-type": "text/csv"}) == (415, OWN)
    assert ask("POST", {"content-type": f"{ALIAS}; charset=utf-8"}, b"{}") == (200, OWN)
    assert ask("GET", {"content-type": "text/csv"}) == (200, OWN)


def test_a_body_needs_a_type() -> None:
    for method in ("POST", "PUT", "PATCH"):
        assert ask(method, {"content-length": "2"}, b"{}") == (415, OWN)
        assert ask(method, {"transfer-encoding": "chunked"}, b"{}") == (415, OWN)
        assert ask(method, {"content-length": "0"}) == (200, OWN)
        assert ask(method, {}) == (200, OWN)


def test_bodies_have_a_limit() -> None:
    stream = MediaTypes(OWN, TYPES.reads, TYPES.writes, unlimited=True)
    assert ask("POST", {}, b"12345", b"67890") == (200, OWN)
    assert ask("POST", {}, b"12345", b"678901") == (413, OWN)
    assert ask("POST", {"content-length": "11", "content-type": OWN}) == (413, OWN)
    assert ask("POST", {}, b"12345", b"678901", types=stream) == (200, OWN)
