"""Three brokers and a real ZooKeeper: they find each other, lose each other, and come back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing import Broker, BrokerFailed
from tests.support.brokers import RunningCluster
from tests.support.waiting import wait_until
from tests.support.zookeeper import RunningZooKeeper


@pytest.fixture
def cluster(zookeeper: RunningZooKeeper) -> Iterator[RunningCluster]:
    with RunningCluster(zookeeper) as running:
        yield running


@pytest.fixture
def long_sessions(zookeeper: RunningZooKeeper) -> Iterator[RunningCluster]:
    """Whose end comes later than anything else, however busy the machine is."""
    with RunningCluster(zookeeper, settings={"zookeeper.session.timeout.ms": 60_000}) as running:
        yield running


def epoch_of(broker: Broker) -> int:
    """The last epoch with which it says that it registered again; 0 for none."""
    lines = [line for line in broker.log.splitlines() if "registered again, with epoch" in line]
    return int(lines[-1].split("epoch ")[1].split('"')[0]) if lines else 0


def test_a_topic_made_at_one_broker_is_known_to_all(cluster: RunningCluster) -> None:
    cluster.until_alive({1, 2, 3})
    topic = f"t-{uuid.uuid4().hex[:8]}"
    assert cluster.create_topic(topic, 6, number=2) is None
    for number in cluster.brokers:
        wait_until(lambda number=number: topic in cluster.metadata(number).topics)  # type: ignore[misc]
        partitions = cluster.metadata(number).topics[topic].partitions.values()
        assert {partition.leader for partition in partitions} == {1, 2, 3}
        assert all(sorted(partition.replicas) == [1, 2, 3] for partition in partitions)
    assert len({broker.log.split("cluster.id=")[1].split()[0] for broker in cluster.brokers.values()}) == 1


def test_the_controller_is_killed_and_returns(long_sessions: RunningCluster) -> None:
    """The others do not wait for the end of its session: they give the refusal as their reason."""
    cluster = long_sessions
    topic = f"t-{uuid.uuid4().hex[:8]}"
    assert cluster.create_topic(topic) is None
    first = cluster.controller()
    cluster.brokers[first].kill()
    others = {1, 2, 3} - {first}
    cluster.until_alive(others)
    assert cluster.controller() in others
    log = "".join(cluster.brokers[number].log for number in others)
    assert f"broker {first} refuses connections: it is no longer the controller" in log
    assert f"broker {first} refuses connections: it is taken for dead" in log

    def led() -> bool:
        return all(
            {partition.leader for partition in cluster.metadata(number).topics[topic].partitions.values()}
            <= others
            for number in others
        )

    wait_until(led)
    cluster.brokers[first].start()
    cluster.until_alive({1, 2, 3})
    assert cluster.controller() in others


def test_a_killed_follower_of_the_controller_is_noticed_by_its_listener(
    long_sessions: RunningCluster,
) -> None:
    """Long before its session ends: the test only says that the controller's reason was the refusal."""
    cluster = long_sessions
    controller = cluster.controller()
    victim = min({1, 2, 3} - {controller})
    cluster.brokers[victim].kill()
    cluster.until_alive({1, 2, 3} - {victim})
    assert f"broker {victim} refuses connections" in cluster.brokers[controller].log
    # Back before the old session has ended: the node of its earlier life is in the way, and is its own.
    cluster.brokers[victim].start()
    cluster.until_alive({1, 2, 3})


def test_a_paused_broker_loses_its_session_and_registers_again(cluster: RunningCluster) -> None:
    victim = min({1, 2, 3} - {cluster.controller()})
    broker = cluster.brokers[victim]
    pid = broker.pid
    broker.pause()
    others = {number: other for number, other in cluster.brokers.items() if number != victim}

    def gone() -> bool:
        return all(set(cluster.metadata(number).brokers) == others.keys() for number in others)

    wait_until(gone)
    broker.resume()
    wait_until(lambda: epoch_of(broker) > 0, lambda: broker.log)
    cluster.until_alive({1, 2, 3})
    assert broker.running and broker.pid == pid


def test_zookeeper_goes_away_and_comes_back(tmp_path: Path) -> None:
    with RunningZooKeeper(tmp_path) as zookeeper, RunningCluster(zookeeper, 2) as cluster:
        cluster.until_alive({1, 2})
        zookeeper.kill()
        wait_until(lambda: "no connection to ZooKeeper" in cluster.brokers[1].log)
        assert set(cluster.metadata(1).brokers) == {1, 2}  # what is known stays known
        zookeeper.start()
        topic = "after"

        def created() -> bool:
            return cluster.create_topic(topic, 1, 2) is None or topic in cluster.metadata(1).topics

        wait_until(created)
        assert all(broker.running for broker in cluster.brokers.values())


