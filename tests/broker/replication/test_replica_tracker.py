"""The leader's rules H1 to H4, one by one, without broker, clock or socket."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import pytest

from millstream.broker.replication.replica_tracker import ReplicaTracker
from millstream.cluster.metadata_records import Partition

TOPIC = UUID(int=1)
MAX_LAG = 30.0


class Alive(NamedTuple):
    epoch: int
    draining: bool = False


class Leader:
    """Broker 1 leads; 2 and 3 follow. Broker epochs are ten times the broker's id."""

    def __init__(
        self, isr: tuple[int, ...] = (1, 2, 3), end: int = 0, min_isr: int = 1, **record: object
    ) -> None:
        self.now = 1000.0
        self.brokers = {1: Alive(10), 2: Alive(20), 3: Alive(30)}
        self.record = Partition(TOPIC, 0, (1, 2, 3), isr, 1, 5, 7, **record)  # type: ignore[arg-type]
        self.min_isr = min_isr
        self.end = end
        self.watermark = 0
        self.tracker = ReplicaTracker(1, self.record, end, self.now)

    def fetch(self, replica: int, offset: int, epoch: int | None = None) -> None:
        self.tracker.fetched(replica, epoch or replica * 10, offset, 0, self.end, self.now)
        self.high()

    def high(self) -> int:
        reached = self.tracker.high_watermark(self.end, self.min_isr, self.brokers, self.now, MAX_LAG)
        self.watermark = max(self.watermark, reached)
        return self.watermark

    def propose(self) -> list[tuple[int, int]] | None:
        return self.tracker.propose(self.end, self.watermark, self.brokers, self.now, MAX_LAG)

    def image(self, isr: tuple[int, ...], partition_epoch: int = 8, **record: object) -> None:
        new = Partition(TOPIC, 0, (1, 2, 3), isr, 1, 5, partition_epoch, **record)  # type: ignore[arg-type]
        self.tracker.update(new, self.now)


def test_h1_all_in_sync_replicas_count() -> None:
    leader = Leader(end=10)
    assert leader.high() == 0, "nobody has fetched yet"
    leader.fetch(2, 10)
    assert leader.watermark == 0
    leader.fetch(3, 6)
    assert leader.watermark == 6
    leader.fetch(3, 10)
    assert leader.watermark == 10


def test_h1_one_that_is_to_leave_counts_until_the_image_has_removed_it() -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 4)
    leader.now += MAX_LAG + 1
    leader.fetch(2, 10)
    assert leader.propose() == [(1, 10), (2, 20)]
    assert leader.high() == 4, "it may still be elected"
    leader.image((1, 2))
    assert leader.high() == 10


def test_h1_one_that_is_to_join_counts_from_the_proposal_on() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.propose() == [(1, 10), (2, 20), (3, 30)]
    leader.end = 20
    leader.fetch(2, 20)
    leader.now += 2 * MAX_LAG  # it no longer counts as one that keeps up
    assert leader.high() == 10, "the controller may have put it into the ISR already"
    leader.tracker.refused(7)
    assert leader.high() == 20


def test_h1_a_proposal_without_an_answer_counts_until_the_image_shows_what_became_of_it() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.propose()
    leader.tracker.unanswered(7)
    assert leader.propose(), "it is made again"
    leader.tracker.refused(7)
    leader.end = 20
    leader.fetch(2, 20)
    leader.now += 2 * MAX_LAG
    assert leader.high() == 10, "the first of them may still be on its way to the controller"
    leader.image((1, 2))
    assert leader.high() == 20


def test_one_whose_proposal_came_to_nothing_is_proposed_again() -> None:
    leader = Leader(isr=(1,), end=10)
    leader.fetch(2, 10)
    assert leader.tracker.may_join(2, leader.watermark, leader.brokers)
    assert leader.propose() == [(1, 10), (2, 20)]
    assert not leader.tracker.may_join(2, leader.watermark, leader.brokers), "it is proposed"
    leader.tracker.unanswered(7)
    gone = leader.brokers.pop(2)
    assert leader.propose() is None
    leader.brokers[2] = gone
    assert leader.tracker.may_join(2, leader.watermark, leader.brokers)
    assert leader.propose() == [(1, 10), (2, 20)]


def test_h1_a_live_replica_that_keeps_up_counts_before_it_has_joined() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.end = 12
    leader.fetch(2, 12)
    assert leader.watermark == 10, "otherwise it would never catch up with a busy leader"
    leader.brokers[3] = Alive(30, draining=True)
    assert leader.high() == 12, "one that may not join must not hold up the others"


