"""Classic groups under random members: they come, go, fall silent, restart; the log is slow or refuses; time
passes.

Whatever happens: nobody who waits is lost, a generation has one leader and one division of the work, the
group's books are right, and it never oversleeps. When the trouble is over, every member that is left becomes
stable in one generation.
"""

import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.coordinators.groups.classic_types import ClassicGroupState, Joined, Synced
from millstream.broker.coordinators.groups.group import NEVER
from millstream.wire.errors import ErrorCode
from tests.support.effort import examples

from .classic_world import RANGE, World

FORGET = {ErrorCode.unknown_member_id, ErrorCode.illegal_generation}
SESSION, REBALANCE = 10_000, 20_000


class Client:
    """A member as clients behave: it does the next thing that the protocol wants of it."""

    def __init__(self, world: World, instance: str | None, known: bool) -> None:
        self.world = world
        self.instance = instance
        self.known = known
        self.member_id = ""
        self.generation = -1
        self.protocols = RANGE
        self.waits: int | None = None
        self.joined: Joined | None = None
        self.assignment: bytes | None = None
        self.alive = True

    def restart(self) -> None:
        self.member_id, self.generation, self.waits, self.joined, self.assignment = "", -1, None, None, None

    def step(self) -> None:
        if not self.alive:
            return
        if self.waits is not None:
            if self.waits not in self.world.answers:
                return
            result = self.world.answers[self.waits]
            self.waits = None
            if isinstance(result, Joined):
                self.hear_join(result)
            else:
                self.hear_sync(result)
        elif self.joined is not None:
            self.sync(self.joined)
        elif self.assignment is None:
            self.join()
        else:
            error = self.world.group.heartbeat(self.member_id, self.instance, self.generation, self.world.now)
            if error is not ErrorCode.none:
                self.assignment = None
                self.give_up(error)

    def give_up(self, error: ErrorCode) -> None:
        if error is ErrorCode.fenced_instance_id:
            self.alive = False
        elif error in FORGET:
            self.restart()

    def join(self) -> None:
        self.waits = self.world.send_join(
            self.member_id,
            instance=self.instance,
            protocols=self.protocols,
            session=SESSION,
            rebalance=REBALANCE,
            known=self.known,
        )

    def hear_join(self, result: Joined) -> None:
        if result.error is ErrorCode.member_id_required:
            self.member_id = result.member_id
        elif result.error is ErrorCode.none:
            self.member_id, self.generation, self.joined = result.member_id, result.generation, result
        else:
            self.give_up(result.error)

    def sync(self, joined: Joined) -> None:
        parts = {}
        if joined.members and not joined.skip_assignment:
            parts = {each[0]: f"{self.generation}:{each[0]}".encode() for each in joined.members}
        self.joined = None
        self.waits = self.world.send_sync(
            self.member_id, self.generation, parts, instance=self.instance, protocol=joined.protocol
        )

    def hear_sync(self, result: Synced) -> None:
        if result.error is ErrorCode.none:
            self.assignment = result.assignment
        else:
            self.give_up(result.error)

    def owns(self) -> str:
        """The name under which it was given its part."""
        return (self.assignment or b":").decode().split(":", 1)[1]


def check(world: World, clients: list[Client]) -> None:
    group = world.group
    members = group.members
    assert group.awaiting_join == sum(member.join_waiter is not None for member in members.values())
    assert group.static == {
        member.instance_id: member_id for member_id, member in members.items() if member.instance_id
    }
    assert all(member_id == member.member_id for member_id, member in members.items())
    assert not set(members) & set(group.pending)
    assert group.pending_sync <= set(members)
    if members:
        assert group.leader in members
    if group.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE):
        assert members
        assert group.protocol is not None
        assert group.awaiting_join <= 1 or world.held  # a static member whose return is being written
    if group.state is ClassicGroupState.EMPTY:
        assert not members
    deadlines = [
        group.join_deadline,
        group.sync_deadline,
        *(member.deadline for member in members.values()),
        *group.pending.values(),
    ]
    assert group.wake <= min(deadlines, default=NEVER)
    held = {member.join_waiter for member in members.values()} | {
        member.sync_waiter for member in members.values()
    }
    for client in clients:
        assert client.waits is None or client.waits in world.answers or client.waits in held, "forgotten"
    for waiter in held - {None}:
        assert waiter not in world.answers


def check_generations(world: World) -> None:
    """All answers ever given agree on each generation."""
    leaders: dict[int, set[str]] = {}
    for result in world.answers.values():
        if isinstance(result, Joined) and result.error is ErrorCode.none and result.members:
            leaders.setdefault(result.generation, set()).add(result.leader.split("-id")[0])
        if isinstance(result, Synced) and result.error is ErrorCode.none and result.assignment:
            generation, owner = result.assignment.decode().split(":", 1)
            assert int(generation) <= world.group.generation
            assert owner
    assert all(len(names) == 1 for names in leaders.values())


def trouble(world: World, clients: list[Client], choose: random.Random) -> None:
    client = choose.choice(clients)
    kind = choose.randrange(12)
    if kind == 0 and client.alive and client.member_id:
        world.leave((client.member_id, client.instance))
        client.restart()
        client.alive = choose.random() < 0.5
    elif kind == 1:
        client.alive = False  # silence
    elif kind == 2 and client.alive:
        client.restart()  # the process came up again and remembers nothing
    elif kind == 3:
        clients.append(Client(world, None, choose.random() < 0.7))
    elif kind == 4 and client.alive:
        client.protocols = (("range", bytes((choose.randrange(3),))),)
        client.assignment = client.joined = None
    elif kind == 5:
        world.hold = not world.hold
    elif kind == 6:
        world.let_go(choose.choice((ErrorCode.none, ErrorCode.none, ErrorCode.not_coordinator)))
    elif kind == 7:
        client.waits = None  # the answer was lost on the way
    elif kind < 10:
        world.pass_time(choose.choice((1, 100, 3000, 9000, 25_000)))


def instances() -> Iterator[str | None]:
    yield from ("i1", "i2", None, None)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((0, 3000)), st.sampled_from((3, 1000)))
def test_random_members(seed: int, delay: int, limit: int) -> None:
    choose = random.Random(seed)
    world = World(initial_delay=delay, max_size=limit)
    clients = [Client(world, instance, choose.random() < 0.7) for instance in instances()]
    for _ in range(150):
        if choose.random() < 0.25:
            trouble(world, clients, choose)
        else:
            choose.choice(clients).step()
        check(world, clients)
    check_generations(world)
    world.hold = False
    world.let_go()
    world.limits.max_size = 1000
    for _ in range(80):
        for client in clients:
            client.step()
        world.pass_time(1500)
        check(world, clients)
    check_generations(world)
    living = [client for client in clients if client.alive]
    if not living:
        assert world.group.state is ClassicGroupState.EMPTY
        return
    assert world.group.state is ClassicGroupState.STABLE
    assert {client.generation for client in living} == {world.group.generation}
    assert {client.member_id for client in living} == set(world.group.members)
    parts = [client.owns() for client in living]
    assert len(set(parts)) == len(parts), "two members were given the same part"
