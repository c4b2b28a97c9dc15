"""What a classic group is asked, what it answers, and what it wants done."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from millstream.broker.coordinators.groups.offset_records import GroupRecord
from millstream.wire.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), in order of preference


class JoinRequest(NamedTuple):
    """A JoinGroup request as the state machine sees it. Times are milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: int
    rebalance_timeout: int
    protocol_type: str
    protocols: Protocols
    must_know_id: bool = True  # version 4 and later: the first join only fetches a member id (KIP-394)
    may_skip_assignment: bool = True  # version 9 and later (KIP-814)


class Joined(NamedTuple):
    """The answer to a JoinGroup."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # for the leader: id, instance id, metadata
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A SyncGroup request as the state machine sees it."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None  # None: before version 5
    protocol: str | None = None
    assignments: Mapping[str, bytes] = {}  # from the leader, by member id


class Synced(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


class Leaving(NamedTuple):
    member_id: str
    instance_id: str | None


class ClassicGroupState(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Purpose(Enum):
    ASSIGNMENT = 1  # the leader's sync: the members get their assignments when it is written
    EMPTY = 2  # nobody is left
    STATIC = 3  # a static member came back under a new id, and nothing else changed (KIP-345)


class ClassicLimits:
    """Settings that all groups share; changed in place when they change."""

    __slots__ = ("initial_delay", "max_size")

    def __init__(self, initial_delay: int = 3000, max_size: int = 0x7FFFFFFF) -> None:
        self.initial_delay = initial_delay
        self.max_size = max_size


class Answer(NamedTuple):
    waiter: Any
    result: Joined | Synced


class Replaced(NamedTuple):
    """How to undo the return of a static member."""

    old_id: str
    new_id: str
    protocols: Protocols
    rebalance_timeout: int
    session_timeout: int
    may_skip_assignment: bool
    old_leader: str


class Save(NamedTuple):
    purpose: Purpose
    generation: int
    record: GroupRecord
    assignments: dict[str, bytes]
    replaced: Replaced | None = None


Action = Answer | Save
