"""Answers that are sent so often that they are packed by hand: heartbeats, OffsetCommit, OffsetFetch.

kio's writer takes 40 us for the answer to a heartbeat and 400 us for a commit of ten partitions; these take a
few. Each function gives the whole frame. `head` is what every answer begins with; flexible versions have a
byte for tagged fields after the header and after each structure, and lengths plus one as varints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.wire.primitives import INT16, INT32
from millstream.wire.varint import uvarint

HEARTBEAT_FLEXIBLE, COMMIT_FLEXIBLE, FETCH_FLEXIBLE = 4, 8, 6
TOPIC_IDS = 10  # from this version on, OffsetCommit and OffsetFetch name topics by their id
GROUPS = 8  # from this version on, OffsetFetch asks for several groups

_HEARTBEATS = (
    struct.Struct(">iih"),  # size, correlation id, error
    struct.Struct(">iiih"),  # and the throttle time before the error
    struct.Struct(">iixihx"),  # and tags
)
_COMMITTED = (struct.Struct(">ih"), struct.Struct(">ihx"))  # partition, error; with tags
_HEAD = struct.Struct(">ii")
_NO_ID = bytes(16)


def heartbeat(version: int, correlation_id: int, error: int) -> bytes:
    if version >= HEARTBEAT_FLEXIBLE:
        return _HEARTBEATS[2].pack(12, correlation_id, 0, error)
    if version >= 1:
        return _HEARTBEATS[1].pack(10, correlation_id, 0, error)
    return _HEARTBEATS[0].pack(6, correlation_id, error)


def consumer_heartbeat(
    correlation_id: int,
    *,
    error: int = 0,
    message: str | None = None,
    member_id: str | None = None,
    epoch: int = 0,
    interval: int = 0,
    assignment: Mapping[UUID, Iterable[int]] | None = None,
) -> bytes:
    """ConsumerGroupHeartbeat; all its versions are alike, and flexible. An assignment of None has not
    changed."""
    out = [INT16.pack(error), _text(message), _text(member_id), _HEAD.pack(epoch, interval)]
    if assignment is None:
        out.append(b"\xff")
    else:
        out.append(b"\x01" + uvarint(len(assignment) + 1))
        for topic_id, indexes in assignment.items():
            numbers = sorted(indexes)
            packed = struct.pack(f">{len(numbers)}i", *numbers)
            out.append(topic_id.bytes + uvarint(len(numbers) + 1) + packed + b"\0")
        out.append(b"\0")
    out.append(b"\0")
    return _frame(correlation_id, True, True, out)


def _text(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    data = value.encode()
    return uvarint(len(data) + 1) + data


def _frame(correlation_id: int, flexible: bool, throttle: bool, out: list[bytes]) -> bytes:
    head = (b"\0" if flexible else b"") + (b"\0\0\0\0" if throttle else b"")
    body = b"".join(out)
    return _HEAD.pack(4 + len(head) + len(body), correlation_id) + head + body


def _name(name: str | UUID | None, version: int, flexible: bool) -> bytes:
    """A topic's name, or its id where the version has ids."""
    if version >= TOPIC_IDS:
        return name.bytes if isinstance(name, UUID) else _NO_ID
    data = str(name).encode()
    return (uvarint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


class TopicErrors(NamedTuple):
    """The answer for one topic of a commit."""

    topic: str | UUID | None
    partitions: Sequence[int]
    errors: Sequence[int]


def offset_commit(version: int, correlation_id: int, topics: Sequence[TopicErrors]) -> bytes:
    flexible = version >= COMMIT_FLEXIBLE
    one = _COMMITTED[flexible]
    out = [uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))]
    for topic, partitions, errors in topics:
        count = len(partitions)
        out.append(_name(topic, version, flexible))
        out.append(uvarint(count + 1) if flexible else INT32.pack(count))
        out.extend(map(one.pack, partitions, errors))
        if flexible:
            out.append(b"\0")
    if flexible:
        out.append(b"\0")
    return _frame(correlation_id, flexible, version >= 3, out)


class FetchedOffset(NamedTuple):
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: int = 0


class FetchedTopic(NamedTuple):
    topic: str | UUID | None
    offsets: list[FetchedOffset]


class FetchedGroup(NamedTuple):
    group_id: str
    topics: Sequence[FetchedTopic]
    error: int = 0


def offset_fetch(version: int, correlation_id: int, groups: Sequence[FetchedGroup]) -> bytes:
    """Before version 8 there is one group, and its id is not in the answer."""
    flexible = version >= FETCH_FLEXIBLE
    out: list[bytes] = []
    if version >= GROUPS:
        out.append(uvarint(len(groups) + 1))
    for group in groups:
        if version >= GROUPS:
            data = group.group_id.encode()
            out.append(uvarint(len(data) + 1) + data)
        _put_topics(out, group.topics, version, flexible)
        if version >= 2:
            out.append(INT16.pack(group.error))
        if version >= GROUPS:
            out.append(b"\0")
    if flexible:
        out.append(b"\0")
    return _frame(correlation_id, flexible, version >= 3, out)


def _put_topics(out: list[bytes], topics: Sequence[FetchedTopic], version: int, flexible: bool) -> None:
    out.append(uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics)))
    number = struct.Struct(">iqi" if version >= 5 else ">iq")
    for topic, offsets in topics:
        out.append(_name(topic, version, flexible))
        out.append(uvarint(len(offsets) + 1) if flexible else INT32.pack(len(offsets)))
        for partition, offset, epoch, metadata, error in offsets:
            encoded = metadata.encode()
            out.append(
                number.pack(partition, offset, epoch) if version >= 5 else number.pack(partition, offset)
            )
            if flexible:
                out.append(uvarint(len(encoded) + 1) + encoded + INT16.pack(error) + b"\0")
            else:
                out.append(INT16.pack(len(encoded)) + encoded + INT16.pack(error))
        if flexible:
            out.append(b"\0")
