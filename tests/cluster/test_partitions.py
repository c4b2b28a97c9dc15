"""The table of the design's section 3, row by row: elections, ISR and ELR, epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.cluster.metadata_records import Partition
from millstream.cluster.partitions import (
    Election,
    Rules,
    broker_down,
    broker_up,
    cancel_reassignment,
    change_isr,
    drain,
    elect,
    finish_reassignment,
    reassign,
    reelect,
    settle,
)

from .world import shape, topic_id

ALL = frozenset({1, 2, 3})


def rules(live: set[int] | frozenset[int] = ALL, **more: object) -> Rules:
    return Rules(live, more.pop("active", live), **more)  # type: ignore[arg-type]


def partition(
    isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, elr: tuple[int, ...] = (), **more: object
) -> Partition:
    more.setdefault("replicas", (1, 2, 3))
    return Partition(
        topic_id(1), 0, isr=isr, leader=leader, elr=elr, leader_epoch=5, partition_epoch=9, **more
    )  # type: ignore[arg-type]


def epochs(p: Partition) -> tuple[int, int]:
    return p.leader_epoch, p.partition_epoch


# --- elect --------------------------------------------------------------------------------------------------

ELECTIONS = [
    # isr, elr, live, draining, unclean, current leader -> election
    ((1, 2, 3), (), {1, 2, 3}, set(), False, -1, Election(1, (1, 2, 3))),
    ((3, 2), (), {1, 2, 3}, set(), False, -1, Election(2, (3, 2))),  # first of the replicas, not of the ISR
    ((1, 2), (), {1, 2, 3}, {1}, False, -1, Election(2, (1, 2))),  # not one that is draining
    ((2, 3), (), {1, 2, 3}, set(), False, 3, Election(3, (2, 3))),  # whoever can go on does
    ((2, 3), (), {1, 2, 3}, {3}, False, 3, Election(3, (2, 3))),  # even when draining: drain() moves it
    ((), (3, 2), {1, 2, 3}, set(), False, -1, Election(2, (2,))),  # from the ELR, which becomes the ISR
    ((), (2, 3), {1, 3}, set(), False, -1, Election(3, (3,))),
    ((), (2,), {1, 3}, set(), False, -1, Election(-1, ())),
    ((), (2,), {1, 3}, set(), True, -1, Election(1, (1,), True)),
    ((), (2,), {1, 2}, set(), True, -1, Election(2, (2,))),  # a clean one is always better
    ((), (), {3}, {3}, True, -1, Election(-1, ())),
]


@pytest.mark.parametrize(("isr", "elr", "live", "draining", "unclean", "current", "expected"), ELECTIONS)
def test_elect(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    live: set[int],
    draining: set[int],
    unclean: bool,
    current: int,
    expected: Election,
) -> None:
    assert (
        elect((1, 2, 3), isr, elr, rules(live, active=live - draining, unclean=unclean), current) == expected
    )


# --- ISR, ELR and epochs ------------------------------------------------------------------------------------

BOOKKEEPING = [
    # min ISR, old ISR, old ELR, new ISR -> new ELR
    (2, (1, 2, 3), (), (1, 2), ()),
    (2, (1, 2), (), (1,), (2,)),
    (2, (1,), (2,), (), (1, 2)),
    (2, (1,), (2,), (1, 2), ()),
    (3, (1, 2), (3,), (1,), (2, 3)),
    (1, (1,), (), (), (1,)),
    (1, (1, 2), (), (1,), ()),
    (9, (1, 2, 3), (), (1, 2), (3,)),  # no more than there are replicas
    (9, (1, 2), (3,), (1, 2, 3), ()),
]


@pytest.mark.parametrize(("min_isr", "isr", "elr", "new_isr", "expected"), BOOKKEEPING)
def test_elr_bookkeeping(
    min_isr: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    new_isr: tuple[int, ...],
    expected: tuple[int, ...],
) -> None:
    old = partition(isr, elr=elr)
    new = settle(old, rules(min_isr=min_isr), isr=new_isr, leader=1)
    assert new.elr == expected


def test_who_lost_its_data_does_not_enter_the_elr() -> None:
    new = settle(partition((1, 2), elr=(3,)), rules(min_isr=3), isr=(1,), leader=1, without_data={3})
    assert new.elr == (2,)


def test_epochs() -> None:
    old = partition()
    assert settle(old, rules(), isr=(1, 2, 3), leader=1) is old
    assert epochs(settle(old, rules(), isr=(1, 2), leader=1)) == (5, 10)
    assert epochs(settle(old, rules(), isr=(1, 2, 3), leader=2)) == (6, 10)
    assert epochs(settle(old, rules(), isr=(1, 2), leader=1, replicas=(1, 2))) == (6, 10)
    assert epochs(settle(old, rules(), isr=(1, 2, 3), leader=1, replicas=(1, 2, 3, 4), adding=(4,))) == (
        5,
        10,
    )
    assert epochs(settle(old, rules(), isr=(1, 2, 3), leader=1, recovering=True)) == (5, 10)


# --- brokers come and go ------------------------------------------------------------------------------------


def test_a_follower_dies() -> None:
    new = broker_down(partition(), 2, rules({1, 3}))
    assert shape(new) == (1, (1, 3), ()) and epochs(new) == (5, 10)


def test_the_leader_dies() -> None:
    new = broker_down(partition(), 1, rules({2, 3}))
    assert shape(new) == (2, (2, 3), ()) and epochs(new) == (6, 10)


def test_the_leader_dies_below_min_isr() -> None:
    new = broker_down(partition((1,), elr=(2,)), 1, rules({2, 3}, min_isr=2))
    assert shape(new) == (2, (2,), (1,)) and epochs(new) == (6, 10)


def test_the_last_of_the_isr_dies() -> None:
    new = broker_down(partition((1,)), 1, rules({2, 3}))
    assert shape(new) == (-1, (), (1,)) and epochs(new) == (6, 10)


def test_the_last_of_the_isr_dies_where_unclean_elections_are_allowed() -> None:
    new = broker_down(partition((1,)), 1, rules({2, 3}, unclean=True))
    assert shape(new) == (2, (2,), ()) and new.recovering


def test_one_outside_the_isr_dies() -> None:
    old = partition((1, 2), elr=(3,))
    assert broker_down(old, 3, rules({1, 2}, min_isr=3)) is old


def up(old: Partition, broker_id: int, others: set[int], lost: bool = False, **more: object) -> Partition:
    return broker_up(old, broker_id, rules(others, **more), rules(others | {broker_id}, **more), lost)


def test_a_leader_that_is_back_at_once_is_not_replaced_uncleanly() -> None:
    """Between its two lives nobody else had everything; it has."""
    new = up(partition((1,)), 1, {2, 3}, unclean=True)
    assert shape(new) == (1, (1,), ()) and not new.recovering and epochs(new) == (6, 10)
    new = up(partition((1,)), 1, {2, 3}, lost=True, unclean=True)  # what it had is gone
    assert shape(new) == (2, (2,), ()) and new.recovering


def test_the_only_replica_restarts() -> None:
    """Every partition of a cluster of one, at each start: same leader, new leader epoch, because its process
    is new."""
    old = partition((1,), replicas=(1,))
    new = up(old, 1, set())
    assert new == replace(old, leader_epoch=6, partition_epoch=10)
    assert up(old, 1, set(), lost=True) == new  # nobody else has the data
    assert up(partition((1,), replicas=(1,), recovering=True), 1, set()).recovering


def test_the_only_replica_returns_after_its_death_was_noticed() -> None:
    dead = broker_down(partition((1,), replicas=(1,)), 1, rules(set()))
    assert shape(dead) == (-1, (), (1,)) and epochs(dead) == (6, 10)
    back = up(dead, 1, set())
    assert shape(back) == (1, (1,), ()) and epochs(back) == (7, 11)
    assert shape(up(dead, 1, set(), lost=True)) == (1, (1,), ())


def test_a_leader_restarts_before_its_death_was_noticed() -> None:
    new = up(partition(), 1, {2, 3})
    assert shape(new) == (2, (2, 3), ()) and epochs(new) == (6, 10)


def test_a_sole_leader_among_several_replicas_restarts() -> None:
    new = up(partition((1,)), 1, {2, 3})
    assert shape(new) == (1, (1,), ()) and epochs(new) == (6, 10)


def test_a_follower_restarts() -> None:
    """It is not put back into the ISR: it has to catch up first."""
    new = up(partition(), 3, {1, 2})
    assert shape(new) == (1, (1, 2), ()) and epochs(new) == (5, 10)
    old = partition((1, 2))
    assert up(old, 3, {1, 2}) is old


def test_an_eligible_replica_returns_and_leads() -> None:
    new = up(partition((), -1, elr=(2, 3)), 3, set(), min_isr=2)
    assert shape(new) == (3, (3,), (2,)) and epochs(new) == (6, 10)


def test_who_lost_its_page_cache_leaves_isr_and_elr() -> None:
    new = up(partition((1, 2), elr=(3,)), 2, {1, 3}, lost=True, min_isr=3)
    assert shape(new) == (1, (1,), (3,))
    new = up(partition((1, 2), elr=(3,)), 3, {1, 2}, lost=True, min_isr=3)
    assert shape(new) == (1, (1, 2), ()) and epochs(new) == (5, 10)
    new = up(partition((), -1, elr=(3,)), 3, set(), lost=True)
    assert shape(new) == (-1, (), ())  # nobody is known to have everything: the whole-site rule decides later


def test_after_an_unclean_election_nobody_else_is_eligible() -> None:
    new = reelect(partition((), -1, elr=(1,)), rules({2, 3}, unclean=True, min_isr=2))
    assert shape(new) == (2, (2,), ()) and new.recovering


def test_draining() -> None:
    new = drain(partition(), 1, rules(active={2, 3}))
    assert shape(new) == (2, (2, 3), ()) and epochs(new) == (6, 10)
    new = drain(partition(), 2, rules(active={1, 3}))
    assert shape(new) == (1, (1, 3), ()) and epochs(new) == (5, 10)
    alone = partition((1,))
    assert drain(alone, 1, rules(active={2, 3}, unclean=True)) is alone
    outside = partition((1, 2))
    assert drain(outside, 3, rules(active={1, 2})) is outside


def test_reelect_does_nothing_where_nothing_is_wrong() -> None:
    for old in (partition(), partition((1,), elr=(2,)), partition((), -1, elr=(2,))):
        assert reelect(old, rules({1}, min_isr=2)) is old


# --- reassignment -------------------------------------------------------------------------------------------

FIVE = frozenset({1, 2, 3, 4, 5})


def test_a_move_begins_and_ends() -> None:
    begun = reassign(partition(), [4, 2, 3], rules(FIVE))
    assert (begun.replicas, begun.adding, begun.removing) == ((4, 2, 3, 1), (4,), (1,))
    assert shape(begun) == (1, (1, 2, 3), ()) and epochs(begun) == (5, 10)
    assert finish_reassignment(begun, rules(FIVE)) is begun
    done = change_isr(begun, [1, 2, 3, 4], False, rules(FIVE))
    assert (done.replicas, done.adding, done.removing) == ((4, 2, 3), (), ())
    assert shape(done) == (4, (4, 2, 3), ()) and epochs(done) == (6, 11)


def test_a_new_order_or_fewer_replicas_are_done_at_once() -> None:
    new = reassign(partition(), [3, 1, 2], rules())
    assert new.replicas == (3, 1, 2) and shape(new) == (1, (1, 2, 3), ()) and epochs(new) == (5, 10)
    new = reassign(partition(), [2], rules())
    assert new.replicas == (2,) and shape(new) == (2, (2,), ()) and epochs(new) == (6, 10)
    assert not new.reassigning


def test_the_same_replicas_again() -> None:
    old = partition()
    assert reassign(old, [1, 2, 3], rules()) == old


def test_a_move_replaced_by_another() -> None:
    begun = reassign(partition((1,), replicas=(1,)), [2], rules(FIVE))
    other = reassign(begun, [3], rules(FIVE))
    assert (other.replicas, other.adding, other.removing) == ((3, 2, 1), (3,), (2, 1))
    back = reassign(begun, [1], rules(FIVE))
    assert back.replicas == (1,) and not back.reassigning


def test_a_move_called_off() -> None:
    begun = reassign(partition((1, 2), replicas=(1, 2)), [3, 4], rules(FIVE))
    begun = change_isr(begun, [1, 2, 3], False, rules(FIVE))
    back = cancel_reassignment(begun, rules(FIVE))
    assert back is not None
    assert back.replicas == (2, 1) or back.replicas == (1, 2)
    assert sorted(back.isr) == [1, 2] and back.leader == 1 and not back.reassigning
    assert back.leader_epoch == begun.leader_epoch + 1


def test_a_move_that_cannot_be_called_off_cleanly() -> None:
    moving = partition((3,), 3, replicas=(3, 1), adding=(3,), removing=(1,))
    assert cancel_reassignment(moving, rules()) is None
    back = cancel_reassignment(moving, rules(unclean=True))
    assert back is not None and shape(back) == (1, (1,), ()) and back.recovering
    # Nobody leads, and the only one who may is new: without it nobody ever could.
    moving = partition((), -1, elr=(3,), replicas=(3, 1), adding=(3,), removing=(1,))
    assert cancel_reassignment(moving, rules(frozenset({1, 2}))) is None
    moving = partition((), -1, elr=(3, 1), replicas=(3, 1, 2), adding=(3,), removing=(1,))
    back = cancel_reassignment(moving, rules(frozenset({2})))
    assert back is not None and shape(back) == (-1, (), (1,))


# --- a leader's proposal ------------------------------------------------------------------------------------


def test_isr_changes() -> None:
    new = change_isr(partition(), [2, 1], False, rules())
    assert shape(new) == (1, (1, 2), ()) and epochs(new) == (5, 10)
    new = change_isr(partition((1,), elr=(2,)), [1, 2], False, rules(min_isr=2))
    assert shape(new) == (1, (1, 2), ())


def test_an_unchanged_isr_still_moves_the_partition_epoch() -> None:
    assert epochs(change_isr(partition(), [1, 2, 3], False, rules())) == (5, 10)


def test_a_draining_leader_hands_over_as_soon_as_somebody_is_in_sync() -> None:
    new = change_isr(partition((1,)), [1, 3], False, rules(active={2, 3}))
    assert shape(new) == (3, (3,), ()) and epochs(new) == (6, 10)


def test_recovery_ends() -> None:
    assert not change_isr(partition((1,), recovering=True), [1], False, rules()).recovering
