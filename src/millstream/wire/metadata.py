"""The Metadata response, versions 0 to 13, packed by hand: a cluster has thousands of partitions and every
client asks.

A topic is packed in steps, so that they can be kept and a long one can be interrupted: `pack_partition` for
each partition; `pack_topic` is everything up to the authorised operations, which depend on who asks;
`pack_metadata_response` puts the pieces together.

    since 1   rack, controller id, internal   since 7   leader epochs
    since 2   cluster id                      since 8   authorised operations (the cluster's until 10)
    since 3   throttle time                   since 9   the flexible form
    since 5   offline replicas                since 10  topic ids; 12: names may be null; 13: an error code
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.wire.primitives import INT16, INT32
from millstream.wire.varint import uvarint

FIRST_FLEXIBLE = 9
_NO_ID = bytes(16)
_PARTITION = struct.Struct(">hii")
_PARTITION_WITH_EPOCH = struct.Struct(">hiii")


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionState(NamedTuple):
    error: int
    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]


def pack_partition(version: int, partition: PartitionState) -> bytes:
    flexible = version >= FIRST_FLEXIBLE
    parts = [
        _PARTITION_WITH_EPOCH.pack(*partition[:4]) if version >= 7 else _PARTITION.pack(*partition[:3]),
        _numbers(partition.replicas, flexible),
        _numbers(partition.isr, flexible),
    ]
    if version >= 5:
        parts.append(_numbers(partition.offline, flexible))
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)


def pack_topic(
    version: int,
    error: int,
    name: str | None,
    topic_id: UUID | None,
    internal: bool,
    partitions: Sequence[bytes],
) -> bytes:
    """A topic without its authorised operations. A null name is an empty one before version 12. `partitions`
    are what `pack_partition` made."""
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray(INT16.pack(error))
    out += _string(name if name is not None or version >= 12 else "", flexible)
    if version >= 10:
        out += topic_id.bytes if topic_id is not None else _NO_ID
    if version >= 1:
        out.append(internal)
    out += _count(len(partitions), flexible)
    out += b"".join(partitions)
    return bytes(out)


def pack_metadata_response(
    correlation_id: int,
    version: int,
    brokers: Sequence[BrokerAddress],
    cluster_id: str | None,
    controller_id: int,
    topics: Sequence[tuple[bytes, int]],
    cluster_operations: int,
) -> bytes:
    """The whole frame. `topics` are what `pack_topic` made, each with its authorised operations."""
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray(4)  # the frame's size, filled in at the end
    out += INT32.pack(correlation_id)
    if flexible:
        out.append(0)
    if version >= 3:
        out += b"\0\0\0\0"  # throttle time
    out += _count(len(brokers), flexible)
    for broker in brokers:
        out += INT32.pack(broker.node_id) + _string(broker.host, flexible) + INT32.pack(broker.port)
        if version >= 1:
            out += _string(broker.rack, flexible)
        if flexible:
            out.append(0)
    if version >= 2:
        out += _string(cluster_id, flexible)
    if version >= 1:
        out += INT32.pack(controller_id)
    out += _count(len(topics), flexible)
    out += b"".join(_topics(topics, version))
    if 8 <= version <= 10:
        out += INT32.pack(cluster_operations)
    if version >= 13:
        out += b"\0\0"  # no error of the request as a whole
    if flexible:
        out.append(0)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _topics(topics: Iterable[tuple[bytes, int]], version: int) -> Iterable[bytes]:
    tags = b"\0" if version >= FIRST_FLEXIBLE else b""
    for topic, operations in topics:
        yield topic
        if version >= 8:
            yield INT32.pack(operations) + tags


def _string(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    data = value.encode()
    return (uvarint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def _numbers(numbers: Sequence[int], flexible: bool) -> bytes:
    return _count(len(numbers), flexible) + struct.pack(f">{len(numbers)}i", *numbers)
