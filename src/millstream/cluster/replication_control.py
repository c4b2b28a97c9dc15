"""Leadership and replicas on request: ElectLeaders, AlterPartitionReassignments, the leaders'
AlterPartition, and replicas that their broker cannot write."""

from collections.abc import Sequence
from uuid import UUID

from millstream.cluster.brokers import check_broker_epoch
from millstream.cluster.commands import (
    OK,
    AlterPartition,
    AlterReassignments,
    ElectLeaders,
    IsrProposal,
    ReplicasFailed,
    Result,
)
from millstream.cluster.configs import rules_for
from millstream.cluster.context import Context, Decision
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import NO_LEADER, Partition, Record
from millstream.cluster.partitions import (
    Rules,
    cancel_reassignment,
    change_isr,
    drain,
    elect,
    reassign,
    settle,
)
from millstream.cluster.topics import check_replicas
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition


class _Rules:
    """The rules of each topic, worked out once per command."""

    def __init__(self, image: Image, context: Context) -> None:
        self._image, self._context = image, context
        self._live, self._active = set(image.brokers), image.active_brokers()
        self._made: dict[UUID, Rules] = {}

    def of(self, topic_id: UUID) -> Rules:
        found = self._made.get(topic_id)
        if found is None:
            found = rules_for(self._image, self._context, topic_id, self._live, self._active)
            self._made[topic_id] = found
        return found


# --- elections ----------------------------------------------------------------------------------------------


def elect_leaders(image: Image, command: ElectLeaders, context: Context) -> Decision:
    wanted = command.partitions
    if wanted is None:
        wanted = [
            TopicPartition(topic.name, partition.index)
            for topic in image.topics_by_id.values()
            for partition in image.partitions[topic.topic_id]
        ]
    rules = _Rules(image, context)
    records: dict[TopicPartition, Record] = {}
    replies: dict[TopicPartition, Result] = {}
    for name, index in wanted:
        if TopicPartition(name, index) in replies:
            continue
        try:
            partition = _partition(image, name, index)
            new = _elected(partition, rules.of(partition.topic_id), command.unclean)
            records[TopicPartition(name, index)] = new
            replies[TopicPartition(name, index)] = OK
        except KafkaError as problem:
            if command.partitions is not None or problem.code is not ErrorCode.election_not_needed:
                replies[TopicPartition(name, index)] = Result(problem.code, problem.message or None)
    return Decision(list(records.values()), replies)


def _partition(image: Image, name: str, index: int) -> Partition:
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"No such topic as {name}")
    partition = image.partition(topic.topic_id, index)
    if partition is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}")
    return partition


def _elected(old: Partition, rules: Rules, unclean: bool) -> Partition:
    if unclean:
        if old.leader != NO_LEADER:
            raise KafkaError(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
        allowed = rules._replace(unclean=True)
        chosen = elect(old.replicas, old.isr, old.elr, allowed)
        if chosen.leader == NO_LEADER:
            raise KafkaError(
                ErrorCode.eligible_leaders_not_available,
                "Eligible topic partition leaders are not available.",
            )
        return settle(old, rules, isr=chosen.isr, leader=chosen.leader, unclean=chosen.unclean)
    preferred = old.replicas[0]
    if old.leader == preferred:
        raise KafkaError(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
    if preferred not in old.isr or preferred not in rules.active:
        raise KafkaError(ErrorCode.preferred_leader_not_available, "The preferred leader was not available.")
    return settle(old, rules, isr=old.isr, leader=preferred)


# --- reassignments ------------------------------------------------------------------------------------------


def alter_reassignments(image: Image, command: AlterReassignments, context: Context) -> Decision:
    rules = _Rules(image, context)
    records: dict[TopicPartition, Record] = {}
    replies: dict[TopicPartition, Result] = {}
    for name, index, target in command.partitions:
        key = TopicPartition(name, index)
        try:
            if key in replies:
                records.pop(key, None)
                raise KafkaError(ErrorCode.invalid_request, "Each partition must appear at most once.")
            old = _to_reassign(image, name, index)
            if target is None:
                new = _cancelled(old, name, rules.of(old.topic_id))
            else:
                replicas = check_replicas(image, target, None)
                _check_factor(old, replicas, command.allow_replication_factor_change)
                new = reassign(old, replicas, rules.of(old.topic_id))
            if new != old:
                records[key] = new
            replies[key] = OK
        except KafkaError as problem:
            replies[key] = Result(problem.code, problem.message or None)
    return Decision(list(records.values()), replies)


def _to_reassign(image: Image, name: str, index: int) -> Partition:
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    partition = image.partition(topic.topic_id, index)
    if partition is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{index}.")
    return partition


def _check_factor(old: Partition, target: Sequence[int], change_allowed: bool) -> None:
    """The factor to compare with is the one that a move under way leads to."""
    present = len(old.replicas) - len(old.removing)
    if not change_allowed and len(target) != present:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {present} to {len(target)}",
        )


def _cancelled(old: Partition, name: str, rules: Rules) -> Partition:
    if not old.reassigning:
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    new = cancel_reassignment(old, rules)
    if new is None:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Unable to revert partition assignment for {name}:{old.index} because it would "
            "require an unclean "
            "leader election.",
        )
    return new


