"""A classic group with its clock and its log in the test's hands."""

import itertools
from typing import Any

from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_types import (
    Action,
    Answer,
    ClassicLimits,
    Joined,
    JoinRequest,
    Leaving,
    Save,
    Synced,
    SyncRequest,
)
from millstream.broker.coordinators.groups.group import Committer
from millstream.wire.errors import ErrorCode

RANGE = (("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),)


class World:
    """Does what the coordinator does: keeps answers and saves, reports saves as done unless told to hold or
    fail them."""

    def __init__(self, initial_delay: int = 0, max_size: int = 1000) -> None:
        self.now = 0.0
        self.limits = ClassicLimits(initial_delay, max_size)
        ids = (f"id{number}" for number in itertools.count(1))
        self.group = ClassicGroup("g", self.limits, lambda: int(self.now), lambda: next(ids))
        self.answers: dict[int, Any] = {}
        self.saves: list[Save] = []
        self.held: list[Save] = []
        self.hold = False
        self.fail = ErrorCode.none
        self._waiters = itertools.count(1)

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Answer):
                assert action.waiter not in self.answers, "answered twice"
                self.answers[action.waiter] = action.result
            else:
                self.saves.append(action)
                if self.hold:
                    self.held.append(action)
                else:
                    self.act(self.group.saved(action, self.fail, self.now))

    def let_go(self, error: ErrorCode = ErrorCode.none) -> None:
        held, self.held = self.held, []
        for save in held:
            self.act(self.group.saved(save, error, self.now))

    def send_join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Any = RANGE,
        protocol_type: str = "consumer",
        session: int = 10_000,
        rebalance: int = 30_000,
        known: bool = False,
        skip: bool = True,
    ) -> int:
        waiter = next(self._waiters)
        request = JoinRequest(
            member_id, instance, "client", "/h", session, rebalance, protocol_type, protocols, known, skip
        )
        self.act(self.group.join(request, waiter, self.now))
        return waiter

    def send_sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        waiter = next(self._waiters)
        generation = self.group.generation if generation is None else generation
        self.act(
            self.group.sync(
                SyncRequest(member_id, instance, generation, protocol_type, protocol, assignments or {}),
                waiter,
                self.now,
            )
        )
        return waiter

    def joined(self, waiter: int) -> Joined:
        result = self.answers[waiter]
        assert isinstance(result, Joined)
        return result

    def synced(self, waiter: int) -> Synced:
        result = self.answers[waiter]
        assert isinstance(result, Synced)
        return result

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance, generation, self.now)

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        errors, actions = self.group.leave([Leaving(*each) for each in members], self.now)
        self.act(actions)
        return errors

    def commit(
        self, member_id: str = "", generation: int = -1, instance: str | None = None, txn: bool = False
    ) -> ErrorCode:
        return self.group.check_commit(Committer(member_id, instance, generation, 9, txn), (), self.now)

    def pass_time(self, milliseconds: float) -> None:
        """Let the clock run, waking the group whenever it asks for it."""
        end = self.now + milliseconds
        while self.group.wake <= end:
            self.now = max(self.now, self.group.wake)
            self.act(self.group.expire(self.now))
        self.now = end

    def stable(self, count: int = 1, **options: Any) -> list[str]:
        """A stable group of `count` members; their ids, the leader's first."""
        waiters = [self.send_join(**options) for _ in range(count)]
        self.pass_time(self.limits.initial_delay)
        ids = [self.joined(waiter).member_id for waiter in waiters]
        ids.sort(key=lambda each: each != self.group.leader)
        self.settle(ids)
        return ids

    def settle(self, ids: list[str]) -> None:
        """Everybody syncs, the leader last."""
        for member_id in reversed(ids):
            self.send_sync(member_id, assignments={each: each.encode() for each in ids})
