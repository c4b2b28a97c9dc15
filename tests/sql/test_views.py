"""Views of tables, which pull queries read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.sql.views import TableView, ViewUnavailable
from millstream.wire.murmur2 import partition_for
from tests.spark.conftest import broker, cluster, name, new_topic
from tests.streams.runtime.kit import produce

__all__ = ["broker", "cluster", "name", "new_topic"]

NewView = Callable[..., TableView]


@pytest.fixture
def view_of(broker: str, tmp_path: Path) -> Iterator[NewView]:
    made: list[TableView] = []

    def make(topic: str, window_bytes: int = 0) -> TableView:
        view = TableView(tmp_path / "view", ClientConfig.of(broker), topic, window_bytes=window_bytes)
        made.append(view)
        return view

    yield make
    for view in made:
        view.close()


def test_rows_by_key_and_by_partition(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewView
) -> None:
    topic = new_topic(partitions=2)
    # Longer than what LMDB takes as a key, and one that its producer put elsewhere than Kafka's partitioner.
    long_key = b"k" * 2000
    likely, other = partition_for(b"a", 2), 1 - partition_for(b"a", 2)
    produce(cluster, topic, other, (b"a", b"1"), (long_key, b"2"), (b"gone", b"x"), (b"gone", None))
    produce(cluster, topic, likely, (b"b", b"3"), (b"", b"4"), start=2000)
    view = view_of(topic)
    view.catch_up()
    with view.snapshot() as table:
        assert list(table.get(b"a")) == [(b"a", b"1", 1000)]
        assert [row.value for row in table.get(long_key)] == [b"2"]
        assert list(table.get(b"gone")) == []
        assert table.partition(b"a") == likely
        in_order = {likely: [b"", b"b"], other: [b"a", long_key]}
        assert [row.key for row in table.scan()] == [*in_order[0], *in_order[1]]
    produce(cluster, topic, likely, (b"b", b"5"))
    view.catch_up()  # waits for the record
    with view.snapshot() as table:
        assert [row.value for row in table.get(b"b")] == [b"5"]


def test_windows_of_a_key_by_start(cluster: Cluster, new_topic: Callable[..., str], view_of: NewView) -> None:
    topic = new_topic()
    starts = (300, 100, 200)
    rows = [(b"a" + struct.pack(">q", start), b"%d" % start) for start in starts]
    # A longer key that begins alike is another key, whatever its window.
    rows += [(b"ab" + struct.pack(">q", 100), b"x"), (b"a" + b"\x00" * 20, b"y")]
    produce(cluster, topic, 0, *rows)
    view = view_of(topic, window_bytes=8)
    view.catch_up()
    with view.snapshot() as table:
        assert [row.value for row in table.get(b"a")] == [b"100", b"200", b"300"]
        assert [row.value for row in table.get(b"ab")] == [b"x"]


def test_a_topic_that_is_not_there_yet_is_said_and_waited_for(
    cluster: Cluster, name: str, view_of: NewView
) -> None:
    view = view_of(name)
    with pytest.raises(ViewUnavailable, match=f"topic {name} cannot be read"):
        view.catch_up()
    Admin(cluster).create_topics([NewTopic(name, partitions=1)])
    cluster.wait_for_topics([name])
    produce(cluster, name, 0, (b"a", b"1"))
    view.catch_up()
    with view.snapshot() as table:
        assert [row.key for row in table.scan()] == [b"a"]
