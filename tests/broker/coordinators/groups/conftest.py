"""One broker for these tests, with short delays. With MILLSTREAM_AGAINST=HOST:PORT any broker, set up with
the same settings: that is how the expected answers were taken from Apache Kafka 4.3."""

import os
import uuid
from collections.abc import Iterator

import pytest

from millstream.testing import Broker

SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.session.timeout.ms": 6000,
    "offsets.topic.num.partitions": 5,
}


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    if (elsewhere := os.environ.get("MILLSTREAM_AGAINST")) is not None:
        yield elsewhere
    else:
        with Broker(SETTINGS) as broker:
            yield broker.bootstrap_servers
            assert "Traceback" not in broker.log, broker.log[-4000:]


@pytest.fixture
def name() -> str:
    return f"n-{uuid.uuid4().hex[:8]}"
