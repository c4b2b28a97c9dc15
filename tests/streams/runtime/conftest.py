"""No task outlives its test."""

from collections.abc import Iterator

import pytest

from tests.streams.runtime.kit import forget_tasks


@pytest.fixture(autouse=True)
def no_tasks_left() -> Iterator[None]:
    yield
    forget_tasks()
