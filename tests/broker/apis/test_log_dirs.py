"""DescribeProducers: topics that are not there, and that cannot be."""

from __future__ import annotations

import pytest

from millstream.wire.errors import ErrorCode

from ..conftest import Wire


@pytest.mark.parametrize(
    ("name", "error"),
    [("no-such", ErrorCode.unknown_topic_or_partition), ("a b", ErrorCode.invalid_topic_exception)],
)
def test_a_topic_that_is_not_there(wire: Wire, name: str, error: ErrorCode) -> None:
    answer = wire.ask("describe_producers", topics=[{"name": name, "partition_indexes": [0, 1]}])
    (topic,) = answer.topics
    assert [(p.partition_index, p.error_code, p.active_producers) for p in topic.partitions] == [
        (0, error, ()),
        (1, error, ()),
    ]
    assert all(p.error_message for p in topic.partitions)
