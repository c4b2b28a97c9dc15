"""Classic groups over the wire: the answers, version by version, that Apache Kafka 4.3 gives."""

from collections.abc import Iterator

import pytest

from ...raw_frames import new_topic
from .raw_groups import RANGE, SUBSCRIPTION, Groups, Later

NONE, UNKNOWN_TOPIC, UNKNOWN_MEMBER, ILLEGAL_GENERATION = 0, 3, 25, 22
INCONSISTENT, INVALID_GROUP, INVALID_SESSION, REBALANCING = 23, 24, 26, 27
NON_EMPTY, GROUP_NOT_FOUND, MEMBER_ID_REQUIRED, FENCED, SUBSCRIBED = 68, 69, 79, 82, 86
TOO_LARGE = 12


@pytest.fixture(scope="session", autouse=True)
def topics(servers: str) -> None:
    with Groups(servers) as client:
        known = {
            topic.name
            for topic in client.ask(
                "metadata", 9, topics=None, allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
            ).topics
        }  # fmt: skip
    for topic, count in (("t1", 3), ("t2", 2)):
        if topic not in known:
            new_topic(servers, topic, count)


@pytest.fixture
def client(servers: str) -> Iterator[Groups]:
    with Groups(servers) as client:
        client.find("x")
        yield client


@pytest.fixture
def other(servers: str) -> Iterator[Groups]:
    with Groups(servers) as client:
        yield client


@pytest.fixture
def third(servers: str) -> Iterator[Groups]:
    with Groups(servers) as client:
        yield client


# --- FindCoordinator ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(client: Groups, servers: str, version: int) -> None:
    answer = client.find("some group", version=version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, f"{found.host}:{found.port}") == (NONE, servers)
    assert version < 4 or found.key == "some group"


