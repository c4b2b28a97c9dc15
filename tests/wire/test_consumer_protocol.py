"""What classic members tell each other, as their clients write it: every version, with and without user
data."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import pytest

from millstream.wire.consumer_protocol import (
    UNREADABLE,
    Subscription,
    encode_assignment,
    parse_assignment,
    parse_subscription,
)

OWNED = {"orders": [0, 1, 7], "pays": [2]}


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def written(
    version: int,
    topics: Sequence[str],
    user_data: bytes | None,
    owned: Mapping[str, Sequence[int]],
    rack: str | None,
) -> bytes:
    out = struct.pack(">hi", version, len(topics)) + b"".join(map(string, topics))
    out += struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    if version >= 1:
        out += struct.pack(">i", len(owned))
        for topic, parts in owned.items():
            out += string(topic) + struct.pack(f">i{len(parts)}i", len(parts), *parts)
    if version >= 2:
        out += struct.pack(">i", 12)
    return out + string(rack) if version >= 3 else out


@pytest.mark.parametrize("user_data", [None, b"", b"\0", b"sticky: " + bytes(range(200))])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions(version: int, user_data: bytes | None) -> None:
    for owned in ({}, OWNED):
        for rack in (None, "r1"):
            data = written(version, ["orders", "pays"], user_data, owned, rack)
            expected = Subscription(
                version, ("orders", "pays"), owned if version else {}, rack if version >= 3 else None
            )
            assert parse_subscription(data) == expected
    for end in range(2, len(data)):
        with pytest.raises(UNREADABLE):
            parse_subscription(data[:end])


def test_assignments() -> None:
    for version in (0, 1, 3):
        assert parse_assignment(encode_assignment(version, OWNED)).partitions == OWNED
    assert parse_assignment(b"") == ({}, b"")
    assert parse_assignment(b"\0\0\0\0\0\0\0\0\0\2hi").user_data == b"hi"
