"""Schedules for rules that chance rarely needs: each goes well with the rule, and wrong without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from millstream.broker.partition import Partition
from millstream.cluster.commands import AlterPartition, BrokerLost, Command, IsrProposal, UnregisterBroker
from millstream.cluster.metadata_records import Partition as PartitionRecord
from millstream.wire.replica_fetch import Position, ReplicaFetch, pack_replica_fetch
from tests.simulation.fake_store import SESSION
from tests.simulation.machine_clock import PACE
from tests.simulation.mutants import without
from tests.simulation.sim_broker import SimBroker
from tests.simulation.world import Plan, World, simulate

CALM = Plan(brokers=4, partitions=1, min_isr=1, power_cuts=False, slow=0.0, drop=0.0, repeat=0.0, apart=True)


class Stage:
    """A world without chance, in which the test says what happens. The controller has no replica."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.controller = next(each for each in world.ids if self.broker(each).controller.leading)
        self.leader, self.second, self.third = self.record().replicas

    def broker(self, broker_id: int) -> SimBroker:
        process = self.world.brokers[broker_id]
        assert process is not None
        return process

    def record(self) -> PartitionRecord:
        return next(self.world.checker.head.all_partitions())

    def topic_id(self) -> UUID:
        return self.record().topic_id

    def replica(self, broker_id: int) -> Partition:
        found = self.broker(broker_id).partitions.find("t", 0)
        assert found is not None
        return found

    def put(self, broker_id: int) -> None:
        self.world.produce(self.broker(broker_id), self.replica(broker_id), acks=1)

    def end(self, broker_id: int) -> int:
        return self.replica(broker_id).log.end_offset

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.world.until(condition)

    async def all_have(self, count: int, *brokers: int) -> None:
        await self.until(lambda: all(self.end(broker_id) == count for broker_id in brokers))

    async def committed(self, count: int) -> None:
        known = self.world.checker.committed_of(self.topic_id(), 0)
        await self.until(lambda: len(known) >= count)

    async def leads(self, broker_id: int) -> None:
        await self.until(lambda: self.record().leader == broker_id and self.replica(broker_id).leads)

    async def in_sync(self, *brokers: int) -> None:
        await self.until(lambda: set(self.record().isr) == set(brokers))

    async def ask(self, command: Command[object]) -> None:
        self.world.submit(command, type(command).__name__)
        await asyncio.sleep(0.5)

    async def declare_dead(self, broker_id: int) -> None:
        await self.ask(BrokerLost(broker_id, self.broker(broker_id).controller.broker_epoch))

    def cut(self, one: int, *others: int) -> None:
        for other in others:
            self.world.cut |= {(one, other), (other, one)}

    def mend(self) -> None:
        self.world.cut = set()

    def freeze(self, broker_id: int) -> None:
        """It sees nothing new of the metadata log."""
        self.world.visible[broker_id] = self.world.hub.version

    def show(self, broker_id: int, version: int | None = None) -> None:
        if version is None:
            del self.world.visible[broker_id]
        else:
            self.world.visible[broker_id] = version
        self.world.hub.wake()

    def late_fetch(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        """A request of that life of the broker, which was long under way, reaches the leader."""
        leader = self.broker(self.record().leader)
        position = Position(self.record().leader_epoch, offset, self.record().leader_epoch, 0)
        request = ReplicaFetch(0, 0, [((self.topic_id().bytes, 0), position)], [])
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "partition_max_bytes": 60}
        body = pack_replica_fetch(request, broker_id, broker_epoch, **limits)
        leader.context.run(leader.serve_fetch, body, lambda answer: None)


