"""MirrorMaker's connectors: names, records, and two clusters with a worker between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.groups import Committed, Groups
from millstream.connect.connectors.mirror.checkpoint_task import is_news
from millstream.connect.connectors.mirror.config import SOURCE
from millstream.connect.connectors.mirror.mirror_records import Checkpoint, Heartbeat, OffsetSync
from millstream.connect.connectors.mirror.naming import NameFilter, replication_policy
from millstream.connect.connectors.mirror.offset_syncs import MAX_PAIRS, TOO_OLD, OffsetSyncs
from millstream.connect.connectors.mirror.offsets import check_offsets
from millstream.connect.connectors.mirror.source import MirrorSource
from millstream.connect.connectors.mirror.source_task import chosen
from millstream.connect.errors import ConnectError
from millstream.testing import Broker
from millstream.testing.connect import SourceRun
from millstream.wire.topic_partition import TopicPartition as Partition
from tests.connect.test_worker import MakeWorker
from tests.support.waiting import wait_until

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
MIRROR = "org.apache.kafka.connect.mirror."


@pytest.fixture
def upstream() -> Iterator[str]:
    """Ask for it before `make_worker`: then it ends after the worker. Tasks that have lost their source hold
    up a stop for as long as they look for it."""
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap_servers


def settings(source: str, target: str, **more: str) -> dict[str, str]:
    return {
        "source.cluster.alias": "west",
        "target.cluster.alias": "east",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "header.converter": BYTES,
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def read(servers: str, topic: str, partition: int, count: int) -> list[Any]:
    """By another project's client, committed records only."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "__check",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Any] = []

    def more() -> bool:
        found.extend(one for one in consumer.consume(1000, timeout=0.5) if one.error() is None)
        return len(found) >= count

    wait_until(more, lambda: f"{len(found)} of {count} records of {topic}-{partition}")
    consumer.close()
    return found


def create(servers: str, *topics: NewTopic) -> None:
    with Cluster(ClientConfig.of(servers)) as cluster:
        for topic in topics:
            Admin(cluster).create_if_missing(topic)


def topics_of(servers: str) -> dict[str, int]:
    with Cluster(ClientConfig.of(servers)) as cluster:
        cluster.refresh()
        return {name: len(topic.partitions) for name, topic in cluster.topics.items()}


def typed(**more: str) -> dict[str, Any]:
    return SOURCE.parse(settings("a:1", "b:1", **more))


def test_names_tell_the_way_that_records_came() -> None:
    policy = replication_policy(typed())
    assert policy.remote_topic("west", "orders") == "west.orders"
    assert policy.upstream_topic("a.b.orders") == "b.orders"
    assert policy.original_topic("a.b.orders") == "orders"
    assert (policy.topic_source("orders"), policy.topic_source("west.")) == (None, None)
    assert policy.is_heartbeats_topic("a.b.heartbeats")
    assert policy.is_cycle("east.orders", "east")
    assert policy.is_cycle("west.east.orders", "east")
    assert not policy.is_cycle("north.orders", "east")
    assert policy.is_internal("west.checkpoints.internal")
    assert policy.is_internal("__consumer_offsets")
    assert policy.offset_syncs_topic("east") == "mm2-offset-syncs.east.internal"
    other = replication_policy(typed(replication_policy_separator="_"))
    assert other.remote_topic("west", "orders") == "west_orders"
    assert other.checkpoints_topic("west") == "west_checkpoints_internal"
    same = replication_policy(typed(replication_policy_class=f"{MIRROR}IdentityReplicationPolicy"))
    assert same.remote_topic("west", "orders") == "orders"
    assert same.remote_topic("west", "heartbeats") == "west.heartbeats"
    assert same.topic_source("orders") == "west"
    assert not same.is_cycle("orders", "east")


def test_excludes_count_more_than_includes() -> None:
    chosen_names = NameFilter(("orders.*", "items"), (".*-internal",))
    assert [chosen_names(name) for name in ("orders-1", "items", "items2", "orders-internal")] == [
        True,
        True,
        False,
        False,
    ]
    assert not NameFilter((), ())("a")


