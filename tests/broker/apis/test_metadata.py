"""Metadata and DescribeTopicPartitions: internal topics, topics named twice, cursors that cannot be."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from millstream.testing import Broker
from millstream.wire.errors import ErrorCode

from ..conftest import Wire


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_an_internal_topic_is_created_as_its_coordinator_needs_it(
    connect: Callable[[Broker], Wire], name: str
) -> None:
    with Broker({"num.partitions": 2}) as broker:
        wire = connect(broker)
        (missing,) = wire.metadata(name).topics
        assert (missing.error_code, missing.is_internal) == (ErrorCode.unknown_topic_or_partition, True)
        found = {topic.name: topic for topic in wire.metadata(name, "ordinary", create=True).topics}
        assert {topic.error_code for topic in found.values()} == {0}
        assert (len(found[name].partitions), found[name].is_internal) == (50, True)
        assert len(found["ordinary"].partitions) == 2
        described = wire.ask(
            "describe_configs",
            resources=[{"resource_type": 2, "resource_name": name, "configuration_keys": ["cleanup.policy"]}],
            include_synonyms=False,
            include_documentation=False,
        )
        assert [config.value for config in described.results[0].configs] == ["compact"]


def test_a_topic_that_is_named_twice_is_answered_once(wire: Wire) -> None:
    topic, other = wire.create(), wire.create()
    names = [each.name for each in wire.metadata(topic, other, topic, "no-such", "no-such").topics]
    assert sorted(names) == sorted([topic, other, "no-such"])
    topic_id = wire.metadata(topic).topics[0].topic_id
    answer = wire.ask(
        "metadata",
        topics=[{"topic_id": topic_id, "name": None}] * 2,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    assert [each.name for each in answer.topics] == [topic]


def test_what_one_may_do_is_told_of_every_name(wire: Wire) -> None:
    topic = wire.create()
    every_operation = 0b1101_1111_1000
    answer = wire.ask(
        "metadata",
        topics=[{"topic_id": None, "name": name} for name in (topic, "no-such")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    assert {t.name: t.topic_authorized_operations for t in answer.topics} == {
        topic: every_operation,
        "no-such": every_operation,
    }
    answer = wire.ask(
        "metadata",
        topics=[{"topic_id": uuid.uuid4(), "name": None}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    assert [t.topic_authorized_operations for t in answer.topics] == [-(1 << 31)]
    paged = described(wire, [topic, "no-such"], None).topics
    assert {t.name: t.topic_authorized_operations for t in paged} == {
        topic: every_operation,
        "no-such": every_operation,
    }


def described(wire: Wire, names: list[str], cursor: tuple[str, int] | None, limit: int = 2000) -> Any:
    return wire.ask(
        "describe_topic_partitions",
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    )


def test_cursors_that_cannot_be(wire: Wire) -> None:
    first, second = sorted([wire.create(partitions=3), wire.create()])
    bad = ErrorCode.invalid_request
    for names, cursor in (
        ([first, second], (first, -1)),
        ([first], (second, 0)),
        ([second], (first, 0)),
        ([first, second], ("no-such", 0)),
    ):
        answer = described(wire, names, cursor)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [(name, bad) for name in names]
        assert answer.next_cursor is None
    assert described(wire, [], (first, -1)).topics == ()


def test_topics_that_are_not_there_take_no_room_on_a_page(wire: Wire) -> None:
    topic = wire.create("zz-last", partitions=2)
    answer = described(wire, ["missing-1", "missing-2", topic], ("missing-1", 0), limit=1)
    unknown = ErrorCode.unknown_topic_or_partition
    assert [(each.name, each.error_code, len(each.partitions)) for each in answer.topics] == [
        ("missing-1", unknown, 0),
        ("missing-2", unknown, 0),
        (topic, 0, 1),
    ]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (topic, 1)


@pytest.mark.parametrize(
    ("kind", "error"), [(2, ErrorCode.mismatched_endpoint_type), (9, ErrorCode.unsupported_endpoint_type)]
)
def test_a_cluster_of_other_endpoints(wire: Wire, kind: int, error: ErrorCode) -> None:
    answer = wire.ask(
        "describe_cluster",
        include_cluster_authorized_operations=True,
        endpoint_type=kind,
        include_fenced_brokers=False,
    )
    assert (answer.error_code, answer.brokers, answer.controller_id) == (error, (), -1)
    assert answer.cluster_authorized_operations == -(1 << 31)
