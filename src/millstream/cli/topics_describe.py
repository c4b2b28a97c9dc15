"""`millstream topics --describe`: topics and their partitions, all of them or those in trouble."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.cli.cluster_access import kafka_id
from millstream.cli.errors import CommandFailed
from millstream.cli.output import Report
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client.admin import Admin, ConfigEntry, PartitionState, Reassignment, TopicState

FAILED = "Error while executing topic command : "


def describe_topics(
    admin: "Admin", names: list[str], filters: list[str], only_overrides: bool, at_once: int
) -> Report:
    from millstream.client.admin import TOPIC
    from millstream.wire.errors import ErrorCode, KafkaError

    states = admin.describe_topics(names, at_once) if names else {}
    configs = admin.describe_configs([(TOPIC, name) for name in names]) if names else {}
    moves = reassignments(admin) if names else {}
    live = set(admin.cluster.nodes)
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for name in sorted(states):
        state = states[name]
        settings = configs.get((TOPIC, name), [])
        problem = next((found for found in (state, settings) if isinstance(found, KafkaError)), None)
        if problem is not None and problem.code is not ErrorCode.unknown_topic_or_partition:
            raise CommandFailed(f"{FAILED}{problem.message}")
        if isinstance(state, KafkaError) or isinstance(settings, KafkaError):
            continue  # deleted since it was listed
        own = {setting.name: setting.value for setting in in_java_order(settings) if not setting.is_default}
        if only_overrides and not own:
            continue
        min_isr = next(
            (int(setting.value or 1) for setting in settings if setting.name == "min.insync.replicas"), 1
        )
        chosen = [
            partition
            for partition in state.partitions
            if not filters
            or any(
                FILTER_RULES[rule](partition, moves.get(TopicPartition(name, partition.index)), min_isr, live)
                for rule in filters
            )
        ]
        if filters and not chosen:
            continue
        if not filters:
            lines.append(topic_line(state, own, moves))
        if not only_overrides:
            lines += [
                partition_line(name, partition, moves.get(TopicPartition(name, partition.index)))
                for partition in chosen
            ]
        data.append(topic_facts(state, own, chosen, moves))
        rows += [
            [
                name,
                partition.index,
                partition.leader if partition.leader >= 0 else "none",
                joined(partition.replicas),
                joined(partition.isr),
            ]
            for partition in chosen
        ]
    return Report(lines, data, ["Topic", "Partition", "Leader", "Replicas", "In sync"], rows)


Moves = Mapping[TopicPartition, "Reassignment"]


def reassignments(admin: "Admin") -> Moves:
    """What is moving; a broker that does not tell (or not to us) has nothing to show here."""
    from millstream.wire.errors import ErrorCode, KafkaError

    try:
        return admin.reassignments()
    except KafkaError as error:
        if error.code in (ErrorCode.unsupported_version, ErrorCode.cluster_authorization_failed):
            return {}
        raise


def replication_factor(partition: "PartitionState", move: "Reassignment | None") -> int:
    """While replicas are being exchanged, those that are only being added do not count yet."""
    if move is not None and set(partition.replicas) & {*move.adding, *move.removing}:
        return len(move.replicas) - len(move.adding)
    return len(partition.replicas)


Rule = Callable[["PartitionState", "Reassignment | None", int, set[int]], bool]
FILTER_RULES: dict[str, Rule] = {
    "under-replicated-partitions": lambda partition, move, min_isr, live: (
        replication_factor(partition, move) > len(partition.isr)
    ),
    "unavailable-partitions": lambda partition, move, min_isr, live: partition.leader not in live,
    "under-min-isr-partitions": lambda partition, move, min_isr, live: (
        partition.leader < 0 or len(partition.isr) < min_isr
    ),
    "at-min-isr-partitions": lambda partition, move, min_isr, live: len(partition.isr) == min_isr,
}


def topic_line(state: "TopicState", own: Mapping[str, str | None], moves: Moves) -> str:
    first = state.partitions[0] if state.partitions else None
    factor = replication_factor(first, moves.get(TopicPartition(state.name, first.index))) if first else 0
    identity = f"\tTopicId: {kafka_id(state.id)}" if state.id.int else ""
    configs = ",".join(f"{name}={value}" for name, value in own.items())
    return (
        f"Topic: {state.name}{identity}\tPartitionCount: {len(state.partitions)}"
        f"\tReplicationFactor: {factor}\tConfigs: {configs}"
    )


def partition_line(topic: str, partition: "PartitionState", move: "Reassignment | None") -> str:
    moving = (
        f"\tAdding Replicas: {joined(move.adding)}\tRemoving Replicas: {joined(move.removing)}"
        if move
        else ""
    )
    leader = partition.leader if partition.leader >= 0 else "none"
    return (
        f"\tTopic: {topic}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {joined(partition.replicas)}\tIsr: {joined(partition.isr)}{moving}"
        f"\tElr: {'N/A' if partition.elr is None else joined(partition.elr)}"
        f"\tLastKnownElr: {'N/A' if partition.last_known_elr is None else joined(partition.last_known_elr)}"
    )


def topic_facts(
    state: "TopicState", own: Mapping[str, str | None], partitions: "list[PartitionState]", moves: Moves
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": state.name,
        "topic_id": kafka_id(state.id),
        "internal": state.internal,
        "configs": dict(own),
        "partitions": [],
    }
    for partition in partitions:
        entry: dict[str, Any] = {
            "partition": partition.index,
            "leader": partition.leader if partition.leader >= 0 else None,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "elr": None if partition.elr is None else list(partition.elr),
            "last_known_elr": None if partition.last_known_elr is None else list(partition.last_known_elr),
            "offline_replicas": list(partition.offline),
        }
        move = moves.get(TopicPartition(state.name, partition.index))
        if move is not None:
            entry["adding_replicas"] = list(move.adding)
            entry["removing_replicas"] = list(move.removing)
        facts["partitions"].append(entry)
    return facts


def joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def in_java_order(settings: "Iterable[ConfigEntry]") -> "list[ConfigEntry]":
    """Kafka's tool prints a topic's settings in the order of a Java hash map. So that the lines are the same,
    here is that order: by bucket, of a table that doubles from 16 when three quarters full."""
    items = list(settings)
    buckets = 16
    while len(items) > buckets * 3 // 4:
        buckets *= 2

    def bucket(setting: "ConfigEntry") -> int:
        value = 0
        for char in setting.name:
            value = (value * 31 + ord(char)) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(items, key=bucket)
