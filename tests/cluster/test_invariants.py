"""Any sequence of commands, in any order: what must hold after each of them.

Beside the image runs a model of who holds which records. Whenever a partition has a leader and an ISR of at
least `min.insync.replicas`, a record is committed: from then on only the members of that ISR hold everything.
A replica that joins an ISR has caught up. One that lost its page cache holds nothing for certain. The image
must never call a replica in sync or eligible that does not hold everything, unless an unclean election was
allowed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cluster import brokers, partitions
from millstream.cluster.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    Command,
    ConfigChange,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    IsrProposal,
    MorePartitions,
    NewTopic,
    RegisterBroker,
    Resource,
)
from millstream.cluster.commands import BrokerLost as Lost
from millstream.cluster.configs import rules_for
from millstream.cluster.image import Image, PartitionKey
from millstream.cluster.metadata_records import NO_LEADER, Partition, Record, decode, encode
from millstream.wire.errors import KafkaError
from tests.support.effort import examples

from .world import World

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b.c", "b_c")


class Cluster(World):
    """A world whose partitions have records."""

    def __init__(self) -> None:
        super().__init__(1, 2, 3)
        self.holders: dict[PartitionKey, set[int]] = {}
        self.forget = False  # an unclean election may happen in the command under way

    def apply(self, *records: Record) -> Any:
        keys = [(r.topic_id, r.index) for r in records if isinstance(r, Partition)]
        assert len(keys) == len(set(keys)), "one record per partition and command"
        before = {key: self.image.partition(*key) for key in keys}
        assert decode(encode(records))[1] == list(records)
        delta = super().apply(*records)
        for key in keys:
            old, new = before[key], self.image.partition(*key)
            assert new is not None
            self.check_step(old, new)
        for key, (_, changed) in delta.partitions.items():
            if changed is None:
                self.holders.pop(key, None)
        self.check_all()
        return delta

    def check_step(self, old: Partition | None, new: Partition) -> None:
        key = (new.topic_id, new.index)
        if old is None:
            assert (new.leader_epoch, new.partition_epoch) == (0, 0)
            self.holders[key] = set(new.replicas)
            return
        assert new.partition_epoch == old.partition_epoch + 1
        assert 0 <= new.leader_epoch - old.leader_epoch <= 1
        if new.leader != old.leader:
            assert new.leader_epoch == old.leader_epoch + 1
        if new.leader != NO_LEADER and new.leader not in self.holders[key]:
            assert self.forget and new.recovering, "an unclean election that nobody allowed"
            self.holders[key] = set(new.isr)

    def rules(self, partition: Partition) -> Any:
        return rules_for(
            self.image, self.context, partition.topic_id, set(self.image.brokers), self.image.active_brokers()
        )

    def check_all(self) -> None:
        for partition in self.image.all_partitions():
            holders = self.holders[partition.topic_id, partition.index]
            rules = self.rules(partition)
            min_isr = min(rules.min_isr, len(partition.replicas))
            for members in (
                partition.replicas,
                partition.isr,
                partition.elr,
                partition.adding,
                partition.removing,
            ):
                assert len(set(members)) == len(members), partition
                assert set(members) <= set(partition.replicas), partition
            assert partition.replicas, partition
            assert set(partition.isr) <= set(self.image.brokers), partition
            assert not set(partition.isr) & set(partition.elr), partition
            assert not set(partition.adding) & set(partition.removing), partition
            assert (
                (partition.leader in partition.isr) if partition.isr else (partition.leader == NO_LEADER)
            ), partition
            assert not partition.elr or len(partition.isr) < min_isr, partition
            assert set(partition.isr) | set(partition.elr) <= holders, (partition, holders)
            if partition.leader == NO_LEADER:
                assert not set(partition.elr) & self.image.active_brokers(), partition
            elif len(partition.isr) >= min_isr:
                holders.intersection_update(partition.isr)

    # one step, chosen by numbers

    def step(self, what: int, a: int, b: int, c: int) -> None:
        steps: list[Callable[[int, int, int], Command[Any] | None]] = [
            self.create,
            self.register,
            self.register,
            self.lose,
            self.propose,
            self.propose,
            self.propose,
            self.propose,
            self.move,
            self.elect,
            self.configure,
            self.other,
        ]
        self.forget = False
        command = steps[what % len(steps)](a, b, c)
        if command is None:
            return
        try:
            self.do(command)
        except KafkaError:
            pass
        self.check_all()

    def create(self, a: int, b: int, c: int) -> Command[Any]:
        return CreateTopics([NewTopic(NAMES[a % 3], b % 3 + 1, c % 3 + 1), NewTopic(NAMES[b % 3], 1, 1)])

    def register(self, a: int, b: int, c: int) -> Command[Any]:
        broker_id = BROKERS[a % 4]
        self.forget = self.any_unclean()
        if c % 3 == 0 and broker_id in self.image.brokers:
            known = self.image.brokers[broker_id]
            return RegisterBroker(broker_id, known.epoch, known.incarnation, draining=bool(b % 2))
        if b % 5 == 0:
            for partition in self.image.all_partitions():
                if len(partition.replicas) > 1:
                    self.holders[partition.topic_id, partition.index].discard(broker_id)
        epoch = next(self.epochs)
        return RegisterBroker(broker_id, epoch, str(epoch), draining=b % 7 == 6, lost_data=b % 5 == 0)

    def lose(self, a: int, b: int, c: int) -> Command[Any]:
        broker = self.image.brokers.get(BROKERS[a % 4])
        self.forget = self.any_unclean()
        return Lost(BROKERS[a % 4], broker.epoch if broker and b % 8 else b)

    def some_partition(self, a: int) -> Partition | None:
        partitions = list(self.image.all_partitions())
        return partitions[a % len(partitions)] if partitions else None

    def name(self, partition: Partition) -> str:
        return self.image.topics_by_id[partition.topic_id].name

    def propose(self, a: int, b: int, c: int) -> Command[Any] | None:
        partition = self.some_partition(a)
        if partition is None or partition.leader not in self.image.brokers:
            return None
        mask = -1 if c % 2 else b  # everybody, or anybody
        wanted = [
            r
            for n, r in enumerate(partition.replicas)
            if r == partition.leader or (mask >> n & 1 and r in self.image.brokers)
        ]
        epochs = [(r, self.image.brokers[r].epoch if r in self.image.brokers else -1) for r in wanted]
        if c % 6 == 5:
            epochs = [(r, epoch - 1) for r, epoch in epochs]
        # The leader proposes only those that have caught up with it; they hold what it holds.
        accepted = self.decide(
            command := AlterPartition(
                partition.leader,
                self.image.brokers[partition.leader].epoch,
                [
                    IsrProposal(
                        partition.topic_id,
                        partition.index,
                        partition.leader_epoch - (c % 7 == 6),
                        partition.partition_epoch,
                        epochs,
                    )
                ],
            )
        ).records
        if accepted:
            self.holders[partition.topic_id, partition.index] |= set(wanted)
        return command

    def move(self, a: int, b: int, c: int) -> Command[Any] | None:
        partition = self.some_partition(a)
        if partition is None:
            return None
        self.forget = self.any_unclean()
        target = [broker for n, broker in enumerate(BROKERS) if b >> n & 1]
        return AlterReassignments(
            [(self.name(partition), partition.index, None if c % 4 == 3 else target[:: 1 if c % 2 else -1])]
        )

    def elect(self, a: int, b: int, c: int) -> Command[Any] | None:
        partition = self.some_partition(a)
        self.forget = b % 3 == 0
        partitions = None if partition is None or c % 3 == 0 else [(self.name(partition), partition.index)]
        return ElectLeaders(partitions, unclean=b % 3 == 0)

    def any_unclean(self) -> bool:
        return any(
            values.get("unclean.leader.election.enable") == "true" for values in self.image.configs.values()
        )

    def configure(self, a: int, b: int, c: int) -> Command[Any]:
        resource = Resource("topic", NAMES[a % 3]) if a % 4 else Resource("broker", "")
        self.forget = True
        if c % 3:
            change = ConfigChange("min.insync.replicas", ConfigOp.SET, str(b % 3 + 1))
        else:
            change = ConfigChange(
                "unclean.leader.election.enable", ConfigOp.SET, "true" if b % 3 == 0 else "false"
            )
        return AlterConfigs([(resource, [change])])

    def other(self, a: int, b: int, c: int) -> Command[Any]:
        name = NAMES[a % 3]
        if b % 3 == 0:
            return DeleteTopics([name])
        if b % 3 == 1:
            return CreatePartitions([MorePartitions(name, c % 5)])
        return AllocateProducerIds(BROKERS[a % 4], c)


small = st.integers(0, 63)


def run(steps: Iterable[tuple[int, int, int, int]]) -> Cluster:
    cluster = Cluster()
    for step in steps:
        cluster.step(*step)
    return cluster


def steps_of(seed: int) -> list[tuple[int, int, int, int]]:
    numbers = random.Random(seed)
    return [(*(numbers.randrange(64) for _ in range(4)),) for _ in range(120)]  # type: ignore[misc]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(small, small, small, small), max_size=60))
def test_whatever_happens(steps: list[tuple[int, int, int, int]]) -> None:
    cluster = run(steps)
    again = Image()
    for version, records in enumerate(cluster.log, 1):
        again.apply(records, version)
    assert again == cluster.image
    snapshot = Image()
    snapshot.apply(again.records(), again.version)
    assert snapshot == again


def test_long_histories() -> None:
    """Found two bugs that short ones did not; a failure names its seed."""
    for seed in range(150):
        try:
            run(steps_of(seed))
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}") from problem


def ignores_lost_data(old: Partition, replicas: Any, isr: Any, without_data: Any) -> tuple[int, ...]:
    return partitions_eligible(old, replicas, isr, ())


def calls_everybody_eligible(old: Partition, replicas: Any, isr: Any, without_data: Any) -> tuple[int, ...]:
    return tuple(r for r in replicas if r not in isr)


def elects_anybody(replicas: Any, isr: Any, elr: Any, rules: Any, current: int = NO_LEADER) -> Any:
    return partitions_elect(replicas, isr, elr, rules._replace(unclean=True), current)


def rejoins_at_once(old: Partition, broker_id: int, down: Any, up: Any, lost_data: bool) -> Partition:
    new = brokers_broker_up(old, broker_id, down, up, lost_data)
    return replace(new, isr=tuple({*new.isr, broker_id})) if new.isr else new


partitions_eligible, partitions_elect, brokers_broker_up = (
    partitions._eligible,
    partitions.elect,
    brokers.broker_up,
)


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [
        (partitions, "_eligible", ignores_lost_data),
        (partitions, "_eligible", calls_everybody_eligible),
        (partitions, "elect", elects_anybody),
        (brokers, "broker_up", rejoins_at_once),
    ],
)
def test_the_model_finds_wrong_rules(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, mutant: Callable[..., Any]
) -> None:
    """A test of the test: with one rule broken, some history breaks an invariant."""
    monkeypatch.setattr(module, name, mutant)
    with pytest.raises(AssertionError):
        for seed in range(300):
            run(steps_of(seed))
