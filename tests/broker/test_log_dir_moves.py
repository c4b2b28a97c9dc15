"""AlterReplicaLogDirs with a broker of two data folders: under load, throttled, over restarts and kill -9,
given up, and refused; and by other people's client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.client import ClientConfig, Cluster
from millstream.client.admin import BROKER, SET, NewTopic
from millstream.client.cluster_admin import ClusterAdmin, Replica, ReplicaFolders
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode
from tests.support.waiting import wait_until

TOPIC = "moving"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "one"), str(tmp_path / "two")]


@pytest.fixture
def broker(folders: list[str]) -> Iterator[Broker]:
    with Broker({"log.dirs": ",".join(folders), "node.id": "1"}) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[ClusterAdmin]:
    with Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
        yield ClusterAdmin(cluster)


def replica(partition: int = 0) -> Replica:
    return Replica(TOPIC, partition, 1)


def where(admin: ClusterAdmin, partition: int = 0) -> ReplicaFolders:
    return admin.replica_folders([replica(partition)])[replica(partition)]


def other(folders: list[str], admin: ClusterAdmin) -> str:
    current = where(admin).current
    assert current in folders
    return folders[1 - folders.index(current)]


def create(admin: ClusterAdmin, **configs: str) -> None:
    topic = NewTopic(TOPIC, 1, 1, {name.replace("_", "."): value for name, value in configs.items()})
    admin.create_if_missing(topic)


def produce(broker: Broker, count: int, size: int = 1000, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(TOPIC, f"{number} {'x' * size}".encode())
        producer.poll(0)
    assert producer.flush(60) == 0


def numbers(broker: Broker, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []

    def more() -> bool:
        for message in consumer.consume(min(5000, count - len(found)), 0.5):
            assert message.error() is None
            found.append(int(message.value().split()[0]))
        return len(found) >= count

    wait_until(more)
    consumer.close()
    return found


def throttle(admin: ClusterAdmin, rate: int) -> None:
    assert admin.alter_configs({(BROKER, "1"): [(THROTTLE, SET, str(rate))]}) == {(BROKER, "1"): None}


def test_a_move_under_load(broker: Broker, admin: ClusterAdmin, folders: list[str]) -> None:
    create(admin, segment_bytes="1048576")
    produce(broker, 3000)
    target = other(folders, admin)
    writer = threading.Thread(target=produce, args=(broker, 6000, 1000, 3000))
    writer.start()
    assert admin.alter_replica_log_dirs({replica(): target}) == {replica(): None}
    wait_until(lambda: where(admin) == ReplicaFolders(target, None, -1))
    writer.join()
    assert numbers(broker, 9000) == list(range(9000))
    back = other(folders, admin)
    assert admin.alter_replica_log_dirs({replica(): back}) == {replica(): None}
    wait_until(lambda: where(admin) == ReplicaFolders(back, None, -1))
    broker.restart()
    assert numbers(broker, 9000) == list(range(9000))


def test_the_copy_is_shown_and_survives_a_stop_and_a_kill(
    broker: Broker, admin: ClusterAdmin, folders: list[str]
) -> None:
    create(admin)
    produce(broker, 8000)
    throttle(admin, 1)  # a piece of a megabyte at each start, and then no more
    target = other(folders, admin)
    assert admin.alter_replica_log_dirs({replica(): target}) == {replica(): None}
    moving = wait_until(lambda: where(admin) if 0 < where(admin).lag < 8000 else None)
    assert moving.future == target and moving.current != target
    broker.restart()
    assert wait_until(lambda: where(admin)).future == target
    broker.kill()
    broker.start()
    assert wait_until(lambda: where(admin)).future == target
    throttle(admin, 1 << 30)
    wait_until(lambda: where(admin) == ReplicaFolders(target, None, -1))
    assert numbers(broker, 8000) == list(range(8000))


def test_a_move_is_given_up(broker: Broker, admin: ClusterAdmin, folders: list[str]) -> None:
    create(admin)
    produce(broker, 500)
    throttle(admin, 1)
    target = other(folders, admin)
    current = where(admin).current
    assert current is not None
    assert admin.alter_replica_log_dirs({replica(): target}) == {replica(): None}
    assert admin.alter_replica_log_dirs({replica(): target}) == {replica(): None}  # once more is the same
    assert where(admin).future == target
    assert admin.alter_replica_log_dirs({replica(): current}) == {replica(): None}
    assert where(admin) == ReplicaFolders(current, None, -1)
    wait_until(lambda: not any("moving" in path.name for path in Path(target).iterdir()))


def test_a_topic_that_is_deleted_on_the_way(broker: Broker, admin: ClusterAdmin, folders: list[str]) -> None:
    create(admin)
    produce(broker, 500)
    throttle(admin, 1)
    target = other(folders, admin)
    assert admin.alter_replica_log_dirs({replica(): target}) == {replica(): None}
    assert admin.delete_topics([TOPIC]) == {TOPIC: None}
    assert [folder.sizes for folder in admin.describe_log_dirs()] == [{}, {}]
    create(admin)
    produce(broker, 5)
    assert where(admin).future is None
    assert numbers(broker, 5) == list(range(5))


def test_what_is_refused(admin: ClusterAdmin, folders: list[str]) -> None:
    create(admin)
    ghost = Replica("ghost", 0, 1)
    # the name of a copy under way would be longer than a file's may be
    long = Replica("l" * 249, 0, 1)
    admin.create_if_missing(NewTopic(long.topic, 1, 1))
    answers = admin.alter_replica_log_dirs(
        {replica(): "/no/such", ghost: folders[0], replica(7): folders[0], long: folders[0]}
    )
    codes = {which: error.code if error else None for which, error in answers.items()}
    assert codes == {
        replica(): ErrorCode.log_dir_not_found,
        ghost: ErrorCode.unknown_topic_or_partition,
        replica(7): ErrorCode.unknown_topic_or_partition,
        long: ErrorCode.invalid_topic_exception,
    }


def test_a_replica_that_comes_later_goes_to_its_folder(admin: ClusterAdmin, folders: list[str]) -> None:
    """Asked for before the topic exists; by itself the broker would fill both folders evenly."""
    meant = {replica(index): folders[1] for index in range(4)}
    codes = {error.code for error in admin.alter_replica_log_dirs(meant).values() if error is not None}
    assert codes == {ErrorCode.unknown_topic_or_partition}
    admin.create_if_missing(NewTopic(TOPIC, 4, 1))
    for index in range(4):
        assert where(admin, index) == ReplicaFolders(folders[1], None, -1)
    # It is remembered for one life of the partition.
    assert admin.delete_topics([TOPIC]) == {TOPIC: None}
    admin.create_if_missing(NewTopic(TOPIC, 4, 1))
    assert {where(admin, index).current for index in range(4)} == set(folders)
