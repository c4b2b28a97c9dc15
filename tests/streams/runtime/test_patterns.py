"""Sources with a pattern: topics that come and go while the application runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Admin, Cluster, NewTopic
from millstream.streams import Streams, StreamsBuilder, serdes
from millstream.streams.runtime import running, unit
from tests.streams.runtime.kit import Driver, produce, read
from tests.support.waiting import wait_until


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(running, "LOOK_EVERY", 0.05)


def _new(cluster: Cluster, name: str, partitions: int) -> None:
    Admin(cluster).create_topics([NewTopic(name, partitions, -1)])
    cluster.wait_for_topics([name])


def test_topics_that_match_later_are_read_too(
    looks_often: None, broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    out = new_topic()
    builder = StreamsBuilder()
    builder.stream(re.compile(f"{out}-in-.*")).map_values(lambda value: value.upper()).to(out)
    application = Streams(builder.build(), f"{out}-app", bootstrap_servers=broker, state=tmp_path)
    first, wider = f"{out}-in-1", f"{out}-in-0"
    with Driver(application).running() as running_streams:
        assert running_streams.lag() == 0
        _new(cluster, first, 1)
        produce(cluster, first, 0, (b"k", b"a"))
        wait_until(lambda: read(cluster, out) == [(b"k", b"A")])
        _new(cluster, wider, 2)  # a second task, and another input of the first one
        produce(cluster, wider, 0, (b"k", b"b"))
        produce(cluster, wider, 1, (b"k", b"c"))
        wait_until(lambda: sorted(read(cluster, out)) == [(b"k", b"A"), (b"k", b"B"), (b"k", b"C")])
        Admin(cluster).delete_topics([first])
        produce(cluster, wider, 0, (b"k", b"d"))
        wait_until(lambda: len(read(cluster, out)) == 4)
    produce(cluster, wider, 0, (b"k", b"e"))
    Driver(application).run()
    assert [value for _, value in read(cluster, out)].count(b"B") == 1
    assert len(read(cluster, out)) == 5
    Admin(cluster).delete_topics([wider])


def test_a_table_whose_topic_is_its_changelog(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """On another machine it is restored from the topic, no further than that was processed."""
    table, asks, out = new_topic(), new_topic(), new_topic()
    builder = StreamsBuilder()
    rows = builder.table(table, materialized="rows")
    builder.stream(asks).join(rows, lambda ask, row: f"{ask} {row}").to(out)
    rows.group_by(lambda _, value: ("all", value)).count(materialized="counts").to_stream().to(
        f"{out}-counts", value=serdes.LONG
    )
    _new(cluster, f"{out}-counts", 1)
    topology = builder.build({"topology.optimization": "all"})
    name = f"{table}-app"
    produce(cluster, table, 0, (b"a", b"1"), (b"b", b"2"))
    produce(cluster, asks, 0, (b"a", b"is"), start=2000)
    for machine in ("one", "two", "one"):
        application = Streams(topology, name, bootstrap_servers=broker, state=tmp_path / machine)
        Driver(application).run()
        produce(cluster, table, 0, (b"a", f"from {machine}".encode()), (b"b", None), (b"b", b"3"), start=3000)
        produce(cluster, asks, 0, (b"a", b"was"), (b"b", b"was"), start=4000)
    Driver(application).run()
    found = [value for _, value in read(cluster, out)]
    assert found == [b"is 1", b"was from one", b"was 3", b"was from two", b"was 3", b"was from one", b"was 3"]
    # Had a restore gone too far, the old row that is taken out of the count would be the new one.
    counts = [serdes.LONG.read("", value) for _, value in read(cluster, f"{out}-counts")]
    assert counts[-1] == 2
    assert f"{name}-rows-changelog" not in Admin(cluster).topic_names()
    Admin(cluster).delete_topics([f"{out}-counts"])
