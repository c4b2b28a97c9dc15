"""What must hold after every step, whatever happened (the numbers are those of the design).

I1  A committed offset has one value for ever, and every current leader has it.
I2  A record that was acknowledged with acks=all is committed, and is there once when all is well again.
I3  Two replicas whose batch at an offset has the same leader epoch are equal up to there.
I4  At most one leader for each leader epoch; epochs only grow.
I5  Every member of ISR and ELR holds all committed records.
I6  Images of equal version are equal, whether they came by entries or by a snapshot.
I7  After a controller's claim, nothing of an older epoch is appended.
I8  Here: a leader that says it knows the latest offset does.
I11 An unclean election happens only where it is allowed, and where nobody who has everything is alive.
I12 A leader whose session ended by its silence acknowledges nothing alone (acks=1) once another may lead.
I10 Somebody may always lead, if not now: ISR and ELR are never both empty. And (in `world`) once faults stop,
    everything is led, in sync and equal again.

A machine that lost its page cache may lack committed records until the controller knows, which ends with the
first entry that shows the broker's new life.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.cluster.image import Image
from millstream.cluster.metadata_records import BrokerUp, decode
from millstream.cluster.metadata_records import Controller as Claim
from millstream.cluster.metadata_records import Partition as PartitionRecord
from millstream.cluster.store import Entry
from millstream.settings.log_config import LogConfig
from millstream.wire.topic_partition import TopicPartition
from tests.simulation.fake_disk import LogEntry, MemoryLog
from tests.simulation.unclean_elections import UncleanElections

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from tests.simulation.sim_broker import SimBroker
    from tests.simulation.world import World


class Violation(AssertionError):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


@dataclass(slots=True)
class Lost:
    """A machine whose page cache is gone."""

    known: bool = False  # the controller has heard of the life that came after


class Checker:
    def __init__(self, world: World) -> None:
        self.world = world
        self.head = Image()  # what the whole metadata log says
        self.images: dict[int, Image] = {}
        self.committed: dict[UUID, dict[int, list[LogEntry]]] = {}
        self.acked: dict[UUID, dict[int, dict[int, int]]] = {}
        self.leaders: dict[tuple[UUID, int, int], int] = {}
        self.lost: dict[int, Lost] = {}
        self.acks = 0
        self.deleted: dict[tuple[UUID, int], int] = {}  # up to where a client had records deleted
        self.keys: dict[TopicPartition, tuple[UUID, int]] = {}
        self.unclean = UncleanElections(self)
        self.led_since: dict[tuple[UUID, int, int], float] = {}
        self.problem: Violation | None = None
        self._changed = True

    def violated(self, invariant: str, what: str) -> None:
        """The run ends with this step. Not raised where it is found: the code under test might catch it."""
        if self.problem is None:
            self.problem = Violation(invariant, what)
            self.world.trace(str(self.problem))

    # --- the metadata log -----------------------------------------------------------------------------------

    def appended(self, entry: Entry) -> None:
        epoch, records = decode(entry.payload)
        head = self.head
        claims = [record.epoch for record in records if isinstance(record, Claim)]
        expected = head.controller_epoch + len(claims)
        if epoch != expected or claims not in ([], [expected]):
            self.violated("I7", f"an entry of controller epoch {epoch} while {expected} is due")
        for record in records:
            if isinstance(record, PartitionRecord):  # several commands may be in one entry
                self._check_record(head.partition(record.topic_id, record.index), record)
            elif isinstance(record, BrokerUp) and record.broker_id in self.lost:
                process = self.world.brokers.get(record.broker_id)
                first = self.world.first_epochs.get(record.broker_id, 1 << 60)
                if process is not None and record.epoch >= first:
                    self.lost[record.broker_id].known = True
            self.world.trace(f"v{entry.version} by b{entry.writer}: {_brief(record)}")
            head.apply([record], entry.version)
        self.unclean.entry_applied()
        self.images[entry.version] = head.copy()
        self._changed = True

    def _check_record(self, old: PartitionRecord | None, new: PartitionRecord) -> None:
        if old is not None and (
            new.leader_epoch < old.leader_epoch
            or new.partition_epoch != old.partition_epoch + 1
            or (new.leader != old.leader and new.leader_epoch == old.leader_epoch)
        ):
            self.violated("I4", f"{_brief(new)} follows {_brief(old)}")
        if not set(new.isr) <= set(new.replicas) or (new.leader >= 0 and new.leader not in new.isr):
            self.violated("I4", f"{_brief(new)}: leader, ISR and replicas do not fit")
        if old is not None:
            self.unclean.look_at(old, new)
        self.led_since.setdefault((new.topic_id, new.index, new.leader_epoch), self.world.loop.now)
        if not new.isr and not new.elr and not self.world.plan.unclean:
            self.violated("I10", f"{_brief(new)}: nobody may lead it any more, without an unclean election")

    def image_changed(self, broker: SimBroker, image: Image) -> None:
        self._changed = True
        if image.version and image != self.images.get(image.version):
            self.violated("I6", f"the image of {broker!r} at version {image.version} is another's")
        for partition in broker.partitions:
            if partition.leads:
                key = (partition.topic_id, partition.index, partition.leader_epoch)
                if self.leaders.setdefault(key, broker.node_id) != broker.node_id:
                    self.violated("I4", f"{partition!r} has two leaders of epoch {partition.leader_epoch}")
                self.unclean.leader_begins(key[:2], key[2], partition.topic, partition.log)  # type: ignore[arg-type]

    # --- logs -----------------------------------------------------------------------------------------------

    def make_log_for(self, node_id: int) -> Callable[[str, int, UUID, LogConfig], MemoryLog]:
        def make(topic: str, index: int, topic_id: UUID, config: LogConfig) -> MemoryLog:
            def committed(log: MemoryLog, before: int, after: int) -> None:
                self._high_watermark_moved(node_id, topic_id, index, log, before, after)

            def grown(log: MemoryLog) -> None:
                self._grown(topic, topic_id, index, log)

            return self.world.log_class(f"b{node_id}/{topic}-{index}", topic_id, config, committed, grown)

        return make

    def committed_of(self, topic_id: UUID, index: int) -> list[LogEntry]:
        return self.committed.setdefault(topic_id, {}).setdefault(index, [])

    def _high_watermark_moved(
        self, node_id: int, topic_id: UUID, index: int, log: MemoryLog, before: int, after: int
    ) -> None:
        self._changed = True
        process = self.world.brokers[node_id]
        partition = process.partitions.by_id.get(topic_id.bytes, {}).get(index) if process else None
        if partition is not None:
            if self.unclean.is_over((topic_id, index), partition.leader_epoch):
                return
            if partition.leads:
                self.unclean.leader_begins((topic_id, index), partition.leader_epoch, partition.topic, log)
        known = self.committed_of(topic_id, index)
        both = min(after, len(known))
        # A replica that hears of a deletion only now may hold something else there, until it has heard.
        deleted = self.deleted.get((topic_id, index), 0)
        for offset in range(max(before, log.start_offset, deleted), both):
            if known[offset] != log.entries[offset]:
                self.violated(
                    "I1", f"{log.name} commits {log.entries[offset]} at {offset}, where {known[offset]} was"
                )
        if after > len(known):
            leads = partition is not None and partition.leads
            if not leads and not self.unclean.brings_back(topic_id, index, log, after):
                self.violated("I1", f"{log.name} shows {after}, and only {len(known)} was committed")
            for offset in range(len(known), after):
                known.append(log.entries[offset])
            self.world.trace(f"{log.name}: committed up to {after}")

    def _grown(self, topic: str, topic_id: UUID, index: int, log: MemoryLog) -> None:
        self._changed = True
        last = len(log.entries) - 1
        for disk in self.world.disks.values():
            other = disk.logs.get(TopicPartition(topic, index))
            if other is None or other is log or other.topic_id != topic_id or len(other.entries) <= last:
                continue
            start = max(log.start_offset, other.start_offset, self.deleted.get((topic_id, index), 0))
            if (
                other.entries[last].epoch == log.entries[last].epoch
                and start <= last
                and other.entries[start : last + 1] != log.entries[start:]
            ):
                self.violated("I3", f"{log.name} and {other.name} differ below offset {last}")

    def acknowledged(self, topic_id: UUID, index: int, leader_epoch: int, offset: int, value: int) -> None:
        if self.unclean.is_over((topic_id, index), leader_epoch):
            return
        known = self.committed_of(topic_id, index)
        if offset >= len(known) or known[offset].value != value:
            self.violated("I2", f"{value} was acknowledged at {offset} and is not committed there")
        self.acked.setdefault(topic_id, {}).setdefault(index, {})[offset] = value
        self.acks += 1

    def acknowledged_alone(self, process: SimBroker, partition: Partition) -> None:
        """With acks=1. Another leads, and our session ended since we began to: the lease should have told."""
        record = self.head.partition(partition.topic_id, partition.index)
        if record is None or record.leader_epoch <= partition.leader_epoch:
            return
        since = self.led_since[partition.topic_id, partition.index, partition.leader_epoch]
        if process.store.timed_out > since:
            self.violated("I12", f"{partition!r} acknowledges a record alone, and {_brief(record)}")

    # --- after every step -----------------------------------------------------------------------------------

    def check(self) -> None:
        if self._changed and self.problem is None:
            self._check_all()
        if self.problem is not None:
            raise self.problem

    def _check_all(self) -> None:
        self._changed = False
        self._note_recovered()
        for topic in self.head.topics_by_id.values():
            for record in self.head.partitions[topic.topic_id]:
                if (record.topic_id, record.index) in self.unclean.undecided:
                    continue
                known = self.committed_of(record.topic_id, record.index)
                key = TopicPartition(topic.name, record.index)
                for member in (*record.isr, *record.elr):
                    self._check_member(key, record, member, known)
                if record.leader >= 0:
                    self._check_leader(key, record, known)

    def _check_member(
        self, key: TopicPartition, record: PartitionRecord, member: int, known: list[LogEntry]
    ) -> None:
        lost = self.lost.get(member)
        if lost is not None and not lost.known:
            return
        log = self.world.disks[member].logs.get(key)
        if log is None or log.topic_id != record.topic_id:
            if known:
                self.violated("I5", f"{key.topic}-{key.partition}: b{member} of {_brief(record)} has no log")
            return
        missing = self._first_missing(log, record, known)
        if missing >= 0:
            self.violated(
                "I5", f"{log.name} lacks {known[missing]} at {missing}, and is a member of {_brief(record)}"
            )

    def _check_leader(self, key: TopicPartition, record: PartitionRecord, known: list[LogEntry]) -> None:
        process = self.world.brokers.get(record.leader)
        if process is None or not process.serving:
            return
        partition = process.partitions.find(*key)
        if partition is None or not partition.leads or partition.leader_epoch != record.leader_epoch:
            return
        log: MemoryLog = partition.log  # type: ignore[assignment]
        missing = self._first_missing(log, record, known)
        if missing >= 0:
            self.violated("I1", f"{log.name} leads and lacks {known[missing]} at {missing}")
        if partition.knows_latest and log.high_watermark < len(known):
            self.violated(
                "I8", f"{log.name} says the latest offset is {log.high_watermark}, and {len(known)} was shown"
            )

    def _first_missing(self, log: MemoryLog, record: PartitionRecord, known: list[LogEntry]) -> int:
        """The first committed offset at which the log has something else, or nothing; -1 if there is none.
        What somebody deleted is not missed. (A follower that was away may even hold something else there, as
        with Kafka: the leader no longer knows what it had.)"""
        deleted = self.deleted.get((record.topic_id, record.index), 0)
        verified, entries = log.verified, log.entries
        have = len(entries)
        while verified < len(known):
            if verified >= deleted and (verified >= have or entries[verified] != known[verified]):
                return verified
            verified += 1
            log.verified = verified
        return -1

    def _note_recovered(self) -> None:
        """A machine counts as one that lost its page cache until it is in every ISR again, and has nothing
        more to report."""
        for broker_id in list(self.lost):
            disk = self.world.disks[broker_id]
            reported = self.lost[broker_id].known and disk.saved_boot_id == disk.boot_id
            if reported and all(broker_id in each.isr for each in self.head.partitions_of(broker_id)):
                del self.lost[broker_id]


def _brief(record: object) -> str:
    if isinstance(record, PartitionRecord):
        moving = f" adding {record.adding} removing {record.removing}" if record.reassigning else ""
        return (
            f"p{record.index} of {record.topic_id.int % 100}: leader {record.leader} epoch "
            f"{record.leader_epoch}.{record.partition_epoch} isr {record.isr} elr {record.elr} "
            f"replicas {record.replicas}{moving}"
        )
    if isinstance(record, BrokerUp):
        return f"up b{record.broker_id} epoch {record.epoch}{' draining' if record.draining else ''}"
    return str(record)
