"""Coordinators move between processes: kill -9 and rolling restarts under clients that are not ours."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from millstream.client.config import ClientConfig
from millstream.client.connection import Connection
from tests.support.brokers import RunningCluster
from tests.support.cluster_clients import RECORDS, consume, produce, transform
from tests.support.waiting import wait_until
from tests.support.zookeeper import RunningZooKeeper


@pytest.fixture
def cluster(zookeeper: RunningZooKeeper) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": 0, "transaction.state.log.min.isr": 2}
    with RunningCluster(zookeeper, settings=settings) as running:
        running.until_alive({1, 2, 3})
        for topic in ("in", "out"):
            assert running.create_topic(topic) is None
        yield running


def coordinator(cluster: RunningCluster, key: str, key_type: int = 0) -> int:
    """The broker that coordinates a group (or, type 1, a transactional id), once there is one."""
    host, port = cluster.bootstrap_servers.split(",")[0].split(":")
    connection = Connection(ClientConfig.of(f"{host}:{port}"), host, int(port))
    try:

        def found() -> int:
            answer = connection.request("find_coordinator", key_type=key_type, coordinator_keys=[key])
            return int(answer.coordinators[0].node_id) if not answer.coordinators[0].error_code else 0

        return wait_until(found)
    finally:
        connection.close()


def test_exactly_once_while_the_coordinators_broker_is_killed(cluster: RunningCluster) -> None:
    bootstrap = cluster.bootstrap_servers
    produce(bootstrap)
    progress = [0]
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(transform, bootstrap, lambda: progress[0] >= RECORDS, progress)
        wait_until(lambda: progress[0] >= RECORDS // 3 or working.done())
        victim = coordinator(cluster, "transform", 1)
        cluster.brokers[victim].kill()
        cluster.until_alive({1, 2, 3} - {victim})
        cluster.brokers[victim].start()
        wait_until(lambda: progress[0] >= RECORDS // 2 or working.done())
        working.result(170)
    found = consume(cluster.bootstrap_servers, "out", RECORDS)
    assert found == Counter(map(str, range(RECORDS)))


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """What outlives a failing test draws random numbers in its threads: tests of Hypothesis fail for that."""
    with ExitStack() as stack:
        yield stack


def test_a_group_of_kafka_python_loses_no_commit(cluster: RunningCluster, closing: ExitStack) -> None:
    bootstrap = cluster.bootstrap_servers
    produce(bootstrap)
    consumer = kafka.KafkaConsumer(
        "in",
        bootstrap_servers=bootstrap.split(","),
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=20,
    )
    closing.callback(consumer.close, autocommit=False)
    seen: set[bytes] = set()

    def some(count: int) -> None:
        def step() -> bool:
            for records in consumer.poll(500).values():
                seen.update(record.value for record in records)
            return len(seen) >= count

        wait_until(step, lambda: f"{len(seen)} records", interval=0)

    some(RECORDS // 3)
    wait_until(lambda: consumer.commit() is None, ignoring=kafka.errors.KafkaError)
    before = {part: consumer.committed(part) for part in consumer.assignment()}
    victim = coordinator(cluster, "g")
    cluster.brokers[victim].kill()
    some(RECORDS)
    after = {part: consumer.committed(part) for part in before}
    # A partition of which nothing had been read by then has no offset, before or after.
    assert any(before.values())
    assert all((after[part] or 0) >= (offset or 0) for part, offset in before.items()), (before, after)
    wait_until(lambda: consumer.commit() is None, ignoring=kafka.errors.KafkaError)


async def test_a_group_of_aiokafka_loses_no_commit(cluster: RunningCluster) -> None:
    bootstrap = cluster.bootstrap_servers
    await asyncio.to_thread(produce, bootstrap)
    consumer = aiokafka.AIOKafkaConsumer(
        "in",
        bootstrap_servers=bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    seen: set[bytes] = set()
    committed: dict[Any, int] = {}

    async def some(count: int) -> None:
        async with asyncio.timeout(170):
            while len(seen) < count:
                found = await consumer.getmany(timeout_ms=500, max_records=20)
                for records in found.values():
                    seen.update(record.value for record in records)
                try:
                    positions = {part: await consumer.position(part) for part in consumer.assignment()}
                    await consumer.commit(positions)
                    committed.update(positions)
                except aiokafka.errors.KafkaError:
                    continue  # was not acknowledged: it may be lost

    try:
        await some(RECORDS // 3)
        victim = await asyncio.to_thread(coordinator, cluster, "g")
        await asyncio.to_thread(cluster.brokers[victim].kill)
        await some(RECORDS)
        for part, offset in committed.items():
            assert (await consumer.committed(part) or 0) >= offset
    finally:
        try:
            await consumer.stop()
        except asyncio.CancelledError:
            # Of its own fetch, which waited for the dead broker: aiokafka lets that out, and stops half way.
            await consumer._client.close()


def test_administration_by_a_broker_that_is_not_the_controller(cluster: RunningCluster) -> None:
    controller = cluster.controller()
    other = min({1, 2, 3} - {controller})
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.brokers[other].bootstrap_servers)
    topic = f"t-{uuid.uuid4().hex[:8]}"
    # One that goes to this broker whatever Metadata says about the controller.
    host, port = cluster.brokers[other].bootstrap_servers.split(":")
    connection = Connection(ClientConfig.of(f"{host}:{port}"), host, int(port))
    try:
        answer = connection.request(
            "create_topics",
            topics=[
                {
                    "name": topic,
                    "num_partitions": 3,
                    "replication_factor": 3,
                    "assignments": (),
                    "configs": (),
                }
            ],
            timeout=30_000,
            validate_only=False,
        )
        assert answer.topics[0].error_code == 0
        described = connection.request(
            "metadata",
            topics=[{"topic_id": None, "name": topic}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        assert len(described.topics[0].partitions) == 3, "create, then describe, at the same broker"
        assert topic in admin.list_topics()
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics())
    finally:
        connection.close()
        admin.close()


def test_a_rolling_restart_shows_no_error(cluster: RunningCluster) -> None:
    """An idempotent producer and a group go on while each broker is restarted in turn."""
    bootstrap = cluster.bootstrap_servers
    failed: list[Any] = []
    sent = 0
    over = threading.Event()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    def load() -> None:
        nonlocal sent
        while not over.is_set():
            producer.produce("in", str(sent), partition=sent % 3, on_delivery=delivered)
            sent += 1
            producer.poll(0)
            over.wait(0.01)  # the pace of the load
        assert producer.flush(120) == 0

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(load)
        for number, broker in cluster.brokers.items():
            broker.stop()
            cluster.until_alive({1, 2, 3} - {number})
            broker.start()
            cluster.until_alive({1, 2, 3})
        over.set()
        working.result(170)
    assert not failed
    found = consume(cluster.bootstrap_servers, "in", sent)
    assert found == Counter(map(str, range(sent)))
