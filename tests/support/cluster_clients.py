"""Clients that are not ours, at work on the topics "in" and "out" while brokers come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka

from tests.support.waiting import wait_until

RECORDS = 300


def produce(bootstrap: str, count: int = RECORDS) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failed: list[Any] = []
    for number in range(count):
        producer.produce(
            "in",
            str(number),
            partition=number % 3,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    assert producer.flush(120) == 0
    assert not failed


def consume(bootstrap: str, topic: str, count: int) -> Counter[str]:
    """All committed records of a topic, until there are `count` of them and no more come."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(3)])
    found: Counter[str] = Counter()
    ends: set[int] = set()
    try:

        def read() -> bool:
            message = consumer.poll(0.5)
            if message is None:
                return False
            error = message.error()
            if error is None:
                found[message.value().decode()] += 1
                ends.discard(message.partition())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ends.add(message.partition())
            return len(ends) == 3 and sum(found.values()) >= count

        wait_until(read, lambda: f"{sum(found.values())} of {count}", interval=0)
    finally:
        consumer.close()
    return found


def transform(bootstrap: str, ended: Callable[[], bool], progress: list[int]) -> None:
    """Consume, transform, produce: exactly once, whatever happens to brokers."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "transform",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["in"])
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "transform",
            "transaction.timeout.ms": 60_000,
            # librdkafka 2.16 goes on waiting for a coordinator that has left the cluster until the state of
            # another connection changes (its issue 5511), and looks at no timeout meanwhile (5456).
            "connections.max.idle.ms": 1000,
        }
    )
    wait_until(lambda: attempt(producer.init_transactions) is None)
    while not ended():
        messages = [m for m in consumer.consume(20, 0.5) if m.error() is None]
        if not messages:
            continue
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce("out", message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60)
            progress[0] += len(messages)
        except confluent_kafka.KafkaException as error:
            assert not error.args[0].fatal(), error
            wait_until(lambda: attempt(producer.abort_transaction) is None)
            rewind(consumer)
    consumer.close()


def attempt(action: Callable[[float], None]) -> object:
    try:
        action(30)
    except confluent_kafka.KafkaException as error:
        assert error.args[0].retriable(), error
        return error
    return None


def rewind(consumer: confluent_kafka.Consumer) -> None:
    """Back to what is committed: the records of the aborted transaction are read again."""

    def found() -> bool:
        for each in consumer.committed(consumer.assignment(), timeout=30):
            start = each.offset if each.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
            consumer.seek(confluent_kafka.TopicPartition(each.topic, each.partition, start))
        return True

    wait_until(found, ignoring=confluent_kafka.KafkaException)
