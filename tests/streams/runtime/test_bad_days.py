"""What goes wrong around an application: full disks, new partitions, a broker that stays away, clocks."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.host.local import LocalHost
from millstream.streams import Streams, StreamsBuilder, serdes
from millstream.streams.runtime import running as running_module
from millstream.streams.runtime.running import RunningStreams
from millstream.streams.stores.lmdb import StoreFolder
from millstream.testing import Broker
from tests.streams.runtime.kit import Driver, produce, read, word_count
from tests.support.waiting import wait_until


def test_stores_that_reach_their_limit(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(), new_topic()
    streams = Streams(
        word_count(words, counts),
        f"{words}-app",
        bootstrap_servers=broker,
        state=tmp_path,
        config={"millstream.state.max.bytes": 1 << 20},
    )
    numbers = itertools.count()

    def failed() -> bool:
        produce(cluster, words, 0, *((b"k", b"%d " % next(numbers) * 50) for _ in range(500)))
        return running.exception() is not None

    with Driver(streams).running() as running:
        wait_until(failed, interval=0.2)
        text = str(running.exception())
    assert "have reached their limit of 1,048,576 bytes in" in text
    assert "millstream.state.max.bytes" in text


def test_a_disk_that_is_full_for_a_while(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words, counts = new_topic(), new_topic()
    streams = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    commit, full = StoreFolder.commit, [2]

    def failing(folder: StoreFolder, position: bytes | None = None) -> None:
        if position is not None and full[0]:
            full[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        commit(folder, position)

    monkeypatch.setattr(StoreFolder, "commit", failing)
    produce(cluster, words, 0, *((b"k", b"w") for _ in range(10)))
    driver = Driver(streams)
    with driver.running() as running:
        wait_until(lambda: full[0] == 0 and running.state == "RUNNING" and running.lag() == 0)
        assert running.exception() is None
    found = [serdes.LONG.read("", value) for _, value in read(cluster, counts)]
    assert found == list(range(1, 11))


def test_partitions_are_added_while_it_runs(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_module, "LOOK_EVERY", 0.1)
    source, target = new_topic(partitions=1), new_topic()
    builder = StreamsBuilder()
    builder.stream(source).to(target)
    streams = Streams(builder.build(), f"{source}-app", bootstrap_servers=broker, state=tmp_path)
    produce(cluster, source, 0, (b"k", b"0"))
    with Driver(streams).running() as running:
        wait_until(lambda: running.lag() == 0)
        Admin(cluster).create_partitions({source: 3})
        wait_until(lambda: len(Admin(cluster).describe_topics([source])[source].partitions) == 3)
        cluster.refresh([source])
        produce(cluster, source, 2, (b"k", b"2"))
        wait_until(lambda: running.tasks().keys() == {"0_0", "0_1", "0_2"})
        wait_until(lambda: running.state == "RUNNING" and running.lag() == 0)
    assert [value for _, value in read(cluster, target)] == [b"0", b"2"]


def test_a_broker_that_is_away_for_longer_than_a_transaction_may_take(tmp_path: Path) -> None:
    """Its coordinator has aborted what was open and fenced the tasks; they begin that work again."""
    settings = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    with Broker(settings) as broker, Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
        Admin(cluster).create_topics([NewTopic("words", 2, 1), NewTopic("counts", 1, 1)])
        cluster.wait_for_topics(["words", "counts"])
        streams = Streams(
            word_count("words", "counts"),
            "away",
            bootstrap_servers=broker.bootstrap_servers,
            client={"request.timeout.ms": "1000", "default.api.timeout.ms": "2000"},
            state=tmp_path,
            config={"transaction.timeout.ms": 1000},
        )
        with Driver(streams).running() as running:
            for number in range(6):
                produce(cluster, "words", number % 2, *((b"k", b"w") for _ in range(50)))
                if number == 2:
                    wait_until(lambda: running.tasks()["0_0"].status.read > 0)
                    broker.pause()
                    time.sleep(2.5)  # real time: what is under test is the broker's timeout
                    broker.resume()
            wait_until(lambda: running.state == "RUNNING" and running.lag() == 0)
            assert running.exception() is None
        found = [serdes.LONG.read("", value) for _, value in read(cluster, "counts")]
        assert found == list(range(1, 301))


@pytest.mark.parametrize("hours", [-48, 48])
def test_clocks_that_jump(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    """Leases, pauses and intervals go by a clock that does not."""
    words, counts = new_topic(), new_topic()
    streams = Streams(word_count(words, counts), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    streams.make_topics()
    host = LocalHost()
    running = RunningStreams(streams, host)
    try:
        produce(cluster, words, 0, (b"k", b"w"))
        wait_until(lambda: running.state == "RUNNING" and running.lag() == 0)
        before = {name: task.lane for name, task in running.tasks().items()}
        really = time.time
        monkeypatch.setattr(time, "time", lambda: really() + hours * 3600)
        produce(cluster, words, 0, (b"k", b"w"))
        wait_until(lambda: running.lag() == 0)
        assert {name: task.lane for name, task in running.tasks().items()} == before
    finally:
        running.stop()
        host.close()
    assert [serdes.LONG.read("", value) for _, value in read(cluster, counts)] == [1, 2]
