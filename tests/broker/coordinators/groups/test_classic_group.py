"""Rules of classic groups, one by one, without sockets and without waiting."""

import pytest

from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_rebalance import NEW_MEMBER_TIMEOUT
from millstream.broker.coordinators.groups.classic_types import ClassicGroupState, ClassicLimits, Purpose
from millstream.broker.coordinators.groups.offset_records import group_value, parse_group_value
from millstream.wire.errors import ErrorCode

from .classic_world import RANGE, World

NONE = ErrorCode.none
TWO = (("range", RANGE[0][1]), ("sticky", b"s"))


def test_one_member_joins_syncs_and_is_stable() -> None:
    world = World()
    waiter = world.send_join()
    assert world.group.state is ClassicGroupState.PREPARING
    world.pass_time(0)
    joined = world.joined(waiter)
    assert (joined.error, joined.generation, joined.protocol, joined.leader) == (
        NONE,
        1,
        "range",
        joined.member_id,
    )
    assert joined.members == ((joined.member_id, None, RANGE[0][1]),)
    assert world.group.state is ClassicGroupState.COMPLETING
    synced = world.synced(world.send_sync(joined.member_id, assignments={joined.member_id: b"all"}))
    assert (synced.error, synced.assignment, synced.protocol) == (NONE, b"all", "range")
    assert world.group.state is ClassicGroupState.STABLE
    assert world.heartbeat(joined.member_id) is NONE
    assert [save.purpose for save in world.saves] == [Purpose.ASSIGNMENT]


# --- joining --------------------------------------------------------------------------------------


def test_the_first_join_fetches_an_id() -> None:
    world = World()
    first = world.joined(world.send_join(known=True))
    assert (first.error, first.member_id) == (ErrorCode.member_id_required, "client-id1")
    assert world.group.state is ClassicGroupState.EMPTY
    waiter = world.send_join(first.member_id, known=True)
    world.pass_time(0)
    assert world.joined(waiter).error is NONE


def test_an_id_that_is_not_used_is_forgotten() -> None:
    world = World()
    first = world.joined(world.send_join(known=True, session=7000))
    world.pass_time(7000)
    assert world.joined(world.send_join(first.member_id, known=True)).error is ErrorCode.unknown_member_id


def test_a_rebalance_waits_for_those_who_fetched_an_id() -> None:
    world = World()
    (leader,) = world.stable()
    pending = world.joined(world.send_join(known=True, session=6000)).member_id
    again = world.send_join(leader)
    assert again not in world.answers
    world.pass_time(5999)
    assert again not in world.answers
    world.pass_time(1)
    assert world.joined(again).generation == 2
    assert pending not in world.group.pending


def test_a_member_that_is_not_known() -> None:
    world = World()
    world.stable()
    assert world.joined(world.send_join("who")).error is ErrorCode.unknown_member_id


def test_protocols_that_do_not_fit() -> None:
    world = World()
    for kind, protocols in (("", RANGE), ("consumer", ())):
        error = world.joined(world.send_join(protocol_type=kind, protocols=protocols)).error
        assert error is ErrorCode.inconsistent_group_protocol
    world.stable()
    for kind, protocols in (("connect", RANGE), ("consumer", (("sticky", b""),))):
        error = world.joined(world.send_join(protocol_type=kind, protocols=protocols)).error
        assert error is ErrorCode.inconsistent_group_protocol


def test_members_vote_for_the_protocol() -> None:
    world = World()
    one = world.send_join(protocols=(("a", b"1"), ("b", b"2"), ("c", b"")))
    two = world.send_join(protocols=(("b", b"3"), ("a", b"4")))
    three = world.send_join(protocols=(("b", b"5"), ("a", b"6")))
    world.pass_time(0)
    leader = next(joined for joined in map(world.joined, (one, two, three)) if joined.members)
    assert leader.protocol == "b"
    assert sorted(metadata for _, _, metadata in leader.members) == [b"2", b"3", b"5"]


def test_the_initial_delay_is_extended_while_members_come_but_not_beyond_the_rebalance_timeout() -> None:
    world = World(initial_delay=3000)
    first = world.send_join(rebalance=7000)
    for _ in range(2):
        world.pass_time(2000)
        world.send_join(rebalance=7000)
        world.pass_time(1000)
    assert first not in world.answers  # 6 s: the last second of the 7 is still left
    world.send_join(rebalance=7000)
    world.pass_time(999)
    assert first not in world.answers
    world.pass_time(1)
    assert world.joined(first).generation == 1
    assert len(world.group.members) == 4


