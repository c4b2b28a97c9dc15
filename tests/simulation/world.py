"""The cluster, its clients and its bad luck: one seed decides all of it.

A run is some time of faults under load, then everything is healed and must become whole again. All chance
comes from one generator, and nothing depends on the real clock, so that a seed gives the same run every time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from millstream.broker.partition import Partition
from millstream.cluster.commands import (
    CreateTopics,
    ElectLeaders,
    NewTopic,
)
from millstream.cluster.controller import Context
from millstream.cluster.metadata_records import Partition as PartitionRecord
from millstream.settings.resolve import BrokerSettings
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition
from tests.simulation.fake_disk import Disk, MemoryLog
from tests.simulation.fake_store import Hub
from tests.simulation.faults import Faults
from tests.simulation.invariants import Checker, Violation
from tests.simulation.machine_clock import MachineClock
from tests.simulation.sim_broker import SimBroker
from tests.simulation.virtual_loop import VirtualLoop, virtual_time

HEALING = 120.0  # seconds within which everything must be whole again
SETTINGS = BrokerSettings(
    {
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.backoff.ms": "100",
        "replica.fetch.wait.max.ms": "300",
        "replica.fetch.max.bytes": "60",  # three records
    }
)


@dataclass
class Plan:
    """What kind of run it is. Drawn from the seed, unless a test says otherwise."""

    brokers: int = 4
    partitions: int = 2
    min_isr: int = 2
    power_cuts: bool = True
    seconds: float = 25.0
    pause: float = 0.35  # seconds between faults, on average
    load: float = 0.12  # seconds between records, on average
    slow: float = 0.08  # share of messages that take very long
    drop: float = 0.03
    repeat: float = 0.03
    apart: bool = False  # the controller has no replica
    unclean: bool = False  # a replica that is not in sync may lead
    lagging: float = 0.25  # share of time in which a broker sees the metadata very late

    @classmethod
    def drawn(cls, seeded: random.Random) -> Plan:
        heavy = seeded.random() < 0.5
        min_isr = 2 if seeded.random() < 0.7 else 1
        return cls(
            brokers=seeded.choice((3, 3, 4)),
            partitions=seeded.choice((1, 2, 3)),
            min_isr=min_isr,
            power_cuts=min_isr > 1,
            pause=0.2 if heavy else 0.5,
            slow=seeded.choice((0.02, 0.1, 0.2)),
            drop=seeded.choice((0.0, 0.03, 0.1)),
            unclean=seeded.random() < 0.2,
        )


class World(Faults):
    log_class = MemoryLog
    broker_class = SimBroker
    features: ClassVar[dict[str, tuple[int, int]]] = {}

    def __init__(self, seed: int, loop: VirtualLoop, plan: Plan | None = None, verbose: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.plan = plan if plan is not None else Plan.drawn(self.random)
        self.loop = loop
        self.settings = SETTINGS
        self.snapshot_entries = self.random.choice((15, 40, 1000))
        self.kept_entries = self.random.choice((0, 5, 20))
        self.verbose = verbose
        self.lines: list[str] = []
        self.faults = 0
        self.counts: dict[str, int] = {}
        self.hub = Hub()
        self.checker = Checker(self)
        self.hub.appended = self.checker.appended
        self.ids = list(range(1, self.plan.brokers + 1))
        self.clocks = {broker_id: MachineClock(self.random, loop.now) for broker_id in self.ids}
        self.disks = {broker_id: Disk() for broker_id in self.ids}
        self.brokers: dict[int, SimBroker | None] = dict.fromkeys(self.ids)
        self.first_epochs: dict[int, int] = {}
        self.cut: set[tuple[int, int]] = set()  # links that lose everything, from one broker to another
        self.held: dict[int, asyncio.Event] = {}  # brokers that stand still, or cannot reach anybody
        self.cut_from_store: dict[int, asyncio.Event] = {}
        self.lagging: dict[int, float] = {}
        self.visible: dict[int, int] = {}  # brokers that see the metadata log up to there only
        self.calm = False
        self._lives = 0
        self._values = 0
        self.decision_context = Context(
            min_insync_replicas=self.plan.min_isr,
            new_topic_id=lambda: UUID(int=self.random.getrandbits(120)),
            below=self.random.randrange,
            supported_features=self.features,
            first_features={name: highest for name, (_, highest) in self.features.items()},
        )
        loop.after_step = self.checker.check

    # --- chance ---------------------------------------------------------------------------------------------

    def trace(self, line: str) -> None:
        text = f"{self.loop.now - 1000:9.3f}  {line}"
        if self.verbose:
            print(text, flush=True)
        self.lines.append(text)

    def chance(self, what: str) -> bool:
        return not self.calm and self.random.random() < 0.01

    def delay(self) -> float:
        """Of one message. Most are fast, some take longer than anybody waits."""
        seeded = self.random
        if not self.calm and seeded.random() < self.plan.slow:
            return seeded.uniform(0.05, 4.0)
        return seeded.uniform(0.001, 0.02)

    def lag(self, broker_id: int) -> float:
        return self.lagging.get(broker_id, 1.0)

    def some_entries(self) -> int:
        return self.random.choice((1, 1, 2, 10))

    # --- who reaches whom -----------------------------------------------------------------------------------

    def reaches_store(self, broker_id: int) -> bool:
        return broker_id not in self.held and broker_id not in self.cut_from_store

    async def reconnected(self, broker_id: int) -> None:
        while not self.reaches_store(broker_id):
            gate = self.held.get(broker_id) or self.cut_from_store[broker_id]
            await gate.wait()

    def deliver(
        self,
        sender: SimBroker,
        target: int,
        arrived: Callable[[SimBroker, Callable[[Any], None]], None],
        answered: Callable[[Any], None],
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """A request on its way, and its answer on the way back. With `wanted` it is one that its sender takes
        back by closing the connection: it comes once, or not at all."""
        source = sender.node_id

        def there(reply: Callable[[Any], None]) -> None:
            gate = self.held.get(target) or self.held.get(source)
            if gate is not None:  # what was sent waits in a buffer
                self._when_open(gate, lambda: there(reply))
                return
            server = self.brokers.get(target)
            if (source, target) in self.cut or server is None or not server.alive:
                return
            if wanted is not None and not wanted():
                return
            server.context.run(arrived, server, reply)

        def back(answer: Any) -> None:
            def arrive() -> None:
                gate = self.held.get(source)
                if gate is not None:
                    self._when_open(gate, arrive)
                elif sender.alive and (target, source) not in self.cut:
                    sender.context.run(answered, answer)

            if not self._dropped():
                self.loop.call_later(self.delay(), arrive)

        if not self._dropped():
            self.loop.call_later(self.delay(), there, back)
        if not self.calm and self.random.random() < self.plan.repeat and wanted is None:
            self.loop.call_later(self.delay() * 2, there, lambda answer: None)

    def _dropped(self) -> bool:
        return not self.calm and self.random.random() < self.plan.drop

    def _when_open(self, gate: asyncio.Event, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await gate.wait()
            await asyncio.sleep(self.delay())
            act()

        self.loop.create_task(wait())

    def topic_of(self, record: PartitionRecord) -> str:
        return self.checker.head.topics_by_id[record.topic_id].name

    # --- load -----------------------------------------------------------------------------------------------

    def led(self) -> Iterator[tuple[SimBroker, Partition]]:
        for process in self.brokers.values():
            if process is not None and process.serving and process.node_id not in self.held:
                for partition in process.partitions:
                    if partition.leads:
                        yield process, partition

    def produce(self, process: SimBroker, partition: Partition, acks: int = -1) -> None:
        self._values += 1
        value = self._values
        topic_id, index, epoch = partition.topic_id, partition.index, partition.leader_epoch

        def done(offset: int, error: ErrorCode) -> None:
            if error is not ErrorCode.none or not process.alive:
                return
            if acks == -1:
                self.checker.acknowledged(topic_id, index, epoch, offset, value)
            else:
                self.checker.acknowledged_alone(process, partition)

        process.context.run(process.produce, partition, value, acks, done)

    # --- a run ----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Brokers and a topic, before the first fault."""
        calm, self.calm = self.calm, True
        for broker_id in self.ids:
            self.start(broker_id)
        await self.until(lambda: all(each is not None and each.serving for each in self.brokers.values()))
        self.create_topic()
        await self.until(lambda: len(list(self.led())) == self.partition_count)
        self.calm = calm

    @property
    def acknowledged(self) -> int:
        """What clients were told."""
        return self.checker.acks

    @property
    def partition_count(self) -> int:
        """Of all topics."""
        return self.plan.partitions

    def create_topic(self) -> None:
        seeded = self.random
        hosts = [each for each in self.ids if not (self.plan.apart and self._leads(each))]
        assignments = [
            (index, seeded.sample(hosts, min(3, len(hosts)))) for index in range(self.plan.partitions)
        ]
        configs = {"min.insync.replicas": str(self.plan.min_isr)}
        if self.plan.unclean and seeded.random() < 0.7:  # else by request alone
            configs["unclean.leader.election.enable"] = "true"
        self.submit(CreateTopics([NewTopic("t", assignments=assignments, configs=configs)]), "create t")

    def _leads(self, broker_id: int) -> bool:
        process = self.brokers[broker_id]
        return process is not None and process.controller.leading

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        end = self.loop.now + seconds
        while not condition():
            if self.loop.now > end:
                raise Violation("I10", f"not within {seconds} s: {self.state()}")
            await asyncio.sleep(0.05)

    async def run(self) -> None:
        await self.begin()
        end = self.loop.now + self.plan.seconds
        next_fault = self.loop.now + self.random.expovariate(1 / self.plan.pause)
        while self.loop.now < end:
            await asyncio.sleep(self.random.expovariate(1 / self.plan.load))
            if self.loop.now >= next_fault:
                next_fault = self.loop.now + self.random.expovariate(1 / self.plan.pause)
                self.fault()
            self.load()
        await self.heal()

    def load(self) -> None:
        led = list(self.led())
        if led:
            self.produce(*self.random.choice(led), acks=-1 if self.random.random() < 0.85 else 1)

    async def heal(self) -> None:
        """I10 and I2: without faults everything becomes whole, and nothing is missing."""
        self.trace("no more faults")
        self.calm, self.cut, self.lagging = True, set(), {}
        for gates in (self.held, self.cut_from_store):
            for broker_id in list(gates):
                self._let_go(gates, broker_id)
        await asyncio.sleep(12)  # a stop that is under way
        for broker_id, process in self.brokers.items():
            if process is not None and process.is_unregistered:
                self.kill(broker_id)
        for broker_id in self.ids:
            self.start(broker_id)
        await self.until(lambda: any(self._leads(each) for each in self.ids), HEALING)
        await asyncio.sleep(5)
        if self.plan.unclean:  # where it has to be asked for
            self.submit(ElectLeaders(None, unclean=True), "elect any leaders")
        if not self.checker.head.topics_by_name:  # deleted, and not made again
            self.create_topic()
        count = self.partition_count
        await self.until(lambda: len(list(self.led())) == count and self.is_whole(), HEALING)
        await self.check_work()

    async def check_work(self) -> None:
        """It can be written to again, and nothing that was acknowledged is missing."""
        count, before = self.partition_count, self.checker.acks
        for process, partition in list(self.led()):
            self.produce(process, partition)
        await self.until(lambda: self.checker.acks >= before + count and self.is_whole())
        self._check_contents()

    def is_whole(self) -> bool:
        return not self.state()

    def state(self) -> str:
        """What is not as it should be without faults."""
        problems = []
        for broker_id, process in self.brokers.items():
            if process is None or not process.serving:
                problems.append(f"b{broker_id} does not serve")
            elif process.image.version != self.hub.version:
                problems.append(f"the image of b{broker_id} is {process.image.version} of {self.hub.version}")
        leading = [each for each in self.brokers.values() if each is not None and each.controller.leading]
        if len(leading) != 1:
            problems.append(f"{leading} are the controller")
        for record in self.checker.head.all_partitions():
            problems += self._partition_problems(record)
        return "; ".join(problems)

    def _partition_problems(self, record: PartitionRecord) -> Iterator[str]:
        name = f"{self.topic_of(record)}-{record.index}"
        if record.leader < 0:
            whole = [each for each in record.replicas if self._has_everything(record, each)]
            yield (
                f"{name} has no leader, ISR {record.isr}, ELR {record.elr}; of its replicas "
                f"{record.replicas} these have all that was committed: {whole}"
            )
            return
        if set(record.isr) != set(record.replicas) or record.reassigning:
            yield f"{name} has ISR {record.isr} of {record.replicas}"
        logs = [
            self.disks[replica].logs.get(TopicPartition(self.topic_of(record), record.index))
            for replica in record.replicas
        ]
        # Where records begin may differ: who did not hear of a deletion before it leads keeps what it has.
        start = max(0 if log is None else log.start_offset for log in logs)
        contents = [None if log is None else log.entries[start:] for log in logs]
        if any(each is None or each != contents[0] for each in contents):
            yield f"{name} has logs that differ"
        elif any(log.high_watermark != log.end_offset for log in logs):  # type: ignore[union-attr]
            yield f"{name} has high watermarks {[log.high_watermark for log in logs]}"  # type: ignore[union-attr]

    def _has_everything(self, record: PartitionRecord, broker_id: int) -> bool:
        known = self.checker.committed_of(record.topic_id, record.index)
        log = self.disks[broker_id].logs.get(TopicPartition(self.topic_of(record), record.index))
        return log is not None and log.entries[log.start_offset : len(known)] == known[log.start_offset :]

    def _check_contents(self) -> None:
        for topic_id, partitions in self.checker.acked.items():
            for index, acked in partitions.items():
                record = self.checker.head.partition(topic_id, index)
                if record is None:  # deleted
                    continue
                log = self.disks[record.leader].logs[TopicPartition("t", index)]
                values = [entry.value for entry in log.entries]
                if len(set(values[log.start_offset :])) != len(values) - log.start_offset:
                    raise Violation("I2", f"{log.name} has a record twice")
                for offset, value in acked.items():
                    if offset >= log.start_offset and (offset >= len(values) or values[offset] != value):
                        raise Violation("I2", f"{log.name} lacks {value}, which was acknowledged at {offset}")

    def close(self) -> None:
        for process in self.brokers.values():
            if process is not None:
                process.end()


