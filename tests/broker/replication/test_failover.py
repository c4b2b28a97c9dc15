"""Leaders and followers that die, come back, come back empty or too late: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream.cluster.commands import AlterConfigs, ConfigChange, ConfigOp, ElectLeaders, Resource
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition
from tests.broker.replication.cluster import Cluster
from tests.broker.replication.test_three_brokers import consume, contents, produce
from tests.broker.replication.writer import Writer


async def more(cluster: Cluster, writer: Writer, count: int = 300) -> None:
    """So many more are acknowledged."""
    target = len(writer.acknowledged) + count
    await cluster.until(lambda: len(writer.acknowledged) >= target)


async def all_there(cluster: Cluster, topic: str, acknowledged: list[bytes]) -> None:
    found = await asyncio.to_thread(consume, cluster.bootstrap, topic, len(acknowledged))
    assert found == acknowledged, "every acknowledged record once, in order"


async def until_in_sync(cluster: Cluster, topic: str, *brokers: int) -> None:
    await cluster.until(lambda: set(cluster.record(topic).isr) == set(brokers))


async def test_the_leader_dies_and_comes_back(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (2, 3, 1), min_insync_replicas="2")
        writer = Writer(cluster.bootstrap, "t")
        await more(cluster, writer)
        await cluster.kill(2)
        await cluster.until(lambda: cluster.record("t").leader == 3)
        assert set(cluster.record("t").isr) == {3, 1}
        await more(cluster, writer)
        await cluster.start(2)
        await until_in_sync(cluster, "t", 1, 2, 3)
        await more(cluster, writer)
        acknowledged = await asyncio.to_thread(writer.stop)
        await all_there(cluster, "t", acknowledged)
        await cluster.until(lambda: contents(cluster, 2, "t") == contents(cluster, 3, "t"))


async def test_a_follower_dies_and_comes_back_empty(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2, 3), min_insync_replicas="2", segment_bytes="1048576")
        writer = Writer(cluster.bootstrap, "t")
        await more(cluster, writer)
        await cluster.kill(3)
        await more(cluster, writer)
        shutil.rmtree(tmp_path / "3")
        await cluster.start(3)
        await until_in_sync(cluster, "t", 1, 2, 3)
        acknowledged = await asyncio.to_thread(writer.stop)
        await all_there(cluster, "t", acknowledged)
        await cluster.until(lambda: contents(cluster, 3, "t") == contents(cluster, 1, "t"))


async def test_every_broker_dies_in_turn(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2, 3), min_insync_replicas="2")
        writer = Writer(cluster.bootstrap, "t")
        for victim in (1, 2, 3, 1):
            await more(cluster, writer, 100)
            await cluster.kill(victim)
            await cluster.until(lambda: any(b.controller.leading for b in cluster.brokers.values()))
            await cluster.until(lambda dead=victim: dead not in cluster.record("t").isr)  # type: ignore[misc]
            await more(cluster, writer, 100)
            await cluster.start(victim)
            await until_in_sync(cluster, "t", 1, 2, 3)
        acknowledged = await asyncio.to_thread(writer.stop)
        await all_there(cluster, "t", acknowledged)
        await cluster.until(
            lambda: contents(cluster, 1, "t") == contents(cluster, 2, "t") == contents(cluster, 3, "t")
        )


async def test_below_min_isr_nothing_is_accepted_and_the_high_watermark_stands(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2, 3), min_insync_replicas="2")
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"first"])
        await cluster.kill(3)
        await cluster.kill(2)
        await until_in_sync(cluster, "t", 1)
        assert cluster.record("t").elr == (2,), "it left when nothing more could be committed"
        wire = await cluster.wire(1)
        leader = cluster.leader("t")
        refused = await send(wire, "t", acks=-1)
        assert refused.error_code is ErrorCode.not_enough_replicas
        assert leader.log.end_offset == 1, "refused before it was written"
        assert (await send(wire, "t", acks=1)).error_code is ErrorCode.none
        assert (leader.log.end_offset, leader.log.high_watermark) == (2, 1)
        await cluster.start(2)
        await until_in_sync(cluster, "t", 1, 2)
        await cluster.until(lambda: leader.log.high_watermark == 2)


@pytest.mark.parametrize(("of_controller", "of_leader"), [("2", "1"), ("1", "2")])
async def test_brokers_whose_files_differ_in_min_isr(
    tmp_path: Path, of_controller: str, of_leader: str
) -> None:
    """The greater one counts: the controller's decides who stays eligible, the leader's what it accepts."""
    async with Cluster(tmp_path, 1, min_insync_replicas=of_controller) as cluster:
        cluster.settings["min.insync.replicas"] = of_leader
        await cluster.start(2)
        await cluster.start(3)
        await cluster.in_step()
        assert cluster.controller.node_id == 1
        await cluster.create("t", (2, 3))
        wire = await cluster.wire(2)
        assert (await send(wire, "t", acks=-1)).error_code is ErrorCode.none
        await cluster.kill(3)
        await until_in_sync(cluster, "t", 2)
        assert cluster.record("t").elr == ((3,) if of_controller == "2" else ())
        await cluster.in_step()
        assert (await send(wire, "t", acks=-1)).error_code is ErrorCode.not_enough_replicas
        assert (await send(wire, "t", acks=1)).error_code is ErrorCode.none
        leader = cluster.leader("t")
        assert (leader.log.end_offset, leader.log.high_watermark) == (2, 1)
        await cluster.start(3)
        await until_in_sync(cluster, "t", 2, 3)
        await cluster.until(lambda: leader.log.high_watermark == 2)
        assert (await send(wire, "t", acks=-1)).error_code is ErrorCode.none


async def send(wire: Any, topic: str, acks: int) -> Any:
    from millstream.wire.records import Record, encode_batch

    batch = bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"value", ())]))
    answer = await wire.request(
        "produce",
        up_to=12,
        transactional_id=None,
        acks=acks,
        timeout=30_000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    )
    return answer.responses[0].partition_responses[0]


async def test_the_last_of_the_isr_leads_when_it_returns_another_only_by_an_unclean_election(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (2, 3), min_insync_replicas="1")
        await cluster.kill(3)
        await until_in_sync(cluster, "t", 2)
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"only on 2"])
        await cluster.kill(2)
        await cluster.until(lambda: cluster.record("t").leader == -1)
        await cluster.start(3)
        assert cluster.record("t").leader == -1, "it lacks what was committed"
        reply = await cluster.controller.controller.submit(
            ElectLeaders([TopicPartition("t", 0)], unclean=True)
        )
        assert reply[TopicPartition("t", 0)].ok
        await cluster.until(lambda: cluster.record("t").leader == 3 and not cluster.record("t").recovering)
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"a", b"b"])
        await cluster.start(2)
        await until_in_sync(cluster, "t", 2, 3)
        await cluster.until(lambda: contents(cluster, 2, "t") == contents(cluster, 3, "t"))
        assert b"only on 2" not in contents(cluster, 2, "t")


async def test_a_follower_that_is_behind_the_leaders_log_start_begins_there(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2), segment_bytes="1048576")
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"x" * 100] * 50)
        await cluster.kill(2)
        await until_in_sync(cluster, "t", 1)
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"y" * 100] * 50)
        wire = await cluster.wire(1)
        deleted = await wire.request(
            "delete_records",
            topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 80}]}],
            timeout=10_000,
        )
        assert deleted.topics[0].partitions[0].error_code is ErrorCode.none
        cluster.leader("t").log.roll()
        cluster.leader("t").log.delete_old_segments(0)
        await cluster.start(2)
        await until_in_sync(cluster, "t", 1, 2)
        log = cluster.replica(2, "t").log
        assert (log.start_offset, log.end_offset) == (cluster.leader("t").log.start_offset, 100)


async def test_a_follower_that_stands_still_leaves_the_isr(tmp_path: Path) -> None:
    async with Cluster(tmp_path, replica_lag_time_max_ms=600) as cluster:
        await cluster.create("t", (1, 2, 3), min_insync_replicas="2")
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"before"])
        await cluster.brokers[3].replicas.fetchers[1].stop()
        await asyncio.to_thread(produce, cluster.bootstrap, "t", [b"while it stands still"])
        await until_in_sync(cluster, "t", 1, 2)
        assert cluster.brokers[1].replicas.isr_shrinks == 1
        await cluster.kill(3)
        await cluster.start(3)
        await until_in_sync(cluster, "t", 1, 2, 3)
        assert cluster.brokers[1].replicas.isr_expands == 1


async def test_min_isr_can_be_raised_while_it_runs(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2), min_insync_replicas="1")
        await cluster.kill(2)
        await until_in_sync(cluster, "t", 1)
        wire = await cluster.wire(1)
        assert (await send(wire, "t", acks=-1)).error_code is ErrorCode.none
        await cluster.controller.controller.submit(
            AlterConfigs([(Resource("topic", "t"), [ConfigChange("min.insync.replicas", ConfigOp.SET, "2")])])
        )
        assert (await send(wire, "t", acks=-1)).error_code is ErrorCode.not_enough_replicas


@pytest.mark.parametrize("policy", ["compact", "delete"])
async def test_transactions_and_compacted_topics_are_copied_as_they_are(tmp_path: Path, policy: str) -> None:
    def write(bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
        producer.init_transactions(30)
        for number in range(6):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number, key=b"k", partition=0)
            producer.flush(30)
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    async with Cluster(tmp_path) as cluster:
        await cluster.create("t", (1, 2, 3), cleanup_policy=policy)
        # The markers' way into the followers is the subject here, not that of requests between brokers.
        await cluster.create("__transaction_state", (1, 2, 3), cleanup_policy="compact")
        await asyncio.to_thread(write, cluster.bootstrap)
        leader = cluster.replica(1, "t").log
        assert leader.end_offset == 12, "six records and six markers"
        await cluster.until(lambda: cluster.replica(3, "t").log.last_stable_offset == 12)
        follower = cluster.replica(3, "t").log
        assert contents(cluster, 3, "t") == contents(cluster, 1, "t")
        assert follower.aborted_transactions(0, 12) == leader.aborted_transactions(0, 12)
        assert [one.producer_id for one in follower.describe_producers()] == [
            one.producer_id for one in leader.describe_producers()
        ]
        await cluster.kill(1)
        await cluster.until(lambda: any(b.controller.leading for b in cluster.brokers.values()))
        await cluster.until(lambda: cluster.record("t").leader == 2)
        assert await asyncio.to_thread(consume, cluster.bootstrap, "t", 3) == [b"0", b"2", b"4"]
