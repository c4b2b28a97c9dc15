"""What only aiokafka does: batches built by hand, many sends at once on one loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest
from aiokafka import TopicPartition

from .clients import AioKafka, Client, Record

NewTopic = Callable[..., str]
WAIT = 30


@pytest.fixture
def aio(clients: Mapping[str, Client]) -> AioKafka:
    client = clients["aiokafka"]
    assert isinstance(client, AioKafka)
    return client


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, WAIT)

    asyncio.run(bounded())


def test_a_batch_built_by_hand(aio: AioKafka, new_topic: NewTopic) -> None:
    topic = new_topic()

    async def work() -> None:
        async with aio.producer(compression_type="lz4") as producer:
            batch = producer.create_batch()
            for n in range(20):
                batch.append(key=b"%d" % n, value=b"v", timestamp=None)
            batch.close()
            sent = await (await producer.send_batch(batch, topic, partition=0))
            assert (sent.partition, sent.offset) == (0, 0)

    run(work())
    assert [record.key for record in aio.consume(topic, 0, count=20)] == [b"%d" % n for n in range(20)]


def test_a_thousand_sends_at_once(aio: AioKafka, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)

    async def work() -> None:
        async with aio.producer(enable_idempotence=True) as producer:
            sent = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % n) for n in range(1000)))
            assert len({(one.partition, one.offset) for one in sent}) == 1000

    run(work())
    assert sum(aio.ends(topic, partition)[1] for partition in range(4)) == 1000


def test_many_at_a_time_from_several_partitions(aio: AioKafka, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    aio.produce(topic, [Record(b"%d" % n, None, (), n % 3) for n in range(300)])

    async def work() -> None:
        async with aio.consumer() as consumer:
            partitions = [TopicPartition(topic, n) for n in range(3)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            seen = []
            while len(seen) < 300:
                for some in (await consumer.getmany(timeout_ms=1000, max_records=50)).values():
                    seen += [int(one.value) for one in some]
            assert sorted(seen) == list(range(300))

    run(work())


def test_it_learns_of_partitions_added_while_it_runs(aio: AioKafka, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1)

    async def work() -> None:
        async with aio.producer() as producer:
            await producer.send_and_wait(topic, b"0", partition=0)
            await asyncio.to_thread(aio.create_partitions, topic, 2)
            while await producer.partitions_for(topic) != {0, 1}:
                await producer.client.force_metadata_update()
            assert (await producer.send_and_wait(topic, b"1", partition=1)).partition == 1

    run(work())
