"""Spark and the broker are those of tests/spark; no task outlives its test."""

from collections.abc import Iterator

import pytest

from tests.spark.conftest import broker, cluster, name, new_topic, registry, spark
from tests.streams.runtime.kit import forget_tasks

__all__ = ["broker", "cluster", "name", "new_topic", "no_tasks_left", "registry", "spark"]


@pytest.fixture(autouse=True)
def no_tasks_left() -> Iterator[None]:
    yield
    forget_tasks()
