"""Groups as kafka-python uses them."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

from tests.support.waiting import wait_until

WAIT = 30


@pytest.fixture
def topic(servers: str, name: str) -> str:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(name, 4, 1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(40):
        producer.send(name, str(number).encode(), partition=number % 4)
    producer.flush(WAIT)
    producer.close()
    return name


def consumer(servers: str, group: str, *topics: str, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        **settings,
    )


class Member(threading.Thread):
    """A consumer that polls in a thread until it is told to stop."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer(servers, group, topic)
        self.values: list[bytes] = []
        self.partitions: set[int] = set()
        self._stop_asked = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            for records in self.consumer.poll(timeout_ms=100).values():
                self.values += [record.value for record in records]
            self.partitions = {each.partition for each in self.consumer.assignment()}
        self.consumer.close()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(WAIT)


@pytest.fixture
def group(servers: str, name: str, topic: str) -> Iterator[list[Member]]:
    members: list[Member] = []
    yield members
    for member in members:
        member.stop()


def settle(members: list[Member], count: int) -> None:
    def settled() -> bool:
        owned = [partition for member in members for partition in member.partitions]
        return len(owned) == count == len(set(owned)) and all(member.partitions for member in members)

    wait_until(settled, lambda: [member.partitions for member in members])


def test_two_members_share_and_one_takes_over(
    servers: str, name: str, topic: str, group: list[Member]
) -> None:
    group.append(Member(servers, name, topic))
    settle(group, 4)
    group.append(Member(servers, name, topic))
    settle(group, 4)
    group.pop(0).stop()
    settle(group, 4)


def test_commit_and_go_on(servers: str, name: str, topic: str) -> None:
    first = consumer(servers, name, topic)
    got = []

    def all_read() -> bool:
        got.extend(record for records in first.poll(timeout_ms=200).values() for record in records)
        return len(got) >= 40

    wait_until(all_read)
    assert len(got) == 40
    first.commit()
    first.close()
    second = consumer(servers, name)
    partitions = [TopicPartition(topic, number) for number in range(4)]
    assert [second.committed(each) for each in partitions] == [10] * 4
    second.assign(partitions)  # no group membership, only its offsets
    second.commit({partitions[0]: OffsetAndMetadata(3, "back", -1)})
    assert second.committed(partitions[0]) == 3
    second.close()
