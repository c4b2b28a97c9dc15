"""Groups and transactions under faults: what their clients were told must be so, whoever coordinates.

T1  A transaction whose commit was acknowledged is visible on all its partitions, committed offsets included;
    one that nobody asked to commit, or whose abort was acknowledged, on none; any other on all or none.
T2  A producer that has been fenced writes nothing any more.
T3  An acknowledged offset of a group never goes back.
T4  Once faults stop, every transaction comes to its end: nothing holds back readers of committed records.

Visible is what a reader makes of the log itself: batches of a producer count when its next marker commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from millstream.broker.coordinators.groups.offset_records import (
    key_type,
    parse_offset_key_prefix,
    parse_offset_value,
)
from millstream.broker.coordinators.runtime import partition_for
from millstream.broker.coordinators.transactions.transaction_state import IDLE
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.settings.resolve import BrokerSettings
from millstream.wire.batch import CONTROL, TRANSACTIONAL, read_header
from millstream.wire.records import COMMIT_MARKER, control_type, iter_records
from millstream.wire.topic_partition import TopicPartition
from tests.simulation.batch_log import BatchLog
from tests.simulation.coordinating_broker import CoordinatingBroker
from tests.simulation.faults import KINDS
from tests.simulation.invariants import Violation
from tests.simulation.transactional_clients import (
    DATA,
    OFFSETS,
    TRANSACTIONS,
    LedgerEntry,
    OffsetClient,
    TransactionalProducer,
)
from tests.simulation.world import HEALING, World

# Not those that lose what clients were told, or that are about records alone.
LEFT_OUT = ("min isr", "delete records", "recreate")
SETTINGS = BrokerSettings(
    {
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.backoff.ms": "100",
        "replica.fetch.wait.max.ms": "300",
        "replica.fetch.max.bytes": "300",
        "request.timeout.ms": "3000",
    }
)


class TransactionWorld(World):
    log_class = BatchLog
    broker_class = CoordinatingBroker
    features: ClassVar[dict[str, tuple[int, int]]] = {"transaction.version": (0, 2)}
    kinds = (
        (*(kind for kind in KINDS[0] if kind not in LEFT_OUT), "replace", "start"),
        (*(weight for kind, weight in zip(*KINDS, strict=True) if kind not in LEFT_OUT), 12, 30),
    )
    counts_of: ClassVar[dict[str, int]] = {OFFSETS: 2, TRANSACTIONS: 2}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.settings = SETTINGS
        self.plan.pause *= 2  # a transaction is many steps: most should come to their end
        self.plan.seconds = 35.0
        self.plan.unclean = False  # what clients were told would not hold
        self.data_partitions = [TopicPartition(DATA, index) for index in range(self.plan.partitions)]
        self.ledger: list[LedgerEntry] = []
        self.producers: dict[str, TransactionalProducer] = {}  # by transactional id: the newest instance
        self.instances: dict[str, list[TransactionalProducer]] = {}
        self.groups: list[OffsetClient] = []
        self.ending = False
        self._clients: list[asyncio.Task[None]] = []

    # --- for the clients ------------------------------------------------------------------------------------

    def dropped(self) -> bool:
        return self._dropped()

    when_open = World._when_open

    def new_entry(self) -> LedgerEntry:
        self.ledger.append(LedgerEntry(len(self.ledger)))
        return self.ledger[-1]

    def took_over(self, producer: TransactionalProducer) -> None:
        """The transactional id is this instance's: what others begin from now on must come to nothing."""
        for each in self.instances.get(producer.transactional_id, ()):
            if each is not producer:
                each.fenced = True

    def offset_seen(self, group: str, least: int, offset: int, epoch: int) -> None:
        """A former coordinator that has not heard of its end may answer from memory, as in Kafka."""
        topic = self.checker.head.topics_by_name[OFFSETS]
        record = self.checker.head.partition(topic.topic_id, partition_for(group, self.counts_of[OFFSETS]))
        if offset < least and record is not None and record.leader_epoch == epoch:
            self.checker.violated("T3", f"{group} was at {least}, and is at {offset} now")

    # --- a run ----------------------------------------------------------------------------------------------

    @property
    def acknowledged(self) -> int:
        return sum(entry.outcome in ("committed", "aborted") for entry in self.ledger)

    @property
    def partition_count(self) -> int:
        return self.plan.partitions + sum(self.counts_of.values())

    def create_topic(self) -> None:
        configs = {"min.insync.replicas": str(self.plan.min_isr)}
        counts = {DATA: self.plan.partitions, **self.counts_of}
        topics = [
            NewTopic(
                name,
                assignments=[(index, self.replicas_of(name, index)) for index in range(count)],
                configs=configs,
            )
            for name, count in counts.items()
        ]
        self.submit(CreateTopics(topics), "create topics")

    def replicas_of(self, topic: str, index: int) -> list[int]:
        return self.random.sample(self.ids, 3)

    async def begin(self) -> None:
        await super().begin()
        self.start_clients()

    def start_clients(self) -> None:
        for number in range(2):
            self._new_producer(f"p{number}", newer=self.random.random() < 0.6)
        for number in range(2):
            client = OffsetClient(self, f"g{number}")
            self.groups.append(client)
            self._clients.append(self.loop.create_task(client.run()))

    def _new_producer(self, transactional_id: str, newer: bool) -> None:
        producer = self.producers[transactional_id] = TransactionalProducer(self, transactional_id, newer)
        self.instances.setdefault(transactional_id, []).append(producer)
        self._clients.append(self.loop.create_task(producer.run()))

    def other_fault(self, kind: str) -> None:
        """Another instance takes a transactional id over, while the first one does not know."""
        if kind == "replace":
            transactional_id = self.random.choice(sorted(self.producers))
            before = self.producers[transactional_id]
            before.replaced = True
            self.trace(f"{before!r} is replaced")
            self._new_producer(transactional_id, before.newer)

    def load(self) -> None:
        """Clients go at their own pace."""

    async def heal(self) -> None:
        self.ending = True
        await super().heal()

    async def check_work(self) -> None:
        await self._all_clients_end()
        self.ending = False  # everybody can work again
        for transactional_id, before in sorted(self.producers.items()):
            before.replaced = True
            self._new_producer(transactional_id, before.newer)
        count = len(self.ledger) + 2 * len(self.producers)
        await self.until(lambda: len(self.ledger) >= count, HEALING)
        self.ending = True
        await self._all_clients_end()
        await self.all_ended()
        self._check_transactions()
        self._check_groups()
        for group in self.groups:
            await group.look(TopicPartition(DATA, 0))

    async def _all_clients_end(self) -> None:
        _, late = await asyncio.wait(self._clients, timeout=HEALING)
        if late:
            raise Violation("T4", "a client never gets an answer")
        for client in self._clients:
            client.result()

    async def all_ended(self) -> None:
        """T4."""
        end = self.loop.now + HEALING
        while problem := self.state() or next(self._open_transactions(), ""):
            if self.loop.now > end:
                raise Violation("T4", f"not within {HEALING} s: {problem}")
            await asyncio.sleep(0.05)

    def _open_transactions(self) -> Iterator[str]:
        for process, partition in self.led():
            assert isinstance(process, CoordinatingBroker)
            log = partition.log
            if log.last_stable_offset != log.high_watermark:
                yield f"{process!r}/{partition!r} is stable up to {log.last_stable_offset} only"
            if partition.topic == TRANSACTIONS:
                shard = process.transactions.runtime.shards.get(partition.index)
                if shard is None or not shard.ready:
                    yield f"{process!r}/{partition!r} is not loaded"
                elif any(each.state not in IDLE for each in shard.all()):
                    yield f"{process!r}/{partition!r} has open transactions"

    # --- what readers see -----------------------------------------------------------------------------------

    def _check_transactions(self) -> None:
        visible: dict[int, set[TopicPartition]] = {}
        written: dict[int, set[TopicPartition]] = {}
        for process, partition in self.led():
            if partition.topic == TRANSACTIONS:
                continue
            where = TopicPartition(partition.topic, partition.index)
            assert isinstance(partition.log, BatchLog)
            for number in _all_numbers(partition.log):
                written.setdefault(number, set()).add(where)
            for _, number in _visible(partition.log):
                # An offset that is committed again is the same offset.
                if where in visible.setdefault(number, set()) and where.topic == DATA:
                    raise Violation("T1", f"{process!r}/{where} shows transaction {number} twice")
                visible[number].add(where)
        for entry in self.ledger:
            shown = visible.get(entry.number, set())
            if entry.outcome == "committed":
                wanted = [entry.parts]
            elif entry.asked_commit and entry.outcome == "unknown":
                wanted = [entry.parts, set()]
            else:
                wanted = [set()]
            if shown not in wanted:
                raise Violation("T1", f"{entry} is visible on {sorted(shown)}")
            if late := entry.late & written.get(entry.number, set()):
                raise Violation("T2", f"{entry} was written to {sorted(late)}")

    def _check_groups(self) -> None:
        """What the coordinator tells of a group is what its log says."""
        where = TopicPartition(DATA, 0)
        for transactional_id, producer in self.producers.items():
            index = partition_for(producer.group, self.counts_of[OFFSETS])
            for process, partition in self.led():
                if (partition.topic, partition.index) == (OFFSETS, index):
                    assert isinstance(process, CoordinatingBroker) and isinstance(partition.log, BatchLog)
                    offset, _ = process.committed_offset(producer.group, where)
                    of_group = dict(_visible(partition.log, producer.group))
                    last = of_group[max(of_group)] if of_group else -1
                    if offset != last:
                        raise Violation("T3", f"{transactional_id} is at {offset}, its log says {last}")


