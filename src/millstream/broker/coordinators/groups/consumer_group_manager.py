"""Serves groups of the consumer protocol (KIP-848): heartbeats, members that leave or die, classic members
among them, and the moves of a group from one protocol to the other.

The state machine decides and names its changes; here they are written in one batch, and only then applied. If
the log refuses them, nothing has happened.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from millstream.broker.coordinators.groups import classic_adapter, migration, offset_records
from millstream.broker.coordinators.groups.assignors import ASSIGNORS
from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_types import (
    Joined,
    JoinRequest,
    Leaving,
    Synced,
    SyncRequest,
)
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_state import ConsumerLimits
from millstream.broker.coordinators.groups.consumer_types import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    Change,
    HeartbeatRequest,
    HeartbeatResponse,
    row,
)
from millstream.broker.coordinators.groups.group import Group, Row, Waiting
from millstream.broker.coordinators.regex import ResolvedPatterns
from millstream.broker.coordinators.runtime import coordinator_error
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
    from millstream.broker.coordinators.groups.group_shard import GroupShard
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.groups")

Result = TypeVar("Result")


class ImageTopics:
    """The topics of the cluster's metadata image, as groups want to know them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._resolved = ResolvedPatterns()

    @property
    def version(self) -> int:
        return self._broker.image.version

    def matching(self, pattern: str) -> frozenset[str] | None:
        return self._resolved.get(pattern, self.version)

    async def resolve(self, pattern: str) -> None:
        """Look which topics the expression matches now, for `matching`."""
        image = self._broker.image
        await self._resolved.resolve(pattern, image.topics_by_name.keys(), image.version)

    def find(self, name: str) -> tuple[UUID, int] | None:
        image = self._broker.image
        topic = image.topic(name)
        return None if topic is None else (topic.topic_id, len(image.partitions[topic.topic_id]))

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._broker.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


