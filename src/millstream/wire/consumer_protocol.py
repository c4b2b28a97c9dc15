"""What the members of a classic consumer group tell each other: subscriptions and assignments.

Clients write and read both. To the coordinator they are opaque bytes, with two exceptions: it looks into
subscriptions to know which topics a group reads (the offsets of others may expire), and it reads and writes
both when a group moves between the protocols. A version (int16) comes first; every version begins like
version 0, and only grows at its end:

    subscription  0  topics, user data    1  and owned partitions    2  and generation    3  and rack
    assignment    0  partitions, user data (and so are the later ones)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from millstream.wire.primitives import INT16, INT32, read_bytes
from millstream.wire.varint import Malformed

CONSUMER = "consumer"  # the protocol type of consumers
NEWEST = 3
_NO_USER_DATA = INT32.pack(-1)


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: dict[str, list[int]]
    rack: str | None


class Assignment(NamedTuple):
    partitions: dict[str, list[int]]
    user_data: bytes = b""


class _Source:
    """Fields of the consumer protocol, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.version: int = INT16.unpack_from(data)[0]
        self.at = 2
        if self.version < 0:
            raise Malformed("a negative version")

    def int32(self) -> int:
        value: int = INT32.unpack_from(self.data, self.at)[0]
        self.at += 4
        return value

    def string(self) -> str | None:
        size = INT16.unpack_from(self.data, self.at)[0]
        self.at += 2
        if size < 0:
            return None
        value, self.at = read_bytes(self.data, self.at, size)
        return value.decode()

    def count(self) -> int:
        """Of an array whose elements take two bytes or more."""
        count = self.int32()
        if count > len(self.data) // 2:
            raise Malformed(f"{count} elements in {len(self.data)} bytes")
        return count

    def topics(self) -> tuple[str, ...]:
        return tuple(self.string() or "" for _ in range(self.count()))

    def bytes_(self) -> bytes:
        """None reads as empty."""
        size = self.int32()  # moves `at` by itself, so it comes first
        value, self.at = read_bytes(self.data, self.at, max(size, 0))
        return value

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.count()):
            topic = self.string() or ""
            found.setdefault(topic, []).extend(self.int32() for _ in range(self.count()))
        return found


UNREADABLE = (Malformed, struct.error, UnicodeDecodeError)


def topics_of(subscription: bytes) -> tuple[str, ...]:
    """The topics of a subscription of any version. One of the `UNREADABLE` if it makes no sense."""
    return _Source(subscription).topics()


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in these subscriptions; None if one of them makes no sense."""
    topics: set[str] = set()
    try:
        for data in subscriptions:
            topics.update(topics_of(data))
    except UNREADABLE:
        return None
    return frozenset(topics)


def parse_subscription(data: bytes) -> Subscription:
    """One of the `UNREADABLE` if it makes no sense."""
    source = _Source(data)
    topics = source.topics()
    source.bytes_()
    owned: dict[str, list[int]] = {}
    rack = None
    if source.version >= 1:
        owned = source.partitions()
    if source.version >= 2:
        source.int32()
    if source.version >= 3:
        rack = source.string()
    return Subscription(source.version, topics, owned, rack)


def parse_assignment(data: bytes) -> Assignment:
    """The partitions of each topic, and what an assignor has to say besides; nothing at all is no partitions.
    One of the `UNREADABLE` if it makes no sense."""
    if not data:
        return Assignment({})
    source = _Source(data)
    return Assignment(source.partitions(), source.bytes_())


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Version 0: the topics, no user data."""
    names = b"".join(INT16.pack(len(name)) + name for name in (topic.encode() for topic in topics))
    return INT16.pack(0) + INT32.pack(len(topics)) + names + _NO_USER_DATA


def encode_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    out = bytearray(INT16.pack(min(version, NEWEST)) + INT32.pack(len(partitions)))
    for topic, indexes in partitions.items():
        name = topic.encode()
        numbers = sorted(indexes)
        out += INT16.pack(len(name)) + name + INT32.pack(len(numbers))
        out += struct.pack(f">{len(numbers)}i", *numbers)
    return bytes(out + _NO_USER_DATA)