def test_find_many_coordinators(client: Groups) -> None:
    assert [each.key for each in client.find("a", "", "b").coordinators] == ["a", "", "b"]
    assert client.find().coordinators == ()


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_find_a_coordinator_of_an_unknown_kind(client: Groups, version: int) -> None:
    answer = client.find("a", kind=9, version=version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (42, -1, "", -1)


# --- membership -----------------------------------------------------------------------------------


def test_what_join_refuses(client: Groups, name: str) -> None:
    assert client.join("").error_code == INVALID_GROUP
    assert client.join(name, session=10).error_code == INVALID_SESSION
    assert client.join(name, session=99_999_999).error_code == INVALID_SESSION
    unknown = client.join(name, "nope")
    assert (unknown.error_code, unknown.member_id, unknown.generation_id) == (UNKNOWN_MEMBER, "nope", -1)
    assert client.join(name, protocols=()).error_code == INCONSISTENT
    for version in (0, 3, 9):
        answer = client.join(name, kind="", version=version)
        assert (answer.error_code, answer.protocol_name) == (INCONSISTENT, None if version >= 7 else "")


@pytest.mark.parametrize("version", range(10))
def test_join_sync_heartbeat_and_leave(client: Groups, name: str, version: int) -> None:
    answer = client.join(name, version=version)
    if version >= 4:
        assert answer.error_code == MEMBER_ID_REQUIRED
        answer = client.join(name, answer.member_id, version=version)
    member = answer.member_id
    assert (answer.error_code, answer.generation_id, answer.protocol_name, answer.leader) == (
        NONE,
        1,
        "range",
        member,
    )
    assert [(each.member_id, each.metadata) for each in answer.members] == [(member, SUBSCRIPTION)]
    for sync_version in range(6):
        done = client.sync(name, member, 1, {member: b"part"}, version=sync_version)
        assert (done.error_code, done.assignment) == (NONE, b"part")
    assert [client.heartbeat(name, member, 1, version=each) for each in range(5)] == [NONE] * 5
    left = client.leave(name, (member, None), version=min(version, 5))
    assert left.error_code == NONE
    if version >= 3:
        assert [each.error_code for each in left.members] == [NONE]
    assert client.heartbeat(name, member, 1) == UNKNOWN_MEMBER
    assert client.sync(name, member, 1).error_code == UNKNOWN_MEMBER
    assert client.join(name, member).error_code == UNKNOWN_MEMBER
    assert client.describe(name).group_state == "Empty"


def test_errors_while_a_group_is_stable(client: Groups, other: Groups, name: str) -> None:
    member = client.enter(name).member_id
    assert client.commit(name, {"t1": {0: 1}}, member, 1) == {"t1": {0: REBALANCING}}
    assert client.heartbeat(name, member, 1) == NONE
    assert client.sync(name, member, 7).error_code == ILLEGAL_GENERATION
    assert client.sync(name, "zz", 1).error_code == UNKNOWN_MEMBER
    assert client.sync(name, member, 1, protocol="zz").error_code == INCONSISTENT
    assert client.sync(name, member, 1, kind="zz").error_code == INCONSISTENT
    for group in (name, name + "none", ""):  # from version 5 on both must be there, whoever asks
        assert client.sync(group, member, 1, kind=None).error_code == INCONSISTENT
        assert client.sync(group, member, 1, protocol=None).error_code == INCONSISTENT
    assert client.sync(name, member, 1, {member: b"x"}).assignment == b"x"
    assert client.heartbeat(name, member, 2) == ILLEGAL_GENERATION
    assert client.heartbeat(name, "q", 1) == UNKNOWN_MEMBER
    assert client.heartbeat(name + "none", "q", 1) == UNKNOWN_MEMBER
    assert client.heartbeat("", "q", 1) == INVALID_GROUP
    assert client.heartbeat(name, member, 1, "inst") == UNKNOWN_MEMBER
    assert other.join(name, kind="connect").error_code == INCONSISTENT
    assert other.join(name, protocols=(("zz", b""),)).error_code == INCONSISTENT


def test_what_leave_refuses(client: Groups, name: str) -> None:
    member = client.enter(name).member_id
    for wrong in (("zz", None), ("", None), ("", "i"), (member, "i")):
        (answer,) = client.leave(name, wrong).members
        assert answer.error_code == UNKNOWN_MEMBER
    missing = client.leave(name + "none", ("a", None))
    assert (missing.error_code, missing.members[0].error_code) == (NONE, UNKNOWN_MEMBER)
    assert client.leave(name + "none", ("a", None), version=2).error_code == UNKNOWN_MEMBER
    assert client.leave("", ("a", None)).error_code == INVALID_GROUP
    assert client.leave(name).members == ()
    answer = client.leave(name, (member, None), ("other", None))
    assert [each.error_code for each in answer.members] == [NONE, UNKNOWN_MEMBER]


def test_two_members_rebalance(client: Groups, other: Groups, third: Groups, name: str) -> None:
    one, two = client.join(name).member_id, other.join(name).member_id
    waiting = Later(lambda: client.join(name, one))
    joined = other.join(name, two)
    assert waiting.get().generation_id == joined.generation_id == 1
    (leader, lead), (follower, follow) = sorted(
        [(one, client), (two, other)], key=lambda each: each[0] != joined.leader
    )
    early = Later(lambda: follow.sync(name, follower, 1))
    assert early.waits()
    assert lead.sync(name, leader, 1, {leader: b"L", follower: b"F"}).assignment == b"L"
    assert early.get().assignment == b"F"

    again = Later(lambda: lead.join(name, leader))
    assert again.waits()
    assert follow.heartbeat(name, follower, 1) == REBALANCING
    assert follow.commit(name, {"t1": {0: 1}}, follower, 1) == {"t1": {0: NONE}}
    assert follow.sync(name, follower, 1).error_code == REBALANCING
    described = third.describe(name)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_assignment for each in described.members} == {b"L", b"F"}
    assert follow.join(name, follower).generation_id == again.get().generation_id == 2

    early = Later(lambda: follow.sync(name, follower, 2))
    assert early.waits()
    lead.leave(name, (leader, None))
    assert early.get().error_code == REBALANCING
    alone = follow.join(name, follower)
    assert (alone.generation_id, alone.leader, len(alone.members)) == (3, follower, 1)


