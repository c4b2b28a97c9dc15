"""Groups that move between the protocols, over the wire: the answers that Apache Kafka 4.3 gives when it does
not put off assignments (`group.consumer.assignment.interval.ms=0`)."""

import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.server import Broker
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.settings.resolve import BrokerSettings
from millstream.wire.consumer_protocol import encode_assignment, parse_assignment

from ...raw_frames import new_topic
from .raw_groups import Groups
from .test_consumer_answers import beat
from .test_coordinator import Lab

NONE, UNKNOWN_MEMBER, ILLEGAL_GENERATION, INCONSISTENT, REBALANCE, NOT_FOUND = 0, 25, 22, 23, 27, 69


@pytest.fixture
def client(servers: str, name: str) -> Iterator[Groups]:
    new_topic(servers, name, 3)
    with Groups(servers) as client:
        client.find("x")
        yield client


def speaks(topic: str, owned: list[int] | None = None, *more: str) -> tuple[tuple[str, bytes], ...]:
    """What a classic member says: the topics it reads, and what it owns of the first."""
    topics = (topic, *more)
    data = b"\0\1" + struct.pack(">i", len(topics))
    data += b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics) + b"\xff\xff\xff\xff"
    data += struct.pack(">i", 1 if owned else 0)
    if owned:
        data += struct.pack(">h", len(topic)) + topic.encode()
        data += struct.pack(f">{len(owned) + 1}i", len(owned), *owned)
    return (("range", data),)


def begin(client: Groups, name: str, instance: str | None = None, user_data: bytes = b"") -> str:
    """A classic group of one member that has everything."""
    options: dict[str, Any] = {"protocols": speaks(name), "instance": instance}
    joined = client.join(name, **options) if instance else client.enter(name, **options)
    assert (joined.error_code, joined.generation_id) == (NONE, 1)
    member = str(joined.member_id)
    mine = encode_assignment(1, {name: [0, 1, 2]})
    if user_data:
        mine = mine[:-4] + struct.pack(">i", len(user_data)) + user_data
    assert client.sync(name, member, 1, {member: mine}, instance=instance).error_code == NONE
    return member


def enter(client: Groups, name: str, member: str, **fields: Any) -> Any:
    return beat(client, name, member, 0, rebalance=5000, topics=[name], owned=[], **fields)


def kind(client: Groups, name: str) -> tuple[str, str]:
    listed = client.list()[name]
    return str(listed.group_type).lower(), str(listed.group_state)


def test_a_group_moves_and_a_classic_member_gives_up_everything_at_once(client: Groups, name: str) -> None:
    old = begin(client, name)
    new = enter(client, name, "new")
    assert (new.error_code, new.member_epoch, new.assignment.topic_partitions) == (NONE, 2, ())
    assert kind(client, name) == ("consumer", "Reconciling")
    assert client.heartbeat(name, old, 2) == ILLEGAL_GENERATION
    assert client.heartbeat(name, "who", 1) == UNKNOWN_MEMBER
    assert client.heartbeat(name, "new", 1) == UNKNOWN_MEMBER
    assert client.heartbeat(name, old, 1) == REBALANCE
    topic_id = client.topic_id(name)
    for version in range(2, 11):
        topic = topic_id if version >= 10 else name
        codes = client.commit(name, {topic: {n: 100 + n for n in range(3)}}, old, 1, version=version)
        assert codes == {topic: dict.fromkeys(range(3), NONE)}, version

    refused = client.join(name, old, protocols=speaks(name), kind="connect")
    assert (refused.error_code, refused.member_id) == (INCONSISTENT, "")
    joined = client.join(name, old, protocols=speaks(name))
    assert (joined.error_code, joined.generation_id, joined.member_id, joined.leader) == (NONE, 2, old, "")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    refused = client.join(name, "another", protocols=(("roundrobin", speaks(name)[0][1]),))
    assert (refused.error_code, refused.member_id) == (INCONSISTENT, "")

    mine = beat(client, name, "new", 2, rebalance=5000, topics=[name], owned=[])
    theirs = set(mine.assignment.topic_partitions[0].partitions)
    kept = {0, 1, 2} - theirs
    assert kept and theirs
    assert kind(client, name) == ("consumer", "Stable")
    # Its generation has moved on, but what it kept has been its own since before.
    for index in range(3):
        code = NONE if index in kept else ILLEGAL_GENERATION
        assert client.commit(name, {name: {index: 7}}, old, 1) == {name: {index: code}}
    assert client.sync(name, old, 1).error_code == ILLEGAL_GENERATION
    assert client.sync(name, "who", 2).error_code == UNKNOWN_MEMBER
    assert client.sync(name, old, 2, kind="connect").error_code == INCONSISTENT
    assert client.sync(name, old, 2, protocol="roundrobin").error_code == INCONSISTENT
    synced = client.sync(name, old, 2)
    assert set(parse_assignment(synced.assignment).partitions[name]) == kept
    assert beat(client, name, "new", -1).error_code == NONE
    assert kind(client, name) == ("classic", "PreparingRebalance")


