"""A decided transaction comes to its end, whatever the partitions and the log say on the way."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.coordinators.transactions import markers as module
from millstream.broker.coordinators.transactions.markers import MARKERS_PER_TURN, Completion, LocalMarkers
from millstream.broker.coordinators.transactions.transaction_records import (
    State,
    TopicPartition,
    Transaction,
)
from millstream.broker.coordinators.transactions.transaction_state import (
    MAX_EPOCH,
    Marker,
    TransactionStateMachine,
)
from millstream.storage.producers import Producer
from millstream.wire.errors import ErrorCode, KafkaError

SHARD: Any = SimpleNamespace(epoch=7, partition="__transaction_state-1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)


class Markers:
    """A writer that does what the test says: nothing, an error, or a future."""

    def __init__(self, *behaviour: Callable[[], asyncio.Future[None] | None]) -> None:
        self.behaviour = list(behaviour)
        self.written: list[TopicPartition] = []

    def write(self, marker: Marker, coordinator_epoch: int, partition: TopicPartition) -> Any:
        assert marker == Marker(5, 3, True, 2)
        assert coordinator_epoch == 7
        result = self.behaviour.pop(0)() if self.behaviour else None
        self.written.append(partition)
        return result


def raises(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


async def finish(
    count: int, writer: Markers, refusals: int = 0, each_turn: Callable[[], None] = lambda: None
) -> list[State]:
    """Run a completion to its end; the transaction log refuses the last record a few times."""
    partitions = frozenset(("t", n) for n in range(count))
    machine = TransactionStateMachine(
        Transaction("id", 5, 3, 1000, State.PREPARE_COMMIT, partitions, 0, 0, 5, -1, 2)
    )
    log: list[State] = []
    done = asyncio.Event()

    def write(completion: Completion, transaction: Transaction) -> None:
        nonlocal refusals
        log.append(transaction.state)
        if refusals:
            refusals -= 1
            machine.give_up()
            completion.retry()
        else:
            machine.written()
            done.set()

    Completion(SHARD, machine, writer, write).run()
    async with asyncio.timeout(60):
        for _ in range(10_000):
            each_turn()
            if done.is_set():
                break
            await asyncio.sleep(0.001)
        await done.wait()
    assert machine.current.state is State.COMPLETE_COMMIT
    return log


async def test_all_at_once() -> None:
    writer = Markers()
    assert await finish(3, writer) == [State.COMPLETE_COMMIT]
    assert writer.written == [("t", 0), ("t", 1), ("t", 2)]


async def test_a_transaction_without_partitions() -> None:
    assert await finish(0, Markers()) == [State.COMPLETE_COMMIT]


async def test_many_partitions_take_several_turns() -> None:
    writer = Markers()
    await finish(3 * MARKERS_PER_TURN + 1, writer)
    assert len(writer.written) == len(set(writer.written)) == 3 * MARKERS_PER_TURN + 1


async def test_a_partition_that_cannot_take_it_now_is_asked_again() -> None:
    not_now = [
        raises(KafkaError(ErrorCode.not_leader_or_follower)),
        raises(KafkaError(ErrorCode.kafka_storage_error)),
        raises(OSError(28, "No space left on device")),
        raises(RuntimeError("nobody thought of this")),
    ]
    writer = Markers(*not_now)
    await finish(2, writer)
    assert set(writer.written) == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("code", [ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_producer_epoch])
async def test_a_partition_that_needs_none_is_not_asked_again(code: ErrorCode) -> None:
    writer = Markers(raises(KafkaError(code)))
    await finish(2, writer)
    assert writer.written == [("t", 1)]


async def test_markers_that_are_committed_later() -> None:
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[None]] = [loop.create_future() for _ in range(3)]
    writer = Markers(*(lambda future=future: future for future in futures))
    turns = iter([lambda: futures[1].set_result(None), lambda: futures[0].set_result(None)])

    def each_turn() -> None:
        next(turns, lambda: None)()
        if not futures[2].done() and futures[0].done():
            futures[2].set_exception(KafkaError(ErrorCode.not_leader_or_follower))

    await finish(3, writer, each_turn=each_turn)
    assert writer.written == [("t", 0), ("t", 1), ("t", 2), ("t", 2)], "the one that failed is written again"


async def test_a_log_that_cannot_take_the_last_record_is_asked_again() -> None:
    writer = Markers()
    assert await finish(2, writer, refusals=3) == [State.COMPLETE_COMMIT] * 4
    assert len(writer.written) == 2, "the markers are not written again"


async def test_after_stop_nothing_more_happens() -> None:
    machine = TransactionStateMachine(
        Transaction("id", 5, 3, 1000, State.PREPARE_COMMIT, frozenset({("t", 0)}), 0, 0, 5, -1, 2)
    )
    writer = Markers(raises(KafkaError(ErrorCode.not_leader_or_follower)))
    completion = Completion(SHARD, machine, writer, lambda *_: pytest.fail("must not be written"))
    completion.run()
    completion.stop()
    # What must not happen is a retry.
    await asyncio.sleep(0.02)
    assert writer.written == []


@pytest.mark.parametrize(
    ("known", "open_at", "marker", "accepted"),
    [
        (3, 17, Marker(5, 3, True, 2), False),  # comes too late: it would end the next transaction
        (3, 17, Marker(5, 4, True, 2), True),
        (3, -1, Marker(5, 3, True, 2), True),  # repeated, nothing is open
        (3, 17, Marker(5, 3, True, 0), True),  # before version 2 epochs stay the same
        (MAX_EPOCH, 17, Marker(5, MAX_EPOCH, False, 2), True),  # there is no higher one
    ],
)
def test_from_version_2_on_a_marker_is_above_its_records(
    known: int, open_at: int, marker: Marker, accepted: bool
) -> None:
    producer = Producer(5, known)
    producer.txn_first_offset = open_at
    log = SimpleNamespace(producers=SimpleNamespace(by_id={5: producer}))
    partition: Any = SimpleNamespace(topic="t", index=0, leads=True, enough_in_sync=True, log=log)
    broker: Any = None
    if accepted:
        LocalMarkers(broker)._check(partition, marker)
        return
    with pytest.raises(KafkaError) as raised:
        LocalMarkers(broker)._check(partition, marker)
    assert raised.value.code is ErrorCode.invalid_producer_epoch
