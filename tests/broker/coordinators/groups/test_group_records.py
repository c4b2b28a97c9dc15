"""The records of `__consumer_offsets`: what Apache Kafka wrote is read and written again, byte for byte."""

import struct
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.coordinators.groups import consumer_group_records as newer
from millstream.broker.coordinators.groups import offset_records
from millstream.broker.coordinators.groups.offset_records import CommittedOffset, GroupRecord, MemberRecord
from millstream.wire.primitives import BAD_FRAME

TOPIC_ID = UUID("3a974332-c414-442b-b4d5-7059a4d0a1f9")
WRITTEN_BY_KAFKA = [
    (bytes.fromhex(key), None if value == "-" else bytes.fromhex(value))
    for key, value in (
        line.split()
        for line in (Path(__file__).parent / "kafka_records.txt").read_text().splitlines()
        if not line.startswith("#")
    )
]

AGAIN: dict[int, Callable[[bytes], bytes]] = {
    offset_records.OFFSET_COMMIT: lambda value: offset_records.offset_value(
        *offset_records.parse_offset_value(value)
    ),
    offset_records.GROUP_METADATA: lambda value: offset_records.group_value(
        offset_records.parse_group_value(value)
    ),
    newer.GROUP: lambda value: newer.group_value(*newer.parse_group_value(value)),
    newer.MEMBER: lambda value: newer.member_value(newer.parse_member_value(value)),
    newer.TARGET_EPOCH: lambda value: newer.target_epoch_value(
        newer.parse_target_epoch_value(value), int.from_bytes(value[-8:], "big")
    ),
    newer.TARGET_MEMBER: lambda value: newer.target_value(newer.parse_target_value(value)),
    newer.CURRENT_MEMBER: lambda value: newer.current_value(newer.parse_current_value(value)),
    newer.REGEX: lambda value: newer.regex_value(newer.parse_regex_value(value)),
}


def key_again(key: bytes) -> bytes:
    kind = offset_records.key_type(key)
    if kind == offset_records.OFFSET_COMMIT:
        group, topic = offset_records.parse_offset_key_prefix(key[:-4])
        return offset_records.offset_key(group, topic, struct.unpack(">i", key[-4:])[0])
    if kind == offset_records.GROUP_METADATA:
        return offset_records.group_key(offset_records.parse_group_key(key))
    kind, group, second = newer.parse_key(key)
    return newer.key(kind, group, second or None)


@pytest.mark.parametrize(("key", "value"), WRITTEN_BY_KAFKA)
def test_kafkas_bytes_are_ours(key: bytes, value: bytes | None) -> None:
    assert key_again(key) == key
    if value is not None:
        assert AGAIN[offset_records.key_type(key)](value) == value


def test_kafka_wrote_every_kind() -> None:
    assert {offset_records.key_type(key) for key, value in WRITTEN_BY_KAFKA if value is not None} == set(
        AGAIN
    )


# --- offset commits -------------------------------------------------------------------------------


def test_old_offset_values() -> None:
    """Versions 0 to 3, which older brokers left behind."""
    metadata = b"\x00\x02hi"
    assert offset_records.parse_offset_value(
        b"\0\0" + struct.pack(">q", 7) + metadata + struct.pack(">q", 99)
    ) == (CommittedOffset(7, -1, "hi", 99))
    assert offset_records.parse_offset_value(
        b"\0\1" + struct.pack(">q", 7) + metadata + struct.pack(">qq", 99, 150)
    ) == (CommittedOffset(7, -1, "hi", 99, 150))
    assert offset_records.parse_offset_value(
        b"\0\2" + struct.pack(">q", 7) + metadata + struct.pack(">q", 99)
    ) == (CommittedOffset(7, -1, "hi", 99))
    assert offset_records.parse_offset_value(
        b"\0\3" + struct.pack(">qi", 7, 5) + metadata + struct.pack(">q", 99)
    ) == (CommittedOffset(7, 5, "hi", 99))


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(offset_records.UnknownRecord):
        offset_records.parse_offset_value(b"\0\5" + bytes(30))
    with pytest.raises(offset_records.UnknownRecord):
        offset_records.parse_group_value(b"\0\5" + bytes(30))
    with pytest.raises(offset_records.UnknownRecord):
        newer.parse_group_value(b"\0\1" + bytes(30))


