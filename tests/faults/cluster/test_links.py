"""A cut that cuts nothing would prove nothing: what a link carries, and what it does not."""

import os
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from .links import HOST, Link, Links, owner

SOON = 0.2  # long enough for an echo on this machine to have come, if it comes


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(100):
            self.request.sendall(data)


@pytest.fixture
def server() -> Iterator[int]:
    with socketserver.ThreadingTCPServer((HOST, 0), Echo) as made:
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made.server_address[1]
        made.shutdown()


@pytest.fixture
def links() -> Iterator[Links]:
    with Links(lambda: {"here": os.getpid()}) as made:
        yield made


HERE = Link("here", "echo")


def test_an_open_link_carries_both_ways(links: Links, server: int) -> None:
    with socket.create_connection((HOST, links.add("echo", server)), timeout=30) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_silent_link_keeps_what_was_sent_until_it_is_back(links: Links, server: int) -> None:
    with socket.create_connection((HOST, links.add("echo", server)), timeout=30) as client:
        client.sendall(b"before")
        assert client.recv(100) == b"before"
        links.cut(HERE, silent=True)
        client.sendall(b"during")
        client.settimeout(SOON)
        with pytest.raises(TimeoutError):
            client.recv(100)
        links.heal(HERE)
        client.settimeout(30)
        assert client.recv(100) == b"during"


def test_a_new_connection_over_a_silent_link_hears_nothing(links: Links, server: int) -> None:
    port = links.add("echo", server)
    links.cut(HERE, silent=True)
    with socket.create_connection((HOST, port), timeout=30) as client:
        client.sendall(b"hello")
        client.settimeout(SOON)
        with pytest.raises(TimeoutError):
            client.recv(100)
        links.heal(HERE)
        client.settimeout(30)
        assert client.recv(100) == b"hello"


def test_a_link_that_resets_ends_old_and_new_connections(links: Links, server: int) -> None:
    port = links.add("echo", server)
    with socket.create_connection((HOST, port), timeout=30) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        links.cut(HERE, silent=False)
        assert _ended(client)
    with socket.create_connection((HOST, port), timeout=30) as client:
        assert _ended(client)
    links.heal(HERE)
    with socket.create_connection((HOST, port), timeout=30) as client:
        client.sendall(b"again")
        assert client.recv(100) == b"again"


def test_a_closed_door_refuses(links: Links, server: int) -> None:
    port = links.add("echo", server)
    links.close_door("echo")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=30)
    links.open_door("echo")
    with socket.create_connection((HOST, port), timeout=30) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_a_cut_between_others_is_not_ours(links: Links, server: int) -> None:
    port = links.add("echo", server)
    links.cut(Link("somebody else", "echo"), silent=False)
    with socket.create_connection((HOST, port), timeout=30) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_the_owner_of_a_socket_is_found(server: int) -> None:
    with socket.create_connection((HOST, server), timeout=30) as client:
        port = client.getsockname()[1]
        assert owner(port, {"parent": os.getppid(), "here": os.getpid()}) == "here"
        assert owner(port, {"parent": os.getppid()}) == ""


def _ended(client: socket.socket) -> bool:
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True
