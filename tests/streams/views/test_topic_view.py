"""Copies of topics on disk, against a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.transactional import TransactionalProducer
from millstream.streams import serdes
from millstream.streams.runtime.topic_reader import TopicReader
from millstream.streams.stores import StoreSpec
from millstream.streams.stores.layout import session_key, window_key
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.views import TopicView, ViewBusy, topic_view
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition
from tests.streams.runtime.kit import produce
from tests.support.waiting import wait_until

NewTable = Callable[..., TopicView]


@pytest.fixture
def view_of(broker: str, tmp_path: Path) -> Iterator[NewTable]:
    made: list[TopicView] = []

    def make(topic: str, folder: str = "copy", **options: Any) -> TopicView:
        view = TopicView.of_table(topic, tmp_path / folder, ClientConfig.of(broker), **options)
        made.append(view)
        return view

    yield make
    for view in made:
        view.close()


def _rows(view: TopicView) -> dict[str, str]:
    with view.snapshot() as snapshot:
        return {row.key: row.value for row in snapshot.scan()}


def test_rows_of_all_partitions_are_one_table(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable
) -> None:
    topic = new_topic(partitions=2)
    produce(cluster, topic, 0, (b"a", b"1"), (b"c", b"3"), (b"gone", b"x"), (b"gone", None))
    produce(cluster, topic, 1, (b"b", b"2"), (b"ba", b"4"), start=2000)
    view = view_of(topic)
    view.catch_up()
    with view.snapshot() as rows:
        assert rows.get("b") == ("b", "2", 2000)
        assert rows.get("b", partition=0) is None
        assert rows.get("gone") is None
        assert [row.key for row in rows.scan()] == ["a", "b", "ba", "c"]
        assert [row.key for row in rows.range("b", "c", reverse=True)] == ["c", "ba", "b"]
        assert [row.key for row in rows.prefix_scan(b"b")] == ["b", "ba"]
        assert [row.key for row in rows.scan(partition=1)] == ["b", "ba"]
        assert rows.offsets == {0: 4, 1: 2}
        produce(cluster, topic, 0, (b"d", b"5"))
        view.catch_up()
        assert rows.get("d") is None  # a snapshot stays what it was
        assert rows.offsets == {0: 4, 1: 2}
    assert _rows(view)["d"] == "5"
    assert view.offsets == {0: 5, 1: 2}


def test_a_copy_goes_on_where_it_was(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    produce(cluster, topic, 0, (b"a", b"1"), (b"b", b"2"))
    first = view_of(topic)
    first.catch_up()
    with pytest.raises(ViewBusy, match="another process keeps a copy"):
        view_of(topic)
    first.close()
    produce(cluster, topic, 0, (b"b", None), (b"c", b"3"))
    taken: list[int] = []
    monkeypatch.setattr(
        TopicView,
        "_take",
        lambda self, partition, records, take=TopicView._take: (
            taken.append(len(records)),
            take(self, partition, records),
        ),
    )
    again = view_of(topic)
    assert _rows(again) == {"a": "1", "b": "2"}  # before anything is read
    again.catch_up()
    assert _rows(again) == {"a": "1", "c": "3"}
    assert taken == [2]


def test_a_read_that_breaks_off_keeps_what_it_has(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        produce(cluster, topic, partition, (b"%d" % partition, b"x"), (b"%d" % partition, b"y"))
    view = view_of(topic)
    whole = TopicReader.read_to

    def broken(self: TopicReader, ends: Any) -> Iterator[Any]:
        yield next(whole(self, ends))
        raise KafkaError(ErrorCode.network_exception, "the broker is away")

    with monkeypatch.context() as patched:
        patched.setattr(TopicReader, "read_to", broken)
        with pytest.raises(KafkaError, match="away"):
            view.catch_up()
    (partition,) = [number for number, offset in view.offsets.items() if offset == 2]
    assert _rows(view) == {str(partition): "y"}
    view.catch_up()
    assert (_rows(view), view.offsets) == ({"0": "y", "1": "y"}, {0: 2, 1: 2})


def test_only_committed_records(cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable) -> None:
    topic = new_topic()
    view = view_of(topic)
    for number, end in enumerate(("abort", "commit")):
        producer = TransactionalProducer(cluster, f"{topic}-tx")
        producer.begin()
        records = [Record(0, 1000, b"k", b"%d" % number)]
        producer.send_batches({TopicPartition(topic, 0): encode_batch(records, transactional=True)})
        view.catch_up()
        assert _rows(view) == {}
        getattr(producer, end)()
    wait_until(lambda: (view.catch_up(), _rows(view))[1] == {"k": "1"})


def test_a_topic_that_was_created_again(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable
) -> None:
    topic = new_topic()
    produce(cluster, topic, 0, (b"old", b"1"), (b"both", b"1"))
    view = view_of(topic)
    view.catch_up()
    Admin(cluster).delete_topics([topic])
    wait_until(lambda: topic not in Admin(cluster).topic_names())
    Admin(cluster).create_topics([NewTopic(topic, 1, -1)])
    cluster.wait_for_topics([topic])
    produce(cluster, topic, 0, (b"both", b"2"), (b"new", b"3"), (b"x", b"4"))
    view.catch_up()
    assert _rows(view) == {"both": "2", "new": "3", "x": "4"}
    assert view.offsets == {0: 3}


def test_a_copy_that_is_too_old_is_made_anew(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion that it has not seen may be gone from the topic."""
    topic = new_topic()
    produce(cluster, topic, 0, (b"a", b"1"))
    first = view_of(topic)
    first.catch_up()
    first.close()
    Admin(cluster).delete_records({TopicPartition(topic, 0): 1})
    produce(cluster, topic, 0, (b"b", b"2"))
    monkeypatch.setattr(topic_view, "FRESH_SECONDS", 0)
    again = view_of(topic)
    again.catch_up()
    assert _rows(again) == {"b": "2"}


