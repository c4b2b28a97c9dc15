"""Handlers that work through a list give the loop back after each slice of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.apis.acls import AclsApi
from millstream.broker.apis.cluster import ClusterApi
from millstream.broker.apis.configs import ConfigsApi
from millstream.broker.apis.consumer_groups import ConsumerGroupsApi
from millstream.broker.apis.find_coordinator import FindCoordinatorApi
from millstream.broker.apis.groups import GroupsApi
from millstream.broker.apis.log_dirs import LogDirsApi
from millstream.broker.apis.metadata import MetadataApi
from millstream.broker.apis.partition_offsets import PartitionOffsetsApi
from millstream.broker.network.slices import ELEMENTS_PER_SLICE, run_slice
from millstream.cluster.image import Image
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import codec

ELEMENTS = 10 * ELEMENTS_PER_SLICE


class CountingCall:
    """A call that counts the structures made for its response."""

    def __init__(self, api: int, version: int, **request: Any) -> None:
        self.codec = codec(api, version)
        self.version = version
        self.request = SimpleNamespace(**request)
        self.made = 0

    def make(self, structure: str, /, **fields: Any) -> Any:
        self.made += 1
        return self.codec.make(structure, **fields)

    def answer(self, **fields: Any) -> Any:
        return self.codec.answer(**fields)


def topics(field: str, **partitions: Any) -> list[Any]:
    return [SimpleNamespace(**{field: f"missing-{number}"}, **partitions) for number in range(ELEMENTS)]


def not_found(group_id: str) -> Any:
    raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")


HANDLERS = {
    "CreateAcls": lambda broker: (AclsApi(broker).create, CountingCall(30, 3, creations=range(ELEMENTS))),
    "DeleteAcls": lambda broker: (AclsApi(broker).delete, CountingCall(31, 3, filters=range(ELEMENTS))),
    "DescribeQuorum": lambda broker: (
        ClusterApi(broker).describe_quorum,
        CountingCall(55, 2, topics=topics("topic_name", partitions=[SimpleNamespace(partition_index=0)])),
    ),
    "DescribeProducers": lambda broker: (
        LogDirsApi(broker).describe_producers,
        CountingCall(61, 0, topics=topics("name", partition_indexes=(0,))),
    ),
    "AlterReplicaLogDirs": lambda broker: (
        LogDirsApi(broker).alter_replica_log_dirs,
        CountingCall(34, 2, dirs=[SimpleNamespace(path="/", topics=topics("name", partitions=(0,)))]),
    ),
    "FindCoordinator": lambda broker: (
        FindCoordinatorApi(broker).find_coordinator,
        CountingCall(10, 6, key_type=0, coordinator_keys=[f"key-{number}" for number in range(ELEMENTS)]),
    ),
    "DescribeGroups": lambda broker: (
        GroupsApi(broker).describe_groups,
        CountingCall(
            15,
            6,
            groups=[f"group-{number}" for number in range(ELEMENTS)],
            include_authorized_operations=False,
        ),
    ),
    "ConsumerGroupDescribe": lambda broker: (
        ConsumerGroupsApi(broker).describe,
        CountingCall(
            69,
            1,
            group_ids=[f"group-{number}" for number in range(ELEMENTS)],
            include_authorized_operations=False,
        ),
    ),
    "DescribeConfigs": lambda broker: (
        ConfigsApi(broker).describe_configs,
        CountingCall(
            32,
            4,
            resources=[
                SimpleNamespace(resource_type=2, resource_name=f"missing-{number}", configuration_keys=None)
                for number in range(ELEMENTS)
            ],
        ),
    ),
    "ListOffsets": lambda broker: (
        PartitionOffsetsApi(broker).list_offsets,
        CountingCall(
            2,
            11,
            isolation_level=0,
            topics=topics(
                "name",
                partitions=[SimpleNamespace(partition_index=0, current_leader_epoch=-1, timestamp=-1)],
            ),
        ),
    ),
    "OffsetForLeaderEpoch": lambda broker: (
        PartitionOffsetsApi(broker).offset_for_leader_epoch,
        CountingCall(
            23,
            4,
            topics=topics(
                "topic",
                partitions=[SimpleNamespace(partition=0, current_leader_epoch=-1, leader_epoch=0)],
            ),
        ),
    ),
    "DescribeTopicPartitions": lambda broker: (
        MetadataApi(broker).describe_topic_partitions,
        CountingCall(75, 0, topics=topics("name"), response_partition_limit=10, cursor=None),
    ),
}


@pytest.mark.parametrize("api", HANDLERS)
def test_no_slice_makes_more_than_it_may(api: str) -> None:
    broker = SimpleNamespace(
        image=Image(),
        partitions=SimpleNamespace(find=lambda _topic, _index: None, lacks_log=lambda _topic, _index: False),
        log_dirs=SimpleNamespace(paths=["/"]),
        settings=SimpleNamespace(integer=lambda _name: 2000, items=lambda _name: ["classic"]),
        groups=SimpleNamespace(classic_group=not_found),
    )
    handler, call = HANDLERS[api](broker)
    slices = handler(call)
    largest = before = 0
    try:
        while True:
            run_slice(slices)
            largest, before = max(largest, call.made - before), call.made
    except StopIteration as end:
        assert end.value is not None
    assert call.made >= ELEMENTS
    assert largest <= 2 * ELEMENTS_PER_SLICE
    assert call.made - before <= 2 * ELEMENTS_PER_SLICE


def test_what_is_named_again_is_answered_once() -> None:
    broker = SimpleNamespace(
        image=Image(), groups=SimpleNamespace(classic_group=not_found), settings=SimpleNamespace()
    )
    resource = SimpleNamespace(resource_type=2, resource_name="missing", configuration_keys=("a",))
    other = SimpleNamespace(resource_type=2, resource_name="missing", configuration_keys=("b",))
    for handler, call, expected in (
        (
            FindCoordinatorApi(broker).find_coordinator,
            CountingCall(10, 6, key_type=0, coordinator_keys=["a"] * 5),
            1,
        ),  # type: ignore[arg-type]
        (
            GroupsApi(broker).describe_groups,
            CountingCall(15, 6, groups=["a"] * 5, include_authorized_operations=False),
            1,
        ),  # type: ignore[arg-type]
        (ConfigsApi(broker).describe_configs, CountingCall(32, 4, resources=[resource, other] * 5), 2),  # type: ignore[arg-type]
    ):
        with pytest.raises(StopIteration):
            run_slice(handler(call))  # type: ignore[arg-type]
        assert call.made == expected
