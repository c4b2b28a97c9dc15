"""The rules, switched off one at a time: what a simulation is worth shows when the code is wrong.

Each mutant is a production function with one rule taken out. The names are those of the design.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

from millstream.broker.apis import fetch_read, replica_fetch_fast_path
from millstream.broker.partition import Partition
from millstream.broker.replication import replica_manager, replica_reads, replica_tracker
from millstream.cluster import brokers, partitions, replication_control
from millstream.cluster.registration_keeper import RegistrationKeeper
from tests.simulation import fake_disk, fake_store

_admit = replica_reads.admit
_propose = replica_tracker.ReplicaTracker.propose
_high_watermark = replica_tracker.ReplicaTracker.high_watermark
_eligible_follower = replica_tracker.ReplicaTracker._eligible
_proposed = replication_control._proposed
_check_eligible = replication_control._check_eligible
_eligible = partitions._eligible
_broker_up = brokers.broker_up
_keep_registered = RegistrationKeeper.keep
_rules_for = replication_control.rules_for
_elect = partitions.elect
_news = fetch_read.Fetch._news


class Change(NamedTuple):
    where: Any
    name: str
    mutant: Any


# --- the leader's side of a fetch ---------------------------------------------------------------------------


def no_divergence_check(partition: Any, replica: int, broker_epoch: int, want: Any) -> Any:
    """The logs are taken to agree up to where the follower's ends."""
    return _admit(partition, replica, broker_epoch, want._replace(last_fetched_epoch=-1))


def any_leader_epoch(partition: Any, replica: int, broker_epoch: int, want: Any) -> Any:
    return _admit(partition, replica, broker_epoch, want._replace(leader_epoch=partition.leader_epoch))


def any_broker_epoch(partition: Any, replica: int, broker_epoch: int, want: Any) -> Any:
    broker = partition.replication.brokers.get(replica) if partition.replication is not None else None
    return _admit(partition, replica, broker_epoch if broker is None else broker.epoch, want)


# --- high watermark and ISR ---------------------------------------------------------------------------------


def proposed_members_do_not_count(self: Any, *arguments: Any) -> Any:
    members = _propose(self, *arguments)
    self._counted = self.isr
    return members


def removals_count_at_once(self: Any, *arguments: Any) -> Any:
    members = _propose(self, *arguments)
    if members is not None:
        self._counted = frozenset(member for member, _ in members)
    return members


def no_third_term(*arguments: Any) -> bool:
    """H1 has two more terms; this one alone covers most of what `proposed` does."""
    return False


def moves_below_min_isr(self: Any, leader_end: int, min_isr: int, *arguments: Any) -> int:
    has_elr, self.has_elr = self.has_elr, False  # it says that the controller's minimum is not reached
    try:
        return _high_watermark(self, leader_end, 1, *arguments)
    finally:
        self.has_elr = has_elr


def joins_at_the_high_watermark(self: Any, replica: int, high_watermark: int, known: Any) -> bool:
    """Without the second half of H3: the leader's end when its epoch began."""
    follower = self.followers[replica]
    return bool(follower.end >= high_watermark and _eligible_follower(self, replica, follower, known))


def always_knows(self: Any) -> bool:
    return True


# --- the controller -----------------------------------------------------------------------------------------


def no_elr(*arguments: Any) -> tuple[int, ...]:
    return ()


def everybody_in_elr(old: Any, replicas: Any, isr: Any, without_data: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in isr)


def any_partition_epoch(image: Any, sender: int, proposal: Any) -> Any:
    old = image.partition(proposal.topic_id, proposal.index)
    epoch = proposal.partition_epoch if old is None else old.partition_epoch
    return _proposed(image, sender, replace(proposal, partition_epoch=epoch))


def any_member_epoch(image: Any, broker_id: int, epoch: int, is_member: bool) -> None:
    _check_eligible(image, broker_id, -1, is_member)


def ignores_lost_data(old: Any, broker_id: int, down: Any, up: Any, lost_data: bool) -> Any:
    return _broker_up(old, broker_id, down, up, False)


# --- unclean elections --------------------------------------------------------------------------------------


def unclean_everywhere(*arguments: Any) -> Any:
    return _rules_for(*arguments)._replace(unclean=True)


def nobody_is_eligible(
    replicas: Any, isr: tuple[int, ...], elr: Any, rules: Any, current: int = partitions.NO_LEADER
) -> Any:
    """Where an unclean election is allowed, members of the ELR are replicas like any other."""
    return _elect(replicas, isr, () if rules.unclean else elr, rules, current)