@given(
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=300),
    st.integers(0, 2**62),
    st.one_of(st.none(), st.uuids()),
)
def test_any_offset_survives(
    offset: int, epoch: int, metadata: str, time: int, topic_id: UUID | None
) -> None:
    value = offset_records.offset_value(offset, epoch, metadata, time, -1, topic_id)
    assert offset_records.parse_offset_value(value) == CommittedOffset(
        offset, epoch, metadata, time, -1, topic_id
    )


def test_a_retention_of_its_own_is_written_as_version_1() -> None:
    value = offset_records.offset_value(4, 9, "n", 1000, 5000, TOPIC_ID)
    assert value[:2] == b"\0\1"
    assert offset_records.parse_offset_value(value) == CommittedOffset(4, -1, "n", 1000, 5000)


# --- groups ---------------------------------------------------------------------------------------

MEMBER = MemberRecord("id-1", "inst", "client", "/10.0.0.1", 60000, 10000, b"sub", b"asg")


@pytest.mark.parametrize("version", range(5))
def test_group_values_of_every_version(version: int) -> None:
    group = GroupRecord("consumer", 3, "range", "id-1", 1234, [MEMBER])
    expected = group
    if version < 3:
        expected = group._replace(members=[MEMBER._replace(instance_id=None)])
    if version < 2:
        expected = expected._replace(state_time=-1)
    if version < 1:
        expected = expected._replace(members=[expected.members[0]._replace(rebalance_timeout=10000)])
    assert offset_records.parse_group_value(offset_records.group_value(group, version)) == expected


def test_members_that_speak_the_classic_protocol() -> None:
    info = newer.ClassicInfo(6000, (("range", b"\0\1"), ("sticky", b"")))
    member = newer.MemberValue(None, "rack", "c", "/1.1.1.1", ("a", "b"), None, 300000, "uniform", info)
    assert newer.parse_member_value(newer.member_value(member)) == member


def test_current_assignment_without_epochs_of_partitions() -> None:
    """Kafka 4.0 and 4.1 did not write since when a partition is assigned: since the member's epoch."""
    value = (
        b"\0\0" + struct.pack(">iib", 7, 6, 0) + b"\x02" + TOPIC_ID.bytes + b"\x02" + bytes(4) + b"\0\x01\0"
    )
    assert newer.parse_current_value(value) == newer.CurrentValue(7, 6, 0, {TOPIC_ID: {0: 7}}, {})


@given(st.binary(max_size=60))
def test_junk_never_raises_anything_odd(junk: bytes) -> None:
    for parse in (
        offset_records.parse_offset_key_prefix,
        offset_records.parse_offset_value,
        offset_records.parse_group_value,
        newer.parse_key,
        newer.parse_member_value,
        newer.parse_current_value,
        newer.parse_target_value,
        newer.parse_regex_value,
    ):
        try:
            parse(junk)
        except BAD_FRAME:
            pass


def test_an_empty_group_is_recognised_without_parsing_it() -> None:
    empty = offset_records.GroupRecord("consumer", 7, None, None, 1234, [])
    assert offset_records.empty_group(offset_records.group_value(empty)) == ("consumer", 1234)
    assert offset_records.empty_group(offset_records.group_value(empty._replace(protocol_type=""))) == (
        "",
        1234,
    )
    member = offset_records.MemberRecord("m", None, "c", "/h", 1, 1, b"", b"\0\0\0\0")
    for other in (
        empty._replace(members=[member]),
        empty._replace(protocol="range"),
        empty._replace(leader="m"),
    ):
        assert offset_records.empty_group(offset_records.group_value(other)) is None
    assert offset_records.empty_group(offset_records.group_value(empty, version=2)) is None
    assert offset_records.empty_group(b"") is None
