"""What a leader answers while followers are behind: acks=all whose ISR became too small, DeleteRecords."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Producer

from millstream.broker.apis import partition_offsets
from millstream.broker.apis.partition_offsets import PartitionOffsetsApi
from millstream.wire.errors import ErrorCode
from tests.broker.replication.cluster import Cluster
from tests.broker.replication.test_three_brokers import produce
from tests.support.waiting import let_tasks_run

PATIENT = {"replica_lag_time_max_ms": 3_600_000}  # nobody leaves an ISR because it is slow


async def stop_following(cluster: Cluster, broker_id: int, leader_id: int) -> None:
    await cluster.brokers[broker_id].replicas.fetchers.pop(leader_id).stop()


async def test_an_isr_that_becomes_too_small_after_the_append(tmp_path: Path) -> None:
    """The producer hears so at once, not after its timeout."""
    errors: list[Any] = []
    async with Cluster(tmp_path, **PATIENT) as cluster:
        await cluster.create("t", (1, 2, 3), min_insync_replicas="2")
        for follower in (2, 3):
            await stop_following(cluster, follower, 1)
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "retries": 0,
                "message.timeout.ms": 3_000_000,
                "request.timeout.ms": 900_000,
                "linger.ms": 0,
            }
        )
        producer.produce("t", b"value", partition=0, on_delivery=lambda error, _: errors.append(error))
        await cluster.until(lambda: producer.poll(0) == 0 and cluster.replica(1, "t").log.end_offset == 1)
        assert errors == []
        for follower in (2, 3):
            await cluster.kill(follower)
        await cluster.until(lambda: producer.poll(0) > 0 or bool(errors))
        assert [error.code() for error in errors] == [KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        assert cluster.replica(1, "t").log.high_watermark == 0


async def test_records_are_deleted_when_every_live_replica_has_deleted_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path, **PATIENT) as cluster:
        await cluster.create("t", (1, 2, 3))
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"%d" % n for n in range(10)])
        await cluster.until(lambda: all(cluster.replica(n, "t").log.high_watermark == 10 for n in (1, 2, 3)))
        await stop_following(cluster, 3, 1)
        wire = await cluster.wire(1)

        def delete(offset: int, seconds: float) -> asyncio.Task[Any]:
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
            return asyncio.create_task(
                wire.request("delete_records", topics=topics, timeout=timedelta(seconds=seconds))
            )

        [topic] = (await delete(3, 0)).topics
        assert topic.partitions[0].error_code is ErrorCode.request_timed_out
        with monkeypatch.context() as impatient:  # the client's patience is not the last word
            impatient.setattr(partition_offsets, "MAX_DELETED_WAIT", 0.0)
            [topic] = (await delete(4, 900)).topics
            assert topic.partitions[0].error_code is ErrorCode.request_timed_out
        deleting = delete(5, 900)
        await cluster.until(lambda: cluster.leader("t").tracker.followers[2].log_start == 5)  # type: ignore[union-attr]
        await let_tasks_run()
        assert not deleting.done()
        cluster.brokers[3].replicas.role_changed(cluster.replica(3, "t"))
        [topic] = (await deleting).topics
        assert (topic.partitions[0].error_code, topic.partitions[0].low_watermark) == (ErrorCode.none, 5)
        assert cluster.replica(3, "t").log.start_offset == 5
        # Whoever is dead is not waited for.
        await cluster.kill(3)
        await cluster.until(lambda: 3 not in cluster.brokers[1].image.brokers)
        [topic] = (await delete(7, 900)).topics
        assert topic.partitions[0].low_watermark == 7


async def test_nobody_is_waited_for_when_the_client_has_left() -> None:
    behind = SimpleNamespace(leads=True, low_watermark=0)
    broker = SimpleNamespace(partitions=SimpleNamespace(find=lambda *_: behind))
    connection = SimpleNamespace(closed=False)
    api = PartitionOffsetsApi(cast(Any, broker))
    waiting = asyncio.create_task(
        api._until_deleted_everywhere(
            cast(Any, SimpleNamespace(connection=connection)), {"t": {0: (5, ErrorCode.none)}}, float("inf")
        )
    )
    await let_tasks_run()
    assert not waiting.done()
    connection.closed = True
    await waiting