def test_the_initial_delay_ends_when_nobody_comes() -> None:
    world = World(initial_delay=3000)
    first = world.send_join()
    world.pass_time(2999)
    assert first not in world.answers
    world.pass_time(1)
    assert world.joined(first).error is NONE


def test_a_new_member_makes_the_others_join_again() -> None:
    world = World()
    leader, follower = world.stable(2)
    late = world.send_join()
    assert world.group.state is ClassicGroupState.PREPARING
    assert world.heartbeat(leader) is ErrorCode.rebalance_in_progress
    assert world.synced(world.send_sync(leader)).error is ErrorCode.rebalance_in_progress
    again = [world.send_join(leader), world.send_join(follower)]
    assert {world.joined(waiter).generation for waiter in (late, *again)} == {2}
    assert world.joined(again[0]).leader == leader  # the leader stays


def test_who_does_not_join_again_in_time_is_out() -> None:
    world = World()
    leader, follower = world.stable(2, rebalance=20_000)
    late = world.send_join(rebalance=20_000)
    for _ in range(19):
        world.pass_time(1000)
        assert world.heartbeat(leader) is ErrorCode.rebalance_in_progress
        world.heartbeat(follower)
    again = world.send_join(follower, rebalance=20_000)
    world.pass_time(1000)
    assert {world.joined(late).generation, world.joined(again).generation} == {2}
    assert world.heartbeat(leader, 2) is ErrorCode.unknown_member_id
    assert world.group.leader in world.group.members


def test_a_follower_that_joins_again_without_change_gets_the_same_generation() -> None:
    world = World()
    leader, follower = world.stable(2)
    joined = world.joined(world.send_join(follower))
    assert (joined.error, joined.generation, joined.leader, joined.members) == (NONE, 1, leader, ())
    assert world.group.state is ClassicGroupState.STABLE


def test_a_leader_that_joins_again_asks_for_a_rebalance() -> None:
    world = World()
    leader, _ = world.stable(2)
    world.send_join(leader)
    assert world.group.state is ClassicGroupState.PREPARING


@pytest.mark.parametrize("completing", [True, False])
def test_changed_metadata_asks_for_a_rebalance(completing: bool) -> None:
    world = World()
    if completing:
        waiters = [world.send_join(), world.send_join()]
        world.pass_time(0)
        follower = next(j.member_id for j in map(world.joined, waiters) if not j.members)
    else:
        _, follower = world.stable(2)
    world.send_join(follower, protocols=TWO)
    assert world.group.state is ClassicGroupState.PREPARING


def test_a_join_answer_that_was_lost_is_given_again() -> None:
    world = World()
    waiters = [world.send_join(), world.send_join()]
    world.pass_time(0)
    for joined in map(world.joined, waiters):
        again = world.joined(world.send_join(joined.member_id))
        assert again == joined
    assert world.group.state is ClassicGroupState.COMPLETING


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    world = World()
    leader, _ = world.stable(2)
    first = world.send_join(leader)
    second = world.send_join(leader)
    assert world.joined(first).error is ErrorCode.rebalance_in_progress
    assert second not in world.answers
    assert world.group.awaiting_join == 1


def test_the_group_has_a_limit() -> None:
    world = World(max_size=2)
    leader, follower = world.stable(2)
    assert world.joined(world.send_join()).error is ErrorCode.group_max_size_reached
    world.send_join(leader)  # those inside may go on
    assert world.joined(world.send_join(follower)).generation == 2


def test_a_lowered_limit_sheds_who_joins_last() -> None:
    world = World()
    ids = world.stable(3)
    world.limits.max_size = 2
    waiters = [world.send_join(each) for each in ids]
    results = [world.joined(waiter).error for waiter in waiters]
    assert results == [NONE, NONE, ErrorCode.group_max_size_reached]
    assert len(world.group.members) == 2


# --- syncing --------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader() -> None:
    world = World()
    waiters = [world.send_join(), world.send_join()]
    world.pass_time(0)
    leader, follower = sorted(
        (world.joined(waiter).member_id for waiter in waiters), key=lambda each: each != world.group.leader
    )
    early = world.send_sync(follower)
    assert early not in world.answers
    done = world.send_sync(leader, assignments={leader: b"L", follower: b"F", "stranger": b"S"})
    assert (world.synced(done).assignment, world.synced(early).assignment) == (b"L", b"F")
    assert world.synced(world.send_sync(follower)).assignment == b"F"  # and again, at any time


