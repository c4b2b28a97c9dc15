"""Other people's clients log in: protocols by mechanisms, by confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.abc
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.support.secured import MECHANISMS, PASSWORD, Secured
from tests.support.waiting import wait_until

MATRIX = [("SSL", ""), *((p, m) for p in ("SASL_PLAINTEXT", "SASL_SSL") for m in MECHANISMS)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as made:
        made.add_user()
        yield made
        assert "Traceback" not in made.broker.log
        assert PASSWORD not in made.broker.log


@pytest.mark.parametrize(("protocol", "mechanism"), MATRIX)
def test_confluent_kafka(secured: Secured, protocol: str, mechanism: str) -> None:
    conf = secured.rdkafka(protocol, mechanism)
    topic = f"rd-{protocol}-{mechanism}".lower()
    producer = Producer({**conf, "message.max.bytes": 2_000_000})
    for size in (1, 20_000, 900_000):
        producer.produce(topic, bytes(size))
    assert producer.flush(60) == 0
    consumer = Consumer({**conf, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    sizes: list[int] = []

    def read() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            sizes.append(len(message.value() or b""))
        return len(sizes) == 3

    wait_until(read, patience=30)
    consumer.close()
    assert sizes == [1, 20_000, 900_000]
    if mechanism:
        assert "is User:alice" in secured.broker.log


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self.value = value

    def token(self) -> Any:
        return self.value


class AsyncProvider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self.value = value

    async def token(self) -> str:
        return self.value


@pytest.mark.parametrize(("protocol", "mechanism"), MATRIX)
def test_kafka_python(secured: Secured, protocol: str, mechanism: str) -> None:
    conf: dict[str, Any] = {
        "bootstrap_servers": secured.servers[protocol],
        "security_protocol": protocol,
        "ssl_cafile": str(secured.authority.pem),
    }
    if mechanism == "OAUTHBEARER":
        conf |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Provider(secured.tokens.token())}
    elif mechanism:
        conf |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }
    topic = f"kp-{protocol}-{mechanism}".lower()
    producer = kafka.KafkaProducer(**conf)
    producer.send(topic, bytes(300_000)).get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **conf)
    assert len(next(consumer).value) == 300_000
    consumer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), MATRIX)
async def test_aiokafka(secured: Secured, protocol: str, mechanism: str) -> None:
    conf: dict[str, Any] = {"bootstrap_servers": secured.servers[protocol], "security_protocol": protocol}
    if protocol.endswith("SSL"):
        conf["ssl_context"] = ssl.create_default_context(cafile=str(secured.authority.pem))
    if mechanism == "OAUTHBEARER":
        conf |= {
            "sasl_mechanism": mechanism,
            "sasl_oauth_token_provider": AsyncProvider(secured.tokens.token()),
        }
    elif mechanism:
        conf |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }
    topic = f"ai-{protocol}-{mechanism}".lower()
    async with aiokafka.AIOKafkaProducer(**conf) as producer:
        await producer.send_and_wait(topic, bytes(300_000))
    async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **conf) as consumer:
        record = await asyncio.wait_for(consumer.getone(), 30)
        assert len(record.value) == 300_000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_wrong_password_and_unknown_user_look_the_same(secured: Secured, mechanism: str, user: str) -> None:
    errors: list[str] = []
    conf = secured.rdkafka("SASL_PLAINTEXT", mechanism, password="guess", user=user)  # noqa: S106
    admin = AdminClient({**conf, "error_cb": lambda error: errors.append(str(error))})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    wait_until(lambda: admin.poll(0.1) is not None and bool(errors))
    known = {
        "PLAIN": "Authentication failed: Invalid username or password",
        "SCRAM-SHA-256": "due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        "SCRAM-SHA-512": "due to invalid credentials with SASL mechanism SCRAM-SHA-512",
    }
    assert any(known[mechanism] in error for error in errors)


def test_a_mechanism_that_is_not_offered(secured: Secured) -> None:
    from millstream.client import ClientConfig, Cluster
    from millstream.wire.errors import KafkaError

    with (
        Secured(secured.authority.pem.parent / "less", sasl__enabled__mechanisms="SCRAM-SHA-512") as less,
        pytest.raises(KafkaError, match=r"does not offer sasl.mechanism PLAIN \(it offers SCRAM-SHA-512\)"),
    ):
        Cluster(ClientConfig.of(less.servers["SASL_SSL"], less.properties("SASL_SSL", "PLAIN"))).refresh([])
