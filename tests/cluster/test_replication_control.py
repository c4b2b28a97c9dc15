"""ElectLeaders, AlterPartitionReassignments, AlterPartition."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from millstream.cluster.commands import (
    OK,
    AlterPartition,
    AlterReassignments,
    ElectLeaders,
    IsrProposal,
    ReplicasFailed,
    Result,
)
from millstream.wire.errors import ErrorCode, KafkaError

from .world import World, shape, topic_id


def elect(world: World, name: str = "a", index: int = 0, unclean: bool = False) -> Result:
    return world.do(ElectLeaders([(name, index)], unclean))[name, index]


def rejoin(world: World, name: str, isr: list[int], index: int = 0) -> Result:
    """The leader proposes an ISR, knowing everything."""
    p = world.partition(name, index)
    proposal = IsrProposal(
        p.topic_id, index, p.leader_epoch, p.partition_epoch, [(b, world.image.brokers[b].epoch) for b in isr]
    )
    command = AlterPartition(p.leader, world.image.brokers[p.leader].epoch, [proposal])
    return world.do(command)[p.topic_id, index]


# --- elections ----------------------------------------------------------------------------------------------


def test_an_election_on_one_broker_is_never_needed() -> None:
    world = World(1)
    world.topic("a", (1,))
    not_needed = Result(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
    assert elect(world) == not_needed
    assert elect(world, unclean=True) == not_needed
    assert world.do(ElectLeaders(None)) == {}


def test_what_is_not_there_cannot_be_elected() -> None:
    world = World(1)
    world.topic("a", (1,))
    assert elect(world, "x") == Result(ErrorCode.unknown_topic_or_partition, "No such topic as x")
    for index in (1, -1):
        assert elect(world, "a", index) == Result(
            ErrorCode.unknown_topic_or_partition, f"No such partition as a-{index}"
        )


def test_the_preferred_leader() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2))
    world.down(1)
    assert elect(world).error is ErrorCode.preferred_leader_not_available
    world.up(1)
    assert elect(world).error is ErrorCode.preferred_leader_not_available  # alive, but not in sync
    assert rejoin(world, "a", [1, 2]).ok
    assert elect(world) == OK
    assert shape(world.partition("a")) == (1, (1, 2), ())
    assert world.partition("a").leader_epoch == 2


def test_all_partitions_at_once() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2), (2, 1))
    world.topic("b", (2, 1))
    world.down(1)
    world.up(1)
    rejoin(world, "a", [1, 2])
    assert world.do(ElectLeaders(None)) == {("a", 0): OK}


def test_a_partition_twice_is_elected_once() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2))
    world.down(1)
    world.up(1)
    rejoin(world, "a", [1, 2])
    assert world.do(ElectLeaders([("a", 0), ("a", 0)])) == {("a", 0): OK}
    assert world.partition("a").leader_epoch == 2


def test_an_unclean_election() -> None:
    world = World(1, 2, 3)
    world.topic("a", (1, 2))
    world.down(2)
    world.down(1)
    assert elect(world, unclean=True).error is ErrorCode.eligible_leaders_not_available
    world.up(2)
    assert elect(world, unclean=True) == OK
    assert shape(world.partition("a")) == (2, (2,), ()) and world.partition("a").recovering


# --- reassignments ------------------------------------------------------------------------------------------


def move(
    world: World, replicas: list[int] | None, name: str = "a", index: int = 0, factor: bool = True
) -> Result:
    return world.do(AlterReassignments([(name, index, replicas)], factor))[name, index]


def test_moves_on_one_broker() -> None:
    world = World(1)
    world.topic("a", (1,))
    version = world.image.version
    assert move(world, [1]) == OK
    assert move(world, None) == Result(
        ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress."
    )
    assert move(world, [2]) == Result(
        ErrorCode.invalid_replica_assignment,
        "The manual partition assignment includes broker 2, but no such broker is registered.",
    )
    assert move(world, [1, 1]).error is ErrorCode.invalid_replica_assignment
    assert move(world, []).error is ErrorCode.invalid_replica_assignment
    for wrong in ([1, 1], [1, 2], []):  # told before that the factor would change
        assert move(world, wrong, factor=False).error is ErrorCode.invalid_replica_assignment
    assert move(world, [1], name="x") == Result(
        ErrorCode.unknown_topic_or_partition, "Unable to find a topic named x."
    )
    assert move(world, [1], index=4) == Result(
        ErrorCode.unknown_topic_or_partition, "Unable to find partition a:4."
    )
    assert world.image.version == version
    assert list(world.image.reassignments()) == []


def test_a_move_from_beginning_to_end() -> None:
    world = World(1, 2)
    world.topic("a", (1,))
    assert move(world, [2]) == OK
    [moving] = world.image.reassignments()
    assert (moving.replicas, moving.adding, moving.removing) == ((2, 1), (2,), (1,))
    assert rejoin(world, "a", [1, 2]).ok
    assert not list(world.image.reassignments())
    done = world.partition("a")
    assert done.replicas == (2,) and shape(done) == (2, (2,), ()) and done.leader_epoch == 1


def test_a_move_called_off() -> None:
    world = World(1, 2)
    world.topic("a", (1,))
    move(world, [2])
    assert move(world, None) == OK
    assert world.partition("a").replicas == (1,)
    assert move(world, None).error is ErrorCode.no_reassignment_in_progress


def test_a_move_called_off_while_nobody_leads() -> None:
    world = World(1, 2)
    world.topic("a", (1,))
    move(world, [2])
    world.down(1)
    assert move(world, None) == OK
    assert shape(world.partition("a")) == (-1, (), (1,))


def test_a_move_that_cannot_be_called_off() -> None:
    world = World(1, 2)
    world.topic("a", (1,))
    move(world, [2, 1])
    rejoin(world, "a", [1, 2])
    assert not world.partition("a").reassigning
    world.apply(
        replace(world.partition("a"), replicas=(2, 1), isr=(2,), leader=2, adding=(2,), removing=(1,))
    )
    assert move(world, None) == Result(
        ErrorCode.invalid_replica_assignment,
        "Unable to revert partition assignment for a:0 because it would require an unclean leader election.",
    )


def test_the_number_of_replicas_can_be_held() -> None:
    world = World(1, 2)
    world.topic("a", (1,))
    assert move(world, [1, 2], factor=False) == Result(
        ErrorCode.invalid_replication_factor, "The replication factor is changed from 1 to 2"
    )
    assert move(world, [2], factor=False) == OK
    assert move(world, [1], factor=False) == OK


def test_a_partition_twice_in_one_request_is_refused() -> None:
    world = World(1, 2)
    world.topic("a", (1,))
    replies = world.do(AlterReassignments([("a", 0, [2]), ("a", 0, [1, 2])]))
    assert replies["a", 0].error is ErrorCode.invalid_request
    assert not world.partition("a").reassigning


# --- proposals of leaders -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    world = World(1, 2, 3)
    world.topic("a", (1, 2, 3))
    world.down(3)
    world.up(3)  # epoch 4
    return world


def propose(
    world: World,
    isr: list[tuple[int, int]],
    *,
    sender: int = 1,
    topic: UUID | None = None,
    index: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 1,
    recovering: bool = False,
) -> ErrorCode:
    key = (topic or topic_id(1), index)
    proposal = IsrProposal(*key, leader_epoch, partition_epoch, isr, recovering)
    return world.do(AlterPartition(sender, sender, [proposal]))[key].error


def test_a_replica_joins_the_isr(world: World) -> None:
    assert shape(world.partition("a")) == (1, (1, 2), ())
    assert propose(world, [(1, 1), (2, 2), (3, 4)]) is ErrorCode.none
    assert shape(world.partition("a")) == (1, (1, 2, 3), ())
    assert propose(world, [(1, -1), (2, -1)], partition_epoch=2) is ErrorCode.none
    assert shape(world.partition("a")) == (1, (1, 2), ())


def test_whoever_does_not_know_the_present_state_is_refused(world: World) -> None:
    isr = [(1, 1), (2, 2)]
    cases = {
        "wrong leader epoch": (propose(world, isr, leader_epoch=1), ErrorCode.fenced_leader_epoch),
        "not the leader": (propose(world, isr, sender=2), ErrorCode.fenced_leader_epoch),
        "wrong partition epoch": (propose(world, isr, partition_epoch=0), ErrorCode.invalid_update_version),
        "an earlier life": (propose(world, [*isr, (3, 3)]), ErrorCode.ineligible_replica),
        "no topic": (propose(world, isr, topic=topic_id(9)), ErrorCode.unknown_topic_id),
        "no partition": (propose(world, isr, index=5), ErrorCode.unknown_topic_or_partition),
        "without the leader": (propose(world, [(2, 2)]), ErrorCode.invalid_request),
        "not a replica": (propose(world, [*isr, (9, 1)]), ErrorCode.invalid_request),
        "twice": (propose(world, [*isr, (2, 2)]), ErrorCode.invalid_request),
        "recovering what is well": (propose(world, [(1, 1)], recovering=True), ErrorCode.invalid_request),
    }
    assert {name: found for name, (found, _) in cases.items()} == {
        name: code for name, (_, code) in cases.items()
    }
    assert world.partition("a").partition_epoch == 1


def test_a_dead_or_draining_broker_cannot_join(world: World) -> None:
    world.draining(3)
    assert propose(world, [(1, 1), (2, 2), (3, 4)]) is ErrorCode.ineligible_replica
    world.down(3)
    assert propose(world, [(1, 1), (2, 2), (3, 4)]) is ErrorCode.ineligible_replica


def test_an_earlier_life_of_a_leader_is_refused(world: World) -> None:
    with pytest.raises(KafkaError) as raised:
        world.do(AlterPartition(1, 7, []))
    assert raised.value.code is ErrorCode.stale_broker_epoch


# --- replicas on a failing disk -----------------------------------------------------------------------------


def fail(world: World, broker_id: int, *names: str) -> dict[tuple[UUID, int], Result]:
    keys = [(world.partition(name).topic_id, 0) for name in names]
    return world.do(ReplicasFailed(broker_id, world.image.brokers[broker_id].epoch, keys))


def test_what_a_broker_cannot_write_another_leads() -> None:
    world = World(1, 2, 3)
    for name in ("led", "followed", "untouched"):
        world.topic(name, (1, 2, 3) if name != "followed" else (2, 1, 3))
    world.topic("alone", (1,))
    assert set(fail(world, 1, "led", "followed", "alone", "led").values()) == {OK}
    led, followed = world.partition("led"), world.partition("followed")
    assert (led.leader, led.isr, led.leader_epoch) == (2, (2, 3), 1)
    assert (followed.leader, followed.isr, followed.leader_epoch) == (2, (2, 3), 0)
    assert world.partition("alone").leader == world.partition("untouched").leader == 1


def test_the_last_in_sync_replica_stays_for_its_readers() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2))
    fail(world, 2, "a")
    fail(world, 1, "a")
    assert (world.partition("a").leader, world.partition("a").isr) == (1, (1,))


def test_only_the_present_life_of_a_broker_may_say_that_it_fails() -> None:
    world = World(1, 2)
    world.topic("a", (1, 2))
    with pytest.raises(KafkaError, match="Expected broker epoch"):
        world.do(ReplicasFailed(1, world.image.brokers[1].epoch - 1, [(world.partition("a").topic_id, 0)]))
    unknown = (UUID(int=5), 0)
    epoch = world.image.brokers[1].epoch
    assert world.do(ReplicasFailed(1, epoch, [unknown])) == {
        unknown: Result(ErrorCode.unknown_topic_or_partition)
    }
