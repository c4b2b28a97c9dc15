"""Groups of the consumer protocol (KIP-848): the rules, without sockets and without waiting."""

import itertools
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.coordinators import regex
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_state import ConsumerLimits
from millstream.broker.coordinators.groups.consumer_types import (
    JOIN,
    LEAVE_STATIC,
    UNRELEASED,
    UNREVOKED,
    Change,
    HeartbeatRequest,
    HeartbeatResponse,
    parse_row,
    row,
)
from millstream.broker.coordinators.groups.group import Committer
from millstream.wire.errors import ErrorCode, KafkaError
from tests.support.effort import examples


class FakeTopics:
    def __init__(self, **counts: int) -> None:
        self.version = 1
        self.has_looked = True  # at what expressions match
        self.ids: dict[str, UUID] = {}
        self.counts: dict[str, int] = {}
        for name, count in counts.items():
            self.set(name, count)

    def set(self, name: str, count: int) -> None:
        self.version += 1
        self.ids.setdefault(name, UUID(int=len(self.ids) + 1))
        self.counts[name] = count

    def matching(self, pattern: str) -> frozenset[str] | None:
        return regex.matching(pattern, self.counts) if self.has_looked else None

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (self.ids[name], self.counts[name]) if name in self.counts else None

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, each in self.ids.items() if each == topic_id), None)


class World:
    """A group, its clock, and a log from which it can be read again."""

    def __init__(self, topics: FakeTopics | None = None, **limits: Any) -> None:
        self.now = 0.0
        self.topics = topics or FakeTopics(t=4)
        self.limits = ConsumerLimits(**limits)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.group = self.empty()

    def empty(self) -> ConsumerGroup:
        return ConsumerGroup("g", self.limits, self.topics, lambda: 1, lambda: 0.0)

    def commit(self, changes: list[Change]) -> None:
        for change in changes:
            self.log.append(row("g", change))
            self.group.apply(change)

    def beat(self, member: str, epoch: int = JOIN, **fields: Any) -> HeartbeatResponse:
        joins = epoch == JOIN
        request = HeartbeatRequest(
            member,
            epoch,
            fields.get("instance"),
            None,
            fields.get("rebalance", 10_000 if joins else -1),
            fields.get("topics", ("t",) if joins and "regex" not in fields else None),
            fields.get("regex"),
            fields.get("assignor"),
            fields.get("owned", {} if joins else None),
            "client",
            "/h",
        )
        answer, changes = self.group.heartbeat(request, self.now)
        self.commit(changes)
        return answer

    def pass_time(self, milliseconds: float) -> None:
        end = self.now + milliseconds
        while self.group.wake <= end:
            self.now = max(self.now, self.group.wake)
            for member in self.group.expired(self.now):
                self.commit(self.group.remove([member]))
        self.now = end

    def reloaded(self) -> ConsumerGroup:
        group = self.empty()
        for key, value in self.log:
            name, change = parse_row(key, value)
            assert name == "g"
            assert change is not None
            group.apply(change)
        return group


