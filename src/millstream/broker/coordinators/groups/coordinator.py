"""The group coordinator: finds a group's state, does what its state machine asks for, and watches the clock.

Groups are spread over the partitions of `__consumer_offsets`; a `Part` holds the groups and offsets of one of them, for
as long as this broker leads it. The state machines (`classic`, `consumer_group`) decide; here their answers reach who
waits, their records reach the log, and their deadlines the loop's timer: one heap of alarms for all groups, one entry for
each group, set for the group's earliest deadline.

Offsets change in memory when the log has committed them, so nobody reads an offset that a crash could take back.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from millstream.broker.coordinators.groups import offset_records
from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_types import NEVER, Action, Answer, Limits, Save, State
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_group_manager import ConsumerSide
from millstream.broker.coordinators.groups.consumer_types import row
from millstream.broker.coordinators.groups.group_settings import within_bounds
from millstream.broker.coordinators.groups.group_shard import Group, GroupShard, Row
from millstream.broker.coordinators.runtime import CoordinatorRuntime, coordinator_error, wall_ms
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker
    from millstream.cluster.image import Delta

logger = logging.getLogger("millstream.groups")

OFFSETS_TOPIC = "__consumer_offsets"
ROWS_AT_ONCE = 500  # tombstones in one batch, so that none comes near the largest batch allowed


class GroupCoordinator:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.loop = loop
        self.limits = Limits()
        self.consumers = ConsumerSide(self, lambda: wall_ms())
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
        self._alarms: list[tuple[float, int, GroupShard, Group]] = []
        self._counter = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = NEVER

    def settings_changed(self) -> None:
        number = self.broker.settings.integer
        self.limits.initial_delay = number("group.initial.rebalance.delay.ms")
        self.limits.max_size = number("group.max.size")
        self.consumers.settings_changed()

    def group_setting(self, group_id: str, name: str) -> int | None:
        """A setting of the group itself, if somebody has given it one; within what the broker allows today."""
        text = self.broker.image.configs.get(("group", group_id), {}).get(name)
        return None if text is None else within_bounds(self.broker.settings, name, int(text))

    # ------------------------------------------------------------------ finding groups

    def new_classic(self, shard: GroupShard, group_id: str) -> ClassicGroup:
        """A classic group in place of nothing, or of an empty one of the other protocol. KafkaError if that cannot go."""
        known = shard.groups.get(group_id)
        if known is not None:
            shard.append(self._group_tombstones(group_id, known), wall_ms())
        group = shard.groups[group_id] = ClassicGroup(group_id, self.limits, wall_ms)
        return group

    # ------------------------------------------------------------------ told by the shards

    def loaded(self, shard: GroupShard) -> None:
        now = self.now()
        for group in list(shard.groups.values()):
            if isinstance(group, ConsumerGroup):
                group.loaded(now)
                self.set_alarm(shard, group)
            else:
                self.act(shard, group, group.loaded(now))

    def end(self, group: Group, error: ErrorCode) -> None:
        """This group is not here any more: who waits for it is told why."""
        if isinstance(group, ClassicGroup):
            self._answer(group.unload(error))

    # ------------------------------------------------------------------ doing what groups ask for

    def now(self) -> float:
        return self.loop.time() * 1000

    def act(self, shard: GroupShard, group: ClassicGroup, actions: list[Action]) -> None:
        """Carry out what a group decided, and set its alarm."""
        for action in actions:
            if isinstance(action, Save):
                self._save(shard, group, action)
            else:
                self._answer((action,))
        self.set_alarm(shard, group)

    def _answer(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Answer) and not action.waiter.done():
                action.waiter.set_result(action.result)

    def _save(self, shard: GroupShard, group: ClassicGroup, save: Save) -> None:
        row = (offset_records.group_key(group.group_id), offset_records.group_value(save.record))

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.none:
                logger.warning("group %r could not be written: %s", group.group_id, error.name)
            self.act(shard, group, group.saved(save, error, self.now()))

        def done(future: asyncio.Future[None]) -> None:
            problem = future.exception()
            written(
                coordinator_error(problem)
                if isinstance(problem, KafkaError)
                else ErrorCode.not_coordinator
                if problem
                else ErrorCode.none
            )

        try:
            waiting = shard.append([row], wall_ms())
        except KafkaError as error:
            written(coordinator_error(error))
            return
        if waiting is None:
            written(ErrorCode.none)
        else:
            waiting.add_done_callback(done)

    # ------------------------------------------------------------------ the clock

    def set_alarm(self, shard: GroupShard, group: Group) -> None:
        """See that the group is woken when it wants to be."""
        if group.wake < group.scheduled:
            group.scheduled = group.wake
            heapq.heappush(self._alarms, (group.wake, next(self._counter), shard, group))
            self._set_timer()

    def _set_timer(self) -> None:
        if self._alarms and self._alarms[0][0] < self._rings_at:
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at = self._alarms[0][0]
            self._timer = self.loop.call_at(self._rings_at / 1000, self._ring)

    def _ring(self) -> None:
        now = max(self.now(), self._rings_at)  # timers may come a moment early
        self._timer = None
        self._rings_at = NEVER
        while self._alarms and self._alarms[0][0] <= now:
            when, _, shard, group = heapq.heappop(self._alarms)
            if group.scheduled == when and shard.groups.get(group.group_id) is group:
                group.scheduled = NEVER
                if isinstance(group, ConsumerGroup):
                    self.consumers.expire(shard, group, now)
                else:
                    self.act(shard, group, group.expire(now))
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------ forgetting

    def forget(self, shard: GroupShard, group_id: str) -> list[Row]:
        """The tombstones that remove a group and all its offsets."""
        rows: list[Row] = [
            (offset_records.offset_key(group_id, topic, partition), None)
            for topic, partition in shard.offsets.of_group(group_id)
        ]
        return rows + self._group_tombstones(group_id, shard.groups.get(group_id))

    def _group_tombstones(self, group_id: str, group: Group | None) -> list[Row]:
        """A group that only ever had offsets has no record of its own, but a tombstone all the same, as in Kafka: after
        the offsets' tombstones it tells a later start that the group is gone."""
        if isinstance(group, ConsumerGroup):
            return [row(group_id, change) for change in group.tombstones()]
        return [(offset_records.group_key(group_id), None)]

    def delete_group(self, shard: GroupShard, group_id: str) -> asyncio.Future[None] | None:
        """KafkaError if it is not there, or not empty, or cannot be deleted now."""
        group = shard.groups.get(group_id)
        if not shard.knows(group_id):
            raise KafkaError(ErrorCode.group_id_not_found)
        if group is not None and not group.is_empty:
            raise KafkaError(ErrorCode.non_empty_group)
        places = shard.offsets.of_group(group_id)
        return self.write_tombstones(
            shard,
            self.forget(shard, group_id),
            lambda: self._forgotten(shard, group_id, places, whole_group=True),
        )

    def write_tombstones(
        self, shard: GroupShard, rows: list[Row], apply: Callable[[], None]
    ) -> asyncio.Future[None] | None:
        """Many rows go out in several batches; `apply` follows the last."""
        for at in range(0, len(rows) - ROWS_AT_ONCE, ROWS_AT_ONCE):
            shard.write(rows[at : at + ROWS_AT_ONCE], lambda _: None)
        last = rows[(len(rows) - 1) // ROWS_AT_ONCE * ROWS_AT_ONCE :]
        if last:
            return shard.write(last, lambda _: apply())
        apply()
        return None

    def _forgotten(
        self, shard: GroupShard, group_id: str, places: Iterable[TopicPartition], whole_group: bool
    ) -> None:
        for topic, partition in places:
            shard.offsets.remove(group_id, topic, partition)
        if whole_group:
            group = shard.groups.pop(group_id)
            shard.offsets.forget_group(group_id)
            if group is not None:
                self.end(group, ErrorCode.coordinator_not_available)

    def metadata_changed(self, delta: Delta) -> None:
        """Groups look again at topics that changed; offsets of topics that are gone go with them, lest they be taken
        for those of a new topic of the same name."""
        self._groups_look_again(delta)
        for topic in delta.topics_deleted.values():
            for shard in self.runtime.ready_shards():
                places = shard.offsets.of_topic(topic.name)
                if places:
                    self._forget_topic(shard, topic.name, places)

    def _groups_look_again(self, delta: Delta) -> None:
        image = self.broker.image
        changed = {topic.name for topic in (*delta.topics_created.values(), *delta.topics_deleted.values())}
        for topic_id, _ in delta.partitions:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                changed.add(topic.name)
        if changed:
            self.consumers.topics_changed(changed)
        for scope, key in delta.configs:
            if scope == "group":
                self._group_settings_changed(key)

    def _group_settings_changed(self, group_id: str) -> None:
        for shard in self.runtime.ready_shards():
            group = shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self.consumers.give_own_settings(group)

    def _forget_topic(self, shard: GroupShard, topic: str, commits: list[tuple[str, int]]) -> None:
        rows: list[Row] = [
            (offset_records.offset_key(group, topic, partition), None) for group, partition in commits
        ]

        def apply() -> None:
            for group, partition in commits:
                shard.offsets.remove(group, topic, partition)

        try:
            self.write_tombstones(shard, rows, apply)
        except KafkaError as error:
            logger.warning("offsets of the deleted topic %r stay until they expire: %s", topic, error)

    async def expire_offsets(self) -> None:
        """Forget offsets nobody has needed for `offsets.retention.minutes`, and groups that have none left."""
        retention_ms = self.broker.settings.integer("offsets.retention.minutes") * 60_000
        for shard in self.runtime.ready_shards():
            turn = time.monotonic()
            for group_id in list(shard.group_ids()):
                if time.monotonic() - turn > 0.005:
                    await asyncio.sleep(0)
                    turn = time.monotonic()
                if shard.ready:
                    self._expire_group(shard, group_id, wall_ms(), retention_ms)

    def _expire_group(self, shard: GroupShard, group_id: str, now_ms: int, retention_ms: int) -> None:
        sleeping = shard.groups.sleeping(group_id)
        group = None if sleeping is not None else shard.groups.get(group_id)
        since: int | None = None
        keep: frozenset[str] = frozenset()
        if sleeping is not None:
            since = None if sleeping.state_time < 0 else sleeping.state_time
        elif isinstance(group, ConsumerGroup):
            keep = group.subscribed()
        elif group is not None and group.protocol_type is not None:
            if group.state is State.EMPTY:
                since = None if group.state_time < 0 else group.state_time
            elif group.state is State.STABLE and group.subscribed is not None:
                keep = group.subscribed
            else:
                return
        places = [
            place
            for place in shard.offsets.expired(group_id, since, now_ms, retention_ms)
            if place[0] not in keep
        ]
        empty = group is None or (group.is_empty and not (isinstance(group, ClassicGroup) and group.pending))
        over = (
            empty
            and len(places) == shard.offsets.size(group_id)
            and not shard.offsets.in_transaction(group_id)
        )
        if not places and not over:
            return
        rows: list[Row] = [(offset_records.offset_key(group_id, *place), None) for place in places]
        if over:
            rows += self._group_tombstones(group_id, group)
        try:
            self.write_tombstones(
                shard, rows, lambda: self._forgotten(shard, group_id, places, whole_group=over)
            )
        except KafkaError as error:
            logger.warning("offsets of group %r could not be expired: %s", group_id, error)

    # ------------------------------------------------------------------ transactions

    def transaction_completed(self, partition: int, producer_id: int, committed: bool) -> None:
        """The marker of a transaction was committed to a partition of the internal topic."""
        shard = self.runtime.shards.get(partition)
        if shard is not None:
            shard.offsets.end_transaction(producer_id, committed)
