"""What goes wrong in a run: everything that happens to brokers, links and disks, and what administrators do.

`World` is where it happens; the seed says what and when.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.broker.partitions import Partition
from millstream.cluster.commands import (
    AlterConfigs,
    AlterReassignments,
    BrokerLost,
    Command,
    ConfigChange,
    ConfigOp,
    DeleteTopics,
    ElectLeaders,
    ReplicasFailed,
    Resource,
    UnregisterBroker,
)
from millstream.cluster.metadata_records import Partition as PartitionRecord
from millstream.cluster.store import StoreError
from tests.simulation.fake_disk import Disk
from tests.simulation.fake_store import SESSION, Hub
from tests.simulation.invariants import Checker, Lost
from tests.simulation.machine_clock import MachineClock
from tests.simulation.sim_broker import SimBroker
from tests.simulation.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.world import Plan

KINDS = (
    (
        "kill", "power", "start", "stop", "hold", "cut off", "cut", "mend", "expire", "declare dead",
        "checkpoint", "reassign", "elect", "lag", "min isr", "delete records", "recreate", "depose",
        "disk", "clock", "unregister",
    ),
    (10, 8, 22, 4, 6, 5, 5, 6, 4, 4, 8, 6, 4, 6, 2, 2, 1, 4, 3, 3, 2),
)  # fmt: skip


class Faults:
    kinds: ClassVar[tuple[tuple[str, ...], tuple[int, ...]]] = KINDS
    broker_class: ClassVar[type[SimBroker]]

    plan: Plan
    random: random.Random
    loop: VirtualLoop
    hub: Hub
    checker: Checker
    clocks: dict[int, MachineClock]
    ids: list[int]
    disks: dict[int, Disk]
    brokers: dict[int, SimBroker | None]
    first_epochs: dict[int, int]
    faults: int
    counts: dict[str, int]
    cut: set[tuple[int, int]]
    held: dict[int, asyncio.Event]
    cut_from_store: dict[int, asyncio.Event]
    lagging: dict[int, float]
    trace: Callable[[str], None]
    create_topic: Callable[[], None]
    led: Callable[[], Iterator[tuple[SimBroker, Partition]]]
    topic_of: Callable[[PartitionRecord], str]
    _lives: int

    def start(self, broker_id: int) -> None:
        if self.brokers[broker_id] is None:
            self._lives += 1
            self.trace(f"b{broker_id} starts")
            self.first_epochs[broker_id] = self.hub.last_epoch + 1
            self.brokers[broker_id] = self.broker_class(self, broker_id, self._lives)

    def _end(self, broker_id: int, expire_after: float) -> None:
        process = self.brokers[broker_id]
        assert process is not None
        self.brokers[broker_id] = None
        process.end()
        self.loop.call_later(expire_after, self.hub.expire, process.store.session)

    def kill(self, broker_id: int) -> None:
        self.trace(f"b{broker_id} is killed")
        self._end(broker_id, self.random.choice((0.05, SESSION)))

    def cut_power(self, broker_id: int) -> None:
        """The machine restarts: what was not synced is gone, from somewhere on."""
        disk = self.disks[broker_id]
        self._end(broker_id, self.random.choice((0.05, SESSION)))
        disk.boot_id += 1
        self.checker.lost[broker_id] = Lost()
        if self.random.random() < 0.15:  # and the disk is a new one
            disk.logs.clear()
            disk.saved_boot_id = None
        for log in disk.logs.values():
            log.truncate_to(self.random.randint(log.recovery_point, log.end_offset))
        ends = {f"{key.topic}-{key.partition}": log.end_offset for key, log in disk.logs.items()}
        self.trace(f"b{broker_id} loses its power, its logs end at {ends}")

    def may_lose_power(self, broker_id: int) -> bool:
        """Fewer machines at a time than a commit has copies, and never the only one that may lead: a topic
        that was made while the others were down has no other."""
        return (
            self.plan.power_cuts
            and len(self.checker.lost) < self.plan.min_isr - 1
            and all(
                any(member != broker_id for member in (*record.isr, *record.elr))
                for record in self.checker.head.partitions_of(broker_id)
            )
        )

    async def stop(self, broker_id: int) -> None:
        """A clean stop: draining, then everything is synced."""
        process = self.brokers[broker_id]
        assert process is not None
        self.trace(f"b{broker_id} drains")
        task = self.loop.create_task(process.drain(), context=process.context)
        try:
            await asyncio.wait([task], timeout=10)
        finally:
            if self.brokers[broker_id] is process and process.alive:
                self.trace(f"b{broker_id} stops")
                self.checkpoint(broker_id)
                process.log_dirs.close()
                self._end(broker_id, 0.01)

    def checkpoint(self, broker_id: int) -> None:
        disk = self.disks[broker_id]
        for key, log in disk.logs.items():
            log.recovery_point = log.end_offset
            disk.high_watermarks[key] = log.high_watermark
            log.cut_to = None

    def hold(self, broker_id: int, seconds: float) -> None:
        """As SIGSTOP: nothing goes in or out, nothing is lost. Its session may expire meanwhile."""
        if broker_id in self.held:
            return
        self.trace(f"b{broker_id} stands still for {seconds:.1f} s")
        self.held[broker_id] = asyncio.Event()
        self.loop.call_later(seconds, self._let_go, self.held, broker_id)

    def cut_off(self, broker_id: int, seconds: float) -> None:
        if broker_id in self.cut_from_store:
            return
        self.trace(f"b{broker_id} cannot reach the store for {seconds:.1f} s")
        self.cut_from_store[broker_id] = asyncio.Event()
        self.loop.call_later(seconds, self._let_go, self.cut_from_store, broker_id)

    def _let_go(self, gates: dict[int, asyncio.Event], broker_id: int) -> None:
        gate = gates.pop(broker_id, None)
        if gate is not None:
            self.trace(f"b{broker_id} is back")
            gate.set()

    def submit(self, command: Command[Any], what: str) -> None:
        """To whoever takes itself for the controller."""
        for process in self.brokers.values():
            if process is not None and process.controller.leading and process.node_id not in self.held:
                self.trace(f"{process!r} is asked: {what}")
                future = process.context.run(process.controller.submit, command)
                future.add_done_callback(_ignore)
                return

    def fault(self) -> None:
        seeded = self.random
        broker_id = seeded.choice(self.ids)
        process = self.brokers[broker_id]
        kind = seeded.choices(*self.kinds)[0]
        self.faults += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == "start":
            for each in self.ids:
                if seeded.random() < 0.7:
                    self.start(each)
        elif kind == "reassign":
            self._reassign()
        elif kind == "min isr":
            self._change_min_isr()
        elif kind == "recreate":
            # Not while machines are away: a partition that begins on one broker is lost with its disk.
            if len(self.checker.head.brokers) == len(self.ids) and not self.checker.lost:
                self.submit(DeleteTopics(["t"]), "delete t")
                self.create_topic()
        elif kind == "delete records":
            self._delete_records()
        elif kind == "elect":
            unclean = self.plan.unclean and seeded.random() < 0.5
            self.submit(ElectLeaders(None, unclean), f"elect {'any' if unclean else 'preferred'} leaders")
        elif kind == "clock":
            self.trace(f"the clock of b{broker_id} is set by {self.clocks[broker_id].set():.0f} s")
        elif kind == "unregister":
            self.submit(UnregisterBroker(broker_id), f"forget b{broker_id}")
        elif kind == "cut":
            self.cut = {
                (seeded.choice(self.ids), seeded.choice(self.ids)) for _ in range(seeded.randint(1, 4))
            }
            self.trace(f"cut: {sorted(self.cut)}")
        elif kind == "mend":
            self.cut = set()
        elif kind == "lag":
            self.lagging = {
                each: seeded.choice((1.0, 10.0, 60.0))
                for each in self.ids
                if seeded.random() < self.plan.lagging
            }
        elif kind not in KINDS[0]:
            self.other_fault(kind)
        elif process is None:
            return
        elif kind == "kill":
            self.kill(broker_id)
        elif kind == "power":
            if self.may_lose_power(broker_id):
                self.cut_power(broker_id)
        elif kind == "stop":
            if process.serving and not process.stopping:
                self.loop.create_task(self.stop(broker_id))
        elif kind == "hold":
            self.hold(broker_id, seeded.uniform(0.2, 6.0))
        elif kind == "cut off":
            self.cut_off(broker_id, seeded.uniform(0.2, 6.0))
        elif kind == "expire":
            self.trace(f"the session of b{broker_id} expires")
            self.hub.expire(process.store.session)
        elif kind == "declare dead":
            self.submit(BrokerLost(broker_id, process.controller.broker_epoch), f"b{broker_id} is dead")
        elif kind == "depose":
            self.depose(process)
        elif kind == "disk":
            self._fail_replicas(process)
        elif kind == "checkpoint":
            self.checkpoint(broker_id)

    def other_fault(self, kind: str) -> None:
        """One that a world of another kind has."""

    def _fail_replicas(self, process: SimBroker) -> None:
        """It cannot write some of its replicas for a moment."""
        hosted = self.checker.head.partitions_of(process.node_id)
        keys = [(record.topic_id, record.index) for record in hosted if self.random.random() < 0.7]
        command = ReplicasFailed(process.node_id, process.controller.broker_epoch, keys)
        self.submit(command, f"{process!r} cannot write {len(keys)} replicas")

    def depose(self, process: SimBroker) -> None:
        """It takes the controller that it knows for dead, rightly or not."""
        controller_id = process.image.controller_id
        broker = process.image.brokers.get(controller_id)
        epoch = process.image.brokers_down.get(controller_id, -1) if broker is None else broker.epoch
        self.trace(f"{process!r} deposes b{controller_id}")

        async def depose() -> None:
            with suppress(StoreError):
                await process.controller.depose(controller_id, epoch)

        self.loop.create_task(depose(), context=process.context)

    def _reassign(self) -> None:
        partitions = list(self.checker.head.all_partitions())
        if not partitions:
            return
        chosen = self.random.choice(partitions)
        target: list[int] | None = self.random.sample(self.ids, self.random.choice((2, 3, 3)))
        # A move that is cancelled may leave fewer copies than min.insync.replicas, as in Kafka.
        if chosen.reassigning and not self.plan.power_cuts and self.random.random() < 0.5:
            target = None
        name = self.topic_of(chosen)
        command = AlterReassignments([(name, chosen.index, target)])
        self.submit(command, f"replicas of {name}-{chosen.index} become {target}")

    def _change_min_isr(self) -> None:
        """Not where power goes: how many copies a commit means is then what counts."""
        if not self.plan.power_cuts:
            value = str(self.random.randint(1, 3))
            change = ConfigChange("min.insync.replicas", ConfigOp.SET, value)
            self.submit(AlterConfigs([(Resource("topic", "t"), [change])]), f"min.insync.replicas is {value}")

    def _delete_records(self) -> None:
        """As DeleteRecords at the leader; the others follow."""
        led = [(process, partition) for process, partition in self.led() if partition.knows_latest]
        if led:
            process, partition = self.random.choice(led)
            key = (partition.topic_id, partition.index)
            offset = self.random.randint(0, partition.log.high_watermark)
            self.trace(f"{process!r} deletes {partition!r} up to {offset}")
            self.checker.deleted[key] = max(self.checker.deleted.get(key, 0), offset)
            process.context.run(partition.log.advance_start, offset)


def _ignore(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
