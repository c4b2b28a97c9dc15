"""The broker that tests talk to: ours, Apache Kafka, or one that is running somewhere (`--against`)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

import pytest

from millstream.testing import Broker


def apache_kafka() -> ModuleType:
    """benchmarks/apache_kafka.py, which starts Apache Kafka and its tools; where they cannot be had, the test
    is skipped."""
    from benchmarks import apache_kafka as peer

    if (reason := peer.available()) is not None:
        pytest.skip(f"Apache Kafka cannot be had here: {reason}")
    return peer


@contextmanager
def broker_under_test(against: str, settings: Mapping[str, str]) -> Iterator[str]:
    """Its address. The settings do not apply to a broker that is running already."""
    if against == "millstream":
        with Broker(settings) as broker:
            yield broker.bootstrap_servers
    elif against == "kafka":
        with apache_kafka().ApacheKafka(settings=settings) as kafka:
            yield kafka.bootstrap
    else:
        yield against
