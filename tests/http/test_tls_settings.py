"""Settings of HTTPS listeners, by the names of Confluent's services and of Kafka Connect."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.connect.worker_config import DistributedConfig
from millstream.http import tls
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


def test_a_new_certificate_is_used_while_the_service_runs(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And one that does not fit is not: the old one stays."""
    monkeypatch.setattr(tls, "RELOAD_SECONDS", 0.01)
    path = authority.issue("server")
    config = RestConfig({"ssl.keystore.location": str(path)})
    trusted = ssl.create_default_context(cafile=str(authority.pem))

    async def serial(port: int) -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        found = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
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
        keeping = asyncio.ensure_future(tls.keep_key(context, config))
        first = await serial(port)
        other = authority.issue("server", file="other.pem")
        path.write_text(path.read_text()[:100])  # half of a key
        while "stays what it was" not in caplog.text:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
        assert await serial(port) == first
        other.replace(path)
        second = await until(lambda found: found != first, port)
        assert await serial(port) == second
        keeping.cancel()
        server.close()

    asyncio.run(test())
