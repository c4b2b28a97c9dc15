"""A registry beside the broker of all pipeline tests."""

from collections.abc import Iterator

import pytest

from tests.registry.running import RunningRegistry


@pytest.fixture(scope="session")
def registry(broker: str) -> Iterator[str]:
    """The registry's address."""
    with RunningRegistry(broker) as running:
        running.wait_until_leading()
        yield running.url