def test_records_are_read_as_they_were_written() -> None:
    sync = OffsetSync(Partition("t\u00e9st", 3), 10, 7)
    assert sync.key == b"\x00\x05t\xc3\xa9st\x00\x00\x00\x03"
    assert sync.value == (10).to_bytes(8, "big") + (7).to_bytes(8, "big")
    assert OffsetSync.read(sync.key, sync.value) == sync
    checkpoint = Checkpoint("g", Partition("west.t", 1), 5, 4, "note")
    assert checkpoint.key == b"\x00\x01g\x00\x06west.t\x00\x00\x00\x01"
    assert checkpoint.value == b"\x00\x00" + (5).to_bytes(8, "big") + (4).to_bytes(8, "big") + b"\x00\x04note"
    assert Checkpoint.read(checkpoint.key, checkpoint.value) == checkpoint
    assert Checkpoint.read(checkpoint.key, checkpoint.value[:12]) is None
    assert OffsetSync.read(b"\x00\x09a", sync.value) is None
    beat = Heartbeat("west", "east", 1)
    assert (beat.key, beat.value) == (b"\x00\x04west\x00\x04east", b"\x00\x00" + (1).to_bytes(8, "big"))


def test_offset_syncs_are_few_and_have_the_last_record() -> None:
    pairs = [(number, number + 5) for number in range(1000)]
    found = chosen(pairs, None, 100)
    assert (found[0], found[-1], len(found)) == ((0, 5), (999, 1004), 11)
    assert len(chosen(pairs, None, 0)) <= 17
    assert chosen(pairs[:10], 4, 100) == [(9, 14)]
    assert chosen(pairs[:1], None, 100) == [(0, 5)]


def test_offsets_that_make_no_sense_are_refused() -> None:
    where = {"cluster": "west", "topic": "t", "partition": 0}
    check_offsets(
        [{"partition": where, "offset": {"offset": 5}}], ("cluster", "topic"), partition=True, only_zero=False
    )
    for wrong, offset, text in (
        ({"topic": "t"}, {"offset": 1}, "missing the 'cluster' key"),
        (where | {"partition": -1}, {"offset": 1}, "cannot be negative"),
        (where | {"topic": 3}, {"offset": 1}, "must be a string"),
        (where, {"offset": "x"}, "must be an integer"),
        (where, {}, "missing the 'offset' key"),
    ):
        with pytest.raises(ConnectError, match=text):
            check_offsets(
                [{"partition": wrong, "offset": offset}],
                ("cluster", "topic"),
                partition=True,
                only_zero=False,
            )


def test_wrong_settings_are_named() -> None:
    found = MirrorSource.validate(settings("a:1", "b:1", topics="(", replication_policy_class="Mine"))
    assert "Invalid regex" in found["topics"].errors[0]
    assert "DefaultReplicationPolicy" in found["replication.policy.class"].errors[0]
    assert MirrorSource.validate({})["source.cluster.alias"].errors


def test_a_recreated_topic_is_read_from_its_start(upstream: str, connect_broker: str) -> None:
    create(upstream, NewTopic("again", 1, 1))
    producer = Producer({"bootstrap.servers": upstream})
    for number in range(5):
        producer.produce("again", str(number))
    producer.flush()
    run = SourceRun(MirrorSource, settings(upstream, connect_broker, topics="again"))
    assert [record.value for record in run.read(5)] == [b"0", b"1", b"2", b"3", b"4"]
    with Cluster(ClientConfig.of(upstream)) as cluster:
        Admin(cluster).delete_topics(["again"])
        wait_until(lambda: "again" not in topics_of(upstream))
        Admin(cluster).create_if_missing(NewTopic("again", 1, 1))
    producer = Producer({"bootstrap.servers": upstream})
    producer.produce("again", "new")
    producer.flush()
    assert [record.value for record in run.read(1)] == [b"new"]
    run.stop()


