"""Groups as confluent-kafka (librdkafka) uses them: the classic protocol."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.waiting import wait_until

WAIT = 30


class Members:
    """Consumers of one group, polled in turn."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.topic = topic
        self.open: list[Consumer] = []
        self.values: list[bytes] = []

    def add(self, **settings: Any) -> Consumer:
        extra = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = Consumer({**self.settings, **extra})
        consumer.subscribe([self.topic])
        self.open.append(consumer)
        return consumer

    def poll(self) -> None:
        for consumer in self.open:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())

    def shares(self) -> list[int]:
        self.poll()
        return sorted(len(consumer.assignment()) for consumer in self.open)

    def settle(self, *shares: int) -> None:
        wait_until(lambda: self.shares() == sorted(shares), f"shares {shares}, now {self.shares()}")
        owned = [(p.topic, p.partition) for consumer in self.open for p in consumer.assignment()]
        assert len(set(owned)) == len(owned), "a partition has two owners"

    def close(self, consumer: Consumer | None = None) -> None:
        for each in [consumer] if consumer is not None else list(self.open):
            self.open.remove(each)
            each.close()


@pytest.fixture
def topic(servers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(WAIT)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(40):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(WAIT) == 0
    return name


@pytest.fixture
def members(servers: str, name: str, topic: str) -> Iterator[Callable[..., Members]]:
    made: list[Members] = []

    def make(**settings: Any) -> Members:
        made.append(Members(servers, f"g-{name}", topic, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_divided_and_move(members: Callable[..., Members], strategy: str) -> None:
    group = members(partition_assignment_strategy=strategy)
    first = group.add()
    group.settle(4)
    group.add()
    group.settle(2, 2)
    group.add()
    group.settle(1, 1, 2)
    group.close(first)
    group.settle(2, 2)


def test_everything_is_read_once_over_a_rebalance(members: Callable[..., Members]) -> None:
    group = members(enable_auto_commit=True, auto_commit_interval_ms=50)
    first = group.add()
    wait_until(lambda: group.poll() or len(group.values) >= 10, "10 records")
    first.commit(asynchronous=False)
    group.add()
    wait_until(lambda: group.poll() or len(set(group.values)) == 40, "all records")


def test_committed_offsets_are_where_the_next_one_goes_on(
    members: Callable[..., Members], topic: str
) -> None:
    group = members()
    first = group.add()
    wait_until(lambda: group.poll() or len(group.values) == 40, "40 records")
    first.commit(asynchronous=False)
    group.close()
    second = group.add()
    group.settle(4)
    committed = second.committed([TopicPartition(topic, number) for number in range(4)], WAIT)
    assert [each.offset for each in committed] == [10] * 4
    for _ in range(10):
        group.poll()
    assert len(group.values) == 40


def test_a_static_member_comes_back_to_its_partitions(members: Callable[..., Members]) -> None:
    group = members()
    group.add(group_instance_id="a")
    other = group.add(group_instance_id="b")
    group.settle(2, 2)
    before = {each.partition for each in other.assignment()}
    group.close(other)
    back = group.add(group_instance_id="b")
    group.settle(2, 2)
    assert {each.partition for each in back.assignment()} == before


def test_a_second_consumer_of_the_same_instance_fences_the_first(members: Callable[..., Members]) -> None:
    group = members()
    first = group.add(group_instance_id="a")
    group.settle(4)
    second = members().add(group_instance_id="a")
    with pytest.raises(KafkaException) as problem:
        wait_until(lambda: second.poll(0.05) and first.poll(0.05), "fenced")
        first.commit(asynchronous=False)
    assert "FENCED" in problem.value.args[0].name() or problem.value.args[0].fatal()


def test_administration(servers: str, members: Callable[..., Members], topic: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    group = members()
    consumer = group.add()
    group.settle(4)
    wait_until(lambda: group.poll() or len(group.values) == 40, "40 records")
    consumer.commit(asynchronous=False)
    group_id = f"g-{name}"
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(WAIT).valid}
    assert listed[group_id].state.name == "STABLE"
    described = admin.describe_consumer_groups([group_id])[group_id].result(WAIT)
    assert described.state.name == "STABLE"
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert len(member.assignment.topic_partitions) == 4
    group.close()
    (offsets,) = (
        future.result(WAIT)
        for future in admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)]).values()
    )
    assert {(each.topic, each.partition): each.offset for each in offsets.topic_partitions} == {
        (topic, number): 10 for number in range(4)
    }
    moved = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 3)])
    (changed,) = (future.result(WAIT) for future in admin.alter_consumer_group_offsets([moved]).values())
    assert changed.topic_partitions[0].error is None
    admin.delete_consumer_groups([group_id])[group_id].result(WAIT)
    assert group_id not in {each.group_id for each in admin.list_consumer_groups().result(WAIT).valid}


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_in_a_transaction(servers: str, topic: str, name: str, commit: bool) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"g-{name}"})
    where = [TopicPartition(topic, 0)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    producer.produce(topic, b"out", partition=1)
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), WAIT
    )
    if commit:
        producer.commit_transaction(WAIT)
    else:
        producer.abort_transaction(WAIT)
    expected = 7 if commit else 3
    wait_until(lambda: consumer.committed(where, WAIT)[0].offset == expected, f"offset {expected}")
    consumer.close()
