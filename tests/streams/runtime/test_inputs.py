"""The order in which a task processes what it has of several topics, and how much of it it holds."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.client.fetch import Fetched
from millstream.streams.runtime.inputs import Inputs
from millstream.wire.errors import ErrorCode
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def _fetched(which: TopicPartition, first: int, times: Sequence[int], end: int) -> Fetched:
    """Records with these timestamps from an offset on, of a partition that ends at `end`."""
    records = b""
    if times:
        batch = encode_batch([Record(n, at, b"k", b"%d" % at) for n, at in enumerate(times)])
        batch[0:8] = first.to_bytes(8, "big")
        records = bytes(batch)
    return Fetched(*which, ErrorCode.none, end, end, 0, (), memoryview(records))


def _process(inputs: Inputs) -> list[tuple[str, int]]:
    """All that may be processed now: the topic and the timestamp of each record."""
    found: list[tuple[str, int]] = []
    while (block := inputs.next_block()) is not None:
        topic, records = block
        found += [(topic, int(at)) for at in records.stamps]
        inputs.took(topic, records)
    return found


def test_the_oldest_record_of_all_topics_comes_first() -> None:
    inputs = Inputs({A: 0, B: 0})
    inputs.receive(_fetched(A, 0, [1, 4, 5], 3))
    inputs.receive(_fetched(B, 0, [2, 3, 6], 3))
    assert [at for _, at in _process(inputs)] == [1, 2, 3, 4, 5, 6]
    assert inputs.done == {A: 3, B: 3}
    assert inputs.lag == 0


def test_a_topic_that_may_bring_older_records_is_waited_for() -> None:
    inputs = Inputs({A: 0, B: 0})
    inputs.receive(_fetched(A, 0, [1, 5], 2))
    assert _process(inputs) == []  # nothing is known of b
    inputs.receive(_fetched(B, 0, [2], 9))
    assert _process(inputs) == [("a", 1), ("b", 2)]  # b goes on
    inputs.receive(_fetched(B, 1, [3], 2))
    assert _process(inputs) == [("b", 3), ("a", 5)]  # b has ended


def test_a_topic_that_has_ended_is_not_waited_for() -> None:
    inputs = Inputs({A: 0, B: 7})
    inputs.receive(_fetched(B, 7, [], 7))
    inputs.receive(_fetched(A, 0, [1, 5], 2))
    assert _process(inputs) == [("a", 1), ("a", 5)]


def test_what_is_held_is_bounded() -> None:
    inputs = Inputs({A: 0, B: 0}, max_bytes=100)
    assert inputs.positions == {A: 0, B: 0}
    inputs.receive(_fetched(A, 0, [5] * 20, 40))
    assert inputs.positions == {B: 0}
    inputs.receive(_fetched(B, 0, [9], 1))
    assert len(_process(inputs)) == 20
    assert inputs.positions[A] == 20


def test_markers_without_records_move_the_position() -> None:
    inputs = Inputs({A: 0})
    batch = encode_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")])
    batch[21:23] = (0x30).to_bytes(2, "big")  # a control batch of a transaction
    from millstream.wire.batch import CRC_START, crc_of

    batch[CRC_START - 4 : CRC_START] = crc_of(batch).to_bytes(4, "big")
    inputs.receive(Fetched(*A, ErrorCode.none, 1, 1, 0, (), memoryview(bytes(batch))))
    assert _process(inputs) == []
    assert inputs.done == {A: 1}


def test_what_was_deleted_is_passed_over() -> None:
    inputs = Inputs({A: 3})
    inputs.skip_to(A, 10)
    assert inputs.positions == {A: 10}
    assert inputs.done == {A: 10}
