"""Rights and quotas on several brokers: set at any of them, they count at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.server import Broker
from millstream.wire.acls import Operation, PatternType, Permission, ResourceType
from millstream.wire.errors import ErrorCode
from tests.support.memory_cluster import MemoryCluster, new_topic

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MemoryCluster]:
    """Brokers are anonymous to each other, and super users."""
    settings = {
        "authorizer_class_name": AUTHORIZER,
        "super_users": "User:ANONYMOUS",
        "offsets_topic_replication_factor": 1,
        "offsets_topic_num_partitions": 1,
    }
    async with MemoryCluster(tmp_path, **settings) as cluster:
        yield cluster


async def wire_of(cluster: MemoryCluster, broker: Broker, user: str = "") -> Any:
    """A client of a broker, logged in as somebody."""
    before = set(broker.admission.open)
    wire = await cluster.wire(broker.node_id)
    if user:
        (connection,) = set(broker.admission.open) - before
        connection.principal = f"User:{user}"
    return wire


async def allow(wire: Any, kind: ResourceType, name: str, *operations: Operation) -> None:
    answer = await wire.request(
        "create_acls",
        creations=[
            {
                "resource_type": kind,
                "resource_name": name,
                "resource_pattern_type": PatternType.LITERAL,
                "principal": "User:alice",
                "host": "*",
                "operation": operation,
                "permission_type": Permission.ALLOW,
            }
            for operation in operations
        ],
    )
    assert {result.error_code for result in answer.results} == {ErrorCode.none}


async def create(wire: Any, name: str) -> ErrorCode:
    answer = await wire.request(
        "create_topics", topics=[new_topic(name)], timeout=30_000, validate_only=False
    )
    code: ErrorCode = answer.topics[0].error_code
    return code


async def test_an_acl_made_at_one_broker_counts_at_all(cluster: MemoryCluster) -> None:
    first, second = cluster.others
    alice = [await wire_of(cluster, broker, "alice") for broker in (first, second, cluster.controller)]
    for wire in alice:
        assert await create(wire, "t") is ErrorCode.topic_authorization_failed
        refused = await wire.request(
            "delete_acls",
            filters=[
                {
                    "resource_type_filter": ResourceType.ANY,
                    "resource_name_filter": None,
                    "pattern_type_filter": PatternType.ANY,
                    "principal_filter": None,
                    "host_filter": None,
                    "operation": Operation.ANY,
                    "permission_type": Permission.ANY,
                }
            ],
        )
        assert refused.filter_results[0].error_code is ErrorCode.cluster_authorization_failed
    admin = await wire_of(cluster, first)
    await allow(admin, ResourceType.CLUSTER, "kafka-cluster", Operation.CREATE)
    # Answered when this broker knows it; the controller knew before.
    assert await create(alice[0], "a") is ErrorCode.none
    assert await create(alice[2], "b") is ErrorCode.none
    assert len({len(broker.image.acls) for broker in (first, cluster.controller)}) == 1


async def test_an_internal_topic_is_made_by_the_broker_not_by_the_client(cluster: MemoryCluster) -> None:
    other = cluster.others[0]
    admin, alice = await wire_of(cluster, other), await wire_of(cluster, other, "alice")
    answer = await alice.request("find_coordinator", key_type=0, coordinator_keys=["g"])
    assert answer.coordinators[0].error_code is ErrorCode.group_authorization_failed
    assert other.image.topic("__consumer_offsets") is None
    await allow(admin, ResourceType.GROUP, "g", Operation.READ)
    answer = await alice.request("find_coordinator", key_type=0, coordinator_keys=["g"])
    assert answer.coordinators[0].error_code is ErrorCode.none
    assert other.image.topic("__consumer_offsets") is not None


async def test_only_brokers_with_the_right_may_ask_as_brokers(cluster: MemoryCluster) -> None:
    wire = await wire_of(cluster, cluster.controller, "alice")
    answer = await wire.request("allocate_producer_ids", broker_id=1, broker_epoch=1)
    assert answer.error_code is ErrorCode.cluster_authorization_failed


async def test_a_quota_set_at_one_broker_counts_at_all(cluster: MemoryCluster) -> None:
    admin = await wire_of(cluster, cluster.others[0])
    answer = await admin.request(
        "alter_client_quotas",
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": "alice"}],
                "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
            }
        ],
        validate_only=False,
    )
    assert answer.entries[0].error_code is ErrorCode.none
    for broker in (cluster.others[0], cluster.controller):
        assert broker.quotas.active
