"""Settings of HTTPS listeners, by the names of Confluent's services and of Kafka Connect."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.connect.worker_config import DistributedConfig
from millstream.http import serving, tls
from millstream.http.certificate_callers import CERTIFICATE
from millstream.http.serving import HttpService
from millstream.http.tls import client_authentication, peer_context, server_context
from millstream.rest.rest_config import RestConfig
from millstream.serdes.client import SchemaRegistry
from tests.client.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def subjects(context: ssl.SSLContext | None) -> list[str]:
    assert context is not None
    return [
        value
        for found in context.get_ca_certs()
        for part in found["subject"]  # type: ignore[attr-defined]
        for _, value in part  # type: ignore[str-unpack]
    ]


def test_connect_has_a_prefix_for_its_listeners(authority: Authority) -> None:
    """As Kafka's: all settings with it, or none."""
    key = str(authority.issue("server"))
    client = {"ssl.keystore.location": "/there/is/none", "ssl.truststore.location": "/neither"}
    own = {"listeners.https.ssl.keystore.location": key}
    trust = {"listeners.https.ssl.truststore.location": str(authority.pem)}
    asks = {"listeners.https.ssl.client.auth": "required"}
    with pytest.raises(ValueError, match="/there/is/none: no such file"):
        server_context(DistributedConfig(client))
    assert server_context(DistributedConfig(client | own)).verify_mode == ssl.CERT_NONE
    with pytest.raises(ValueError, match=r"needs ssl\.truststore\.location"):
        server_context(DistributedConfig(client | own | asks))
    assert server_context(DistributedConfig(client | own | trust | asks)).verify_mode == ssl.CERT_REQUIRED
    assert "authority" in subjects(peer_context(DistributedConfig(client | own | trust)))


def test_whether_clients_show_a_certificate() -> None:
    assert client_authentication(RestConfig({})) == "NONE"
    assert client_authentication(RestConfig({"ssl.client.authentication": "requested"})) == "REQUESTED"
    assert client_authentication(RestConfig({"ssl.client.auth": "true"})) == "REQUIRED"
    with pytest.raises(ValueError, match="maybe"):
        client_authentication(RestConfig({"ssl.client.authentication": "maybe"}))


def test_a_client_of_the_registry_trusts_the_same_after_a_journey(authority: Authority) -> None:
    """It is pickled to Spark's tasks."""
    registry = SchemaRegistry("https://127.0.0.1:1", ca_file=str(authority.pem))
    arrived: SchemaRegistry = pickle.loads(pickle.dumps(registry))  # noqa: S301
    assert "authority" in subjects(arrived._context)


def test_a_key_store_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.issue("one").read_text(), authority.issue("other").read_text()
    mixed, locked = tmp_path / "mixed.pem", authority.issue("locked", password="planted")  # noqa: S106
    begin = "-----BEGIN CERTIFICATE-----"
    mixed.write_text(one.split(begin)[0] + begin + other.split(begin)[1])
    (tmp_path / "empty.pem").write_text("")
    for path, password, words in (
        (mixed, "", "does not fit"),
        (tmp_path / "empty.pem", "", "cannot be read"),
        (locked, "", "cannot be read"),
        (locked, "wrong", "cannot be read"),
    ):
        with pytest.raises(ValueError, match=words) as refused:
            server_context(
                RestConfig({"ssl.keystore.location": str(path), "ssl.key.password": password or "none"})
            )
        assert str(path) in str(refused.value) and "wrong" not in str(refused.value)