def unclean_between_two_lives(old: Any, broker_id: int, down: Any, up: Any, lost_data: bool) -> Any:
    """Found by the simulation: a broker that was back at once had given way to one that lacked records."""
    new = partitions.reelect(partitions._taken_out(old, broker_id, down, lost_data), up)
    if old.leader == new.leader == broker_id:
        return partitions._with_epochs(new, old.leader_epoch + 1, old.partition_epoch + 1)
    return partitions._one_step(old, new)


# --- the lease ----------------------------------------------------------------------------------------------


def leads_for_ever(self: Any) -> bool:
    return True


def any_lease(self: Any) -> bool:
    """Found by the simulation: that of a new session counted while the image still showed the life before."""
    return bool(self.now() < self.broker.store.lease())


# --- mistakes that the simulation found ---------------------------------------------------------------------


async def says_nothing_of_lost_data_again(self: Any) -> None:
    """A broker that registers a second time no longer says that its data is lost, whoever knows."""
    controller = self._controller
    started, controller.started = controller.started, True
    try:
        await _keep_registered(self)
    finally:
        controller.started = started


def remembers_no_lost_data(self: Any, disk: Any, make_log: Callable[..., Any]) -> None:
    """A start forgets at once that the data was lost before it; the next one reports nothing."""
    _log_dirs(self, disk, make_log)
    disk.saved_boot_id = disk.boot_id


_log_dirs = fake_disk.SimLogDirs.__init__


def tells_a_divergence_and_no_more(self: Any, result: Any, cached: Any) -> bool:
    news = _news(self, result, cached)
    if result.diverging is not None:
        cached.high_watermark = result.high_watermark
    return news


def proposes_once(self: Any, replica: int, high_watermark: int, known: Any) -> bool:
    return replica not in self._counted and bool(self._joins(replica, high_watermark, known))


def _admits_by(mutant: Callable[..., Any]) -> tuple[Change, ...]:
    """On both paths of a follower's fetch."""
    return Change(fetch_read, "admit", mutant), Change(replica_fetch_fast_path, "admit", mutant)


TRACKER = replica_tracker.ReplicaTracker
MUTANTS: dict[str, tuple[Change, ...]] = {
    "divergence check": _admits_by(no_divergence_check),
    "H1: proposed members count": (
        Change(TRACKER, "propose", proposed_members_do_not_count),
        Change(TRACKER, "_about_to_join", no_third_term),
    ),
    "H1: removals count until committed": (Change(TRACKER, "propose", removals_count_at_once),),
    "H2": (Change(TRACKER, "high_watermark", moves_below_min_isr),),
    "H3": (Change(TRACKER, "_joins", joins_at_the_high_watermark),),
    "H4": (Change(Partition, "knows_latest", property(always_knows)),),
    "ELR kept": (Change(partitions, "_eligible", no_elr),),
    "ELR only of those with everything": (Change(partitions, "_eligible", everybody_in_elr),),
    "broker epochs": (
        *_admits_by(any_broker_epoch),
        Change(replication_control, "_check_eligible", any_member_epoch),
    ),
    "partition epoch": (Change(replication_control, "_proposed", any_partition_epoch),),
    "leader epoch in Fetch": _admits_by(any_leader_epoch),
    "lost page cache": (Change(brokers, "broker_up", ignores_lost_data),),
    "lost page cache, second registration": (
        Change(RegistrationKeeper, "keep", says_nothing_of_lost_data_again),
    ),
    "lost page cache, second start": (Change(fake_disk.SimLogDirs, "__init__", remembers_no_lost_data),),
    "high watermark after a divergence": (Change(fetch_read.Fetch, "_news", tells_a_divergence_and_no_more),),
    "unclean only where allowed": (
        Change(brokers, "rules_for", unclean_everywhere),
        Change(replication_control, "rules_for", unclean_everywhere),
    ),
    "ELR before unclean": (
        Change(partitions, "elect", nobody_is_eligible),
        Change(replication_control, "elect", nobody_is_eligible),
    ),
    "no unclean election between two lives": (Change(brokers, "broker_up", unclean_between_two_lives),),
    "lease": (Change(replica_manager.ReplicaManager, "may_lead", leads_for_ever),),
    "lease of the life that the image shows": (
        Change(replica_manager.ReplicaManager, "may_lead", any_lease),
    ),
    "lease allows for clocks of another pace": (Change(fake_store, "CLOCK_MARGIN", 1.0),),
    "proposals are repeated": (Change(TRACKER, "may_join", proposes_once),),
}


def without(rule: str) -> AbstractContextManager[None]:
    return applied(MUTANTS[rule])


@contextmanager
def applied(changes: tuple[Change, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for where, name, mutant in changes:
            stack.enter_context(mock.patch.object(where, name, mutant))
        yield
