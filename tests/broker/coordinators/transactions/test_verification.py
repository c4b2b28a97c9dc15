"""Which transactional batches may be written: what the wire cannot easily bring about."""

import asyncio
from types import SimpleNamespace
from typing import Any

from millstream.broker.coordinators.transactions.coordinator import TransactionCoordinator
from millstream.broker.coordinators.transactions.guards import Guards
from millstream.broker.coordinators.transactions.transaction_state import Outcome
from millstream.broker.coordinators.transactions.verification import TransactionVerifier, verdict_of
from millstream.storage.producers import Producer
from millstream.wire.errors import ErrorCode
from millstream.wire.produce import ProduceRequest

from .raw_transactions import Identity, batch

ME = Identity(ErrorCode.none, 5, 0)


class Partition:
    """As much of one as is looked at."""

    def __init__(self, index: int) -> None:
        self.topic = "t"
        self.index = index
        self.open_to_clients = True
        self.leader_epoch = 3
        self.log = SimpleNamespace(producers=SimpleNamespace(by_id={}))

    def knows(self, epoch: int, open_at: int) -> None:
        producer = Producer(ME.id, epoch)
        producer.txn_first_offset = open_at
        self.log.producers.by_id[ME.id] = producer


class Coordinator:
    def __init__(self, verify: bool = True) -> None:
        self.answer = ErrorCode.none
        self.soon: list[ErrorCode] = []  # what is answered before that, one after the other
        self.asked: list[Any] = []
        times = {"add.partitions.to.txn.retry.backoff.ms": 1, "add.partitions.to.txn.retry.backoff.max.ms": 3}
        settings = SimpleNamespace(boolean=lambda name: verify, integer=times.__getitem__)
        self.broker = SimpleNamespace(settings=settings)
        self.guards = Guards()
        self.elsewhere: asyncio.Future[Any] | None = None  # the answer of another broker

    def is_elsewhere(self, txn: str) -> bool:
        return self.elsewhere is not None

    def verify_partitions(self, txn: str, producer_id: int, epoch: int, which: Any) -> Any:
        self.asked.append(("verify", txn, producer_id, epoch, which))
        return dict.fromkeys(which, self.answer)

    def add_partitions(self, txn: str, producer_id: int, epoch: int, which: Any, client_version: int) -> Any:
        self.asked.append(("add", txn, producer_id, epoch, which))
        return Outcome(self.soon.pop(0) if self.soon else self.answer)


class World:
    def __init__(self, **options: bool) -> None:
        self.coordinator = Coordinator(**options)
        self.verifier = TransactionVerifier(self.coordinator)  # type: ignore[arg-type]
        self.partitions = {index: Partition(index) for index in range(2)}

    def verify(
        self,
        version: int,
        *sequences: int,
        epoch: int = 0,
        verdict: Any = None,
    ) -> Any:
        """Batches with these sequences for partition 0, 1, ...: the codes, or a future if they are not known
        yet."""
        identity = ME._replace(epoch=epoch)
        batches = [(at, memoryview(batch(identity, sequence))) for at, sequence in enumerate(sequences)]
        request = ProduceRequest(b"txn", -1, 1000, [(b"t", batches)])
        table: Any = {b"t": self.partitions}
        refused = self.verifier.verify(request, table, version, verdict) or {}
        if isinstance(refused, asyncio.Future):
            return refused
        codes = {partition.index: error.code for partition, error in refused.items()}
        return [codes.get(at, ErrorCode.none) for at in range(len(sequences))]


def test_one_question_for_all_partitions_of_a_request() -> None:
    world = World()
    assert world.verify(12, 0, 0) == [ErrorCode.none] * 2
    assert world.coordinator.asked == [("add", "txn", 5, 0, [("t", 0), ("t", 1)])]


def test_no_question_once_the_transaction_is_open() -> None:
    world = World()
    for partition in world.partitions.values():
        partition.knows(epoch=0, open_at=17)
    for version in (11, 12):
        assert world.verify(version, 3, 3) == [ErrorCode.none] * 2
    assert world.coordinator.asked == []
    world.partitions[1].knows(epoch=0, open_at=-1)
    world.verify(11, 3, 3)
    assert world.coordinator.asked == [("verify", "txn", 5, 0, [("t", 1)])]


