"""What a group of the consumer protocol (KIP-848) is made of, its requests, and the changes that it writes to
the log.

A member is immutable; a change replaces it. Changes are the only way in which the lasting state of a group
changes, while it runs as well as when it is read from the log again, so both end up with the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from millstream.broker.coordinators.groups import consumer_group_records as records
from millstream.broker.coordinators.groups.consumer_group_records import (
    CurrentValue,
    EpochPartitions,
    MemberValue,
    RegexValue,
)

# States of a member, as in the log.
STABLE, UNREVOKED, UNRELEASED = 0, 1, 2

JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2  # member epochs with a meaning

Partitions = Mapping[UUID, frozenset[int]]
NOTHING: EpochPartitions = {}


class ConsumerMember(NamedTuple):
    member_id: str
    value: MemberValue  # as it described itself
    epoch: int = 0
    previous_epoch: int = 0
    state: int = STABLE
    assigned: EpochPartitions = NOTHING  # with the epoch since which it has each partition
    revoking: EpochPartitions = NOTHING  # what it has to give up before it can go on

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol to us."""
        return self.value.classic is not None

    @property
    def current(self) -> CurrentValue:
        return CurrentValue(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def reconciled_to(self, epoch: int) -> bool:
        return self.state == STABLE and self.epoch == epoch

    def held_since(self, topic: UUID, index: int, epoch: int) -> bool:
        """Whether the member has had the partition since this epoch or longer; until it says otherwise it
        still has what it was told to give up."""
        for held in (self.assigned, self.revoking):
            since = held.get(topic, {}).get(index)
            if since is not None:
                return since <= epoch
        return False


# Whether a member may know of a topic; None where there is no authorizer.
MaySee = Callable[[str], bool]


class HeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat. What is None has not changed since the last one."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int  # ms, -1: unchanged
    topics: tuple[str, ...] | None
    regex: str | None
    assignor: str | None
    owned: Mapping[UUID, Iterable[int]] | None
    client_id: str
    client_host: str
    may_see: MaySee | None = None

    @property
    def is_full(self) -> bool:
        """The member names everything, so its assignment is sent in any case."""
        return self.epoch == JOIN or (
            self.rebalance_timeout != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


class HeartbeatResponse(NamedTuple):
    member_id: str
    epoch: int
    assignment: EpochPartitions | None = None


class Topics(Protocol):
    """What a group needs to know about the cluster's topics."""

    @property
    def version(self) -> int:
        """Grows whenever something changes."""

    def matching(self, pattern: str) -> frozenset[str] | None:
        """The topics that an expression matches in this version; None while nobody has looked."""

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Id and number of partitions."""

    def name_of(self, topic_id: UUID) -> str | None: ...


# --- changes --------------------------------------------------------------------------------------


class GroupChanged(NamedTuple):
    epoch: int | None  # None: the group is gone
    topics_hash: int = 0


class MemberChanged(NamedTuple):
    member_id: str
    value: MemberValue | None


class TargetChanged(NamedTuple):
    member_id: str
    partitions: Partitions | None


class TargetEpochChanged(NamedTuple):
    epoch: int | None
    time_ms: int = 0


class CurrentChanged(NamedTuple):
    member_id: str
    value: CurrentValue | None


class RegexChanged(NamedTuple):
    regex: str
    value: RegexValue | None


Change = GroupChanged | MemberChanged | TargetChanged | TargetEpochChanged | CurrentChanged | RegexChanged


def row(group: str, change: Change) -> tuple[bytes, bytes | None]:
    """The change as a record of the log."""
    if isinstance(change, GroupChanged):
        gone = change.epoch is None
        value = None if gone else records.group_value(change.epoch or 0, change.topics_hash)
        return records.key(records.GROUP, group), value
    if isinstance(change, MemberChanged):
        value = None if change.value is None else records.member_value(change.value)
        return records.key(records.MEMBER, group, change.member_id), value
    if isinstance(change, TargetChanged):
        value = None
        if change.partitions is not None:
            value = records.target_value({topic: sorted(each) for topic, each in change.partitions.items()})
        return records.key(records.TARGET_MEMBER, group, change.member_id), value
    if isinstance(change, TargetEpochChanged):
        value = None if change.epoch is None else records.target_epoch_value(change.epoch, change.time_ms)
        return records.key(records.TARGET_EPOCH, group), value
    if isinstance(change, CurrentChanged):
        value = None if change.value is None else records.current_value(change.value)
        return records.key(records.CURRENT_MEMBER, group, change.member_id), value
    value = None if change.value is None else records.regex_value(change.value)
    return records.key(records.REGEX, group, change.regex), value


def parse_row(key: bytes, value: bytes | None) -> tuple[str, Change | None]:
    """Group and change of a record; None for a type that is not needed any more."""
    key_type, group, second = records.parse_key(key)
    change: Change | None = None
    if key_type == records.GROUP:
        change = GroupChanged(None) if value is None else GroupChanged(*records.parse_group_value(value))
    elif key_type == records.MEMBER:
        change = MemberChanged(second, None if value is None else records.parse_member_value(value))
    elif key_type == records.TARGET_MEMBER:
        partitions = None
        if value is not None:
            partitions = {topic: frozenset(each) for topic, each in records.parse_target_value(value).items()}
        change = TargetChanged(second, partitions)
    elif key_type == records.TARGET_EPOCH:
        change = TargetEpochChanged(None if value is None else records.parse_target_epoch_value(value))
    elif key_type == records.CURRENT_MEMBER:
        change = CurrentChanged(second, None if value is None else records.parse_current_value(value))
    elif key_type == records.REGEX:
        change = RegexChanged(second, None if value is None else records.parse_regex_value(value))
    return group, change
