"""HTTP/2 beside HTTP/1.1 on the same port, in clear text and over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from millstream.http import http2
from millstream.http.serving import HttpService, bind, bound_ports, serve
from millstream.sql.server.sql_config import SqlConfig
from tests.registry.test_secure import make_certificate
from tests.support.waiting import wait_until

BYTES = 3_000_000


class Running:
    """An application that says what it saw, in a thread."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.gone = threading.Event()
        routes = [
            Route("/echo", self._echo, methods=["POST"]),
            Route("/many", self._many),
            Route("/forever", self._forever),
            Route("/broken", self._broken),
        ]
        own = {"bootstrap.servers": "localhost:1", "listeners": "http://127.0.0.1:0", **(settings or {})}
        self.config = SqlConfig(own)
        self._sockets = bind(self.config)
        self.port = bound_ports(self._sockets)[0]
        self._app = Starlette(routes=routes)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        wait_until(self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    async def _run(self) -> None:
        async def start() -> str:
            self._ready.set()
            return ""

        async def stop() -> None:
            pass

        self._service = HttpService(self._app, start, stop)
        self._loop = asyncio.get_running_loop()
        await serve("test", self.config, self._sockets, self._service)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._service.ending.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    async def _echo(self, request: Request) -> Response:
        body = await request.body()
        return JSONResponse(
            {
                "version": request.scope["http_version"],
                "host": request.headers["host"],
                "query": request.url.query,
                "size": len(body),
                "last": body[-3:].decode(),
            }
        )

    async def _many(self, _request: Request) -> Response:
        return Response(b"x" * BYTES, headers={"connection": "keep-alive"})

    async def _forever(self, _request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"line\n"
                    await asyncio.sleep(0.01)
            finally:
                self.gone.set()

        return StreamingResponse(lines())

    async def _broken(self, _request: Request) -> Response:
        raise RuntimeError("broken on purpose")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    found = Running()
    yield found
    found.stop()


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(
        http1=False, http2=True, base_url=f"http://127.0.0.1:{running.port}", timeout=30
    ) as found:
        yield found


def test_a_body_larger_than_every_window_goes_in(client: httpx.Client, running: Running) -> None:
    answer = client.post("/echo?a=1&b=%20", content=b"x" * BYTES + b"end")
    assert answer.http_version == "HTTP/2"
    assert answer.json() == {
        "version": "2",
        "host": f"127.0.0.1:{running.port}",
        "query": "a=1&b=%20",
        "size": BYTES + 3,
        "last": "end",
    }


def test_a_response_larger_than_every_window_comes_out(client: httpx.Client) -> None:
    answer = client.get("/many")
    assert (answer.http_version, len(answer.content)) == ("HTTP/2", BYTES)
    assert "connection" not in answer.headers


def test_http_1_is_served_on_the_same_port(running: Running) -> None:
    answer = httpx.post(f"http://127.0.0.1:{running.port}/echo", content=b"abc")
    assert (answer.http_version, answer.json()["version"]) == ("HTTP/1.1", "1.1")


def test_an_offer_of_http_2_that_comes_line_by_line(running: Running) -> None:
    """As Python's hyper sends it, which ksqlDB's Python client uses."""
    body = b"x" * 1000
    head = b"POST /echo HTTP/1.1\r\n|Host: h\r\n|Connection: Upgrade, HTTP2-Settings\r\n|Upgrade: h2c\r\n|"
    head += b"Content-Length: 1000\r\n|\r|\n"
    with socket.create_connection(("127.0.0.1", running.port), 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for part in [*head.split(b"|"), body[:400], body[400:]]:
                connection.sendall(part)
                time.sleep(0.01)  # each in a packet of its own
            answer = b""
            while b'"size":1000' not in answer:
                part = connection.recv(65536)
                assert part, answer
                answer += part
            assert answer.startswith(b"HTTP/1.1 200")


def test_many_streams_of_one_connection(client: httpx.Client) -> None:
    found: list[int] = []

    def ask() -> None:
        found.append(client.post("/echo", content=b"y" * 1000).json()["size"])

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert found == [1000] * 20


def test_a_stream_that_is_reset_ends_its_response(client: httpx.Client, running: Running) -> None:
    running.gone.clear()
    raw = Raw(running.port)
    raw.request(1, "/forever")
    raw.flush()
    assert isinstance(raw.until(ResponseReceived), ResponseReceived)
    raw.h2.reset_stream(1)
    raw.flush()
    assert running.gone.wait(30)
    raw.socket.close()


def test_a_client_that_goes_ends_its_response(running: Running) -> None:
    running.gone.clear()
    raw = Raw(running.port)
    raw.request(1, "/forever")
    raw.flush()
    assert isinstance(raw.until(ResponseReceived), ResponseReceived)
    raw.socket.close()
    assert running.gone.wait(30)


def test_an_application_that_fails_leaves_the_connection_alone(client: httpx.Client) -> None:
    assert client.get("/broken").status_code == 500
    assert client.get("/many").status_code == 200


class Raw:
    """A connection whose frames the test makes itself."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.flush()
        self.port = port

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def request(self, number: int, path: str, method: str = "GET") -> None:
        headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "127.0.0.1")]
        self.h2.send_headers(number, headers, end_stream=method == "GET")

    def until(self, kind: type) -> object:
        while data := self.socket.recv(65536):
            for event in self.h2.receive_data(data):
                if isinstance(event, kind):
                    return event
            self.flush()
        return None


def test_a_client_that_only_resets_is_put_out(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MAX_RESETS", 5)
    raw = Raw(running.port)
    for number in range(1, 16, 2):
        raw.request(number, "/echo", "POST")
        raw.h2.reset_stream(number)
    raw.flush()
    assert isinstance(raw.until(ConnectionTerminated), ConnectionTerminated)
    raw.socket.close()


def test_a_client_that_never_reads_holds_only_itself(client: httpx.Client, running: Running) -> None:
    raw = Raw(running.port)
    raw.request(1, "/many")
    raw.flush()
    assert isinstance(raw.until(ResponseReceived), ResponseReceived)
    assert len(client.get("/many").content) == BYTES
    raw.socket.close()


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x01" + b"\x00" * 6 + b"x", b"\xff" * 2 * http2.MAX_UNFINISHED], ids=["data", "length"]
)
def test_what_is_no_http_2_is_refused(running: Running, data: bytes) -> None:
    with (
        socket.create_connection(("127.0.0.1", running.port), 30) as raw,
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
    ):
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + data)
        while raw.recv(65536):
            pass


def test_the_end_of_the_server_ends_its_streams() -> None:
    running = Running()
    raw = Raw(running.port)
    raw.request(1, "/forever")
    raw.flush()
    assert isinstance(raw.until(ResponseReceived), ResponseReceived)
    running.stop()
    wait_until(running.gone.is_set)
    raw.socket.close()


def test_over_tls_the_client_chooses(tmp_path: Path) -> None:
    server, certificate = make_certificate(tmp_path)
    running = Running(
        {
            "listeners": "https://127.0.0.1:0",
            "ssl.keystore.location": str(server),
            "ssl.keystore.type": "PEM",
        }
    )
    trusted = ssl.create_default_context(cafile=str(certificate))
    body = b"z" * BYTES
    try:
        for version, options in (("HTTP/2", {"http2": True}), ("HTTP/1.1", {"http2": False})):
            with httpx.Client(
                verify=trusted, base_url=f"https://127.0.0.1:{running.port}", timeout=30, **options
            ) as client:
                for _ in range(2):
                    answer = client.post("/echo", content=body)
                    assert (answer.http_version, answer.json()["size"]) == (version, BYTES)
                assert len(client.get("/many").content) == BYTES
    finally:
        running.stop()
