"""Fetch as a client sees it: limits, long poll, sessions, fencing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from millstream.broker.apis.fetch_sessions import FetchSessions
from millstream.testing import Broker
from millstream.wire.errors import ErrorCode
from millstream.wire.records import iter_batches, iter_records

from ..conftest import Wire


def partitions(answer: Any) -> dict[tuple[str, int], Any]:
    return {(topic.topic, p.partition_index): p for topic in answer.responses for p in topic.partitions}


def values(partition: Any) -> list[bytes | None]:
    return [
        r.value for _, batch in iter_batches(bytes(partition.records or b"")) for r in iter_records(batch)
    ]


def test_what_was_written_is_read(wire: Wire) -> None:
    topic = wire.create()
    assert wire.produce(topic, b"a", b"b").base_offset == 0
    assert wire.produce(topic, b"c").base_offset == 2
    (found,) = partitions(wire.fetch({topic: {0: 0}})).values()
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    assert values(found) == [b"a", b"b", b"c"]


def test_a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch(wire: Wire) -> None:
    topic = wire.create()
    wire.produce(topic, b"a", b"b", b"c")
    (found,) = partitions(wire.fetch({topic: {0: 1}})).values()
    assert values(found) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 4, 1000])
def test_out_of_range(wire: Wire, offset: int) -> None:
    topic = wire.create()
    wire.produce(topic, b"a", b"b", b"c")
    (found,) = partitions(wire.fetch({topic: {0: offset}}, max_wait=1000)).values()
    assert found.error_code is ErrorCode.offset_out_of_range
    assert found.high_watermark == -1
    (found,) = partitions(wire.fetch({topic: {0: offset}}, isolation=1)).values()
    assert (found.error_code, found.aborted_transactions) == (ErrorCode.offset_out_of_range, None)


def test_the_first_batch_comes_even_if_it_is_larger_than_the_limits(wire: Wire) -> None:
    topic = wire.create(partitions=2)
    for partition in (0, 1):
        wire.produce(topic, b"x" * 1000, partition=partition)
        wire.produce(topic, b"y" * 1000, partition=partition)
    found = partitions(wire.fetch({topic: {0: 0, 1: 0}}, max_bytes=10, partition_max=10))
    assert values(found[topic, 0]) == [b"x" * 1000]
    assert values(found[topic, 1]) == []


def test_unknown_partitions_and_wrong_epochs(wire: Wire) -> None:
    topic = wire.create()
    found = partitions(wire.fetch({topic: {0: 0, 7: 0}, "no-such-topic": {0: 0}}, max_wait=1000))
    assert found[topic, 0].error_code == 0
    assert found[topic, 7].error_code is ErrorCode.unknown_topic_or_partition
    assert found["no-such-topic", 0].error_code is ErrorCode.unknown_topic_or_partition
    assert found["no-such-topic", 0].aborted_transactions == ()
    (newer,) = partitions(wire.fetch({topic: {0: 0}}, epoch=99)).values()
    assert newer.error_code is ErrorCode.unknown_leader_epoch


def test_a_restart_fences_the_old_leader_epoch(connect: Callable[[Broker], Wire]) -> None:
    with Broker() as broker:
        wire = connect(broker)
        topic = wire.create()
        wire.produce(topic, b"a")
        broker.restart()
        wire = connect(broker)
        (old,) = partitions(wire.fetch({topic: {0: 0}}, epoch=0)).values()
        assert old.error_code is ErrorCode.fenced_leader_epoch
        known = wire.metadata(topic).topics[0].partitions[0]
        assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (
            known.leader_id,
            known.leader_epoch,
        )
        (plain,) = partitions(wire.fetch({topic: {0: 0}})).values()
        assert values(plain) == [b"a"]


def test_a_reader_that_was_led_astray_is_told_where(connect: Callable[[Broker], Wire]) -> None:
    """A reader says whose records it read last: of a leader that ended earlier, that nobody knows, or long
    gone."""
    with Broker() as broker:
        wire = connect(broker)
        topic = wire.create()
        wire.produce(topic, b"a", b"b")
        broker.restart()
        wire = connect(broker)
        now = wire.metadata(topic).topics[0].partitions[0].leader_epoch
        wire.produce(topic, b"c")

        def fetched(offset: int, last_epoch: int) -> Any:
            (found,) = partitions(wire.fetch({topic: {0: offset}}, last_epoch=last_epoch)).values()
            return found

        assert values(fetched(2, 0)) == [b"c"]
        for offset in (3, 100):
            astray = fetched(offset, 0)
            assert (astray.error_code, values(astray)) == (0, [])
            assert (astray.diverging_epoch.epoch, astray.diverging_epoch.end_offset) == (0, 2)
        assert fetched(3, now + 1).error_code is ErrorCode.offset_out_of_range
        wire.ask(
            "delete_records",
            topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}],
            timeout=5000,
        )
        assert fetched(2, 0).error_code is ErrorCode.offset_out_of_range


def test_long_poll_ends_with_the_first_record(
    wire: Wire, millstream_broker: Broker, connect: Callable[[Broker], Wire]
) -> None:
    topic = wire.create(partitions=2)
    other = connect(millstream_broker)
    writer = threading.Timer(0.3, lambda: other.produce(topic, b"late", partition=1))
    writer.start()
    began = time.monotonic()
    found = partitions(wire.fetch({topic: {0: 0, 1: 0}}, max_wait=20_000))
    writer.join()
    assert values(found[topic, 1]) == [b"late"]
    assert time.monotonic() - began < 15


def test_long_poll_waits_for_min_bytes_and_ends_with_its_time(
    wire: Wire, millstream_broker: Broker, connect: Callable[[Broker], Wire]
) -> None:
    topic = wire.create()
    other = connect(millstream_broker)
    writer = threading.Timer(0.1, lambda: other.produce(topic, b"small"))
    writer.start()
    began = time.monotonic()
    (found,) = partitions(wire.fetch({topic: {0: 0}}, max_wait=700, min_bytes=1 << 20)).values()
    writer.join()
    assert time.monotonic() - began >= 0.6
    assert values(found) == [b"small"]


FOREVER = 600_000  # ms, longer than the client waits for an answer


def test_nobody_waits_for_more_than_he_may_get(wire: Wire) -> None:
    topic = wire.create()
    wire.produce(topic, b"x" * 100)
    answer = wire.fetch({topic: {0: 0}}, max_wait=FOREVER, min_bytes=1 << 20, max_bytes=100)
    (found,) = partitions(answer).values()
    assert values(found) == [b"x" * 100]


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_reader_of_older_segments_gets_what_is_left_of_each_at_once(wire: Wire, isolation: int) -> None:
    topic = wire.create(segment_bytes=str(1 << 20))
    expected = [b"%04d" % number * 100_000 for number in range(7)]  # two in a segment
    for value in expected:
        wire.produce(topic, value)
    got: list[bytes | None] = []
    limits = {"min_bytes": 4 << 20, "partition_max": 8 << 20, "isolation": isolation}
    while len(got) < 6:
        (found,) = partitions(wire.fetch({topic: {0: len(got)}}, max_wait=FOREVER, **limits)).values()
        got += values(found)
        assert len(got) % 2 == 0
    (found,) = partitions(wire.fetch({topic: {0: 6}}, max_wait=50, **limits)).values()
    assert got + values(found) == expected


def test_deleting_a_topic_ends_the_wait(
    wire: Wire, millstream_broker: Broker, connect: Callable[[Broker], Wire]
) -> None:
    topic = wire.create()
    other = connect(millstream_broker)
    deleter = threading.Timer(
        0.2, lambda: other.ask("delete_topics", topics=[{"name": topic, "topic_id": None}], timeout=5000)
    )
    deleter.start()
    (found,) = partitions(wire.fetch({topic: {0: 0}}, max_wait=20_000)).values()
    deleter.join()
    assert found.error_code is ErrorCode.unknown_topic_or_partition


def test_a_session_answers_only_what_is_new(wire: Wire) -> None:
    topic = wire.create(partitions=3)
    wire.produce(topic, b"a", partition=0)
    first = wire.fetch({topic: {0: 0, 1: 0, 2: 0}}, session=(0, 0))
    assert first.session_id > 0
    assert len(partitions(first)) == 3
    id = first.session_id
    # Nothing is new but that partition 0 is now read from offset 1.
    assert partitions(wire.fetch({topic: {0: 1}}, session=(id, 1))) == {}
    wire.produce(topic, b"b", partition=2)
    second = partitions(wire.fetch({}, session=(id, 2)))
    assert list(second) == [(topic, 2)]
    assert values(second[topic, 2]) == [b"b"]
    # Not moved on, so it comes again; then it is forgotten.
    again = wire.fetch({}, session=(id, 3))
    assert list(partitions(again)) == [(topic, 2)]
    forgotten = [{"topic": topic, "partitions": [2]}]
    assert partitions(wire.fetch({}, session=(id, 4), forgotten=forgotten)) == {}


def test_a_session_that_loses_its_last_partition_ends(wire: Wire) -> None:
    topic = wire.create(partitions=2)
    first = wire.fetch({topic: {0: 0, 1: 0}}, session=(0, 0))
    id = first.session_id
    one, all_of_them = ([{"topic": topic, "partitions": p}] for p in ([0], [0, 1]))
    assert wire.fetch({}, session=(id, 1), forgotten=one).session_id == id
    last = wire.fetch({}, session=(id, 2), forgotten=all_of_them)
    assert (last.error_code, last.session_id, partitions(last)) == (0, 0, {})
    assert wire.fetch({}, session=(id, 3)).error_code is ErrorCode.fetch_session_id_not_found


def test_session_errors(wire: Wire) -> None:
    topic = wire.create()
    first = wire.fetch({topic: {0: 0}}, session=(0, 0))
    assert wire.fetch({}, session=(first.session_id, 7)).error_code is ErrorCode.invalid_fetch_session_epoch
    assert wire.fetch({}, session=(123456789, 1)).error_code is ErrorCode.fetch_session_id_not_found
    closed = wire.fetch({topic: {0: 0}}, session=(first.session_id, -1))
    assert (closed.error_code, closed.session_id) == (0, 0)
    assert wire.fetch({}, session=(first.session_id, 1)).error_code is ErrorCode.fetch_session_id_not_found


def test_a_small_answer_starves_no_partition_of_a_session(wire: Wire) -> None:
    topic = wire.create(partitions=4)
    for partition in range(4):
        for _ in range(3):
            wire.produce(topic, b"z" * 500, partition=partition)
    answer = wire.fetch({topic: dict.fromkeys(range(4), 0)}, session=(0, 0), max_bytes=600)
    position = dict.fromkeys(range(4), 0)
    seen = set()
    for epoch in range(1, 9):
        for (_, partition), found in partitions(answer).items():
            if values(found):
                seen.add(partition)
                position[partition] += len(values(found))
        answer = wire.fetch({topic: position}, session=(answer.session_id, epoch), max_bytes=600)
    assert seen == set(range(4))


def test_slices_over_a_segment_border_and_a_large_answer(wire: Wire) -> None:
    topic = wire.create(segment_bytes=str(1 << 20))
    expected = []
    for number in range(40):
        value = b"%04d" % number * 30_000
        expected.append(value)
        wire.produce(topic, value)
    got: list[bytes | None] = []
    while len(got) < 40:
        (found,) = partitions(wire.fetch({topic: {0: len(got)}}, partition_max=8 << 20)).values()
        assert found.error_code == 0
        got += values(found)
    assert got == expected


def test_nobody_can_tell_the_ids_of_other_sessions_from_his_own() -> None:
    sessions = FetchSessions(100)
    made = [sessions._create(False, 0.0, False) for _ in range(100)]
    ids = [session.id for session in made if session is not None]
    assert len(set(ids)) == 100 and all(0 < id <= 0x7FFFFFFF for id in ids)
    steps = {later - earlier for earlier, later in pairwise(ids)}
    assert len(steps) > 50
