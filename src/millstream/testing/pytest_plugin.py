"""pytest: ask for the fixture `millstream_broker` and you have a broker.

    def test_orders(millstream_broker):
        producer = Producer({"bootstrap.servers": millstream_broker.bootstrap_servers})

One broker for the whole session, started when the first test asks for it, on a free port with a temporary
folder, and gone at the end: give each test topics of its own. Override the session fixture
`millstream_settings` in your conftest.py to start it with other settings. A test that stops or kills its
broker takes one of its own: `with Broker() as broker`. pytest loads this module in every run, so it imports
nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.testing import Broker


@pytest.fixture(scope="session")
def millstream_settings() -> Mapping[str, object]:
    """Settings for the session's broker, with Kafka's names."""
    return {}


@pytest.fixture(scope="session")
def millstream_broker(millstream_settings: Mapping[str, object]) -> Iterator[Broker]:
    """A running broker, shared by all tests of the session."""
    from millstream.testing import Broker

    with Broker(millstream_settings) as broker:
        yield broker
