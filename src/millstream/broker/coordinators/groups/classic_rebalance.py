"""How a classic group gets from one generation to the next: JoinGroup, protocol, leader, SyncGroup.

    Empty --join-> PreparingRebalance --all joined or timeout-> CompletingRebalance --leader's sync-> Stable
      ^              ^      |   ^                                    |        |                         |
      +no member left+------+   +----join, leave, death of a member--+--------+-------------------------+

Requests and the clock come in as method calls, each of which returns what is to be done: `Answer` (a waiting
request gets a result) and `Save` (the group is to be written to the log; `saved` must be called with the
outcome). Waiters are opaque. Rules: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (member ids before joining), KIP-814 (static leaders skip the assignment).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from millstream.broker.coordinators.groups.classic_members import ClassicMember, ClassicMembers
from millstream.broker.coordinators.groups.classic_types import (
    Action,
    Answer,
    ClassicGroupState,
    ClassicLimits,
    Joined,
    JoinRequest,
    Purpose,
    Replaced,
    Save,
    Synced,
    SyncRequest,
)
from millstream.broker.coordinators.groups.group import NEVER
from millstream.broker.coordinators.groups.offset_records import GroupRecord, MemberRecord
from millstream.wire.consumer_protocol import CONSUMER, subscribed_topics
from millstream.wire.errors import ErrorCode

NEW_MEMBER_TIMEOUT = 300_000  # ms that a first JoinGroup may wait; by then the client has certainly given up


class ClassicRebalance(ClassicMembers):
    __slots__ = (
        "_delay",
        "_delay_left",
        "_initial",
        "_joined_since_delay",
        "_limits",
        "_new_id",
        "_wall_ms",
        "join_deadline",
        "state",
        "state_time",
        "subscribed",
        "sync_deadline",
    )

    def __init__(
        self,
        group_id: str,
        limits: ClassicLimits,
        wall_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        super().__init__(group_id)
        self.state = ClassicGroupState.EMPTY
        self.state_time = wall_ms()
        self.subscribed: frozenset[str] | None = None
        self.join_deadline = NEVER
        self.sync_deadline = NEVER
        self._limits = limits
        self._wall_ms = wall_ms
        self._new_id = new_id
        self._initial = False  # this rebalance began from an empty group: more members may be about to come
        self._joined_since_delay = False
        self._delay = self._delay_left = 0

    # ------------------------------------------------------------------ JoinGroup

    def join(self, request: JoinRequest, waiter: Any, now: float) -> list[Action]:
        out: list[Action] = []
        known = request.member_id
        if self.state is ClassicGroupState.DEAD:
            out.append(Answer(waiter, Joined(ErrorCode.coordinator_not_available, known)))
        elif not self._has_room(known):
            self.pending.pop(known, None)
            if known in self.members:
                self._remove(known, out)
            self._complete_if_all_joined(now, out)
            out.append(Answer(waiter, Joined(ErrorCode.group_max_size_reached, "")))
        elif not self._fits(request):
            out.append(Answer(waiter, Joined(ErrorCode.inconsistent_group_protocol, known)))
        elif not known:
            self._join_new(request, waiter, now, out)
        elif known in self.pending and request.instance_id is None:
            self._add(known, request, waiter, now, out)
        else:
            error = self.check_member(known, request.instance_id)
            if error is not ErrorCode.none:
                out.append(Answer(waiter, Joined(error, known)))
            else:
                self._join_again(self.members[known], request, waiter, now, out)
        return out

    def _join_new(self, request: JoinRequest, waiter: Any, now: float, out: list[Action]) -> None:
        instance = request.instance_id
        member_id = f"{request.client_id if instance is None else instance}-{self._new_id()}"
        if instance is not None and instance in self.static:
            self._replace_static(self.static[instance], member_id, request, waiter, now, out)
        elif instance is None and request.must_know_id:
            self.pending[member_id] = self.arm(now + request.session_timeout)
            out.append(Answer(waiter, Joined(ErrorCode.member_id_required, member_id)))
        else:
            self._add(member_id, request, waiter, now, out)

    def _add(self, member_id: str, request: JoinRequest, waiter: Any, now: float, out: list[Action]) -> None:
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout,
            request.session_timeout,
            request.protocols,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.pending.pop(member_id, None)
        self._put(member)
        if self.leader is None:
            self.leader = member_id
        member.is_new = True
        member.join_waiter = waiter
        self.awaiting_join += 1
        member.deadline = self.arm(now + NEW_MEMBER_TIMEOUT)
        if self.state is ClassicGroupState.PREPARING and self._initial:
            self._joined_since_delay = True
        self._rebalance(now, out)

    def _join_again(
        self, member: ClassicMember, request: JoinRequest, waiter: Any, now: float, out: list[Action]
    ) -> None:
        changed = member.protocols != request.protocols
        leads = member.member_id == self.leader
        if (
            self.state is ClassicGroupState.PREPARING
            or changed
            or (leads and self.state is ClassicGroupState.STABLE)
        ):
            self._update(member, request, waiter, out)
            self._rebalance(now, out)
        elif self.state is ClassicGroupState.EMPTY:
            out.append(Answer(waiter, Joined(ErrorCode.unknown_member_id, member.member_id)))
        else:
            # It did not hear the answer to its last JoinGroup, or asks again for no reason: the generation
            # stands.
            out.append(
                Answer(waiter, self._joined(member, leads and self.state is ClassicGroupState.COMPLETING))
            )

    def _replace_static(
        self, old_id: str, new_id: str, request: JoinRequest, waiter: Any, now: float, out: list[Action]
    ) -> None:
        """A static member came back and does not know its id: it takes over from the old one (KIP-345)."""
        old_leader = self.leader or ""
        member = self._rename(old_id, new_id, out)
        undo = Replaced(
            old_id,
            new_id,
            member.protocols,
            member.rebalance_timeout,
            member.session_timeout,
            request.may_skip_assignment,
            old_leader,
        )
        self._keep_alive(member, now)
        self._update(member, request, waiter, out)
        if self.state is ClassicGroupState.STABLE:
            if self._select_protocol() == self.protocol:
                assignments = {each.member_id: each.assignment for each in self.members.values()}
                record = self.record(assignments)
                out.append(Save(Purpose.STATIC, self.generation, record, assignments, undo))
            else:
                self._prepare(now, out)
        elif self.state is ClassicGroupState.COMPLETING:
            # The leader may be dividing among the old ids right now.
            self._prepare(now, out)
        else:
            self._complete_if_all_joined(now, out)

    def _has_room(self, member_id: str) -> bool:
        """During a rebalance those who joined first stay, so that a lowered limit sheds the late ones."""
        member = self.members.get(member_id)
        if self.state is ClassicGroupState.PREPARING:
            taken = member is not None and member.join_waiter is not None
            return taken or self.awaiting_join < self._limits.max_size
        if self.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE):
            return member is not None or len(self.members) < self._limits.max_size
        return True

    def _fits(self, request: JoinRequest) -> bool:
        """Whether the member has the protocol type of the group, and knows a protocol that all others
        know."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        everybody = len(self.members)
        return self.protocol_type == request.protocol_type and any(
            self._supported[name] == everybody for name, _ in request.protocols
        )

    # ------------------------------------------------------------------ rebalance

    def _rebalance(self, now: float, out: list[Action]) -> None:
        if self.state is ClassicGroupState.PREPARING:
            self._complete_if_all_joined(now, out)
        else:
            self._prepare(now, out)

    def _prepare(self, now: float, out: list[Action]) -> None:
        """Everybody has to join again; waiting SyncGroups are answered REBALANCE_IN_PROGRESS."""
        if self.state is ClassicGroupState.COMPLETING:
            self._propagate(ErrorCode.rebalance_in_progress, {}, now, out)
        self.pending_sync.clear()
        self.sync_deadline = NEVER
        self._initial = self.state is ClassicGroupState.EMPTY
        self._go(ClassicGroupState.PREPARING)
        if self._initial:
            self._joined_since_delay = False
            self._delay = self._limits.initial_delay
            self._delay_left = max(self._rebalance_timeout() - self._delay, 0)
            self.join_deadline = self.arm(now + self._delay)
        elif self._all_joined():
            self._complete_join(now, out)
        else:
            self.join_deadline = self.arm(now + self._rebalance_timeout())

    def _complete_if_all_joined(self, now: float, out: list[Action]) -> None:
        if self.state is ClassicGroupState.PREPARING and not self._initial and self._all_joined():
            self._complete_join(now, out)

    def _initial_delay_over(self, now: float, out: list[Action]) -> None:
        """Wait again while members keep coming, but not longer than their rebalance timeout in all."""
        if self._joined_since_delay and self._delay_left:
            self._joined_since_delay = False
            waited = self._delay
            self._delay = min(self._limits.initial_delay, self._delay_left)
            self._delay_left = max(self._delay_left - waited, 0)
            self.join_deadline = self.arm(now + self._delay)
        else:
            self._complete_join(now, out)

    def _complete_join(self, now: float, out: list[Action]) -> None:
        """The next generation begins with who has joined; dynamic members who have not are out."""
        self.join_deadline = NEVER
        for member in [each for each in self.members.values() if each.join_waiter is None]:
            if member.instance_id is None:
                self._remove(member.member_id, out)
        if self.members and not self._elect_leader():
            # Only static members are left and none came back yet: their sessions decide.
            self.join_deadline = self.arm(now + self._rebalance_timeout())
            return
        self.generation += 1
        self.pending_sync.clear()
        if not self.members:
            self.protocol = None
            self.subscribed = self._topics()
            self._go(ClassicGroupState.EMPTY)
            out.append(Save(Purpose.EMPTY, self.generation, self.record({}), {}))
            return
        self.protocol = self._select_protocol()
        self.subscribed = self._topics()
        self._go(ClassicGroupState.COMPLETING)
        for member in self.members.values():
            self._answer_join(member, self._joined(member, member.member_id == self.leader), out)
            self._keep_alive(member, now)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self.sync_deadline = self.arm(now + self._rebalance_timeout())

    # ------------------------------------------------------------------ SyncGroup

    def sync(self, request: SyncRequest, waiter: Any, now: float) -> list[Action]:
        error = self._check_sync(request)
        if error is not ErrorCode.none:
            return [Answer(waiter, Synced(error))]
        out: list[Action] = []
        member = self.members[request.member_id]
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            self.sync_deadline = NEVER
        if self.state is ClassicGroupState.STABLE:
            out.append(Answer(waiter, self._synced(member)))
            return out
        if member.sync_waiter is not None:
            out.append(Answer(member.sync_waiter, Synced(ErrorCode.rebalance_in_progress)))
        member.sync_waiter = waiter
        if member.member_id == self.leader:
            given = request.assignments
            assignments = {member_id: given.get(member_id, b"") for member_id in self.members}
            record = self.record(assignments)
            out.append(Save(Purpose.ASSIGNMENT, self.generation, record, assignments))
        return out

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        error = self._check(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.none:
            return error
        protocol_type, protocol = request.protocol_type, request.protocol
        if (protocol_type is not None and protocol_type != (self.protocol_type or protocol_type)) or (
            protocol is not None and protocol != (self.protocol or protocol)
        ):
            return ErrorCode.inconsistent_group_protocol
        if self.state is ClassicGroupState.PREPARING:
            return ErrorCode.rebalance_in_progress
        if self.state is ClassicGroupState.EMPTY:
            return ErrorCode.unknown_member_id
        return ErrorCode.none

    def saved(self, save: Save, error: ErrorCode, now: float) -> list[Action]:
        """The outcome of a `Save`. The group may have moved on meanwhile; then it does not matter any
        more."""
        out: list[Action] = []
        if save.purpose is Purpose.STATIC:
            self._static_saved(save, error, out, now)
        elif save.purpose is Purpose.ASSIGNMENT and (
            self.state is ClassicGroupState.COMPLETING and self.generation == save.generation
        ):
            self._propagate(error, {} if error is not ErrorCode.none else save.assignments, now, out)
            if error is ErrorCode.none:
                self._go(ClassicGroupState.STABLE)
            else:
                self._prepare(now, out)
        return out

    def _static_saved(self, save: Save, error: ErrorCode, out: list[Action], now: float) -> None:
        undo = save.replaced
        member = self.members.get(undo.new_id) if undo is not None else None
        if (
            undo is None
            or member is None
            or member.join_waiter is None
            or self.state is not ClassicGroupState.STABLE
        ):
            return
        leads = member.member_id == self.leader
        if error is not ErrorCode.none:
            self._answer_join(member, Joined(error, "", self.generation, None, None, undo.old_leader), out)
            self._set_protocols(member, undo.protocols)
            member.rebalance_timeout = undo.rebalance_timeout
            member.session_timeout = undo.session_timeout
            self._keep_alive(self._rename(undo.new_id, undo.old_id, out), now)
        elif undo.may_skip_assignment:
            # The leader learns who is there, but must not divide anew.
            self._answer_join(member, self._joined(member, leads)._replace(skip_assignment=leads), out)
        else:
            # An old client that heard it leads would divide anew: it hears of the former leader instead.
            self._answer_join(member, self._joined(member, False)._replace(leader=undo.old_leader), out)

    def _propagate(
        self, error: ErrorCode, assignments: dict[str, bytes], now: float, out: list[Action]
    ) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                result = self._synced(member) if error is ErrorCode.none else Synced(error)
                out.append(Answer(member.sync_waiter, result))
                member.sync_waiter = None
                self._keep_alive(member, now)

    # ------------------------------------------------------------------ inside

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.coordinator_not_available
        if instance_id is not None or member_id not in self.members:
            error = self.check_member(member_id, instance_id)
            if error is not ErrorCode.none:
                return error
        return ErrorCode.none if generation == self.generation else ErrorCode.illegal_generation

    def record(self, assignments: dict[str, bytes]) -> GroupRecord:
        return GroupRecord(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_time,
            [
                MemberRecord(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout,
                    member.session_timeout,
                    member.metadata(self.protocol),
                    assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    def _go(self, state: ClassicGroupState) -> None:
        self.state = state
        self.state_time = self._wall_ms()

    def _topics(self) -> frozenset[str] | None:
        """What the members subscribe to, where they speak the consumers' protocol and can be understood."""
        if self.protocol_type != CONSUMER:
            return None
        return subscribed_topics(member.metadata(self.protocol) for member in self.members.values())