def test_who_leaves_while_joining(client: Groups, other: Groups, third: Groups, name: str) -> None:
    member = client.enter(name).member_id
    client.sync(name, member, 1, {member: b"x"})
    new = other.join(name).member_id
    joining = Later(lambda: other.join(name, new))
    assert joining.waits()
    third.leave(name, (new, None))
    answer = joining.get()
    assert (answer.error_code, answer.member_id) == (UNKNOWN_MEMBER, "")


def test_a_session_that_ends(client: Groups, name: str) -> None:
    member = client.enter(name, session=1000).member_id
    client.sync(name, member, 1, {member: b"x"})
    with Groups(f"{client.socket.getpeername()[0]}:{client.socket.getpeername()[1]}") as other:
        joined = other.enter(name, rebalance=60_000)  # ends when the silent one is gone
    assert joined.generation_id == 2
    assert len(joined.members) == 1


# --- static members -------------------------------------------------------------------------------


def test_static_members(client: Groups, other: Groups, third: Groups, name: str) -> None:
    waiting = Later(lambda: client.join(name, instance="i1"))
    two = other.join(name, instance="i2")
    one = waiting.get()
    assert one.member_id.startswith("i1-")
    (leader, li, lead), (follower, fi, follow) = sorted(
        [(one.member_id, "i1", client), (two.member_id, "i2", other)], key=lambda each: each[0] != one.leader
    )
    early = Later(lambda: follow.sync(name, follower, 1, instance=fi))
    assert early.waits()
    lead.sync(name, leader, 1, {leader: b"L", follower: b"F"}, instance=li)
    assert early.get().assignment == b"F"

    back = third.join(name, instance=fi)
    assert (back.error_code, back.generation_id, back.skip_assignment, back.members) == (NONE, 1, False, ())
    assert third.sync(name, back.member_id, 1, instance=fi).assignment == b"F"
    assert follow.heartbeat(name, follower, 1, fi) == FENCED
    assert follow.heartbeat(name, follower, 1) == UNKNOWN_MEMBER
    assert follow.commit(name, {"t1": {0: 1}}, follower, 1, fi) == {"t1": {0: FENCED}}
    assert follow.sync(name, follower, 1, instance=fi).error_code == FENCED
    assert follow.join(name, follower, instance=fi).error_code == FENCED
    assert follow.leave(name, (follower, fi)).members[0].error_code == FENCED

    back = third.join(name, instance=li)
    assert (back.skip_assignment, back.leader, len(back.members)) == (True, back.member_id, 2)
    for version in (8, 6):  # versions that cannot say "do not divide" name the former leader
        before, back = back.member_id, third.join(name, instance=li, version=version)
        assert (back.error_code, back.leader, back.members) == (NONE, before, ())
    assert third.heartbeat(name, back.member_id, 1, li) == NONE

    answer = third.leave(name, ("", "i1"), ("", "nope"), ("", "i2"))
    assert [each.error_code for each in answer.members] == [NONE, UNKNOWN_MEMBER, NONE]
    assert third.describe(name).group_state == "Empty"


