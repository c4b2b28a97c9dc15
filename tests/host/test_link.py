"""Connections between planner and lanes: who may speak, and what happens when one side goes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.host import link as module
from millstream.host.link import Link, LinkClosed, LinkSilent
from millstream.host.source import is_silent

SECRET = b"s" * 32


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened


def _accepting(listener: socket.socket, secret: bytes, found: list[Any]) -> threading.Thread:
    def accept() -> None:
        opened, _ = listener.accept()
        try:
            found.append(Link.accept(opened, secret))
        except LinkClosed as error:
            found.append(error)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    return thread


def test_messages_go_both_ways(listener: socket.socket) -> None:
    found: list[Any] = []
    thread = _accepting(listener, SECRET, found)
    lane = Link.connect(*listener.getsockname(), SECRET)
    thread.join(60)
    (planner,) = found
    assert not lane.waiting()
    planner.send({"plan": [["app", "0_0"]]})
    assert lane.receive() == {"plan": [["app", "0_0"]]}
    lane.send({"text": "x" * 1_000_000})
    assert len(planner.receive()["text"]) == 1_000_000
    planner.close()
    assert lane.waiting()
    with pytest.raises(LinkClosed):
        lane.receive()
    lane.close()


def test_a_wrong_secret_is_refused_on_both_sides(listener: socket.socket) -> None:
    found: list[Any] = []
    thread = _accepting(listener, b"another secret", found)
    with pytest.raises(LinkClosed, match="did not prove"):
        Link.connect(*listener.getsockname(), SECRET)
    thread.join(60)
    assert isinstance(found[0], LinkClosed)


def test_a_lane_does_not_trust_whoever_listens_there(listener: socket.socket) -> None:
    """Someone who accepts everything and knows nothing."""

    def impostor() -> None:
        opened, _ = listener.accept()
        with opened:
            opened.sendall(b"\0\0\0\x09#WELCOME#")
            opened.recv(1000)

    thread = threading.Thread(target=impostor, daemon=True)
    thread.start()
    with pytest.raises(LinkClosed):
        Link.connect(*listener.getsockname(), SECRET)
    thread.join(60)


def test_someone_who_says_nothing_is_not_waited_for(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.1)
    found: list[Any] = []
    thread = _accepting(listener, SECRET, found)
    with socket.create_connection(listener.getsockname()):
        thread.join(30)
        assert isinstance(found[0], LinkClosed)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        address = opened.getsockname()
    with pytest.raises(LinkClosed, match="cannot be reached"):
        Link.connect(*address, SECRET)


def test_a_planner_that_does_not_answer_has_not_ended(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped: the kernel accepts, and nobody speaks. Its lanes wait for the next job."""
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.2)
    host, port = listener.getsockname()
    with pytest.raises(LinkSilent):
        Link.connect(host, port, SECRET)
    options = {"host": host, "port": str(port), "secret": SECRET.hex()}
    assert is_silent(options)
    listener.close()
    assert not is_silent(options)
