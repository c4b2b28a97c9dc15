"""Accepting connections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from millstream.broker.network.listener import Acceptor


def test_ipv4_clients_of_an_ipv6_socket_have_the_addresses_that_acls_name() -> None:
    """Otherwise a DENY for a host would not count where the listener serves both."""
    waiting = ["::ffff:10.0.0.1", "10.0.0.2", "2001:db8::ffff:1", "::1"]
    admitted: list[str] = []

    def accept() -> tuple[object, tuple[str, int]]:
        if not waiting:
            raise BlockingIOError
        return object(), (waiting.pop(0), 7)

    acceptor: Any = object.__new__(Acceptor)
    acceptor.sock = SimpleNamespace(accept=accept)
    acceptor.context = SimpleNamespace(admission=SimpleNamespace(rates=None))
    acceptor._admit = lambda _sock, host, _port: admitted.append(host)
    acceptor._accept()
    assert admitted == ["10.0.0.1", "10.0.0.2", "2001:db8::ffff:1", "::1"]
