"""Records of `__consumer_offsets` about committed offsets and classic groups, byte for byte Kafka's.

A key begins with its type (Kafka calls it the key's version): 0 and 1 an offset commit, 2 a classic group;
the others are in `consumer_group_records`. A value begins with its own version:

    offset commit  0  offset, metadata, commit time
                   1  and expire time (a client that chose its own retention; still written for such)
                   3  offset, leader epoch, metadata, commit time (2 is 0 again)
                   4  the same, flexible, with the topic's id as tag 0; what is written now
    classic group  0 to 4 (4 is flexible); 3 is written, as Apache Kafka 4 does

No value (null) is a tombstone. An offset is kept in memory as the bytes of its value, so these are read when
somebody asks for the offset, not when the log is loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.broker.coordinators.record_fields import Reader, Writer
from millstream.wire.primitives import INT16, INT32
from millstream.wire.varint import Malformed, read_uvarint, uvarint

OFFSET_COMMIT_OLD, OFFSET_COMMIT, GROUP_METADATA = 0, 1, 2

NO_TIME = -1
NO_EPOCH = -1

_V0_HEAD = struct.Struct(">hqh")  # version, offset, size of the metadata
_V3_HEAD = struct.Struct(">hqih")  # version, offset, leader epoch, size of the metadata
_V4_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch; then the metadata's varint
_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one tagged field, number 0, 16 bytes
_EMPTY_METADATA = b"\x01"


class UnknownRecord(Malformed):
    """A key type or a value version that this broker does not know."""


# --- keys -----------------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    data = value.encode()
    return INT16.pack(len(data)) + data


def offset_key_prefix(group: str, topic: str) -> bytes:
    """All of an offset commit's key but the partition, which is an int32 at its end."""
    return b"\x00\x01" + _text(group) + _text(topic)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return offset_key_prefix(group, topic) + INT32.pack(partition)


def group_key(group: str) -> bytes:
    return b"\x00\x02" + _text(group)


def key_type(key: bytes) -> int:
    return int(INT16.unpack_from(key)[0])


def parse_offset_key_prefix(prefix: bytes) -> tuple[str, str]:
    """Group and topic out of a key without its last four bytes."""
    reader = Reader(prefix, flexible_from=1 << 15)
    group, topic = reader.text(), reader.text()
    if reader.at != len(prefix):
        raise Malformed("an offset commit's key has bytes left over")
    return group, topic


def parse_group_key(key: bytes) -> str:
    return Reader(key, flexible_from=1 << 15).text()


# --- an offset commit's value ---------------------------------------------------------------------


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_time: int = NO_TIME
    expire_time: int = NO_TIME
    topic_id: UUID | None = None


def offset_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_time: int,
    expire_time: int = NO_TIME,
    topic_id: UUID | None = None,
) -> bytes:
    if expire_time != NO_TIME:
        text = metadata.encode()
        return _V0_HEAD.pack(1, offset, len(text)) + text + _TIMES.pack(commit_time, expire_time)
    if metadata:
        text = metadata.encode()
        text = uvarint(len(text) + 1) + text
    else:
        text = _EMPTY_METADATA
    value = _V4_HEAD.pack(4, offset, leader_epoch) + text + _TIME.pack(commit_time)
    return value + (b"\0" if topic_id is None else _TOPIC_ID_TAG + topic_id.bytes)


def parse_offset_value(value: bytes) -> CommittedOffset:
    version = value[1] if value[0] == 0 else -1
    if version == 4:
        _, offset, epoch = _V4_HEAD.unpack_from(value)
        size, at = read_uvarint(value, _V4_HEAD.size)
        end = at + size - 1
        topic_id = None
        if value[end + 8 : end + 11] == _TOPIC_ID_TAG:
            topic_id = UUID(bytes=value[end + 11 : end + 27])
        return CommittedOffset(
            offset, epoch, value[at:end].decode(), _TIME.unpack_from(value, end)[0], NO_TIME, topic_id
        )
    if version == 3:
        _, offset, epoch, size = _V3_HEAD.unpack_from(value)
        end = _V3_HEAD.size + size
        return CommittedOffset(
            offset, epoch, value[_V3_HEAD.size : end].decode(), _TIME.unpack_from(value, end)[0]
        )
    if version in (0, 1, 2):
        _, offset, size = _V0_HEAD.unpack_from(value)
        end = _V0_HEAD.size + size
        text = value[_V0_HEAD.size : end].decode()
        if version == 1:
            commit, expire = _TIMES.unpack_from(value, end)
            return CommittedOffset(offset, NO_EPOCH, text, commit, expire)
        return CommittedOffset(offset, NO_EPOCH, text, _TIME.unpack_from(value, end)[0])
    raise UnknownRecord(f"offset commit value of version {INT16.unpack_from(value)[0]}")


# --- a classic group's value ----------------------------------------------------------------------


class MemberRecord(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupRecord(NamedTuple):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_time: int
    members: Sequence[MemberRecord]


def group_value(group: GroupRecord, version: int = 3) -> bytes:
    out = Writer(version, flexible=version >= 4)
    out.string(group.protocol_type)
    out.int32(group.generation)
    out.string(group.protocol)
    out.string(group.leader)
    if version >= 2:
        out.int64(group.state_time)
    out.count(len(group.members))
    for member in group.members:
        out.string(member.member_id)
        if version >= 3:
            out.string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        if version >= 1:
            out.int32(member.rebalance_timeout)
        out.int32(member.session_timeout)
        out.bytes_(member.subscription)
        out.bytes_(member.assignment)
        out.tags()
    out.tags()
    return out.done()


class EmptyGroup(NamedTuple):
    protocol_type: str
    state_time: int


_EMPTY_TAIL = struct.Struct(">ihhqi")  # generation, no protocol, no leader, state time, no members


def empty_group(value: bytes) -> EmptyGroup | None:
    """What the record of a classic group without members says; None if it is not one in the form that is
    written now."""
    size = len(value) - _EMPTY_TAIL.size
    if size < 4 or value[:2] != b"\0\3" or INT16.unpack_from(value, 2)[0] != size - 4:
        return None
    _, protocol, leader, state_time, members = _EMPTY_TAIL.unpack_from(value, size)
    if protocol != -1 or leader != -1 or members:
        return None
    return EmptyGroup(value[4:size].decode(), state_time)


def parse_group_value(value: bytes) -> GroupRecord:
    source = Reader(value, flexible_from=4)
    version = source.version
    if not 0 <= version <= 4:
        raise UnknownRecord(f"group value of version {version}")

    def member() -> MemberRecord:
        member_id = source.text()
        instance_id = source.string() if version >= 3 else None
        client_id, client_host = source.text(), source.text()
        rebalance_timeout = source.int32() if version >= 1 else -1
        session_timeout = source.int32()
        subscription, assignment = source.bytes_() or b"", source.bytes_() or b""
        source.tags()
        if rebalance_timeout == -1:
            rebalance_timeout = session_timeout
        return MemberRecord(
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout,
            session_timeout,
            subscription,
            assignment,
        )

    protocol_type, generation = source.text(), source.int32()
    protocol, leader = source.string(), source.string()
    state_time = source.int64() if version >= 2 else NO_TIME
    return GroupRecord(protocol_type, generation, protocol, leader, state_time, source.array(member))
