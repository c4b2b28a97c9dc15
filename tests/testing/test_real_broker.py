"""The test kit with the real broker: what a user's first test does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.client import Admin, ClientConfig, Cluster
from millstream.testing import Broker

from .test_broker import wait_until_gone

WAIT = 20


def write(broker: Broker, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": WAIT * 1000})
    producer.produce("first", value)
    assert producer.flush(WAIT) == 0


def read(broker: Broker, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition("first", 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=WAIT)]
    finally:
        consumer.close()


def test_write_restart_read(tmp_path: Path) -> None:
    with Broker({"num.partitions": 1}, data_dir=tmp_path) as broker:
        write(broker, b"before")
        broker.restart()
        write(broker, b"between")
        broker.kill()
        broker.start()
        assert read(broker, 2) == [b"before", b"between"]
        assert broker.log.count("ready") == 3
    assert broker.returncode == 0
    assert (tmp_path / "first-0").is_dir()


def test_two_brokers_are_two_clusters() -> None:
    with Broker() as one, Broker({"auto.create.topics.enable": False}) as other:
        assert one.port != other.port
        write(one, b"here")
        topics = Producer({"bootstrap.servers": other.bootstrap_servers}).list_topics(timeout=WAIT)
        assert "first" not in topics.topics


def test_the_real_broker_ends_with_its_parent() -> None:
    code = "from millstream.testing import Broker; b = Broker().start(); print(b.pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        wait_until_gone(pid)


def test_the_fixture(millstream_broker: Broker) -> None:
    write(millstream_broker, b"by the fixture")
    assert read(millstream_broker, 1) == [b"by the fixture"]


def test_groups_do_not_wait_unless_told_to() -> None:
    name = "group.initial.rebalance.delay.ms"

    def delay(broker: Broker) -> str | None:
        with Cluster(ClientConfig.of(broker.bootstrap_servers)) as cluster:
            (found,) = Admin(cluster).describe_configs([(4, "1")]).values()
        assert isinstance(found, list)
        return next(entry.value for entry in found if entry.name == name)

    with Broker() as usual, Broker({name: 3000}) as patient:
        assert (delay(usual), delay(patient)) == ("100", "3000")
