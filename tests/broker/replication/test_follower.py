"""The follower: what it asks for, and what it does with answers, without socket, clock or disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from millstream.broker.replication.follower import Follower
from millstream.settings.log_config import LogConfig
from millstream.storage.log import PartitionLog
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.replica_fetch import Fetched, FetchedAll, Key, Position, ReplicaFetch

from ...storage.batches import NOW, batch

KEY: Key = (b"t" * 16, 0)
OTHER: Key = (b"u" * 16, 3)


class FakeLog:
    """A log of epochs, one for each offset; a byte of `records` is a record's epoch."""

    def __init__(self, *epochs: int, start: int = 0) -> None:
        self.name = "t-0"
        self.epochs = list(epochs)
        self.start_offset = start
        self.high_watermark = start
        self.flushes = False
        self.full = False

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.epochs)

    @end_offset.setter
    def end_offset(self, value: int) -> None:
        raise AssertionError

    def last_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        known = [each for each in self.epochs if each <= epoch]
        if not self.epochs:
            return -1, -1
        return (known[-1] if known else epoch), self.start_offset + len(known)

    def append_follower(self, batches: memoryview) -> int:
        if self.full:
            raise KafkaError(ErrorCode.kafka_storage_error, "No space left on device")
        self.epochs += batches
        return self.end_offset

    def truncate_to(self, offset: int) -> None:
        del self.epochs[offset - self.start_offset :]
        self.high_watermark = min(self.high_watermark, offset)

    def reset_at(self, offset: int) -> None:
        self.epochs, self.start_offset, self.high_watermark = [], offset, offset

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, offset)

    def advance_start(self, offset: int) -> int:
        del self.epochs[: offset - self.start_offset]
        self.start_offset = offset
        return offset


def answer(
    key: Key = KEY,
    error: ErrorCode = ErrorCode.none,
    high: int = 0,
    start: int = 0,
    diverging: tuple[int, int] | None = None,
    records: bytes = b"",
    session: int = 77,
) -> FetchedAll:
    return FetchedAll(0, session, [Fetched(*key, error, high, start, diverging, memoryview(records))])


def ask(follower: Follower) -> ReplicaFetch:
    request = follower.request()
    assert request is not None
    return request


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_the_first_request_is_full_later_ones_say_only_what_changed(follower: Follower) -> None:
    log, other = FakeLog(1, 1), FakeLog()
    follower.follow(KEY, log, 5)
    follower.follow(OTHER, other, 6)
    first = ask(follower)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert first.positions == [(KEY, Position(5, 2, 1, 0)), (OTHER, Position(6, 0, -1, 0))]
    outcome = follower.answered(first, answer(records=b"\5\5", high=3))
    assert (log.epochs, log.high_watermark, outcome.failed) == ([1, 1, 5, 5], 3, False)
    second = ask(follower)
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert second.positions == [(KEY, Position(5, 4, 5, 0))]
    follower.answered(second, FetchedAll(0, 77, []))
    third = ask(follower)
    assert third.session_epoch == 2 and third.positions == [] and third.forgotten == []


def test_the_high_watermark_is_at_most_the_end_and_never_goes_back(follower: Follower) -> None:
    log = FakeLog(1, 1)
    follower.follow(KEY, log, 5)
    follower.answered(ask(follower), answer(high=100))
    assert log.high_watermark == 2
    follower.answered(ask(follower), answer(high=1))
    assert log.high_watermark == 2


def test_a_log_that_differs_is_cut_where_both_may_agree(follower: Follower) -> None:
    log = FakeLog(1, 1, 2, 2, 2)
    follower.follow(KEY, log, 5)
    follower.answered(ask(follower), answer(diverging=(1, 4)))
    assert log.epochs == [1, 1], "the leader's epoch 1 is longer than ours: ours counts"
    log.epochs = [1, 1, 1, 1, 1]
    follower.failed()
    follower.answered(ask(follower), answer(diverging=(1, 3)))
    assert log.epochs == [1, 1, 1], "and here the leader's is shorter"


def test_a_follower_without_anything_in_common_starts_at_nothing(follower: Follower) -> None:
    log = FakeLog(3, 3, start=10)
    follower.follow(KEY, log, 5)
    follower.answered(ask(follower), answer(diverging=(1, 4)))
    assert (log.start_offset, log.end_offset) == (4, 4)


