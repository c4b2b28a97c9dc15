"""What a lane fetches for its units: once for all who are at the same place, at once for whoever is new."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.client.fetch import Fetched
from millstream.host.fetching import MAX_REQUESTS, LaneFetcher
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, iter_batches
from millstream.wire.topic_partition import TopicPartition
from tests.support.waiting import wait_until

MB = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as found:
        yield found


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(ClientConfig.of(broker.bootstrap_servers)) as found:
        yield found


@pytest.fixture
def fetcher(broker: Broker) -> Iterator[LaneFetcher]:
    found = LaneFetcher(ClientConfig.of(broker.bootstrap_servers))
    yield found
    found.close()


def _topic(cluster: Cluster, name: str, count: int = 10) -> TopicPartition:
    Admin(cluster).create_topics([NewTopic(name, 1, 1)])
    cluster.wait_for_topics([name])
    which = TopicPartition(name, 0)
    _write(cluster, which, count)
    return which


def _write(cluster: Cluster, which: TopicPartition, count: int) -> None:
    for number in range(count):
        Producer(cluster).send(*which, [Record(0, 0, None, b"%d" % number, ())])


def _receive(fetcher: LaneFetcher) -> list[tuple[Fetched, int]]:
    ready, _, _ = select.select(fetcher.connections(), [], [], 10)
    return fetcher.receive(ready)


def _first(fetched: Fetched) -> int:
    return next(header.base_offset for header, _ in iter_batches(fetched.records))


def test_what_is_wanted_later_does_not_wait_for_what_is_under_way(
    cluster: Cluster, fetcher: LaneFetcher
) -> None:
    empty, full = _topic(cluster, "later-empty", 0), _topic(cluster, "later-full")
    fetcher.send({empty: {0: MB}})
    fetcher.send({empty: {0: MB}})
    assert len(fetcher.connections()) == 1
    fetcher.send({empty: {0: MB}, full: {0: MB}})
    assert len(fetcher.connections()) == 2
    found = _receive(fetcher)
    assert [(answer.topic, offset) for answer, offset in found] == [("later-full", 0)]


def test_two_places_of_one_partition(cluster: Cluster, fetcher: LaneFetcher) -> None:
    which = _topic(cluster, "places")
    fetcher.send({which: {2: MB, 7: MB}})
    found: dict[int, int] = {}

    def both() -> bool:
        found.update({offset: _first(answer) for answer, offset in _receive(fetcher)})
        return len(found) == 2

    wait_until(both)
    assert found == {2: 2, 7: 7}
    fetcher.send({which: {10: MB}})
    assert len(fetcher.connections()) == 1


def test_there_are_not_more_requests_than_allowed(cluster: Cluster, fetcher: LaneFetcher) -> None:
    which = _topic(cluster, "many")
    fetcher.send({which: dict.fromkeys(range(10), MB)})
    assert len(fetcher.connections()) == MAX_REQUESTS


def test_each_partition_has_its_own_limit(cluster: Cluster, fetcher: LaneFetcher) -> None:
    small, large = _topic(cluster, "small"), _topic(cluster, "large")
    fetcher.send({small: {0: 1}, large: {0: MB}})
    sizes = {answer.topic: len(list(iter_batches(answer.records))) for answer, _ in _receive(fetcher)}
    assert sizes == {"small": 1, "large": 10}


def test_a_topic_that_is_another_one_now(cluster: Cluster, fetcher: LaneFetcher) -> None:
    which = _topic(cluster, "again", 5)
    fetcher.send({which: {5: MB}})
    Admin(cluster).delete_topics(["again"])
    wait_until(lambda: "again" in cluster.refresh(["again"]))
    _topic(cluster, "again", 20)
    errors: list[ErrorCode] = []

    def recreated() -> bool:
        for answer, offset in _receive(fetcher) if fetcher.connections() else fetcher.receive(()):
            assert not answer.records, "it must not be read on"
            errors.append(answer.error)
            assert offset == -1 or answer.error is not ErrorCode.none
        fetcher.send({which: {5: MB}})
        return bool(errors)

    wait_until(recreated)
    assert errors[0] in (ErrorCode.inconsistent_topic_id, ErrorCode.unknown_topic_or_partition)
