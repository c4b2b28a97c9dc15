"""Which partition coordinates a key: the one in which every Kafka client and broker looks for it."""

from __future__ import annotations

import pytest

from millstream.broker.coordinators.runtime import partition_for


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("", 0),
        ("a", 47),  # hash 97
        ("abcdefg", 6),  # hash -1206291356: Kafka takes the absolute value, not the bits without the sign
        ("polygenelubricants", 0),  # hash -2^31, which has no absolute value
        ("café", 21),  # UTF-16 units
    ],
)
def test_partition_of_a_key(key: str, partition: int) -> None:
    assert partition_for(key, 50) == partition
