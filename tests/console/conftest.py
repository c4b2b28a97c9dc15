"""One broker, one registry and one console for all tests of this folder; tests use topics and groups of their
own.

    pytest tests/console                    Millstream
    pytest tests/console --against kafka    Apache Kafka, or an address of whatever runs there

MILLSTREAM_AGAINST in the environment does the same.
"""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.wire.records import Record
from tests.support.peers import broker_under_test
from tests.support.running import RunningRegistry
from tests.support.secured_services import session_broker
from tests.support.waiting import wait_until

from .console_client import Client, RunningConsole

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="session")
def bootstrap(against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if against == "millstream":
        with session_broker(SETTINGS, tmp_path_factory.mktemp("broker")) as broker:
            yield broker.bootstrap_servers
        return
    with broker_under_test(against, SETTINGS) as address:
        yield address


@pytest.fixture(scope="session")
def registry(bootstrap: str) -> Iterator[RunningRegistry]:
    with RunningRegistry(bootstrap) as running:
        running.wait_until_leading()
        yield running


@pytest.fixture(scope="session")
def console(bootstrap: str, registry: RunningRegistry) -> Iterator[RunningConsole]:
    with RunningConsole(bootstrap, {"schema.registry.url": registry.url, "cluster.name": "test"}) as running:
        yield running


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[Client]:
    with console.client() as client:
        yield client


@pytest.fixture(scope="session")
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientConfig.of(bootstrap)) as made:
        yield made


@pytest.fixture
def new_topic(cluster: Cluster) -> Callable[..., str]:
    """new_topic(partitions=3, configs={...}, name="...") makes a topic that exists when it returns."""

    def make(partitions: int = 1, configs: dict[str, str] | None = None, name: str = "") -> str:
        name = name or f"t-{uuid.uuid4().hex[:10]}"
        outcome = Admin(cluster).create_topics([NewTopic(name, partitions, 1, configs or {})])[name]
        if isinstance(outcome, Exception):
            raise outcome
        wait_until(lambda: name in Admin(cluster).topic_names() and cluster.topics[name].partitions)
        return name

    return make


@pytest.fixture
def write(cluster: Cluster) -> Callable[..., int]:
    """write(topic, values, partition=0): strings or bytes or whole records; the offset of the first is
    returned."""
    producer = Producer(cluster)

    def send(topic: str, values: list[object], partition: int = 0, key: bytes | None = None) -> int:
        now = round(time.time() * 1000)
        records = []
        for value in values:
            if isinstance(value, Record):
                records.append(value)
            else:
                records.append(Record(0, now, key, value.encode() if isinstance(value, str) else value))  # type: ignore[arg-type]
        return producer.send(topic, partition, records).offset

    return send
