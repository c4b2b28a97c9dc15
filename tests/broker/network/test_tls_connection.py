"""A connection over TLS: bytes that OpenSSL holds back, writes that must be repeated, goodbyes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.network.buffer_budget import BufferBudget
from millstream.broker.network.connection import SCRATCH_SIZE
from millstream.broker.network.file_range import FileRange
from millstream.broker.network.poller import Poller
from millstream.broker.network.tls_connection import PIECE, TlsConnection
from tests.client.certificates import Authority


def frame(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("broker"))
    client = ssl.create_default_context(cafile=str(authority.pem))
    client.check_hostname = False
    return server, client


class Pair:
    """A client's end (blocking, in a thread) and the broker's end (on the loop) of one TLS connection."""

    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext], version: ssl.TLSVersion) -> None:
        self.loop = asyncio.new_event_loop()
        self.poller = Poller(self.loop)
        self.seen: list[bytes] = []
        self.handle: Callable[[TlsConnection, bytes], None] = lambda connection, text: connection.send(
            frame(text)
        )
        with socket.create_server(("127.0.0.1", 0)) as listening:  # TCP holds more than a pair of sockets
            theirs = socket.create_connection(listening.getsockname())
            ours = listening.accept()[0]
        server, client = contexts
        client.minimum_version = client.maximum_version = version
        theirs.settimeout(120)
        made = self.loop.run_in_executor(None, lambda: client.wrap_socket(theirs))
        self.server = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        self.server.settimeout(120)
        self.server.do_handshake()
        self.client: ssl.SSLSocket = self.loop.run_until_complete(made)
        self.server.setblocking(False)
        context: Any = SimpleNamespace(
            budget=BufferBudget(1 << 26), max_frame=1 << 24, poller=self.poller, closed=lambda _: None
        )
        dispatcher: Any = self
        self.connection = TlsConnection(self.server, "peer:1", context, dispatcher, self.loop)

    def dispatch(self, connection: TlsConnection, view: memoryview, start: int, end: int) -> None:
        text = bytes(view[start:end])
        self.seen.append(text)
        self.handle(connection, text)

    def run(self, work: Callable[[], Any]) -> Any:
        """Blocking work of the client, while the broker's loop runs."""
        return self.loop.run_until_complete(asyncio.wait_for(self.loop.run_in_executor(None, work), 120))

    def until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 120))

    def read(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            piece = self.client.recv(size - len(got))
            if not piece:
                break
            got += piece
        return bytes(got)

    def close(self) -> None:
        self.connection.close()
        self.client.close()
        self.poller.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def pair(request: pytest.FixtureRequest, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Pair]:
    made = Pair(contexts, request.param)
    yield made
    made.close()


@pytest.mark.parametrize(
    "size",
    [
        1,
        100,
        16 * 1024 - 4,
        16 * 1024,
        SCRATCH_SIZE - 4,
        SCRATCH_SIZE,
        SCRATCH_SIZE + 1,
        1_000_000,
        3 * SCRATCH_SIZE,
    ],
)
def test_frames_of_every_size_come_back(pair: Pair, size: int) -> None:
    text = os.urandom(size)

    def talk() -> bytes:
        pair.client.sendall(frame(text))
        return pair.read(size + 4)

    assert pair.run(talk) == frame(text)


def test_many_small_frames_behind_a_full_buffer(pair: Pair) -> None:
    """They fill the scratch buffer exactly, so that the rest lies in OpenSSL, where epoll sees nothing."""
    texts = [b"%06d" % number + bytes(2038) for number in range(1000)]
    pair.handle = lambda _connection, _text: None  # as for acks=0
    pair.run(lambda: pair.client.sendall(b"".join(map(frame, texts))))
    pair.until(lambda: len(pair.seen) == len(texts))
    assert pair.seen == texts


def test_what_came_behind_a_parked_request_is_found_again(pair: Pair) -> None:
    waiting: list[TlsConnection] = []

    def park_first(connection: TlsConnection, text: bytes) -> None:
        if not waiting:
            waiting.append(connection)
            connection.park(None)
        else:
            connection.send(frame(text))

    pair.handle = park_first
    # One record that fills the scratch buffer and more: the second request is inside of OpenSSL then.
    first, second = bytes(100), bytes(SCRATCH_SIZE)
    everything = frame(first) + frame(second) + frame(b"third")
    pair.client.sendall(everything)  # all of it is in the sockets before the broker begins to read
    pair.until(lambda: bool(waiting))
    assert pair.connection._hidden

    def answer() -> None:
        waiting[0].send(frame(b"late"))
        waiting[0].resume()

    pair.loop.call_soon(answer)
    assert pair.run(lambda: pair.read(4 + 4)) == frame(b"late")
    assert pair.run(lambda: pair.read(4 + SCRATCH_SIZE + 4 + 5)) == frame(second) + frame(b"third")


def test_a_response_that_does_not_fit_into_the_socket_is_repeated_from_the_same_place(
    pair: Pair, tmp_path: Path
) -> None:
    content = os.urandom(5 * PIECE + 12345)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    segment: Any = SimpleNamespace(fd=fd, acquire=lambda: None, release=lambda: None)

    def respond(connection: TlsConnection, text: bytes) -> None:
        size = 9 + len(content) + 3
        connection.send_parts(
            [struct.pack(">i", size) + b"header...", FileRange(segment, 0, len(content), True), b"end"]
        )

    pair.handle = respond
    pair.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    pair.run(lambda: pair.client.sendall(frame(b"a") + frame(b"b")))
    pair.until(lambda: pair.connection._attempt > 0)  # the socket is full: a write has to be repeated
    expected = struct.pack(">i", 12 + len(content)) + b"header..." + content + b"end"
    assert pair.run(lambda: pair.read(2 * len(expected))) == 2 * expected
    os.close(fd)
    assert pair.connection.bytes_out == 2 * len(expected)


def test_a_small_response_to_a_client_that_does_not_read(pair: Pair) -> None:
    pair.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pair.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    texts = [bytes([number % 256]) * 3000 for number in range(100)]
    for text in texts:
        pair.client.sendall(frame(text))
    pair.until(lambda: pair.connection._attempt > 0)
    assert pair.run(lambda: pair.read(100 * 3004)) == b"".join(map(frame, texts))


def test_a_goodbye_while_a_request_is_at_work(pair: Pair) -> None:
    pair.handle = lambda connection, _text: connection.park(None)
    pair.run(lambda: pair.client.sendall(frame(b"wait for ever")))
    pair.until(lambda: pair.connection.parked)

    def leave() -> None:
        with contextlib.suppress(OSError):  # unless the broker has said goodbye already, it would block
            pair.client.settimeout(0)
            pair.client.unwrap()  # close_notify, but the TCP connection stays open

    pair.run(leave)
    pair.until(lambda: pair.connection.closed)


def test_a_request_sent_ahead_is_no_goodbye(pair: Pair) -> None:
    pair.handle = lambda connection, text: (
        connection.park(None) if text == b"wait" else connection.send(frame(text))
    )
    pair.run(lambda: pair.client.sendall(frame(b"wait")))
    pair.until(lambda: pair.connection.parked)
    pair.run(lambda: pair.client.sendall(b"\0\0"))  # looks like a goodbye by its length
    pair.until(lambda: pair.connection._muted)
    pair.run(lambda: pair.client.sendall(b"\0\4next"))
    pair.connection.send(frame(b"late"))
    pair.connection.resume()
    assert pair.run(lambda: pair.read(16)) == frame(b"late") + frame(b"next")


def test_who_waits_for_a_follower_is_told_that_it_sent_more(pair: Pair) -> None:
    hurried: list[bytes] = []
    pair.handle = lambda connection, text: connection.park(
        SimpleNamespace(hurry=lambda: hurried.append(text))
    )
    pair.client.sendall(frame(b"fetch"))
    pair.until(lambda: pair.connection.parked)
    pair.client.sendall(frame(b"another fetch"))
    pair.until(lambda: bool(hurried))
    assert hurried == [b"fetch"]


def test_the_broker_says_goodbye(pair: Pair) -> None:
    pair.connection.close()
    # b"" is a clean end; a cut connection would be an SSLEOFError.
    assert pair.run(lambda: pair.client.recv(10)) == b""


def test_records_cut_anywhere(pair: Pair) -> None:
    """The client's bytes arrive one by one."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    del incoming
    text = frame(b"a request") * 3
    raw = socket.socket(fileno=os.dup(pair.client.fileno()))
    # Encrypt by the client's own session, into a socket that lets us see the bytes.
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), pair.client.fileno())
    pair.client.sendall(text)
    encrypted = ours.recv(1 << 16)
    assert not outgoing.pending and len(encrypted) > len(text)
    for byte in encrypted:
        raw.send(bytes([byte]))
        pair.run(lambda: None)
    pair.until(lambda: len(pair.seen) == 3)
    assert pair.seen == [b"a request"] * 3
    for sock in (raw, ours, theirs):
        sock.close()