def test_a_higher_epoch_begins_a_new_transaction() -> None:
    world = World()
    world.partitions[0].knows(epoch=0, open_at=17)
    world.verify(12, 0, epoch=1)
    assert world.coordinator.asked == [("add", "txn", 5, 1, [("t", 0)])]
    world.partitions[0].knows(epoch=2, open_at=-1)
    assert world.verify(12, 0, epoch=1) == [ErrorCode.invalid_producer_epoch]


def test_a_refused_beginning_is_not_overtaken() -> None:
    """Sequence 0 comes too early; 1, which was sent behind it, must not become the first."""
    world = World()
    world.coordinator.answer = ErrorCode.coordinator_load_in_progress
    assert world.verify(11, 0) == [ErrorCode.not_enough_replicas]
    world.coordinator.answer = ErrorCode.none
    assert world.verify(11, 1) == [ErrorCode.out_of_order_sequence_number]
    assert world.verify(11, 1, epoch=1) == [ErrorCode.none], "another epoch is another story"
    assert world.verify(11, 0) == [ErrorCode.none]
    assert world.verify(11, 1) == [ErrorCode.none]


def test_the_coordinator_judges_before_the_sequence_does() -> None:
    world = World()
    for version in (11, 12):
        world.coordinator.answer = ErrorCode.producer_fenced
        assert world.verify(version, 0) == [ErrorCode.invalid_producer_epoch]
        assert world.verify(version, 5) == [ErrorCode.invalid_producer_epoch]
        world.coordinator.answer = ErrorCode.none
        assert world.verify(version, 5) == [ErrorCode.out_of_order_sequence_number]
        assert world.coordinator.asked[-1][-1] == [("t", 0)]


async def test_a_transaction_that_is_being_completed_is_waited_for() -> None:
    world = World()
    busy = ErrorCode.concurrent_transactions
    world.coordinator.soon = [busy, busy]
    assert (await world.verify(12, 0)).error is ErrorCode.none
    assert world.verify(12, 0) == [ErrorCode.none]
    assert len(world.coordinator.asked) == 4


async def test_but_not_for_long() -> None:
    world = World()
    world.coordinator.answer = ErrorCode.concurrent_transactions
    assert (await world.verify(12, 0)).error is ErrorCode.concurrent_transactions
    assert len(world.coordinator.asked) == 4, "once, and then every millisecond for three"


def test_verification_can_be_switched_off_but_adding_cannot() -> None:
    world = World(verify=False)
    world.coordinator.answer = ErrorCode.transaction_abortable
    assert world.verify(11, 0) == [ErrorCode.none]
    assert world.coordinator.asked == []
    assert world.verify(12, 0) == [ErrorCode.transaction_abortable]


def test_words_that_the_version_understands() -> None:
    world = World()
    busy = ErrorCode.concurrent_transactions
    assert world.verify(12, 0, verdict=busy) == [busy]
    expected = {
        (ErrorCode.transaction_abortable, 10): ErrorCode.invalid_txn_state,
        (ErrorCode.transaction_abortable, 11): ErrorCode.transaction_abortable,
        (ErrorCode.producer_fenced, 12): ErrorCode.invalid_producer_epoch,
        (busy, 11): ErrorCode.not_enough_replicas,
        (ErrorCode.not_coordinator, 12): ErrorCode.not_enough_replicas,
        (ErrorCode.coordinator_not_available, 3): ErrorCode.not_enough_replicas,
        (ErrorCode.invalid_producer_id_mapping, 12): ErrorCode.invalid_producer_id_mapping,
    }
    for (answer, version), code in expected.items():
        world.coordinator.answer = answer
        assert world.verify(version, 0) == [code], (answer, version)


