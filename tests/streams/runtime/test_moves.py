"""Tasks that move: to more processes, to another machine, back again. No count is lost and none is made
twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import LATEST, Admin, Cluster, list_offsets
from millstream.streams import Streams, StreamsBuilder, Topology, serdes
from tests.streams.runtime.kit import Driver, produce, read, word_count

WORDS, RECORDS = 7, 280


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_other_parallelism_and_another_machine(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, delivery: str
) -> None:
    words, counts = new_topic(partitions=4), new_topic(partitions=2)

    def feed() -> None:
        for number in range(4):
            produce(cluster, words, number, *((b"k", b"w%d" % (n % WORDS)) for n in range(RECORDS // 4)))

    def application(machine: str) -> Streams:
        return Streams(
            word_count(words, counts),
            f"{words}-app",
            bootstrap_servers=broker,
            state=tmp_path / machine,
            delivery=delivery,
        )

    feed()
    Driver(application("one")).run()  # one process
    elsewhere = Driver(application("two"), machines=["here"] * 3)  # without the stores of before
    for _ in range(3):
        feed()
        elsewhere.run()
    assert elsewhere.read == 2 * 3 * RECORDS  # once as words, once more behind the repartition topic
    feed()
    last = Driver(application("one"))  # whose stores are those of long ago
    last.run()
    assert last.read == 2 * RECORDS
    assert application("one").lag() == 0
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    for word, count in read(cluster, counts):
        seen[word].append(serdes.LONG.read("", count))
    assert len(seen) == WORDS
    for found in seen.values():
        assert found == list(range(1, 5 * RECORDS // WORDS + 1))


def test_a_partitioner_is_told_how_many_partitions_there_are(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic(partitions=3)
    topology = Topology().add_source("in", source)
    topology.add_sink("out", target, "in", partitioner=lambda topic, key, value, count: count - 1)
    produce(cluster, source, 0, (b"k", b"a"), (b"k", b"b"))
    application = Streams(topology, f"{source}-app", bootstrap_servers=broker, state=tmp_path)
    Driver(application).run()
    ends = list_offsets(cluster, {(target, number): LATEST for number in range(3)})
    assert [ends[target, number].offset for number in range(3)][:2] == [0, 0]
    assert ends[target, 2].offset >= 2


def test_records_that_were_deleted_before_they_were_read(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The group is at offset 1; what was behind it until 3 is gone."""
    source, target = new_topic(), new_topic()
    builder = StreamsBuilder()
    builder.stream(source).to(target)
    driver = Driver(Streams(builder.build(), f"{source}-app", bootstrap_servers=broker, state=tmp_path))
    produce(cluster, source, 0, (b"k", b"0"))
    driver.run()
    produce(cluster, source, 0, (b"k", b"1"), (b"k", b"2"), (b"k", b"3"))
    Admin(cluster).delete_records({(source, 0): 3})
    driver.run()
    assert [value for _, value in read(cluster, target)] == [b"0", b"3"]
