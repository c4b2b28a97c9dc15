"""Consumers of another rack read from a follower in theirs (KIP-392)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition

from millstream.broker.replication.replica_selector import preferred_replica, selects_by_rack
from millstream.broker.replication.replica_tracker import ReplicaTracker
from millstream.cluster.metadata_records import Partition
from tests.broker.replication.cluster import Cluster
from tests.broker.replication.test_three_brokers import produce

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Alive(NamedTuple):
    rack: str | None
    draining: bool = False


BROKERS = {1: Alive("a"), 2: Alive("b"), 3: Alive("b"), 4: Alive("c"), 5: Alive("d", draining=True)}


def tracker(**ends: int) -> ReplicaTracker:
    record = Partition(UUID(int=1), 0, (1, 2, 3, 4, 5), (1, 2, 3, 5), 1, 5, 7)
    made = ReplicaTracker(1, record, 0, 0.0)
    for name, end in {"b2": 90, "b3": 100, "b4": 100, "b5": 100, **ends}.items():
        made.fetched(int(name[1:]), 10, end, 20, 100, 0.0)
    return made


@pytest.mark.parametrize(
    ("rack", "offset", "replica"),
    [
        ("a", 50, -1),  # the leader's own
        ("b", 50, 3),  # of two, the one that has more
        ("b", 100, 3),
        ("b", 101, -1),  # nobody has that
        ("b", 10, -1),  # nor that, any more
        ("c", 50, -1),  # not in sync
        ("d", 50, -1),  # about to stop
        ("e", 50, -1),  # nobody is there
    ],
)
def test_who_is_preferred(rack: str, offset: int, replica: int) -> None:
    assert preferred_replica(tracker(), BROKERS, rack, offset) == replica


def test_the_rule_goes_by_the_name_of_kafkas_class() -> None:
    assert selects_by_rack(RACK_AWARE)
    assert not selects_by_rack("")
    assert not selects_by_rack("org.apache.kafka.common.replica.LeaderSelector")


def consume_from(bootstrap: str, rack: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            for message in consumer.consume(count - len(values), 5):
                assert message.error() is None, message.error()
                values.append(message.value())
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("selector", [RACK_AWARE, ""])
async def test_a_consumer_reads_from_the_follower_of_its_rack(tmp_path: Path, selector: str) -> None:
    async with Cluster(tmp_path, replica_selector_class=selector) as cluster:
        await cluster.create("t", (1, 2, 3))
        values = [b"%d" % number for number in range(3000)]
        await asyncio.to_thread(produce, cluster.bootstrap, "t", values)
        reading = asyncio.create_task(asyncio.to_thread(consume_from, cluster.bootstrap, "r3", 3010))
        await cluster.until(lambda: sum(cluster.replica(n, "t").bytes_out for n in (1, 2, 3)) > 0)
        more = [b"more %d" % number for number in range(10)]
        await asyncio.to_thread(produce, cluster.bootstrap, "t", more)
        assert await reading == values + more
        served = [number for number in (1, 2, 3) if cluster.replica(number, "t").bytes_out]
        assert served == ([3] if selector else [1])