@pytest.mark.parametrize(("min_isr", "reached"), [(1, 10), (2, 0), (9, 0)])
def test_h2_below_min_isr_nothing_is_committed(min_isr: int, reached: int) -> None:
    leader = Leader(isr=(1,), end=10, min_isr=min_isr)
    assert leader.high() == reached


def test_h2_min_isr_is_at_most_the_number_of_replicas() -> None:
    leader = Leader(end=10, min_isr=9)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.watermark == 10


def test_h3_to_join_a_follower_needs_the_high_watermark_and_the_end_at_the_election() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.fetch(2, 4)
    leader.fetch(3, 9)
    assert leader.watermark == 4
    assert leader.propose() is None, "beyond the high watermark, but not at the end of the election"
    leader.fetch(3, 10)
    assert leader.tracker.may_join(3, leader.watermark, leader.brokers)
    assert leader.propose() == [(1, 10), (2, 20), (3, 30)]
    assert leader.propose() is None, "one at a time"


@pytest.mark.parametrize(
    "broker",
    [None, Alive(31), Alive(30, draining=True)],
    ids=["dead", "another life than the one that fetched", "about to stop"],
)
def test_h3_who_may_not_join(broker: Alive | None) -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 0)
    leader.fetch(3, 0)
    if broker is None:
        del leader.brokers[3]
    else:
        leader.brokers[3] = broker
    assert leader.propose() is None


def test_h3_a_member_leaves_after_the_lag_time_unless_it_has_everything() -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.now += 10 * MAX_LAG
    assert leader.propose() is None, "idle, but nothing is missing"
    leader.end = 11
    assert leader.propose() == [(1, 10)]


def test_h3_a_follower_that_is_always_a_little_behind_keeps_up() -> None:
    leader = Leader(isr=(1, 2))
    for _ in range(20):
        reached = leader.end
        leader.end += 5
        leader.now += MAX_LAG / 2
        leader.fetch(2, reached)  # what the leader had at its last fetch
        assert leader.propose() is None


def test_a_new_leader_gives_members_the_full_time_and_strangers_none() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.now += MAX_LAG - 1
    assert leader.propose() is None
    assert leader.high() == 0, "a member that has not fetched yet may have nothing"
    leader.now += 2
    assert leader.propose() == [(1, 10)]


def test_an_older_record_changes_nothing_and_a_later_one_ends_the_proposal() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 0)
    leader.fetch(3, 0)
    assert leader.propose()
    leader.image((1,), partition_epoch=7)
    assert leader.tracker.isr == {1, 2} and leader.tracker.in_flight
    leader.image((1, 2, 3), partition_epoch=8)
    assert not leader.tracker.in_flight and not leader.tracker.pending
    leader.tracker.refused(7)  # an answer to the proposal that is over
    assert leader.tracker.isr == {1, 2, 3}


def test_replicas_that_are_added_and_removed() -> None:
    leader = Leader(isr=(1, 2, 3))
    new = Partition(TOPIC, 0, (1, 2, 4), (1, 2), 1, 5, 8)
    leader.tracker.update(new, leader.now)
    assert set(leader.tracker.followers) == {2, 4}
    leader.brokers[4] = Alive(40)
    leader.fetch(2, 0)
    leader.fetch(4, 0)
    assert leader.propose() == [(1, 10), (2, 20), (4, 40)]


def test_a_leader_of_an_unclean_election_first_says_that_it_has_recovered() -> None:
    leader = Leader(isr=(1,), recovering=True)
    leader.fetch(2, 0)
    assert leader.propose() == [(1, 10)]
    leader.image((1,))
    assert leader.propose() == [(1, 10), (2, 20)]


def test_a_leader_outside_of_the_isr_commits_nothing() -> None:
    leader = Leader(isr=(2, 3), end=5)
    leader.fetch(2, 5)
    leader.fetch(3, 5)
    assert leader.watermark == 0
    assert leader.propose() is None


def test_h2_while_there_is_an_elr_nothing_is_committed_whatever_our_own_minimum_is() -> None:
    """The controller's minimum is 2, that of this broker's file 1: what broker 1 committed alone, broker 2
    would not have when the controller elects it."""
    leader = Leader(isr=(1,), end=10, min_isr=1, elr=(2,))
    assert leader.high() == 0
    leader.fetch(2, 10)
    leader.image((1, 2))
    assert leader.high() == 10
