"""Groups and offsets of one partition of `__consumer_offsets`: how they are read from it, written to it and
forgotten."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from millstream.broker.coordinators.groups import offset_records
from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_types import ClassicGroupState, ClassicLimits
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_group_records import KEY_TYPES as CONSUMER_KEY_TYPES
from millstream.broker.coordinators.groups.consumer_types import GroupChanged, parse_row
from millstream.broker.coordinators.groups.group import (
    Group,
    GroupType,
    ListedGroup,
    OffsetExpiration,
    Row,
    Waiting,
)
from millstream.broker.coordinators.groups.offsets import OffsetTable
from millstream.broker.coordinators.runtime import CoordinatorShard, wall_ms
from millstream.wire.batch import CONTROL, TRANSACTIONAL
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import BAD_FRAME, INT32
from millstream.wire.records import ABORT_MARKER, COMMIT_MARKER, control_type
from millstream.wire.topic_partition import TopicPartition
from millstream.wire.varint import Malformed

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
    from millstream.broker.partition import Partition

logger = logging.getLogger("millstream.groups")

TOMBSTONES_PER_BATCH = 500  # so that none comes near the largest batch allowed
_EMPTY = ClassicGroupState.EMPTY.value

Commits = dict[tuple[str, int], bytes]  # by topic and partition: the record's value


class GroupMap:
    """The groups of a shard by their ids. After a start most classic groups have no members and stay unused
    for a while: they sleep as the bytes of their record until first use."""

    __slots__ = ("_asleep", "_awake", "_limits", "_wall_ms")

    def __init__(self, limits: ClassicLimits, wall_ms: Callable[[], int]) -> None:
        self._limits = limits
        self._wall_ms = wall_ms
        self._awake: dict[str, Group] = {}
        self._asleep: dict[str, bytes] = {}

    def put_record(self, group_id: str, value: bytes) -> None:
        """A classic group as the log has it. One of BAD_FRAME if that makes no sense."""
        if offset_records.empty_group(value) is None:
            self._awake[group_id] = self._load(group_id, value)
        else:
            self._asleep[group_id] = value

    def _load(self, group_id: str, value: bytes) -> ClassicGroup:
        return ClassicGroup.load(
            group_id, offset_records.parse_group_value(value), self._limits, self._wall_ms
        )

    def get(self, group_id: str) -> Group | None:
        group = self._awake.get(group_id)
        if group is None and self._asleep:
            value = self._asleep.pop(group_id, None)
            if value is not None:
                group = self._awake[group_id] = self._load(group_id, value)
        return group

    def sleeping(self, group_id: str) -> offset_records.EmptyGroup | None:
        """What is known of a group that sleeps, without waking it up."""
        value = self._asleep.get(group_id)
        return None if value is None else offset_records.empty_group(value)

    def __setitem__(self, group_id: str, group: Group) -> None:
        self._asleep.pop(group_id, None)
        self._awake[group_id] = group

    def pop(self, group_id: str) -> Group | None:
        self._asleep.pop(group_id, None)
        return self._awake.pop(group_id, None)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._awake or group_id in self._asleep

    def __iter__(self) -> Iterator[str]:
        yield from self._awake
        yield from self._asleep

    @property
    def asleep(self) -> int:
        return len(self._asleep)

    def values(self) -> Iterable[Group]:
        """Those that are awake: all that have members."""
        return self._awake.values()


class GroupShard(CoordinatorShard):
    __slots__ = ("_classic_records", "_consumer_groups", "_coordinator", "groups", "offsets")

    def __init__(self, coordinator: GroupCoordinator, partition: Partition) -> None:
        super().__init__(coordinator.runtime, partition)
        self.groups = GroupMap(coordinator.classic_groups.limits, coordinator.wall_ms)
        self.offsets = OffsetTable()
        self._coordinator = coordinator
        # While loading: the latest record of each classic group, and the groups of the consumer protocol.
        self._classic_records: dict[str, bytes] = {}
        self._consumer_groups: dict[str, ConsumerGroup] = {}

    # ------------------------------------------------------------------ loading

    def replay(
        self, attributes: int, producer_id: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        if key is None:
            raise Malformed("a record without a key")
        if attributes & CONTROL:
            marker = control_type(key)
            if marker in (ABORT_MARKER, COMMIT_MARKER):
                self.offsets.end_transaction(producer_id, marker == COMMIT_MARKER)
            return
        key_type = key[0] << 8 | key[1]
        if key_type <= offset_records.OFFSET_COMMIT:
            self.offsets.replay(key, value, producer_id if attributes & TRANSACTIONAL else -1, offset)
        elif key_type == offset_records.GROUP_METADATA:
            group_id = offset_records.parse_group_key(key)
            if value is None:
                self._classic_records.pop(group_id, None)
                self.offsets.forget_group(group_id)
            else:
                self._classic_records[group_id] = value
        elif key_type in CONSUMER_KEY_TYPES:
            self._replay_consumer(key, value)

    def _replay_consumer(self, key: bytes, value: bytes | None) -> None:
        group_id, change = parse_row(key, value)
        group = self._consumer_groups.get(group_id)
        if isinstance(change, GroupChanged) and change.epoch is None:
            self._consumer_groups.pop(group_id, None)
            self.offsets.forget_group(group_id)
        elif change is not None and (group is not None or value is not None):
            if group is None:
                group = self._coordinator.consumer_groups.new_group(group_id)
                self._consumer_groups[group_id] = group
            group.apply(change)

    def unreadable(self, offset: int, error: Exception) -> None:
        self._coordinator.unreadable_records += 1
        logger.error(
            "%s: the record at offset %d cannot be read and is skipped: %s", self.partition, offset, error
        )

    def loaded(self) -> None:
        self.offsets.loaded()
        for group_id, group in self._consumer_groups.items():
            self.groups[group_id] = group
        for group_id, value in self._classic_records.items():
            try:
                self.groups.put_record(group_id, value)
            except BAD_FRAME as error:
                logger.error("group %r cannot be read from the log and is forgotten: %s", group_id, error)
        self._consumer_groups = {}
        self._classic_records = {}
        self._coordinator.loaded(self)

    def unloaded(self) -> None:
        for group in self.groups.values():
            self._coordinator.manager(group).unload(group, ErrorCode.not_coordinator)

    # ------------------------------------------------------------------ groups

    def knows(self, group_id: str) -> bool:
        """A group exists when it has members or had some, or when offsets were committed in its name."""
        return group_id in self.groups or group_id in self.offsets

    def group_ids(self) -> Iterable[str]:
        return dict.fromkeys((*self.groups, *self.offsets))

    def states(self) -> Counter[str]:
        """How many groups are in which state."""
        found = Counter(group.state_name for group in self.groups.values())
        found[_EMPTY] += self.groups.asleep
        found[_EMPTY] += sum(1 for group_id in self.offsets if group_id not in self.groups)
        return +found

    def listed(self, group_id: str) -> ListedGroup:
        sleeping = self.groups.sleeping(group_id)
        group = None if sleeping is not None else self.groups.get(group_id)
        if group is not None:
            return group.listed()
        protocol_type = "" if sleeping is None else sleeping.protocol_type
        return ListedGroup(group_id, _EMPTY, GroupType.CLASSIC, protocol_type)

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """None for one that only ever had offsets. GROUP_ID_NOT_FOUND if there is none of the classic
        protocol."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a classic group.")
        if not self.knows(group_id):
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return None

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """GROUP_ID_NOT_FOUND if there is none of the consumer protocol."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        problem = "is not a consumer group" if self.knows(group_id) else "not found"
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} {problem}.")

    def delete_group(self, group_id: str) -> Waiting:
        """KafkaError if it is not there, or not empty, or cannot be deleted now."""
        if not self.knows(group_id):
            raise KafkaError(ErrorCode.group_id_not_found)
        group = self.groups.get(group_id)
        if group is not None and not group.is_empty:
            raise KafkaError(ErrorCode.non_empty_group)
        partitions = self.offsets.of_group(group_id)
        rows = [*_offset_tombstones(group_id, partitions), *self._group_tombstones(group_id)]
        return self._write_tombstones(rows, lambda: self._remove(group_id, partitions, whole_group=True))

    # ------------------------------------------------------------------ offsets

    def commit(self, group_id: str, commits: Commits, producer: tuple[int, int] | None = None) -> Waiting:
        """Write commits in one batch; they are the group's offsets once the log has committed them, or, with
        `producer` (id, epoch), once that producer's transaction is. KafkaError if the log refuses them."""

        def apply(position: int) -> None:
            if producer is None:
                put = self.offsets.put
                for (topic, partition), value in commits.items():
                    put(group_id, topic, partition, value, position)
            else:
                put_pending = self.offsets.put_pending
                for (topic, partition), value in commits.items():
                    put_pending(producer[0], group_id, topic, partition, value, position)

        rows: list[Row] = []
        last, prefix = None, b""
        for (topic, partition), value in commits.items():
            if topic is not last:
                last, prefix = topic, offset_records.offset_key_prefix(group_id, topic)
            rows.append((prefix + INT32.pack(partition), value))
        return self._write(rows, apply, producer)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[list[ErrorCode], Waiting]:
        """An error code for each partition (KIP-496). KafkaError if the group is not there, or may not lose
        offsets."""
        if not self.knows(group_id):
            raise KafkaError(ErrorCode.group_id_not_found)
        group = self.groups.get(group_id)
        in_use = frozenset() if group is None else group.topics_in_use()
        errors = []
        found = []
        for topic, partition in partitions:
            if in_use is None or topic in in_use:
                errors.append(ErrorCode.group_subscribed_to_topic)
                continue
            errors.append(ErrorCode.none)
            if self.offsets.get(group_id, topic, partition) is not None or self.offsets.is_unstable(
                group_id, topic, partition
            ):
                found.append(TopicPartition(topic, partition))
        rows = _offset_tombstones(group_id, found)
        return errors, self._write_tombstones(rows, lambda: self._remove(group_id, found, whole_group=False))

    def delete_offsets_of_topic(self, topic: str) -> None:
        """The topic is gone: its offsets must not be taken for those of a new topic of the same name."""
        commits = self.offsets.of_topic(topic)
        if not commits:
            return

        def apply() -> None:
            for group_id, partition in commits:
                self.offsets.remove(group_id, topic, partition)

        rows: list[Row] = [
            (offset_records.offset_key(group_id, topic, partition), None) for group_id, partition in commits
        ]
        try:
            self._write_tombstones(rows, apply)
        except KafkaError as error:
            logger.warning("offsets of the deleted topic %r stay until they expire: %s", topic, error)

    def expire_offsets(self, group_id: str, now_ms: int, retention_ms: int) -> None:
        """Forget offsets of the group that are too old (KIP-211), and the group if nothing is left of it."""
        sleeping = self.groups.sleeping(group_id)
        group = None if sleeping is not None else self.groups.get(group_id)
        expiration: OffsetExpiration | None
        if sleeping is not None:
            expiration = OffsetExpiration(None if sleeping.state_time < 0 else sleeping.state_time)
        elif group is not None:
            expiration = group.offset_expiration()
        else:
            expiration = OffsetExpiration()
        if expiration is None:
            return
        expired = [
            partition
            for partition in self.offsets.expired(group_id, expiration.since_ms, now_ms, retention_ms)
            if partition.topic not in expiration.topics_in_use
        ]
        whole_group = (
            (group is None or group.is_unused)
            and len(expired) == self.offsets.size(group_id)
            and not self.offsets.in_transaction(group_id)
        )
        rows = _offset_tombstones(group_id, expired)
        if whole_group:
            rows += self._group_tombstones(group_id)
        if not rows:
            return
        try:
            self._write_tombstones(rows, lambda: self._remove(group_id, expired, whole_group))
        except KafkaError as error:
            logger.warning("offsets of group %r could not be expired: %s", group_id, error)

    # ------------------------------------------------------------------ writing

    def _write(
        self,
        rows: Sequence[Row],
        apply: Callable[[int], None],
        producer: tuple[int, int] | None = None,
    ) -> Waiting:
        """Append rows in one batch and, when they are committed, `apply` them (given the first one's
        position).

        None: that has happened. KafkaError if the log refuses them.
        """
        position = self.partition.log.end_offset
        return self.append(rows, wall_ms(), producer, lambda: apply(position))

    def _write_tombstones(self, rows: list[Row], apply: Callable[[], None]) -> Waiting:
        """Many rows go out in several batches; `apply` follows the last."""
        for at in range(0, len(rows) - TOMBSTONES_PER_BATCH, TOMBSTONES_PER_BATCH):
            self._write(rows[at : at + TOMBSTONES_PER_BATCH], lambda _: None)
        last = rows[(len(rows) - 1) // TOMBSTONES_PER_BATCH * TOMBSTONES_PER_BATCH :]
        if last:
            return self._write(last, lambda _: apply())
        apply()
        return None

    def _group_tombstones(self, group_id: str) -> list[Row]:
        """A group that only ever had offsets has no record of its own, but gets a tombstone all the same, as
        in Kafka: after the offsets' tombstones it tells a later start that the group is gone."""
        group = None if self.groups.sleeping(group_id) is not None else self.groups.get(group_id)
        return [(offset_records.group_key(group_id), None)] if group is None else group.tombstones()

    def _remove(self, group_id: str, partitions: Iterable[TopicPartition], whole_group: bool) -> None:
        for topic, partition in partitions:
            self.offsets.remove(group_id, topic, partition)
        if whole_group:
            group = self.groups.pop(group_id)
            self.offsets.forget_group(group_id)
            if group is not None:
                self._coordinator.manager(group).unload(group, ErrorCode.coordinator_not_available)


def _offset_tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[Row]:
    return [(offset_records.offset_key(group_id, topic, partition), None) for topic, partition in partitions]
