"""Timers, and what tasks know of time: without records, across batches, from one process to the next."""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Cluster
from millstream.streams import (
    WALL_CLOCK,
    Context,
    Processor,
    Record,
    Streams,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    key_value_store,
    serdes,
)
from millstream.streams.runtime.task_config import TaskMetadata
from tests.streams.runtime.kit import KEPT, Driver, produce, read
from tests.support.waiting import wait_until


class Ticking(Processor):
    """Counts its ticks in a store, and sends the count."""

    def init(self, context: Context) -> None:
        self.ticks = context.store("ticks")
        context.schedule(50, WALL_CLOCK, self.tick)

    def tick(self, now: int) -> None:
        count = (self.ticks.get("count") or 0) + 1
        self.ticks.put("count", count)
        self.context.forward(Record(f"p{self.context.partition}", count, now))

    def process(self, record: Record) -> None:
        raise ValueError("there are no records")


def _ticking(source: str, target: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.add_store(key_value_store("ticks", value=serdes.LONG))
    builder.stream(source).process(Ticking, stores=["ticks"]).to(target, value=serdes.LONG)
    return builder


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_timers_fire_without_records_wherever_the_task_is(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, delivery: str
) -> None:
    source, target = new_topic(partitions=2), new_topic()
    application = Streams(
        _ticking(source, target).build(),
        f"{source}-app",
        bootstrap_servers=broker,
        state=tmp_path,
        delivery=delivery,
    )
    driver = Driver(application)
    counts: dict[bytes | None, list[int]] = {}

    def ticked(often: int) -> bool:
        counts.clear()
        for key, value in read(cluster, target):
            counts.setdefault(key, []).append(serdes.LONG.read("", value))
        return len(counts) == 2 and min(map(len, counts.values())) >= often

    for often in (1, 2, 4, 6):
        with driver.running():
            wait_until(lambda often=often: ticked(often), "no tick")  # type: ignore[misc]
        if often == 2:  # another machine
            shutil.rmtree(application.settings.folder)
    ticked(6)
    assert counts.keys() == {b"p0", b"p1"}
    for found in counts.values():
        assert found == list(range(1, len(found) + 1)) and len(found) >= 4
    assert driver.read == 0


def test_a_timer_that_fails(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    class Failing(Processor):
        def init(self, context: Context) -> None:
            context.schedule(1, WALL_CLOCK, self.tick)

        def tick(self, now: int) -> None:
            raise ValueError("no time")

    source = new_topic()
    builder = StreamsBuilder()
    builder.stream(source).process(Failing)
    application = Streams(builder.build(), f"{source}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    with driver.running() as running, pytest.raises(StreamsError, match=r"a timer at .* no time"):
        running.awaitTermination(60)
    application.settings.errors.processing = "continue"
    with driver.running() as running:
        wait_until(lambda: running.tasks()["0_0"][3].commits > 2, "the timer does not go on")


def test_what_windows_know_of_time_goes_with_the_task(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """As if the task had never moved: what is late stays late, and a closed window is sent once."""
    source, final, late = new_topic(), new_topic(), new_topic()
    builder = StreamsBuilder()
    windows = builder.stream(source).group_by_key().windowed_by(TimeWindows.of_size(100).grace(0))
    windows.emit_final().count().to_stream(lambda windowed, _: windowed.key).to(final)
    windows.count().to_stream(lambda windowed, _: windowed.key).to(late)
    application = Streams(
        builder.build(),
        f"{source}-app",
        bootstrap_servers=broker,
        state=tmp_path,
        config={"millstream.emit.interval.ms": 0, **KEPT},
    )
    driver = Driver(application)
    produce(cluster, source, 0, (b"a", b"x"), (b"a", b"x"), start=10)
    produce(cluster, source, 0, (b"b", b"x"), start=150)
    driver.run()
    assert [key for key, _ in read(cluster, final)] == [b"a"]
    assert [key for key, _ in read(cluster, late)] == [b"a", b"a", b"b"]
    for again in range(2):
        if again:
            shutil.rmtree(application.settings.folder)
        produce(cluster, source, 0, (b"a", b"late"), start=20)
        produce(cluster, source, 0, (b"b", b"x"), start=160)
        driver.run()
    assert [key for key, _ in read(cluster, final)] == [b"a"]
    assert [key for key, _ in read(cluster, late)] == [b"a", b"a", b"b", b"b", b"b"]


def test_topics_are_merged_by_time_across_batches(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """One topic is ten times denser than the other: a batch of as many records of each would be far from the
    order of time."""
    dense, sparse, out = new_topic(), new_topic(), new_topic()
    produce(cluster, dense, 0, *((b"k", b"%d" % number) for number in range(1000)), start=0)
    for number in range(0, 1000, 10):
        produce(cluster, sparse, 0, (b"k", b"%d" % number), start=number)
    builder = StreamsBuilder()
    builder.stream(dense).merge(builder.stream(sparse)).to(out)
    application = Streams(builder.build(), f"{out}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    driver.run()
    found = [int(value or b"") for _, value in read(cluster, out)]
    assert len(found) == 1100
    assert found == sorted(found)


def test_a_topic_to_be_read_from_its_end(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, out = new_topic(), new_topic()
    produce(cluster, source, 0, (b"k", b"old"))
    builder = StreamsBuilder()
    builder.stream(source, reset="latest").to(out)
    application = Streams(builder.build(), f"{out}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    with driver.running() as running:
        wait_until(lambda: running.state == "RUNNING")
    produce(cluster, source, 0, (b"k", b"new"))  # the end of then is not the end of now
    driver.run()
    assert read(cluster, out) == [(b"k", b"new")]


def test_a_topic_to_be_read_from_some_time_ago(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, out = new_topic(partitions=2), new_topic()
    now, day = int(time.time() * 1000), 86_400_000
    produce(cluster, source, 0, (b"k", b"of long ago"), start=now - 10 * day)
    produce(cluster, source, 0, (b"k", b"of late"), start=now)
    produce(cluster, source, 1, (b"k", b"of long ago"), start=now - 10 * day)  # and nothing since: its end
    builder = StreamsBuilder()
    builder.stream(source, reset=datetime.timedelta(days=1)).to(out)
    application = Streams(builder.build(), f"{out}-app", bootstrap_servers=broker, state=tmp_path)
    driver = Driver(application)
    driver.run()
    assert read(cluster, out) == [(b"k", b"of late")]
    produce(cluster, source, 1, (b"k", b"old, but new here"), start=now - 10 * day)
    driver.run()
    assert read(cluster, out) == [(b"k", b"of late"), (b"k", b"old, but new here")]


def test_memory_of_somebody_else() -> None:
    for text in ("", "text", "{}", "[]", "[2,1,[]]", "null"):
        assert TaskMetadata.decode(text) == TaskMetadata(None, [])
    assert TaskMetadata.decode(TaskMetadata(5, [[1], []]).encode()) == TaskMetadata(5, [[1], []])
    assert TaskMetadata.decode(TaskMetadata(5, [[1 << 60] * 500]).encode()) == TaskMetadata(5, [])
