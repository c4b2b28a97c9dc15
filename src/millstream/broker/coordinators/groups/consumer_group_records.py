"""Records of `__consumer_offsets` about groups of the consumer protocol (KIP-848), byte for byte Kafka's.

A group of that protocol is spread over several records, so that a change writes only what changed:

    3  the group: its epoch, and a hash of its topics     7  the target assignment of a member (one for each)
    4  its topics (written by Kafka 4.0 only)             8  the current assignment of a member (one for each)
    5  a member as it described itself                   16  the topics that a regular expression stands for
    6  the epoch of the target assignment

All values are of version 0, which is flexible.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.broker.coordinators.groups.offset_records import UnknownRecord
from millstream.broker.coordinators.record_fields import Reader, Writer
from millstream.wire.primitives import INT16, INT64
from millstream.wire.varint import Malformed

GROUP, TOPICS, MEMBER, TARGET_EPOCH, TARGET_MEMBER, CURRENT_MEMBER, REGEX = 3, 4, 5, 6, 7, 8, 16
KEY_TYPES = frozenset((GROUP, TOPICS, MEMBER, TARGET_EPOCH, TARGET_MEMBER, CURRENT_MEMBER, REGEX))
_WITH_SECOND_NAME = frozenset((MEMBER, TARGET_MEMBER, CURRENT_MEMBER, REGEX))

Partitions = Mapping[UUID, Sequence[int]]
EpochPartitions = Mapping[UUID, Mapping[int, int]]  # topic -> partition -> epoch at which it was assigned


# --- keys -----------------------------------------------------------------------------------------


def key(key_type: int, group: str, second: str | None = None) -> bytes:
    """`second` is the member id, or the expression, for the types that have one record of each."""
    out = Writer(key_type, flexible=False)
    out.string(group)
    if second is not None:
        out.string(second)
    return out.done()


def parse_key(data: bytes) -> tuple[int, str, str]:
    """Key type, group, and the member id or expression (empty where the type has none)."""
    source = Reader(data, flexible_from=1 << 15)
    key_type = source.version
    group = source.text()
    return key_type, group, source.text() if key_type in _WITH_SECOND_NAME else ""


# --- the group ------------------------------------------------------------------------------------


def group_value(epoch: int, metadata_hash: int = 0) -> bytes:
    out = Writer(0, flexible=True)
    out.int32(epoch)
    out.tags(*([(0, struct.pack(">Q", metadata_hash))] if metadata_hash else []))
    return out.done()


def parse_group_value(value: bytes) -> tuple[int, int]:
    """Group epoch and metadata hash."""
    source = _reader(value)
    epoch = source.int32()
    return epoch, int.from_bytes(source.tags().get(0, b""), "big")


def target_epoch_value(epoch: int, time_ms: int = 0) -> bytes:
    out = Writer(0, flexible=True)
    out.int32(epoch)
    out.tags(*([(0, INT64.pack(time_ms))] if time_ms else []))
    return out.done()


def parse_target_epoch_value(value: bytes) -> int:
    return _reader(value).int32()


# --- members --------------------------------------------------------------------------------------


class ClassicInfo(NamedTuple):
    """What a member of the classic protocol said in its JoinGroup."""

    session_timeout: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberValue(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout: int
    assignor: str | None
    classic: ClassicInfo | None


def member_value(member: MemberValue) -> bytes:
    out = Writer(0, flexible=True)
    out.string(member.instance_id)
    out.string(member.rack_id)
    out.string(member.client_id)
    out.string(member.client_host)
    out.strings(list(member.topics))
    out.string(member.regex)
    out.int32(member.rebalance_timeout)
    out.string(member.assignor)
    out.tags((0, _classic_info(member.classic)))
    return out.done()


def _classic_info(info: ClassicInfo | None) -> bytes:
    """Kafka writes this tagged field even where it is null: one zero byte."""
    if info is None:
        return b"\0"
    out = Writer(0, flexible=True)
    out.out.clear()  # a structure inside a record has no version of its own
    out.int8(1)
    out.int32(info.session_timeout)
    out.count(len(info.protocols))
    for name, metadata in info.protocols:
        out.string(name)
        out.bytes_(metadata)
        out.tags()
    out.tags()
    return out.done()


def parse_member_value(value: bytes) -> MemberValue:
    source = _reader(value)
    instance_id, rack_id = source.string(), source.string()
    client_id, client_host = source.text(), source.text()
    topics = tuple(source.array(source.text))
    regex = source.string()
    rebalance_timeout = source.int32()
    assignor = source.string()
    info = _parse_classic_info(source.tags().get(0, b"\0"))
    return MemberValue(
        instance_id, rack_id, client_id, client_host, topics, regex, rebalance_timeout, assignor, info
    )


def _parse_classic_info(data: bytes) -> ClassicInfo | None:
    source = Reader(b"\0\0" + data, flexible_from=0)
    if source.int8() < 1:
        return None

    def protocol() -> tuple[str, bytes]:
        name, metadata = source.text(), source.bytes_() or b""
        source.tags()
        return name, metadata

    return ClassicInfo(source.int32(), tuple(source.array(protocol)))


# --- assignments ----------------------------------------------------------------------------------


def target_value(partitions: Partitions) -> bytes:
    out = Writer(0, flexible=True)
    out.count(len(partitions))
    for topic_id, indexes in partitions.items():
        out.uuid(topic_id)
        out.int32s(sorted(indexes))
        out.tags()
    out.tags()
    return out.done()


def parse_target_value(value: bytes) -> dict[UUID, list[int]]:
    source = _reader(value)

    def topic() -> tuple[UUID, list[int]]:
        topic_id, indexes = source.uuid(), source.array(source.int32)
        source.tags()
        return topic_id, indexes

    return dict(source.array(topic))


class CurrentValue(NamedTuple):
    epoch: int
    previous_epoch: int
    state: int
    assigned: EpochPartitions
    revoking: EpochPartitions


def current_value(current: CurrentValue) -> bytes:
    out = Writer(0, flexible=True)
    out.int32(current.epoch)
    out.int32(current.previous_epoch)
    out.int8(current.state)
    _put_with_epochs(out, current.assigned)
    _put_with_epochs(out, current.revoking)
    out.tags()
    return out.done()


def _put_with_epochs(out: Writer, partitions: EpochPartitions) -> None:
    out.count(len(partitions))
    for topic_id, epochs in partitions.items():
        indexes = sorted(epochs)
        out.uuid(topic_id)
        out.int32s(indexes)
        nested = Writer(0, flexible=True)
        nested.out.clear()
        nested.int32s([epochs[index] for index in indexes])
        out.tags((0, nested.done()))


def parse_current_value(value: bytes) -> CurrentValue:
    source = _reader(value)
    epoch, previous_epoch, state = source.int32(), source.int32(), source.int8()

    def topic() -> tuple[UUID, dict[int, int]]:
        topic_id, indexes = source.uuid(), source.array(source.int32)
        nested = source.tags().get(0, b"")
        epochs = [epoch] * len(indexes)  # Kafka before 4.2 does not say since when
        if nested:
            inner = Reader(b"\0\0" + nested, flexible_from=0)
            listed = inner.array(inner.int32)
            if len(listed) == len(indexes):
                epochs = listed
        return topic_id, dict(zip(indexes, epochs, strict=True))

    assigned = dict(source.array(topic))
    revoking = dict(source.array(topic))
    return CurrentValue(epoch, previous_epoch, state, assigned, revoking)


# --- regular expressions --------------------------------------------------------------------------


class RegexValue(NamedTuple):
    topics: tuple[str, ...]
    version: int  # of the metadata in which the topics were looked up
    time_ms: int


def regex_value(resolved: RegexValue) -> bytes:
    out = Writer(0, flexible=True)
    out.strings(sorted(resolved.topics))
    out.int64(resolved.version)
    out.int64(resolved.time_ms)
    out.tags()
    return out.done()


def parse_regex_value(value: bytes) -> RegexValue:
    source = _reader(value)
    return RegexValue(tuple(source.array(source.text)), source.int64(), source.int64())


def _reader(value: bytes) -> Reader:
    if len(value) < 2:
        raise Malformed("a value without a version")
    version = INT16.unpack_from(value)[0]
    if version != 0:
        raise UnknownRecord(f"value of version {version}")
    return Reader(value, flexible_from=0)
