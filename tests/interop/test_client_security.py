"""Our client against Apache Kafka's own TLS and SASL listeners, and a Spark reader through them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.wire.errors import KafkaError
from millstream.wire.records import Record
from tests.client.certificates import Authority
from tests.support.peers import apache_kafka

pytestmark = pytest.mark.interop_slow

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PACKAGE = "org.apache.kafka.common.security"


class Secured:
    """Apache Kafka with a listener per protocol. `servers[protocol]` is its address."""

    def __init__(self, folder: Path) -> None:
        peer = apache_kafka()
        self.authority = Authority(folder)
        self.servers = {p: f"127.0.0.1:{peer.free_port()}" for p in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        self.kafka = peer.ApacheKafka(folder / "data")
        plain = self.kafka.settings
        listeners = "".join(f",{name}://{address}" for name, address in self.servers.items())
        settings = {
            "listeners": plain["listeners"] + listeners,
            "advertised.listeners": plain["advertised.listeners"] + listeners,
            "listener.security.protocol.map": plain["listener.security.protocol.map"]
            + "".join(f",{name}:{name}" for name in self.servers),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_without_password(folder)),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            for mechanism in MECHANISMS:
                kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
                users = ' user_alice="secret"' if mechanism == "PLAIN" else ""
                name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                settings[name] = f"{PACKAGE}.{kind}LoginModule required{users};"
        self.kafka.settings = {**plain, **settings}

    def key_without_password(self, folder: Path) -> Path:
        return self.authority.issue("broker")

    def add_scram_users(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"secret")
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)

    def properties(self, protocol: str, mechanism: str = "", password: str = "secret") -> dict[str, str]:  # noqa: S107
        found = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            found["ssl.truststore.location"] = str(self.authority.pem)
        if mechanism:
            module = f"{PACKAGE}.{'plain.Plain' if mechanism == 'PLAIN' else 'scram.Scram'}LoginModule"
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = f'{module} required username="alice" password="{password}";'
        return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.kafka:
        made.add_scram_users()
        yield made


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), *((p, m) for p in ("SASL_PLAINTEXT", "SASL_SSL") for m in MECHANISMS)],
)
def test_produce_and_read_through_spark(secured: Secured, protocol: str, mechanism: str) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")
    from tests.spark.source.reading import read, values

    properties = secured.properties(protocol, mechanism)
    topic = f"{protocol}-{mechanism}".lower()
    with Cluster(ClientConfig.of(secured.servers[protocol], properties)) as cluster:
        Admin(cluster).create_topics([NewTopic(topic, 1, 1)])
        cluster.topic(topic, create=True)
        Producer(cluster).send(topic, 0, [Record(0, 1, b"k", bytes(200_000)), Record(0, 1, b"k", b"last")])
    options = {f"kafka.{name}": value for name, value in properties.items()}
    assert values(read(secured.servers[protocol], subscribe=topic, **options))[-1] == "last"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_said_at_once(secured: Secured, mechanism: str) -> None:
    wrong = secured.properties("SASL_PLAINTEXT", mechanism, password="guess")  # noqa: S106
    cluster = Cluster(ClientConfig.of(secured.servers["SASL_PLAINTEXT"], wrong))
    with pytest.raises(KafkaError, match=r"login of 'alice' at .* failed"):
        cluster.refresh([])


def test_the_wrong_protocol_for_a_listener(secured: Secured) -> None:
    with pytest.raises(KafkaError, match=r"is security.protocol=PLAINTEXT right for this listener"):
        Cluster(ClientConfig.of(secured.servers["SASL_SSL"], {"request.timeout.ms": "3000"})).refresh([])
