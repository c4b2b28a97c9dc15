"""The packed Metadata response against kio's writer, in every version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.wire.errors import ErrorCode
from millstream.wire.messages import codec
from millstream.wire.metadata import (
    BrokerAddress,
    PartitionState,
    pack_metadata_response,
    pack_partition,
    pack_topic,
)
from tests.support.effort import examples

METADATA = 3
ids = st.lists(st.integers(-1, 2**31 - 1), max_size=4).map(tuple)
partitions = st.builds(
    PartitionState,
    st.sampled_from([ErrorCode.none, ErrorCode.leader_not_available]),
    *(st.integers(0, 2**31 - 1) for _ in range(3)),
    ids,
    ids,
    ids,
)
brokers = st.builds(
    BrokerAddress,
    st.integers(0, 9),
    st.text(max_size=200),
    st.integers(1, 65535),
    st.none() | st.text(max_size=9),
)
topics = st.tuples(
    st.sampled_from([ErrorCode.none, ErrorCode.unknown_topic_id]),
    st.none() | st.text(max_size=150),
    st.none() | st.uuids(),
    st.booleans(),
    st.lists(partitions, max_size=3),
    st.integers(-(2**31), 2**31 - 1),
)


@pytest.mark.parametrize("version", range(14))
@settings(max_examples=examples(20), deadline=None)
@given(
    nodes=st.lists(brokers, max_size=2),
    found=st.lists(topics, max_size=3),
    cluster=st.none() | st.text(max_size=22),
)
def test_every_version_is_what_kio_writes(
    version: int, nodes: list[BrokerAddress], found: list[Any], cluster: str | None
) -> None:
    form = codec(METADATA, version)
    expected = form.answer(
        brokers=tuple(form.make("MetadataResponseBroker", **node._asdict()) for node in nodes),
        cluster_id=cluster,
        controller_id=7,
        topics=tuple(
            form.make(
                "MetadataResponseTopic",
                error_code=error,
                name=name if name is not None or version >= 12 else "",
                topic_id=topic_id if topic_id != UUID(int=0) else None,
                is_internal=internal,
                partitions=tuple(
                    form.make(
                        "MetadataResponsePartition",
                        error_code=p.error,
                        partition_index=p.partition,
                        leader_id=p.leader,
                        leader_epoch=p.leader_epoch,
                        replica_nodes=p.replicas,
                        isr_nodes=p.isr,
                        offline_replicas=p.offline,
                    )
                    for p in states
                ),
                topic_authorized_operations=operations,
            )
            for error, name, topic_id, internal, states, operations in found
        ),
        cluster_authorized_operations=12,
        error_code=ErrorCode.none,
    )
    packed = []
    for *topic, states, operations in found:
        partitions = [pack_partition(version, state) for state in states]
        packed.append((pack_topic(version, *topic, partitions), operations))
    assert pack_metadata_response(99, version, nodes, cluster, 7, packed, 12) == form.pack(99, expected)
