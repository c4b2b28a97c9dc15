"""Answers of brokers that know of each other: who is there, who leads what, where to go instead."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch
from tests.support.memory_cluster import MemoryCluster
from tests.support.waiting import wait_until_async


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(tmp_path) as cluster:
        await cluster.controller.controller.submit(
            CreateTopics([NewTopic("t", assignments=[(index, [index + 1]) for index in range(3)])])
        )
        await cluster.in_step()
        yield cluster


async def metadata(wire: Any, *names: str, version: int = 12) -> Any:
    return await wire.request(
        "metadata",
        up_to=version,
        topics=[{"topic_id": None, "name": name} for name in names],
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


async def test_every_broker_names_all_of_them(cluster: MemoryCluster) -> None:
    ports = {broker.node_id: broker.acceptors[0].port for broker in cluster.brokers.values()}
    for broker_id in cluster.brokers:
        wire = await cluster.wire(broker_id)
        answer = await metadata(wire, "t")
        assert {node.node_id: (node.port, node.rack) for node in answer.brokers} == {
            node: (port, f"r{node}") for node, port in ports.items()
        }
        assert answer.controller_id == cluster.controller.node_id
        assert {each.partition_index: each.leader_id for each in answer.topics[0].partitions} == {
            0: 1,
            1: 2,
            2: 3,
        }
        described = await wire.request(
            "describe_cluster",
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=False,
        )
        assert {node.broker_id: node.port for node in described.brokers} == ports
        assert described.controller_id == cluster.controller.node_id


async def test_a_broker_that_is_gone(cluster: MemoryCluster) -> None:
    await cluster.stop(3)
    await cluster.in_step()
    wire = await cluster.wire(1)
    answer = await metadata(wire, "t")
    assert {node.node_id for node in answer.brokers} == {1, 2}
    last = max(answer.topics[0].partitions, key=lambda each: each.partition_index)
    assert (last.error_code, last.leader_id) == (ErrorCode.leader_not_available, -1)
    assert (tuple(last.replica_nodes), tuple(last.offline_replicas)) == ((3,), (3,))
    oldest = await metadata(wire, "t", version=0)
    last = max(oldest.topics[0].partitions, key=lambda each: each.partition_index)
    assert (last.error_code, tuple(last.replica_nodes)) == (ErrorCode.leader_not_available, ())
    answer = await wire.request(
        "describe_topic_partitions", topics=[{"name": "t"}], response_partition_limit=10, cursor=None
    )
    last = answer.topics[0].partitions[2]
    assert (last.error_code, last.leader_id) == (ErrorCode.leader_not_available, -1)
    assert tuple(last.offline_replicas) == (3,)


async def test_fenced_brokers_are_named_where_they_are_asked_for(cluster: MemoryCluster) -> None:
    port = cluster.brokers[3].acceptors[0].port
    await cluster.stop(3)
    await cluster.in_step()
    wire = await cluster.wire(1)
    for wanted, expected in ((False, {1: False, 2: False}), (True, {1: False, 2: False, 3: True})):
        answer = await wire.request(
            "describe_cluster",
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=wanted,
        )
        assert {node.broker_id: node.is_fenced for node in answer.brokers} == expected
    [fenced] = [node for node in answer.brokers if node.is_fenced]
    assert (fenced.host, fenced.port, fenced.rack) == ("127.0.0.1", port, "r3")


async def test_a_leader_without_the_listener_of_the_client(tmp_path: Path) -> None:
    names = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
    async with MemoryCluster(tmp_path, 1, listener_security_protocol_map=names) as cluster:
        cluster.settings["listeners"] = "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0"
        await cluster.start(2)
        await cluster.controller.controller.submit(
            CreateTopics([NewTopic("t", assignments=[(0, [1]), (1, [2])])])
        )
        await cluster.in_step()
        for version, code in ((5, ErrorCode.leader_not_available), (9, ErrorCode.listener_not_found)):
            wire = await cluster.wire(2, "EXTRA")
            answer = await metadata(wire, "t", version=version)
            assert [node.node_id for node in answer.brokers] == [2]
            found = {each.partition_index: each for each in answer.topics[0].partitions}
            assert (found[0].error_code, found[0].leader_id) == (code, -1)
            assert (found[1].error_code, found[1].leader_id) == (ErrorCode.none, 2)
        answer = await metadata(await cluster.wire(2), "t")
        assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.none}


async def produce(wire: Any, version: int, index: int, topic_id: Any = None) -> Any:
    records = bytes(encode_batch([Record(0, 0, b"k", b"v", ())]))
    return await wire.request(
        "produce",
        up_to=version,
        transactional_id=None,
        acks=-1,
        timeout=5000,
        topic_data=[
            {"name": "t", "topic_id": topic_id, "partition_data": [{"index": index, "records": records}]}
        ],
    )


@pytest.mark.parametrize("version", [3, 9, 10, 13])
async def test_a_producer_is_sent_to_the_leader(cluster: MemoryCluster, version: int) -> None:
    wire = await cluster.wire(1)
    topic = cluster.brokers[1].image.topic("t")
    assert topic is not None
    answer = await produce(wire, version, 1, topic.topic_id)
    result = answer.responses[0].partition_responses[0]
    assert result.error_code is ErrorCode.not_leader_or_follower
    if version >= 10:
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 0)
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.rack) == (2, "127.0.0.1", "r2")
        assert endpoint.port == cluster.brokers[2].acceptors[0].port
    assert (await produce(wire, version, 0, topic.topic_id)).responses[0].partition_responses[
        0
    ].error_code == 0
    unknown = await produce(wire, version, 7, topic.topic_id)
    assert unknown.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", [4, 12, 15, 16, 17])
async def test_a_consumer_is_sent_to_the_leader(cluster: MemoryCluster, version: int) -> None:
    wire = await cluster.wire(1)
    topic = cluster.brokers[1].image.topic("t")
    assert topic is not None
    answer = await wire.request(
        "fetch",
        up_to=version,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            {
                "topic": "t",
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition": 2,
                        "current_leader_epoch": -1,
                        "fetch_offset": 0,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    result = answer.responses[0].partitions[0]
    assert result.error_code is ErrorCode.not_leader_or_follower
    if version >= 12:
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (3, 0)
    if version >= 16:
        assert [(each.node_id, each.rack) for each in answer.node_endpoints] == [(3, "r3")]


async def test_offsets_are_asked_of_the_leader(cluster: MemoryCluster) -> None:
    wire = await cluster.wire(1)
    answer = await wire.request(
        "list_offsets",
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}
                    for index in (0, 1, 9)
                ],
            }
        ],
        timeout=1000,
    )
    assert [each.error_code for each in answer.topics[0].partitions] == [
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    ]


async def test_a_tool_that_compares_replicas_asks_a_follower(cluster: MemoryCluster) -> None:
    await cluster.controller.controller.submit(
        CreateTopics([NewTopic("copied", assignments=[(0, [1, 2])])]),
    )
    await cluster.in_step()

    async def asked(broker_id: int, replica_id: int, timestamp: int) -> tuple[ErrorCode, int]:
        wire = await cluster.wire(broker_id)
        partition = {"partition_index": 0, "current_leader_epoch": 0, "timestamp": timestamp}
        answer = await wire.request(
            "list_offsets",
            replica_id=replica_id,
            isolation_level=0,
            topics=[{"name": "copied", "partitions": [partition]}],
            timeout=1000,
        )
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    elsewhere = (ErrorCode.not_leader_or_follower, -1)
    for timestamp in (-1, -2):
        assert await asked(2, -2, timestamp) == (ErrorCode.none, 0)
        assert await asked(2, -1, timestamp) == await asked(2, 1, timestamp) == elsewhere
        assert await asked(3, -2, timestamp) == elsewhere


async def test_an_epoch_that_is_not_the_followers_own(cluster: MemoryCluster) -> None:
    """Whoever names another leader epoch hears of that, at a follower as at the leader."""
    await cluster.controller.controller.submit(
        CreateTopics([NewTopic("copied", assignments=[(0, [1, 2])])]),
    )
    await cluster.in_step()
    await cluster.lose(1)  # epoch 1, led by broker 2
    await cluster.in_step()
    await cluster.start(1)
    await cluster.in_step()

    async def asked(broker_id: int, epoch: int) -> tuple[ErrorCode, ...]:
        wire = await cluster.wire(broker_id)
        partition = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": -1}
        offsets = await wire.request(
            "list_offsets",
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": "copied", "partitions": [partition]}],
            timeout=1000,
        )
        partition = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
        ends = await wire.request(
            "offset_for_leader_epoch",
            replica_id=-1,
            topics=[{"topic": "copied", "partitions": [partition]}],
        )
        codes = [offsets.topics[0].partitions[0].error_code, ends.topics[0].partitions[0].error_code]
        for version in (9, 10):  # a later one may read from a follower
            partition = {
                "partition": 0,
                "current_leader_epoch": epoch,
                "fetch_offset": 0,
                "log_start_offset": -1,
                "partition_max_bytes": 100,
            }
            fetched = await wire.request(
                "fetch",
                up_to=version,
                replica_id=-1,
                max_wait=0,
                min_bytes=0,
                max_bytes=100,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[{"topic": "copied", "partitions": [partition]}],
                forgotten_topics_data=[],
            )
            codes.append(fetched.responses[0].partitions[0].error_code)
        return tuple(codes)

    record = cluster.controller.image.topic("copied")
    assert record is not None
    [state] = cluster.controller.image.partitions[record.topic_id]
    now = state.leader_epoch
    assert state.leader == 2 and now > 0
    await wait_until_async(lambda: cluster.brokers[2].partitions.find("copied", 0).knows_latest)  # type: ignore[union-attr]
    expected = {
        -1: ErrorCode.not_leader_or_follower,
        now: ErrorCode.not_leader_or_follower,
        now - 1: ErrorCode.fenced_leader_epoch,
        now + 1: ErrorCode.unknown_leader_epoch,
    }
    for epoch, code in expected.items():
        assert await asked(1, epoch) == (code,) * 4, epoch
    for epoch, code in {**expected, -1: ErrorCode.none, now: ErrorCode.none}.items():
        assert await asked(2, epoch) == (code,) * 4, epoch
    for epoch in expected:  # a broker without a replica knows no epoch
        assert await asked(3, epoch) == (ErrorCode.not_leader_or_follower,) * 4


async def test_producers_are_described_by_every_replica(cluster: MemoryCluster) -> None:
    wire = await cluster.wire(1)
    topics = [{"name": "t", "partition_indexes": [0, 1, 9]}, {"name": "none", "partition_indexes": [0]}]
    answer = await wire.request("describe_producers", topics=topics)
    assert [[each.error_code for each in topic.partitions] for topic in answer.topics] == [
        [ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition],
        [ErrorCode.unknown_topic_or_partition],
    ]
    await cluster.controller.controller.submit(
        CreateTopics([NewTopic("copied", assignments=[(0, [1, 2])])]),
    )
    await cluster.in_step()
    leader = await cluster.wire(1)
    records = bytes(
        encode_batch([Record(0, 0, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    )
    await leader.request(
        "produce",
        up_to=12,
        transactional_id=None,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": "copied", "partition_data": [{"index": 0, "records": records}]}],
    )

    async def described(broker_id: int) -> list[int]:
        topics = [{"name": "copied", "partition_indexes": [0]}]
        answer = await (await cluster.wire(broker_id)).request("describe_producers", topics=topics)
        found = answer.topics[0].partitions[0]
        assert found.error_code is ErrorCode.none
        return [producer.producer_id for producer in found.active_producers]

    assert await described(1) == await described(2) == [7]


async def test_a_topic_is_made_while_a_broker_is_down(cluster: MemoryCluster) -> None:
    await cluster.lose(3)
    await cluster.in_step()
    [made] = await cluster.controller.controller.submit(CreateTopics([NewTopic("new", 2, 3)]))
    assert made.error is ErrorCode.none, made.message
    await cluster.in_step()
    for partition in cluster.controller.image.partitions[made.topic_id]:  # type: ignore[index]
        assert set(partition.replicas) == {1, 2, 3} and set(partition.isr) == {1, 2}
    await cluster.start(3)

    def complete() -> bool:
        partitions = cluster.controller.image.partitions[made.topic_id]  # type: ignore[index]
        return all(set(partition.isr) == {1, 2, 3} for partition in partitions)

    await wait_until_async(complete)


async def test_internal_topics_wait_for_enough_brokers(tmp_path: Path) -> None:
    async with MemoryCluster(tmp_path, 2) as cluster:
        wire = await cluster.wire(2)
        find = {"key_type": 0, "coordinator_keys": ["g"]}
        answer = await wire.request("find_coordinator", **find)
        assert answer.coordinators[0].error_code is ErrorCode.coordinator_not_available
        answer = await metadata(wire, "__consumer_offsets")
        assert answer.topics[0].error_code is ErrorCode.invalid_replication_factor
        await cluster.start(3)
        await cluster.in_step()
        answer = await wire.request("find_coordinator", **find)
        found = answer.coordinators[0]
        assert found.error_code is ErrorCode.none
        image = cluster.brokers[2].image
        topic = image.topic("__consumer_offsets")
        assert topic is not None
        assert {len(partition.replicas) for partition in image.partitions[topic.topic_id]} == {3}
        assert found.port == cluster.brokers[found.node_id].acceptors[0].port


async def test_groups_are_listed_where_they_are_coordinated(tmp_path: Path) -> None:
    async with MemoryCluster(tmp_path, offsets_topic_replication_factor=1) as cluster:
        wires = {broker_id: await cluster.wire(broker_id) for broker_id in cluster.brokers}
        await cluster.controller.controller.submit(CreateTopics([NewTopic("t", 1, 1)]))
        await cluster.controller.groups.runtime.ensure_exists()
        await cluster.in_step()
        groups = [f"g{number}" for number in range(12)]
        where: dict[str, int] = {}
        for group in groups:
            answer = await wires[1].request("find_coordinator", key_type=0, coordinator_keys=[group])
            where[group] = answer.coordinators[0].node_id
            commit = {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [
                    {
                        "name": "t",
                        "partitions": [
                            {
                                "partition_index": 0,
                                "committed_offset": 5,
                                "committed_leader_epoch": -1,
                                "committed_metadata": "",
                            }
                        ],
                    }
                ],
            }
            for broker_id, wire in wires.items():
                answer = await wire.request("offset_commit", up_to=9, **commit)
                expected = ErrorCode.none if broker_id == where[group] else ErrorCode.not_coordinator
                assert answer.topics[0].partitions[0].error_code is expected
        assert len(set(where.values())) > 1
        for broker_id, wire in wires.items():
            answer = await wire.request("list_groups", states_filter=[], types_filter=[])
            assert {group.group_id for group in answer.groups} == {
                group for group in groups if where[group] == broker_id
            }


async def test_while_there_is_no_controller_this_broker_is_named(cluster: MemoryCluster) -> None:
    gone = cluster.controller.node_id
    (survivor, *_) = (broker for broker in cluster.brokers.values() if broker.node_id != gone)
    for broker in cluster.brokers.values():
        if broker.node_id != gone:
            broker.store.gate.clear()
    await cluster.stop(gone)
    survivor.image.brokers.pop(gone)  # as BrokerDown does, once somebody can write it
    wire = await cluster.wire(survivor.node_id)
    assert (await metadata(wire, "t")).controller_id == survivor.node_id
    for broker in cluster.brokers.values():
        broker.store.gate.set()
    await wait_until_async(lambda: any(b.controller.leading for b in cluster.brokers.values()))
