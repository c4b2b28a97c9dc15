"""Coordinators move with their partitions, under clients that are not ours.

Three brokers run in this process; the clients run in threads. A broker that is lost has no time to hand over:
its session ends and its sockets close.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import confluent_kafka
import pytest

from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.wire.errors import ErrorCode
from tests.support.cluster_clients import RECORDS, consume, produce, transform
from tests.support.memory_cluster import MemoryCluster
from tests.support.waiting import wait_until, wait_until_async


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(
        tmp_path,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        transaction_state_log_min_isr=2,
        default_replication_factor=3,
        min_insync_replicas=2,
        group_initial_rebalance_delay_ms=0,
    ) as cluster:
        topics = [NewTopic("in", 3, 3), NewTopic("out", 3, 3)]
        await cluster.controller.controller.submit(CreateTopics(topics))
        await cluster.in_step()
        yield cluster


def leader(cluster: MemoryCluster, topic: str, index: int = 0) -> int:
    image = next(iter(cluster.brokers.values())).image
    known = image.topic(topic)
    partition = None if known is None else image.partition(known.topic_id, index)
    return -1 if partition is None else partition.leader


async def lose(cluster: MemoryCluster, broker_id: int) -> None:
    await cluster.lose(broker_id)
    await wait_until_async(lambda: any(b.controller.leading for b in cluster.brokers.values()))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_goes_on_at_another_broker(cluster: MemoryCluster, protocol: str) -> None:
    """Every commit that was acknowledged is found by the next coordinator."""
    bootstrap = cluster.bootstrap
    await asyncio.to_thread(produce, bootstrap)
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe(["in"])
    committed: dict[int, int] = {}
    seen: Counter[str] = Counter()
    half = threading.Event()

    def run() -> None:
        def step() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen[message.value().decode()] += 1
                try:
                    done = consumer.commit(message, asynchronous=False)
                    committed[done[0].partition] = done[0].offset
                except confluent_kafka.KafkaException:
                    pass  # a commit that was not acknowledged may be lost
            if len(seen) > RECORDS // 3:
                half.set()
            return len(seen) == RECORDS

        wait_until(step, lambda: f"{len(seen)} records", interval=0)

    running = asyncio.create_task(asyncio.to_thread(run))
    await asyncio.to_thread(half.wait, 120)
    first = leader(cluster, "__consumer_offsets")
    await lose(cluster, first)
    await running
    await asyncio.to_thread(consumer.close)
    assert leader(cluster, "__consumer_offsets") not in (first, -1)

    def positions() -> dict[int, int]:
        other = confluent_kafka.Consumer(config)
        try:
            partitions = [confluent_kafka.TopicPartition("in", index) for index in range(3)]
            return {each.partition: each.offset for each in other.committed(partitions, timeout=60)}
        finally:
            other.close()

    found = await asyncio.to_thread(positions)
    assert all(found[index] >= offset for index, offset in committed.items()), (found, committed)


async def lose_and_start(cluster: MemoryCluster, victim: int, topic: str) -> None:
    await lose(cluster, victim)
    await wait_until_async(lambda: leader(cluster, topic) not in (victim, -1))
    await cluster.start(victim)


async def test_transactions_go_on_at_another_broker(cluster: MemoryCluster) -> None:
    """Each record of the input is once in the output, although the coordinator's broker is lost and comes
    back, and then the one of the group."""
    bootstrap = cluster.bootstrap
    await asyncio.to_thread(produce, bootstrap)
    progress = [0]
    ended = lambda: progress[0] >= RECORDS  # noqa: E731
    working = asyncio.create_task(asyncio.to_thread(transform, bootstrap, ended, progress))
    for share, topic in ((3, "__transaction_state"), (2, "__consumer_offsets")):
        await wait_until_async(lambda share=share: progress[0] >= RECORDS // share or working.done())
        await lose_and_start(cluster, leader(cluster, topic), topic)
    await working
    found = await asyncio.to_thread(consume, cluster.bootstrap, "out", RECORDS)
    assert found == Counter(map(str, range(RECORDS)))


async def test_markers_reach_every_broker(cluster: MemoryCluster) -> None:
    """One transaction over partitions of all brokers; readers of committed records see all of it."""
    bootstrap = cluster.bootstrap

    def run() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "p"})
        producer.init_transactions(60)
        for commit in (True, False, True):
            producer.begin_transaction()
            for number in range(30):
                producer.produce("out", f"{commit}-{number}", partition=number % 3)
            producer.flush(60)
            (producer.commit_transaction if commit else producer.abort_transaction)(60)

    await asyncio.to_thread(run)
    assert len({leader(cluster, "out", index) for index in range(3)}) == 3
    found = await asyncio.to_thread(consume, bootstrap, "out", 60)
    assert found == Counter({f"True-{number}": 2 for number in range(30)})
    listed = []
    for broker_id in cluster.brokers:
        wire = await cluster.wire(broker_id)
        answer = await wire.request(
            "list_transactions",
            state_filters=[],
            producer_id_filters=[],
            duration_filter=-1,
            transactional_id_pattern=None,
        )
        assert answer.error_code is ErrorCode.none
        listed += [(broker_id, each.transactional_id) for each in answer.transaction_states]
    assert listed == [(leader(cluster, "__transaction_state"), "p")], "by the coordinator alone"