def test_a_member_the_leader_forgot_gets_nothing() -> None:
    world = World()
    world.send_join()
    world.pass_time(0)
    assert world.group.leader is not None
    assert world.synced(world.send_sync(world.group.leader)).assignment == b""


def test_what_sync_refuses() -> None:
    world = World()
    (member,) = world.stable()
    assert world.synced(world.send_sync(member, 9)).error is ErrorCode.illegal_generation
    assert world.synced(world.send_sync("who")).error is ErrorCode.unknown_member_id
    wrong = world.send_sync(member, protocol="sticky")
    assert world.synced(wrong).error is ErrorCode.inconsistent_group_protocol
    wrong = world.send_sync(member, protocol_type="connect")
    assert world.synced(wrong).error is ErrorCode.inconsistent_group_protocol
    right = world.send_sync(member, protocol_type="consumer", protocol="range")
    assert world.synced(right).error is NONE


def test_who_never_syncs_is_out() -> None:
    world = World()
    waiters = [world.send_join(rebalance=15_000), world.send_join(rebalance=15_000)]
    world.pass_time(0)
    ids = {world.joined(waiter).member_id for waiter in waiters}
    leader = world.group.leader or ""
    (lazy,) = ids - {leader}
    world.send_sync(leader, assignments={})
    for _ in range(15):
        world.pass_time(1000)
        for each in ids:
            world.heartbeat(each)
    assert lazy not in world.group.members
    assert world.group.state is ClassicGroupState.PREPARING


def test_a_rebalance_ends_the_wait_for_the_leader() -> None:
    world = World()
    waiters = [world.send_join(), world.send_join()]
    world.pass_time(0)
    follower = next(j.member_id for j in map(world.joined, waiters) if not j.members)
    early = world.send_sync(follower)
    world.send_join()
    assert world.synced(early).error is ErrorCode.rebalance_in_progress


def test_nobody_gets_a_part_before_it_is_written() -> None:
    world = World()
    world.hold = True
    world.send_join()
    world.pass_time(0)
    leader = world.group.leader or ""
    waiter = world.send_sync(leader, assignments={leader: b"L"})
    assert waiter not in world.answers
    assert world.group.state is ClassicGroupState.COMPLETING
    record = parse_group_value(group_value(world.saves[0].record))
    assert [(each.member_id, each.assignment) for each in record.members] == [(leader, b"L")]
    world.let_go()
    assert world.synced(waiter).assignment == b"L"
    assert world.group.state is ClassicGroupState.STABLE


def test_a_write_that_fails_makes_the_members_join_again() -> None:
    world = World()
    world.hold = True
    world.send_join()
    world.pass_time(0)
    leader = world.group.leader or ""
    waiter = world.send_sync(leader, assignments={leader: b"L"})
    world.let_go(ErrorCode.not_coordinator)
    assert world.synced(waiter).error is ErrorCode.not_coordinator
    assert world.group.state is ClassicGroupState.PREPARING
    assert world.group.members[leader].assignment == b""


def test_a_write_that_comes_too_late_does_not_matter() -> None:
    world = World()
    world.hold = True
    world.send_join()
    world.pass_time(0)
    leader = world.group.leader or ""
    world.send_sync(leader, assignments={leader: b"old"})
    world.send_join()
    world.let_go()
    assert world.group.state is ClassicGroupState.PREPARING
    assert world.group.members[leader].assignment == b""


# --- leaving and dying ----------------------------------------------------------------------------


def test_the_last_to_leave_empties_the_group() -> None:
    world = World()
    (member,) = world.stable()
    world.pass_time(500)
    assert world.leave((member, None)) == [NONE]
    group = world.group
    assert (group.state, group.generation, group.protocol, group.leader) == (
        ClassicGroupState.EMPTY,
        2,
        None,
        None,
    )
    assert (group.protocol_type, group.state_time) == ("consumer", 500)
    assert world.saves[-1].purpose is Purpose.EMPTY
    assert world.saves[-1].record.members == []


def test_leaving_in_batches() -> None:
    world = World()
    one, two, three = world.stable(3)
    pending = world.joined(world.send_join(known=True)).member_id
    errors = world.leave((one, None), ("who", None), (two, "not-static"), (pending, None), ("", "nobody"))
    unknown = ErrorCode.unknown_member_id
    assert errors == [NONE, unknown, unknown, NONE, unknown]
    assert set(world.group.members) == {two, three}
    assert world.group.state is ClassicGroupState.PREPARING


