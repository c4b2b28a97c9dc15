"""What unclean elections make of what was committed.

Where one is allowed, a replica may lead that lacks committed records. From then on its log is the truth: of
what was committed, that counts which it has, and nothing that a leader of an older epoch commits or
acknowledges meanwhile. How much it has is decided when it begins to lead; until then it may still copy
from, or cut its log for, the leader before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from millstream.cluster.metadata_records import Partition as PartitionRecord
from millstream.wire.topic_partition import TopicPartition
from tests.simulation.fake_disk import MemoryLog

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker

Key = tuple[UUID, int]


class UncleanElections:
    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._epochs: dict[Key, int] = {}  # the leader epoch of the last one
        self.undecided: set[Key] = set()  # its leader has not begun yet
        self._with_loss: set[Key] = set()
        self._in_entry: list[tuple[PartitionRecord, PartitionRecord]] = []
        self.count = 0

    def look_at(self, old: PartitionRecord, new: PartitionRecord) -> None:
        """A record of the metadata log, before it is applied. One without `recovering` may have a leader that
        joins the ISR with it."""
        eligible = {*old.isr, *old.elr} - set(self._checker.lost)
        if new.leader < 0 or new.leader_epoch == old.leader_epoch:
            return
        if not new.recovering or new.leader in eligible:
            return
        key = (new.topic_id, new.index)
        if not self._checker.world.plan.unclean:
            self._checker.violated("I11", f"{new} is elected after {old}")
        self.count += 1
        self._epochs[key] = new.leader_epoch
        self.undecided.add(key)
        self._in_entry.append((old, new))

    def entry_applied(self) -> None:
        """Nobody who may lead without loss was there. A machine that lost its data is nobody, and so is a
        replica that goes because somebody called off a move: as in Kafka, that may be unclean, too."""
        active = self._checker.head.active_brokers() - set(self._checker.lost)
        for old, new in self._in_entry:
            passed_over = active.intersection((*old.isr, *old.elr)).intersection(new.replicas)
            if passed_over:
                self._checker.violated("I11", f"{new} is elected after {old}, and {passed_over} are there")
        self._in_entry.clear()

    def is_over(self, key: Key, leader_epoch: int) -> bool:
        """Whether what happens under that epoch no longer counts."""
        return leader_epoch < self._epochs.get(key, -1)

    def leader_begins(self, key: Key, leader_epoch: int, topic: str, log: MemoryLog) -> None:
        if key not in self.undecided or self.is_over(key, leader_epoch):
            return
        self.undecided.discard(key)
        known = self._checker.committed_of(*key)
        deleted = self._checker.deleted
        kept = 0
        while kept < min(len(known), log.end_offset) and (
            kept < log.start_offset or known[kept] == log.entries[kept]
        ):
            kept += 1
        lost = len(known) - kept
        if lost > 0:
            self._checker.world.trace(f"{log.name} leads: {lost} committed records are lost")
            del known[kept:]
            self._with_loss.add(key)
        deleted[key] = max(deleted.get(key, 0), log.start_offset)
        # What an earlier unclean election had undone counts again, if this one knows it to be committed.
        known += log.entries[kept : log.high_watermark]
        for disk in self._checker.world.disks.values():
            other = disk.logs.get(TopicPartition(topic, key[1]))
            if other is not None:
                other.verified = min(other.verified, kept)
        acked = self._checker.acked.get(key[0], {}).get(key[1], {})
        for offset in [each for each in acked if each >= kept]:
            del acked[offset]

    def brings_back(self, topic_id: UUID, index: int, log: MemoryLog, high_watermark: int) -> bool:
        """After two unclean elections: what the first undid, the second leader has again, and a follower that
        knew it to be committed leads after it. Its high watermark was there before it began."""
        if (topic_id, index) not in self._with_loss:
            return False
        checker = self._checker
        record = checker.head.partition(topic_id, index)
        if record is None or record.leader < 0:
            return False
        name = checker.head.topics_by_id[topic_id].name
        leader = checker.world.disks[record.leader].logs.get(TopicPartition(name, index))
        start = max(log.start_offset, 0 if leader is None else leader.start_offset)
        return (
            leader is not None and leader.entries[start:high_watermark] == log.entries[start:high_watermark]
        )