def test_topics_of_another_cluster(upstream: str, make_worker: MakeWorker, connect_broker: str) -> None:
    create(
        upstream,
        NewTopic("orders", 2, 1, {"cleanup.policy": "compact", "min.insync.replicas": "1"}),
        NewTopic("east.orders", 1, 1),
        NewTopic("left", 1, 1),
    )
    producer = Producer({"bootstrap.servers": upstream})
    producer.produce(
        "orders", b"v", b"k", 1, headers=[("h", b"\x00\xff"), ("n", None)], timestamp=1234567890123
    )
    producer.produce("orders", None, b"k", 1)
    for number in range(300):
        producer.produce("orders", str(number), str(number), partition=0)
    producer.produce("east.orders", "would go round")
    producer.flush()
    worker = make_worker()
    config = settings(
        upstream,
        connect_broker,
        topics="orders,east.orders,later",
        tasks_max="2",
        refresh_topics_interval_seconds="1",
        sync_topic_configs_interval_seconds="1",
    )
    config["connector.class"] = f"{MIRROR}MirrorSourceConnector"
    assert worker.http.put("/connectors/m/config", json=config).status_code == 201
    first, second = read(connect_broker, "west.orders", 1, 2)
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"v", 1234567890123)
    assert first.headers() == [("h", b"\x00\xff"), ("n", None)]
    assert (second.key(), second.value()) == (b"k", None)
    assert [one.value() for one in read(connect_broker, "west.orders", 0, 300)] == [
        str(number).encode() for number in range(300)
    ]
    assert "west.east.orders" not in topics_of(connect_broker)
    assert "west.left" not in topics_of(connect_broker)

    def kept() -> list[Any]:
        found: list[Any] = worker.http.get("/connectors/m/offsets").json()["offsets"]
        return found if len(found) == 2 else []

    offsets = {entry["partition"]["partition"]: entry for entry in wait_until(kept)}
    assert offsets[1] == {
        "partition": {"cluster": "west", "topic": "orders", "partition": 1},
        "offset": {"offset": 1},
    }
    with Cluster(ClientConfig.of(connect_broker)) as cluster:
        (entries,) = Admin(cluster).describe_configs([(2, "west.orders")]).values()
        assert isinstance(entries, list)
        assert {entry.name: entry.value for entry in entries}["cleanup.policy"] == "compact"
    # Where records stand in both clusters.
    syncs = [
        OffsetSync.read(one.key(), one.value())
        for one in read(upstream, "mm2-offset-syncs.east.internal", 0, 2)
    ]
    assert Partition("orders", 1) in {sync.topic_partition for sync in syncs if sync}
    # New topics, and partitions, are noticed.
    create(upstream, NewTopic("later", 1, 1))
    with Cluster(ClientConfig.of(upstream)) as cluster:
        Admin(cluster).create_partitions({"orders": 3})
    producer = Producer({"bootstrap.servers": upstream})  # the other one knows two partitions
    producer.produce("later", "new")
    producer.produce("orders", "third", "k", partition=2)
    producer.flush()
    assert read(connect_broker, "west.later", 0, 1)[0].value() == b"new"
    assert read(connect_broker, "west.orders", 2, 1)[0].value() == b"third"
    # Nothing came twice, though tasks began anew.
    assert len(read(connect_broker, "west.orders", 0, 300)) == 300


def test_heartbeats(upstream: str, make_worker: MakeWorker, connect_broker: str) -> None:
    worker = make_worker()
    config = settings(upstream, connect_broker) | {"connector.class": "MirrorHeartbeat"}
    assert worker.http.put("/connectors/beats/config", json=config).status_code == 201
    first, second = read(connect_broker, "heartbeats", 0, 2)[:2]
    assert first.key() == second.key() == Heartbeat("west", "east", 0).key
    assert first.value() == Heartbeat("west", "east", first.timestamp()[1]).value
    assert worker.http.get("/connectors/beats/offsets").json() == {
        "offsets": [
            {
                "partition": {"sourceClusterAlias": "west", "targetClusterAlias": "east"},
                "offset": {"offset": 0},
            }
        ]
    }


# --- checkpoints --------------------------------------------------------------------------------------------


def test_a_groups_offset_is_translated_early_but_never_late() -> None:
    syncs, which = OffsetSyncs(), Partition("orders", 0)
    assert syncs.downstream(which, 5) is None
    for upstream, downstream in ((10, 0), (20, 10), (30, 19)):
        syncs.add(OffsetSync(which, upstream, downstream))
    assert [syncs.downstream(which, at) for at in (9, 10, 11, 20, 29, 30, 1000)] == [
        TOO_OLD,
        0,
        1,
        10,
        11,
        19,
        20,
    ]
    # Records that came twice: a pair for the same record counts anew.
    syncs.add(OffsetSync(which, 30, 25))
    assert syncs.downstream(which, 30) == 25
    # The topic was made anew, on one side or the other.
    syncs.add(OffsetSync(which, 3, 26))
    assert [syncs.downstream(which, at) for at in (2, 3, 30)] == [TOO_OLD, 26, 27]


