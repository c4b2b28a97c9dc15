"""Wakes groups at their deadlines: one heap for all groups, one entry for each, one timer of the event loop.

A heartbeat only pushes a member's deadline forward and leaves the heap alone. The group is woken when the
earliest deadline it knew has come, finds out which members are late, and is scheduled again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.coordinators.groups.group import NEVER, Group

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups.group_shard import GroupShard


class GroupTimer:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, expire: Callable[[GroupShard, Group, float], None]
    ) -> None:
        self._loop = loop
        self._expire = expire
        self._deadlines: list[tuple[float, int, GroupShard, Group]] = []
        self._counter = itertools.count()  # so that entries of the same time are never compared any further
        self._handle: asyncio.TimerHandle | None = None
        self._next = NEVER

    def now(self) -> float:
        return self._loop.time() * 1000

    def schedule(self, shard: GroupShard, group: Group) -> None:
        """See that the group is woken at its `wake`."""
        if group.wake < group.scheduled:
            group.scheduled = group.wake
            heapq.heappush(self._deadlines, (group.wake, next(self._counter), shard, group))
            self._set()

    def _set(self) -> None:
        if self._deadlines and self._deadlines[0][0] < self._next:
            if self._handle is not None:
                self._handle.cancel()
            self._next = self._deadlines[0][0]
            self._handle = self._loop.call_at(self._next / 1000, self._fire)

    def _fire(self) -> None:
        now = max(self.now(), self._next)  # timers may come a moment early
        self._handle = None
        self._next = NEVER
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, shard, group = heapq.heappop(self._deadlines)
            if group.scheduled == deadline and shard.ready and shard.groups.get(group.group_id) is group:
                group.scheduled = NEVER
                self._expire(shard, group, now)
        self._set()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
