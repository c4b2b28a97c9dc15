"""Applications on a cluster: the tasks as Spark runs them, without Spark, and then with it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.client import LATEST, Cluster, list_offsets
from millstream.client.groups import Groups
from millstream.http.host_names import HostNames
from millstream.streams import (
    SessionWindows,
    Streams,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    serdes,
)
from millstream.streams.runtime.queries import query_service
from millstream.streams.runtime.topic_reader import read_ranges
from millstream.wire.murmur2 import partition_for
from tests.streams.runtime.kit import KEPT, Driver, produce, read, word_count
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_tasks(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, delivery: str
) -> None:
    words, counts = new_topic(partitions=2), new_topic(partitions=2)
    application = Streams(
        word_count(words, counts),
        f"{words}-app",
        bootstrap_servers=broker,
        state=tmp_path,
        delivery=delivery,
    )
    driver = Driver(application)
    for partition in (0, 1):
        produce(cluster, words, partition, *((b"k", b"w%d" % (number % 5)) for number in range(50)))
    driver.run()
    assert driver.read == 200  # once as words, once more behind the repartition topic
    newest = {key: serdes.LONG.read("", value) for key, value in read(cluster, counts)}
    assert newest == {b"w%d" % number: 20 for number in range(5)}
    assert len(read(cluster, counts)) == 100
    assert read(cluster, f"{words}-app-counts-repartition") == []  # cleaned: everyone is past it

    driver.run()  # there is nothing left to do
    assert (driver.read, driver.restored) == (200, 0)

    shutil.rmtree(application.settings.folder)  # another machine: the stores come back from the changelog
    produce(cluster, words, 0, (b"k", b"w0"))
    driver.run()
    newest = {key: serdes.LONG.read("", value) for key, value in read(cluster, counts)}
    assert newest[b"w0"] == 21

    committed = Groups(cluster).committed(application.settings.application)
    assert {topic_partition[0] for topic_partition in committed} == {words, f"{words}-app-counts-repartition"}
    assert sorted(
        found.offset for topic_partition, found in committed.items() if topic_partition[0] == words
    ) == [50, 51]  # type: ignore[union-attr]


@pytest.mark.parametrize(("left_partitions", "right_partitions"), [(3, 2), (2, 3)])
def test_tables_of_different_widths_are_joined_by_a_foreign_key(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    left_partitions: int,
    right_partitions: int,
) -> None:
    orders, products, out = (new_topic(partitions=n) for n in (left_partitions, right_partitions, 1))
    builder = StreamsBuilder()
    joined = builder.table(orders).left_join(
        builder.table(products), lambda order, product: f"{order}/{product}", foreign_key=lambda order: order
    )
    joined.to_stream().to(out)
    application = Streams(builder.build(), f"{orders}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    for number in range(12):
        key = b"o%d" % number
        produce(cluster, orders, partition_for(key, left_partitions), (key, b"p%d" % (number % 4)))
    driver.run()
    for number in range(3):
        key = b"p%d" % number
        produce(cluster, products, partition_for(key, right_partitions), (key, b"bike"))
    driver.run()
    newest = dict(read(cluster, out))
    for number in range(12):
        product = "bike" if number % 4 < 3 else "None"
        assert newest[b"o%d" % number] == f"p{number % 4}/{product}".encode()


def test_a_task_that_another_process_continued_starts_anew(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(), new_topic()
    application = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    produce(cluster, words, 0, (b"k", b"a"), (b"k", b"a"))
    driver.run()
    produce(cluster, words, 0, (b"k", b"a"))
    driver.run_elsewhere()
    produce(cluster, words, 0, (b"k", b"a"))
    driver.run()
    assert [serdes.LONG.read("", value) for _, value in read(cluster, counts)] == [1, 2, 3, 4]


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
    driver = Driver(application)
    produce(cluster, words, 0, (b"k", b"good"), (b"k", b"bad"))
    with pytest.raises(StreamsError, match=r"processing a record of .* at offset 1"):
        driver.run()
    assert read(cluster, counts) == []
    poison.clear()
    driver.run()
    assert [serdes.LONG.read("", value) for _, value in read(cluster, counts)] == [1, 2]


def test_joins_with_tables_and_global_tables(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    orders, users, shops, out = (new_topic() for _ in range(4))
    builder = StreamsBuilder()
    table = builder.table(users)
    everywhere = builder.global_table(shops)
    stream = builder.stream(orders).join(table, lambda order, user: f"{order} by {user}")
    stream.join(everywhere, lambda order, shop: f"{order} at {shop}", key=lambda key, order: order[0]).to(out)
    produce(cluster, users, 0, (b"u", b"Ute"), start=0)
    produce(cluster, shops, 0, (b"1", b"Mill"))
    produce(cluster, orders, 0, (b"u", b"1 bike"), (b"v", b"1 bike"), (b"u", b"2 bikes"))
    application = Streams(builder.build(), f"{out}-app", bootstrap_servers=broker, state=tmp_path)
    Driver(application).run()
    assert read(cluster, out) == [(b"u", b"1 bike by Ute at Mill")]


@pytest.mark.parametrize("records", [3, 60])  # one by one, and as a block
def test_windows_of_a_key_share_its_partition(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, records: int
) -> None:
    views, out = new_topic(), new_topic(partitions=8)
    builder = StreamsBuilder()
    windows = TimeWindows.of_size(10)
    builder.stream(views).group_by_key().windowed_by(windows).count().to_stream().to(out)
    produce(cluster, views, 0, *((b"key %d" % (number % 3), b"v") for number in range(records)))
    application = Streams(builder.build(), f"{out}-app", bootstrap_servers=broker, state=tmp_path)
    Driver(application).run()
    found = {}
    topic_partitions = {(out, partition): LATEST for partition in range(8)}
    # Kafka writes its markers after the commit is acknowledged.
    wait_until(
        lambda: (
            list_offsets(cluster, topic_partitions, read_committed=True)
            == list_offsets(cluster, topic_partitions)
        )
    )
    for partition in range(8):
        latest = list_offsets(cluster, {(out, partition): LATEST})[out, partition].offset
        for _, reads in read_ranges(cluster, {(out, partition): 0}, {(out, partition): latest}):
            for _, key, _, _, _ in reads:
                found.setdefault(key[:-8], set()).add(partition)
    assert found == {key: {partition_for(key, 8)} for key in (b"key 0", b"key 1", b"key 2")}


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
    application = Streams(
        builder.build(), f"{words}-app", bootstrap_servers=broker, state=tmp_path, config=KEPT
    )
    driver = Driver(application)
    settings = application.settings
    service = query_service(
        application.topology,
        settings.application,
        settings.client,
        tmp_path / "views",
        HostNames(["127.0.0.1"], (), setting="allowed_hosts"),
    )
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: asyncio.run(service.stop()))
        client = stack.enter_context(TestClient(service.app, "http://localhost"))
        names = [store["name"] for store in client.get("/stores").json()["stores"]]
        assert names == ["counts", "by-window", "sessions"]
        assert client.get("/stores/counts/keys/a").status_code == 404
        produce(cluster, words, 0, (b"a", b"x"), (b"a", b"x"), (b"b", b"x"), start=400)
        produce(cluster, words, 1, (b"c/d", b"x"), start=600)
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
        produce(cluster, words, 0, (b"a", b"x"), start=402)
        driver.run()
        later = client.get("/stores/counts/keys/a").json()
        assert later["value"] == 3
        assert later["offsets"]["0"] > found["offsets"]["0"]


def test_wrong_delivery() -> None:
    with pytest.raises(StreamsError, match="not at_most_once"):
        Streams(Topology(), "x", delivery="at_most_once")


@pytest.mark.timeout(180)
def test_on_spark(
    spark: SparkSession, broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Start, process, stop, go on: every word is counted once."""
    words, counts = new_topic(partitions=2), new_topic(partitions=2)
    application = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    for number in range(2):
        for partition in (0, 1):
            produce(cluster, words, partition, *((b"k", b"w%d" % (each % 5)) for each in range(50)))
        query = application.start(spark)
        try:
            wanted = 100 * (number + 1)
            wait_until(
                lambda: len(read(cluster, counts)) >= wanted or query.exception() is not None  # noqa: B023
            )
            assert query.exception() is None
        finally:
            query.stop()
    newest = {key: serdes.LONG.read("", value) for key, value in read(cluster, counts)}
    assert newest == {b"w%d" % number: 40 for number in range(5)}
    assert len(read(cluster, counts)) == 200
