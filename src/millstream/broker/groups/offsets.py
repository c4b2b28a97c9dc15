"""The offsets that groups have committed, in as little memory as Python allows.

A committed offset is kept as the bytes of its record's value, under group, topic and partition: about 150 bytes each, all
of it invisible to the garbage collector except one dictionary a group. It is parsed when somebody asks for it.

Offsets committed inside a transaction wait under their producer's id until the transaction's marker comes: a commit makes
them the group's offsets, an abort forgets them. An offset committed later, transaction or not, wins over an earlier one
whose marker comes last, because compaction keeps the later record.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import NamedTuple

from millstream.broker.groups.records import NO_TIME, parse_offset_key_prefix, parse_offset_value
from millstream.wire.primitives import INT32

Topics = dict[str, dict[int, bytes]]  # topic -> partition -> the record's value
Place = tuple[str, str, int]  # group, topic, partition


class Pending(NamedTuple):
    position: int  # of the record in the log
    value: bytes | None  # None: a later commit has won already, but the transaction is still open


class OffsetTable:
    __slots__ = ("_open", "_pending", "_places", "count", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, Topics] = {}
        self.count = 0
        self._pending: dict[int, dict[Place, Pending]] = {}  # by producer id
        self._open: dict[str, set[int]] = {}  # group -> producers with offsets that wait
        self._places: dict[
            bytes, tuple[str, str, dict[int, bytes]]
        ] = {}  # while loading: by the key's prefix

    # ------------------------------------------------------------------ committed offsets

    def get(self, group: str, topic: str, partition: int) -> bytes | None:
        topics = self.groups.get(group)
        partitions = None if topics is None else topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, group: str, topic: str, partition: int, value: bytes, position: int) -> None:
        topics = self.groups.get(group)
        if topics is None:
            topics = self.groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[intern(topic)] = {}
        if partition not in partitions:
            self.count += 1
        partitions[partition] = value
        if group in self._open:
            self._outdate((group, topic, partition), position)

    def remove(self, group: str, topic: str, partition: int) -> None:
        """A tombstone: it also ends the wait of what transactions would have put there."""
        topics = self.groups.get(group)
        partitions = None if topics is None else topics.get(topic)
        if topics is not None and partitions is not None and partitions.pop(partition, None) is not None:
            self.count -= 1
            if not partitions:
                del topics[topic]
                if not topics:
                    del self.groups[group]
        for producer_id in self._open.get(group, ()):
            self._pending[producer_id].pop((group, topic, partition), None)

    def of_group(self, group: str) -> list[tuple[str, int]]:
        """Every place where the group has an offset, or may soon have one."""
        places = {
            (topic, partition): None
            for topic, partitions in self.groups.get(group, {}).items()
            for partition in partitions
        }
        for producer_id in self._open.get(group, ()):
            for of_group, topic, partition in self._pending[producer_id]:
                if of_group == group:
                    places[topic, partition] = None
        return list(places)

    def of_topic(self, name: str) -> list[tuple[str, int]]:
        """The groups and partitions with an offset in this topic, or perhaps soon with one."""
        places = {
            (group, partition): None
            for group, topics in self.groups.items()
            if name in topics
            for partition in topics[name]
        }
        for waiting in self._pending.values():
            for group, topic, partition in waiting:
                if topic == name:
                    places[group, partition] = None
        return list(places)

    def expired(
        self, group: str, since: int | None, now_ms: int, retention_ms: int
    ) -> Iterator[tuple[str, int]]:
        """Places whose offset is too old: counted from `since`, or from each commit if that is None."""
        for topic, partitions in self.groups.get(group, {}).items():
            for partition, value in partitions.items():
                offset = parse_offset_value(value)
                if offset.expire_time != NO_TIME:
                    old = now_ms >= offset.expire_time
                else:
                    old = now_ms - (offset.commit_time if since is None else since) >= retention_ms
                if old and not self.is_unstable(group, topic, partition):
                    yield topic, partition

    # ------------------------------------------------------------------ offsets of open transactions

    def put_pending(
        self, producer_id: int, group: str, topic: str, partition: int, value: bytes, position: int
    ) -> None:
        self._pending.setdefault(producer_id, {})[group, topic, partition] = Pending(position, value)
        self._open.setdefault(group, set()).add(producer_id)

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        if group not in self._open:
            return False
        place = (group, topic, partition)
        return any(place in self._pending[producer_id] for producer_id in self._open[group])

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

    def _outdate(self, place: Place, position: int) -> None:
        for producer_id in self._open[place[0]]:
            waiting = self._pending[producer_id]
            if place in waiting and waiting[place].position < position:
                waiting[place] = Pending(waiting[place].position, None)

    # ------------------------------------------------------------------ loading

    def replay(self, key: bytes, value: bytes | None, producer_id: int, position: int) -> None:
        """An offset commit out of the log. This runs a million times at a start: a plain commit is three look-ups."""
        prefix = key[:-4]
        found = self._places.get(prefix)
        if found is None:
            group, topic = parse_offset_key_prefix(prefix)
            topic = intern(topic)
            partitions = self.groups.setdefault(group, {}).setdefault(topic, {})
            found = self._places[prefix] = (group, topic, partitions)
        partition = INT32.unpack_from(key, len(prefix))[0]
        if value is None:
            found[2].pop(partition, None)
            for producer in self._open.get(found[0], ()):
                self._pending[producer].pop((found[0], found[1], partition), None)
        elif producer_id < 0:
            found[2][partition] = value
            if self._open and found[0] in self._open:
                self._outdate((found[0], found[1], partition), position)
        else:
            self.put_pending(producer_id, found[0], found[1], partition, value, position)

    def loaded(self) -> None:
        """The log has been read: tidy up what tombstones left behind, and count."""
        self._places = {}
        self.count = 0
        for group in list(self.groups):
            topics = self.groups[group]
            for topic in [topic for topic, partitions in topics.items() if not partitions]:
                del topics[topic]
            if topics:
                self.count += sum(map(len, topics.values()))
            else:
                del self.groups[group]