def test_following(cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable) -> None:
    topic = new_topic()
    produce(cluster, topic, 0, (b"a", b"1"))
    view = view_of(topic)
    view.follow()
    assert _rows(view) == {"a": "1"}
    produce(cluster, topic, 0, (b"a", b"2"))
    assert view.wait_for({0: 2}, timeout=60)
    assert _rows(view) == {"a": "2"}
    assert not view.wait_for({0: 3}, timeout=0.01)


def test_a_full_copy_answers_and_says_so(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_view, "RETRY_SECONDS", 0.05)
    topic = new_topic()
    produce(cluster, topic, 0, (b"a", b"1"))
    view = view_of(topic, size=256 << 10)
    view.follow()
    produce(cluster, topic, 0, *((b"%d" % n, b"x" * 4000) for n in range(100)))
    wait_until(lambda: view.problem is not None)
    assert "limit of 262144 bytes" in (view.problem or "")
    assert (_rows(view)["a"], view.offsets) == ("1", {0: 1})
    view._folder._environment.set_mapsize(64 << 20)  # as if there were room again
    assert view.wait_for({0: 101}, timeout=60)
    wait_until(lambda: view.problem is None)
    assert len(_rows(view)) == 101


def test_no_space_on_the_device(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    produce(cluster, topic, 0, (b"a", b"1"))
    view = view_of(topic)
    view.catch_up()
    produce(cluster, topic, 0, (b"a", b"2"))

    def full(*_: object) -> None:
        raise lmdb.DiskError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(StoreFolder, "commit", full)
        view.catch_up()
    assert view.problem == "cannot write: No space left on device"
    assert (_rows(view), view.offsets) == ({"a": "1"}, {0: 1})
    view.catch_up()
    assert (_rows(view), view.offsets, view.problem) == ({"a": "2"}, {0: 2}, None)


def test_windows_and_sessions(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    one = b"\x00" * 7 + b"\x01"
    for kind, key_of, ends in (("window", window_key, (10, 10)), ("session", session_key, (5, 5))):
        topic = new_topic(partitions=2)
        spec = StoreSpec(kind, kind, serdes.STRING, serdes.LONG, 100, window_size=10)  # type: ignore[arg-type]
        last = 0 if kind == "window" else 1

        def row(key: bytes, start: int, key_of: Any = key_of, last: int = last) -> tuple[bytes, bytes]:
            return key_of(key, start, start + 5 if last else 0), one

        produce(cluster, topic, 0, row(b"a", 0), row(b"a", 40), row(b"a", 120))
        produce(cluster, topic, 1, row(b"b", 0))  # a time of its own: this one has not expired
        with TopicView(spec, topic, tmp_path / kind, ClientConfig.of(broker)) as view:
            view.catch_up()
            with view.snapshot() as rows:
                assert [tuple(row.key.window) for row in rows.windows("a")] == [
                    (40, 40 + ends[0]),
                    (120, 120 + ends[1]),
                ]
                assert [row.key.window.start for row in rows.windows("a", 100, 130)] == [120]
                assert [(row.key.key, row.key.window.start) for row in rows.all_windows()] == [
                    ("a", 40),
                    ("a", 120),
                    ("b", 0),
                ]
                assert [row.key.key for row in rows.all_windows("b")] == ["b"]


def test_many_readers_and_a_writer(
    cluster: Cluster, new_topic: Callable[..., str], view_of: NewTable
) -> None:
    """Two keys are always written together: no reader sees one without the other."""
    topic = new_topic()
    view = view_of(topic)
    produce(cluster, topic, 0, (b"a", b"0"), (b"b", b"0"))
    view.follow()
    wrong: list[Any] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            with view.snapshot() as rows:
                found = [row.value for row in rows.scan()]
            if len(found) != 2 or found[0] != found[1]:
                wrong.append(found)

    readers = [threading.Thread(target=ask) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 30):
        produce(cluster, topic, 0, (b"a", b"%d" % number), (b"b", b"%d" % number))
    assert view.wait_for({0: 60}, timeout=60)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