def test_a_log_whose_records_were_all_deleted_is_not_told_to_be_cut_for_ever(
    follower: Follower, tmp_path: Path
) -> None:
    """Found by the simulation. The epoch of its last batch is one that the leader never had."""
    log = PartitionLog.open(tmp_path / "t-0", LogConfig())
    log.append_leader(batch(3), 1, NOW)
    log.set_high_watermark(3)
    log.advance_start(3)
    assert (log.start_offset, log.end_offset, log.last_epoch()) == (3, 3, 1)
    follower.follow(KEY, log, 5)
    for _ in range(2):  # the first takes away what it knows of the epoch that began where it ends
        follower.answered(ask(follower), answer(diverging=(0, 6)))
        follower.failed()  # so that it states its position again
    assert (log.start_offset, log.end_offset, log.last_epoch()) == (3, 3, -1)
    log.close()


def test_outside_of_the_leaders_log_it_starts_again(follower: Follower) -> None:
    log = FakeLog(1, 1)
    follower.follow(KEY, log, 5)
    follower.answered(ask(follower), answer(error=ErrorCode.offset_out_of_range, start=40))
    assert (log.start_offset, log.end_offset) == (40, 40)
    assert ask(follower).positions == [(KEY, Position(5, 40, -1, 40))]


def test_the_leaders_log_start_is_followed(follower: Follower) -> None:
    log = FakeLog(1, 1, 1, 1)
    follower.follow(KEY, log, 5)
    follower.answered(ask(follower), answer(high=3, start=2))
    assert log.start_offset == 2
    follower.answered(ask(follower), answer(high=3, start=4))
    assert log.start_offset == 2, "not beyond what is committed here"


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.stale_broker_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
    ],
)
def test_a_partition_that_is_refused_is_set_aside_and_the_others_go_on(
    follower: Follower, error: ErrorCode
) -> None:
    log, other = FakeLog(1), FakeLog(1)
    follower.follow(KEY, log, 5)
    follower.follow(OTHER, other, 5)
    assert follower.answered(ask(follower), answer(error=error)).failed
    assert log.epochs == [1]
    second = ask(follower)
    assert (second.positions, second.forgotten) == ([], [KEY])
    follower.answered(second, FetchedAll(0, 77, []))
    follower.retry()
    assert ask(follower).positions == [(KEY, Position(5, 1, 1, 0))]


def test_a_new_epoch_brings_a_partition_back_that_was_set_aside(follower: Follower) -> None:
    follower.follow(KEY, FakeLog(), 5)
    follower.answered(ask(follower), answer(error=ErrorCode.fenced_leader_epoch))
    assert follower.idle and follower.request() is None
    follower.follow(KEY, FakeLog(), 6)
    assert [position.leader_epoch for _, position in ask(follower).positions] == [6]


def test_an_answer_from_before_a_change_of_role_does_not_count(follower: Follower) -> None:
    log = FakeLog(1, 1, 1)
    follower.follow(KEY, log, 5)
    request = ask(follower)
    follower.follow(KEY, log, 6)
    follower.answered(request, answer(diverging=(0, 0)))
    assert log.epochs == [1, 1, 1]
    assert ask(follower).positions == [(KEY, Position(6, 3, 1, 0))]


def test_an_answer_that_is_repeated_does_not_count(follower: Follower) -> None:
    log = FakeLog(1, 1, 1)
    follower.follow(KEY, log, 5)
    request = ask(follower)
    follower.answered(request, answer(diverging=(0, 0)))
    log.epochs = [5, 5]
    follower.answered(request, answer(diverging=(0, 0)))
    assert log.epochs == [5, 5]


def test_what_is_no_longer_followed_is_forgotten_and_its_answer_ignored(follower: Follower) -> None:
    log, other = FakeLog(), FakeLog()
    follower.follow(KEY, log, 5)
    follower.follow(OTHER, other, 5)
    follower.answered(ask(follower), FetchedAll(0, 77, []))
    request = ask(follower)
    follower.forget(KEY)
    follower.answered(request, answer(records=b"\5"))
    assert log.epochs == []
    assert ask(follower).forgotten == [KEY]


