"""One partition's life: who may lead it, and what its next record is. Pure functions of the old record.

Three sets matter. The ISR holds every committed record and is alive. The ELR (eligible leader replicas) left
the ISR while it was below `min.insync.replicas`, when nothing more could be committed, so it too holds every
committed record. The other replicas may lack some. A clean election takes a leader from the ISR or the ELR;
any other is unclean and may lose records. The ISR may become empty: its last members are then in the ELR, and
the first of them to return leads.

The leader epoch grows when the leader changes, when the leader's process is a new one, and when a replica is
taken away (so that its late fetches are refused). The partition epoch grows with every record.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from millstream.cluster.metadata_records import NO_LEADER, Partition


class Rules(NamedTuple):
    """What holds for one topic at one moment."""

    live: Collection[int]  # brokers that are alive
    active: Collection[int]  # alive, and not draining
    min_isr: int = 1
    unclean: bool = False  # may a replica lead that is in neither ISR nor ELR?


class Election(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect(
    replicas: Sequence[int],
    isr: tuple[int, ...],
    elr: Collection[int],
    rules: Rules,
    current: int = NO_LEADER,
) -> Election:
    """The leader and the ISR that goes with it. A current leader that can go on does."""
    if current in isr and current in rules.live:
        return Election(current, isr)
    for replica in replicas:
        if replica in isr and replica in rules.active:
            return Election(replica, isr)
    for replica in replicas:
        if replica in elr and replica in rules.active:
            return Election(replica, (replica,))
    if rules.unclean:
        for replica in replicas:
            if replica in rules.active:
                return Election(replica, (replica,), unclean=True)
    return Election(NO_LEADER, isr)


def settle(
    old: Partition,
    rules: Rules,
    *,
    isr: tuple[int, ...],
    leader: int,
    replicas: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    removing: tuple[int, ...] | None = None,
    recovering: bool | None = None,
    unclean: bool = False,
    without_data: Collection[int] = (),
) -> Partition:
    """The next record of a partition, with ELR and epochs worked out; `old` itself if nothing changes.

    After an unclean election the new leader's log is the truth: nobody else is known to hold it.
    """
    if replicas is None:
        replicas = old.replicas
    elr: tuple[int, ...] = ()
    if len(isr) < min(rules.min_isr, len(replicas)) and not unclean:
        elr = _eligible(old, replicas, isr, without_data)
    adding = old.adding if adding is None else adding
    removing = old.removing if removing is None else removing
    recovering = unclean or (old.recovering if recovering is None else recovering)
    same_replicas = replicas == old.replicas
    if (
        same_replicas
        and isr == old.isr
        and leader == old.leader
        and elr == old.elr
        and adding == old.adding
        and removing == old.removing
        and recovering == old.recovering
    ):
        return old
    replica_removed = not same_replicas and not set(old.replicas) <= set(replicas)
    return Partition(
        old.topic_id,
        old.index,
        replicas,
        isr,
        leader,
        old.leader_epoch + (leader != old.leader or replica_removed),
        old.partition_epoch + 1,
        elr,
        adding,
        removing,
        recovering,
    )


def _eligible(
    old: Partition, replicas: tuple[int, ...], isr: tuple[int, ...], without_data: Collection[int]
) -> tuple[int, ...]:
    """Those outside the new ISR that hold every committed record, were in the ISR or the ELR until now."""
    had = old.isr + old.elr
    return tuple(
        [
            replica
            for replica in replicas
            if replica in had and replica not in isr and replica not in without_data
        ]
    )


def _one_step(old: Partition, new: Partition) -> Partition:
    """Several changes made in one entry are one record: each epoch grows by one at most."""
    if new.partition_epoch <= old.partition_epoch + 1:
        return new
    return _with_epochs(
        new, old.leader_epoch + (new.leader_epoch > old.leader_epoch), old.partition_epoch + 1
    )


def _with_epochs(partition: Partition, leader_epoch: int, partition_epoch: int) -> Partition:
    return Partition(
        partition.topic_id,
        partition.index,
        partition.replicas,
        partition.isr,
        partition.leader,
        leader_epoch,
        partition_epoch,
        partition.elr,
        partition.adding,
        partition.removing,
        partition.recovering,
    )


def reelect(old: Partition, rules: Rules) -> Partition:
    """Looks again whether somebody can lead, and whether the ELR is still needed."""
    chosen = elect(old.replicas, old.isr, old.elr, rules, old.leader)
    return settle(
        old,
        rules,
        isr=chosen.isr,
        leader=chosen.leader,
        unclean=chosen.unclean,
    )


def _taken_out(old: Partition, broker_id: int, rules: Rules, lost_data: bool) -> Partition:
    """The partition without that broker in its ISR (and, if its data cannot be counted on, in its ELR)."""
    # Where there is one replica, nobody else has the data: it leads with what it has, as it would after any
    # crash.
    gone = (broker_id,) if lost_data and len(old.replicas) > 1 else ()
    if broker_id not in old.isr and not (gone and broker_id in old.elr):
        return old
    isr = tuple([replica for replica in old.isr if replica != broker_id])
    enough = len(isr) >= min(rules.min_isr, len(old.replicas))
    can_lead = () if enough else _eligible(old, old.replicas, isr, gone)
    chosen = elect(old.replicas, isr, can_lead, rules, old.leader)
    return settle(
        old,
        rules,
        isr=chosen.isr,
        leader=chosen.leader,
        unclean=chosen.unclean,
        without_data=gone,
    )


def broker_down(old: Partition, broker_id: int, rules: Rules) -> Partition:
    """The broker died: out of the ISR, and another leads if it led. `rules.live` no longer has it."""
    return _taken_out(old, broker_id, rules, lost_data=False)


def broker_up(old: Partition, broker_id: int, down: Rules, up: Rules, lost_data: bool) -> Partition:
    """The broker is back with a new epoch: its old life ends (`down`), a new one begins (`up`); in one
    record.

    It is not put back into any ISR of others: it has to catch up first. What nobody leads it may lead. Where
    an unclean election is allowed, there is none between the two lives, unless what the broker had is lost.
    """
    if old.replicas == old.isr == (broker_id,) and old.leader == broker_id and broker_id in up.active:
        # The rules below say the same. This is every partition of a cluster of one, at each of its starts.
        return _with_epochs(old, old.leader_epoch + 1, old.partition_epoch + 1)
    between = down if lost_data else down._replace(unclean=False)
    new = reelect(_taken_out(old, broker_id, between, lost_data), up)
    if old.leader == new.leader == broker_id:
        return _with_epochs(new, old.leader_epoch + 1, old.partition_epoch + 1)
    return _one_step(old, new)


def drain(old: Partition, broker_id: int, rules: Rules) -> Partition:
    """The broker is about to stop: it hands over what it leads and leaves every ISR that has other
    members."""
    if broker_id not in old.isr:
        return old
    isr = tuple(replica for replica in old.isr if replica != broker_id)
    chosen = elect(old.replicas, isr, (), rules._replace(unclean=False), old.leader)
    if chosen.leader == NO_LEADER:
        return old
    return settle(old, rules, isr=isr, leader=chosen.leader)


# --- reassignment -------------------------------------------------------------------------------------------


def reassign(old: Partition, target: Sequence[int], rules: Rules) -> Partition:
    """Begins to move the replicas to `target` (in place of any move under way), and ends it at once if it
    can."""
    original = [replica for replica in old.replicas if replica not in old.adding]
    rest = tuple(replica for replica in old.replicas if replica not in target)
    begun = settle(
        old,
        rules,
        isr=old.isr,
        leader=old.leader,
        replicas=tuple(target) + rest,
        adding=tuple(replica for replica in target if replica not in original),
        removing=rest,
    )
    return _one_step(old, finish_reassignment(begun, rules))


def finish_reassignment(old: Partition, rules: Rules) -> Partition:
    """Ends the move once every target replica is in sync: the others leave, and leadership with them."""
    target = tuple(replica for replica in old.replicas if replica not in old.removing)
    if not old.reassigning or not set(target) <= set(old.isr):
        return old
    isr = tuple(replica for replica in old.isr if replica in target)
    chosen = elect(target, isr, (), rules._replace(unclean=False), old.leader)
    if chosen.leader == NO_LEADER:
        return old
    return settle(old, rules, isr=isr, leader=chosen.leader, replicas=target, adding=(), removing=())


def cancel_reassignment(old: Partition, rules: Rules) -> Partition | None:
    """Back to the replicas from before the move; None if nobody of them could lead cleanly, now or (where
    nobody leads now either) ever."""
    replicas = tuple(replica for replica in old.replicas if replica not in old.adding)
    isr = tuple(replica for replica in old.isr if replica in replicas)
    elr = tuple(replica for replica in replicas if replica in old.elr)
    chosen = elect(replicas, isr, elr, rules, old.leader)
    if not isr and chosen.leader == NO_LEADER and (old.leader != NO_LEADER or not elr):
        return None
    return settle(
        old,
        rules,
        isr=chosen.isr,
        leader=chosen.leader,
        replicas=replicas,
        adding=(),
        removing=(),
        unclean=chosen.unclean,
    )


def change_isr(old: Partition, isr: Sequence[int], recovering: bool, rules: Rules) -> Partition:
    """What a leader's proposal comes to; it may be the last step of a reassignment."""
    ordered = tuple(replica for replica in old.replicas if replica in isr)
    changed = settle(old, rules, isr=ordered, leader=old.leader, recovering=recovering)
    if changed is old:
        # The leader waits for a new partition epoch, so even an unchanged ISR makes a record.
        changed = _with_epochs(old, old.leader_epoch, old.partition_epoch + 1)
    for member in ordered:
        if member not in rules.active:  # it stayed only because there was nobody else
            changed = drain(changed, member, rules)
    return _one_step(old, finish_reassignment(changed, rules))
