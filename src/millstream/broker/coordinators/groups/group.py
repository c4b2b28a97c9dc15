"""What the coordinator asks of a group, whichever protocol its members speak.

`ClassicGroup` (JoinGroup, SyncGroup) and `ConsumerGroup` (ConsumerGroupHeartbeat, KIP-848) are pure state
machines and answer these questions. A `GroupManager` for each protocol carries out what they decide: the
coordinator looks up the manager by the group's type and never looks at the type again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar
from uuid import UUID

from millstream.wire.errors import ErrorCode

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups.classic_types import (
        Joined,
        JoinRequest,
        Leaving,
        Synced,
        SyncRequest,
    )
    from millstream.broker.coordinators.groups.consumer_types import HeartbeatRequest, HeartbeatResponse
    from millstream.broker.coordinators.groups.group_shard import GroupShard

NEVER = float("inf")

Row = tuple[bytes, bytes | None]  # key and value of a record
Waiting = asyncio.Future[None] | None  # None: the log has committed already


class GroupType(Enum):
    """The names are those of ListGroups (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Committer(NamedTuple):
    """Who commits offsets, and by which version of OffsetCommit or TxnOffsetCommit."""

    member_id: str
    instance_id: str | None
    epoch: int  # or generation; negative: not as a member
    version: int
    transactional: bool = False


class OffsetExpiration(NamedTuple):
    """Which offsets of a group may expire (KIP-211)."""

    since_ms: int | None = None  # when the group became empty; None: counted from each commit
    topics_in_use: frozenset[str] = frozenset()  # these never expire


class ListedGroup(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    state: str
    group_type: GroupType
    protocol_type: str


class Group(ABC):
    """A group of either protocol. Times are milliseconds of a clock that never goes back."""

    __slots__ = ("group_id", "scheduled", "wake")

    group_type: ClassVar[GroupType]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.wake = NEVER  # no deadline of the group is before this
        self.scheduled = NEVER  # set by GroupTimer: when it will wake the group

    def arm(self, deadline: float) -> float:
        if deadline < self.wake:
            self.wake = deadline
        return deadline

    # ------------------------------------------------------------------ state

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As in ListGroups and in the metrics."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    def is_unused(self) -> bool:
        """Whether nobody is in it or about to join, so that it may be forgotten."""
        return self.is_empty

    @abstractmethod
    def renew_sessions(self, now: float) -> None:
        """Every member has its whole session before it again."""

    @abstractmethod
    def listed(self) -> ListedGroup: ...

    @abstractmethod
    def tombstones(self) -> list[Row]:
        """What removes the group from the log."""

    # ------------------------------------------------------------------ offsets

    @abstractmethod
    def check_commit(
        self, committer: Committer, partitions: Iterable[tuple[UUID | None, int]], now: float
    ) -> ErrorCode:
        """May this member commit offsets of these partitions?"""

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """May this member fetch offsets (OffsetFetch 9, KIP-848)?"""

    @abstractmethod
    def topics_in_use(self) -> frozenset[str] | None:
        """Topics whose offsets must not be deleted (KIP-496); None for all. KafkaError if that cannot be
        known."""

    @abstractmethod
    def offset_expiration(self) -> OffsetExpiration | None:
        """None: nothing expires now."""

    # ------------------------------------------------------------------ the cluster

    @abstractmethod
    def topics_changed(self, names: Iterable[str]) -> None:
        """These topics were created, deleted or got more partitions."""


GroupT_contra = TypeVar("GroupT_contra", bound=Group, contravariant=True)


class GroupManager(Protocol[GroupT_contra]):
    """Serves the groups of one protocol. A future stands for an answer that waits for the log or for other
    members."""

    def join(
        self, shard: GroupShard, group: GroupT_contra, request: JoinRequest
    ) -> Joined | asyncio.Future[Joined]: ...

    def sync(
        self, shard: GroupShard, group: GroupT_contra, request: SyncRequest
    ) -> Synced | asyncio.Future[Synced]: ...

    def heartbeat(
        self,
        shard: GroupShard,
        group: GroupT_contra,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> ErrorCode: ...

    def leave(
        self, shard: GroupShard, group: GroupT_contra, leaving: list[Leaving]
    ) -> list[ErrorCode] | asyncio.Future[list[ErrorCode]]: ...

    def consumer_heartbeat(
        self, shard: GroupShard, group: GroupT_contra, request: HeartbeatRequest
    ) -> tuple[HeartbeatResponse, Waiting]: ...

    def own_settings_changed(self, group: GroupT_contra) -> None:
        """Settings of this one group (KIP-848, IncrementalAlterConfigs of the resource GROUP)."""

    def loaded(self, shard: GroupShard, group: GroupT_contra, now: float) -> None:
        """The group was read from the log: its members get fresh sessions."""

    def expire(self, shard: GroupShard, group: GroupT_contra, now: float) -> None:
        """A deadline of the group has come."""

    def unload(self, group: GroupT_contra, error: ErrorCode) -> None:
        """The group is gone, or no longer coordinated here: waiting requests get this error."""
