"""One broker, one registry and one SQL server for all tests of this folder; tests use names of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.sql.server.sql_client import RunningSql
from tests.support.running import RunningRegistry
from tests.support.secured_services import session_broker

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with session_broker(SETTINGS, tmp_path_factory.mktemp("broker")) as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="session")
def registry(bootstrap: str) -> Iterator[RunningRegistry]:
    with RunningRegistry(bootstrap, {"schema.registry.group.id": f"r-{uuid.uuid4().hex[:8]}"}) as running:
        running.wait_until_leading()
        yield running


@pytest.fixture(scope="session")
def sql(
    bootstrap: str, registry: RunningRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSql]:
    folder = tmp_path_factory.mktemp("sql")
    with RunningSql(bootstrap, folder, {"ksql.schema.registry.url": registry.url}) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A part of names that no other test uses."""
    return f"T{uuid.uuid4().hex[:8].upper()}"