def code(problem: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return problem.value.code


def test_one_member_gets_everything() -> None:
    world = World()
    answer = world.beat("a")
    # A new group is in epoch 1, with nobody in it.
    assert (answer.epoch, answer.assignment) == (2, {UUID(int=1): {0: 2, 1: 2, 2: 2, 3: 2}})
    assert world.group.state == "Stable"
    assert world.beat("a", 2) == HeartbeatResponse("a", 2, None)
    assert len(world.log) == 5


def test_partitions_are_revoked_before_they_are_assigned() -> None:
    world = World()
    topic = UUID(int=1)
    world.beat("a")
    second = world.beat("b")
    assert (second.epoch, second.assignment) == (3, {})
    assert world.group.members["b"].state == UNRELEASED
    response = world.beat("a", 2)
    assert response.epoch == 2  # it stays in its epoch until it has given them up
    assert set((response.assignment or {})[topic]) == {0, 1}
    assert world.group.members["a"].state == UNREVOKED
    assert world.beat("b", 3).assignment is None
    assert world.beat("a", 2, owned={topic: [0, 1, 2]}).epoch == 2
    assert world.beat("a", 2, owned={topic: [0, 1]}).epoch == 3
    assert set((world.beat("b", 3).assignment or {})[topic]) == {2, 3}
    assert world.group.state == "Stable"


def test_who_gives_up_partitions_and_has_to_give_up_more_stays_in_its_epoch() -> None:
    world = World(FakeTopics(t=6))
    topic = UUID(int=1)
    world.beat("a")
    world.beat("b")
    world.beat("a", 2)
    world.beat("c")  # before a has given up what b waits for
    response = world.beat("a", 2, owned={topic: [0, 1, 2]})
    assert (response.epoch, world.group.members["a"].state) == (2, UNREVOKED)
    assert set((response.assignment or {})[topic]) == {0, 1}
    assert world.beat("a", 2, owned={topic: [0, 1]}).epoch == 4


def test_epochs_are_checked() -> None:
    world = World()
    world.beat("a")
    world.beat("a", 2, topics=("t", "u"))
    for epoch, owned in ((4, None), (1, {}), (2, None), (2, {UUID(int=1): [0, 9]})):
        with pytest.raises(KafkaError) as problem:
            world.beat("a", epoch, owned=owned)
        assert code(problem) is ErrorCode.fenced_member_epoch
    # The answer with epoch 3 was lost: the one before is fine, if it owns no more than it was given.
    assert world.beat("a", 2, owned={UUID(int=1): [0]}).epoch == 3
    with pytest.raises(KafkaError) as problem:
        world.beat("who", 3)
    assert code(problem) is ErrorCode.unknown_member_id


def test_a_member_may_join_again_at_any_time() -> None:
    """It was fenced, or never heard the answer. Nothing has changed for the others, so it is told what it
    has."""
    world = World()
    topic = UUID(int=1)
    world.beat("a")
    world.beat("a", 2, topics=("t", "u"))
    world.beat("a", 3, topics=("t",))
    written = len(world.log)
    back = world.beat("a")
    assert (back.epoch, set((back.assignment or {})[topic])) == (4, {0, 1, 2, 3})
    assert len(world.log) == written
    world.beat("b")
    world.beat("a", 4)
    assert world.group.members["a"].state == UNREVOKED
    back = world.beat("a")  # it owns nothing now, so it has given up what it had to
    assert (back.epoch, set((back.assignment or {})[topic])) == (5, {0, 1})


def test_who_reads_nothing_changes_nothing() -> None:
    world = World()
    assert world.beat("a", topics=()) == HeartbeatResponse("a", 1, {})
    assert world.beat("b", regex="") == HeartbeatResponse("b", 1, {})
    assert (world.group.epoch, world.group.state) == (1, "Stable")
    assert world.reloaded().members == world.group.members
    # An expression that nothing matches is nothing to read; it grows the epoch when a topic comes that it
    # matches.
    assert world.beat("c", regex="fo+") == HeartbeatResponse("c", 1, {})
    world.topics.set("foo", 1)
    world.group.stale = True
    assert world.beat("c", 1).epoch == 2
    assert world.beat("d", topics=("t",)).epoch == 3


def test_an_expression_with_topics_grows_the_epoch_even_if_all_are_known() -> None:
    world = World()
    world.beat("a")
    assert world.beat("b", regex="t").epoch == 3
    assert world.beat("c", regex="t").epoch == 4
    assert world.beat("c", 4, regex="").epoch == 5


def test_a_silent_member_is_removed() -> None:
    world = World(session_timeout=5000)
    world.beat("a")
    world.beat("b")
    for _ in range(4):
        world.pass_time(1500)
        world.beat("b", world.group.members["b"].epoch)
    assert list(world.group.members) == ["b"]
    assert len(world.group.members["b"].assigned[UUID(int=1)]) == 4


def test_who_does_not_give_up_its_partitions_in_time_is_removed() -> None:
    world = World()
    world.beat("a", rebalance=3000)
    world.beat("b")
    world.beat("a", 2)
    world.pass_time(2000)
    world.beat("a", 2)
    world.pass_time(1000)
    assert list(world.group.members) == ["b"]


def test_a_static_member_that_left_for_a_while_has_nothing_to_give_up() -> None:
    world = World(session_timeout=9000)
    world.beat("a", rebalance=3000, instance="i")
    world.beat("b")
    world.beat("a", 2, instance="i")
    assert world.group.members["a"].state == UNREVOKED
    world.commit(world.group.leave_for_a_while(world.group.member("a", "i"))[1])
    world.pass_time(5000)
    assert "a" in world.group.members


def test_static_members() -> None:
    world = World()
    world.beat("a", instance="i")
    with pytest.raises(KafkaError) as problem:
        world.beat("b", instance="i")
    assert code(problem) is ErrorCode.unreleased_instance_id
    member = world.group.member("a", "i")
    answer, changes = world.group.leave_for_a_while(member)
    world.commit(changes)
    assert answer.epoch == LEAVE_STATIC
    world.beat("other")
    assert world.group.members["other"].assigned == {}  # they wait for the one who will be back
    back = world.beat("b", instance="i")
    assert back.epoch == world.group.epoch
    assert set((back.assignment or {})[UUID(int=1)]) <= {0, 1, 2, 3}
    with pytest.raises(KafkaError) as problem:
        world.beat("a", 2, instance="i")
    assert code(problem) is ErrorCode.fenced_instance_id
    assert set(world.group.members) == {"b", "other"}


def test_a_static_member_comes_back_under_its_own_id() -> None:
    world = World(session_timeout=5000)
    world.beat("a", instance="i")
    world.beat("b")
    before = world.group.members["a"].assigned
    world.commit(world.group.leave_for_a_while(world.group.member("a", "i"))[1])
    back = world.beat("a", instance="i")
    assert back.epoch == world.group.epoch
    assert back.assignment == world.group.members["a"].assigned
    assert before.keys() == world.group.members["a"].assigned.keys()
    assert world.reloaded().members == world.group.members
    world.beat("a", back.epoch, instance="i")
    world.pass_time(5000)
    assert world.group.state == "Empty", "it still has a session that ends"


def test_a_static_member_that_does_not_come_back_loses_its_place() -> None:
    world = World(session_timeout=5000)
    world.beat("a", instance="i")
    world.commit(world.group.leave_for_a_while(world.group.member("a", "i"))[1])
    world.pass_time(5000)
    assert world.group.state == "Empty"


def test_expressions() -> None:
    world = World(FakeTopics(orders=2, payments=1, other=1))
    answer = world.beat("a", regex="orders|pay.*")
    assert len(answer.assignment or {}) == 2
    assert world.group.subscribed() == {"orders", "payments"}
    world.topics.set("payroll", 3)
    world.group.stale = True
    assert len(world.beat("a", 2).assignment or {}) == 3
    world.beat("a", 3, regex="", topics=("other",))
    assert world.group.regexes == {}
    with pytest.raises(KafkaError) as problem:
        world.beat("b", regex="(")
    assert code(problem) is ErrorCode.invalid_regular_expression


def test_an_expression_that_nobody_has_matched_yet_is_looked_at_again() -> None:
    world = World(FakeTopics(orders=2, payments=1))
    world.topics.has_looked = False
    assert world.beat("a", regex="orders|pay.*").assignment == {}
    assert world.group.stale
    world.topics.has_looked = True
    assert len(world.beat("a", 1).assignment or {}) == 2
    assert not world.group.stale
    # Until somebody looks at the new topic, what was found before stays.
    world.topics.set("payroll", 3)
    world.topics.has_looked = False
    world.group.stale = True
    assert world.beat("a", 2).assignment is None
    assert world.group.subscribed() == {"orders", "payments"}
    world.topics.has_looked = True
    assert len(world.beat("a", 2).assignment or {}) == 3


def test_names_are_assigned_before_what_an_expression_matches() -> None:
    """Kafka looks for the matches in the background, and clients that subscribe to both count on the
    order."""
    world = World(FakeTopics(orders=2, payments=1, other=1))
    answer = world.beat("a", topics=("other",), regex="orders|pay.*")
    assert {world.topics.name_of(topic) for topic in answer.assignment or {}} == {"other"}
    answer = world.beat("a", answer.epoch, owned=answer.assignment)
    assert {world.topics.name_of(topic) for topic in answer.assignment or {}} == {
        "orders",
        "payments",
        "other",
    }
    assert not world.group.stale
    # An expression that the group knows needs no second look.
    answer = world.beat("b", topics=("other",), regex="orders|pay.*")
    assert world.group.subscribed() == {"orders", "payments", "other"}
    assert not world.group.stale


def test_topics_that_appear_and_grow() -> None:
    world = World(FakeTopics())
    assert world.beat("a").assignment == {}
    world.topics.set("t", 2)
    world.group.stale = True
    assert len((world.beat("a", 2).assignment or {})[UUID(int=1)]) == 2
    world.topics.set("t", 5)
    world.group.stale = True
    assert len((world.beat("a", 3).assignment or {})[UUID(int=1)]) == 5


def test_most_members_choose_the_assignor() -> None:
    world = World()
    world.beat("a", assignor="range")
    assert world.group.assignor == "range"
    world.beat("b", assignor="uniform")
    world.beat("c", assignor="uniform")
    assert world.group.assignor == "uniform"


def test_static_members_come_first_in_a_range() -> None:
    world = World(FakeTopics(t=5))
    world.beat("a", assignor="range")
    world.beat("z", assignor="range", instance="j")
    world.beat("y", assignor="range", instance="k")
    shares = {key: sorted(parts[UUID(int=1)]) for key, parts in world.group.targets.items()}
    assert shares == {"z": [0, 1], "y": [2, 3], "a": [4]}


def test_the_group_has_a_limit() -> None:
    world = World(max_size=1)
    world.beat("a", instance="i")
    world.beat("a", 2)
    world.commit(world.group.leave_for_a_while(world.group.member("a", "i"))[1])
    for epoch, instance in ((JOIN, None), (3, None), (JOIN, "i")):
        with pytest.raises(KafkaError) as problem:
            world.beat("b", epoch, instance=instance)
        assert code(problem) is ErrorCode.group_max_size_reached


def test_who_may_commit() -> None:
    world = World()
    topic = UUID(int=1)

    def check(member: str, epoch: int, index: int = 0, txn: bool = False, version: int = 9) -> ErrorCode:
        return world.group.check_commit(Committer(member, None, epoch, version, txn), [(topic, index)], 0)

    assert check("", -1) is ErrorCode.none
    world.beat("a")
    assert check("", -1) is ErrorCode.unknown_member_id
    assert check("a", 2) is ErrorCode.none
    assert check("a", 2, version=8) is ErrorCode.unsupported_version
    assert check("a", 3) is ErrorCode.stale_member_epoch
    assert check("a", 3, txn=True) is ErrorCode.illegal_generation
    assert check("", -1, txn=True) is ErrorCode.none  # a producer that does not say for which member
    assert check("q", -1, txn=True) is ErrorCode.unknown_member_id
    assert (
        world.group.check_commit(Committer("", "i", -1, 5, True), [(topic, 0)], 0)
        is ErrorCode.unknown_member_id
    )
    world.beat("a", 2, topics=("t", "u"))  # epoch 3, but partition 0 is its own since epoch 2
    assert check("a", 2) is ErrorCode.none
    assert check("a", 1) is ErrorCode.stale_member_epoch
    assert check("a", 2, index=9) is ErrorCode.stale_member_epoch
    world.beat("b")
    world.beat("a", 3)
    assert 3 in world.group.members["a"].revoking[topic]
    assert check("a", 2, index=3) is ErrorCode.none, "it still has what it was told to give up"


def test_a_busy_group_puts_off_the_next_assignment() -> None:
    ticks = itertools.count()
    world = World()
    world.group = ConsumerGroup("g", world.limits, world.topics, lambda: 1, lambda: next(ticks) * 0.05)
    world.beat("a")
    world.beat("b")
    assert world.group.state == "Assigning"
    assert world.group.members["b"].epoch == 2
    world.now = 2000.0
    world.commit(world.group.assign_if_due(world.now))
    assert world.group.target_epoch == 3


def test_an_interval_between_assignments() -> None:
    world = World(assignment_interval=1000)
    assert world.beat("a").epoch == 2, "the first one does not wait"
    world.now = 10.0
    late = world.beat("b")
    assert (late.epoch, late.assignment, world.group.state) == (2, {}, "Assigning")
    world.now = 999.0
    assert world.beat("b", 2).epoch == 2
    world.now = 1000.0
    assert world.beat("b", 2).epoch == 3
    world.group.assignment_interval = 0
    world.now = 2500.0
    assert [world.beat("c").epoch, world.beat("d").epoch] == [4, 5], "the group's own interval counts"


class Client:
    """Does what a consumer does: heartbeats, gives up what it must, starts anew when it is fenced."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        self.world, self.name, self.instance = world, name, instance
        self.lives = 0
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.epoch = JOIN
        self.owned: dict[UUID, list[int]] = {}

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self.lives}"

    def beat(self, topics: tuple[str, ...] | None = None) -> None:
        fields: dict[str, Any] = {"instance": self.instance, "owned": self.owned}
        if topics is not None:
            fields["topics"] = topics
        try:
            answer = self.world.beat(self.member_id, self.epoch, **fields)
        except KafkaError as error:
            if error.code is not ErrorCode.unreleased_instance_id:
                self.start()
            return
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.owned = {topic: sorted(indexes) for topic, indexes in answer.assignment.items()}


def check_world(world: World, clients: list[Client]) -> None:
    held: dict[tuple[UUID, int], str] = {}
    for member in world.group.members.values():
        for parts in (member.assigned, member.revoking):
            for topic, indexes in parts.items():
                for index in indexes:
                    assert held.setdefault((topic, index), member.member_id) == member.member_id, "two owners"
    again = world.reloaded()
    for name in (
        "epoch",
        "target_epoch",
        "members",
        "static",
        "targets",
        "regexes",
        "topics_hash",
        "_owners",
    ):
        mine, theirs = getattr(world.group, name), getattr(again, name)
        if name == "_owners":
            mine, theirs = ({t: o for t, o in each.items() if o} for each in (mine, theirs))
        assert mine == theirs, name


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_random_members(seed: int) -> None:
    """They come, change their minds, fall silent, come back; in the end each partition has one reader."""
    choose = random.Random(seed)
    world = World(FakeTopics(t=5, u=3), session_timeout=5000)
    clients = [Client(world, f"c{n}", "i1" if n == 0 else None) for n in range(4)]
    alive = list(clients)
    for _ in range(80):
        client = choose.choice(clients)
        kind = choose.randrange(10)
        if kind < 6 and client in alive:
            client.beat(choose.choice((("t",), ("u",), ("t", "u"))) if choose.random() < 0.1 else None)
        elif kind == 6 and client in alive and len(alive) > 1:
            alive.remove(client)
        elif kind == 7 and client not in alive:
            client.start()
            alive.append(client)
        elif kind == 8:
            world.pass_time(choose.choice((10, 1000, 4000)))
        elif kind == 9 and choose.random() < 0.3:
            world.topics.set("t", world.topics.counts["t"] + 1)
            world.group.stale = True
        check_world(world, clients)
    for _ in range(30):
        for client in alive:
            client.beat(("t", "u"))
        world.pass_time(500)
    check_world(world, clients)
    assert world.group.state == "Stable"
    assert set(world.group.members) == {client.member_id for client in alive}
    owned = [(topic, index) for client in alive for topic, parts in client.owned.items() for index in parts]
    assert len(owned) == len(set(owned)) == sum(world.topics.counts.values())
