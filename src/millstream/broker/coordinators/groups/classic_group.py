"""A classic group: its members elect a protocol, one of them divides the partitions, all of them heartbeat.

    Empty ----join----> PreparingRebalance --all joined or time is up--> CompletingRebalance --leader's sync--> Stable
      ^                   ^      |   ^                                       |        |                          |
      +---no member left--+------+   +----join, leave, death of a member-----+--------+--------------------------+

A pure state machine. Requests and the clock come in as method calls, each of which returns what is to be done: `Answer`
(somebody who waits gets a result) and `Save` (the group is to be written to the log; `saved` must be called with the
outcome). Who waits is an opaque object. Times are milliseconds of a clock that never goes back; `wake` says when
`expire` wants to be called, and may be too early but never too late.

Heartbeats only push a member's deadline forward, so they cost a dictionary look-up; the members are scanned when the
earliest deadline that was known has come, which for living members is about once in a session timeout.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from millstream.broker.coordinators.groups.classic_members import Member, Roster
from millstream.broker.coordinators.groups.classic_types import (
    NEVER,
    Action,
    Answer,
    Joined,
    JoinRequest,
    Leaving,
    Limits,
    Purpose,
    Replaced,
    Save,
    State,
    Synced,
)
from millstream.broker.coordinators.groups.offset_records import GroupRecord, MemberRecord
from millstream.broker.coordinators.groups.subscription import CONSUMER, subscribed_topics
from millstream.wire.errors import ErrorCode

NEW_MEMBER_TIMEOUT = 300_000  # ms that a first JoinGroup may wait; then the client has certainly given up


class ClassicGroup(Roster):
    __slots__ = (
        "_delay",
        "_delay_left",
        "_initial",
        "_joined_since_delay",
        "_limits",
        "_new_id",
        "_wall_ms",
        "join_deadline",
        "scheduled",
        "state",
        "state_time",
        "subscribed",
        "sync_deadline",
    )

    def __init__(
        self,
        group_id: str,
        limits: Limits,
        wall_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        super().__init__(group_id)
        self.state = State.EMPTY
        self.state_time = wall_ms()
        self.subscribed: frozenset[str] | None = None
        self.join_deadline = NEVER
        self.sync_deadline = NEVER
        self.scheduled = NEVER  # the coordinator's: for when it has set its alarm
        self._limits = limits
        self._wall_ms = wall_ms
        self._new_id = new_id
        self._initial = False  # this rebalance began from an empty group: more members may be about to come
        self._joined_since_delay = False
        self._delay = self._delay_left = 0

    # ------------------------------------------------------------------ from and to the log

    @classmethod
    def load(
        cls, group_id: str, record: GroupRecord, limits: Limits, wall_ms: Callable[[], int]
    ) -> ClassicGroup:
        group = cls(group_id, limits, wall_ms)
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.state_time = record.state_time
        for kept in record.members:
            protocols = ((record.protocol or "", kept.subscription),)
            member = Member(
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
        group.state = State.STABLE if group.members else State.EMPTY
        group.subscribed = group._topics()
        return group

    def adopt(self, member: Member) -> None:
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
        self._go(State.STABLE)

    def begin_rebalance(self, now: float) -> list[Action]:
        """Whatever the members do, they have to join again."""
        out: list[Action] = []
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare(now, out)
        return out

    def loaded(self, now: float) -> list[Action]:
        """The log was read: give every member a fresh session. A group over the limit of today sheds members."""
        for member in self.members.values():
            self._keep_alive(member, now)
        out: list[Action] = []
        if len(self.members) > self._limits.max_size:
            self._prepare(now, out)
        return out

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

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    # ------------------------------------------------------------------ JoinGroup

    def join(self, request: JoinRequest, waiter: Any, now: float) -> list[Action]:
        out: list[Action] = []
        known = request.member_id
        if self.state is State.DEAD:
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
            self.pending[member_id] = self._arm(now + request.session_timeout)
            out.append(Answer(waiter, Joined(ErrorCode.member_id_required, member_id)))
        else:
            self._add(member_id, request, waiter, now, out)

    def _add(self, member_id: str, request: JoinRequest, waiter: Any, now: float, out: list[Action]) -> None:
        member = Member(
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
        member.deadline = self._arm(now + NEW_MEMBER_TIMEOUT)
        if self.state is State.PREPARING and self._initial:
            self._joined_since_delay = True
        self._rebalance(now, out)

    def _join_again(
        self, member: Member, request: JoinRequest, waiter: Any, now: float, out: list[Action]
    ) -> None:
        changed = member.protocols != request.protocols
        leads = member.member_id == self.leader
        if self.state is State.PREPARING or changed or (leads and self.state is State.STABLE):
            self._update(member, request, waiter, out)
            self._rebalance(now, out)
        elif self.state is State.EMPTY:
            out.append(Answer(waiter, Joined(ErrorCode.unknown_member_id, member.member_id)))
        else:
            # It did not hear the answer to its last JoinGroup, or asks again for no reason: the generation stands.
            out.append(Answer(waiter, self._joined(member, leads and self.state is State.COMPLETING)))

    def _replace_static(
        self, old_id: str, new_id: str, request: JoinRequest, waiter: Any, now: float, out: list[Action]
    ) -> None:
        """A static member came back and does not know its id: it takes over the old one's place."""
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
        if self.state is State.STABLE:
            if self._select_protocol() == self.protocol:
                assignments = {each.member_id: each.assignment for each in self.members.values()}
                record = self.record(assignments)
                out.append(Save(Purpose.STATIC, self.generation, record, assignments, undo))
            else:
                self._prepare(now, out)
        elif self.state is State.COMPLETING:
            # The leader may be dividing among the old ids right now.
            self._prepare(now, out)
        else:
            self._complete_if_all_joined(now, out)

    def _has_room(self, member_id: str) -> bool:
        """During a rebalance the places go to who has joined so far, so that a lowered limit sheds the late ones."""
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            taken = member is not None and member.join_waiter is not None
            return taken or self.awaiting_join < self._limits.max_size
        if self.state in (State.COMPLETING, State.STABLE):
            return member is not None or len(self.members) < self._limits.max_size
        return True

    def _fits(self, request: JoinRequest) -> bool:
        """Whether the member speaks of the same matter as the group, and knows a protocol that all others know."""
        if self.state is State.EMPTY:
            return bool(request.protocol_type and request.protocols)
        everybody = len(self.members)
        return self.protocol_type == request.protocol_type and any(
            self._supported[name] == everybody for name, _ in request.protocols
        )

    # ------------------------------------------------------------------ rebalance

    def _rebalance(self, now: float, out: list[Action]) -> None:
        if self.state is State.PREPARING:
            self._complete_if_all_joined(now, out)
        else:
            self._prepare(now, out)

    def _prepare(self, now: float, out: list[Action]) -> None:
        """Everybody has to join again; who waits for an assignment is told so."""
        if self.state is State.COMPLETING:
            self._propagate(ErrorCode.rebalance_in_progress, {}, now, out)
        self.pending_sync.clear()
        self.sync_deadline = NEVER
        self._initial = self.state is State.EMPTY
        self._go(State.PREPARING)
        if self._initial:
            self._joined_since_delay = False
            self._delay = self._limits.initial_delay
            self._delay_left = max(self._rebalance_timeout() - self._delay, 0)
            self.join_deadline = self._arm(now + self._delay)
        elif self._all_joined():
            self._complete_join(now, out)
        else:
            self.join_deadline = self._arm(now + self._rebalance_timeout())

    def _complete_if_all_joined(self, now: float, out: list[Action]) -> None:
        if self.state is State.PREPARING and not self._initial and self._all_joined():
            self._complete_join(now, out)

    def _initial_delay_over(self, now: float, out: list[Action]) -> None:
        """Wait again while members keep coming, but not longer than their rebalance timeout in all."""
        if self._joined_since_delay and self._delay_left:
            self._joined_since_delay = False
            waited = self._delay
            self._delay = min(self._limits.initial_delay, self._delay_left)
            self._delay_left = max(self._delay_left - waited, 0)
            self.join_deadline = self._arm(now + self._delay)
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
            self.join_deadline = self._arm(now + self._rebalance_timeout())
            return
        self.generation += 1
        self.pending_sync.clear()
        if not self.members:
            self.protocol = None
            self.subscribed = self._topics()
            self._go(State.EMPTY)
            out.append(Save(Purpose.EMPTY, self.generation, self.record({}), {}))
            return
        self.protocol = self._select_protocol()
        self.subscribed = self._topics()
        self._go(State.COMPLETING)
        for member in self.members.values():
            self._answer_join(member, self._joined(member, member.member_id == self.leader), out)
            self._keep_alive(member, now)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self.sync_deadline = self._arm(now + self._rebalance_timeout())

    # ------------------------------------------------------------------ SyncGroup

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Iterable[tuple[str, bytes]],
        waiter: Any,
        now: float,
    ) -> list[Action]:
        error = self._check(member_id, instance_id, generation)
        if error is ErrorCode.none:
            if (protocol_type is not None and protocol_type != (self.protocol_type or protocol_type)) or (
                protocol is not None and protocol != (self.protocol or protocol)
            ):
                error = ErrorCode.inconsistent_group_protocol
            elif self.state is State.PREPARING:
                error = ErrorCode.rebalance_in_progress
            elif self.state is State.EMPTY:
                error = ErrorCode.unknown_member_id
        if error is not ErrorCode.none:
            return [Answer(waiter, Synced(error))]
        out: list[Action] = []
        member = self.members[member_id]
        self.pending_sync.discard(member_id)
        if not self.pending_sync:
            self.sync_deadline = NEVER
        if self.state is State.STABLE:
            out.append(Answer(waiter, self._synced(member)))
            return out
        if member.sync_waiter is not None:
            out.append(Answer(member.sync_waiter, Synced(ErrorCode.rebalance_in_progress)))
        member.sync_waiter = waiter
        if member_id == self.leader:
            given = dict(assignments)
            mine = {each: given.get(each, b"") for each in self.members}
            out.append(Save(Purpose.ASSIGNMENT, self.generation, self.record(mine), mine))
        return out

    def saved(self, save: Save, error: ErrorCode, now: float) -> list[Action]:
        """The outcome of a `Save`. The group may have moved on meanwhile; then it does not matter any more."""
        out: list[Action] = []
        if save.purpose is Purpose.STATIC:
            self._static_saved(save, error, out, now)
        elif save.purpose is Purpose.ASSIGNMENT and (
            self.state is State.COMPLETING and self.generation == save.generation
        ):
            self._propagate(error, {} if error is not ErrorCode.none else save.assignments, now, out)
            if error is ErrorCode.none:
                self._go(State.STABLE)
            else:
                self._prepare(now, out)
        return out

    def _static_saved(self, save: Save, error: ErrorCode, out: list[Action], now: float) -> None:
        undo = save.replaced
        member = self.members.get(undo.new_id) if undo is not None else None
        if undo is None or member is None or member.join_waiter is None or self.state is not State.STABLE:
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
            # An old client that heard it leads would divide anew: it is told of the former leader instead.
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

    # ------------------------------------------------------------------ Heartbeat, LeaveGroup, commits

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        error = self._check(member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        if self.state is State.EMPTY:
            return ErrorCode.unknown_member_id
        self._keep_alive(self.members[member_id], now)
        return ErrorCode.rebalance_in_progress if self.state is State.PREPARING else ErrorCode.none

    def leave(self, leaving: Iterable[Leaving], now: float) -> tuple[list[ErrorCode], list[Action]]:
        """An error code for each, in order. One that is named by its instance id alone is removed by an administrator."""
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
        if left and self.state in (State.STABLE, State.COMPLETING):
            self._prepare(now, out)
        elif left or freed:
            self._complete_if_all_joined(now, out)
        return errors, out

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, now: float
    ) -> ErrorCode:
        """May this member commit offsets? A commit also counts as a sign of life."""
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.none  # a consumer that assigns its partitions itself, or an administrator
        if generation >= 0 or member_id or instance_id is not None:
            error = self._check(member_id, instance_id, generation)
            if error is not ErrorCode.none:
                return error
        elif not transactional:
            return ErrorCode.unknown_member_id
        if transactional:
            return ErrorCode.none
        if self.state is State.COMPLETING:
            return ErrorCode.rebalance_in_progress
        self._keep_alive(self.members[member_id], now)
        return ErrorCode.none

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if instance_id is not None or member_id not in self.members:
            error = self.check_member(member_id, instance_id)
            if error is not ErrorCode.none:
                return error
        return ErrorCode.none if generation == self.generation else ErrorCode.illegal_generation

    # ------------------------------------------------------------------ the clock

    def expire(self, now: float) -> list[Action]:
        """What time alone brings about: members die, delays end. Afterwards `wake` is exact."""
        out: list[Action] = []
        if self.state is State.DEAD:
            self.wake = NEVER
            return out
        if self.join_deadline <= now:
            self.join_deadline = NEVER
            if self._initial:
                self._initial_delay_over(now, out)
            else:
                self._complete_join(now, out)
        if self.sync_deadline <= now:
            self._sync_is_over(now, out)
        self._bury_the_silent(now, out)
        self.wake = min(
            self.join_deadline,
            self.sync_deadline,
            min((member.deadline for member in self.members.values()), default=NEVER),
            min(self.pending.values(), default=NEVER),
        )
        return out

    def _sync_is_over(self, now: float, out: list[Action]) -> None:
        """Members who never came for their assignment are out, and the rest divide again."""
        self.sync_deadline = NEVER
        late = self.pending_sync & self.members.keys()
        if late and self.state in (State.COMPLETING, State.STABLE):
            for member_id in late:
                self._remove(member_id, out)
            self._prepare(now, out)

    def _bury_the_silent(self, now: float, out: list[Action]) -> None:
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
        if silent and self.state in (State.STABLE, State.COMPLETING):
            self._prepare(now, out)
        elif (silent or late) and self.state is State.PREPARING and self._all_joined():
            self._complete_join(now, out)

    # ------------------------------------------------------------------ the end

    def unload(self, error: ErrorCode) -> list[Action]:
        """Nothing may happen to this group here any more; who waits is told why."""
        out: list[Action] = []
        for member in self.members.values():
            self._answer_join(member, Joined(error, member.member_id), out)
            if member.sync_waiter is not None:
                out.append(Answer(member.sync_waiter, Synced(error)))
                member.sync_waiter = None
        self.state = State.DEAD
        self.wake = NEVER
        return out

    # ------------------------------------------------------------------ inside

    def _go(self, state: State) -> None:
        self.state = state
        self.state_time = self._wall_ms()

    def _topics(self) -> frozenset[str] | None:
        """What the members subscribe to, where they speak the consumers' protocol and can be understood."""
        if self.protocol_type != CONSUMER:
            return None
        return subscribed_topics(member.metadata(self.protocol) for member in self.members.values())
