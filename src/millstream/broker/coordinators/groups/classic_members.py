"""The members of a classic group: their protocols, ids given out, the leader. The states are in
`classic_rebalance`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from millstream.broker.coordinators.groups.classic_types import (
    Action,
    Answer,
    Joined,
    JoinRequest,
    Protocols,
    Synced,
)
from millstream.broker.coordinators.groups.group import NEVER, Group
from millstream.wire.errors import ErrorCode


class ClassicMember:
    """What the group knows about one member. `deadline` is when it counts as dead unless it is heard of
    before."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout",
        "session_timeout",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout: int,
        session_timeout: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout = rebalance_timeout
        self.session_timeout = session_timeout
        self.protocols = protocols
        self.assignment = assignment
        self.deadline = NEVER
        self.is_new = False  # has not been through a whole rebalance yet, so it cannot send heartbeats
        self.join_waiter: Any = None  # who gets the answer to its JoinGroup
        self.sync_waiter: Any = None

    @property
    def waits(self) -> bool:
        """Whether the member waits for us; then silence is not its fault."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, data in self.protocols:
            if name == protocol:
                return data
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The candidate that this member likes best; it knows at least one."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicMembers(Group):
    __slots__ = (
        "_supported",
        "awaiting_join",
        "generation",
        "leader",
        "members",
        "pending",
        "pending_sync",
        "protocol",
        "protocol_type",
        "static",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        # Ids given out that have not joined yet -> when they are forgotten (KIP-394).
        self.pending: dict[str, float] = {}
        self.pending_sync: set[str] = set()  # who has not come for its assignment yet
        self.awaiting_join = 0
        self._supported: Counter[str] = Counter()  # protocol -> members that know it

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is not None and holder != member_id:
                return ErrorCode.fenced_instance_id
            if holder is None:
                return ErrorCode.unknown_member_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def _elect_leader(self) -> bool:
        """The leader stays if it joined, else the first who did; False if nobody did."""
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is None or leader.join_waiter is None:
            leader = next((each for each in self.members.values() if each.join_waiter is not None), None)
            if leader is None:
                return False
            self.leader = leader.member_id
        return True

    def _select_protocol(self) -> str:
        """Each member votes for the first in its list that all of them know."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _rebalance_timeout(self) -> int:
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    def _all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending

    # ------------------------------------------------------------------ coming and going

    def _put(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._supported.update({name for name, _ in member.protocols})

    def _remove(self, member_id: str, out: list[Action]) -> None:
        member = self.members.pop(member_id)
        self._answer_join(member, Joined(ErrorCode.unknown_member_id, ""), out)
        if member.sync_waiter is not None:
            out.append(Answer(member.sync_waiter, Synced(ErrorCode.unknown_member_id)))
            member.sync_waiter = None
        self._forget_protocols(member)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        self.pending_sync.discard(member_id)
        if member_id == self.leader:
            self.leader = next(iter(self.members), None)

    def _rename(self, old_id: str, new_id: str, out: list[Action]) -> ClassicMember:
        """Put a static member under another id; a request that still waits under the old one is fenced
        (KIP-345)."""
        member = self.members.pop(old_id)
        self._answer_join(member, Joined(ErrorCode.fenced_instance_id, old_id), out)
        if member.sync_waiter is not None:
            out.append(Answer(member.sync_waiter, Synced(ErrorCode.fenced_instance_id)))
            member.sync_waiter = None
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_id)
        return member

    def _update(self, member: ClassicMember, request: JoinRequest, waiter: Any, out: list[Action]) -> None:
        """The member joins again; whoever still waits for its earlier JoinGroup has been given up by the
        client."""
        self._set_protocols(member, request.protocols)
        member.rebalance_timeout = request.rebalance_timeout
        member.session_timeout = request.session_timeout
        self._answer_join(member, Joined(ErrorCode.rebalance_in_progress, member.member_id), out)
        member.join_waiter = waiter
        self.awaiting_join += 1

    def _forget_protocols(self, member: ClassicMember) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]

    def _set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._supported.update({name for name, _ in protocols})

    # ------------------------------------------------------------------ deadlines and answers

    def _keep_alive(self, member: ClassicMember, now: float) -> None:
        member.deadline = deadline = now + member.session_timeout
        if deadline < self.wake:
            self.wake = deadline

    def _answer_join(self, member: ClassicMember, joined: Joined, out: list[Action]) -> None:
        if member.join_waiter is not None:
            out.append(Answer(member.join_waiter, joined))
            member.join_waiter = None
            self.awaiting_join -= 1

    def _joined(self, member: ClassicMember, with_members: bool) -> Joined:
        everybody: tuple[tuple[str, str | None, bytes], ...] = ()
        if with_members:
            everybody = tuple(
                (each.member_id, each.instance_id, each.metadata(self.protocol))
                for each in self.members.values()
            )
        return Joined(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            everybody,
        )

    def _synced(self, member: ClassicMember) -> Synced:
        return Synced(ErrorCode.none, member.assignment, self.protocol_type, self.protocol)
