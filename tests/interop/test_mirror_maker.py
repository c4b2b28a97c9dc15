"""MirrorMaker's connectors on Apache Kafka's worker, and ours: the same clusters, the same settings, and what
stands in the topics afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.groups import Committed, Groups
from millstream.connect.connectors.mirror.mirror_records import Checkpoint, OffsetSync
from millstream.testing import Broker
from millstream.wire.topic_partition import TopicPartition as Partition
from tests.connect.conftest import Worker
from tests.connect.test_mirror import MIRROR, create, settings, topics_of
from tests.interop.test_connect import Ask, JavaWorker, ask_ours, maven_class_path
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop_slow
RECORDS = 300
CONNECTORS = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
OWN = ("mm-", "__")
"""Topics of the worker and of the broker."""
EVERY_SECOND = {
    f"{what}_interval_seconds": "1"
    for what in (
        "emit_checkpoints",
        "sync_group_offsets",
        "refresh_groups",
        "refresh_topics",
        "emit_heartbeats",
    )
}


class Clusters(NamedTuple):
    source: str
    target: str


@pytest.fixture
def made() -> Iterator[Callable[[], Clusters]]:
    brokers: list[Any] = []

    def make() -> Clusters:
        both = [Broker({"group.initial.rebalance.delay.ms": 0}) for _ in range(2)]
        brokers.extend(both)
        return Clusters(*(broker.__enter__().bootstrap_servers for broker in both))

    yield make
    for broker in brokers:
        broker.__exit__(None, None, None)


def fill(source: str) -> None:
    create(source, NewTopic("orders", 2, 1, {"cleanup.policy": "compact", "max.message.bytes": "2000000"}))
    create(source, NewTopic("others", 1, 1, {"retention.ms": "86400000"}))
    create(source, NewTopic("unwanted", 1, 1))
    producer = Producer({"bootstrap.servers": source, "compression.type": "lz4"})
    for number in range(RECORDS):
        headers = [("h", b"\x00\xff"), ("n", None)]
        stamp = 1_600_000_000_000 + number
        producer.produce("orders", f"v{number}", f"k{number}", number % 2, headers=headers, timestamp=stamp)
        producer.produce("others", f"{number}", None, 0, timestamp=stamp)
    producer.produce("orders", None, "gone", 1, timestamp=1_600_000_000_000)
    producer.flush()
    with Cluster(ClientConfig.of(source)) as cluster:
        groups = Groups(cluster)
        groups.commit("readers", {Partition("orders", 0): RECORDS // 2}, {Partition("orders", 0): "all"})
        groups.commit("slow", {Partition("others", 0): 7})
        groups.commit("console-consumer-1", {Partition("others", 0): 9})


def committed(target: str, group: str) -> dict[Partition, int]:
    with Cluster(ClientConfig.of(target)) as cluster:
        entries = Groups(cluster).committed(group)
        return {which: one.offset for which, one in entries.items() if isinstance(one, Committed)}


def records(servers: str, topic: str) -> list[Any]:
    """All that stand in a topic now."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "__check", "enable.auto.commit": False})
    found: list[Any] = []
    for partition in range(topics_of(servers)[topic]):
        where = Assigned(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(where)
        consumer.assign([where])
        while consumer.position([where])[0].offset < end:
            found += [one for one in consumer.consume(1000, timeout=0.3) if one.error() is None]
    consumer.close()
    return found


def newest(servers: str, topic: str) -> dict[bytes, bytes]:
    return {one.key(): one.value() for one in records(servers, topic)}


def mirrored(ask: Ask, clusters: Clusters) -> dict[str, Any]:
    """The three connectors run until everything has arrived; then what there is."""
    shared = settings(
        *clusters,
        topics="orders,others",
        sync_group_offsets_enabled="true",
        offset_lag_max="100",
        **EVERY_SECOND,
    )
    for connector in CONNECTORS:
        config = shared | {"connector.class": f"{MIRROR}{connector}", "name": connector, "tasks.max": "1"}
        assert ask("PUT", f"/connectors/{connector}/config", config).status_code == 201
    target = clusters.target

    def complete() -> bool:
        there = topics_of(target)
        return {"west.orders", "west.others", "west.checkpoints.internal", "heartbeats"} <= there.keys() and (
            len(records(target, "west.orders")) == RECORDS + 1
            and len(records(target, "west.others")) == RECORDS
            and len(records(target, "heartbeats")) > 1
            and bool(committed(target, "readers"))
            and bool(committed(target, "slow"))
        )

    wait_until(complete, patience=90)
    copied = {topic: records(target, topic) for topic in ("west.orders", "west.others")}
    # Offsets count the ends of transactions too, and those are as many as they are: records are compared.
    at = {
        (one.topic(), one.partition(), one.offset()): one
        for one in [*copied["west.orders"], *copied["west.others"]]
    }
    up = {
        (topic, one.partition(), one.offset()): one
        for topic in ("orders", "others")
        for one in records(clusters.source, topic)
    }

    def same_record(upstream: tuple[str, int, int], downstream: tuple[str, int, int]) -> bool:
        source, copy = up.get(upstream), at.get(downstream)
        return (
            source is not None
            and copy is not None
            and (source.key(), source.value()) == (copy.key(), copy.value())
        )

    syncs = {}
    for key, value in newest(clusters.source, "mm2-offset-syncs.east.internal").items():
        sync = OffsetSync.read(key, value)
        assert sync is not None and sync.key == key and sync.value == value
        which = sync.topic_partition
        syncs[key] = (
            sync.upstream,
            same_record((*which, sync.upstream), (f"west.{which.topic}", which.partition, sync.downstream)),
        )
    checkpoints = {}
    for key, value in newest(target, "west.checkpoints.internal").items():
        one = Checkpoint.read(key, value)
        assert one is not None and one.key == key and one.value == value
        checkpoints[key] = (one.upstream, one.metadata)
    with Cluster(ClientConfig.of(target)) as cluster:
        names = sorted(name for name in topics_of(target) if not name.startswith(OWN))
        described = Admin(cluster).describe_configs([(2, name) for name in names])
    return {
        "source": sorted(name for name in topics_of(clusters.source) if not name.startswith(OWN)),
        "target": {name: count for name, count in topics_of(target).items() if not name.startswith(OWN)},
        "settings": {
            name: {entry.name: entry.value for entry in entries if entry.name in SETTINGS}
            for (_, name), entries in described.items()
        },
        "records": {
            topic: sorted(
                map(
                    repr,
                    (
                        (one.partition(), one.key(), one.value(), one.headers(), one.timestamp())
                        for one in found
                    ),
                )
            )
            for topic, found in copied.items()
        },
        "heartbeats": {
            (one.key(), len(one.value()), one.value()[:2]) for one in records(target, "heartbeats")
        },
        "syncs": syncs,
        "checkpoints": checkpoints,
        "groups": sorted(
            group for group in ("readers", "slow", "console-consumer-1") if committed(target, group)
        ),
    }


SETTINGS = ("cleanup.policy", "max.message.bytes", "retention.ms", "compression.type", "segment.bytes")


def test_the_same_as_mirror_maker(
    made: Callable[[], Clusters], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    class_path = maven_class_path(tmp_path_factory.mktemp("mirror"), "-Pmirror")
    found = {}
    for side in ("java", "ours"):
        clusters = made()
        fill(clusters.source)
        if side == "java":
            java = JavaWorker(class_path, clusters.target, "mm", tmp_path)
            java.start()
            ask, stop = java.ask, java.stop
        else:
            worker = Worker(
                {
                    "bootstrap.servers": clusters.target,
                    "group.id": "mm",
                    "key.converter": "StringConverter",
                    "value.converter": "StringConverter",
                },
                {what: f"mm-{what}" for what in ("config", "offset", "status")},
            )
            ask, stop = ask_ours(worker), worker.stop
        try:
            found[side] = mirrored(ask, clusters)
        finally:
            stop()
    theirs = found["java"]
    assert theirs["groups"] == ["readers", "slow"]
    assert len(theirs["checkpoints"]) == 2
    assert len(theirs["syncs"]) == 3 and all(same for _, same in theirs["syncs"].values())
    for what, expected in theirs.items():
        assert found["ours"][what] == expected, what
