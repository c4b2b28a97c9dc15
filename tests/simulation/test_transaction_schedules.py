"""Schedules for rules of coordinators that chance rarely needs: each goes well with the rule, and wrong
without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.cluster.commands import BrokerLost
from millstream.wire.topic_partition import TopicPartition
from tests.simulation.mutants import applied
from tests.simulation.transaction_mutants import SCHEDULED
from tests.simulation.transaction_world import TransactionWorld
from tests.simulation.transactional_clients import DATA, TRANSACTIONS, LedgerEntry, TransactionalProducer
from tests.simulation.world import Plan, World, simulate

PLAN = Plan(brokers=4, partitions=2, min_isr=1, power_cuts=False, slow=0.0, drop=0.0, repeat=0.0)
FIRST, SECOND = TopicPartition(DATA, 0), TopicPartition(DATA, 1)


class StagedWorld(TransactionWorld):
    """No chance. Brokers a, b and c keep the log of transactions; d is the controller. The data have one
    copy: the first partition at b, the second at d."""

    def roles(self) -> tuple[int, int, int, int]:
        d = next(each for each in self.ids if self._leads(each))
        a, b, c = (each for each in self.ids if each != d)
        return a, b, c, d

    def replicas_of(self, topic: str, index: int) -> list[int]:
        a, b, c, d = self.roles()
        if topic == DATA:
            return [b, d][index : index + 1]
        return [a, b, c] if topic == TRANSACTIONS else [d]

    def start_clients(self) -> None: ...

    def end_of(self, broker_id: int, where: TopicPartition) -> int:
        return self.disks[broker_id].logs[where].end_offset

    def leader_of(self, where: TopicPartition) -> int:
        topic = self.checker.head.topics_by_name[where.topic]
        record = self.checker.head.partition(topic.topic_id, where.partition)
        return -1 if record is None else record.leader

    def log_of(self, producer: TransactionalProducer) -> TopicPartition:
        """The partition that keeps its transactions."""
        return TopicPartition(
            TRANSACTIONS,
            self.brokers[self.ids[0]].transactions.runtime.partition_for(producer.transactional_id),  # type: ignore[union-attr]
        )

    async def settled(self) -> None:
        self.cut, self.visible = set(), {}
        self.hub.wake()
        for broker_id in self.ids:
            self.start(broker_id)
        await self.all_ended()
        self._check_transactions()


async def begun(
    world: StagedWorld, newer: bool, *parts: TopicPartition, timeout_ms: int = 8_000
) -> tuple[TransactionalProducer, LedgerEntry]:
    """A producer with an open transaction on these partitions."""
    producer = TransactionalProducer(world, "p", newer)
    producer.timeout_ms = timeout_ms
    await producer.init()
    return producer, await written(world, producer, *parts)


async def written(world: StagedWorld, producer: TransactionalProducer, *parts: TopicPartition) -> LedgerEntry:
    entry = world.new_entry()
    assert producer.identity is not None
    for where in parts:
        assert await producer.write(entry, where, producer.identity)
    return entry


async def serves_what_is_committed(world: StagedWorld) -> None:
    """The decision reaches one follower only, which leads next, and is lost with it. Its client is gone, too,
    so the transaction is aborted: nobody may have seen the commit."""
    a, b, c, d = world.roles()
    producer, entry = await begun(world, True, FIRST, SECOND)
    log = world.log_of(producer)
    # c hears nothing of the decision, not even by a fetch that waits; d nothing of what b makes of it.
    world.cut = {(c, a), (a, c), (c, b), (b, c), (b, d)}
    before, marked = world.end_of(a, log), world.end_of(b, FIRST)
    entry.asked_commit, entry.outcome = True, "unknown"
    ending = asyncio.ensure_future(producer.end(entry, producer.identity))  # type: ignore[arg-type]
    await world.until(lambda: world.end_of(b, log) > before)
    ending.cancel()
    world._end(a, 0.01)
    await world.until(lambda: world.leader_of(log) == b)
    for _ in range(12):  # shorter than the time after which c leaves the ISR
        await asyncio.sleep(0.05)
        if world.end_of(b, FIRST) > marked:
            break
    world._end(b, 0.01)
    await world.until(lambda: world.leader_of(log) == c)
    await world.settled()
    entry.outcome = "unknown"


async def late_markers(world: StagedWorld) -> None:
    """A coordinator that does not know that it was replaced marks a transaction that has long ended; the
    producer's next one, of the same epoch, is open."""
    a, b, _, d = world.roles()
    producer, first = await begun(world, False, SECOND, timeout_ms=60_000)
    log = world.log_of(producer)
    world.cut = {(a, d)}  # the marker waits
    first.asked_commit = True
    ending = asyncio.ensure_future(producer.end(first, producer.identity))  # type: ignore[arg-type]
    await world.until(lambda: world.leader_of(log) == a and world.brokers[a] is not None)
    await asyncio.sleep(1.0)
    world.visible[a] = world.hub.version  # it sees nothing of what comes
    process = world.brokers[a]
    assert process is not None
    world.submit(BrokerLost(a, process.controller.broker_epoch), f"b{a} is dead")
    await world.until(lambda: world.leader_of(log) == b)
    await ending
    await asyncio.sleep(1.0)
    second = await written(world, producer, SECOND)
    size = world.end_of(d, SECOND)
    world.cut = set()
    for _ in range(150):  # longer than the old coordinator waits before it tries again
        await asyncio.sleep(0.1)
        if world.end_of(d, SECOND) > size:
            break
    assert producer.identity is not None
    await producer.end(second, producer.identity)
    await world.settled()


SCHEDULES: dict[str, Callable[[StagedWorld], Awaitable[None]]] = {
    "a shard serves what is committed": serves_what_is_committed,
    "late markers are refused": late_markers,
}


def problem_of(rule: str) -> str:
    """What goes wrong in the schedule of this rule; empty if nothing does."""

    async def play(world: StagedWorld) -> None:
        world.calm = True
        await World.begin(world)
        await SCHEDULES[rule](world)

    outcome = simulate(1, PLAN, script=play, kind=StagedWorld)
    return "" if outcome.problem is None else "\n".join([*outcome.world.lines, repr(outcome.problem)])


@pytest.mark.parametrize("rule", SCHEDULES)
def test_the_schedule_goes_well(rule: str) -> None:
    assert problem_of(rule) == ""


@pytest.mark.parametrize("rule", SCHEDULES)
def test_without_its_rule_it_goes_wrong(rule: str) -> None:
    with applied(SCHEDULED[rule]):
        problem = problem_of(rule)
    assert "Violation" in problem
