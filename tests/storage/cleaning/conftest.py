"""`-m kafka` runs the comparison with Apache Kafka's own cleaner, which needs Java and takes a minute."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kafka: starts Apache Kafka; only when asked for with -m kafka")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "kafka" in (config.getoption("-m") or ""):
        return
    others = [item for item in items if item.get_closest_marker("kafka")]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
