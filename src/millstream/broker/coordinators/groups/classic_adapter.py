"""Classic members inside a group of the consumer protocol, while the group moves from one protocol to the
other (KIP-848).

To such a member it looks like a classic group whose leader is always somebody else: JoinGroup takes it one
step towards its target, SyncGroup returns what it may read, and a heartbeat says when to join again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from uuid import UUID

from millstream.broker.coordinators.groups.classic_types import (
    Joined,
    JoinRequest,
    Leaving,
    Synced,
    SyncRequest,
)
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_group_records import ClassicInfo, MemberValue
from millstream.broker.coordinators.groups.consumer_state import NEW_MEMBER
from millstream.broker.coordinators.groups.consumer_types import (
    UNRELEASED,
    UNREVOKED,
    Change,
    ConsumerMember,
    Topics,
)
from millstream.broker.coordinators.groups.group import NEVER
from millstream.wire.consumer_protocol import (
    CONSUMER,
    UNREADABLE,
    Subscription,
    encode_assignment,
    parse_subscription,
)
from millstream.wire.errors import ErrorCode, KafkaError


def join(
    group: ConsumerGroup, request: JoinRequest, topics: Topics, now: float
) -> tuple[Joined, list[Change], str | None]:
    """The answer, the changes, and the id of the static member that was replaced. KafkaError if it may not
    join."""
    member_id = request.member_id or str(uuid.uuid4())
    if member_id not in group.members:
        group.check_room()
    if not _speaks(group, request):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    if not request.member_id and request.instance_id is None and request.must_know_id:
        return Joined(ErrorCode.member_id_required, member_id), [], None
    try:
        subscription = parse_subscription(request.protocols[0][1])
    except UNREADABLE:
        raise KafkaError(ErrorCode.inconsistent_group_protocol) from None
    changes: list[Change] = []
    member, replaced = _who(group, member_id, request, changes)
    value = MemberValue(
        request.instance_id,
        member.value.rack_id if subscription.rack is None else subscription.rack,
        request.client_id,
        request.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        request.rebalance_timeout,
        None,
        ClassicInfo(request.session_timeout, request.protocols),
    )
    updated = group.advance(
        member, member._replace(value=value), replaced, _owned(subscription, topics), now, changes
    )
    deadlines = group.deadlines(member_id)
    deadlines.join = NEVER
    deadlines.sync = group.arm(now + request.rebalance_timeout)
    group.keep_alive(member_id, now, request.session_timeout)
    protocol = request.protocols[0][0]
    return Joined(ErrorCode.none, member_id, updated.epoch, CONSUMER, protocol), changes, replaced


def _speaks(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether it knows a protocol that all other members of the classic protocol know."""
    if request.protocol_type != CONSUMER or not request.protocols:
        return False
    others = [
        {name for name, _ in member.value.classic.protocols}
        for member in group.members.values()
        if member.value.classic is not None
    ]
    return any(all(name in each for each in others) for name, _ in request.protocols)


def _who(
    group: ConsumerGroup, member_id: str, request: JoinRequest, changes: list[Change]
) -> tuple[ConsumerMember, str | None]:
    holder = None if request.instance_id is None else group.static.get(request.instance_id)
    if request.instance_id is not None and request.member_id:
        return group.member(member_id, request.instance_id), None
    if holder is not None:
        return group.take_over_static(group.members[holder], member_id, True, changes), holder
    return group.members.get(member_id) or ConsumerMember(member_id, NEW_MEMBER), None


def _owned(subscription: Subscription, topics: Topics) -> dict[UUID, list[int]]:
    owned = {}
    for name, partitions in subscription.owned.items():
        found = topics.find(name)
        if found is not None:
            owned[found[0]] = partitions
    return owned


def sync(group: ConsumerGroup, request: SyncRequest, topics: Topics, now: float) -> Synced:
    member = _member(group, request.member_id, request.instance_id, request.generation)
    info = member.value.classic
    assert info is not None
    name, metadata = info.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol not in (None, name):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    if group.target_epoch > member.epoch and member.state != UNREVOKED:
        _must_join(group, member, now)
        raise KafkaError(ErrorCode.rebalance_in_progress)
    group.deadlines(member.member_id).sync = NEVER
    group.keep_alive(member.member_id, now)
    named = {topics.name_of(topic): indexes for topic, indexes in member.assigned.items()}
    try:
        version = parse_subscription(metadata).version
    except UNREADABLE:
        version = 0
    mine = encode_assignment(
        version, {topic: indexes for topic, indexes in named.items() if topic is not None}
    )
    return Synced(ErrorCode.none, mine, request.protocol_type, request.protocol)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: float
) -> ErrorCode:
    """REBALANCE_IN_PROGRESS where joining again would take the member a step further. Members of the consumer
    protocol compute the next target by their heartbeats; where there is none of them left, this member has
    to, by joining again."""
    member = _member(group, member_id, instance_id, generation)
    group.keep_alive(member.member_id, now)
    if (
        member.epoch < group.target_epoch
        or (member.epoch < group.epoch and all(each.is_classic for each in group.members.values()))
        or member.state == UNREVOKED
        or (member.state == UNRELEASED and not group.waits_for_others(member))
    ):
        _must_join(group, member, now)
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(group: ConsumerGroup, leaving: Iterable[Leaving]) -> tuple[list[ErrorCode], list[str]]:
    """An error code for each, and the ids of those that go. Members of both protocols: administrators remove
    them this way."""
    errors = []
    gone = []
    for member_id, instance_id in leaving:
        error = ErrorCode.none
        try:
            named = member_id
            if instance_id is not None and not member_id:  # an administrator names the instance alone
                named = group.static.get(instance_id, "")
            gone.append(group.member(named, instance_id).member_id)
        except KafkaError as problem:
            error = problem.code
        errors.append(error)
    return errors, gone


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    member = group.member(member_id, instance_id)
    if not member.is_classic:
        raise KafkaError(ErrorCode.unknown_member_id)
    if member.epoch != generation:
        raise KafkaError(ErrorCode.illegal_generation)
    return member


def _must_join(group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
    deadlines = group.deadlines(member.member_id)
    if deadlines.join == NEVER:
        deadlines.join = group.arm(now + member.value.rebalance_timeout)