def test_a_group_moves_and_a_classic_member_gives_up_part_by_part(client: Groups, name: str) -> None:
    old = begin(client, name)
    enter(client, name, "new")
    assert client.heartbeat(name, old, 1) == REBALANCE
    assert client.join(name, old, protocols=speaks(name, [0, 1, 2])).generation_id == 1
    kept = parse_assignment(client.sync(name, old, 1).assignment).partitions[name]
    assert 0 < len(kept) < 3
    assert client.commit(name, {name: {n: 5 for n in range(3)}}, old, 1) == {
        name: dict.fromkeys(range(3), NONE)
    }
    assert client.heartbeat(name, old, 1) == REBALANCE
    assert client.join(name, old, protocols=speaks(name, kept)).generation_id == 2
    assert parse_assignment(client.sync(name, old, 2).assignment).partitions[name] == kept
    # An administrator removes the last member that speaks the new protocol.
    assert [each.error_code for each in client.leave(name, ("new", None)).members] == [NONE]
    assert kind(client, name) == ("classic", "PreparingRebalance")


@pytest.mark.parametrize("reads_more", [False, True])
def test_a_static_member_returns_to_the_old_protocol(client: Groups, name: str, reads_more: bool) -> None:
    old = begin(client, name, "one")
    enter(client, name, "new", instance="two")
    client.join(name, old, protocols=speaks(name), instance="one")
    client.sync(name, old, 2, instance="one")
    beat(client, name, "new", 2, instance="two", owned=[])
    assert kind(client, name) == ("consumer", "Stable")
    response = speaks(name, None, name + "-2") if reads_more else speaks(name)
    joined = client.join(name, instance="two", protocols=response)
    assert joined.error_code == NONE
    # Where nothing else has changed, nobody has to join again.
    assert kind(client, name) == ("classic", "PreparingRebalance" if reads_more else "Stable")
    if not reads_more:
        assert joined.generation_id == 2
        assert client.heartbeat(name, old, 2, "one") == NONE
        synced = client.sync(name, joined.member_id, 2, instance="two")
        assert (synced.error_code, len(parse_assignment(synced.assignment).partitions[name])) == (NONE, 1)


def test_a_custom_assignor_keeps_a_group_classic(client: Groups, name: str) -> None:
    old = begin(client, name, user_data=b"x")
    refused = enter(client, name, "new")
    assert refused.error_code == NOT_FOUND
    assert refused.error_message == (
        f"Cannot upgrade classic group {name} to consumer group because an unsupported custom assignor "
        "is in use. "
        "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
    )
    assert kind(client, name) == ("classic", "Stable")
    client.leave(name, (old, None))
    assert enter(client, name, "new").error_code == NONE
    assert kind(client, name) == ("consumer", "Stable")


def test_a_member_that_goes_while_it_gives_up_partitions(client: Groups, name: str) -> None:
    """What a classic member holds goes to the others by their heartbeats, and it is told to join when they
    have one."""
    old = begin(client, name)
    enter(client, name, "new")
    client.join(name, old, protocols=speaks(name))
    client.sync(name, old, 2)
    enter(client, name, "other")
    assert client.heartbeat(name, old, 2) == REBALANCE
    assert client.join(name, old, protocols=speaks(name)).generation_id == 3
    client.sync(name, old, 3)
    assert beat(client, name, "other", -1).error_code == NONE
    assert kind(client, name) == ("consumer", "Assigning")
    assert client.heartbeat(name, old, 3) == NONE
    assert client.sync(name, old, 3).error_code == NONE
    assert beat(client, name, "new", 2, owned=[]).member_epoch == 4
    assert client.heartbeat(name, old, 3) == REBALANCE
    assert client.sync(name, old, 3).error_code == REBALANCE


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Lab]:
    """A broker that lets no group move."""
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.migration.policy": "DISABLED",
        "offsets.topic.num.partitions": "1",
    }
    broker = Broker(BrokerSettings(settings))
    await broker.start()
    await broker.controller.submit(CreateTopics([NewTopic("t", 2, 1)]))
    await broker.groups.runtime.ensure_exists()
    yield Lab(broker)
    await broker.stop()


async def enters(lab: Lab, group: str) -> Any:
    return await lab.ask(
        "consumer_group_heartbeat",
        1,
        group_id=group,
        member_id="new",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=5000,
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=[],
    )


async def test_groups_that_may_not_move(closed: Lab) -> None:
    await closed.stable("old")
    refused = await enters(closed, "old")
    assert refused.error_code == NOT_FOUND
    assert refused.error_message == (
        "Cannot upgrade classic group old to consumer group because online upgrade is disabled."
    )
    assert (await enters(closed, "newer")).error_code == NONE
    for member in ("", "who"):
        refused = await closed.join("newer", member)
        assert (refused.error_code, refused.member_id) == (INCONSISTENT, "")


async def test_where_the_protocol_is_not_served(tmp_path: Path) -> None:
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.coordinator.rebalance.protocols": "classic",
    }
    broker = Broker(BrokerSettings(settings))
    await broker.start()
    lab = Lab(broker)
    refused = await enters(lab, "g")
    assert (refused.error_code, refused.error_message) == (35, None)
    described = await lab.ask(
        "consumer_group_describe", 1, group_ids=["g", "h"], include_authorized_operations=False
    )
    assert [(each.group_id, int(each.error_code), each.error_message) for each in described.groups] == [
        ("g", 35, None),
        ("h", 35, None),
    ]
    await broker.stop()
