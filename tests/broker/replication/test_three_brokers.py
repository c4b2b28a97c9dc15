"""Three brokers, one partition with a replica on each: what clients wrote with acks=all is everywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.replication.cluster import Cluster


def contents(cluster: Cluster, broker_id: int, topic: str, index: int = 0) -> bytes:
    log = cluster.replica(broker_id, topic, index).log
    data, offset = b"", log.start_offset
    while offset < log.end_offset:
        found = log.read(offset, 1 << 20, "end")
        data += found.read()
        offset = found.next_offset
    return data


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> dict[bytes, int]:
    """Values and the offsets under which they were acknowledged."""
    acknowledged: dict[bytes, int] = {}
    errors: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            errors.append(error)
        else:
            acknowledged[message.value()] = message.offset()

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    producer.flush(60)
    assert not errors, errors[:3]
    return acknowledged


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,  # there may be no coordinator
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            for message in consumer.consume(count - len(values), 5):
                assert message.error() is None, message.error()
                values.append(message.value())
    finally:
        consumer.close()
    return values


async def test_acknowledged_records_are_on_every_replica(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2, 3), min_insync_replicas="2")
        values = [b"value %d" % number for number in range(2000)]
        acknowledged = await asyncio.to_thread(produce, cluster.bootstrap, "t", values)
        assert sorted(acknowledged) == sorted(values)
        leader = cluster.leader("t")
        assert leader.log.high_watermark == leader.log.end_offset == 2000
        assert cluster.record("t").isr == (1, 2, 3)
        await cluster.until(
            lambda: all(cluster.replica(each, "t").log.high_watermark == 2000 for each in (2, 3))
        )
        assert contents(cluster, 2, "t") == contents(cluster, 3, "t") == contents(cluster, 1, "t")
        assert await asyncio.to_thread(consume, cluster.bootstrap, "t", 2000) == values


async def test_a_follower_of_very_many_partitions(tmp_path: Path) -> None:
    """More than one turn of the loop reads at once: leader and session go through them in slices."""
    async with Cluster(tmp_path, 2) as cluster:
        await cluster.create("many", *[(1, 2)] * 600)
        await cluster.create("t", (1, 2), min_insync_replicas="2")
        values = [b"value %d" % number for number in range(100)]
        await asyncio.to_thread(produce, cluster.bootstrap, "t", values)
        assert contents(cluster, 2, "t") == contents(cluster, 1, "t") != b""
        assert len(cluster.brokers[2].replicas.fetchers[1].follower.partitions) == 601
        await cluster.create("one-more", (1, 2), min_insync_replicas="2")
        await asyncio.to_thread(produce, cluster.bootstrap, "one-more", values)
        assert contents(cluster, 2, "one-more") == contents(cluster, 1, "one-more") != b""
