"""Plans of `millstream reassign-partitions`: the JSON files, a proposal, and what throttles have to name.

Everything here is a function of its arguments; `reassign_partitions` asks the cluster and acts. A plan is
{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any",
"/data/2"]}]}: the brokers that are to hold a partition, the preferred leader first, and, if that matters, in
which of their data folders.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.cli import json_file
from millstream.cli.errors import CommandFailed
from millstream.cli.shared_options import LARGEST_INT32
from millstream.client.cluster_admin import Replica
from millstream.wire.topic_partition import TopicPartition

ANY_FOLDER = "any"


class Plan(NamedTuple):
    replicas: dict[TopicPartition, list[int]]
    folders: dict[Replica, str]  # only those that name one

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.replicas})


class Move(NamedTuple):
    """Brokers that a partition is copied from, and those that get a new copy."""

    sources: frozenset[int]
    destinations: frozenset[int]


# --- files --------------------------------------------------------------------------------------------------


def parse_plan(text: str) -> Plan:
    replicas: dict[TopicPartition, list[int]] = {}
    folders: dict[Replica, str] = {}
    twice: list[str] = []
    repeated: list[str] = []
    for entry in _entries(text, "partitions"):
        topic = json_file.field(entry, "topic", str)
        partition = TopicPartition(topic, json_file.number(entry, "partition", 0, LARGEST_INT32))
        brokers = _list(entry, "replicas", int)
        where = _list(entry, "log_dirs", str) if "log_dirs" in entry else [ANY_FOLDER] * len(brokers)
        if len(brokers) != len(where):
            raise CommandFailed(
                f"Size of replicas list {brokers} is different from size of log dirs list {where} for "
                f"partition {partition.topic}-{partition.partition}"
            )
        if not brokers:
            raise CommandFailed("Partition replica list cannot be empty")
        if partition in replicas:
            twice.append(str(partition))
        if again := [str(broker) for broker, count in Counter(brokers).items() if count > 1]:
            repeated.append(
                f"{partition.topic}-{partition.partition} contains multiple entries for {','.join(again)}"
            )
        replicas[partition] = brokers
        for broker, folder in zip(brokers, where, strict=True):
            if folder != ANY_FOLDER:
                folders[Replica(*partition, broker)] = folder
    if not replicas:
        raise CommandFailed("Partition reassignment list cannot be empty")
    if twice:
        raise CommandFailed(
            f"Partition reassignment contains duplicate topic partitions: {named(sorted(set(twice)))}"
        )
    if repeated:
        raise CommandFailed(
            f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}"
        )
    return Plan(replicas, folders)


def parse_topics(text: str) -> list[str]:
    """{"topics": [{"topic": "orders"}], "version": 1}"""
    names = [json_file.field(entry, "topic", str) for entry in _entries(text, "topics")]
    if again := [name for name, count in Counter(names).items() if count > 1]:
        raise CommandFailed(f"List of topics to reassign contains duplicate entries: [{', '.join(again)}]")
    if not names:
        raise CommandFailed("The list of topics to move is empty")
    return names


def parse_brokers(text: str) -> list[int]:
    try:
        brokers = [int(item) for item in text.split(",")]
    except ValueError:
        raise CommandFailed(f"--broker-list expects ids of brokers, as in 1,2,3, not {text}") from None
    if again := [str(broker) for broker, count in Counter(brokers).items() if count > 1]:
        raise CommandFailed(f"Broker list contains duplicate entries: [{', '.join(again)}]")
    return brokers


def format_plan(
    replicas: Mapping[TopicPartition, Sequence[int]], folders: Mapping[Replica, str] | None = None
) -> str:
    """One line of JSON, as Kafka's tool prints it, to be saved and executed."""
    return json.dumps(plan_data(replicas, folders), separators=(",", ":"), ensure_ascii=False)


def plan_data(
    replicas: Mapping[TopicPartition, Sequence[int]], folders: Mapping[Replica, str] | None = None
) -> dict[str, Any]:
    known = folders or {}
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(brokers),
                "log_dirs": [known.get(Replica(*partition, broker), ANY_FOLDER) for broker in brokers],
            }
            for partition, brokers in sorted(replicas.items())
        ],
    }


def _entries(text: str, name: str) -> list[dict[str, Any]]:
    entries = json_file.versioned(text).get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CommandFailed(f"Field `{name}` must be a list of objects")
    return entries


def _list(entry: Mapping[str, Any], name: str, expected: type) -> list[Any]:
    if name not in entry:
        raise CommandFailed(f"No such field exists: `{name}`")
    if not isinstance(entry[name], list):
        raise CommandFailed(f"Field `{name}` must be a list")
    found = [json_file.checked(item, name, expected) for item in entry[name]]
    if expected is int and not all(0 <= item <= LARGEST_INT32 for item in found):
        raise CommandFailed(f"Field `{name}` is out of range: {found}")
    return found


# --- proposals ----------------------------------------------------------------------------------------------


def propose(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    start: int | None = None,
) -> dict[TopicPartition, list[int]]:
    """The replicas spread evenly over these brokers, as those of new topics are: see
    `cluster.replica_placement`."""
    from millstream.cluster.replica_placement import assign_replicas

    proposed: dict[TopicPartition, list[int]] = {}
    for topic in sorted({partition.topic for partition in current}):
        partitions = sorted(partition for partition in current if partition.topic == topic)
        factor = len(current[partitions[0]])
        if factor > len(racks):
            raise CommandFailed(f"Replication factor: {factor} larger than available brokers: {len(racks)}")
        first = random.randrange(len(racks)) if start is None else start
        placed = assign_replicas(racks, len(partitions), factor, first)
        proposed.update(
            (partition, list(brokers)) for partition, brokers in zip(partitions, placed, strict=True)
        )
    return proposed


# --- throttles ----------------------------------------------------------------------------------------------


def moves_of(
    under_way: Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """What moves once a plan is accepted: those under way (partition -> replicas, those being added) and the
    new ones."""
    moves = {
        partition: Move(frozenset(replicas) - frozenset(adding), frozenset(adding))
        for partition, (replicas, adding) in under_way.items()
    }
    for partition, brokers in proposed.items():
        known = moves.get(partition)
        sources = known.sources if known is not None else frozenset(current[partition])
        moves[partition] = Move(sources, frozenset(brokers) - sources)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, str]]:
    """Per topic the values of leader.replication.throttled.replicas and follower.replication....: every
    broker that may send, and every one that gets a new copy."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, index), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{index}:{broker}" for broker in move.sources)
        followers.setdefault(topic, set()).update(f"{index}:{broker}" for broker in move.destinations)
    return {
        topic: (",".join(sorted(leaders[topic])), ",".join(sorted(followers[topic]))) for topic in leaders
    }


def moving_brokers(moves: Mapping[TopicPartition, Move]) -> list[int]:
    return sorted({broker for move in moves.values() for broker in move.sources | move.destinations})


def named(names: Iterable[object]) -> str:
    return ",".join(str(name) for name in names)