@contextmanager
def quiet() -> Iterator[None]:
    """What brokers log of a run is not of interest; the trace is."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)


@dataclass
class Outcome:
    seed: int
    world: World
    problem: Exception | None


def simulate(
    seed: int,
    plan: Plan | None = None,
    verbose: bool = False,
    script: Callable[[Any], Any] | None = None,
    kind: type[World] = World,
) -> Outcome:
    """One run; with a script, that instead of the seed's own faults."""
    with quiet(), virtual_time() as loop:
        asyncio.set_event_loop(loop)
        failures: list[BaseException] = []

        def report(_: object, context: dict[str, Any]) -> None:
            error = context.get("exception")
            failures.append(error if error is not None else AssertionError(context["message"]))

        loop.set_exception_handler(report)
        world = _in_loop(loop, kind, seed, plan, verbose)
        problem: Exception | None = None
        try:
            loop.run_until_complete(script(world) if script is not None else world.run())
        except Exception as error:
            problem = error
        found = [each for each in failures if isinstance(each, Exception)]
        if problem is None and found:
            problem = found[0]
        loop.after_step = lambda: None
        world.close()
        _finish(loop)
        asyncio.set_event_loop(None)
        return Outcome(seed, world, problem)


def _in_loop(loop: VirtualLoop, kind: type[World], seed: int, plan: Plan | None, verbose: bool) -> World:
    async def make() -> World:
        return kind(seed, loop, plan, verbose)

    return loop.run_until_complete(make())


def _finish(loop: VirtualLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(_gather(tasks))


async def _gather(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
