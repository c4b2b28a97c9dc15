"""A cluster that is reached by TLS alone: registry, proxy and console with their settings for it."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker
from tests.client.certificates import Authority
from tests.client.test_client_security import tunnel
from tests.support.ports import free_port
from tests.support.running import RunningRegistry

from ..console.console_client import RunningConsole
from ..console.test_pages import search
from .rest_client import RunningRest

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address, and the settings that it wants. The tunnel wants a certificate of the client, too."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker"))
    context.load_verify_locations(authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    port = free_port()
    with tunnel(port, context) as outside:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}",
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 1,
        }
        with Broker(settings):
            wanted = {
                "security.protocol": "SSL",
                "ssl.truststore.location": str(authority.pem),
                "ssl.keystore.location": str(authority.issue("services", password="k")),  # noqa: S106
                "ssl.key.password": "k",
            }
            yield f"127.0.0.1:{outside}", wanted


def test_all_services(secured: tuple[str, dict[str, str]], group: str) -> None:
    address, wanted = secured
    stored = {f"kafkastore.{name}": value for name, value in wanted.items()}
    client = {f"client.{name}": value for name, value in wanted.items()}
    with RunningRegistry(address, stored) as registry, RunningRest(address, registry.url, client) as rest:
        sent = rest.produce("t", "avro", [{"value": {"n": 1}}], value_schema=SCHEMA)
        assert sent.json()["offsets"][0]["offset"] == 0, sent.text
        consumer = rest.consumer(group, "avro")
        consumer.subscribe("t")
        assert consumer.read(1)[0]["value"] == {"n": 1}
        consumer.delete()
        assert "t" in rest.http.get("/topics").json()
        with RunningConsole(address, client) as console:
            health = console.http.get("/health")
            assert health.status_code == 200, health.text
            assert search(console.http, "t", text="\x02", in_value=1)[0] == [(0, 0)]  # 1, as Avro writes it


def test_what_is_missing_is_said(secured: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    wrong = {
        "kafkastore.security.protocol": "SSL",
        "kafkastore.ssl.truststore.location": str(stranger.pem),
        "kafkastore.init.timeout.ms": "10000",  # so long it waits for a cluster that may be starting
    }
    with pytest.raises(RuntimeError, match=r"the certificate of the broker at .* is not trusted"):
        RunningRegistry(secured[0], wrong).start()
    with pytest.raises(RuntimeError, match=r"client\.ssl\.keystore|ssl\.keystore\.type=JKS"):
        RunningRest(
            secured[0], settings={"client.security.protocol": "SSL", "client.ssl.keystore.type": "JKS"}
        ).start()
