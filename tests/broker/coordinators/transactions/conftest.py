"""A broker, and a raw client of it.

MILLSTREAM_AGAINST=HOST:PORT runs `test_transaction_answers.py` and `test_read_committed.py` against any other
broker: that is how the expected answers were taken from Apache Kafka.
"""

import os
from collections.abc import Iterator

import pytest

from millstream.testing import Broker

from .raw_transactions import Client

ELSEWHERE = os.environ.get("MILLSTREAM_AGAINST")


@pytest.fixture(scope="session", params=["there"] if ELSEWHERE else ["at once", "after fsync"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """Two brokers: one commits a write when it returns, on the other everything waits for an fsync first."""
    if ELSEWHERE:
        yield ELSEWHERE
    else:
        settings: dict[str, object] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
        if request.param == "after fsync":
            settings["log.flush.interval.messages"] = 1
        with Broker(settings) as broker:
            yield broker.bootstrap_servers
            assert "Traceback" not in broker.log, broker.log[-4000:]


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


@pytest.fixture
def other(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client