# --- proposals of leaders -----------------------------------------------------------------------------------


def alter_partition(image: Image, command: AlterPartition, context: Context) -> Decision:
    """A leader's view counts only if it knows the present state: every epoch it names must be the image's."""
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    rules = _Rules(image, context)
    records: dict[tuple[UUID, int], Record] = {}
    replies: dict[tuple[UUID, int], Result] = {}
    for proposal in command.proposals:
        key = (proposal.topic_id, proposal.index)
        if key in replies:
            continue
        try:
            old = _proposed(image, command.broker_id, proposal)
            isr = [broker_id for broker_id, _ in proposal.isr]
            records[key] = change_isr(old, isr, proposal.recovering, rules.of(old.topic_id))
            replies[key] = OK
        except KafkaError as problem:
            replies[key] = Result(problem.code, problem.message or None)
    return Decision(list(records.values()), replies)


def _proposed(image: Image, sender: int, proposal: IsrProposal) -> Partition:
    if proposal.topic_id not in image.topics_by_id:
        raise KafkaError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
    old = image.partition(proposal.topic_id, proposal.index)
    if old is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
        )
    if proposal.leader_epoch != old.leader_epoch or old.leader != sender:
        raise KafkaError(
            ErrorCode.fenced_leader_epoch,
            f"Leader epoch is {old.leader_epoch} (leader {old.leader}), not {proposal.leader_epoch}.",
        )
    if proposal.partition_epoch != old.partition_epoch:
        raise KafkaError(
            ErrorCode.invalid_update_version,
            f"Partition epoch is {old.partition_epoch}, not {proposal.partition_epoch}.",
        )
    isr = [broker_id for broker_id, _ in proposal.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(old.replicas) or sender not in isr:
        raise KafkaError(ErrorCode.invalid_request, "The ISR must consist of replicas and hold the leader.")
    if proposal.recovering and (not old.recovering or len(isr) > 1):
        raise KafkaError(ErrorCode.invalid_request, "A recovering leader is alone in the ISR.")
    for broker_id, epoch in proposal.isr:
        _check_eligible(image, broker_id, epoch, broker_id in old.isr)
    return old


def _check_eligible(image: Image, broker_id: int, epoch: int, is_member: bool) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None or (broker.draining and not is_member) or epoch not in (-1, broker.epoch):
        raise KafkaError(
            ErrorCode.ineligible_replica, f"Broker {broker_id} is not alive, stopping, or has a newer epoch."
        )


# --- replicas on a failing disk -----------------------------------------------------------------------------


def replicas_failed(image: Image, command: ReplicasFailed, context: Context) -> Decision:
    """As if the broker drained, for these partitions alone: it leads none that another in-sync replica can
    lead, and holds up no commit. Where there is no other it stays, for its readers. It comes back like any
    follower, by catching up."""
    broker_id = command.broker_id
    check_broker_epoch(image, broker_id, command.broker_epoch)
    live, active = set(image.brokers), image.active_brokers() - {broker_id}
    records: list[Record] = []
    replies: dict[tuple[UUID, int], Result] = {}
    for key in command.partitions:
        partition = image.partition(*key)
        if partition is None:
            replies[key] = Result(ErrorCode.unknown_topic_or_partition)
        elif key not in replies:
            replies[key] = OK
            new = drain(partition, broker_id, rules_for(image, context, key[0], live, active))
            if new is not partition:
                records.append(new)
    return Decision(records, replies)
