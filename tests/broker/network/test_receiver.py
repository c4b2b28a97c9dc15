"""Large frames received by a thread: whole, in order, and safe when the connection ends meanwhile."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.network import receiver
from millstream.broker.network.connection import SCRATCH_SIZE, Connection

from .test_responses import Clients, frame

LARGE = 3 * SCRATCH_SIZE


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(receiver, "WORTH_IT", 32 * 1024)  # the buffer of a socket pair is small
    made = Clients(4, budget=64 << 20)
    yield made
    made.close()


class Held:
    """Stops the thread in the middle of a receive until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        original = Connection.receive

        def receive(connection: Connection, into: memoryview) -> int:
            if threading.current_thread().name == "receiver":
                self.entered.set()
                assert self.go_on.wait(60)
            return original(connection, into)

        monkeypatch.setattr(Connection, "receive", receive)


def sending(clients: Clients, number: int, data: bytes) -> threading.Thread:
    def send() -> None:
        rest = memoryview(data)
        try:
            while rest:
                select.select([], [sock], [])
                rest = rest[sock.send(rest[: 64 * 1024]) :]
        except OSError:
            pass  # the broker has ended it

    sock = clients.sockets[number]
    thread = threading.Thread(target=send)
    thread.start()
    return thread


def run_until(clients: Clients, condition: Any) -> None:
    for _ in range(100_000):
        if condition():
            return
        clients.loop.call_soon(clients.loop.stop)
        clients.loop.run_forever()
    raise AssertionError("it never came to that")


def test_every_frame_arrives_as_it_was_sent(clients: Clients) -> None:
    by_thread = []
    original = clients.poller.receiver.deliver

    def deliver() -> None:
        by_thread.extend(clients.poller.receiver.done)
        original()

    clients.poller.receiver.deliver = deliver  # type: ignore[method-assign]
    texts = {}
    for number in range(4):
        parts = [frame(os.urandom(LARGE + 1000 * step)) + frame(b"small %d" % step) for step in range(5)]
        texts[number] = b"".join(parts)
    senders = [sending(clients, number, text) for number, text in texts.items()]
    assert clients.answers(texts) == texts
    for sender in senders:
        sender.join()
    assert by_thread, "the thread had nothing to do"


def grown(clients: Clients) -> None:
    """All connections have sent one large frame, and have a large buffer since."""
    text = frame(b"x" * LARGE)
    senders = [sending(clients, number, text) for number in range(4)]
    assert clients.answers(dict.fromkeys(range(4), text)) == dict.fromkeys(range(4), text)
    for sender in senders:
        sender.join()


def test_a_socket_keeps_its_number_until_the_thread_is_done(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(clients)
    held = Held(monkeypatch)
    sender = sending(clients, 0, frame(b"y" * LARGE))
    connection = clients.connections[0]
    run_until(clients, held.entered.is_set)
    assert connection._receiving
    connection.close("the test ends it")
    assert connection.closed and connection.sock.fileno() >= 0
    held.go_on.set()
    run_until(clients, lambda: connection.sock.fileno() < 0)
    clients.sockets[0].shutdown(socket.SHUT_RDWR)
    sender.join()
    text = frame(b"still here")
    clients.sockets[1].sendall(text)
    assert clients.answers({1: text}) == {1: text}


def test_the_buffer_in_use_is_not_given_back(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(clients)
    held = Held(monkeypatch)
    text = frame(b"z" * LARGE)
    sender = sending(clients, 2, text)
    run_until(clients, held.entered.is_set)
    assert not clients.connections[2].shed()
    assert clients.connections[3].shed()
    held.go_on.set()
    assert clients.answers({2: text}) == {2: text}
    sender.join()


def test_a_peer_that_leaves_during_a_receive(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(clients)
    held = Held(monkeypatch)
    sender = sending(clients, 0, frame(b"y" * LARGE)[:-1])
    run_until(clients, held.entered.is_set)
    held.go_on.set()
    run_until(clients, lambda: not sender.is_alive())
    clients.sockets[0].close()
    run_until(clients, lambda: clients.connections[0].closed)
    assert clients.connections[0].sock.fileno() < 0
