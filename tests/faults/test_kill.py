"""kill -9, again and again: nothing that was acknowledged is lost, nothing is there twice."""

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from millstream.testing import Broker
from tests.support.waiting import wait_until

WAIT = 30


def new_topic(broker: Broker, topic: str, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(WAIT)


def read_all(broker: Broker, topic: str, partition: int = 0) -> list[bytes]:
    """Everything between the two ends of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            # A broker that cannot make the topic of offsets (its disk is full) would hold up `close`.
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT)
        consumer.assign([TopicPartition(topic, partition, low)])
        values: list[bytes] = []
        deadline = time.monotonic() + WAIT
        while len(values) < high - low and time.monotonic() < deadline:
            for message in consumer.consume(min(500, high - low - len(values)), timeout=1):
                assert message.error() is None, message.error()
                values.append(message.value())
        return values
    finally:
        consumer.close()


class Writer:
    """Writes numbers until told to stop, and remembers which were acknowledged."""

    def __init__(self, broker: Broker, topic: str, partitions: int, **settings: object) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": WAIT * 1000,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                **settings,
            }
        )
        self.topic = topic
        self.partitions = partitions
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            partition = number % self.partitions
            self.producer.produce(
                self.topic,
                b"%d" % number,
                partition=partition,
                on_delivery=self._delivered(partition, number),
            )
            number += 1
            self.producer.poll(0)
            # About a thousand a second: what waits while the broker is away must fit its queue.
            time.sleep(0.0005)
        self.producer.flush(WAIT)

    def _delivered(self, partition: int, number: int) -> object:
        def report(error: object, _: object) -> None:
            if error is None:
                self.acknowledged[partition].append(number)
            else:
                self.failed.append(str(error))

        return report

    def wait_for(self, more: int) -> None:
        wanted = self.count() + more
        wait_until(lambda: self.count() >= wanted, "no progress")

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(WAIT)


def test_an_idempotent_writer_does_not_notice_three_crashes() -> None:
    with Broker() as broker:
        new_topic(broker, "numbers", 2)
        writer = Writer(broker, "numbers", 2, **{"enable.idempotence": True})
        try:
            for _ in range(3):
                writer.wait_for(300)
                broker.kill()
                broker.start()
            writer.wait_for(300)
        finally:
            writer.stop()
        assert writer.failed == []
        for partition in (0, 1):
            there = [int(value) for value in read_all(broker, "numbers", partition)]
            assert there == sorted(set(there)), "out of order, or twice"
            assert there == writer.acknowledged[partition]


def test_a_plain_writer_loses_nothing_either() -> None:
    with Broker() as broker:
        new_topic(broker, "numbers")
        writer = Writer(broker, "numbers", 1, **{"max.in.flight": 1})
        try:
            for _ in range(2):
                writer.wait_for(300)
                broker.kill()
                broker.start()
            writer.wait_for(100)
        finally:
            writer.stop()
        assert set(writer.acknowledged[0]) <= {int(value) for value in read_all(broker, "numbers")}


def test_topics_and_settings_survive(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        new_topic(broker, "kept", 3, retention_ms="123456")
        new_topic(broker, "gone")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_partitions([NewPartitions("kept", 5)])["kept"].result(WAIT)
        admin.delete_topics(["gone"])["gone"].result(WAIT)
        cluster = admin.list_topics(timeout=WAIT).cluster_id
        broker.kill()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = admin.list_topics(timeout=WAIT)
        assert topics.cluster_id == cluster
        assert {name: len(topic.partitions) for name, topic in topics.topics.items()} == {"kept": 5}
        resource = ConfigResource(ResourceType.TOPIC, "kept")
        described = admin.describe_configs([resource])[resource].result(WAIT)
        assert described["retention.ms"].value == "123456"


def test_a_clean_stop_is_clean(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        new_topic(broker, "numbers")
        writer = Writer(broker, "numbers", 1, **{"enable.idempotence": True})
        writer.wait_for(500)
        broker.restart()
        writer.wait_for(500)
        writer.stop()
        assert writer.failed == []
        there = [int(value) for value in read_all(broker, "numbers")]
        assert there == writer.acknowledged[0]


def test_a_second_broker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    from millstream.testing import BrokerFailed

    with Broker(data_dir=tmp_path), pytest.raises(BrokerFailed, match=r"(?i)lock|in use|another"):
        Broker(data_dir=tmp_path).__enter__()


def test_standing_still_for_a_while_loses_nothing() -> None:
    with Broker() as broker:
        new_topic(broker, "numbers")
        writer = Writer(broker, "numbers", 1, **{"enable.idempotence": True, "socket.timeout.ms": 1000})
        try:
            for _ in range(2):
                writer.wait_for(200)
                broker.pause()
                # Longer than the client, whose clock is its own, waits for an answer.
                time.sleep(1.5)
                broker.resume()
            writer.wait_for(200)
        finally:
            writer.stop()
        assert writer.failed == []
        there = [int(value) for value in read_all(broker, "numbers")]
        assert there == writer.acknowledged[0]
