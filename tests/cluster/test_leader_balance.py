"""Leadership goes back to the preferred replicas."""

from __future__ import annotations

from millstream.cluster.commands import OK, ElectLeaders
from millstream.cluster.leader_balance import leaderships_to_return

from .test_replication_control import rejoin
from .world import World


def returned() -> World:
    """Broker 1 was down, and is back in sync in one of the two partitions that it is to lead."""
    world = World(1, 2, 3)
    world.topic("a", (1, 2), (1, 3))
    world.topic("b", (2, 1))
    world.down(1)
    world.up(1)
    rejoin(world, "a", [1, 2], 0)
    return world


def test_what_is_in_sync_again_goes_back() -> None:
    world = returned()
    assert leaderships_to_return(world.image) == [("a", 0)]
    assert world.do(ElectLeaders(leaderships_to_return(world.image))) == {("a", 0): OK}
    assert leaderships_to_return(world.image) == []
    rejoin(world, "a", [1, 3], 1)
    assert leaderships_to_return(world.image) == [("a", 1)]


def test_some_at_a_time() -> None:
    world = returned()
    rejoin(world, "a", [1, 3], 1)
    assert leaderships_to_return(world.image, 1) == [("a", 0)]
    assert leaderships_to_return(world.image, 0) == []


def test_nobody_is_elected_who_is_down_or_about_to_stop() -> None:
    world = returned()
    world.up(1, draining=True)
    assert leaderships_to_return(world.image) == []
    world.down(1)
    assert leaderships_to_return(world.image) == []


def test_one_broker_has_nobody_to_give_back_to() -> None:
    world = World(1)
    world.topic("a", (1,))
    assert leaderships_to_return(world.image) == []