async def leader_epochs(stage: Stage) -> None:
    """KIP-320: a follower that skipped an epoch must not be served by two leaders. It hears of nothing while
    the leadership goes to the second and back. What it fetches from the first, under an epoch that is over,
    must not count: the second, whom it hears of next, makes it cut that off."""
    first, second, follower = stage.leader, stage.second, stage.third
    stage.put(first)
    await stage.all_have(1, second, follower)
    await stage.committed(1)
    stage.freeze(follower)
    await stage.declare_dead(first)  # wrongly; it registers again and follows
    await stage.leads(second)
    stage.put(second)
    await stage.all_have(2, first)
    await stage.until(lambda: first in stage.record().isr)
    middle = stage.world.hub.version
    stage.freeze(second)  # from here on it takes itself for the leader
    await stage.declare_dead(second)
    await stage.leads(first)
    stage.put(first)
    await asyncio.sleep(1.0)
    stage.show(follower, middle)
    await asyncio.sleep(5.0)
    stage.show(second)
    stage.show(follower)
    await stage.until(stage.world.is_whole)


async def broker_epochs(stage: Stage) -> None:
    """KIP-903: a fetch of an earlier life of a broker, whose disk is another one by now, comes late."""
    leader, lost = stage.leader, stage.second
    stage.put(leader)
    await stage.committed(1)
    stage.cut(lost, leader)
    stage.put(leader)
    await stage.until(lambda: lost not in stage.record().isr)
    before = stage.broker(lost).controller.broker_epoch
    stage.world.cut_power(lost)
    for log in stage.world.disks[lost].logs.values():
        log.truncate_to(0)
    stage.world.start(lost)
    await stage.until(lambda: stage.broker(lost).serving)
    await asyncio.sleep(1.0)
    stage.late_fetch(lost, before, stage.end(leader))
    await asyncio.sleep(1.0)
    stage.mend()
    await stage.until(stage.world.is_whole)


async def partition_epochs(stage: Stage) -> None:
    """A proposal of the leader from before another one that was accepted comes late."""
    leader, slow, other = stage.leader, stage.second, stage.third
    old, epoch = stage.record(), stage.broker(leader).controller.broker_epoch
    stage.put(leader)
    await stage.committed(1)
    stage.cut(slow, leader)
    stage.put(leader)
    await stage.in_sync(leader, other)
    await stage.committed(2)
    members = [(leader, epoch), (slow, stage.broker(slow).controller.broker_epoch)]
    proposal = IsrProposal(old.topic_id, 0, old.leader_epoch, old.partition_epoch, members)
    await stage.ask(AlterPartition(leader, epoch, [proposal]))
    stage.mend()
    await stage.until(stage.world.is_whole)


async def proposals_are_repeated(stage: Stage) -> None:
    """The answer to a proposal never comes; when it could be made again, its new member is away."""
    leader, away = stage.leader, stage.second
    stage.put(leader)
    stage.cut(away, leader)
    await stage.until(lambda: away not in stage.record().isr)
    stage.cut(leader, stage.controller)
    stage.world.cut -= {(away, leader), (leader, away)}
    tracker = stage.replica(leader).tracker
    assert tracker is not None
    await stage.until(lambda: away in tracker.pending)
    stage.world.kill(away)
    await asyncio.sleep(10.0)
    stage.mend()
    stage.world.start(away)
    await stage.until(stage.world.is_whole)


async def second_registration(stage: Stage) -> None:
    """A broker that lost its page cache loses its session before the controller has heard of it."""
    leader, lost, dead = stage.leader, stage.second, stage.third
    stage.world.kill(dead)
    await stage.in_sync(leader, lost)
    stage.put(leader)
    await stage.committed(1)
    stage.world.cut_from_store[stage.controller] = asyncio.Event()
    stage.world.cut_power(lost)
    for log in stage.world.disks[lost].logs.values():
        log.truncate_to(0)
    stage.world.start(lost)
    await stage.until(lambda: lost in stage.world.hub.members)
    await asyncio.sleep(1.0)
    stage.world.hub.expire(stage.broker(lost).store.session)
    await asyncio.sleep(1.0)
    stage.world._let_go(stage.world.cut_from_store, stage.controller)
    stage.world.start(dead)
    await stage.until(stage.world.is_whole)