class ConsumerGroupManager:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.limits = ConsumerLimits()
        self.topics = ImageTopics(coordinator.broker)
        self._coordinator = coordinator
        self._timer = coordinator.timer
        self._classic_groups = coordinator.classic_groups

    def settings_changed(self) -> None:
        settings = self._coordinator.broker.settings
        self.limits.session_timeout = settings.integer("group.consumer.session.timeout.ms")
        self.limits.assignment_interval = settings.integer("group.consumer.assignment.interval.ms")
        self.limits.max_size = settings.integer("group.consumer.max.size")
        offered = [name for name in settings.items("group.consumer.assignors") if name in ASSIGNORS]
        self.limits.assignors = tuple(offered) or ("uniform",)

    @property
    def _migration_policy(self) -> str:
        return self._coordinator.broker.settings.string("group.consumer.migration.policy")

    def new_group(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, self.limits, self.topics, self._coordinator.wall_ms)
        group.may_look = self._coordinator.broker.authorizer is None
        self.own_settings_changed(group)
        return group

    # ------------------------------------------------------------------ ConsumerGroupHeartbeat

    def consumer_heartbeat(
        self, shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest
    ) -> tuple[HeartbeatResponse, Waiting]:
        if request.epoch in (LEAVE, LEAVE_STATIC):
            return self._leave(shard, group, request)
        response, changes = group.heartbeat(request, self._timer.now())
        return response, self._commit(shard, group, changes)

    def unresolved_patterns(self, group: Group | None, request: HeartbeatRequest) -> list[str]:
        """Expressions that a heartbeat will ask about, and nobody has matched with today's topics."""
        patterns = {request.regex} if request.regex else set()
        if isinstance(group, ConsumerGroup) and (group.stale or patterns or request.topics is not None):
            patterns |= group.patterns()
        return [pattern for pattern in sorted(patterns) if self.topics.matching(pattern) is None]

    def create(
        self, shard: GroupShard, group_id: str, request: HeartbeatRequest
    ) -> tuple[HeartbeatResponse, Waiting]:
        """The first heartbeat of a new group. KafkaError if it is not the first of its member."""
        if request.epoch == JOIN:
            return self._first_heartbeat(shard, self.new_group(group_id), request, [])
        if shard.knows(group_id):
            raise _not_a_consumer_group(group_id)
        whose = "Group" if request.epoch in (LEAVE, LEAVE_STATIC) else "Consumer group"
        raise KafkaError(ErrorCode.group_id_not_found, f"{whose} {group_id} not found.")

    def upgrade(
        self, shard: GroupShard, classic: ClassicGroup, request: HeartbeatRequest
    ) -> tuple[HeartbeatResponse, Waiting]:
        """The first heartbeat in a classic group, which becomes one of the consumer protocol. KafkaError if
        it may not."""
        if request.epoch != JOIN:
            raise _not_a_consumer_group(classic.group_id)
        rows = classic.tombstones()
        if classic.is_empty:
            group = self.new_group(classic.group_id)
        else:
            migration.check_upgrade(classic, self._migration_policy, self.limits)
            group, changes = migration.to_consumer(
                classic, self.limits, self.topics, self._coordinator.wall_ms
            )
            self.own_settings_changed(group)
            rows += [row(classic.group_id, change) for change in changes]
            logger.info("group %r moves from the classic to the consumer protocol", classic.group_id)
        result = self._first_heartbeat(shard, group, request, rows)
        self._classic_groups.unload(classic, ErrorCode.rebalance_in_progress)
        return result

    def _first_heartbeat(
        self, shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest, rows: list[Row]
    ) -> tuple[HeartbeatResponse, Waiting]:
        """`rows` are written before what the heartbeat changes."""
        now = self._timer.now()
        response, changes = group.heartbeat(request, now)
        waiting = self._commit(shard, group, changes, rows)
        self.loaded(shard, group, now)
        return response, waiting

    def _leave(
        self, shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest
    ) -> tuple[HeartbeatResponse, Waiting]:
        member = group.member(request.member_id, request.instance_id)
        if request.epoch == LEAVE_STATIC:
            response, changes = group.leave_for_a_while(member)
            return response, self._commit(shard, group, changes)
        waiting = self._remove(shard, group, {member.member_id}, self._timer.now())
        return HeartbeatResponse(member.member_id, LEAVE), waiting

    # ------------------------------------------------------------------ classic members

    def join(
        self, shard: GroupShard, group: ConsumerGroup, request: JoinRequest
    ) -> Joined | asyncio.Future[Joined]:
        """A classic member joins. An empty group becomes a classic one; in any other it goes on with the
        others."""
        if group.is_empty:
            if request.member_id:
                return Joined(ErrorCode.unknown_member_id, request.member_id)
            shard.append(group.tombstones())
            return self._classic_groups.join_new_group(shard, group.group_id, request)
        if self._migration_policy.lower() == migration.DISABLED:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        now = self._timer.now()
        joined, changes, replaced = classic_adapter.join(group, request, self.topics, now)
        downgrades = (
            replaced is not None
            and not group.members[replaced].is_classic
            and self._may_downgrade(group, {replaced}, stays=1)
        )
        target_epoch = group.target_epoch
        waiting = self._commit(shard, group, changes)
        if downgrades:
            # It replaces the last member that spoke the consumer protocol. Where the subscriptions have
            # changed since the last target, all members have to join again.
            self._downgrade(shard, group, set(), now, rebalance=group.epoch > target_epoch)
        return _once_committed(waiting, joined, lambda error: Joined(error, ""))

    def sync(self, shard: GroupShard, group: ConsumerGroup, request: SyncRequest) -> Synced:
        synced = classic_adapter.sync(group, request, self.topics, self._timer.now())
        self._timer.schedule(shard, group)
        return synced

    def heartbeat(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> ErrorCode:
        error = classic_adapter.heartbeat(group, member_id, instance_id, generation, self._timer.now())
        self._timer.schedule(shard, group)
        return error

    def leave(
        self, shard: GroupShard, group: ConsumerGroup, leaving: list[Leaving]
    ) -> list[ErrorCode] | asyncio.Future[list[ErrorCode]]:
        errors, gone = classic_adapter.leave(group, leaving)
        waiting = self._remove(shard, group, set(gone), self._timer.now()) if gone else None
        return _once_committed(waiting, errors, lambda error: [error] * len(leaving))

    # ------------------------------------------------------------------ what else happens to a group

    def own_settings_changed(self, group: ConsumerGroup) -> None:
        setting = self._coordinator.group_setting
        group.session_timeout = setting(group.group_id, "consumer.session.timeout.ms")
        group.assignment_interval = setting(group.group_id, "consumer.assignment.interval.ms")

    def loaded(self, shard: GroupShard, group: ConsumerGroup, now: float) -> None:
        group.loaded(now)
        self._timer.schedule(shard, group)

    def expire(self, shard: GroupShard, group: ConsumerGroup, now: float) -> None:
        for member_id in group.expired(now):
            if shard.groups.get(group.group_id) is not group or member_id not in group.members:
                continue
            try:
                self._remove(shard, group, {member_id}, now)
                logger.info("member %s of group %r ran out of time", member_id, group.group_id)
            except KafkaError as error:
                group.keep_alive(member_id, now)  # and again later
                logger.warning(
                    "member %s of group %r cannot be removed: %s", member_id, group.group_id, error
                )
        if shard.groups.get(group.group_id) is group:
            try:
                self._commit(shard, group, group.assign_if_due(now))
            except KafkaError as error:
                logger.warning("group %r has no new assignment: %s", group.group_id, error)

    def unload(self, group: ConsumerGroup, error: ErrorCode) -> None:
        """No request waits in such a group: heartbeats are answered at once."""

    # ------------------------------------------------------------------ writing

    def _commit(
        self, shard: GroupShard, group: ConsumerGroup, changes: list[Change], before: Sequence[Row] = ()
    ) -> Waiting:
        """Write the changes, with the rows that come before them, and apply them: the next decision builds on
        them, but no answer goes out before they are committed, nor does one that changes nothing."""
        if not changes and not before:
            waiting = shard.settled()
        else:
            rows = [*before, *(row(group.group_id, change) for change in changes)]
            try:
                waiting = shard.append(rows)
            except KafkaError:
                group.stale = True  # look at the topics again next time
                raise
            for change in changes:
                group.apply(change)
            shard.groups[group.group_id] = group
        self._timer.schedule(shard, group)
        return waiting

    def _remove(self, shard: GroupShard, group: ConsumerGroup, member_ids: Set[str], now: float) -> Waiting:
        """Members are gone. If they were the last of their protocol, the group becomes a classic one."""
        if self._may_downgrade(group, member_ids):
            return self._downgrade(shard, group, member_ids, now, rebalance=True)
        return self._commit(shard, group, group.remove(member_ids))

    def _may_downgrade(self, group: ConsumerGroup, leaving: Set[str], stays: int = 0) -> bool:
        return migration.may_downgrade(
            group, leaving, stays, self._migration_policy, self._classic_groups.limits
        )

    def _downgrade(
        self, shard: GroupShard, group: ConsumerGroup, leaving: Set[str], now: float, rebalance: bool
    ) -> Waiting:
        """The group without those who leave becomes a classic one; with `rebalance`, its members have to join
        again."""
        limits, wall_ms = self._classic_groups.limits, self._coordinator.wall_ms
        classic = migration.to_classic(group, leaving, limits, self.topics, wall_ms)
        assignments = {member.member_id: member.assignment for member in classic.members.values()}
        value = offset_records.group_value(classic.record(assignments))
        waiting = shard.append([*group.tombstones(), (offset_records.group_key(group.group_id), value)])
        shard.groups[group.group_id] = classic
        logger.info("group %r moves from the consumer to the classic protocol", group.group_id)
        self._classic_groups.loaded(shard, classic, now)
        if rebalance:
            self._classic_groups.act(shard, classic, classic.begin_rebalance(now))
        return waiting


def _not_a_consumer_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")


def _once_committed(
    waiting: Waiting, result: Result, refused: Callable[[ErrorCode], Result]
) -> Result | asyncio.Future[Result]:
    """The result, when the log has committed what it depends on."""

    async def later(committed: asyncio.Future[None]) -> Result:
        try:
            await committed
        except KafkaError as error:
            return refused(coordinator_error(error))
        return result

    return result if waiting is None else asyncio.get_running_loop().create_task(later(waiting))


def new_member_id() -> str:
    return str(uuid.uuid4())