def test_one_that_is_forgotten_and_followed_again_is_stated_and_not_forgotten(follower: Follower) -> None:
    log = FakeLog()
    follower.follow(KEY, log, 5)
    follower.follow(OTHER, FakeLog(), 5)
    follower.answered(ask(follower), FetchedAll(0, 77, []))
    follower.forget(KEY)
    follower.follow(KEY, log, 6)
    request = ask(follower)
    assert [key for key, _ in request.positions] == [KEY] and request.forgotten == []


@pytest.mark.parametrize(
    "error", [ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch]
)
def test_a_session_that_the_leader_has_lost_begins_again(follower: Follower, error: ErrorCode) -> None:
    follower.follow(KEY, FakeLog(), 5)
    follower.answered(ask(follower), FetchedAll(0, 77, []))
    outcome = follower.answered(ask(follower), FetchedAll(error, 0, []))
    assert not outcome.failed, "no reason to wait"
    again = ask(follower)
    assert (again.session_id, again.session_epoch, len(again.positions)) == (0, 0, 1)


def test_without_a_session_every_request_is_full(follower: Follower) -> None:
    follower.follow(KEY, FakeLog(), 5)
    for _ in range(3):
        request = ask(follower)
        assert (request.session_epoch, len(request.positions)) == (0, 1)
        follower.answered(request, FetchedAll(0, 0, []))


def test_a_full_disk_sets_the_partition_aside(follower: Follower) -> None:
    log = FakeLog()
    log.full = True
    follower.follow(KEY, log, 5)
    assert follower.answered(ask(follower), answer(records=b"\5")).failed
    assert follower.idle
    log.full = False
    follower.retry()
    follower.answered(ask(follower), answer(records=b"\5"))
    assert log.epochs == [5]


def test_whatever_the_answers_the_leaders_session_knows_our_positions() -> None:
    """A leader that keeps what it was told, against random roles, errors and answers."""
    for seed in range(300):
        random_ = random.Random(seed)
        follower = Follower()
        logs = {(bytes([65 + n]) * 16, n): FakeLog() for n in range(4)}
        positions: dict[Key, Position] = {}
        epochs = dict.fromkeys(logs, 1)
        for _ in range(60):
            key = random_.choice(list(logs))
            choice = random_.random()
            if choice < 0.2:
                epochs[key] += 1
                follower.follow(key, logs[key], epochs[key])
            elif choice < 0.3:
                follower.forget(key)
            elif choice < 0.35:
                follower.failed()
            elif choice < 0.45:
                follower.retry()
            request = follower.request()
            if request is None:
                continue
            if request.session_epoch == 0:
                positions.clear()
            positions.update(dict(request.positions))
            for gone in request.forgotten:
                positions.pop(gone, None)
            wanted = {
                each: partition.position()
                for each, partition in follower.partitions.items()
                if each not in follower._aside
            }
            assert positions == wanted, f"seed {seed}"
            results = [
                Fetched(
                    *each,
                    random_.choice([0, 0, 0, ErrorCode.fenced_leader_epoch]),
                    0,
                    0,
                    None,
                    memoryview(bytes(random_.randrange(2))),
                )
                for each in positions
                if random_.random() < 0.5
            ]
            follower.answered(request, FetchedAll(0, random_.choice([9, 9, 9, 0]), results))


def test_retention_on_the_follower_does_not_make_answers_void(follower: Follower) -> None:
    log = FakeLog(1, 1)
    follower.follow(KEY, log, 5)
    follower.answered(ask(follower), answer(high=2))
    request = ask(follower)
    log.advance_start(1)  # by the clock, while the fetch waits at the leader
    follower.answered(request, answer(records=b"\5", high=3))
    assert (log.end_offset, log.high_watermark) == (3, 3)
    assert ask(follower).positions == [(KEY, Position(5, 3, 5, 1))]


def test_a_position_that_moved_under_a_request_is_stated_again(follower: Follower) -> None:
    log = FakeLog(1, 1, 1)
    follower.follow(KEY, log, 5)
    follower.answered(ask(follower), answer(high=2))
    request = ask(follower)
    log.truncate_to(2)
    follower.answered(request, answer(records=b"\5", high=3))
    assert log.epochs == [1, 1]
    assert ask(follower).positions == [(KEY, Position(5, 2, 1, 0))]
