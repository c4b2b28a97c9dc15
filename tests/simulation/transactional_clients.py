"""Clients of coordinators in the simulation, and a ledger of what they were told.

A client finds a coordinator or leader in the metadata of some broker, which may be old; asks; and, if there
is no answer or a passing error, asks again. One that gives up closes its connection: what the broker has not
read by then is gone. (Kafka's protocol does not protect a plain commit of offsets against its own delayed
predecessor on another connection; this is not what is tested.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.broker.coordinators.runtime import partition_for
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, encode_batch
from millstream.wire.topic_partition import TopicPartition
from tests.simulation.coordinating_broker import (
    OFFSETS_THAT_ADD,
    OFFSETS_THAT_VERIFY,
    PRODUCE_THAT_ADDS,
    PRODUCE_THAT_VERIFIES,
    CoordinatingBroker,
)

if TYPE_CHECKING:
    from tests.simulation.transaction_world import TransactionWorld

OFFSETS, TRANSACTIONS, DATA = "__consumer_offsets", "__transaction_state", "t"
TIMEOUT = 3.0
TRANSACTION_TIMEOUT_MS = 8_000
PAUSE = 0.1
NO_ANSWER = ErrorCode.network_exception
PASSING = frozenset(
    {
        NO_ANSWER,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
    }
)


@dataclass
class LedgerEntry:
    """One transaction, as its client knows it."""

    number: int
    parts: set[TopicPartition] = field(default_factory=set)
    asked_commit: bool = False
    outcome: str = "open"  # then committed, aborted, or unknown
    late: set[TopicPartition] = field(default_factory=set)  # written to after the producer was fenced


class Client:
    def __init__(self, world: TransactionWorld) -> None:
        self.world = world

    def leader(self, topic: str, index: int) -> int:
        """As some broker sees it; -1 for nobody."""
        known = [each for each in self.world.brokers.values() if each is not None and each.serving]
        if not known:
            return -1
        image = self.world.random.choice(known).image
        found = image.topic(topic)
        record = None if found is None else image.partition(found.topic_id, index)
        return -1 if record is None else record.leader

    def coordinator(self, topic: str, key: str) -> int:
        return self.leader(topic, partition_for(key, self.world.counts_of[topic]))

    async def ask(self, broker_id: int, request: Callable[[CoordinatingBroker], Awaitable[Any]]) -> Any:
        """The answer, or None."""
        world, loop = self.world, self.world.loop
        future: asyncio.Future[Any] = loop.create_future()

        async def serve(server: CoordinatingBroker) -> None:
            answer = await request(server)
            if server.node_id in world.held:
                await world.held[server.node_id].wait()
            if not world.dropped():
                loop.call_later(world.delay(), lambda: future.done() or future.set_result(answer))

        def arrive() -> None:
            gate = world.held.get(broker_id)
            if gate is not None and not future.done():
                world.when_open(gate, arrive)
                return
            server = world.brokers.get(broker_id)
            if future.done() or server is None or not server.serving:
                return
            assert isinstance(server, CoordinatingBroker)
            loop.create_task(serve(server), context=server.context)

        if broker_id >= 0 and not world.dropped():
            loop.call_later(world.delay(), arrive)
        try:
            async with asyncio.timeout(TIMEOUT if broker_id >= 0 else PAUSE):
                return await future
        except TimeoutError:
            return None

    async def insist(
        self,
        where: Callable[[], int],
        request: Callable[[CoordinatingBroker], Awaitable[ErrorCode]],
        stop: Callable[[], bool] = lambda: False,
    ) -> ErrorCode:
        """Until the answer is not a passing one."""
        while not stop():
            code = await self.ask(where(), request)
            if code is not None and code not in PASSING:
                return ErrorCode(code)
            await asyncio.sleep(PAUSE)
        return NO_ANSWER


class TransactionalProducer(Client):
    """One instance of a producer. Another one of the same transactional id may begin at any time."""

    def __init__(self, world: TransactionWorld, transactional_id: str, newer: bool) -> None:
        super().__init__(world)
        self.transactional_id = transactional_id
        self.newer = newer  # transaction version 2
        self.group = f"group of {transactional_id}"
        self.identity: tuple[int, int] | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self.timeout_ms = TRANSACTION_TIMEOUT_MS
        self.replaced = False  # somebody else is to take over
        self.fenced = False  # and has

    def __repr__(self) -> str:
        return f"{self.transactional_id}{self.identity}"

    async def run(self) -> None:
        while not self.world.ending and not (self.replaced and self.identity is None):
            if self.identity is None:
                await self.init()
            else:
                await self.one_transaction(self.identity)
            await asyncio.sleep(self.world.random.expovariate(1 / 0.3))

    async def init(self) -> None:
        self.sequences.clear()
        while self.identity is None and not self.world.ending and not self.replaced:
            outcome = await self.ask(
                self.coordinator(TRANSACTIONS, self.transactional_id),
                lambda server: server.init_producer_id(self.transactional_id, self.timeout_ms),
            )
            if outcome is not None and outcome.error is ErrorCode.none and not self.replaced:
                self.identity = outcome.producer_id, outcome.epoch
                self.world.trace(f"{self!r} begins")
                self.world.took_over(self)
            else:
                await asyncio.sleep(PAUSE)

    async def one_transaction(self, identity: tuple[int, int]) -> None:
        world, seeded = self.world, self.world.random
        entry = world.new_entry()
        wanted = seeded.sample(world.data_partitions, seeded.randint(1, len(world.data_partitions)))
        self.trace(entry, f"writes to {[where.partition for where in wanted]}")
        for where in wanted:
            if not await self.write(entry, where, identity):
                return self.give_up(entry)
        if seeded.random() < 0.7 and not await self.commit_offset(entry, identity):
            return self.give_up(entry)
        entry.asked_commit = seeded.random() < 0.75
        await self.end(entry, identity)

    async def write(self, entry: LedgerEntry, where: TopicPartition, identity: tuple[int, int]) -> bool:
        if not self.newer and not await self.add(where, identity):
            return False
        sequence = self.sequences.get(where, 0)
        self.sequences[where] = sequence + 1
        batch = encode_batch(
            [Record(0, 1, None, str(entry.number).encode(), ())],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=True,
        )
        entry.parts.add(where)
        if self.fenced:
            entry.late.add(where)
        version = PRODUCE_THAT_ADDS if self.newer else PRODUCE_THAT_VERIFIES
        code = await self.insist(
            lambda: self.leader(*where),
            lambda server: server.produce_batch(where, bytes(batch), self.transactional_id, version),
        )
        if code is not ErrorCode.none:
            self.trace(entry, f"may not write to {where.partition}: {code.name}")
        return code is ErrorCode.none

    async def add(self, where: TopicPartition, identity: tuple[int, int]) -> bool:
        code = await self.insist(
            lambda: self.coordinator(TRANSACTIONS, self.transactional_id),
            lambda server: server.add_partitions(self.transactional_id, identity, [where]),
        )
        return code is ErrorCode.none

    async def commit_offset(self, entry: LedgerEntry, identity: tuple[int, int]) -> bool:
        home = TopicPartition(OFFSETS, partition_for(self.group, self.world.counts_of[OFFSETS]))
        if not self.newer and not await self.add(home, identity):
            return False
        entry.parts.add(home)
        if self.fenced:
            entry.late.add(home)
        version = OFFSETS_THAT_ADD if self.newer else OFFSETS_THAT_VERIFY
        code = await self.insist(
            lambda: self.coordinator(OFFSETS, self.group),
            lambda server: server.commit_offset(
                self.group,
                TopicPartition(DATA, 0),
                entry.number,
                (self.transactional_id, identity, version),
            ),
        )
        return code is ErrorCode.none

    async def end(self, entry: LedgerEntry, identity: tuple[int, int]) -> None:
        commit = entry.asked_commit
        while True:
            outcome = await self.ask(
                self.coordinator(TRANSACTIONS, self.transactional_id),
                lambda server: server.end_transaction(
                    self.transactional_id, identity, commit, 2 if self.newer else 0
                ),
            )
            if outcome is not None and outcome.error not in PASSING:
                break
            await asyncio.sleep(PAUSE)
        if outcome.error is not ErrorCode.none:
            self.trace(entry, f"cannot be ended: {outcome.error.name}")
            return self.give_up(entry)
        entry.outcome = "committed" if commit else "aborted"
        self.trace(entry, entry.outcome)
        if self.newer:
            self.identity = outcome.producer_id, outcome.epoch
            self.sequences.clear()

    def give_up(self, entry: LedgerEntry) -> None:
        entry.outcome = "unknown"
        self.identity = None

    def trace(self, entry: LedgerEntry, what: str) -> None:
        self.world.trace(f"{self!r}: transaction {entry.number} {what}")


class OffsetClient(Client):
    """Commits growing offsets of a group without members, and reads them."""

    def __init__(self, world: TransactionWorld, group: str) -> None:
        super().__init__(world)
        self.group = group
        self.acknowledged = -1

    async def run(self) -> None:
        where, offset = TopicPartition(DATA, 0), 0
        while not self.world.ending:
            offset += 1
            await self.insist(
                lambda: self.coordinator(OFFSETS, self.group),
                lambda server, at=offset: server.commit_offset(self.group, where, at),  # type: ignore[misc]
            )
            self.acknowledged = offset
            await self.look(where)
            await asyncio.sleep(self.world.random.expovariate(1 / 0.4))

    async def look(self, where: TopicPartition) -> None:
        least = self.acknowledged

        async def read(server: CoordinatingBroker) -> None:
            try:
                offset, epoch = server.committed_offset(self.group, where)
            except KafkaError:
                return
            self.world.offset_seen(self.group, least, offset, epoch)

        await self.ask(self.coordinator(OFFSETS, self.group), read)
