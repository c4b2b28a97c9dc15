"""Other people's transactional producers, and consumers that read committed records only."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from tests.support.waiting import wait_until_async

from .raw_transactions import Client, name

WAIT = 20.0


# ------------------------------------------------------------------ confluent-kafka


def confluent_producer(bootstrap: str, txn: str, **config: Any) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": txn, "linger.ms": 1}
    return Producer(settings | {key.replace("_", "."): value for key, value in config.items()})


@contextlib.contextmanager
def confluent_consumer(bootstrap: str, group: str, isolation: str = "read_committed") -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_all(
    bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed"
) -> list[bytes]:
    """Every record a consumer sees up to the end, partition after partition."""
    found = []
    with confluent_consumer(bootstrap, name("group"), isolation) as consumer:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(WAIT)
                assert message is not None, "no end of the partition"
                if message.error() is not None:
                    break  # the end of the partition
                found.append(message.value())
    return found


def test_confluent_commits_and_aborts(client: Client, bootstrap: str) -> None:
    topic = client.topic(3)
    producer = confluent_producer(bootstrap, name("txn"))
    producer.init_transactions(WAIT)
    expected = set()
    for number in range(20):
        producer.begin_transaction()
        values = {b"%d-%d" % (number, n) for n in range(50)}
        for n, value in enumerate(sorted(values)):
            producer.produce(topic, value, partition=n % 3)
        if number % 3 == 2:
            producer.abort_transaction(WAIT)
        else:
            producer.commit_transaction(WAIT)
            expected |= values
    found = read_all(bootstrap, topic, 3)
    assert len(found) == len(expected)
    assert set(found) == expected
    everything = read_all(bootstrap, topic, 3, "read_uncommitted")
    assert set(found) <= set(everything)


def test_confluent_sees_nothing_of_an_open_transaction(client: Client, bootstrap: str) -> None:
    topic = client.topic()
    producer = confluent_producer(bootstrap, name("txn"))
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(WAIT)
    assert read_all(bootstrap, topic) == []
    assert read_all(bootstrap, topic, isolation="read_uncommitted") == [b"open"]
    producer.commit_transaction(WAIT)
    assert read_all(bootstrap, topic) == [b"open"]


def test_confluent_zombies_are_fenced(client: Client, bootstrap: str) -> None:
    topic, txn = client.topic(), name("txn")
    zombie = confluent_producer(bootstrap, txn)
    zombie.init_transactions(WAIT)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush(WAIT)
    successor = confluent_producer(bootstrap, txn)
    successor.init_transactions(WAIT)
    successor.begin_transaction()
    successor.produce(topic, b"successor")
    successor.commit_transaction(WAIT)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(WAIT)
    assert fenced.value.args[0].fatal()
    assert read_all(bootstrap, topic) == [b"successor"]


def test_confluent_consume_transform_produce(client: Client, bootstrap: str) -> None:
    """Offsets are committed in the transaction: after an abort the input is read again, the output is there
    once."""
    source, target, group = client.topic(), client.topic(), name("group")
    feeder = Producer({"bootstrap.servers": bootstrap})
    for n in range(100):
        feeder.produce(source, b"%d" % n)
    feeder.flush(WAIT)
    producer = confluent_producer(bootstrap, name("txn"))
    producer.init_transactions(WAIT)
    with confluent_consumer(bootstrap, group) as consumer:
        consumer.assign([TopicPartition(source, 0, 0)])
        done, attempt = 0, 0
        while done < 100:
            producer.begin_transaction()
            batch = [m for m in consumer.consume(10, WAIT) if m.error() is None]
            for message in batch:
                producer.produce(target, b"out-" + message.value())
            at = [TopicPartition(source, 0, done + len(batch))]
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), WAIT)
            attempt += 1
            if attempt % 3 == 0:
                producer.abort_transaction(WAIT)
                consumer.seek(TopicPartition(source, 0, done))
            else:
                producer.commit_transaction(WAIT)
                done += len(batch)
            committed = consumer.committed([TopicPartition(source, 0)], WAIT)[0].offset
            assert committed == (done or -1001)
    assert read_all(bootstrap, target) == [b"out-%d" % n for n in range(100)]


# ------------------------------------------------------------------ aiokafka


async def aio_read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        partition = AioPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        found = []
        while len(found) < count:
            record = await asyncio.wait_for(consumer.getone(), WAIT)
            found.append(record.value)
        more = await consumer.getmany(timeout_ms=300)
        return found + [record.value for records in more.values() for record in records]
    finally:
        await consumer.stop()


async def test_aiokafka_commits_aborts_and_fences(client: Client, bootstrap: str) -> None:
    topic, txn = client.topic(), name("txn")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=txn)
    await producer.start()
    successor = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=txn)
    try:
        for number in range(6):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        assert await aio_read(bootstrap, topic, 3) == [b"0", b"2", b"4"]
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"zombie")
        await successor.start()
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        async with successor.transaction():
            await successor.send_and_wait(topic, b"successor")
        assert await aio_read(bootstrap, topic, 4) == [b"0", b"2", b"4", b"successor"]
    finally:
        await successor.stop()
        with contextlib.suppress(ProducerFenced):
            await producer.stop()


async def test_aiokafka_commits_offsets_in_the_transaction(client: Client, bootstrap: str) -> None:
    topic, group = client.topic(), name("group")
    client.coordinator_of_group(group)
    partition = AioPartition(topic, 0)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name("txn"))
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    try:
        consumer.assign([partition])
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: 7}, group)
        assert await consumer.committed(partition) is None
        await producer.commit_transaction()
        # The decision is told before the group hears of it.
        await wait_until_async(lambda: consumer.committed(partition))
        assert await consumer.committed(partition) == 7
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: 9}, group)
        await producer.abort_transaction()
        assert await consumer.committed(partition) == 7
    finally:
        await consumer.stop()
        await producer.stop()


# ------------------------------------------------------------------ kafka-python


def test_kafka_python_commits_and_aborts(client: Client, bootstrap: str) -> None:
    topic = client.topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name("txn"))
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=3000,
    )
    try:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number).get(WAIT)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        consumer.assign([PythonPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert [record.value for record in consumer] == [b"0", b"2", b"4"]
    finally:
        consumer.close()
        producer.close(timeout=WAIT)