def _numbers(batch: bytes, group: str) -> Iterator[tuple[int, int]]:
    """(position, number of the transaction); of the offsets of one group, or of all if it is empty."""
    for record in iter_records(batch):
        key, value = record.key, record.value or b""
        if key is None:
            yield record.offset, int(value)
        elif key_type(key) <= 1 and value and group in ("", parse_offset_key_prefix(key[:-4])[0]):
            yield record.offset, parse_offset_value(value).offset


def _all_numbers(log: BatchLog) -> Iterator[int]:
    for _, batch in log.batches(0):
        attributes = read_header(batch).attributes
        if attributes & TRANSACTIONAL and not attributes & CONTROL:
            yield from (number for _, number in _numbers(batch, ""))


def _visible(log: BatchLog, group: str = "") -> Iterator[tuple[int, int]]:
    """What a reader of committed records finds in it that was written in transactions."""
    undecided: dict[int, list[tuple[int, int]]] = {}
    for _, batch in log.batches(0):
        header = read_header(batch)
        if header.attributes & CONTROL:
            (record,) = iter_records(batch)
            found = undecided.pop(header.producer_id, [])
            if control_type(record.key or b"") == COMMIT_MARKER:
                yield from found
        elif header.attributes & TRANSACTIONAL:
            undecided.setdefault(header.producer_id, []).extend(_numbers(batch, group))
