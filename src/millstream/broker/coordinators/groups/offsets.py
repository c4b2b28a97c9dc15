"""The offsets that groups have committed, in as little memory as Python allows.

A committed offset is kept as the bytes of its record's value and parsed when somebody asks for it. A group's
offsets lie in one flat tuple (topic, partition, value, topic, partition, value, ...) while they are few, and
in a dictionary by topic and partition when they are more. So a million groups of one offset cost about 300
bytes each, and none of it is looked at by the garbage collector; in larger groups an offset costs less.

A group stays in the table when its last offset goes, with nothing in it, until the coordinator tidies up: as
in Kafka, a group that lost its offsets is there, empty, until the next check for expired ones.

Offsets committed inside a transaction wait under their producer's id until the transaction's marker comes: a
commit makes them the group's offsets, an abort forgets them. An offset committed later, transaction or not,
wins over an earlier one whose marker comes last, because compaction keeps the later record.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import Any, NamedTuple

from millstream.broker.coordinators.groups.offset_records import (
    NO_TIME,
    parse_offset_key_prefix,
    parse_offset_value,
)
from millstream.wire.primitives import INT32
from millstream.wire.topic_partition import TopicPartition

Few = tuple[Any, ...]  # topic, partition, value, and again: a tuple, because it takes the least memory
# By topic and partition; plain tuples, because one is built for every commit.
Many = dict[tuple[str, int], bytes]
OffsetKey = tuple[str, str, int]  # group, topic, partition

FEW = 8 * 3  # a tuple longer than this becomes a dictionary
TOPICS_REMEMBERED = 10_000


class Pending(NamedTuple):
    position: int  # of the record in the log
    value: bytes | None  # None: a later commit has won already, but the transaction is still open


class OffsetTable:
    __slots__ = ("_groups", "_open", "_pending", "_topics", "count")

    def __init__(self) -> None:
        self._groups: dict[str, Few | Many] = {}
        self.count = 0
        self._pending: dict[int, dict[OffsetKey, Pending]] = {}  # by producer id
        self._open: dict[str, set[int]] = {}  # group -> producers with offsets that wait
        self._topics: dict[bytes, str] = {}  # while loading: names, so that each is decoded once

    # ------------------------------------------------------------------ groups

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def size(self, group: str) -> int:
        """How many offsets the group has."""
        known = self._groups.get(group, ())
        return len(known) if isinstance(known, dict) else len(known) // 3

    def forget_group(self, group: str) -> None:
        """The group is gone. Offsets go one by one before; if any is left, it stays."""
        if not self._groups.get(group, True):
            del self._groups[group]

    # ------------------------------------------------------------------ committed offsets

    def get(self, group: str, topic: str, partition: int) -> bytes | None:
        known = self._groups.get(group)
        if not known:
            return None
        if isinstance(known, dict):
            return known.get((topic, partition))
        for at in range(0, len(known), 3):
            if known[at + 1] == partition and known[at] == topic:
                value: bytes = known[at + 2]
                return value
        return None

    def put(self, group: str, topic: str, partition: int, value: bytes, position: int) -> None:
        self._put(group, intern(topic), partition, value)
        if group in self._open:
            self._outdate((group, topic, partition), position)

    def _put(self, group: str, topic: str, partition: int, value: bytes) -> None:
        known = self._groups.get(group)
        if not known:
            self._groups[group] = (topic, partition, value)
            self.count += 1
        elif isinstance(known, dict):
            before = len(known)
            known[topic, partition] = value
            self.count += len(known) - before
        else:
            for at in range(0, len(known), 3):
                if known[at + 1] == partition and known[at] == topic:
                    self._groups[group] = (*known[: at + 2], value, *known[at + 3 :])
                    return
            self.count += 1
            if len(known) < FEW:
                self._groups[group] = (*known, topic, partition, value)
                return
            many: Many = {(known[at], known[at + 1]): known[at + 2] for at in range(0, len(known), 3)}
            many[topic, partition] = value
            self._groups[group] = many

    def remove(self, group: str, topic: str, partition: int) -> None:
        """A tombstone: it also ends the wait of what transactions would have put there."""
        known = self._groups.get(group)
        if isinstance(known, dict):
            if known.pop((topic, partition), None) is not None:
                self.count -= 1
                if not known:
                    self._groups[group] = ()
        elif known:
            for at in range(0, len(known), 3):
                if known[at + 1] == partition and known[at] == topic:
                    self._groups[group] = (*known[:at], *known[at + 3 :])
                    self.count -= 1
                    break
        for producer_id in self._open.get(group, ()):
            self._pending[producer_id].pop((group, topic, partition), None)

    def items(self, group: str) -> Iterator[tuple[str, int, bytes]]:
        """Topic, partition and value of every offset of the group."""
        known = self._groups.get(group, ())
        if isinstance(known, dict):
            for (topic, partition), value in known.items():
                yield topic, partition, value
        else:
            for at in range(0, len(known), 3):
                yield known[at], known[at + 1], known[at + 2]

    def of_group(self, group: str) -> list[TopicPartition]:
        """Every partition in which the group has an offset, or may soon have one."""
        partitions = {TopicPartition(topic, partition): None for topic, partition, _ in self.items(group)}
        for producer_id in self._open.get(group, ()):
            for of_group, topic, partition in self._pending[producer_id]:
                if of_group == group:
                    partitions[TopicPartition(topic, partition)] = None
        return list(partitions)

    def of_topic(self, name: str) -> list[tuple[str, int]]:
        """The groups and partitions with an offset in this topic, or perhaps soon with one."""
        found: dict[tuple[str, int], None] = {}
        for group, known in self._groups.items():
            if isinstance(known, tuple) and name not in known:
                continue  # the common case, without making anything
            for topic, partition, _ in self.items(group):
                if topic == name:
                    found[group, partition] = None
        for waiting in self._pending.values():
            for group, topic, partition in waiting:
                if topic == name:
                    found[group, partition] = None
        return list(found)

    def expired(
        self, group: str, since: int | None, now_ms: int, retention_ms: int
    ) -> Iterator[TopicPartition]:
        """Partitions whose offset is too old: counted from `since`, or from each commit if that is None."""
        for topic, partition, value in self.items(group):
            offset = parse_offset_value(value)
            if offset.expire_time != NO_TIME:
                old = now_ms >= offset.expire_time
            else:
                old = now_ms - (offset.commit_time if since is None else since) >= retention_ms
            if old and not self.is_unstable(group, topic, partition):
                yield TopicPartition(topic, partition)

    # ------------------------------------------------------------------ offsets of open transactions

    def put_pending(
        self, producer_id: int, group: str, topic: str, partition: int, value: bytes, position: int
    ) -> None:
        self._groups.setdefault(group, ())
        self._pending.setdefault(producer_id, {})[group, topic, partition] = Pending(position, value)
        self._open.setdefault(group, set()).add(producer_id)

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        if group not in self._open:
            return False
        key = (group, topic, partition)
        return any(key in self._pending[producer_id] for producer_id in self._open[group])

    def in_transaction(self, group: str) -> bool:
        return group in self._open

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        waiting = self._pending.pop(producer_id, None)
        if waiting is None:
            return
        for group in [group for group, producers in self._open.items() if producer_id in producers]:
            self._open[group].discard(producer_id)
            if not self._open[group]:
                del self._open[group]
        if commit:
            for (group, topic, partition), (position, value) in waiting.items():
                if value is not None:
                    self.put(group, topic, partition, value, position)

    def _outdate(self, key: OffsetKey, position: int) -> None:
        for producer_id in self._open[key[0]]:
            waiting = self._pending[producer_id]
            if key in waiting and waiting[key].position < position:
                waiting[key] = Pending(waiting[key].position, None)

    # ------------------------------------------------------------------ loading

    def replay(self, key: bytes, value: bytes | None, producer_id: int, position: int) -> None:
        """An offset commit out of the log. This runs a million times at a start, so the common key is parsed
        here (benchmarks/broker_offsets.py)."""
        end = 4 + (key[2] << 8 | key[3])
        name = key[end + 2 : -4]
        if key[end] << 8 | key[end + 1] != len(name):
            parse_offset_key_prefix(key[:-4])  # says what is wrong
        group = key[4:end].decode()
        topic = self._topics.get(name)
        if topic is None:
            topic = intern(name.decode())
            if len(self._topics) < TOPICS_REMEMBERED:
                self._topics[name] = topic
        partition = INT32.unpack_from(key, len(key) - 4)[0]
        if value is None:
            self.remove(group, topic, partition)
        elif producer_id < 0:
            if group not in self._groups:
                self._groups[group] = (topic, partition, value)
                self.count += 1
                return
            self._put(group, topic, partition, value)
            if self._open and group in self._open:
                self._outdate((group, topic, partition), position)
        else:
            self.put_pending(producer_id, group, topic, partition, value, position)

    def loaded(self) -> None:
        """The log has been read."""
        self._topics = {}
