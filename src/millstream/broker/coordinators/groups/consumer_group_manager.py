"""What the coordinator does for groups of the server-side protocol: heartbeats, members that leave or die, classic members
among them, and groups that change sides.

The state machine decides and names its changes; here they are written in one batch, and only then applied. If the log
refuses them, nothing has happened.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.broker.coordinators.groups import classic_adapter, migration, offset_records
from millstream.broker.coordinators.groups.assignors import ASSIGNORS
from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_types import Joined, JoinRequest, Leaving, State, Synced
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_state import ConsumerLimits
from millstream.broker.coordinators.groups.consumer_types import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    Change,
    HeartbeatAnswer,
    HeartbeatRequest,
    row,
)
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
    from millstream.broker.coordinators.groups.group_shard import GroupShard, Row
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.groups")

Waiting = asyncio.Future[None] | None


class ImageTopics:
    """The cluster's topics, as groups want to know them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def version(self) -> int:
        return self._broker.image.version

    def names(self) -> Iterable[str]:
        return self._broker.image.topics_by_name.keys()

    def find(self, name: str) -> tuple[UUID, int] | None:
        image = self._broker.image
        topic = image.topic(name)
        return None if topic is None else (topic.topic_id, len(image.partitions[topic.topic_id]))

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._broker.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


