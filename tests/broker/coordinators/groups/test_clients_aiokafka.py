"""Groups as aiokafka uses them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

WAIT = 30


@pytest.fixture
async def topic(servers: str, name: str) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 4, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    for number in range(40):
        await producer.send(name, str(number).encode(), partition=number % 4)
    await producer.stop()
    return name


class Group:
    def __init__(self, servers: str, name: str, topic: str) -> None:
        self.servers, self.name, self.topic = servers, name, topic
        self.members: list[AIOKafkaConsumer] = []

    async def add(self, **settings: Any) -> AIOKafkaConsumer:
        member = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            **settings,
        )
        await member.start()
        self.members.append(member)
        return member

    async def stop(self, member: AIOKafkaConsumer) -> None:
        self.members.remove(member)
        await member.stop()

    async def settle(self) -> None:
        async with asyncio.timeout(WAIT):
            while True:
                owned = [each for member in self.members for each in member.assignment()]
                if len(owned) == 4 == len(set(owned)) and all(m.assignment() for m in self.members):
                    return
                for member in self.members:
                    await member.getmany(timeout_ms=50)


@pytest.fixture
async def group(servers: str, name: str, topic: str) -> AsyncIterator[Group]:
    group = Group(servers, name, topic)
    yield group
    for member in list(group.members):
        await group.stop(member)


async def test_members_share_and_take_over(group: Group) -> None:
    first = await group.add()
    await group.settle()
    await group.add()
    await group.settle()
    await group.stop(first)
    await group.settle()


async def test_commit_and_go_on(group: Group, topic: str) -> None:
    first = await group.add()
    got = 0
    async with asyncio.timeout(WAIT):
        while got < 40:
            got += sum(map(len, (await first.getmany(timeout_ms=200)).values()))
    await first.commit()
    await group.stop(first)
    second = await group.add()
    await group.settle()
    for number in range(4):
        assert await second.committed(TopicPartition(topic, number)) == 10


async def test_a_static_member_keeps_its_place(group: Group) -> None:
    await group.add(group_instance_id="a")
    other = await group.add(group_instance_id="b")
    await group.settle()
    before = other.assignment()
    await group.stop(other)
    back = await group.add(group_instance_id="b")
    await group.settle()
    assert back.assignment() == before
