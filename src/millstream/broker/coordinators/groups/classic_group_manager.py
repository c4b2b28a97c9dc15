"""Serves classic groups: carries out what their state machine decides, as answers to waiting members and
records."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from millstream.broker.coordinators.groups import offset_records
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
from millstream.broker.coordinators.groups.consumer_types import HeartbeatRequest, HeartbeatResponse
from millstream.broker.coordinators.groups.group import Waiting
from millstream.broker.coordinators.runtime import coordinator_error
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
    from millstream.broker.coordinators.groups.group_shard import GroupShard

logger = logging.getLogger("millstream.groups")


class ClassicGroupManager:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.limits = ClassicLimits()
        self._coordinator = coordinator
        self._timer = coordinator.timer
        self._loop = coordinator.loop

    def settings_changed(self) -> None:
        settings = self._coordinator.broker.settings
        self.limits.initial_delay = settings.integer("group.initial.rebalance.delay.ms")
        self.limits.max_size = settings.integer("group.max.size")

    def join_new_group(
        self, shard: GroupShard, group_id: str, request: JoinRequest
    ) -> Joined | asyncio.Future[Joined]:
        """The first member of a group that is not there, or that was an empty one of the consumer
        protocol."""
        group = shard.groups[group_id] = ClassicGroup(group_id, self.limits, self._coordinator.wall_ms)
        return self.join(shard, group, request)

    # ------------------------------------------------------------------ requests

    def join(
        self, shard: GroupShard, group: ClassicGroup, request: JoinRequest
    ) -> Joined | asyncio.Future[Joined]:
        waiter: asyncio.Future[Joined] = self._loop.create_future()
        self.act(shard, group, group.join(request, waiter, self._timer.now()))
        return waiter.result() if waiter.done() else waiter

    def sync(
        self, shard: GroupShard, group: ClassicGroup, request: SyncRequest
    ) -> Synced | asyncio.Future[Synced]:
        waiter: asyncio.Future[Synced] = self._loop.create_future()
        self.act(shard, group, group.sync(request, waiter, self._timer.now()))
        return waiter.result() if waiter.done() else waiter

    def heartbeat(
        self, shard: GroupShard, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        return group.heartbeat(member_id, instance_id, generation, self._timer.now())

    def leave(self, shard: GroupShard, group: ClassicGroup, leaving: list[Leaving]) -> list[ErrorCode]:
        errors, actions = group.leave(leaving, self._timer.now())
        self.act(shard, group, actions)
        return errors

    def consumer_heartbeat(
        self, shard: GroupShard, group: ClassicGroup, request: HeartbeatRequest
    ) -> tuple[HeartbeatResponse, Waiting]:
        """The first member that speaks the consumer protocol: the group moves to it, if it may."""
        return self._coordinator.consumer_groups.upgrade(shard, group, request)

    # ------------------------------------------------------------------ what else happens to a group

    def own_settings_changed(self, group: ClassicGroup) -> None:
        """Classic groups have none."""

    def loaded(self, shard: GroupShard, group: ClassicGroup, now: float) -> None:
        self.act(shard, group, group.loaded(now))

    def expire(self, shard: GroupShard, group: ClassicGroup, now: float) -> None:
        self.act(shard, group, group.expire(now))

    def unload(self, group: ClassicGroup, error: ErrorCode) -> None:
        for action in group.unload(error):
            _answer(action)

    # ------------------------------------------------------------------ acting

    def act(self, shard: GroupShard, group: ClassicGroup, actions: list[Action]) -> None:
        """Carry out what a group decided, and schedule its next deadline."""
        for action in actions:
            if isinstance(action, Save):
                self._save(shard, group, action)
            else:
                _answer(action)
        self._timer.schedule(shard, group)

    def _save(self, shard: GroupShard, group: ClassicGroup, save: Save) -> None:
        def written(problem: BaseException | None) -> None:
            error = ErrorCode.none if problem is None else coordinator_error(problem)
            if error is not ErrorCode.none:
                logger.warning("group %r could not be written: %s", group.group_id, error.name)
            self.act(shard, group, group.saved(save, error, self._timer.now()))

        row = (offset_records.group_key(group.group_id), offset_records.group_value(save.record))
        try:
            waiting = shard.append([row])
        except KafkaError as problem:
            written(problem)
            return
        if waiting is None:
            written(None)
        else:
            waiting.add_done_callback(lambda done: written(done.exception()))


def _answer(action: Action) -> None:
    if isinstance(action, Answer) and not action.waiter.done():
        action.waiter.set_result(action.result)