def test_the_same_instance_twice(client: Groups, other: Groups, third: Groups, name: str) -> None:
    first = client.join(name, instance="i1").member_id
    client.sync(name, first, 1, {first: b"x"}, instance="i1")
    newcomer = other.join(name).member_id
    waiting = Later(lambda: other.join(name, newcomer))
    assert waiting.waits()
    joining = Later(lambda: client.join(name, first, instance="i1", protocols=(("range", b"new"),)))
    joined, joined_too = joining.get(), waiting.get()
    assert joined.generation_id == joined_too.generation_id == 2
    syncing = Later(lambda: client.sync(name, first, 2, instance="i1")) if joined.leader != first else None
    rejoin = Later(lambda: third.join(name, instance="i1"))
    if syncing is not None:
        assert syncing.get().error_code == FENCED
    other.join(name, newcomer)
    assert rejoin.get().generation_id == 3


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_and_fetch(client: Groups, name: str, version: int) -> None:
    assert client.commit(name, {"t1": {0: 5, 1: (7, "note")}}, version=version) == {"t1": {0: NONE, 1: NONE}}
    for fetch_version in range(1, 10):
        assert client.fetch(name, {"t1": [0, 1, 2], "nope": [0]}, version=fetch_version) == {
            "t1": {0: 5, 1: 7, 2: -1},
            "nope": {0: -1},
        }
        if fetch_version >= 2:
            assert client.fetch(name, version=fetch_version) == {"t1": {0: 5, 1: 7}}
    answer = client.fetch_answer(name, {"t1": [1]}).groups[0].topics[0].partitions[0]
    assert (answer.metadata, answer.committed_leader_epoch) == ("note", -1)


def test_topics_by_their_id(client: Groups, name: str) -> None:
    from uuid import UUID

    known, unknown = client.topic_id("t1"), UUID(int=7)
    answer = client.commit(name, {known: {0: 5, 9: 1}, unknown: {0: 1}}, version=10)
    assert answer == {known: {0: NONE, 9: UNKNOWN_TOPIC}, unknown: {0: 100}}
    found = client.fetch(name, {unknown: [0], known: [0, 1]}, version=10)
    assert found == {known: {0: 5, 1: -1}, unknown: {0: "error 100"}}
    assert list(found) == [known, unknown], "what is not known comes last"
    assert client.fetch(name, version=10) == {known: {0: 5}}


def test_what_commit_refuses(client: Groups, name: str) -> None:
    member = client.enter(name).member_id
    client.sync(name, member, 1, {member: b"x"})
    one = {"t1": {0: 1}}

    def error(*args: object) -> int:
        return client.commit(name, one, *args)["t1"][0]  # type: ignore[arg-type]

    assert error(member, 1) == NONE
    assert error(member, 9) == ILLEGAL_GENERATION
    assert error("who", 1) == UNKNOWN_MEMBER
    assert error() == UNKNOWN_MEMBER
    assert error(member, 1, "inst") == UNKNOWN_MEMBER
    assert client.commit(name + "2", one, "who", 1)["t1"][0] == GROUP_NOT_FOUND
    assert client.commit(name + "2", one, "who", 1, version=8)["t1"][0] == ILLEGAL_GENERATION
    assert client.commit(name + "3", one)["t1"][0] == NONE
    assert client.commit(name + "3", one, "who", 1)["t1"][0] == UNKNOWN_MEMBER
    assert client.commit("", one)["t1"][0] == NONE
    given = {"nope": {0: 1}, "t1": {0: -5, 1: (1, "x" * 4097), 2: (3, "x" * 4096), 99: (1, None), -1: 3}}
    assert client.commit(name, given, member, 1) == {
        "nope": {0: UNKNOWN_TOPIC},
        "t1": {0: NONE, 1: TOO_LARGE, 2: NONE, 99: UNKNOWN_TOPIC, -1: UNKNOWN_TOPIC},
    }
    assert client.commit(name, {}, member, 1) == {}
    # What does not exist is said first.
    assert client.commit(name, given, "who", 1) == {
        "nope": {0: UNKNOWN_TOPIC},
        "t1": dict.fromkeys((0, 1, 2), UNKNOWN_MEMBER) | dict.fromkeys((99, -1), UNKNOWN_TOPIC),
    }
    assert client.commit(name, {"nope": {0: 1}, "t1": {99: 1}}, "who", 1) == {
        "nope": {0: UNKNOWN_TOPIC},
        "t1": {99: UNKNOWN_TOPIC},
    }


