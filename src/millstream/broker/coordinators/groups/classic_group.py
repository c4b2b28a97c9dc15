"""A classic group: its members elect a protocol, one of them divides the partitions, all of them heartbeat.

A pure state machine, without clock, log or sockets. Rebalances are in `classic_rebalance`, membership in
`classic_members`; here is the rest: heartbeats, leaving, commits, deadlines, and what the log holds of the
group. Times are milliseconds of a clock that never goes back; `wake` says when `expire` wants to be called,
and may be too early but never too late.

Heartbeats only push a member's deadline forward, so they cost a dictionary look-up; the members are scanned
when the earliest known deadline has come, which for living members is about once in a session timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from millstream.broker.coordinators.groups import offset_records
from millstream.broker.coordinators.groups.classic_members import ClassicMember
from millstream.broker.coordinators.groups.classic_rebalance import ClassicRebalance
from millstream.broker.coordinators.groups.classic_types import (
    Action,
    Answer,
    ClassicGroupState,
    ClassicLimits,
    Joined,
    Leaving,
    Synced,
)
from millstream.broker.coordinators.groups.group import (
    NEVER,
    Committer,
    GroupType,
    ListedGroup,
    OffsetExpiration,
    Row,
)
from millstream.broker.coordinators.groups.offset_records import GroupRecord
from millstream.wire.consumer_protocol import CONSUMER
from millstream.wire.errors import ErrorCode, KafkaError


class ClassicGroup(ClassicRebalance):
    __slots__ = ()

    group_type = GroupType.CLASSIC

    # ------------------------------------------------------------------ from and to the log

    @classmethod
    def load(
        cls, group_id: str, record: GroupRecord, limits: ClassicLimits, wall_ms: Callable[[], int]
    ) -> ClassicGroup:
        group = cls(group_id, limits, wall_ms)
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.state_time = record.state_time
        for kept in record.members:
            protocols = ((record.protocol or "", kept.subscription),)
            member = ClassicMember(
                kept.member_id,
                kept.instance_id,
                kept.client_id,
                kept.client_host,
                kept.rebalance_timeout,
                kept.session_timeout,
                protocols,
                kept.assignment,
            )
            group._put(member)
        group.leader = record.leader
        group.state = ClassicGroupState.STABLE if group.members else ClassicGroupState.EMPTY
        group.subscribed = group._topics()
        return group

    def adopt(self, member: ClassicMember) -> None:
        """A member that comes with the group from the other protocol."""
        self._put(member)
        if self.leader is None:
            self.leader = member.member_id

    def settle_as(self, generation: int, protocol_type: str) -> None:
        """The adopted members are the group."""
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol = self._select_protocol()
        self.subscribed = self._topics()
        self._go(ClassicGroupState.STABLE)

    def begin_rebalance(self, now: float) -> list[Action]:
        """Whatever the members do, they have to join again."""
        out: list[Action] = []
        if self.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            self._prepare(now, out)
        return out

    def loaded(self, now: float) -> list[Action]:
        """The log was read: give every member a fresh session. A group over the limit of today sheds
        members."""
        for member in self.members.values():
            self._keep_alive(member, now)
        out: list[Action] = []
        if len(self.members) > self._limits.max_size:
            self._prepare(now, out)
        return out

    def renew_sessions(self, now: float) -> None:
        for member in self.members.values():
            self._keep_alive(member, now)

    def topics_changed(self, names: Iterable[str]) -> None:
        """The leader watches the topics itself, and joins again when they change."""

    def tombstones(self) -> list[Row]:
        return [(offset_records.group_key(self.group_id), None)]

    # ------------------------------------------------------------------ state

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        return self.is_empty and not self.pending

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.state.value, GroupType.CLASSIC, self.protocol_type or "")

    # ------------------------------------------------------------------ Heartbeat, LeaveGroup

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        error = self._check(member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        if self.state is ClassicGroupState.EMPTY:
            return ErrorCode.unknown_member_id
        self._keep_alive(self.members[member_id], now)
        return (
            ErrorCode.rebalance_in_progress if self.state is ClassicGroupState.PREPARING else ErrorCode.none
        )

    def leave(self, leaving: Iterable[Leaving], now: float) -> tuple[list[ErrorCode], list[Action]]:
        """An error code for each, in order. One that is named by its instance id alone is removed by an
        administrator."""
        out: list[Action] = []
        errors = []
        left = freed = False
        for member_id, instance_id in leaving:
            if not member_id:
                member_id = self.static.get(instance_id or "", "")
                error = ErrorCode.none if member_id else ErrorCode.unknown_member_id
            elif member_id in self.pending:
                del self.pending[member_id]
                freed = True
                errors.append(ErrorCode.none)
                continue
            else:
                error = self.check_member(member_id, instance_id)
            if error is ErrorCode.none:
                self._remove(member_id, out)
                left = True
            errors.append(error)
        if left and self.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            self._prepare(now, out)
        elif left or freed:
            self._complete_if_all_joined(now, out)
        return errors, out

    # ------------------------------------------------------------------ offsets

    def check_commit(
        self, committer: Committer, partitions: Iterable[tuple[UUID | None, int]], now: float
    ) -> ErrorCode:
        """A commit also counts as a sign of life."""
        member_id, instance_id, generation, _, transactional = committer
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            return ErrorCode.none  # a consumer that assigns its partitions itself, or an administrator
        if generation >= 0 or member_id or instance_id is not None:
            error = self._check(member_id, instance_id, generation)
            if error is not ErrorCode.none:
                return error
        elif not transactional:
            return ErrorCode.unknown_member_id
        if transactional:
            return ErrorCode.none
        if self.state is ClassicGroupState.COMPLETING:
            return ErrorCode.rebalance_in_progress
        self._keep_alive(self.members[member_id], now)
        return ErrorCode.none

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Member ids and epochs in OffsetFetch are for the consumer protocol."""
        return ErrorCode.none

    def topics_in_use(self) -> frozenset[str] | None:
        if self.is_empty:
            return frozenset()
        if self.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.non_empty_group)
        return self.subscribed

    def offset_expiration(self) -> OffsetExpiration | None:
        if self.protocol_type is None:
            return OffsetExpiration()
        if self.is_empty:
            return OffsetExpiration(None if self.state_time < 0 else self.state_time)
        if self.state is ClassicGroupState.STABLE and self.subscribed is not None:
            return OffsetExpiration(topics_in_use=self.subscribed)
        return None

    # ------------------------------------------------------------------ the clock

    def expire(self, now: float) -> list[Action]:
        """What time alone brings about: members die, delays end. Afterwards `wake` is exact."""
        out: list[Action] = []
        if self.state is ClassicGroupState.DEAD:
            self.wake = NEVER
            return out
        if self.join_deadline <= now:
            self.join_deadline = NEVER
            if self._initial:
                self._initial_delay_over(now, out)
            else:
                self._complete_join(now, out)
        if self.sync_deadline <= now:
            self._sync_timed_out(now, out)
        self._remove_silent_members(now, out)
        self.wake = min(
            self.join_deadline,
            self.sync_deadline,
            min((member.deadline for member in self.members.values()), default=NEVER),
            min(self.pending.values(), default=NEVER),
        )
        return out

    def _sync_timed_out(self, now: float, out: list[Action]) -> None:
        """Members who never came for their assignment are out, and the rest divide again."""
        self.sync_deadline = NEVER
        late = self.pending_sync & self.members.keys()
        if late and self.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE):
            for member_id in late:
                self._remove(member_id, out)
            self._prepare(now, out)

    def _remove_silent_members(self, now: float, out: list[Action]) -> None:
        silent = []
        for member in self.members.values():
            if member.deadline <= now:
                if member.waits:
                    member.deadline = NEVER  # set again when it gets its answer
                else:
                    silent.append(member.member_id)
        for member_id in silent:
            self._remove(member_id, out)
        late = [member_id for member_id, deadline in self.pending.items() if deadline <= now]
        for member_id in late:
            del self.pending[member_id]
        if silent and self.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            self._prepare(now, out)
        elif (silent or late) and self.state is ClassicGroupState.PREPARING and self._all_joined():
            self._complete_join(now, out)

    # ------------------------------------------------------------------ the end

    def unload(self, error: ErrorCode) -> list[Action]:
        """The group is gone from here: waiting requests get this error."""
        out: list[Action] = []
        for member in self.members.values():
            self._answer_join(member, Joined(error, member.member_id), out)
            if member.sync_waiter is not None:
                out.append(Answer(member.sync_waiter, Synced(error)))
                member.sync_waiter = None
        self.state = ClassicGroupState.DEAD
        self.wake = NEVER
        return out
