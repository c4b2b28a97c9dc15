"""A broker whose connection to ZooKeeper is encrypted: certificates both ways, and wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker, BrokerFailed
from tests.client.certificates import Authority
from tests.support.brokers import SESSION_MS
from tests.support.ports import free_port
from tests.support.zookeeper import RunningZooKeeper


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure_address(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    properties = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(authority.issue("zookeeper")),
        "ssl.trustStore.location": str(authority.pem),
    }
    with RunningZooKeeper(tmp_path_factory.mktemp("zookeeper"), properties=properties):
        yield f"127.0.0.1:{port}"


def settings(address: str, **more: object) -> dict[str, object]:
    return {
        "zookeeper.connect": f"{address}/tls",
        "zookeeper.session.timeout.ms": SESSION_MS,
        "zookeeper.connection.timeout.ms": 120_000,
        "zookeeper.ssl.client.enable": "true",
        **{f"zookeeper.ssl.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def test_certificates_both_ways(secure_address: str, authority: Authority, tmp_path: Path) -> None:
    stores = {"keystore_location": authority.issue("broker"), "truststore_location": authority.pem}
    with Broker(settings(secure_address, **stores), data_dir=tmp_path) as broker:
        assert "no connection to ZooKeeper" not in broker.log


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("unknown authority", "certificate verify failed"),
        ("no certificate of its own", "no connection to ZooKeeper at"),
        ("no such file", "zookeeper.ssl.truststore.location=.*Cannot be read"),
    ],
)
def test_what_cannot_be_trusted(
    wrong: str, message: str, secure_address: str, authority: Authority, tmp_path: Path
) -> None:
    stores: dict[str, object] = {"truststore_location": authority.pem}
    if wrong == "unknown authority":
        stores["truststore_location"] = Authority(tmp_path, "another").pem
    elif wrong == "no such file":
        stores["truststore_location"] = tmp_path / "missing.pem"
    made = {**settings(secure_address, **stores), "zookeeper.connection.timeout.ms": 2000}
    broker = Broker(made)
    with pytest.raises(BrokerFailed, match=message):
        broker.start()
    broker.close()
