"""What a group of the consumer protocol (KIP-848) knows: the part that lasts, and the deadlines of its
members.

Nothing is decided here. What lasts changes only by `apply`, with changes that are in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from millstream.broker.coordinators.groups.consumer_group_records import (
    CurrentValue,
    MemberValue,
    RegexValue,
)
from millstream.broker.coordinators.groups.consumer_types import (
    STABLE,
    UNREVOKED,
    Change,
    ConsumerMember,
    CurrentChanged,
    GroupChanged,
    MemberChanged,
    Partitions,
    RegexChanged,
    TargetChanged,
    TargetEpochChanged,
    Topics,
)
from millstream.broker.coordinators.groups.group import (
    NEVER,
    Committer,
    Group,
    GroupType,
    ListedGroup,
    OffsetExpiration,
)
from millstream.wire.consumer_protocol import CONSUMER
from millstream.wire.errors import ErrorCode, KafkaError

FIRST_EPOCH = 1  # of a new group and of its target, which is empty
NEW_MEMBER = MemberValue(None, None, "", "", (), "", -1, None, None)


class ConsumerLimits:
    """Settings that all groups share; changed in place when they change."""

    __slots__ = ("assignment_interval", "assignors", "max_size", "session_timeout")

    def __init__(
        self,
        session_timeout: int = 45_000,
        max_size: int = 0x7FFFFFFF,
        assignors: tuple[str, ...] = ("uniform", "range"),
        assignment_interval: int = 0,
    ) -> None:
        self.assignment_interval = assignment_interval
        self.session_timeout = session_timeout
        self.max_size = max_size
        self.assignors = assignors  # the first is the default


class Deadlines:
    __slots__ = ("join", "rebalance", "session", "sync")

    def __init__(self) -> None:
        self.session = NEVER
        self.rebalance = NEVER  # to give up partitions
        self.join = NEVER  # of members that speak the classic protocol: to join again
        self.sync = NEVER  # and to fetch their assignment

    def forget_classic(self) -> None:
        """The member speaks the other protocol now."""
        self.join = self.sync = NEVER

    def first(self) -> float:
        return min(self.session, self.rebalance, self.join, self.sync)


class ConsumerState(Group):
    group_type = GroupType.CONSUMER

    __slots__ = (
        "_deadlines",
        "_limits",
        "_owners",
        "_subscribed",
        "_topics",
        "_wall_ms",
        "assignment_interval",
        "epoch",
        "members",
        "regexes",
        "session_timeout",
        "stale",
        "static",
        "target_epoch",
        "targets",
        "topics_hash",
    )

    def __init__(
        self, group_id: str, limits: ConsumerLimits, topics: Topics, wall_ms: Callable[[], int]
    ) -> None:
        super().__init__(group_id)
        self.epoch = FIRST_EPOCH
        self.topics_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.stale = True  # topics may have changed since the last look
        self.session_timeout: int | None = None  # the group's own, where it has one
        self.assignment_interval: int | None = None  # likewise
        self._deadlines: dict[str, Deadlines] = {}
        self._owners: dict[UUID, dict[int, str]] = {}  # who holds a partition, or has yet to give it up
        self._subscribed: frozenset[str] | None = None  # kept until a member or an expression changes
        self._limits = limits
        self._topics = topics
        self._wall_ms = wall_ms

    # ------------------------------------------------------------------ questions

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def state_name(self) -> str:
        return self.state

    @property
    def is_empty(self) -> bool:
        return not self.members

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.state, GroupType.CONSUMER, CONSUMER)

    @property
    def assignor(self) -> str:
        return self._preferred(self.members.values())

    def subscribed(self) -> frozenset[str]:
        """Every topic that a member reads, by name or by expression."""
        if self._subscribed is None:
            self._subscribed = self._subscriptions(self.members.values(), self.regexes)
        return self._subscribed

    def patterns(self) -> set[str]:
        """The expressions by which members subscribe."""
        return {member.value.regex for member in self.members.values() if member.value.regex}

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, {})

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether something that the member is meant to have is still held by another."""
        return any(
            self._owners.get(topic, {}).get(index) not in (None, member.member_id)
            for topic, indexes in self.target(member.member_id).items()
            for index in indexes
        )

    def member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """KafkaError if there is no such member, or another holds its instance id."""
        if instance_id is None:
            member = self.members.get(member_id)
        else:
            holder = self.static.get(instance_id)
            if holder is not None and holder != member_id:
                raise KafkaError(
                    ErrorCode.fenced_instance_id,
                    f"Static member {member_id} with instance id {instance_id} was fenced "
                    f"by member {holder}.",
                )
            member = None if holder is None else self.members.get(holder)
        if member is None:
            raise KafkaError(
                ErrorCode.unknown_member_id,
                f"ConsumerMember {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def check_commit(
        self, committer: Committer, partitions: Iterable[tuple[UUID | None, int]], now: float
    ) -> ErrorCode:
        """A member whose epoch has just moved on may commit for partitions it has had since before, also for
        those that it is about to give up."""
        member_id, instance_id, epoch, version, transactional = committer
        if epoch < 0 and not self.members:
            return ErrorCode.none
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.none  # a producer need not say for which member it commits
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not transactional and not member.is_classic and version < 9:
            return ErrorCode.unsupported_version
        if epoch == member.epoch:
            return ErrorCode.none
        if epoch < member.epoch and all(
            topic is not None and member.held_since(topic, index, epoch) for topic, index in partitions
        ):
            return ErrorCode.none
        if transactional or member.is_classic:
            return ErrorCode.illegal_generation
        return ErrorCode.stale_member_epoch

    def topics_in_use(self) -> frozenset[str]:
        return self.subscribed()

    def offset_expiration(self) -> OffsetExpiration:
        return OffsetExpiration(topics_in_use=self.subscribed())

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.none
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        if epoch == member.epoch:
            return ErrorCode.none
        return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch

    def _subscriptions(
        self, members: Iterable[ConsumerMember], regexes: Mapping[str, RegexValue]
    ) -> frozenset[str]:
        topics: set[str] = set()
        for member in members:
            topics.update(self._reads(member, regexes))
        return frozenset(topics)

    @staticmethod
    def _reads(member: ConsumerMember, regexes: Mapping[str, RegexValue]) -> Iterable[str]:
        yield from member.value.topics
        if member.value.regex and member.value.regex in regexes:
            yield from regexes[member.value.regex].topics

    def _preferred(self, members: Iterable[ConsumerMember]) -> str:
        """What most members ask for, of those that ask."""
        votes = Counter(member.value.assignor for member in members if member.value.assignor)
        return votes.most_common(1)[0][0] if votes else self._limits.assignors[0]

    def topics_changed(self, names: Iterable[str]) -> None:
        """If it reads one of these topics, or any by expression, it looks at the topics again at the next
        heartbeat."""
        if self.regexes or not self.subscribed().isdisjoint(names):
            self.stale = True

    # ------------------------------------------------------------------ what lasts

    def apply(self, change: Change) -> None:
        """Take over a change that is in the log."""
        if isinstance(change, CurrentChanged):
            self._apply_current(change)
        elif isinstance(change, MemberChanged):
            self._apply_member(change)
        elif isinstance(change, TargetChanged):
            if change.partitions is None:
                self.targets.pop(change.member_id, None)
            else:
                self.targets[change.member_id] = change.partitions
        elif isinstance(change, GroupChanged):
            self.epoch, self.topics_hash = change.epoch or 0, change.topics_hash
        elif isinstance(change, TargetEpochChanged):
            self.target_epoch = change.epoch or 0
        elif isinstance(change, RegexChanged):
            self._subscribed = None
            if change.value is None:
                self.regexes.pop(change.regex, None)
            else:
                self.regexes[change.regex] = change.value

    def _apply_member(self, change: MemberChanged) -> None:
        self._subscribed = None
        known = self.members.get(change.member_id)
        if change.value is None:
            if known is not None:
                self._release(known)
                del self.members[change.member_id]
                if self.static.get(known.value.instance_id or "") == change.member_id:
                    del self.static[known.value.instance_id or ""]
            self._deadlines.pop(change.member_id, None)
            return
        self.members[change.member_id] = (known or ConsumerMember(change.member_id, change.value))._replace(
            value=change.value
        )
        if change.value.instance_id is not None:
            self.static[change.value.instance_id] = change.member_id

    def _apply_current(self, change: CurrentChanged) -> None:
        known = self.members.get(change.member_id)
        if known is None:
            if change.value is None:
                return
            known = ConsumerMember(change.member_id, NEW_MEMBER)
        self._release(known)
        value = change.value or CurrentValue(-1, -1, STABLE, {}, {})
        self.members[change.member_id] = known._replace(**value._asdict())
        for held in (value.assigned, value.revoking):
            for topic, indexes in held.items():
                self._owners.setdefault(topic, {}).update(dict.fromkeys(indexes, change.member_id))

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.revoking):
            for topic, indexes in held.items():
                owners = self._owners.get(topic, {})
                for index in indexes:
                    if owners.get(index) == member.member_id:
                        del owners[index]

    def loaded(self, now: float) -> None:
        """The log was read: everybody gets a fresh session."""
        for member in self.members.values():
            self.keep_alive(member.member_id, now)
            self._watch_revocation(member, now)

    # ------------------------------------------------------------------ deadlines

    def deadlines(self, member_id: str) -> Deadlines:
        found = self._deadlines.get(member_id)
        if found is None:
            found = self._deadlines[member_id] = Deadlines()
        return found

    def keep_alive(self, member_id: str, now: float, timeout: int | None = None) -> None:
        if timeout is None:
            member = self.members.get(member_id)
            if member is not None and member.value.classic is not None:
                timeout = member.value.classic.session_timeout
            else:
                timeout = self.session_timeout or self._limits.session_timeout
        self.deadlines(member_id).session = self.arm(now + timeout)

    def renew_sessions(self, now: float) -> None:
        for member_id in self.members:
            self.keep_alive(member_id, now)

    def _watch_revocation(self, member: ConsumerMember, now: float) -> None:
        deadlines = self.deadlines(member.member_id)
        if member.state == UNREVOKED and not member.is_classic:
            deadlines.rebalance = self.arm(now + member.value.rebalance_timeout)
        else:
            deadlines.rebalance = NEVER

    def expired(self, now: float) -> list[str]:
        """Members that ran out of time. Afterwards `wake` is exact, once they are removed."""
        late = []
        first = NEVER
        for member_id, deadlines in list(self._deadlines.items()):
            if member_id not in self.members:
                del self._deadlines[member_id]  # its first heartbeat never got into the log
                continue
            earliest = deadlines.first()
            if earliest <= now:
                late.append(member_id)
            else:
                first = min(first, earliest)
        self.wake = first
        return late
