"""A group moves from one protocol to the other while it runs, where `group.consumer.migration.policy` allows
it.

A classic consumer group becomes one of the consumer protocol (KIP-848) when the first member that speaks it
joins; what the members were assigned is their first target. It becomes a classic group again when the last
such member goes.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from uuid import UUID

from millstream.broker.coordinators.groups.classic_group import ClassicGroup
from millstream.broker.coordinators.groups.classic_members import ClassicMember
from millstream.broker.coordinators.groups.classic_types import ClassicLimits
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.consumer_group_records import (
    ClassicInfo,
    CurrentValue,
    MemberValue,
)
from millstream.broker.coordinators.groups.consumer_state import ConsumerLimits
from millstream.broker.coordinators.groups.consumer_types import (
    STABLE,
    Change,
    CurrentChanged,
    GroupChanged,
    MemberChanged,
    TargetChanged,
    TargetEpochChanged,
    Topics,
)
from millstream.wire.consumer_protocol import (
    CONSUMER,
    UNREADABLE,
    encode_assignment,
    parse_assignment,
    parse_subscription,
)
from millstream.wire.errors import ErrorCode, KafkaError

UPGRADES = frozenset(("upgrade", "bidirectional"))
DOWNGRADES = frozenset(("downgrade", "bidirectional"))
DISABLED = "disabled"
REPEATS_USER_DATA = frozenset(("cooperative-sticky",))
"""librdkafka's assignor of this name gives each member back what the member said of itself: nothing is lost,
so such groups may move, though Kafka refuses them. What other assignors add to an assignment would be
lost."""


def check_upgrade(group: ClassicGroup, policy: str, limits: ConsumerLimits) -> None:
    """KafkaError if the group has to stay a classic one."""
    if policy.lower() not in UPGRADES:
        raise _cannot_upgrade(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > limits.max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def to_consumer(
    classic: ClassicGroup, limits: ConsumerLimits, topics: Topics, wall_ms: Callable[[], int]
) -> tuple[ConsumerGroup, list[Change]]:
    """The group as one of the consumer protocol, and what writes it. KafkaError if its members cannot be
    understood."""
    epoch = classic.generation
    reads: set[str] = set()
    members: list[Change] = []
    targets: list[Change] = []
    currents: list[Change] = []
    for member in classic.members.values():
        try:
            subscription = parse_subscription(_metadata(classic, member))
            assigned_before = parse_assignment(member.assignment)
        except UNREADABLE:
            raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed") from None
        if assigned_before.user_data and classic.protocol not in REPEATS_USER_DATA:
            raise _cannot_upgrade(
                classic,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                "default assignor before re-attempting the upgrade",
            )
        value = MemberValue(
            member.instance_id,
            subscription.rack,
            member.client_id,
            member.client_host,
            tuple(sorted(set(subscription.topics))),
            "",
            member.rebalance_timeout,
            None,
            ClassicInfo(member.session_timeout, member.protocols),
        )
        reads.update(subscription.topics)
        assigned: dict[UUID, dict[int, int]] = {}
        for name, indexes in assigned_before.partitions.items():
            found = topics.find(name)
            if found is not None:
                assigned[found[0]] = dict.fromkeys(indexes, epoch)
        members.append(MemberChanged(member.member_id, value))
        targets.append(
            TargetChanged(member.member_id, {topic: frozenset(each) for topic, each in assigned.items()})
        )
        currents.append(CurrentChanged(member.member_id, CurrentValue(epoch, epoch, STABLE, assigned, {})))
    group = ConsumerGroup(classic.group_id, limits, topics, wall_ms)
    changes = [
        *members,
        GroupChanged(epoch, group.hash_of(reads)),
        *targets,
        TargetEpochChanged(epoch),
        *currents,
    ]
    for change in changes:
        group.apply(change)
    return group, changes


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """The subscription; before the first rebalance is over there is no protocol yet, and any will do."""
    return member.metadata(group.protocol) if group.protocol is not None else member.protocols[0][1]


def may_downgrade(
    group: ConsumerGroup, leaving: Set[str], stays: int, policy: str, limits: ClassicLimits
) -> bool:
    """Whether the group should become classic when these members go: all the others speak the classic
    protocol. `stays` counts those of them that are replaced by one that speaks it."""
    rest = [member for key, member in group.members.items() if key not in leaving]
    return (
        bool(rest or stays)
        and all(member.is_classic for member in rest)
        and policy.lower() in DOWNGRADES
        and len(rest) + stays <= limits.max_size
    )


def to_classic(
    group: ConsumerGroup,
    leaving: Set[str],
    limits: ClassicLimits,
    topics: Topics,
    wall_ms: Callable[[], int],
) -> ClassicGroup:
    """The group without who leaves, as a classic one: stable, in the generation of its epoch."""
    classic = ClassicGroup(group.group_id, limits, wall_ms)
    for member in group.members.values():
        info = member.value.classic
        if member.member_id in leaving or info is None:
            continue
        named = {topics.name_of(topic): each for topic, each in group.target(member.member_id).items()}
        try:
            version = parse_subscription(info.protocols[0][1]).version
        except UNREADABLE:
            version = 0
        encoded = encode_assignment(
            version, {topic: each for topic, each in named.items() if topic is not None}
        )
        classic.adopt(
            ClassicMember(
                member.member_id,
                member.value.instance_id,
                member.value.client_id,
                member.value.client_host,
                member.value.rebalance_timeout,
                info.session_timeout,
                info.protocols,
                encoded,
            )
        )
    classic.settle_as(group.epoch, CONSUMER)
    return classic