def test_fetch_of_what_is_not_there(client: Groups, name: str) -> None:
    assert client.fetch(name, {"t1": [0]}) == {"t1": {0: -1}}
    assert client.fetch(name) == {}
    assert client.fetch(name, {}) == {}
    assert client.fetch("", {"t1": [2]})["t1"]
    assert client.fetch(name, {"t1": [0]}, member="zz", epoch=4) == {"t1": {0: -1}}


def test_delete_offsets(client: Groups, name: str) -> None:
    member = client.enter(name).member_id
    client.sync(name, member, 1, {member: b"x"})
    client.commit(name, {"t1": {0: 1}, "t2": {0: 2, 1: 3}}, member, 1)
    answer = client.delete_offsets(name, {"t1": [0], "t2": [0, 9], "nope": [0]})
    errors = {t.name: {p.partition_index: p.error_code for p in t.partitions} for t in answer.topics}
    assert errors == {"t1": {0: SUBSCRIBED}, "t2": {0: NONE, 9: UNKNOWN_TOPIC}, "nope": {0: UNKNOWN_TOPIC}}
    assert client.fetch(name) == {"t1": {0: 1}, "t2": {1: 3}}
    assert client.delete_offsets(name + "none", {"t1": [0]}).error_code == GROUP_NOT_FOUND
    assert client.delete_offsets("", {"t1": [0]}).error_code == INVALID_GROUP


def test_delete_offsets_of_a_group_that_is_no_consumer(client: Groups, name: str) -> None:
    client.enter(name, kind="connect", protocols=(("p", b""),))
    assert client.delete_offsets(name, {"t1": [0]}).error_code == NON_EMPTY


# --- administration -------------------------------------------------------------------------------


def test_describe(client: Groups, name: str) -> None:
    member = client.join(name).member_id
    assert client.describe(name).group_state == "Empty"
    client.join(name, member)
    described = client.describe(name)
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    client.sync(name, member, 1, {member: b"part"})
    for version in range(7):
        described = client.describe(name, version)
        (only,) = described.members
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert (only.member_id, only.client_id, only.client_host) == (member, "raw", "/127.0.0.1")
        assert (only.member_metadata, only.member_assignment) == (SUBSCRIPTION, b"part")
        assert version < 3 or described.authorized_operations == 3400


def test_describe_of_what_is_not_there(client: Groups, name: str) -> None:
    old = client.describe(name, 5)
    assert (old.error_code, old.group_state, old.authorized_operations) == (NONE, "Dead", 3400)
    new = client.describe(name, 6)
    assert (new.error_code, new.group_state) == (GROUP_NOT_FOUND, "Dead")
    assert new.error_message == f"Group {name} not found."


@pytest.mark.parametrize("version", range(6))
def test_list(client: Groups, name: str, version: int) -> None:
    client.commit(name, {"t1": {0: 1}})
    client.enter(name + "m", protocols=RANGE)
    found = client.list(version=version)
    assert (found[name].protocol_type, found[name + "m"].protocol_type) == ("", "consumer")
    if version >= 4:
        assert (found[name].group_state, found[name + "m"].group_state) == ("Empty", "CompletingRebalance")
        assert name + "m" not in client.list(version=version, states=["empty", "Stable"])
        assert name not in client.list(version=version, states=["nonsense"])
        assert name in client.list(version=version, states=[" Empty "])
    if version >= 5:
        assert found[name].group_type == "classic"
        assert name in client.list(types=["Classic"])
        assert name not in client.list(types=["consumer"])


@pytest.mark.parametrize("version", range(3))
def test_delete(client: Groups, name: str, version: int) -> None:
    member = client.enter(name).member_id
    client.sync(name, member, 1, {member: b"x"})
    client.commit(name, {"t1": {0: 1}}, member, 1)
    assert client.delete(name, name + "none", version=version) == {
        name: NON_EMPTY,
        name + "none": GROUP_NOT_FOUND,
    }
    client.leave(name, (member, None))
    assert client.delete(name, version=version) == {name: NONE}
    assert client.fetch(name) == {}
    assert name not in client.list()
