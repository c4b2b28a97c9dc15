"""One Spark session and one broker for all tests of pipelines.

    pytest tests/spark                     Millstream
    pytest tests/spark --against kafka     Apache Kafka, the same tests
    pytest tests/spark --against HOST:PORT

Spark takes seconds to start, so every test shares `spark`; topics and checkpoints are a test's own.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.wire.errors import KafkaError
from tests.support.peers import broker_under_test

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One partition keeps the internal topics cheap, and records with timestamps of 1970 are not deleted as old;
# all else is the default.
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "log.retention.ms": "-1",
}


@pytest.fixture(scope="session")
def broker(against: str) -> Iterator[str]:
    """The address of the broker under test."""
    with broker_under_test(against, SETTINGS) as address:
        yield address


@pytest.fixture(scope="session")
def registry(broker: str) -> Iterator[str]:
    """The address of a registry beside the broker."""
    from tests.support.running import RunningRegistry

    with RunningRegistry(broker) as running:
        running.wait_until_leading()
        yield running.url


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Spark as pipelines use it, on two cores."""
    from millstream.spark.session import spark as start

    session = start("tests", {"spark.driver.memory": "1g"}, master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(broker: str) -> Iterator[Cluster]:
    """A connection of the test itself."""
    with Cluster(ClientConfig.of(broker)) as opened:
        yield opened


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, cluster: Cluster) -> Callable[..., str]:
    """Makes topics with a name of their own: new_topic(partitions=3, configs={...})."""

    def make(partitions: int = 1, configs: dict[str, str] | None = None, name: str | None = None) -> str:
        chosen = name or unused_name(request)
        (outcome,) = Admin(cluster).create_topics([NewTopic(chosen, partitions, 1, configs or {})]).values()
        if isinstance(outcome, KafkaError):
            raise outcome
        cluster.topic(chosen, create=True)  # Kafka shows a new topic a moment after it has created it
        return chosen

    return make


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that nobody has used."""
    return unused_name(request)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A folder for one query's checkpoint."""
    return str(tmp_path / "checkpoint")


def unused_name(request: pytest.FixtureRequest) -> str:
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"
