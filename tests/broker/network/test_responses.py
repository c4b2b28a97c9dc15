"""When answers leave: in order on each connection, together where several connections are busy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.network.buffer_budget import BufferBudget
from millstream.broker.network.connection import LARGE_REQUEST, Connection
from millstream.broker.network.poller import Poller


def frame(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


class Echo:
    """Answers each request with itself; one that begins with `wait` is answered later, one with `leave` hangs
    up."""

    def __init__(self) -> None:
        self.log: list[tuple[str, bytes]] = []
        self.on_request: Callable[[Connection, bytes], None] = lambda _connection, _text: None

    def dispatch(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        text = bytes(view[start:end])
        self.log.append(("read", text[:8]))
        self.on_request(connection, text)
        if text.startswith(b"wait"):
            connection.park(None)
            connection.loop.call_later(0.01, self._later, connection, text)
        elif text.startswith(b"leave"):
            connection.close()
        else:
            connection.send(frame(text))

    def _later(self, connection: Connection, text: bytes) -> None:
        connection.send(frame(text))
        connection.resume()


class Clients:
    """Connections of a broker that echoes, on a loop that runs when it is told to."""

    def __init__(self, count: int, budget: int = 1 << 20) -> None:
        self.loop = asyncio.new_event_loop()
        self.echo = Echo()
        self.poller = Poller(self.loop)
        context: Any = SimpleNamespace(
            budget=BufferBudget(budget), max_frame=1 << 20, poller=self.poller, closed=lambda _: None
        )
        self.sockets: list[socket.socket] = []
        self.connections: list[Connection] = []
        for number in range(count):
            ours, theirs = socket.socketpair()
            for sock in (ours, theirs):
                sock.setblocking(False)
            self.sockets.append(theirs)
            dispatcher: Any = self.echo
            self.connections.append(Connection(ours, f"peer:{number}", context, dispatcher, self.loop))

    def answers(self, expected: dict[int, bytes]) -> dict[int, bytes]:
        """Run until everybody has got as many bytes as expected of him."""
        got = {number: b"" for number in expected}

        async def collect() -> None:
            while any(len(got[number]) < len(text) for number, text in expected.items()):
                await asyncio.sleep(0.001)
                for number in expected:
                    try:
                        got[number] += self.sockets[number].recv(1 << 20)
                    except BlockingIOError:
                        continue

        self.loop.run_until_complete(asyncio.wait_for(collect(), 120))
        return got

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        for sock in self.sockets:
            sock.close()
        self.poller.close()
        self.loop.close()


@pytest.fixture
def clients() -> Any:
    made = Clients(5)
    yield made
    made.close()


def test_a_connection_is_anonymous_until_somebody_logs_in(clients: Clients) -> None:
    assert {(each.principal, each.client_host) for each in clients.connections} == {
        ("User:ANONYMOUS", "peer")
    }


def test_each_connection_is_answered_in_order(clients: Clients) -> None:
    large = b"large " + b"x" * LARGE_REQUEST
    expected = {}
    for number in range(5):
        requests = [
            b"one %d" % number,
            large,
            b"wait %d" % number,
            b"two %d" % number,
            b"wait again",
            b"three",
        ]
        text = b"".join(frame(request) for request in requests)
        clients.sockets[number].sendall(text)
        expected[number] = text
    assert clients.answers(expected) == expected


def test_answers_of_a_turn_leave_when_all_were_read(clients: Clients) -> None:
    seen: list[int] = []

    def look(_connection: Connection, _text: bytes) -> None:
        waiting = 0
        for sock in clients.sockets:
            try:
                sock.recv(1, socket.MSG_PEEK)
                waiting += 1
            except BlockingIOError:
                pass
        seen.append(waiting)

    clients.echo.on_request = look
    expected = {}
    for number in range(5):
        text = frame(b"request %d" % number)
        clients.sockets[number].sendall(text)
        expected[number] = text
    for _ in range(3):
        clients.loop.call_soon(clients.loop.stop)
        clients.loop.run_forever()
    assert seen == [0, 0, 0, 0, 0]
    assert {number: sock.recv(100) for number, sock in enumerate(clients.sockets)} == expected


def test_nobody_waits_for_a_large_request(clients: Clients) -> None:
    sent_before: list[bool] = []

    def look(_connection: Connection, text: bytes) -> None:
        if text.startswith(b"large"):
            sent_before.append(not clients.poller._holding)

    clients.echo.on_request = look
    for number in range(5):
        text = b"large" + b"x" * LARGE_REQUEST if number == 4 else b"small"
        clients.sockets[number].sendall(frame(text))
    for _ in range(3):
        clients.loop.call_soon(clients.loop.stop)
        clients.loop.run_forever()
    assert sent_before == [True]


def test_who_leaves_takes_nobody_with_him(clients: Clients) -> None:
    for number in range(5):
        clients.sockets[number].sendall(frame(b"hello") + (frame(b"leave") if number % 2 else b""))
    for _ in range(3):
        clients.loop.call_soon(clients.loop.stop)
        clients.loop.run_forever()
    got = [sock.recv(100) for sock in clients.sockets]
    assert got == [frame(b"hello")] * 5  # what was asked before the end is answered
    assert [connection.closed for connection in clients.connections] == [False, True, False, True, False]


def test_what_a_full_socket_does_not_take_is_sent_when_it_is_read(clients: Clients) -> None:
    connection, theirs = clients.connections[0], clients.sockets[0]
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += connection.sock.send(b"f" * 1000)
    expected = b"f" * filled
    for text in (b"none of it fits", b"nor of this"):
        theirs.sendall(frame(text))
        expected += frame(text)
        for _ in range(3):
            clients.loop.call_soon(clients.loop.stop)
            clients.loop.run_forever()
    # The second request is not even looked at before the first is answered.
    assert (clients.echo.log, connection.closed) == ([("read", b"none of ")], False)
    assert clients.answers({0: expected}) == {0: expected}


def test_a_response_to_a_peer_that_has_gone_closes_the_connection(clients: Clients) -> None:
    clients.sockets[0].sendall(frame(b"hello"))
    clients.sockets[0].close()
    clients.loop.run_until_complete(_until(lambda: clients.connections[0].closed))
    assert clients.echo.log == [("read", b"hello")]


def test_what_a_connection_holds_goes_with_it_to_another_budget(clients: Clients) -> None:
    """As at the end of a login."""
    connection = clients.connections[0]
    before: Any = connection.context
    clients.sockets[0].sendall(struct.pack(">i", 5000) + b"half")
    clients.loop.run_until_complete(_until(lambda: before.budget.used > 0))
    held = before.budget.used
    after: Any = SimpleNamespace(**{**vars(before), "budget": BufferBudget(1)})
    connection.use_context(after)
    assert (before.budget.used, before.budget.holders) == (0, set())
    assert (after.budget.used, after.budget.holders) == (held, {connection})
    connection.close()
    assert (after.budget.used, after.budget.holders) == (0, set())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (what it waits for is a number)
        await asyncio.sleep(0.001)
