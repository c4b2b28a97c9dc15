"""The consumer protocol (KIP-848) over the wire: the answers that Apache Kafka 4.3 gives."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.waiting import wait_until

from ...raw_frames import new_topic
from .raw_groups import Groups

NONE, INVALID_REQUEST, UNKNOWN_MEMBER, GROUP_NOT_FOUND, UNSUPPORTED_VERSION = 0, 42, 25, 69, 35
NOT_YET = (14, 15, 16)  # of a coordinator that is being loaded
FENCED_EPOCH, UNSUPPORTED_ASSIGNOR, STALE, INVALID_REGEX, SUBSCRIBED = 110, 112, 113, 128, 86


@pytest.fixture
def client(servers: str, name: str) -> Iterator[Groups]:
    new_topic(servers, name, 3)
    with Groups(servers) as client:
        client.find("x")
        yield client


def beat(client: Groups, group: str, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
    return client.ask(
        "consumer_group_heartbeat",
        version,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=fields.get("instance"),
        rack_id=fields.get("rack"),
        rebalance_timeout=fields.get("rebalance", -1),
        subscribed_topic_names=fields.get("topics"),
        subscribed_topic_regex=fields.get("regex"),
        server_assignor=fields.get("assignor"),
        topic_partitions=fields.get("owned"),
    )


def test_requests_that_make_no_sense(client: Groups, name: str) -> None:
    join: dict[str, Any] = {"rebalance": 5000, "topics": [name], "owned": []}
    for group, member, epoch, fields in (
        ("", "m", 0, join),
        (name, "m", 0, {**join, "instance": ""}),
        (name, "m", 0, {**join, "rack": ""}),
        (name, "", 0, join),
        (name, "m", -3, join),
        (name, "m", 0, {"topics": [name], "owned": []}),
        (name, "m", 0, {"rebalance": 5000, "topics": [name]}),
        (name, "m", 0, {"rebalance": 5000, "owned": []}),
        (name, "m", -2, {}),
    ):
        assert beat(client, group, member, epoch, **fields).error_code == INVALID_REQUEST
    assert beat(client, name, "m", 0, **join, assignor="zz").error_code == UNSUPPORTED_ASSIGNOR
    bad = beat(client, name, "m", 0, rebalance=5000, regex="(", owned=[])
    assert bad.error_code == INVALID_REGEX
    brackets = beat(client, name, "m", 0, rebalance=5000, regex="(" * 14_000 + ")" * 14_000, owned=[])
    assert brackets.error_code == INVALID_REGEX
    assert beat(client, name, "m", 5).error_code == GROUP_NOT_FOUND
    assert beat(client, name, "m", -1).error_code == GROUP_NOT_FOUND


def test_the_reasons_of_refusals(client: Groups, name: str) -> None:
    join: dict[str, Any] = {"rebalance": 5000, "topics": [name], "owned": []}
    for group, member, epoch, fields, text in (
        ("", "", 0, join, "MemberId can't be empty."),
        ("", "m", 0, join, "GroupId can't be empty."),
        (name, "m", -3, {}, "MemberEpoch is invalid."),
        (name, "m", 3, {}, f"Consumer group {name} not found."),
        (name, "m", -1, {}, f"Group {name} not found."),
    ):
        assert beat(client, group, member, epoch, **fields).error_message == text


def test_the_first_epochs(client: Groups, name: str) -> None:
    """A new group is in epoch 1; it grows when there is something to read."""
    for member, fields in (("a", {"topics": []}), ("b", {"regex": ""}), ("c", {"regex": f"{name}-no"})):
        answer = beat(client, name, member, 0, rebalance=5000, owned=[], **fields)
        assert (answer.error_code, answer.member_epoch) == (NONE, 1)
        assert answer.assignment.topic_partitions == ()
    answer = beat(client, name, "d", 0, rebalance=5000, topics=[name], owned=[])
    assert (answer.member_epoch, len(answer.assignment.topic_partitions)) == (2, 1)
    described = client.ask(
        "consumer_group_describe", 1, group_ids=[name], include_authorized_operations=False
    ).groups[0]
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    for member in "abcd":
        beat(client, name, member, -1)


def test_a_fenced_member_joins_again(client: Groups, name: str) -> None:
    join: dict[str, Any] = {"rebalance": 5000, "topics": [name], "owned": []}
    beat(client, name, "m", 0, **join)
    assert beat(client, name, "m", 2, topics=[name, name + "x"]).member_epoch == 3
    assert beat(client, name, "m", 3, topics=[name]).member_epoch == 4
    back = beat(client, name, "m", 0, **join)
    assert (back.error_code, back.member_epoch) == (NONE, 4)
    assert set(back.assignment.topic_partitions[0].partitions) == {0, 1, 2}


def test_a_member_has_what_it_has_yet_to_give_up(client: Groups, name: str) -> None:
    join: dict[str, Any] = {"rebalance": 5000, "topics": [name], "owned": [], "assignor": "range"}
    topic_id = client.topic_id(name)
    beat(client, name, "a", 0, **join)
    beat(client, name, "b", 0, **join)
    everything = [{"topic_id": topic_id, "partitions": [0, 1, 2]}]
    response = beat(client, name, "a", 2, rebalance=5000, topics=[name], owned=everything)
    assert (response.member_epoch, response.assignment.topic_partitions[0].partitions) == (2, (0, 1))
    described = client.ask(
        "consumer_group_describe", 1, group_ids=[name], include_authorized_operations=False
    ).groups[0]
    members = {each.member_id: each for each in described.members}
    assert (described.group_state, described.group_epoch, described.assignor_name) == (
        "Reconciling",
        3,
        "range",
    )
    assert set(members["a"].assignment.topic_partitions[0].partitions) == {0, 1, 2}
    assert set(members["a"].target_assignment.topic_partitions[0].partitions) == {0, 1}
    assert members["b"].assignment.topic_partitions == ()
    assert (members["a"].subscribed_topic_names, members["a"].subscribed_topic_regex) == ((name,), "")
    # Until it has, it may commit for it, also in the epoch before.
    assert client.commit(name, {name: {2: 5}}, "a", 2) == {name: {2: NONE}}


def test_a_commit_looks_at_partitions_that_there_are(client: Groups, name: str) -> None:
    join: dict[str, Any] = {"rebalance": 5000, "topics": [name], "owned": []}
    beat(client, name, "m", 0, **join)
    assert beat(client, name, "m", 2, topics=[name, name + "x"]).member_epoch == 3
    offsets = {name: {0: 5, 9: 5}, name + "x": {0: 5}}
    assert client.commit(name, offsets, "m", 2) == {name: {0: NONE, 9: 3}, name + "x": {0: 3}}


def test_a_member_lives_and_leaves(client: Groups, name: str) -> None:
    join: dict[str, Any] = {"rebalance": 5000, "topics": [name], "owned": []}
    epoch = beat(client, name, "m", 0, **join).member_epoch
    assert epoch > 0
    assert beat(client, name, "m", epoch).error_code == NONE
    assert beat(client, name, "m", epoch + 1).error_code == FENCED_EPOCH
    assert beat(client, name, "m", epoch + 1, regex="(").error_code == FENCED_EPOCH
    assert beat(client, name, "m", epoch, regex="(").error_code == INVALID_REGEX
    assert beat(client, name, "who", epoch).error_code == UNKNOWN_MEMBER
    assert beat(client, name, "m", epoch, instance="i").error_code == UNKNOWN_MEMBER

    one = {name: {0: 5}}
    assert client.commit(name, one, "m", epoch) == {name: {0: NONE}}
    assert client.commit(name, one, "m", epoch + 5) == {name: {0: STALE}}
    assert client.commit(name, one, "m", epoch, version=8) == {name: {0: UNSUPPORTED_VERSION}}
    assert client.commit(name, one) == {name: {0: UNKNOWN_MEMBER}}
    assert client.fetch(name, {name: [0]}, member="m", epoch=epoch) == {name: {0: 5}}
    assert client.fetch_answer(name, {name: [0]}, member="m", epoch=epoch + 3).groups[0].error_code == STALE
    assert client.fetch_answer(name, {name: [0]}, member="q", epoch=1).groups[0].error_code == UNKNOWN_MEMBER
    assert client.fetch(name, {name: [0]}) == {name: {0: 5}}

    assert client.heartbeat(name, "m", epoch) == UNKNOWN_MEMBER  # it does not speak the classic protocol
    assert client.sync(name, "m", epoch).error_code == UNKNOWN_MEMBER
    old = client.describe(name)
    assert (old.error_code, old.error_message) == (GROUP_NOT_FOUND, f"Group {name} is not a classic group.")
    listed = client.list()[name]
    assert (listed.protocol_type, listed.group_type) == ("consumer", "consumer")
    assert client.delete(name) == {name: 68}
    errors = [p.error_code for t in client.delete_offsets(name, {name: [0]}).topics for p in t.partitions]
    assert errors == [SUBSCRIBED]

    described = client.ask(
        "consumer_group_describe", 1, group_ids=[name, name + "x"], include_authorized_operations=False
    )
    by_name = {each.group_id: each for each in described.groups}
    assert by_name[name + "x"].error_code == GROUP_NOT_FOUND
    (member,) = by_name[name].members
    assert (member.member_id, member.member_type, member.subscribed_topic_names) == ("m", 1, (name,))
    assert by_name[name].assignor_name == "uniform"

    left = beat(client, name, "m", -1)
    assert (left.error_code, left.member_epoch, left.assignment) == (NONE, -1, None)
    described = client.ask(
        "consumer_group_describe", 1, group_ids=[name], include_authorized_operations=False
    )
    assert described.groups[0].group_state == "Empty"
    assert client.commit(name, one) == {name: {0: NONE}}
    assert client.delete(name) == {name: NONE}


def test_a_classic_member_takes_over_an_empty_group(client: Groups, name: str) -> None:
    beat(client, name, "m", 0, rebalance=5000, topics=[name], owned=[])
    beat(client, name, "m", -1)
    refused = client.join(name, "who")
    assert (refused.error_code, refused.member_id) == (UNKNOWN_MEMBER, "who")
    assert client.list()[name].group_type == "consumer"
    joined = client.enter(name)
    assert (joined.error_code, joined.generation_id) == (NONE, 1)
    assert client.list()[name].group_type == "classic"


def test_administrators_remove_members(client: Groups, name: str) -> None:
    beat(client, name, "m", 0, rebalance=5000, topics=[name], owned=[])
    assert [each.error_code for each in client.leave(name, ("m", None)).members] == [NONE]
    assert client.list()[name].group_state == "Empty"


def test_a_static_member_comes_back_under_its_own_id(client: Groups, name: str) -> None:
    join: dict[str, Any] = {"rebalance": 5000, "topics": [name], "owned": [], "instance": "i"}
    epoch = beat(client, name, "m", 0, **join).member_epoch
    assert beat(client, name, "m", -2, instance="i").member_epoch == -2
    back = beat(client, name, "m", 0, **join)
    assert (back.error_code, back.member_epoch) == (NONE, epoch)
    assert back.assignment is not None
    assert beat(client, name, "m", epoch, instance="i").error_code == NONE


def test_a_producer_need_not_say_for_which_member_it_commits(client: Groups, name: str) -> None:
    client.find(name, kind=1)
    beat(client, name, "m", 0, rebalance=5000, topics=[name], owned=[])

    def init() -> Any:
        answer = client.ask(
            "init_producer_id",
            5,
            transactional_id=name,
            transaction_timeout=10_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        return answer if answer.error_code not in NOT_YET else None

    producer = wait_until(init)
    assert producer.error_code == NONE
    one = {
        "partition_index": 0,
        "committed_offset": 4,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }

    def commit(member: str, instance: str | None, group: str = name, topic: str = name) -> int:
        answer = client.ask(
            "txn_offset_commit",
            5,
            transactional_id=name,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=-1,
            member_id=member,
            group_instance_id=instance,
            topics=[{"name": topic, "partitions": [one]}],
        )
        return int(answer.topics[0].partitions[0].error_code)

    assert commit("", None) == NONE
    assert commit("who", None) == UNKNOWN_MEMBER
    assert commit("", "i") == UNKNOWN_MEMBER
    assert commit("", None, group="") == 24  # INVALID_GROUP_ID
    assert commit("who", None, topic=name + "x") == 3, "an unknown topic is none of the group's business"
    assert commit("", None, group="", topic=name + "x") == 3
