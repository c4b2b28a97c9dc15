"""Groups as confluent-kafka uses them with `group.protocol=consumer`: the coordinator divides the
partitions."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing import Broker
from tests.support.waiting import wait_until

from .conftest import SETTINGS
from .test_clients_confluent import WAIT, Members


class ConsumerMembers(Members):
    """Members of the consumer protocol (KIP-848), unless told otherwise."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        super().__init__(servers, group, topic, **settings)
        for name in ("session.timeout.ms", "heartbeat.interval.ms"):
            del self.settings[name]  # the coordinator's business
        self.settings["group.protocol"] = "consumer"

    def add_classic(self, strategy: str) -> Any:
        return self.add(
            group_protocol="classic",
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=strategy,
        )


def fill(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(WAIT)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(40):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(WAIT) == 0


@pytest.fixture
def members(servers: str, name: str) -> Iterator[Callable[..., ConsumerMembers]]:
    fill(servers, name)
    made: list[ConsumerMembers] = []

    def make(topic: str = name, **settings: Any) -> ConsumerMembers:
        made.append(ConsumerMembers(servers, f"g-{name}", topic, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_partitions_are_divided_and_move(members: Callable[..., ConsumerMembers], assignor: str) -> None:
    group = members(group_remote_assignor=assignor)
    first = group.add()
    group.settle(4)
    group.add()
    group.settle(2, 2)
    group.add()
    group.settle(1, 1, 2)
    group.close(first)
    group.settle(2, 2)
    wait_until(lambda: group.poll() or len(set(group.values)) == 40, "40 records")


def test_offsets_are_committed_and_found_again(members: Callable[..., ConsumerMembers]) -> None:
    group = members()
    first = group.add()
    wait_until(lambda: group.poll() or len(group.values) == 40, "40 records")
    first.commit(asynchronous=False)
    group.close()
    group.add()
    group.settle(4)
    for _ in range(10):
        group.poll()
    assert len(group.values) == 40


def test_topics_by_expression(members: Callable[..., ConsumerMembers], servers: str, name: str) -> None:
    group = members(topic=f"^{name}.*")
    group.add()
    group.settle(4)
    fill(servers, name + "-later")
    group.settle(8)


def test_a_static_member_comes_back_to_its_partitions(members: Callable[..., ConsumerMembers]) -> None:
    group = members()
    group.add(group_instance_id="a")
    other = group.add(group_instance_id="b")
    group.settle(2, 2)
    before = {each.partition for each in other.assignment()}
    group.close(other)
    back = group.add(group_instance_id="b")
    group.settle(2, 2)
    assert {each.partition for each in back.assignment()} == before


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_new_protocol_and_back(
    members: Callable[..., ConsumerMembers], servers: str, name: str, strategy: str
) -> None:
    admin = AdminClient({"bootstrap.servers": servers})

    def kind() -> str:
        listed = admin.list_consumer_groups().result(WAIT).valid
        return next(str(each.type.name) for each in listed if each.group_id == f"g-{name}")

    group = members()
    classic = group.add_classic(strategy)
    group.settle(4)
    assert kind() == "CLASSIC"
    newer = group.add()
    group.settle(2, 2)
    assert kind() == "CONSUMER"
    group.close(newer)
    group.settle(4)
    assert kind() == "CLASSIC"
    newest = group.add()
    group.settle(2, 2)
    group.close(classic)
    group.settle(4)
    assert kind() == "CONSUMER"
    assert newest.assignment()


def test_describe(members: Callable[..., ConsumerMembers], servers: str, name: str) -> None:
    group = members()
    group.add()
    group.settle(4)
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups([f"g-{name}"])[f"g-{name}"].result(WAIT)
    assert (described.state.name, described.type.name) == ("STABLE", "CONSUMER")
    assert described.partition_assignor == "uniform"
    (member,) = described.members
    assert len(member.assignment.topic_partitions) == 4


def test_a_group_outlives_the_broker() -> None:
    with Broker(SETTINGS) as broker:
        fill(broker.bootstrap_servers, "t")
        group = ConsumerMembers(broker.bootstrap_servers, "g", "t")
        group.add()
        group.add()
        group.settle(2, 2)
        before = sorted(sorted(p.partition for p in each.assignment()) for each in group.open)
        broker.kill()
        broker.start()
        wait_until(lambda: group.poll() or len(set(group.values)) == 40, "40 records")
        group.settle(2, 2)
        assert sorted(sorted(p.partition for p in each.assignment()) for each in group.open) == before
        assert "Traceback" not in broker.log
        group.close()