def test_old_offset_syncs_are_thinned_out() -> None:
    syncs, which = OffsetSyncs(), Partition("orders", 0)
    for number in range(10_000):
        syncs.add(OffsetSync(which, number, number))
    assert len(syncs._pairs[which]) <= MAX_PAIRS
    assert [syncs.downstream(which, at) for at in (9_999, 9_990, 0)] == [9_999, 9_990, 0]
    early = syncs.downstream(which, 5_000)
    assert early is not None
    assert 0 < early <= 5_000


def test_only_news_is_a_checkpoint() -> None:
    def checkpoint(upstream: int, downstream: int) -> Checkpoint:
        return Checkpoint("g", Partition("west.t", 0), upstream, downstream, "")

    assert is_news(None, checkpoint(5, 5))
    assert is_news(checkpoint(5, 5), checkpoint(6, 6))
    assert is_news(checkpoint(5, 5), checkpoint(4, 4))
    assert not is_news(checkpoint(5, 5), checkpoint(5, 5))
    # Syncs of the past were thinned out meanwhile: no reason to send the group back.
    assert not is_news(checkpoint(5, 5), checkpoint(5, 3))


def test_groups_go_on_in_the_other_cluster(
    upstream: str, make_worker: MakeWorker, connect_broker: str
) -> None:
    create(upstream, NewTopic("payments", 1, 1))
    # Offsets differ: the source has lost its first records.
    producer = Producer({"bootstrap.servers": upstream})
    for number in range(50):
        producer.produce("payments", str(number))
    producer.flush()
    with Cluster(ClientConfig.of(upstream)) as cluster:
        Admin(cluster).delete_records({Partition("payments", 0): 20})
        groups = Groups(cluster)
        groups.commit("readers", {Partition("payments", 0): 50}, {Partition("payments", 0): "all"})
        groups.commit("connect-other", {Partition("payments", 0): 50})
    worker = make_worker()
    shared = settings(
        upstream,
        connect_broker,
        topics="payments",
        emit_checkpoints_interval_seconds="1",
        sync_group_offsets_enabled="true",
        sync_group_offsets_interval_seconds="1",
        refresh_groups_interval_seconds="1",
    )
    for name, connector in (("m", "MirrorSourceConnector"), ("c", "MirrorCheckpointConnector")):
        config = shared | {"connector.class": f"{MIRROR}{connector}"}
        assert worker.http.put(f"/connectors/{name}/config", json=config).status_code == 201
    (first, *_) = read(connect_broker, "west.checkpoints.internal", 0, 1)
    found = Checkpoint.read(first.key(), first.value())
    assert found is not None
    assert (found.group, found.topic_partition, found.upstream) == (
        "readers",
        Partition("west.payments", 0),
        50,
    )
    # One behind the last record that was mirrored, which is all that there is.
    assert found.downstream == 30
    assert found.metadata == "all"
    there = Partition("west.payments", 0)
    with Cluster(ClientConfig.of(connect_broker)) as cluster:
        target = Groups(cluster)

        def committed(group: str) -> int | None:
            entry = target.committed(group).get(there)
            return entry.offset if isinstance(entry, Committed) else None

        wait_until(lambda: committed("readers") == 30)
        assert committed("connect-other") is None
        # A group that comes later is found, and one that has got further in the target stays there.
        target.commit("readers", {there: 31})
        with Cluster(ClientConfig.of(upstream)) as source:
            Groups(source).commit("later", {Partition("payments", 0): 50})
        wait_until(lambda: committed("later") == 30)
        assert committed("readers") == 31
    assert {
        "partition": {"group": "readers", "topic": "west.payments", "partition": 0},
        "offset": {"offset": 0},
    } in worker.http.get("/connectors/c/offsets").json()["offsets"]