def test_a_new_trust_store_is_used_while_the_service_runs(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Who is trusted now comes in, who is trusted no more does not, and nobody comes in by an old session."""
    monkeypatch.setattr(tls, "RELOAD_SECONDS", 0.01)
    caplog.set_level("INFO")
    other = Authority(tmp_path, "other-authority")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.pem.read_text())
    config = RestConfig(
        {
            "ssl.keystore.location": str(authority.issue("server")),
            "ssl.truststore.location": str(trusted),
            "ssl.client.authentication": "REQUIRED",
        }
    )

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"come in\n")
        writer.close()

    async def is_let_in(client: ssl.SSLContext, port: int) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        except OSError:
            return False
        try:
            return await reader.readline() == b"come in\n"
        except OSError:  # TLS 1.3: told after the handshake
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def client(of: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(authority.pem))
        made.maximum_version = version
        made.load_cert_chain(of.issue("client", file=f"client-of-{of.pem.name}"))
        return made

    async def test() -> None:
        context = server_context(config)
        server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        keeping = asyncio.ensure_future(tls.keep_stores(context, config))
        clients = [
            (of, client(of, version))
            for of in (authority, other)
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
        ]
        for now, file in ((authority, trusted), (other, other.pem)):
            if now is other:
                other_text = tmp_path / "new.pem"
                other_text.write_text(file.read_text())
                other_text.replace(trusted)
                while f"what is now in {trusted}" not in caplog.text:  # noqa: ASYNC110 - somebody else's state
                    await asyncio.sleep(0.01)
            for of, one in clients:
                assert await is_let_in(one, port) == (of is now), (of.pem, now.pem, one.maximum_version)
        keeping.cancel()
        server.close()

    asyncio.run(test())


def test_a_new_certificate_is_used_while_the_service_runs(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And one that does not fit is not: the old one stays."""
    monkeypatch.setattr(tls, "RELOAD_SECONDS", 0.01)
    path = authority.issue("server")
    config = RestConfig({"ssl.keystore.location": str(path)})
    trusted = ssl.create_default_context(cafile=str(authority.pem))
    trusted.set_alpn_protocols(["h2"])

    async def serial(port: int) -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        found = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return int(found, 16)

    async def until(condition: Callable[[int], bool], port: int) -> int:
        while not condition(found := await serial(port)):  # noqa: ASYNC110 - somebody else's state
            await asyncio.sleep(0.01)
        return found

    async def test() -> None:
        context = server_context(config)
        server = await asyncio.start_server(
            lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context
        )
        port = server.sockets[0].getsockname()[1]
        keeping = asyncio.ensure_future(tls.keep_stores(context, config))
        first = await serial(port)
        other = authority.issue("server", file="other.pem")
        path.write_text(path.read_text()[:100])  # half of a key
        while "stay what they were" not in caplog.text:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
        assert await serial(port) == first
        other.replace(path)
        second = await until(lambda found: found != first, port)
        assert await serial(port) == second
        keeping.cancel()
        server.close()

    asyncio.run(test())


def test_a_websocket_has_the_certificate_of_its_client(authority: Authority) -> None:
    """As other requests have it, so that who comes by certificate may read a query's rows."""
    client_key = authority.issue("carol")
    config = RestConfig(
        {
            "listeners": "https://127.0.0.1:0",
            "ssl.keystore.location": str(authority.issue("server")),
            "ssl.truststore.location": str(authority.pem),
            "ssl.client.authentication": "REQUESTED",
        }
    )
    found: list[bytes | None] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "websocket"
        await receive()
        found.append(scope.get(CERTIFICATE))
        await send({"type": "websocket.close"})

    async def nothing() -> str:
        return ""

    async def ask(port: int, trusted: ssl.SSLContext) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        writer.write(
            b"GET /ws/query HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        line = await reader.readline()
        writer.close()
        return line

    async def test() -> None:
        service = HttpService(app, nothing, nothing, websockets=True)  # type: ignore[arg-type]
        (server,) = serving._servers(config, service)
        sockets = serving.bind(config)
        running = asyncio.ensure_future(server.serve(sockets=sockets))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        trusted = ssl.create_default_context(cafile=str(authority.pem))
        assert b" 403 " in await ask(serving.bound_ports(sockets)[0], trusted)
        trusted = ssl.create_default_context(cafile=str(authority.pem))
        trusted.load_cert_chain(client_key)
        assert b" 403 " in await ask(serving.bound_ports(sockets)[0], trusted)
        server.should_exit = True
        await running

    asyncio.run(test())
    text = client_key.read_text()
    assert found == [None, ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE-----") :])]