class ConsumerSide:
    def __init__(self, coordinator: GroupCoordinator, wall_ms: Callable[[], int]) -> None:
        self.coordinator = coordinator
        self.limits = ConsumerLimits()
        self.topics = ImageTopics(coordinator.broker)
        self._wall_ms = wall_ms

    def settings_changed(self) -> None:
        settings = self.coordinator.broker.settings
        self.limits.session_timeout = settings.integer("group.consumer.session.timeout.ms")
        self.limits.assignment_interval = settings.integer("group.consumer.assignment.interval.ms")
        self.limits.max_size = settings.integer("group.consumer.max.size")
        offered = [name for name in settings.items("group.consumer.assignors") if name in ASSIGNORS]
        self.limits.assignors = tuple(offered) or ("uniform",)

    @property
    def _policy(self) -> str:
        return self.coordinator.broker.settings.string("group.consumer.migration.policy")

    def new_group(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, self.limits, self.topics, self._wall_ms)
        self.give_own_settings(group)
        return group

    def give_own_settings(self, group: ConsumerGroup) -> None:
        own = self.coordinator.group_setting
        group.session_timeout = own(group.group_id, "consumer.session.timeout.ms")
        group.assignment_interval = own(group.group_id, "consumer.assignment.interval.ms")

    def new_member_id(self) -> str:
        return str(uuid.uuid4())

    # ------------------------------------------------------------------ ConsumerGroupHeartbeat

    def heartbeat(
        self, shard: GroupShard, group_id: str, request: HeartbeatRequest
    ) -> tuple[HeartbeatAnswer, Waiting]:
        """The answer, to be given when the log has what was written. KafkaError if there is none."""
        now = self.coordinator.now()
        if request.epoch in (LEAVE, LEAVE_STATIC):
            return self._leave(shard, group_id, request, now)
        known = shard.groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            answer, changes = known.heartbeat(request, now)
            return answer, self._commit(shard, known, changes)
        group, rows = self._take_over(shard, group_id, known, request)
        answer, changes = group.heartbeat(request, now)
        waiting = self._commit(shard, group, changes, rows)
        if known is not None:
            self.coordinator.end(known, ErrorCode.rebalance_in_progress)
        group.loaded(now)
        self.coordinator.set_alarm(shard, group)
        return answer, waiting

    def _take_over(
        self, shard: GroupShard, group_id: str, known: ClassicGroup | None, request: HeartbeatRequest
    ) -> tuple[ConsumerGroup, list[Row]]:
        """A new group, or the one that a classic group becomes, and the rows that write it."""
        if request.epoch != JOIN:
            text = (
                f"Consumer group {group_id} not found."
                if known is None and not shard.knows(group_id)
                else f"Group {group_id} is not a consumer group."
            )
            raise KafkaError(ErrorCode.group_id_not_found, text)
        rows: list[Row] = []
        if known is None:
            return self.new_group(group_id), rows
        rows.append((offset_records.group_key(group_id), None))
        if known.state is State.EMPTY:
            return self.new_group(group_id), rows
        migration.check_upgrade(known, self._policy, self.limits)
        group, changes = migration.to_consumer(known, self.limits, self.topics, self._wall_ms)
        self.give_own_settings(group)
        rows += [row(group_id, change) for change in changes]
        logger.info("group %r moves from the classic to the consumer protocol", group_id)
        return group, rows

    def _leave(
        self, shard: GroupShard, group_id: str, request: HeartbeatRequest, now: float
    ) -> tuple[HeartbeatAnswer, Waiting]:
        group = shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            text = (
                f"Group {group_id} not found."
                if group is None and not shard.knows(group_id)
                else f"Group {group_id} is not a consumer group."
            )
            raise KafkaError(ErrorCode.group_id_not_found, text)
        member = group.member(request.member_id, request.instance_id)
        if request.epoch == LEAVE_STATIC:
            answer, changes = group.leave_for_a_while(member)
            return answer, self._commit(shard, group, changes)
        answer = HeartbeatAnswer(member.member_id, LEAVE)
        return answer, self._remove(shard, group, {member.member_id}, now)

    def _remove(self, shard: GroupShard, group: ConsumerGroup, member_ids: Set[str], now: float) -> Waiting:
        """Members are gone. If they were the last of their protocol, the group becomes a classic one."""
        if not migration.may_downgrade(group, member_ids, 0, self._policy, self.coordinator.limits):
            return self._commit(shard, group, group.remove(member_ids))
        classic = migration.to_classic(group, member_ids, self.coordinator.limits, self.topics, self._wall_ms)
        waiting = self._become_classic(shard, group, classic, group.tombstones())
        self.coordinator.act(shard, classic, classic.loaded(now))
        self.coordinator.act(shard, classic, classic.begin_rebalance(now))
        return waiting

    def _become_classic(
        self, shard: GroupShard, group: ConsumerGroup, classic: ClassicGroup, tombstones: list[Change]
    ) -> Waiting:
        rows: list[Row] = [row(group.group_id, change) for change in tombstones]
        parts = {member.member_id: member.assignment for member in classic.members.values()}
        rows.append(
            (offset_records.group_key(group.group_id), offset_records.group_value(classic.record(parts)))
        )
        waiting = shard.append(rows, self._wall_ms())
        shard.groups[group.group_id] = classic
        logger.info("group %r moves from the consumer to the classic protocol", group.group_id)
        return waiting

    def _commit(
        self, shard: GroupShard, group: ConsumerGroup, changes: list[Change], before: list[Row] | None = None
    ) -> Waiting:
        """Write the changes and apply them."""
        waiting: Waiting = None
        if changes or before:
            rows = [*(before or ()), *(row(group.group_id, change) for change in changes)]
            try:
                waiting = shard.append(rows, self._wall_ms())
            except KafkaError:
                group.stale = True  # look at the topics again next time
                raise
            for change in changes:
                group.apply(change)
            shard.groups[group.group_id] = group
        self.coordinator.set_alarm(shard, group)
        return waiting

    # ------------------------------------------------------------------ classic members

    def join(self, shard: GroupShard, group: ConsumerGroup, request: JoinRequest) -> tuple[Joined, Waiting]:
        now = self.coordinator.now()
        if self._policy.lower() == migration.DISABLED:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        joined, changes, replaced = classic_adapter.join(group, request, self.topics, now)
        downgrades = (
            replaced is not None
            and not group.members[replaced].is_classic
            and migration.may_downgrade(group, {replaced}, 1, self._policy, self.coordinator.limits)
        )
        before = group.target_epoch
        waiting = self._commit(shard, group, changes)
        if downgrades:
            # It takes the place of the last member that spoke the other protocol.
            classic = migration.to_classic(group, set(), self.coordinator.limits, self.topics, self._wall_ms)
            self._become_classic(shard, group, classic, group.tombstones())
            self.coordinator.act(shard, classic, classic.loaded(now))
            if group.epoch > before:
                # Who reads what has changed since the last target, so all of them have to join again.
                self.coordinator.act(shard, classic, classic.begin_rebalance(now))
        return joined, waiting

    def sync(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
    ) -> Synced:
        now = self.coordinator.now()
        synced = classic_adapter.sync(
            group, member_id, instance_id, generation, protocol_type, protocol, self.topics, now
        )
        self.coordinator.set_alarm(shard, group)
        return synced

    def classic_heartbeat(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> ErrorCode:
        error = classic_adapter.heartbeat(group, member_id, instance_id, generation, self.coordinator.now())
        self.coordinator.set_alarm(shard, group)
        return error

    def leave(
        self, shard: GroupShard, group: ConsumerGroup, leaving: list[Leaving]
    ) -> tuple[list[ErrorCode], Waiting]:
        errors, gone = classic_adapter.leave(group, leaving)
        if not gone:
            return errors, None
        return errors, self._remove(shard, group, set(gone), self.coordinator.now())

    # ------------------------------------------------------------------ the clock and the topics

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

    def topics_changed(self, names: set[str]) -> None:
        """Groups that read one of these topics, or any by expression, look at them again at the next heartbeat."""
        for shard in self.coordinator.runtime.ready_shards():
            for group in shard.groups.values():
                if isinstance(group, ConsumerGroup) and (
                    group.regexes or not names.isdisjoint(group.subscribed())
                ):
                    group.stale = True
