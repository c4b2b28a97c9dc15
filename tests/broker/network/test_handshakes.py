"""A handshake that fails in a way that nobody foresaw ends alone."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.network import handshakes
from millstream.broker.network.handshakes import UNEXPECTED, Handshake, Handshakes


async def outcomes(context: Any, count: int) -> list[str | None]:
    """What becomes of so many handshakes, one after the other."""
    all_ = Handshakes(asyncio.get_running_loop())
    found: list[str | None] = []
    try:
        for _ in range(count):
            over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            material: Any = SimpleNamespace(context=context)
            all_.begin(
                Handshake(ours, "10.0.0.9", 1, material, lambda _, error, over=over: over.set_result(error))
            )
            found.append(await over)
            assert all_.half_open == 0
            ours.close()
            theirs.close()
        assert all_.failed == count
    finally:
        all_.close()
    return found


def test_at_the_beginning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def wrap_socket(*_: object, **__: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(handshakes, "THREADS", 1)
    context = SimpleNamespace(wrap_socket=wrap_socket)
    assert asyncio.run(outcomes(context, 3)) == [UNEXPECTED] * 3
    assert "nobody foresaw this" in caplog.text


def test_in_the_middle(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def do_handshake(*_: object, **__: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(handshakes, "THREADS", 1)
    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", do_handshake)
    assert asyncio.run(outcomes(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), 3)) == [UNEXPECTED] * 3
    assert "nobody foresaw this" in caplog.text
