"""One broker, one registry and one proxy for all tests of this folder; tests use topics and groups of their
own.

MILLSTREAM_TEST_BOOTSTRAP=host:port runs them against a broker that is there already, Apache Kafka for
example. MILLSTREAM_TEST_SECURED=1: against a secured one (tests/support/secured_services.py).
"""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support.running import RunningRegistry
from tests.support.secured_services import session_broker

from .rest_client import RunningRest

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("MILLSTREAM_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with session_broker(SETTINGS, tmp_path_factory.mktemp("broker")) as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="session")
def registry(bootstrap: str) -> Iterator[RunningRegistry]:
    with RunningRegistry(bootstrap, {"schema.registry.group.id": f"r-{uuid.uuid4().hex[:8]}"}) as running:
        running.wait_until_leading()
        yield running


@pytest.fixture(scope="session")
def rest(bootstrap: str, registry: RunningRegistry) -> Iterator[RunningRest]:
    with RunningRest(bootstrap, registry.url) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(rest: RunningRest) -> str:
    """The path of the cluster in version 3."""
    return f"/v3/clusters/{rest.http.get('/v3/clusters').json()['data'][0]['cluster_id']}"


@pytest.fixture
def new_topic(rest: RunningRest, cluster: str) -> Callable[..., str]:
    def make(partitions: int = 1, **configs: str) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        body = {
            "topic_name": name,
            "partitions_count": partitions,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        answer = rest.http.post(f"{cluster}/topics", json=body)
        assert answer.status_code == 201, answer.text
        return name

    return make


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"
