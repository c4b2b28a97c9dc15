"""Which broker the tests talk to, and with which client.

    pytest tests/interop                              Millstream, one broker for the whole run
    pytest tests/interop --against kafka              Apache Kafka, started by benchmarks/apache_kafka.py
    pytest tests/interop --against localhost:9092     whatever runs there (its settings should be Kafka's
    defaults)

MILLSTREAM_AGAINST in the environment does the same. What the tests assert is what Apache Kafka does: a test
that passes against Millstream only is a wrong test.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.peers import broker_under_test
from tests.support.waiting import wait_until

from .clients import CLIENTS, Client, Confluent, Refused

REPOSITORY = Path(__file__).resolve().parents[2]
# One partition keeps the internal topics of the peers cheap; all else is the default.
SETTINGS = {"offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="session")
def bootstrap(against: str) -> Iterator[str]:
    """The address of the broker under test."""
    with broker_under_test(against, SETTINGS) as address:
        yield address


@pytest.fixture(scope="session")
def clients(bootstrap: str) -> Iterator[dict[str, Client]]:
    made = {name: kind(bootstrap) for name, kind in CLIENTS.items()}
    yield made
    for client in made.values():
        client.close()


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Client:
    """Each of the Python clients in turn."""
    return clients[request.param]


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Callable[..., str]:
    """Makes topics with a name of their own: new_topic(partitions=3, configs={...})."""

    def make(**options: object) -> str:
        name = unused_name(request)
        confluent = clients["confluent"]
        assert isinstance(confluent, Confluent)
        confluent.create_topic(name, **options)  # type: ignore[arg-type]
        wait_until(lambda: confluent.serves(name), ignoring=Refused)
        return name

    return make


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that nobody has used."""
    return unused_name(request)


def unused_name(request: pytest.FixtureRequest) -> str:
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"
