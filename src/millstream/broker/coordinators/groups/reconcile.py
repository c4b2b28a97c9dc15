"""How a member gets from what it has to what it is meant to have: revoke first, then assign, and never take
what another member still holds.

    STABLE      it has what the epoch it is in means for it
    UNREVOKED   it has been asked to give up partitions, and stays in its epoch until it says that it has
    UNRELEASED  it is in the newest epoch, but waits for partitions that others have not given up yet
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from millstream.broker.coordinators.groups.consumer_group_records import EpochPartitions
from millstream.broker.coordinators.groups.consumer_types import (
    STABLE,
    UNRELEASED,
    UNREVOKED,
    ConsumerMember,
    Partitions,
)

Owned = Mapping[UUID, Iterable[int]] | None


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    is_free: Callable[[UUID, int], bool],
    owned: Owned,
) -> ConsumerMember:
    """The member one step further. `owned` is what it says it owns, None if it says nothing."""
    if member.state == STABLE and member.epoch == target_epoch:
        return member
    if member.state == UNREVOKED and _owns_any(owned, member.revoking):
        return member
    return _next(member, target_epoch, target, is_free, owned)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    is_free: Callable[[UUID, int], bool],
    owned: Owned,
) -> ConsumerMember:
    keep: dict[UUID, dict[int, int]] = {}
    revoke: dict[UUID, dict[int, int]] = {}
    for topic, partitions in member.assigned.items():
        wanted = target.get(topic, frozenset())
        for index, since in partitions.items():
            (keep if index in wanted else revoke).setdefault(topic, {})[index] = since
    if revoke and _owns_any(owned, revoke):
        return member._replace(state=UNREVOKED, previous_epoch=member.epoch, assigned=keep, revoking=revoke)
    waits = False
    for topic, indexes in target.items():
        has = keep.get(topic, {})
        for index in indexes:
            if index in has:
                continue
            if is_free(topic, index):
                keep.setdefault(topic, {})[index] = target_epoch
            else:
                waits = True
    return member._replace(
        state=UNRELEASED if waits else STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=keep,
        revoking={},
    )


def _owns_any(owned: Owned, partitions: EpochPartitions) -> bool:
    """Who says nothing may still own all of it."""
    if owned is None:
        return True
    return any(index in partitions.get(topic, ()) for topic, indexes in owned.items() for index in indexes)


def is_subset(owned: Owned, assigned: EpochPartitions) -> bool:
    """Whether the member owns nothing beyond what it was assigned."""
    if owned is None:
        return False
    return all(index in assigned.get(topic, ()) for topic, indexes in owned.items() for index in indexes)