def test_a_stopping_broker_hands_over_what_it_leads(cluster: RunningCluster) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    assert cluster.create_topic(topic, 6) is None
    victim = cluster.controller()
    cluster.brokers[victim].stop()
    assert cluster.brokers[victim].returncode == 0
    assert "other brokers lead what this one led" in cluster.brokers[victim].log
    others = {1, 2, 3} - {victim}
    cluster.until_alive(others)
    for number in others:
        partitions = cluster.metadata(number).topics[topic].partitions.values()
        assert {partition.leader for partition in partitions} <= others


# Who may not join


def test_two_brokers_with_one_id(cluster: RunningCluster) -> None:
    second = cluster.make(2)
    try:
        with pytest.raises(BrokerFailed, match="broker id 2 is registered by another running broker"):
            second.start()
    finally:
        second.close()
    cluster.until_alive({1, 2, 3})


def test_ids_are_generated_and_kept(zookeeper: RunningZooKeeper) -> None:
    settings = {"zookeeper.connect": zookeeper.chroot(), "zookeeper.session.timeout.ms": 6000}
    with Broker(settings) as one, Broker({**settings, "broker.id": -1}) as two:
        assert ["node.id=1001" in one.log, "node.id=1002" in two.log] == [True, True]
        one.stop()
        one.start()
        assert one.log.count("node.id=1001") == 2


def test_a_folder_of_another_cluster(zookeeper: RunningZooKeeper, tmp_path: Path) -> None:
    settings = {"zookeeper.session.timeout.ms": 6000}
    with Broker({**settings, "zookeeper.connect": zookeeper.chroot()}, data_dir=tmp_path):
        pass
    elsewhere = zookeeper.chroot()
    with Broker({**settings, "zookeeper.connect": elsewhere}):
        pass
    stranger = Broker({**settings, "zookeeper.connect": elsewhere}, data_dir=tmp_path)
    with pytest.raises(BrokerFailed, match="the data folder belongs to cluster"):
        stranger.start()
    stranger.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"zookeeper.connect": "127.0.0.1:1"}, "no connection to ZooKeeper at 127.0.0.1:1 within 1 s"),
        ({"zookeeper.connect": "not a port:x"}, "is not host:port"),
        ({"zookeeper.connect": "127.0.0.1:1", "zookeeper.set.acl": "true"}, "millstream.zookeeper.digest"),
        (
            {"zookeeper.connect": "127.0.0.1:1", "zookeeper.session.timeout.ms": "5"},
            "zookeeper.session.timeout.ms",
        ),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], message: str) -> None:
    broker = Broker({"zookeeper.connection.timeout.ms": 1000, **settings})
    with pytest.raises(BrokerFailed, match=message):
        broker.start()
    broker.close()


def test_a_broker_that_was_alone_brings_its_topics(zookeeper: RunningZooKeeper, tmp_path: Path) -> None:
    with Broker({"broker.id": 1}, data_dir=tmp_path) as alone:
        admin = AdminClient({"bootstrap.servers": alone.bootstrap_servers})
        topic = NewTopic("kept", 2, 1, config={"retention.ms": "123456789"})
        admin.create_topics([topic])["kept"].result(60)
        producer = Producer({"bootstrap.servers": alone.bootstrap_servers})
        producer.produce("kept", b"value", partition=1)
        assert producer.flush(60) == 0
        cluster_id = alone.log.split("cluster.id=")[1].split()[0]
    connect = zookeeper.chroot()
    settings = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": 6000,
        "offsets.topic.replication.factor": 1,
    }
    with Broker({**settings, "broker.id": 1}, data_dir=tmp_path) as first:
        with Broker({**settings, "broker.id": 2}) as second:
            for broker in (first, second):
                metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(
                    timeout=60
                )
                assert metadata.cluster_id == cluster_id
                assert [p.leader for p in metadata.topics["kept"].partitions.values()] == [1, 1]
            consumer = Consumer(
                {
                    "bootstrap.servers": second.bootstrap_servers,
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            consumer.assign([TopicPartition("kept", 1, 0)])
            message = wait_until(lambda: consumer.poll(1))
            assert message.value() == b"value"
            consumer.close()
        first.stop()
        first.start()  # and nothing is brought along twice
        assert not (tmp_path / "millstream-metadata").exists()
