"""Brokers log in to each other: by certificate, by PLAIN, by SCRAM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.broker.login.inter_broker import InterBrokerSecurity
from millstream.broker.replication.broker_connection import connect
from millstream.client.errors import Unreachable
from millstream.cluster.metadata_records import Endpoint
from millstream.settings.resolve import BrokerSettings
from millstream.wire.errors import KafkaError
from tests.support.secured import PASSWORD, Secured

JAAS = 'org.x.LoginModule required username="alice" password="{}";'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("brokers")) as made:
        made.add_user()
        yield made


def endpoint(secured: Secured, protocol: str) -> Endpoint:
    host, port = secured.servers[protocol].split(":")
    return Endpoint("IN", host, int(port), protocol)


def settings(secured: Secured, mechanism: str, password: str = PASSWORD) -> BrokerSettings:
    return BrokerSettings(
        {
            "listener.name.in.ssl.keystore.location": str(secured.authority.issue("other-broker")),
            "listener.name.in.ssl.truststore.location": str(secured.authority.pem),
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"listener.name.in.{mechanism.lower()}.sasl.jaas.config": JAAS.format(password),
        }
    )


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_log_in(secured: Secured, protocol: str, mechanism: str) -> None:
    security = InterBrokerSecurity(settings(secured, mechanism), "IN", protocol)
    connection = await connect(endpoint(secured, protocol), "broker-2", 10, security)
    answer = await connection.request("list_groups")
    assert answer.error_code == 0
    connection.close()


async def test_what_goes_wrong(secured: Secured) -> None:
    wrong = InterBrokerSecurity(settings(secured, "PLAIN", "guess"), "IN", "SASL_SSL")
    with pytest.raises(KafkaError, match="refuses the login of 'alice'"):
        await connect(endpoint(secured, "SASL_SSL"), "broker-2", 10, wrong)
    nothing = InterBrokerSecurity(
        BrokerSettings({"sasl.mechanism.inter.broker.protocol": "PLAIN"}), "IN", "SASL_SSL"
    )
    with pytest.raises(Unreachable, match=r"sasl\.jaas\.config"):
        await connect(endpoint(secured, "SASL_SSL"), "broker-2", 10, nothing)
    stranger = InterBrokerSecurity(
        BrokerSettings({"ssl.keystore.location": str(secured.authority.issue("x"))}), "IN", "SSL"
    )
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        await connect(endpoint(secured, "SSL"), "broker-2", 10, stranger)
    with pytest.raises(Unreachable, match="wants SASL_SSL"):
        await connect(endpoint(secured, "SASL_SSL"), "broker-2", 10, stranger)
