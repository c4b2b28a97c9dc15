"""The group coordinator: the one way to groups and their offsets, for API modules, housekeeping and metrics.

A request names a group; the coordinator finds the group's shard, and the manager of the protocol that the
group speaks (classic, or the consumer protocol of KIP-848) does the rest. Which protocol that is, and when a
group moves from one to the other, nobody outside of this package needs to know.

Offsets change in memory when the log has committed them, so nobody reads an offset that a crash could take
back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_group_manager import ClassicGroupManager
from millstream.broker.coordinators.groups.classic_types import (
    Joined,
    JoinRequest,
    Leaving,
    Synced,
    SyncRequest,
)
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_group_manager import ConsumerGroupManager
from millstream.broker.coordinators.groups.consumer_types import HeartbeatRequest, HeartbeatResponse
from millstream.broker.coordinators.groups.group import (
    Committer,
    Group,
    GroupManager,
    GroupType,
    ListedGroup,
    Waiting,
)
from millstream.broker.coordinators.groups.group_settings import within_bounds
from millstream.broker.coordinators.groups.group_shard import Commits, GroupShard
from millstream.broker.coordinators.groups.group_timer import GroupTimer
from millstream.broker.coordinators.groups.offsets import OffsetTable
from millstream.broker.coordinators.runtime import (
    SLICE_SECONDS,
    CoordinatorRuntime,
    committed_within,
    coordinator_error,
    wall_ms,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker
    from millstream.cluster.image import Delta

OFFSETS_TOPIC = "__consumer_offsets"


class GroupCoordinator:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.loop = loop
        self.timer = GroupTimer(loop, self._expire)
        self.classic_groups = ClassicGroupManager(self)
        self.consumer_groups = ConsumerGroupManager(self)
        self.settings_changed()
        self.runtime = CoordinatorRuntime(
            broker,
            OFFSETS_TOPIC,
            lambda partition: GroupShard(self, partition),
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(broker.settings.integer("offsets.topic.segment.bytes")),
            },
        )
        self.unreadable_records = 0

    def wall_ms(self) -> int:
        return wall_ms()

    def manager(self, group: Group) -> GroupManager[Any]:
        return self.classic_groups if group.group_type is GroupType.CLASSIC else self.consumer_groups

    def _expire(self, shard: GroupShard, group: Group, now: float) -> None:
        """A deadline of the group has come. A broker that may be deposed (it was paused, or the metadata
        store does not answer) expels nobody on the strength of an old view."""
        if not self.broker.controller.holds_lease():
            group.renew_sessions(now)
        self.manager(group).expire(shard, group, now)

    def loaded(self, shard: GroupShard) -> None:
        """A shard was read from the log: its groups go on."""
        now = self.timer.now()
        for group in list(shard.groups.values()):
            self.manager(group).loaded(shard, group, now)

    def close(self) -> None:
        self.timer.close()

    # ------------------------------------------------------------------ membership

    def join(self, group_id: str, request: JoinRequest) -> Joined | asyncio.Future[Joined]:
        settings = self.broker.settings
        if not group_id:
            return Joined(ErrorCode.invalid_group_id, request.member_id)
        shortest = settings.integer("group.min.session.timeout.ms")
        longest = settings.integer("group.max.session.timeout.ms")
        if not shortest <= request.session_timeout <= longest:
            return Joined(ErrorCode.invalid_session_timeout, request.member_id)
        try:
            shard = self.runtime.shard(group_id)
            group = shard.groups.get(group_id)
            if group is not None:
                return self.manager(group).join(shard, group, request)
        except KafkaError as error:
            return Joined(coordinator_error(error), "")
        if request.member_id and not shard.knows(group_id):
            return Joined(ErrorCode.unknown_member_id, request.member_id)
        return self.classic_groups.join_new_group(shard, group_id, request)

    def sync(self, group_id: str, request: SyncRequest) -> Synced | asyncio.Future[Synced]:
        """KafkaError if the member may not sync."""
        shard, group = self._joined_group(group_id)
        return self.manager(group).sync(shard, group, request)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        try:
            shard, group = self._joined_group(group_id)
            return self.manager(group).heartbeat(shard, group, member_id, instance_id, generation)
        except KafkaError as error:
            # While groups are loaded, nobody can tell whether the member lives: it does.
            loading = error.code is ErrorCode.coordinator_load_in_progress
            return ErrorCode.none if loading else error.code

    def leave(
        self, group_id: str, leaving: list[Leaving]
    ) -> list[ErrorCode] | asyncio.Future[list[ErrorCode]]:
        """An error code for each member. KafkaError if none of them can leave."""
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(leaving)
        return self.manager(group).leave(shard, group, leaving)

    def unresolved_patterns(self, group_id: str, request: HeartbeatRequest) -> list[str]:
        """Expressions to `resolve` before this heartbeat; KafkaError if it is not for this coordinator."""
        group = self.runtime.shard(group_id).groups.get(group_id)
        return self.consumer_groups.unresolved_patterns(group, request)

    async def resolve(self, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            await self.consumer_groups.topics.resolve(pattern)

    def consumer_heartbeat(
        self, group_id: str, request: HeartbeatRequest
    ) -> tuple[HeartbeatResponse, Waiting]:
        """ConsumerGroupHeartbeat: the answer, to be given when the log has what was written. KafkaError if
        refused."""
        shard = self.runtime.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return self.consumer_groups.create(shard, group_id, request)
        return self.manager(group).consumer_heartbeat(shard, group, request)

    def _shard(self, group_id: str) -> GroupShard:
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        return self.runtime.shard(group_id)

    def _joined_group(self, group_id: str) -> tuple[GroupShard, Group]:
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return shard, group

    # ------------------------------------------------------------------ administration

    def list_groups(self) -> Iterator[ListedGroup]:
        """Every group coordinated here; KafkaError while some are still being loaded. Groups may come and go
        meanwhile."""
        if self.runtime.is_loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        for shard in self.runtime.ready_shards():
            for group_id in shard.group_ids():
                if shard.knows(group_id):
                    yield shard.listed(group_id)

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """For DescribeGroups, see `GroupShard.classic_group`."""
        return self.runtime.shard(group_id).classic_group(group_id)

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """For ConsumerGroupDescribe, see `GroupShard.consumer_group`."""
        return self._shard(group_id).consumer_group(group_id)

    def delete_group(self, group_id: str) -> Waiting:
        return self.runtime.shard(group_id).delete_group(group_id)

    # ------------------------------------------------------------------ offsets

    def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        topic_ids: Mapping[str, UUID | None],
        commits: Commits,
    ) -> Waiting:
        """KafkaError if this member may not commit to these partitions, or the log refuses. Without commits
        nothing is written, but the member is checked all the same."""
        shard = self.runtime.shard(group_id)
        self._check_commit(shard, group_id, committer, topic_ids, commits)
        return shard.commit(group_id, commits) if commits else None

    async def commit_offsets_in_transaction(
        self,
        group_id: str,
        transactional_id: str,
        producer: tuple[int, int],
        committer: Committer,
        topic_ids: Mapping[str, UUID | None],
        commits: Commits,
    ) -> None:
        """The offsets become the group's when the producer's (id, epoch) transaction commits. KafkaError if
        refused."""
        shard = self._shard(group_id)
        while True:
            verdict = self.broker.transactions.verify_offsets(
                transactional_id, *producer, group_id, committer.version
            )
            # If it has to wait, ask again afterwards: meanwhile the transaction may have been ended.
            error = verdict if isinstance(verdict, ErrorCode) else await verdict
            if error is not ErrorCode.none:
                raise KafkaError(error)
            if isinstance(verdict, ErrorCode):
                break
        self._check_commit(shard, group_id, committer, topic_ids, commits)
        if commits:
            waiting = shard.commit(group_id, commits, producer)
            if waiting is not None:
                await committed_within(waiting, self.broker.settings.integer("offsets.commit.timeout.ms"))

    def _check_commit(
        self,
        shard: GroupShard,
        group_id: str,
        committer: Committer,
        topic_ids: Mapping[str, UUID | None],
        commits: Commits,
    ) -> None:
        group = shard.groups.get(group_id)
        if group is not None:
            partitions = ((topic_ids[topic], index) for topic, index in commits)
            error = group.check_commit(committer, partitions, self.timer.now())
        elif committer.epoch < 0:
            return  # a consumer that needs no group, or an administrator
        elif shard.knows(group_id):
            error = ErrorCode.unknown_member_id
        elif committer.version >= 9:
            error = ErrorCode.group_id_not_found
        else:
            error = ErrorCode.illegal_generation
        if error is not ErrorCode.none:
            raise KafkaError(error)

    def offsets(self, group_id: str) -> OffsetTable:
        """Where the offsets of the group are found. KafkaError if not here, or not yet.

        Also from a broker that may be deposed: it was paused, and what it knows is from before. A consumer
        that goes on there reads again what others, or itself in a transaction, have done since. All that
        writes needs no such check, since nothing is committed without the followers.
        """
        shard = self.runtime.shard(group_id)
        if len(shard.partition.replicas) > 1 and not self.broker.controller.holds_lease():
            raise KafkaError(ErrorCode.not_coordinator)
        return shard.offsets

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """KafkaError if this member may not fetch offsets (KIP-848)."""
        group = self.runtime.shard(group_id).groups.get(group_id)
        error = ErrorCode.none if group is None else group.check_fetch(member_id, epoch)
        if error is not ErrorCode.none:
            raise KafkaError(error)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[list[ErrorCode], Waiting]:
        return self._shard(group_id).delete_offsets(group_id, partitions)

    async def expire_offsets(self) -> None:
        """Forget offsets nobody has needed for `offsets.retention.minutes`, and groups that have none
        left."""
        retention_ms = self.broker.settings.integer("offsets.retention.minutes") * 60_000
        for shard in self.runtime.ready_shards():
            slice_start = time.monotonic()
            for group_id in list(shard.group_ids()):
                if time.monotonic() - slice_start > SLICE_SECONDS:
                    await asyncio.sleep(0)
                    slice_start = time.monotonic()
                if shard.ready:
                    shard.expire_offsets(group_id, self.wall_ms(), retention_ms)

    def transaction_completed(self, partition: int, producer_id: int, committed: bool) -> None:
        """The marker of a transaction was committed to a partition of the internal topic."""
        shard = self.runtime.shards.get(partition)
        if shard is not None:
            shard.offsets.end_transaction(producer_id, committed)

    # ------------------------------------------------------------------ settings and metadata

    def settings_changed(self) -> None:
        self.classic_groups.settings_changed()
        self.consumer_groups.settings_changed()

    def group_setting(self, group_id: str, name: str) -> int | None:
        """A setting of the group itself, if it has one; within what the broker allows today."""
        text = self.broker.image.configs.get(("group", group_id), {}).get(name)
        return None if text is None else within_bounds(self.broker.settings, name, int(text))

    def metadata_changed(self, delta: Delta) -> None:
        """Groups look again at topics that changed; offsets of deleted topics go with them."""
        topics = self._changed_topics(delta)
        acls_changed = self.broker.authorizer is not None and delta.changed(
            "acls"
        )  # by expression: see others
        for shard in self.runtime.ready_shards():
            if topics or acls_changed:
                for group in shard.groups.values():
                    group.topics_changed(topics)
            for scope, key in delta.configs:
                found = shard.groups.get(key) if scope == "group" else None
                if found is not None:
                    self.manager(found).own_settings_changed(found)
            for topic in delta.topics_deleted.values():
                shard.delete_offsets_of_topic(topic.name)

    def _changed_topics(self, delta: Delta) -> set[str]:
        changed = {topic.name for topic in (*delta.topics_created.values(), *delta.topics_deleted.values())}
        for topic_id, _ in delta.partitions:
            topic = self.broker.image.topics_by_id.get(topic_id)
            if topic is not None:
                changed.add(topic.name)
        return changed