def test_who_leaves_while_waiting_is_told_so() -> None:
    world = World()
    leader, follower = world.stable(2)
    joining = world.send_join()
    late = next(each for each in world.group.members if each not in (leader, follower))
    world.leave((late, None))
    assert world.joined(joining).error is ErrorCode.unknown_member_id


def test_a_silent_member_dies_and_the_rest_rebalances() -> None:
    world = World()
    leader, follower = world.stable(2, session=10_000)
    for _ in range(9):
        world.pass_time(1000)
        assert world.heartbeat(follower) is NONE
    world.pass_time(1000)
    assert world.heartbeat(follower) is ErrorCode.rebalance_in_progress
    assert leader not in world.group.members
    assert world.joined(world.send_join(follower)).leader == follower


def test_members_that_wait_for_us_do_not_die() -> None:
    world = World()
    leader, follower = world.stable(2, session=10_000, rebalance=60_000)
    waiting = world.send_join(leader, session=10_000, rebalance=60_000)
    for _ in range(59):
        world.pass_time(1000)
        world.heartbeat(follower)
    assert leader in world.group.members
    assert waiting not in world.answers


def test_a_first_join_does_not_wait_for_ever() -> None:
    world = World()
    (leader,) = world.stable(1, session=10_000, rebalance=900_000)
    late = world.send_join(rebalance=900_000)
    for _ in range(NEW_MEMBER_TIMEOUT // 5000):
        assert late not in world.answers
        world.pass_time(5000)
        world.heartbeat(leader)
    assert world.joined(late).error is ErrorCode.unknown_member_id


def test_heartbeats_are_checked() -> None:
    world = World()
    (member,) = world.stable()
    assert world.heartbeat("who") is ErrorCode.unknown_member_id
    assert world.heartbeat(member, 0) is ErrorCode.illegal_generation
    assert world.heartbeat(member, instance="x") is ErrorCode.unknown_member_id


# --- static members -------------------------------------------------------------------------------


def static_pair() -> tuple[World, str, str]:
    world = World()
    waiters = [world.send_join(instance="i1"), world.send_join(instance="i2")]
    world.pass_time(0)
    ids = [world.joined(waiter).member_id for waiter in waiters]
    ids.sort(key=lambda each: each != world.group.leader)
    world.settle(ids)
    return world, *ids


def instance_of(world: World, member_id: str) -> str:
    return world.group.members[member_id].instance_id or ""


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world, leader, follower = static_pair()
    instance = instance_of(world, follower)
    joined = world.joined(world.send_join(instance=instance))
    assert (joined.error, joined.generation, joined.skip_assignment) == (NONE, 1, False)
    assert joined.member_id != follower
    assert world.group.state is ClassicGroupState.STABLE
    assert world.synced(world.send_sync(joined.member_id, instance=instance)).assignment == follower.encode()
    for error in (
        world.heartbeat(follower, instance=instance),
        world.synced(world.send_sync(follower, instance=instance)).error,
        world.joined(world.send_join(follower, instance=instance)).error,
        world.commit(follower, 1, instance),
        *world.leave((follower, instance)),
    ):
        assert error is ErrorCode.fenced_instance_id
    assert world.heartbeat(follower) is ErrorCode.unknown_member_id
    assert world.heartbeat(leader) is NONE


def test_a_leader_that_comes_back_must_not_divide_again() -> None:
    world, leader, _ = static_pair()
    instance = instance_of(world, leader)
    joined = world.joined(world.send_join(instance=instance))
    assert (joined.skip_assignment, joined.leader, len(joined.members)) == (True, joined.member_id, 2)
    old = world.joined(world.send_join(instance=instance, skip=False))
    assert (old.skip_assignment, old.leader, old.members) == (False, joined.member_id, ())


def test_a_static_member_that_cannot_be_written_keeps_its_old_id() -> None:
    world, _, follower = static_pair()
    instance = instance_of(world, follower)
    world.fail = ErrorCode.coordinator_not_available
    joined = world.joined(world.send_join(instance=instance, protocols=TWO, session=8000))
    assert (joined.error, joined.member_id) == (ErrorCode.coordinator_not_available, "")
    member = world.group.members[follower]
    assert (member.protocols, member.session_timeout) == (RANGE, 10_000)
    assert world.group.static[instance] == follower
    assert world.heartbeat(follower, instance=instance) is NONE


def test_a_static_member_that_changes_the_protocol_makes_all_join_again() -> None:
    world = World()
    waiter = world.send_join(instance="i", protocols=TWO)
    world.pass_time(0)
    world.settle([world.joined(waiter).member_id])
    waiter = world.send_join(instance="i", protocols=(("sticky", b""), ("range", b"")))
    assert (world.joined(waiter).generation, world.joined(waiter).protocol) == (2, "sticky")


def test_the_same_instance_twice_fences_the_first() -> None:
    world, leader, follower = static_pair()
    instance = instance_of(world, follower)
    world.send_join()
    first = world.send_join(instance=instance)
    second = world.send_join(instance=instance)
    assert world.joined(first).error is ErrorCode.fenced_instance_id
    assert second not in world.answers
    world.send_join(leader, instance=instance_of(world, leader))
    assert world.joined(second).generation == 2


def test_a_static_member_may_miss_the_join_but_not_the_sync() -> None:
    world, leader, follower = static_pair()
    instance = instance_of(world, leader)
    world.group.members[follower].rebalance_timeout = 5000
    waiter = world.send_join(leader, instance=instance, rebalance=5000)
    world.pass_time(5000)
    assert world.joined(waiter).generation == 2
    assert follower in world.group.members
    world.send_sync(leader, assignments={}, instance=instance)
    world.pass_time(4999)
    assert follower in world.group.members
    world.pass_time(1)
    assert follower not in world.group.members


def test_an_administrator_removes_static_members_by_their_instance() -> None:
    world, leader, _ = static_pair()
    assert world.leave(("", instance_of(world, leader))) == [NONE]
    assert leader not in world.group.members


# --- commits --------------------------------------------------------------------------------------


def test_who_may_commit() -> None:
    world = World()
    assert world.commit() is NONE  # nobody is in the group: whoever wants to
    (member,) = world.stable()
    assert world.commit(member, 1) is NONE
    assert world.commit() is ErrorCode.unknown_member_id
    assert world.commit(txn=True) is NONE  # old transactional clients tell nothing about themselves
    assert world.commit(member, 0) is ErrorCode.illegal_generation
    assert world.commit("who", 1) is ErrorCode.unknown_member_id
    world.send_join()
    assert world.commit(member, 1) is NONE  # before it gives partitions away
    world.joined(world.send_join(member))
    assert world.group.state is ClassicGroupState.COMPLETING
    assert world.commit(member, 2) is ErrorCode.rebalance_in_progress
    assert world.commit(member, 2, txn=True) is NONE


def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    (member,) = world.stable(session=10_000)
    for _ in range(5):
        world.pass_time(9000)
        assert world.commit(member, 1) is NONE


# --- restart --------------------------------------------------------------------------------------


def test_a_group_lives_on_after_a_restart() -> None:
    world, leader, follower = static_pair()
    record = parse_group_value(group_value(world.saves[-1].record))
    group = ClassicGroup.load("g", record, world.limits, lambda: 0)
    assert (group.state, group.generation, group.leader, group.protocol) == (
        ClassicGroupState.STABLE,
        1,
        leader,
        "range",
    )
    assert group.subscribed == frozenset({"t"})
    assert group.members[follower].assignment == follower.encode()
    world.group, world.now = group, 0.0
    world.act(group.loaded(0))
    world.pass_time(9000)
    assert world.heartbeat(leader, instance=instance_of(world, leader)) is NONE
    world.pass_time(1000)
    assert follower not in group.members
    assert leader in group.members


def test_a_restart_with_a_lower_limit_sheds_members() -> None:
    world = World()
    world.stable(3)
    group = ClassicGroup.load("g", world.saves[-1].record, ClassicLimits(0, 2), lambda: 0)
    group.loaded(0)
    assert group.state is ClassicGroupState.PREPARING


def test_unloading_answers_everybody() -> None:
    world = World()
    leader, _ = world.stable(2)
    joining = world.send_join(leader)
    world.act(world.group.unload(ErrorCode.not_coordinator))
    assert world.joined(joining).error is ErrorCode.not_coordinator
    assert world.heartbeat(leader) is ErrorCode.coordinator_not_available
    assert world.joined(world.send_join()).error is ErrorCode.coordinator_not_available


def test_subscriptions_that_make_no_sense_are_not_known() -> None:
    world = World()
    world.stable(protocols=(("range", b"\xff"),))
    assert world.group.subscribed is None
