"""Finding a place in the log: earliest, latest, by time; deleting from the front; seeking; waiting at the
end."""

import asyncio
import threading
from collections.abc import Callable, Mapping

import pytest
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import TopicPartition
from kafka import TopicPartition as PyPartition

from millstream.wire.errors import ErrorCode
from tests.support.waiting import wait_until

from .clients import AioKafka, Client, Confluent, KafkaPython, Record, Refused
from .test_admin import code_of

NewTopic = Callable[..., str]
Clients = Mapping[str, Client]
AUTO_OFFSET_RESET = -140  # librdkafka's own code where auto.offset.reset is "error"
T0 = 1_700_000_000_000


def numbers(count: int, partition: int = 0, start: int = 0) -> list[Record]:
    return [Record(b"%d" % n, None, (), partition) for n in range(start, start + count)]


def values(records: list[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


# -- where things are ----------------------------------------------------------------------------------------


def test_both_ends(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    assert client.ends(topic, 0) == (0, 0)
    client.produce(topic, numbers(7))
    assert client.ends(topic, 0) == (0, 7)
    assert client.ends(topic, 1) == (0, 0)


def test_by_time(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"retention.ms": "-1"})
    for n, moment in enumerate([100, 200, 300, 250, 400]):
        client.produce(topic, [Record(b"%d" % n, None, (), 0, T0 + moment)])
    expected = {0: 0, 100: 0, 101: 1, 200: 1, 201: 2, 300: 2, 301: 4, 400: 4, 401: None}
    assert {moment: client.offset_at(topic, 0, T0 + moment) for moment in expected} == expected


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_by_time_inside_a_batch(client: Client, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(configs={"retention.ms": "-1"})
    client.produce(
        topic, [Record(b"%d" % n, None, (), 0, T0 + n * 10) for n in range(1000)], compression=codec
    )
    for n in (0, 1, 499, 500, 999):
        assert client.offset_at(topic, 0, T0 + n * 10) == n
        assert client.offset_at(topic, 0, T0 + n * 10 - 9) == n
    assert client.offset_at(topic, 0, T0 + 9991) is None


def test_by_time_where_the_broker_sets_it(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    client.produce(topic, [Record(b"%d" % n, None, (), 0, T0) for n in range(10)])
    (first, *_, last) = client.consume(topic, 0, count=10)
    assert first.timestamp is not None
    assert last.timestamp is not None
    assert client.offset_at(topic, 0, first.timestamp) == 0
    assert client.offset_at(topic, 0, last.timestamp + 1) is None


def test_by_time_in_an_empty_partition(client: Client, new_topic: NewTopic) -> None:
    assert client.offset_at(new_topic(), 0, T0) is None


# -- deleting from the front ---------------------------------------------------------------------------------


def test_delete_records(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, numbers(10))
    assert client.delete_records(topic, 0, 4) == 4
    assert client.ends(topic, 0) == (4, 10)
    assert values(client.consume(topic, 0, start=4, count=6)) == [4, 5, 6, 7, 8, 9]
    with pytest.raises(Refused) as refused:
        client.consume(topic, 0, start=3)
    assert refused.value.code in (ErrorCode.offset_out_of_range, AUTO_OFFSET_RESET)
    assert client.delete_records(topic, 0, 2) == 4  # what is gone is gone
    assert client.delete_records(topic, 0, -1) == 10  # everything
    assert client.ends(topic, 0) == (10, 10)
    assert client.produce(topic, numbers(1)) == [(0, 10)]


def test_delete_records_past_the_end(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, numbers(3))
    with pytest.raises(Refused) as refused:
        client.delete_records(topic, 0, 4)
    assert code_of(refused) == ErrorCode.offset_out_of_range
    assert client.ends(topic, 0) == (0, 3)


# -- seeking -------------------------------------------------------------------------------------------------


def test_seek_with_confluent(clients: Clients, new_topic: NewTopic) -> None:
    client = clients["confluent"]
    assert isinstance(client, Confluent)
    topic = new_topic()
    client.produce(topic, numbers(100))
    consumer = client.consumer()
    try:
        consumer.assign([TopicPartition(topic, 0, 50)])
        assert values(client.read(consumer, 3)) == [50, 51, 52]
        for offset in (10, 90, 0, 99):
            consumer.seek(TopicPartition(topic, 0, offset))
            assert values(client.read(consumer, 1)) == [offset]
        consumer.pause([TopicPartition(topic, 0)])
        consumer.resume([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0, 5))
        assert values(client.read(consumer, 2)) == [5, 6]
    finally:
        consumer.close()


def test_seek_with_kafka_python(clients: Clients, new_topic: NewTopic) -> None:
    client = clients["kafka-python"]
    assert isinstance(client, KafkaPython)
    topic = new_topic()
    client.produce(topic, numbers(100))
    where = PyPartition(topic, 0)
    consumer = client.consumer()
    try:
        consumer.assign([where])
        for offset in (50, 10, 99, 0):
            consumer.seek(where, offset)
            assert values(client.read(consumer, 1)) == [offset]
        consumer.seek_to_end(where)
        assert consumer.position(where) == 100
        consumer.seek_to_beginning(where)
        assert values(client.read(consumer, 2)) == [0, 1]
        assert consumer.highwater(where) == 100
    finally:
        consumer.close()


def test_seek_with_aiokafka(clients: Clients, new_topic: NewTopic) -> None:
    client = clients["aiokafka"]
    assert isinstance(client, AioKafka)
    topic = new_topic()
    client.produce(topic, numbers(100))
    where = AioPartition(topic, 0)

    async def run() -> None:
        async with client.consumer() as consumer:
            consumer.assign([where])
            for offset in (50, 10, 99, 0):
                consumer.seek(where, offset)
                assert values([await client.one(consumer)]) == [offset]
            await consumer.seek_to_end(where)
            assert await consumer.position(where) == 100
            await consumer.seek_to_beginning(where)
            assert values([await client.one(consumer)]) == [0]
            assert consumer.highwater(where) == 100

    asyncio.run(asyncio.wait_for(run(), 30))


def test_reading_past_the_end(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, numbers(3))
    with pytest.raises(Refused) as refused:
        client.consume(topic, 0, start=4)
    assert refused.value.code in (ErrorCode.offset_out_of_range, AUTO_OFFSET_RESET)


# -- waiting at the end --------------------------------------------------------------------------------------


def test_a_reader_at_the_end_gets_what_is_written_later(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    got: list[Record] = []
    reader = threading.Thread(target=lambda: got.extend(client.consume(topic, 0, count=3)))
    reader.start()
    for n in range(3):
        client.produce(topic, numbers(1, start=n))
    reader.join(30)
    assert values(got) == [0, 1, 2]


def test_a_reader_that_wants_more_bytes_than_there_are_gets_them_after_its_wait(
    clients: Clients, new_topic: NewTopic
) -> None:
    client = clients["confluent"]
    assert isinstance(client, Confluent)
    topic = new_topic()
    client.produce(topic, numbers(3))
    consumer = client.consumer(**{"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 300})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert values(client.read(consumer, 3)) == [0, 1, 2]
    finally:
        consumer.close()


# -- many partitions in one fetch session --------------------------------------------------------------------

MANY = 60


def check_rounds(client: Client, topic: str, read: Callable[[int], list[Record]]) -> None:
    for number in range(3):
        client.produce(topic, [Record(b"%d" % number, None, (), partition) for partition in range(MANY)])
        assert sorted((r.partition, int(r.value or b"")) for r in read(MANY)) == [
            (p, number) for p in range(MANY)
        ]
    client.produce(topic, [Record(b"lone", None, (), 17)])
    (lone,) = read(1)
    assert (lone.partition, lone.value) == (17, b"lone")


def test_a_fetch_session_over_many_partitions_with_confluent(clients: Clients, new_topic: NewTopic) -> None:
    client = clients["confluent"]
    assert isinstance(client, Confluent)
    topic = new_topic(partitions=MANY)
    consumer = client.consumer()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(MANY)])
        check_rounds(client, topic, lambda count: client.read(consumer, count))
        consumer.incremental_unassign([TopicPartition(topic, partition) for partition in range(10, MANY)])
        client.produce(topic, [Record(b"x", None, (), partition) for partition in range(MANY)])
        assert sorted(record.partition or 0 for record in client.read(consumer, 10)) == list(range(10))
        consumer.incremental_assign([TopicPartition(topic, 30, 0)])
        assert len(client.read(consumer, 4)) == 4
    finally:
        consumer.close()


def test_a_fetch_session_over_many_partitions_with_kafka_python(
    clients: Clients, new_topic: NewTopic
) -> None:
    client = clients["kafka-python"]
    assert isinstance(client, KafkaPython)
    topic = new_topic(partitions=MANY)
    partitions = [PyPartition(topic, partition) for partition in range(MANY)]
    consumer = client.consumer(auto_offset_reset="earliest")
    try:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        check_rounds(client, topic, lambda count: client.read(consumer, count))
        consumer.assign([partitions[3], partitions[40]])
        consumer.seek(partitions[3], 0)
        consumer.seek(partitions[40], 1)
        assert len(client.read(consumer, 5)) == 5
    finally:
        consumer.close()


def test_a_fetch_over_many_partitions_with_aiokafka(clients: Clients, new_topic: NewTopic) -> None:
    client = clients["aiokafka"]
    assert isinstance(client, AioKafka)
    topic = new_topic(partitions=MANY)
    partitions = [AioPartition(topic, partition) for partition in range(MANY)]

    async def run() -> None:
        async with client.consumer() as consumer:
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            loop = asyncio.get_running_loop()

            async def read(count: int) -> list[Record]:
                return [await client.one(consumer) for _ in range(count)]

            def read_from_a_thread(count: int) -> list[Record]:
                return asyncio.run_coroutine_threadsafe(read(count), loop).result(30)

            await asyncio.to_thread(check_rounds, client, topic, read_from_a_thread)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_partition_added_later_can_be_read(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, numbers(1))
    client.create_partitions(topic, 3)
    wait_until(lambda: len(client.describe_topic(topic)) == 3, ignoring=Refused)
    client.produce(topic, numbers(2, partition=2))
    assert values(client.consume(topic, 2, count=2)) == [0, 1]
