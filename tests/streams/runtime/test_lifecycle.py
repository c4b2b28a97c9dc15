"""Pausing, and listeners of an application's state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millstream.client import Cluster
from millstream.host.local import LocalHost
from millstream.streams import Processor, Record, Streams, StreamsBuilder
from millstream.streams.runtime.running import RunningStreams
from tests.streams.runtime.kit import Driver, produce, read, word_count
from tests.support.waiting import PATIENCE, wait_until


def test_pause_and_resume(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(partitions=2), new_topic()
    builder = StreamsBuilder()
    builder.stream(source).map_values(str.upper).to(target)
    application = Streams(builder.build(), f"{source}-app", bootstrap_servers=broker, state=tmp_path)
    seen: list[tuple[str, str]] = []
    with Driver(application).running() as running:
        running.set_state_listener(lambda new, old: seen.append((old, new)))
        produce(cluster, source, 0, (b"k", b"a"))
        wait_until(lambda: read(cluster, target) == [(b"k", b"A")])
        assert not running.is_paused
        running.pause()
        wait_until(lambda: not running.tasks())
        produce(cluster, source, 0, (b"k", b"b"))
        assert (running.is_paused, running.state, running.lag()) == (True, "RUNNING", 1)
        running.resume()
        wait_until(lambda: running.lag() == 0)
        assert [value for _, value in read(cluster, target)] == [b"A", b"B"]
        wait_until(lambda: running.state == "RUNNING")
        wait_until(lambda: ("REBALANCING", "RUNNING") in seen)
    wait_until(lambda: bool(seen) and seen[-1][1] == "NOT_RUNNING")
    assert seen[0][0] == "CREATED"
    running.pause()  # nothing is left that could be paused
    assert (running.is_paused, running.state) == (False, "NOT_RUNNING")
    running.resume()


def test_what_processors_count_is_summed_over_tasks(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    class Counted(Processor):
        def process(self, record: Record) -> None:
            self.context.metrics.record("length", len(record.value))
            self.context.commit()

    source = new_topic(partitions=2)
    builder = StreamsBuilder()
    builder.stream(source).process(Counted)
    application = Streams(builder.build(), f"{source}-app", bootstrap_servers=broker, state=tmp_path)
    produce(cluster, source, 0, (b"k", b"a"), (b"k", b"abc"))
    produce(cluster, source, 1, (b"k", b"ab"))
    with Driver(application).running() as running:
        wait_until(lambda: running.metrics().get("length.count") == 3)
        assert running.metrics() == {"length.count": 3, "length.total": 6, "length.max": 3}


def test_a_listener_that_raises_is_called_again(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source = new_topic()
    builder = StreamsBuilder()
    builder.stream(source).for_each(lambda _key, _value: None)
    application = Streams(builder.build(), f"{source}-app", bootstrap_servers=broker, state=tmp_path)
    states: list[str] = []

    def listen(new: str, _old: str) -> None:
        states.append(new)
        raise ValueError("not today")

    with Driver(application).running() as running:
        running.set_state_listener(listen)
        wait_until(lambda: "RUNNING" in states)
    wait_until(lambda: states[-1] == "NOT_RUNNING")


def test_available_now_ends_when_all_is_processed(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Through a repartition topic, and again with what came since."""
    words, counts = new_topic(partitions=2), new_topic()
    application = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    application.make_topics()
    for number in range(1, 3):
        for partition in range(2):
            produce(cluster, words, partition, *[(b"", b"%d" % word) for word in range(50)])
        host = LocalHost()
        try:
            running = RunningStreams(application, host, available_now=True)
            assert running.awaitTermination(PATIENCE)
        finally:
            host.close()
        assert (running.state, application.lag()) == ("NOT_RUNNING", 0)
        assert len(read(cluster, counts)) == 100 * number
    host = LocalHost()
    try:
        assert RunningStreams(application, host, available_now=True).awaitTermination(PATIENCE)
    finally:
        host.close()
