"""Applications on a cluster: the tasks as Spark runs them, without Spark, and then with it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client import EARLIEST, LATEST, Admin, Cluster, Producer, list_offsets
from millstream.client.groups import Groups
from millstream.pipeline.streams import (
    JoinWindows,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    TopologyError,
    serdes,
)
from millstream.pipeline.streams.runtime import Streams, worker
from millstream.pipeline.streams.runtime.queries import query_app
from millstream.pipeline.streams.runtime.reader import StreamsReader, packed
from millstream.pipeline.streams.runtime.topics import internal_partitions
from millstream.wire.records import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def no_tasks_left() -> Iterator[None]:
    yield
    _forget_tasks()


def _forget_tasks() -> None:
    """As if the worker's process had ended."""
    for runner in worker._runners.values():
        runner.close()
    worker._runners.clear()


def _produce(
    cluster: Cluster, topic: str, partition: int, *values: tuple[bytes, bytes | None], start: int = 1000
) -> None:
    records = [Record(number, start + number, key, value) for number, (key, value) in enumerate(values)]
    Producer(cluster).send(topic, partition, records)


def _read(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """All committed records."""
    places = [(topic, number) for number in cluster.topic(topic).partitions]
    latest = list_offsets(cluster, dict.fromkeys(places, LATEST), read_committed=True)
    until = {place: found.offset for place, found in latest.items()}
    earliest = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    found = worker.read_ranges(cluster, {place: found.offset for place, found in earliest.items()}, until)
    return [(key, value) for _, reads in found for _, key, value, _, _ in reads]


class Driver:
    """Does what Spark does with the reader, in this process."""

    def __init__(self, application: Streams) -> None:
        application.make_topics()
        self.packed = packed(application.settings, application.topology)
        self._reader = StreamsReader(self.packed, 1000)
        self._start = self._reader.initialOffset()
        self.read = 0

    def run_elsewhere(self) -> None:
        """The same in another process."""
        process = get_context("spawn").Process(target=_run_all, args=(self.packed, self._start))
        process.start()
        process.join(60)
        assert process.exitcode == 0

    def run(self, again: dict[str, Any] | None = None) -> dict[str, Any]:
        """Until there is nothing new; from an older offset when given. Gives where it began."""
        began = start = again if again is not None else self._start
        while (end := self._reader.latestOffset(start, None)) != start:
            for partition in self._reader.partitions(start, end):
                (batch,) = self._reader.read(partition)
                self.read += batch.to_pydict()["read"][0]
            start = end
        self._start = start
        self._reader.commit(start)
        return began


def _run_all(application: str, start: dict[str, Any]) -> None:
    reader = StreamsReader(application, 1000)
    while (end := reader.latestOffset(start, None)) != start:
        for partition in reader.partitions(start, end):
            list(reader.read(partition))
        start = end


def _word_count(words: str, counts: str) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(words).group_by(lambda _, word: word)
    grouped.count(materialized="counts").to_stream().to(counts)
    return builder.build()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_tasks(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, delivery: str
) -> None:
    words, counts = new_topic(partitions=2), new_topic(partitions=2)
    application = Streams(
        _word_count(words, counts),
        f"{words}-app",
        bootstrap_servers=broker,
        state=tmp_path,
        delivery=delivery,
    )
    driver = Driver(application)
    for partition in (0, 1):
        _produce(cluster, words, partition, *((b"k", b"w%d" % (number % 5)) for number in range(50)))
    began = driver.run()
    assert driver.read == 200  # once as words, once more behind the repartition topic
    newest = {key: serdes.LONG.read("", value) for key, value in _read(cluster, counts)}
    assert newest == {b"w%d" % number: 20 for number in range(5)}
    assert len(_read(cluster, counts)) == 100
    assert _read(cluster, f"{words}-app-counts-repartition") == []  # cleaned: everyone is past it

    driver.run(again=began)  # a batch that Spark repeats has nothing left to do
    assert driver.read == 200

    _forget_tasks()
    shutil.rmtree(application.settings.folder)  # another machine: the stores come back from the changelog
    _produce(cluster, words, 0, (b"k", b"w0"))
    driver.run()
    newest = {key: serdes.LONG.read("", value) for key, value in _read(cluster, counts)}
    assert newest[b"w0"] == 21

    committed = Groups(cluster).committed(application.settings.application)
    assert {place[0] for place in committed} == {words, f"{words}-app-counts-repartition"}
    assert sorted(found.offset for place, found in committed.items() if place[0] == words) == [50, 51]  # type: ignore[union-attr]


def test_a_task_that_another_process_continued_starts_anew(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(), new_topic()
    application = Streams(
        _word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path
    )
    driver = Driver(application)
    _produce(cluster, words, 0, (b"k", b"a"), (b"k", b"a"))
    driver.run()
    _produce(cluster, words, 0, (b"k", b"a"))
    driver.run_elsewhere()
    assert not any(runner.is_current for runner in worker._runners.values())
    _produce(cluster, words, 0, (b"k", b"a"))
    driver.run()
    assert [serdes.LONG.read("", value) for _, value in _read(cluster, counts)] == [1, 2, 3, 4]


def test_an_aborted_range_leaves_nothing(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(), new_topic()
    poison = [True]

    def checked(value: str) -> str:
        if value == "bad" and poison:
            raise ValueError("bad")
        return value

    builder = StreamsBuilder()
    builder.stream(words).map_values(checked).group_by_key().count().to_stream().to(counts)
    application = Streams(builder.build(), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    application.make_topics()
    reader = StreamsReader(packed(application.settings, application.topology), 1000)
    start = reader.initialOffset()
    _produce(cluster, words, 0, (b"k", b"good"), (b"k", b"bad"))
    (work,) = reader.partitions(start, reader.latestOffset(start, None))
    with pytest.raises(Exception, match=r"processing a record of .* at offset 1"):
        list(reader.read(work))
    assert _read(cluster, counts) == []
    poison.clear()
    settings = application.settings
    done = worker.run_work(settings, application.topology, work.work)  # type: ignore[attr-defined]
    assert done.read == 2
    assert [serdes.LONG.read("", value) for _, value in _read(cluster, counts)] == [1, 2]


def test_joins_with_tables_and_global_tables(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    orders, users, shops, out = (new_topic() for _ in range(4))
    builder = StreamsBuilder()
    table = builder.table(users)
    everywhere = builder.global_table(shops)
    stream = builder.stream(orders).join(table, lambda order, user: f"{order} by {user}")
    stream.join(everywhere, lambda order, shop: f"{order} at {shop}", key=lambda key, order: order[0]).to(out)
    _produce(cluster, users, 0, (b"u", b"Ute"), start=0)
    _produce(cluster, shops, 0, (b"1", b"Mill"))
    _produce(cluster, orders, 0, (b"u", b"1 bike"), (b"v", b"1 bike"), (b"u", b"2 bikes"))
    application = Streams(builder.build(), f"{out}-app", bootstrap_servers=broker, state=tmp_path)
    Driver(application).run()
    assert _read(cluster, out) == [(b"u", b"1 bike by Ute at Mill")]


def test_interactive_queries(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    from fastapi.testclient import TestClient

    words = new_topic(partitions=2)
    builder = StreamsBuilder()
    grouped = builder.stream(words).group_by_key()
    grouped.count(materialized="counts")
    grouped.windowed_by(TimeWindows.of_size(500).grace(1000)).count(materialized="by-window")
    grouped.windowed_by(SessionWindows.of(100).grace(1000)).count(materialized="sessions")
    application = Streams(builder.build(), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    settings = application.settings
    client = TestClient(query_app(application.topology, settings.application, settings.client))
    names = [store["name"] for store in client.get("/stores").json()["stores"]]
    assert names == ["counts", "by-window", "sessions"]
    assert client.get("/stores/counts/keys/a").status_code == 404
    _produce(cluster, words, 0, (b"a", b"x"), (b"a", b"x"), (b"b", b"x"), start=400)
    _produce(cluster, words, 1, (b"c/d", b"x"), start=600)
    driver.run()
    found = client.get("/stores/counts/keys/a").json()
    assert (found["key"], found["value"], found["timestamp"]) == ("a", 2, 401)
    assert found["offsets"].keys() == {"0", "1"}
    assert client.get("/stores/counts/keys/c/d").json()["value"] == 1
    rows = client.get("/stores/counts/keys", params={"first": "b", "limit": 5}).json()["rows"]
    assert [(row["key"], row["value"]) for row in rows] == [("b", 1), ("c/d", 1)]
    windows = client.get("/stores/by-window/windows/a").json()["windows"]
    assert windows == [{"start": 0, "end": 500, "value": 2}]
    sessions = client.get("/stores/sessions/windows/a").json()["windows"]
    assert sessions == [{"start": 400, "end": 401, "value": 2}]
    assert client.get("/stores/nothing/keys/a").status_code == 404
    assert client.get("/stores/by-window/keys/a").status_code == 400
    _produce(cluster, words, 0, (b"a", b"x"), start=402)
    driver.run()
    later = client.get("/stores/counts/keys/a").json()
    assert later["value"] == 3
    assert later["offsets"]["0"] > found["offsets"]["0"]


def test_reset_begins_anew(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(), new_topic()
    application = Streams(
        _word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path
    )
    _produce(cluster, words, 0, (b"k", b"a"))
    Driver(application).run()
    _forget_tasks()
    application.reset()
    assert not [name for name in Admin(cluster).topic_names() if name.startswith(f"{words}-app")]
    time.sleep(0.1)
    Driver(application).run()
    assert [serdes.LONG.read("", value) for _, value in _read(cluster, counts)] == [1, 1]


def test_partitions_of_internal_topics() -> None:
    builder = StreamsBuilder()
    left = builder.stream("a").select_key(lambda key, value: value)
    left.join(builder.stream("b"), lambda x, y: x, JoinWindows.of(5)).group_by(lambda k, v: v).count()
    counts = internal_partitions(builder.build(), {"a": 3, "b": 6})
    assert list(counts.values()) == [6, 6]
    builder = StreamsBuilder()
    builder.stream("a").join(builder.stream("b"), lambda x, y: x, JoinWindows.of(5)).to("c")
    with pytest.raises(TopologyError, match="same number of partitions: a 3, b 6"):
        internal_partitions(builder.build(), {"a": 3, "b": 6})


def test_wrong_delivery() -> None:
    with pytest.raises(StreamsError, match="not at_most_once"):
        Streams(Topology(), "x", delivery="at_most_once")


@pytest.mark.timeout(180)
def test_on_spark(
    spark: SparkSession, broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Start, process, stop, go on: every word is counted once."""
    words, counts = new_topic(partitions=2), new_topic(partitions=2)
    application = Streams(
        _word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path
    )
    for number in range(2):
        for partition in (0, 1):
            _produce(cluster, words, partition, *((b"k", b"w%d" % (each % 5)) for each in range(50)))
        query = application.start(spark)
        try:
            deadline = time.monotonic() + 90
            while len(_read(cluster, counts)) < 100 * (number + 1) and time.monotonic() < deadline:
                assert query.exception() is None
                time.sleep(0.2)
        finally:
            query.stop()
    newest = {key: serdes.LONG.read("", value) for key, value in _read(cluster, counts)}
    assert newest == {b"w%d" % number: 40 for number in range(5)}
    assert len(_read(cluster, counts)) == 200
