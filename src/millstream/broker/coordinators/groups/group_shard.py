"""Groups and offsets of one partition of `__consumer_offsets`, as they are read from it and written to it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from millstream.broker.coordinators.groups import offset_records
from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_types import Limits, State
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_group_records import KINDS as CONSUMER_KINDS
from millstream.broker.coordinators.groups.consumer_types import GroupChanged, parse_row
from millstream.broker.coordinators.groups.offsets import OffsetTable
from millstream.broker.coordinators.runtime import CoordinatorShard, wall_ms
from millstream.wire.batch import CONTROL, TRANSACTIONAL
from millstream.wire.errors import ErrorCode
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.records import ABORT_MARKER, COMMIT_MARKER, control_type
from millstream.wire.varint import Malformed

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
    from millstream.broker.partitions import Partition

logger = logging.getLogger("millstream.groups")

Group = ClassicGroup | ConsumerGroup
Row = tuple[bytes, bytes | None]


class Groups:
    """The groups of a part by their ids. After a start most classic groups have no members, and most of them will not be
    asked for soon: they sleep as their record's bytes until they are."""

    __slots__ = ("_asleep", "_awake", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._awake: dict[str, Group] = {}
        self._asleep: dict[str, bytes] = {}

    def put_record(self, group_id: str, value: bytes) -> None:
        """A classic group as the log has it. One of BAD_FRAME if that makes no sense."""
        if offset_records.empty_group(value) is None:
            self._awake[group_id] = self._load(group_id, value)
        else:
            self._asleep[group_id] = value

    def _load(self, group_id: str, value: bytes) -> ClassicGroup:
        return ClassicGroup.load(group_id, offset_records.parse_group_value(value), self._limits, wall_ms)

    def get(self, group_id: str) -> Group | None:
        group = self._awake.get(group_id)
        if group is None and self._asleep:
            value = self._asleep.pop(group_id, None)
            if value is not None:
                group = self._awake[group_id] = self._load(group_id, value)
        return group

    def sleeping(self, group_id: str) -> offset_records.EmptyGroup | None:
        """What is known of a group that sleeps, without waking it."""
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
    """Groups and offsets of one partition of the internal topic."""

    __slots__ = ("_coordinator", "_unread", "groups", "offsets")

    def __init__(self, coordinator: GroupCoordinator, partition: Partition) -> None:
        super().__init__(coordinator.runtime, partition)
        self.groups = Groups(coordinator.limits)
        self.offsets = OffsetTable()
        self._coordinator = coordinator
        self._unread: dict[str, bytes] = {}  # while loading: the latest record of each classic group

    # ------------------------------------------------------------------ the log

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
        kind = key[0] << 8 | key[1]
        if kind <= offset_records.OFFSET_COMMIT:
            self.offsets.replay(key, value, producer_id if attributes & TRANSACTIONAL else -1, offset)
        elif kind == offset_records.GROUP_METADATA:
            group_id = offset_records.parse_group_key(key)
            if value is None:
                self._unread.pop(group_id, None)
                self.offsets.forget_group(group_id)
            else:
                self._unread[group_id] = value
        elif kind in CONSUMER_KINDS:
            self._replay_consumer(key, value)

    def _replay_consumer(self, key: bytes, value: bytes | None) -> None:
        group_id, change = parse_row(key, value)
        group = self.groups.get(group_id)
        if isinstance(change, GroupChanged) and change.epoch is None:
            self.groups.pop(group_id)
            self.offsets.forget_group(group_id)
        elif change is not None and (group is not None or value is not None):
            if not isinstance(group, ConsumerGroup):
                group = self.groups[group_id] = self._coordinator.consumers.new_group(group_id)
            group.apply(change)

    def loaded(self) -> None:
        self.offsets.loaded()
        for group_id, value in self._unread.items():
            try:
                self.groups.put_record(group_id, value)
            except BAD_FRAME as error:
                logger.error("group %r cannot be read from the log and is forgotten: %s", group_id, error)
        self._unread = {}
        self._coordinator.loaded(self)

    def unreadable(self, offset: int, error: Exception) -> None:
        self._coordinator.unreadable_records += 1
        logger.error(
            "%s: the record at offset %d cannot be read and is skipped: %s", self.partition, offset, error
        )

    def unloaded(self) -> None:
        for group in self.groups.values():
            self._coordinator.end(group, ErrorCode.not_coordinator)

    def write(
        self,
        rows: Sequence[Row],
        apply: Callable[[int], None],
        producer: tuple[int, int] | None = None,
    ) -> asyncio.Future[None] | None:
        """Append rows in one batch and, when they are committed, `apply` them (given the first one's position).

        None: that has happened. KafkaError if the log refuses them.
        """
        now_ms = wall_ms()
        waiting = self.append(rows, now_ms, producer)
        position = self.partition.log.end_offset - len(rows)

        def committed(done: asyncio.Future[None]) -> None:
            if done.exception() is None:
                apply(position)

        if waiting is None:
            apply(position)
        else:
            waiting.add_done_callback(committed)
        return waiting

    # ------------------------------------------------------------------ questions

    def knows(self, group_id: str) -> bool:
        """A group exists when it has members or had some, or when offsets were committed in its name."""
        return group_id in self.groups or group_id in self.offsets

    def group_ids(self) -> Iterable[str]:
        return dict.fromkeys((*self.groups, *self.offsets))

    def states(self) -> Counter[str]:
        """How many groups are in which state."""
        found = Counter(group.state_name for group in self.groups.values())
        found[State.EMPTY.value] += self.groups.asleep
        found[State.EMPTY.value] += sum(1 for group_id in self.offsets if group_id not in self.groups)
        return +found
