"""A group of the consumer protocol (KIP-848): members say what they want to read, the coordinator says who
reads what.

Three epochs drive it. The group's epoch grows when members or topics change; then a target assignment is
computed for that epoch; then each member is led from its own epoch to that of the target, at its own pace, by
its heartbeats (`reconcile`).

A pure state machine: a request and the time come in, an answer and the changes to be written come out.
Nothing that lasts has changed until `apply` is called with each of the changes, once the log has them.
Deadlines do not last: they are set at once. `wake` says when `expired` wants to be asked, and may be too
early but never too late.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from millstream.broker.coordinators import regex
from millstream.broker.coordinators.groups.assignors import ASSIGNORS
from millstream.broker.coordinators.groups.consumer_group_records import (
    CurrentValue,
    MemberValue,
    RegexValue,
)
from millstream.broker.coordinators.groups.consumer_state import (
    FIRST_EPOCH,
    NEW_MEMBER,
    ConsumerLimits,
    ConsumerState,
)
from millstream.broker.coordinators.groups.consumer_types import (
    JOIN,
    LEAVE_STATIC,
    STABLE,
    Change,
    ConsumerMember,
    CurrentChanged,
    GroupChanged,
    HeartbeatRequest,
    HeartbeatResponse,
    MaySee,
    MemberChanged,
    Partitions,
    RegexChanged,
    TargetChanged,
    TargetEpochChanged,
    Topics,
    row,
)
from millstream.broker.coordinators.groups.group import NEVER, Row
from millstream.broker.coordinators.groups.reconcile import is_subset, reconcile
from millstream.wire.errors import ErrorCode, KafkaError

PAUSE_FACTOR = 20  # after an assignment that took long, this many times as long without a new one
LONG = 0.005  # seconds


class ConsumerGroup(ConsumerState):
    __slots__ = ("_assign_after", "_may_see", "_stopwatch", "may_look")

    def __init__(
        self,
        group_id: str,
        limits: ConsumerLimits,
        topics: Topics,
        wall_ms: Callable[[], int],
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(group_id, limits, topics, wall_ms)
        self._stopwatch = stopwatch
        self._assign_after = -NEVER
        self.may_look = True  # False: with an authorizer, until a member asks whose permissions count
        self._may_see: MaySee | None = None

    # ------------------------------------------------------------------ ConsumerGroupHeartbeat

    def heartbeat(self, request: HeartbeatRequest, now: float) -> tuple[HeartbeatResponse, list[Change]]:
        """KafkaError if the member may not take part, or asks for something that makes no sense."""
        changes: list[Change] = []
        self.may_look, self._may_see = True, request.may_see
        member, replaced = self._who(request, changes)
        if request.regex:
            regex.check(request.regex)
        value = self._described(member.value, request)
        if self._is_idle(member, value, replaced, now):
            updated = member
        else:
            updated = self.advance(
                member, member._replace(value=value), replaced, request.owned, now, changes
            )
        self.keep_alive(updated.member_id, now, self.session_timeout or self._limits.session_timeout)
        if member.is_classic:
            self.deadlines(updated.member_id).forget_classic()
        assignment = None
        if request.is_full or updated.assigned != member.assigned:
            assignment = updated.assigned
        return HeartbeatResponse(updated.member_id, updated.epoch, assignment), changes

    def _is_idle(self, member: ConsumerMember, value: MemberValue, replaced: str | None, now: float) -> bool:
        """Most heartbeats: nothing is new on either side."""
        return (
            replaced is None
            and member.state == STABLE
            and member.epoch == self.target_epoch
            and (self.epoch == self.target_epoch or now < self._assign_after)
            and not self.stale
            and value == member.value
            and member.member_id in self.members
        )

    def _who(self, request: HeartbeatRequest, changes: list[Change]) -> tuple[ConsumerMember, str | None]:
        """The member that speaks, known or new, and the id of the static member that it replaces."""
        joins = request.epoch == JOIN
        instance = request.instance_id
        if request.member_id not in self.members:
            self.check_room()
        holder = None if instance is None else self.static.get(instance)
        if (
            joins
            and holder is not None
            and (holder != request.member_id or self.members[holder].epoch == LEAVE_STATIC)
        ):
            return self.take_over_static(self.members[holder], request.member_id, False, changes), holder
        if joins and request.member_id not in self.members:
            return ConsumerMember(request.member_id, NEW_MEMBER), None
        member = self.member(request.member_id, None if joins and holder is None else instance)
        if joins:
            return member, None  # it was fenced, or did not hear the answer to its first heartbeat
        if request.epoch > member.epoch or (
            request.epoch < member.epoch
            and (request.epoch != member.previous_epoch or not is_subset(request.owned, member.assigned))
        ):
            # An answer with a new epoch may have been lost: then the member comes with the one before, and
            # with nothing that it was not given.
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                f"The member's epoch {request.epoch} is not the one known here ({member.epoch}). "
                "The member must abandon all its partitions and rejoin.",
            )
        return member, None

    def check_room(self) -> None:
        if len(self.members) >= self._limits.max_size:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {self._limits.max_size} members.",
            )

    def take_over_static(
        self, old: ConsumerMember, member_id: str, classic: bool, changes: list[Change]
    ) -> ConsumerMember:
        """A static member came back, usually under a new id. It may if the old one said goodbye, or spoke the
        classic protocol."""
        if not classic and not old.is_classic and old.epoch != LEAVE_STATIC:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"Static member {member_id} with instance id {old.value.instance_id} cannot join the group "
                f"because the instance id is owned by {old.member_id} member.",
            )
        new = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
        if member_id != old.member_id:
            changes += self._gone(old.member_id)
        changes += (
            MemberChanged(member_id, new.value),
            TargetChanged(member_id, self.target(old.member_id)),
            CurrentChanged(member_id, new.current),
        )
        return new

    def _described(self, known: MemberValue, request: HeartbeatRequest) -> MemberValue:
        """How the member describes itself now: what it does not mention is as before."""
        return MemberValue(
            known.instance_id if request.instance_id is None else request.instance_id,
            known.rack_id if request.rack_id is None else request.rack_id,
            request.client_id,
            request.client_host,
            known.topics if request.topics is None else tuple(sorted(set(request.topics))),
            known.regex if request.regex is None else request.regex,
            known.rebalance_timeout if request.rebalance_timeout == -1 else request.rebalance_timeout,
            known.assignor if request.assignor is None else request.assignor,
            None,
        )

    def advance(
        self,
        member: ConsumerMember,
        updated: ConsumerMember,
        replaced: str | None,
        owned: Mapping[UUID, Iterable[int]] | None,
        now: float,
        changes: list[Change],
    ) -> ConsumerMember:
        """Everything that a heartbeat can set off: a new description, a new epoch, a new target, a step
        towards it."""
        is_new = updated.member_id not in self.members and replaced is None
        value = updated.value
        if is_new or value != member.value:
            changes.append(MemberChanged(updated.member_id, updated.value))
        members = self.members
        if is_new or replaced is not None or value != member.value:
            members = {key: each for key, each in members.items() if key != replaced}
            members[updated.member_id] = updated
        other_names = value.topics != member.value.topics
        other_regex = (value.regex or "") != (member.value.regex or "")
        reads_other = is_new or other_names or other_regex
        # Names come first, as in Kafka, which looks for what an expression matches in the background: a new
        # expression that comes with names waits for the next heartbeat, which follows as soon as the names
        # are assigned.
        waits = value.regex if reads_other and value.topics and value.regex not in self.regexes else None
        grows = other_names or (other_regex and (not value.regex or value.regex in self.regexes))
        epoch = self._next_epoch(members, reads_other, grows, changes, waits)
        target_epoch, target = self.target_epoch, self.target(replaced or updated.member_id)
        if epoch > target_epoch:
            if now >= self._assign_after or target_epoch == FIRST_EPOCH:
                targets = self._assign(members, replaced, updated.member_id, epoch, now, changes)
                target_epoch, target = epoch, targets[updated.member_id]
            else:
                self.arm(self._assign_after)
        mine = (updated.member_id, replaced, None)

        def is_free(topic: UUID, index: int) -> bool:
            return self._owners.get(topic, {}).get(index) in mine

        reconciled = reconcile(updated, target_epoch, target, is_free, owned)
        if reconciled is not updated and reconciled != updated:
            changes.append(CurrentChanged(reconciled.member_id, reconciled.current))
            self._watch_revocation(reconciled, now)
        return reconciled

    def _next_epoch(
        self,
        members: Mapping[str, ConsumerMember],
        reads_other: bool,
        grows: bool,
        changes: list[Change],
        waits: str | None,
    ) -> int:
        """The group's epoch: one more if who reads what has changed (`grows`), or what there is to read. A
        member that reads nothing, or by an expression that nothing matches, changes neither."""
        if not reads_other and not self.stale:
            return self.epoch
        regexes, found_other, all_known = self._resolve(members, changes, waits)
        topics_hash = self.hash_of(self._subscriptions(members.values(), regexes))
        self.stale = bool(waits) or not all_known
        if grows or found_other or topics_hash != self.topics_hash:
            changes.append(GroupChanged(self.epoch + 1, topics_hash))
            return self.epoch + 1
        return self.epoch

    # ------------------------------------------------------------------ topics

    def _resolve(
        self, members: Mapping[str, ConsumerMember], changes: list[Change], waits: str | None = None
    ) -> tuple[dict[str, RegexValue], bool, bool]:
        """The topics behind every expression in use, but for one that waits; whether one has others than
        before; and whether all are known. Where nobody has looked since the topics changed, those of the
        last look count. What is not in use any more is dropped.

        As in Kafka, an expression has the same topics for all members of a group: those that the member may
        describe whose request made the group look."""
        resolved = {}
        found_other, all_known = False, True
        version = self._topics.version
        in_use = {member.value.regex for member in members.values() if member.value.regex} - {waits}
        for pattern in sorted(in_use):
            known = self.regexes.get(pattern)
            if known is None or known.version != version:
                found = self._topics.matching(pattern) if self.may_look else None
                if found is not None and self._may_see is not None:
                    found = frozenset(filter(self._may_see, found))
                if found is None:
                    all_known = False
                    if known is not None:
                        resolved[pattern] = known
                    continue
                before = frozenset(known.topics if known is not None else ())
                found_other = found_other or found != before
                if known is None or found != before:
                    known = RegexValue(tuple(sorted(found)), version, self._wall_ms())
                    changes.append(RegexChanged(pattern, known))
            resolved[pattern] = known
        changes += (RegexChanged(pattern, None) for pattern in self.regexes if pattern not in resolved)
        return resolved, found_other, all_known

    def hash_of(self, names: Iterable[str]) -> int:
        """Stands for the topics that are read, their ids and numbers of partitions; 0 where there are
        none."""
        digest = hashlib.blake2b(digest_size=8)
        empty = True
        for name in sorted(names):
            found = self._topics.find(name)
            if found is not None:
                empty = False
                digest.update(f"{name}\0{found[0].hex}\0{found[1]}\0".encode())
        return 0 if empty else int.from_bytes(digest.digest(), "big") or 1

    # ------------------------------------------------------------------ target

    def assign_if_due(self, now: float) -> list[Change]:
        """The target that was put off, if its time has come."""
        changes: list[Change] = []
        if self.members and self.epoch > self.target_epoch:
            if now >= self._assign_after:
                self._assign(self.members, None, "", self.epoch, now, changes)
            else:
                self.arm(self._assign_after)
        return changes

    def _assign(
        self,
        members: Mapping[str, ConsumerMember],
        replaced: str | None,
        replacing: str,
        epoch: int,
        now: float,
        changes: list[Change],
    ) -> dict[str, Partitions]:
        """A new target for all; the changes are of those for whom it is another one."""
        began = self._stopwatch()
        regexes = self.regexes | {
            change.regex: change.value
            for change in changes
            if isinstance(change, RegexChanged) and change.value is not None
        }
        counts: dict[UUID, int] = {}
        reads: dict[str, set[UUID]] = {}
        for member_id in sorted(members, key=lambda key: _static_first(members[key])):
            topics = reads[member_id] = set()
            for name in self._reads(members[member_id], regexes):
                found = self._topics.find(name)
                if found is not None:
                    topics.add(found[0])
                    counts[found[0]] = found[1]
        before = {key: self.target(key) for key in members}
        if replaced is not None:
            before[replacing] = self.target(replaced)
        new = ASSIGNORS[self._preferred(members.values())](reads, counts, before)
        targets: dict[str, Partitions] = {}
        for member_id, assignment in new.items():
            targets[member_id] = {topic: frozenset(indexes) for topic, indexes in assignment.items()}
            if targets[member_id] != before[member_id]:
                changes.append(TargetChanged(member_id, targets[member_id]))
        changes.append(TargetEpochChanged(epoch, self._wall_ms()))
        # A large group that starts up would compute an assignment for each member that comes: let them
        # gather.
        took = self._stopwatch() - began
        own, default = self.assignment_interval, self._limits.assignment_interval
        pause = max(default if own is None else own, took * 1000 * PAUSE_FACTOR if took > LONG else 0)
        self._assign_after = now + pause if pause else -NEVER
        return targets

    # ------------------------------------------------------------------ leaving

    def leave_for_a_while(self, member: ConsumerMember) -> tuple[HeartbeatResponse, list[Change]]:
        """A static member stops but will be back: its partitions wait for it until its session ends."""
        assigned = {topic: dict.fromkeys(indexes, 0) for topic, indexes in member.assigned.items()}
        away = CurrentValue(LEAVE_STATIC, member.previous_epoch, member.state, assigned, {})
        self.deadlines(member.member_id).rebalance = NEVER
        return HeartbeatResponse(member.member_id, LEAVE_STATIC), [CurrentChanged(member.member_id, away)]

    def remove(self, member_ids: Iterable[str]) -> list[Change]:
        """Members are gone, of their own will or not."""
        changes: list[Change] = []
        leaving = set(member_ids)
        for member_id in leaving:
            changes += self._gone(member_id)
        rest = {key: member for key, member in self.members.items() if key not in leaving}
        regexes, _, _ = self._resolve(rest, changes)
        topics_hash = self.hash_of(self._subscriptions(rest.values(), regexes))
        changes.append(GroupChanged(self.epoch + 1, topics_hash))
        return changes

    def _gone(self, member_id: str) -> tuple[Change, ...]:
        return (
            CurrentChanged(member_id, None),
            TargetChanged(member_id, None),
            MemberChanged(member_id, None),
        )

    def tombstones(self) -> list[Row]:
        changes: list[Change] = [CurrentChanged(member_id, None) for member_id in self.members]
        changes += [TargetChanged(member_id, None) for member_id in self.members]
        changes.append(TargetEpochChanged(None))
        changes += [MemberChanged(member_id, None) for member_id in self.members]
        changes += [RegexChanged(pattern, None) for pattern in self.regexes]
        changes.append(GroupChanged(None))
        return [row(self.group_id, change) for change in changes]


def _static_first(member: ConsumerMember) -> tuple[bool, str, str]:
    """The order of members for assignors: it does not depend on the ids that static members get anew each
    time."""
    instance = member.value.instance_id
    return instance is None, instance or "", member.member_id
