"""The answers packed by hand are byte for byte what kio would write."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.coordinators.groups import responses
from millstream.broker.coordinators.groups.responses import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    TopicErrors,
)
from millstream.wire.errors import ErrorCode
from millstream.wire.messages import codec

ID = UUID("3a974332-c414-442b-b4d5-7059a4d0a1f9")


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("error", [ErrorCode.none, ErrorCode.rebalance_in_progress])
def test_heartbeat(version: int, error: ErrorCode) -> None:
    form = codec(12, version)
    assert responses.heartbeat(version, 77, error) == form.pack(77, form.answer(error_code=error))


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit(version: int) -> None:
    form = codec(8, version)
    topics = [("t" * 200, [0, 7], [0, 3]), ("ä", [], []), ("b", list(range(200)), [0] * 200)]
    named = version < 10
    expected = form.answer(
        topics=tuple(
            form.make(
                "OffsetCommitResponseTopic",
                name=name,
                topic_id=ID,
                partitions=tuple(
                    form.make(
                        "OffsetCommitResponsePartition", partition_index=index, error_code=ErrorCode(error)
                    )
                    for index, error in zip(indexes, errors, strict=True)
                ),
            )
            for name, indexes, errors in topics
        )
    )
    mine = [TopicErrors(name if named else ID, indexes, errors) for name, indexes, errors in topics]
    assert responses.offset_commit(version, 5, mine) == form.pack(5, expected)


def kio_topics(form: Any, topics: list[tuple[str, list[FetchedOffset]]]) -> tuple[Any, ...]:
    plural = form.has("OffsetFetchResponseTopics")
    return tuple(
        form.make(
            "OffsetFetchResponseTopics" if plural else "OffsetFetchResponseTopic",
            name=name,
            topic_id=ID,
            partitions=tuple(
                form.make(
                    "OffsetFetchResponsePartitions" if plural else "OffsetFetchResponsePartition",
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=ErrorCode(each.error),
                )
                for each in offsets
            ),
        )
        for name, offsets in topics
    )


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch(version: int) -> None:
    form = codec(9, version)
    topics = [
        ("topic", [FetchedOffset(0, 12345678901, 4, "note ü"), FetchedOffset(300, error=88)]),
        ("other", []),
    ]
    mine = [FetchedTopic(name if version < 10 else ID, offsets) for name, offsets in topics]
    error = ErrorCode.not_coordinator
    if version >= 8:
        group = form.make(
            "OffsetFetchResponseGroup", group_id="grp", topics=kio_topics(form, topics), error_code=error
        )
        expected = form.answer(groups=(group, group))
        got = responses.offset_fetch(version, 9, [FetchedGroup("grp", mine, error)] * 2)
    else:
        expected = form.answer(topics=kio_topics(form, topics), error_code=error)
        got = responses.offset_fetch(version, 9, [FetchedGroup("grp", mine, error)])
    assert got == form.pack(9, expected)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("partitions", [None, {}, {ID: [2, 0, 1]}])
def test_consumer_group_heartbeat(version: int, partitions: dict[UUID, list[int]] | None) -> None:
    form = codec(68, version)
    assignment = None
    if partitions is not None:
        assignment = form.make(
            "Assignment",
            topic_partitions=tuple(
                form.make("TopicPartitions", topic_id=topic, partitions=tuple(sorted(indexes)))
                for topic, indexes in partitions.items()
            ),
        )
    expected = form.answer(
        error_code=ErrorCode.none,
        error_message=None,
        member_id="me",
        member_epoch=3,
        heartbeat_interval=timedelta(milliseconds=5000),
        assignment=assignment,
    )
    mine = responses.consumer_heartbeat(9, member_id="me", epoch=3, interval=5000, assignment=partitions)
    assert mine == form.pack(9, expected)