async def slow_clock(stage: Stage) -> None:
    """A leader whose clock is slow loses touch with the store, and goes on taking records with acks=1."""
    leader, world = stage.leader, stage.world
    world.clocks[leader].pace = 1 - PACE
    await asyncio.sleep(3.0)
    world.cut_from_store[leader] = asyncio.Event()
    before = stage.end(leader)
    end = world.loop.now + 2 * SESSION
    while world.loop.now < end:
        stage.put(leader)
        await asyncio.sleep(0.005)
    assert stage.record().leader != leader and stage.end(leader) > before
    world._let_go(world.cut_from_store, leader)
    await stage.until(world.is_whole)


def test_an_idle_broker_hears_that_its_session_is_over() -> None:
    """Seed 30381: its session ended before the controller had seen its registration, and nothing happened any
    more. What it alone could lead had no leader for ever."""

    async def play(world: World) -> None:
        world.calm = True
        await world.begin()
        stage = Stage(world)
        leader = stage.broker(stage.leader)
        before = leader.controller.broker_epoch
        stage.freeze(stage.leader)
        await stage.ask(BrokerLost(stage.leader, before))
        world.cut_from_store[stage.controller] = asyncio.Event()
        stage.show(stage.leader)
        await stage.until(lambda: leader.controller.broker_epoch > before)
        world.hub.expire(leader.store.session)
        world._let_go(world.cut_from_store, stage.controller)
        await stage.until(world.is_whole)

    assert simulate(1, CALM, script=play).problem is None


def test_a_broker_that_is_forgotten_while_it_registers_again_belongs_to_the_cluster() -> None:
    """Seed 1000156: it was taken for one that has to stay away, and when its next session ended it did."""

    async def play(world: World) -> None:
        world.calm = True
        await world.begin()
        stage = Stage(world)
        process = stage.broker(stage.leader)
        before = process.controller.broker_epoch
        stage.freeze(stage.leader)
        await stage.ask(UnregisterBroker(stage.leader))
        world.hub.expire(process.store.session)
        await process.store.session.lost.wait()
        stage.show(stage.leader)  # an entry comes faster than a registration is done
        await stage.until(lambda: process.controller.broker_epoch > before)
        await stage.until(world.is_whole)
        stage.freeze(process.node_id)  # it hears of the end of its session first
        world.hub.expire(process.store.session)
        await process.store.session.lost.wait()
        await asyncio.sleep(0.5)
        stage.show(process.node_id)
        await stage.until(world.is_whole)

    assert simulate(1, CALM, script=play).problem is None


SCHEDULES: dict[str, tuple[Callable[[Stage], Awaitable[None]], int]] = {  # and min.insync.replicas
    "leader epoch in Fetch": (leader_epochs, 1),
    "broker epochs": (broker_epochs, 2),
    "partition epoch": (partition_epochs, 1),
    "proposals are repeated": (proposals_are_repeated, 1),
    "lease allows for clocks of another pace": (slow_clock, 1),
    "lost page cache, second registration": (second_registration, 2),
}


def problem_of(rule: str) -> str:
    """What goes wrong in the schedule of this rule; empty if nothing does."""
    script, min_isr = SCHEDULES[rule]

    async def play(world: World) -> None:
        world.calm = True
        await world.begin()
        await script(Stage(world))

    plan = Plan(**{**CALM.__dict__, "min_isr": min_isr})
    outcome = simulate(1, plan, script=play)
    return "" if outcome.problem is None else "\n".join([*outcome.world.lines, repr(outcome.problem)])


@pytest.mark.parametrize("rule", SCHEDULES)
def test_the_schedule_goes_well(rule: str) -> None:
    assert problem_of(rule) == ""


@pytest.mark.parametrize("rule", SCHEDULES)
def test_without_its_rule_it_goes_wrong(rule: str) -> None:
    with without(rule):
        problem = problem_of(rule)
    assert "Violation" in problem
