"""Standby copies: on another machine, current, and taken over without a restore."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Cluster
from millstream.host.local import LocalHost
from millstream.streams import Streams, StreamsBuilder, serdes
from millstream.streams.runtime import unit as unit_module
from millstream.streams.runtime.global_tables import GlobalTables
from millstream.streams.runtime.running import RunningStreams
from tests.streams.runtime.kit import Driver, produce, read, word_count
from tests.support.waiting import wait_until

WORDS, RECORDS = 5, 100


def test_a_machine_is_lost_and_its_tasks_go_on_from_the_copies(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(partitions=2), new_topic()

    def feed() -> None:
        for number in range(2):
            produce(cluster, words, number, *((b"k", b"w%d" % (n % WORDS)) for n in range(RECORDS // 2)))

    streams = Streams(
        word_count(words, counts),
        f"{words}-app",
        bootstrap_servers=broker,
        state=tmp_path / "{machine}",
        config={"num.standby.replicas": 1},
    )
    streams.make_topics()
    feed()
    host = LocalHost(machines=("one", "two", "three"))
    running = RunningStreams(streams, host)
    try:
        wait_until(lambda: running.state == "RUNNING" and running.lag() == 0)
        wait_until(lambda: _current(host, running.name))
        assert sum(copy.status.restored for copy in host.standby_states(running.name).values()) > 0
        tasks = running.tasks()
        stateful = [name for name in tasks if f"{name}~1" in host.standby_states(running.name)]
        lost = tasks[stateful[0]].machine
        assert lost is not None
        moved = [name for name in stateful if tasks[name].machine == lost]
        host.lanes.lose(lost)
        wait_until(lambda: all(task.machine != lost for task in running.tasks().values()))
        feed()
        wait_until(lambda: running.state == "RUNNING" and running.lag() == 0)
        assert [running.tasks()[name].status.restored for name in moved] == [0] * len(moved)
        assert {copy.machine for copy in host.standby_states(running.name).values()} <= {
            "one",
            "two",
            "three",
        } - {lost}
        assert running.exception() is None
    finally:
        running.stop()
        host.close()
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    for word, count in read(cluster, counts):
        seen[word].append(serdes.LONG.read("", count))
    assert len(seen) == WORDS
    for found in seen.values():
        assert found == list(range(1, 2 * RECORDS // WORDS + 1))
    assert len(list(tmp_path.iterdir())) == 3
    streams.reset()
    assert [list(folder.iterdir()) for folder in tmp_path.iterdir()] == [[], [], []]


def _current(host: LocalHost, application: str) -> bool:
    """All copies run and have everything. A unit is told of its machine only while it has one."""
    copies = host.standby_states(application)
    tasks = host.states(application)
    return bool(copies) and all(
        copy.state == "running"
        and copy.status.restored > 0
        and copy.status.lag == 0
        and copy.machine != tasks[name.partition("~")[0]].machine
        for name, copy in copies.items()
    )


def test_global_tables_are_read_once_per_process(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prices, orders, out = new_topic(), new_topic(partitions=4), new_topic()
    made: list[GlobalTables] = []
    closed: list[GlobalTables] = []

    class Counted(GlobalTables):
        def __init__(self, *arguments: object) -> None:
            made.append(self)
            super().__init__(*arguments)  # type: ignore[arg-type]

        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(unit_module, "GlobalTables", Counted)
    builder = StreamsBuilder()
    table = builder.global_table(prices)
    joined = builder.stream(orders).join(
        table, lambda order, price: f"{order} {price}", key=lambda key, order: order
    )
    joined.to(out)
    produce(cluster, prices, 0, (b"apple", b"2"), (b"pear", b"3"))
    for number in range(4):
        produce(cluster, orders, number, (b"k", b"apple"), (b"k", b"pear"))
    streams = Streams(builder.build(), f"{orders}-app", bootstrap_servers=broker, state=tmp_path)
    Driver(streams, machines=("here", "here", "here")).run()
    assert sorted(value or b"" for _, value in read(cluster, out)) == [b"apple 2"] * 4 + [b"pear 3"] * 4
    assert len(made) == 1
    assert closed == made
