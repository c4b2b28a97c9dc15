"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords where Kafka's answer is not the obvious one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.testing import Broker
from millstream.wire.errors import ErrorCode

from ..conftest import Wire


def listed(wire: Wire, *asked: tuple[str, int, int]) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """What ListOffsets says about (topic, partition, timestamp): error, timestamp, offset, epoch; each
    answered once."""
    answer = wire.ask(
        "list_offsets",
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": topic,
                "partitions": [{"partition_index": index, "current_leader_epoch": -1, "timestamp": when}],
            }
            for topic, index, when in asked
        ],
        timeout=5000,
    )
    found = [((topic.name, p.partition_index), p) for topic in answer.topics for p in topic.partitions]
    assert len(dict(found)) == len(found)
    assert len({topic.name for topic in answer.topics}) == len(answer.topics)
    return {
        topic_partition: (p.error_code, p.timestamp, p.offset, p.leader_epoch) for topic_partition, p in found
    }


def epoch_end(wire: Wire, topic: str, epoch: int) -> tuple[int, int, int]:
    answer = wire.ask(
        "offset_for_leader_epoch",
        replica_id=-1,
        topics=[
            {
                "topic": topic,
                "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}],
            }
        ],
    )
    (found,) = answer.topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def delete_before(wire: Wire, topic: str, partition: int, offset: int) -> Any:
    answer = wire.ask(
        "delete_records",
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
        timeout=5000,
    )
    return answer.topics[0].partitions[0]


def test_nothing_was_tiered_and_nothing_waits_for_it(wire: Wire) -> None:
    topic = wire.create()
    wire.produce(topic, b"a", b"b")
    for when in (-5, -6):
        assert listed(wire, (topic, 0, when))[topic, 0] == (0, -1, -1, -1)
    assert listed(wire, (topic, 0, -4))[topic, 0][:3] == (0, -1, 0)
    for name in (topic, "no-such"):
        assert listed(wire, (name, 0, -7))[name, 0][0] == ErrorCode.unsupported_version
    assert listed(wire, ("no-such", 0, -6))["no-such", 0][0] == ErrorCode.unknown_topic_or_partition


def test_a_partition_that_is_asked_about_twice_is_refused(wire: Wire) -> None:
    topic, other = wire.create(partitions=2), wire.create()
    answer = listed(wire, (topic, 0, -1), (other, 0, -1), (topic, 1, -1), (topic, 0, -2))
    assert answer[topic, 0] == (ErrorCode.invalid_request, -1, -1, -1)
    assert {topic_partition: error for topic_partition, (error, *_) in answer.items()} == {
        (topic, 0): ErrorCode.invalid_request,
        (topic, 1): 0,
        (other, 0): 0,
    }


def test_the_epoch_of_now_is_known_before_its_first_batch(connect: Callable[[Broker], Wire]) -> None:
    with Broker() as broker:
        wire = connect(broker)
        topic, empty = wire.create(), wire.create()
        assert epoch_end(wire, empty, 0) == (0, 0, 0)
        wire.produce(topic, b"a", b"b")
        assert epoch_end(wire, topic, 0) == (0, 0, 2)
        broker.restart()
        wire = connect(broker)
        now = wire.metadata(topic).topics[0].partitions[0].leader_epoch
        assert now > 0
        assert epoch_end(wire, topic, now) == (0, now, 2)
        assert epoch_end(wire, topic, 0) == (0, 0, 2)
        assert epoch_end(wire, empty, now) == (0, now, 0)
        assert epoch_end(wire, topic, now + 1) == (0, -1, -1)
        wire.produce(topic, b"c")
        assert epoch_end(wire, topic, now) == (0, now, 3)


def test_nobody_deletes_records_of_internal_topics(wire: Wire) -> None:
    wire.ask("find_coordinator", key_type=0, coordinator_keys=["g"])
    for partition, offset in ((0, 0), (7, -1)):
        answer = delete_before(wire, "__consumer_offsets", partition, offset)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.invalid_topic_exception, -1)
    assert delete_before(wire, "__consumer_offsets", 50, 0).error_code == ErrorCode.unknown_topic_or_partition


def test_whose_records_can_be_deleted(wire: Wire) -> None:
    """Those of a topic that is only compacted cannot; those of one that keeps everything can."""
    for policy, expected in (("compact", (ErrorCode.policy_violation, -1)), ("", (0, 2)), ("delete", (0, 2))):
        topic = wire.create(cleanup_policy=policy)
        wire.produce(topic, b"a", b"b", b"c")
        answer = delete_before(wire, topic, 0, 2)
        assert (answer.error_code, answer.low_watermark) == expected


def test_of_a_partition_that_is_named_twice_the_last_word_counts(wire: Wire) -> None:
    topic = wire.create()
    wire.produce(topic, b"a", b"b", b"c")
    answer = wire.ask(
        "delete_records",
        topics=[
            {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]} for offset in (2, 1)
        ],
        timeout=5000,
    )
    (found,) = answer.topics
    assert [(p.partition_index, p.error_code, p.low_watermark) for p in found.partitions] == [(0, 0, 1)]
