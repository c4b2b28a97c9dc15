"""Three brokers as processes over a real ZooKeeper, killed with -9 one after the other under an idempotent
producer with acks=all: every acknowledged record is there once, in order."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import PartitionMetadata

from tests.broker.replication.test_three_brokers import consume
from tests.broker.replication.writer import Writer
from tests.support.brokers import RunningCluster
from tests.support.waiting import wait_until
from tests.support.zookeeper import RunningZooKeeper


@pytest.fixture
def cluster(zookeeper: RunningZooKeeper) -> Iterator[RunningCluster]:
    with RunningCluster(zookeeper, settings={"replica.fetch.backoff.ms": 100}) as running:
        yield running


def partition(cluster: RunningCluster, topic: str) -> PartitionMetadata:
    alive = next(number for number, broker in cluster.brokers.items() if broker.running)
    return cluster.metadata(alive).topics[topic].partitions[0]


def logs(cluster: RunningCluster) -> str:
    return "\n".join(broker.log[-3000:] for broker in cluster.brokers.values())


def until_acknowledged(cluster: RunningCluster, writer: Writer, count: int = 200) -> None:
    target = len(writer.acknowledged) + count
    wait_until(lambda: len(writer.acknowledged) >= target, lambda: logs(cluster))


def test_leader_and_followers_are_killed_under_a_producer(cluster: RunningCluster) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    cluster.until_alive({1, 2, 3})
    assert cluster.create_topic(topic, 1, 3) is None
    writer = Writer(cluster.bootstrap_servers, topic)
    until_acknowledged(cluster, writer)
    for role in ("leader", "follower", "leader"):
        leader = partition(cluster, topic).leader
        victim = leader if role == "leader" else next(n for n in (1, 2, 3) if n != leader)
        cluster.brokers[victim].kill()
        wait_until(lambda dead=victim: dead not in partition(cluster, topic).isrs)  # type: ignore[misc]
        until_acknowledged(cluster, writer)
        cluster.brokers[victim].start()
        wait_until(lambda: len(partition(cluster, topic).isrs) == 3, lambda: logs(cluster))
        until_acknowledged(cluster, writer)
    acknowledged = writer.stop()
    assert consume(cluster.bootstrap_servers, topic, len(acknowledged)) == acknowledged
