"""One broker and one registry for all tests of this folder; tests use subjects of their own.

MILLSTREAM_TEST_BOOTSTRAP=host:port runs them against a broker that is there already, Apache Kafka for example
(python benchmarks/apache_kafka.py --port 9092); what needs to stop its broker is skipped then.
MILLSTREAM_TEST_SECURED=1: against a secured one (tests/support/secured_services.py).
"""

import os
import uuid
from collections.abc import Iterator

import pytest

from millstream.testing import Broker
from tests.support.running import RunningRegistry
from tests.support.secured_services import session_broker

from .client import Api

# A group of registries is complete as soon as the first one is there.
BROKER = {"group.initial.rebalance.delay.ms": 0}


class GivenBroker:
    """A broker that somebody else runs."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | GivenBroker]:
    given = os.environ.get("MILLSTREAM_TEST_BOOTSTRAP")
    if given:
        yield GivenBroker(given)
        return
    with session_broker(BROKER, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def registry(broker: Broker) -> Iterator[RunningRegistry]:
    with RunningRegistry(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
def api(registry: RunningRegistry) -> Api:
    return Api(registry.http)


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"
