"""Mirroring between a cluster of ours and one of Apache Kafka's, both ways: records, settings of topics,
and groups that go on. The worker belongs to the target, as with MirrorMaker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.groups import Committed, Groups
from millstream.testing import Broker
from millstream.wire.topic_partition import TopicPartition as Partition
from tests.connect.conftest import Worker
from tests.connect.test_mirror import MIRROR, create, read, settings
from tests.support.peers import apache_kafka
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka
RECORDS = 300


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    # One partition keeps the internal topics cheap.
    cheap = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with apache_kafka().ApacheKafka(settings=cheap) as started:
        yield started.bootstrap


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("source_is_kafka", [True, False])
def test_a_mirror_between_two_kinds_of_clusters(source_is_kafka: bool, kafka: str, ours: str) -> None:
    source, target = (kafka, ours) if source_is_kafka else (ours, kafka)
    create(source, NewTopic("orders", 2, 1, {"cleanup.policy": "compact"}))
    producer = Producer({"bootstrap.servers": source, "compression.type": "lz4"})
    for number in range(RECORDS):
        headers = [("h", b"\x00\xff"), ("n", None)]
        producer.produce(
            "orders", f"v{number}", f"k{number}", 0, headers=headers, timestamp=1_600_000_000_000
        )
    producer.produce("orders", None, "k", 1)
    producer.flush()
    with Cluster(ClientConfig.of(source)) as cluster:
        Groups(cluster).commit("readers", {Partition("orders", 0): RECORDS})
    worker = Worker(
        {"bootstrap.servers": target, "group.id": "mirror", "key.converter": "StringConverter",
         "value.converter": "StringConverter"},
        {what: f"mirror-{what}" for what in ("config", "offset", "status")},
    )  # fmt: skip
    try:
        every_second = {
            "emit_checkpoints_interval_seconds": "1",
            "sync_group_offsets_enabled": "true",
            "sync_group_offsets_interval_seconds": "1",
            "refresh_groups_interval_seconds": "1",
            "sync_topic_configs_interval_seconds": "1",
        }
        shared = settings(source, target, topics="orders", **every_second)
        for name, connector in (("m", "MirrorSourceConnector"), ("c", "MirrorCheckpointConnector")):
            config = shared | {"connector.class": f"{MIRROR}{connector}"}
            assert worker.http.put(f"/connectors/{name}/config", json=config).status_code == 201
        found = read(target, "west.orders", 0, RECORDS)
        assert [(one.key(), one.value()) for one in found] == [
            (f"k{number}".encode(), f"v{number}".encode()) for number in range(RECORDS)
        ]
        assert found[0].headers() == [("h", b"\x00\xff"), ("n", None)]
        assert found[0].timestamp()[1] == 1_600_000_000_000
        assert read(target, "west.orders", 1, 1)[0].value() is None
        with Cluster(ClientConfig.of(target)) as cluster:
            (entries,) = Admin(cluster).describe_configs([(2, "west.orders")]).values()
            assert isinstance(entries, list)
            assert {entry.name: entry.value for entry in entries}["cleanup.policy"] == "compact"
            there = Partition("west.orders", 0)

            def committed() -> int | None:
                entry = Groups(cluster).committed("readers").get(there)
                return entry.offset if isinstance(entry, Committed) else None

            wait_until(lambda: committed() == RECORDS, lambda: f"the group is at {committed()}")
    finally:
        worker.stop()