class ElsewhereWorld(World):
    """Another broker coordinates; the test answers for it."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator.elsewhere = asyncio.get_running_loop().create_future()
        self.asked: list[Any] = []

        async def ask_elsewhere(txn: str, pid: int, epoch: int, partitions: Any, adds: bool) -> Any:
            self.asked.append([partition.index for partition in partitions])
            guards = self.coordinator.guards
            up = {each: guards.put_up(each, pid, epoch) for each in partitions}
            assert self.coordinator.elsewhere is not None
            verdicts = await asyncio.shield(self.coordinator.elsewhere)
            for partition, guard in up.items():
                if verdicts["t", partition.index] is ErrorCode.none:
                    guards.verified(partition, pid, guard)
            return verdicts

        self.coordinator.ask_elsewhere = ask_elsewhere  # type: ignore[attr-defined]

    def answer(self, *codes: ErrorCode) -> None:
        assert self.coordinator.elsewhere is not None
        self.coordinator.elsewhere.set_result({("t", at): code for at, code in enumerate(codes)})


async def test_another_broker_is_asked_once_and_its_yes_counts_until_the_marker() -> None:
    world = ElsewhereWorld()
    asked = world.verify(12, 0, 0)
    await asyncio.sleep(0)
    world.answer(ErrorCode.none, ErrorCode.none)
    verdict = verdict_of(await asked)
    assert world.verify(12, 0, 0, verdict=verdict) == [ErrorCode.none] * 2
    assert world.verify(12, 0, 0) == [ErrorCode.none] * 2, "the same again needs no question"
    assert world.asked == [[0, 1]]
    world.coordinator.guards.take_down(world.partitions[0], ME.id)  # type: ignore[arg-type]
    assert isinstance(world.verify(12, 0, 0), asyncio.Future)


async def test_a_marker_that_comes_before_the_yes_makes_it_void() -> None:
    world = ElsewhereWorld()
    asked = world.verify(11, 0)
    await asyncio.sleep(0)
    world.coordinator.guards.take_down(world.partitions[0], ME.id)  # type: ignore[arg-type]
    world.answer(ErrorCode.none)
    verdict = verdict_of(await asked)
    assert world.verify(11, 0, verdict=verdict) == [ErrorCode.invalid_txn_state]


async def test_a_yes_to_another_leader_epoch_or_producer_epoch_does_not_count() -> None:
    world = ElsewhereWorld()
    asked = world.verify(12, 0)
    await asyncio.sleep(0)
    world.answer(ErrorCode.none)
    await asked
    assert world.verify(12, 0) == [ErrorCode.none]
    assert isinstance(world.verify(12, 0, epoch=1), asyncio.Future)
    world.partitions[0].leader_epoch += 1
    assert isinstance(world.verify(12, 0), asyncio.Future)


async def test_each_partition_has_its_own_verdict() -> None:
    world = ElsewhereWorld()
    asked = world.verify(11, 0, 0)
    await asyncio.sleep(0)
    world.answer(ErrorCode.none, ErrorCode.transaction_abortable)
    verdict = verdict_of(await asked)
    assert world.verify(11, 0, 0, verdict=verdict) == [ErrorCode.none, ErrorCode.transaction_abortable]


async def test_a_coordinator_that_cannot_be_asked() -> None:
    world = ElsewhereWorld()
    asked = world.verify(12, 0)
    await asyncio.sleep(0)
    world.answer(ErrorCode.coordinator_not_available)
    verdict = verdict_of(await asked)
    assert world.verify(12, 0, verdict=verdict) == [ErrorCode.not_enough_replicas]
    assert world.verify(12, 0, verdict={}) == [ErrorCode.not_enough_replicas], "nor one that left it out"


async def test_the_marker_of_the_last_transaction_does_not_make_void_what_is_said_after_it() -> None:
    """The coordinator has moved, and completes the producer's last transaction before it says yes: its marker
    comes between the two questions."""
    coordinator: Any = Coordinator()
    coordinator._others = object()
    partition: Any = Partition(0)
    answers = [ErrorCode.concurrent_transactions, ErrorCode.none]

    async def ask_once(question: Any) -> Any:
        answer = answers.pop(0)
        if answer is ErrorCode.concurrent_transactions:
            coordinator.guards.take_down(partition, ME.id)
        return {("t", 0): answer}

    coordinator._ask_once = ask_once
    verdicts = await TransactionCoordinator.ask_elsewhere(coordinator, "txn", ME.id, 0, [partition], True)
    assert verdicts == {("t", 0): ErrorCode.none}
    assert coordinator.guards.is_verified(partition, ME.id, 0)
