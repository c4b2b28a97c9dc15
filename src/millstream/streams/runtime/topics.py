"""The internal topics of an application: how many partitions they have, how long they keep what, and what
their names are.

A sub-topology has as many tasks as its widest source topic has partitions. A repartition topic has the number
it was given, or that of the topic it is joined with, or that of the widest sub-topology that writes to it;
topics that are joined have the same number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from millstream.host.membership import planner_group
from millstream.streams.errors import StreamsError, TopologyError
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Topology, unlike_partitions

ADDITIONAL_RETENTION = "windowstore.changelog.additional.retention.ms"
"""In an application's `config`: how much longer than its store a changelog keeps windows. The broker goes by
its clock, the store by the time of its records."""
DAY = 86_400_000
_LONGEST = (1 << 63) - 1
_INTERNAL = re.compile(
    r"-.+(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic)"
    r"|(-.+)?-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)

REPARTITION = {
    "message.timestamp.type": "CreateTime",
    "cleanup.policy": "delete",
    "segment.bytes": str(50 << 20),
    "retention.ms": "-1",
}
"""The settings of a repartition topic. The application deletes what it has read."""


def changelog_settings(spec: StoreSpec, additional: int = DAY) -> dict[str, str]:
    """Those of a changelog. Windows and sessions go when nobody can ask for them any more; every row of a
    join has a key of its own, so there is nothing to compact."""
    settings = {"message.timestamp.type": "CreateTime", "cleanup.policy": "compact"}
    if spec.type in ("window", "session"):
        settings["cleanup.policy"] = "delete" if spec.duplicates else "compact,delete"
        settings["retention.ms"] = str(min(spec.retention + additional, _LONGEST))
    elif spec.type == "versioned":
        # What a store of a new machine is to know of the past must not be compacted away.
        settings["min.compaction.lag.ms"] = str(min(spec.retention + additional, _LONGEST))
    return settings | spec.config


def check_partitions(wanted: Mapping[str, int], there: Mapping[str, int]) -> None:
    """Of topics that exist already: a key would be looked for in another partition than the one it is in."""
    for topic, count in wanted.items():
        if there.get(topic, count) != count:
            raise StreamsError(
                f"internal topic {topic} has {there[topic]} partitions, but the application needs {count} "
                "now: "
                "stop it, call reset(), and start it again from the beginning"
            )


def internal_topics(
    names: Iterable[str], application: str, topology: Topology, groups: Iterable[str]
) -> list[str]:
    """Which of the cluster's topics the application has made, also with an older topology: by their names, as
    Kafka Streams' reset tool tells them. What `topology` reads or writes itself is not among them, nor what
    belongs to another of the `groups`, one whose name begins with this one's."""
    own = {
        topology.internal_name(topic, application)
        for node in topology.nodes.values()
        for topic in node.topics
    } - {topology.internal_name(topic, application) for topic in topology.internal}
    others = tuple(
        f"{group}-"
        for group in groups
        if group.startswith(f"{application}-") and group != planner_group(application)
    )
    return [
        name
        for name in names
        if name.startswith(f"{application}-") and _INTERNAL.fullmatch(name[len(application) :])
        if name not in own and not name.startswith(others)
    ]


def intermediate_topics(topology: Topology) -> set[str]:
    """The application's own topics that it both writes and reads."""
    read, written = (
        {topic for node in topology.nodes.values() if node.type == node_type for topic in node.topics}
        for node_type in ("source", "sink")
    )
    return (read & written) - topology.internal.keys()


def internal_partitions(topology: Topology, partitions: Mapping[str, int]) -> dict[str, int]:
    """By short name, from the partitions of the application's own input topics. First every topic has what
    its writers need; then those that are joined are made alike, as Kafka Streams does it, which also may make
    one smaller."""
    known = dict(partitions)
    requested = topology.requested_partitions
    known.update(requested)
    sub_topologies = topology.sub_topologies()
    for _ in range(len(topology.internal) + 1):
        for sub_topology in sub_topologies:
            counts = [
                known[topic]
                for source in sub_topology.sources
                for topic in topology.topics_of(source, partitions)
                if topic in known
            ]
            for sink in sub_topology.sinks:
                for topic in topology.nodes[sink].topics:
                    if counts and topic in topology.internal and topic not in requested:
                        known[topic] = max(known.get(topic, 0), *counts)
    for names in topology.joined_topics():
        count = _common(names, topology, known)
        for name in names:
            if count and name in topology.internal and name not in requested:
                known[name] = count
    _check_together(topology, known)
    missing = [name for name in topology.internal if name not in known]
    if missing and topology.has_patterns:  # what they are made of may come yet
        return {name: known[name] for name in topology.internal if name in known}
    if missing:
        raise TopologyError(f"nothing tells how many partitions {missing[0]} has")
    return {name: known[name] for name in topology.internal}


def _common(names: Iterable[str], topology: Topology, known: Mapping[str, int]) -> int:
    """How many partitions topics that are joined should have: as many as the application's own among them,
    which nobody here can change; else as requested; else as the widest needs. 0: unknown."""
    there = [name for name in names if name in known]
    given = [known[name] for name in there if name not in topology.internal]
    requested = [known[name] for name in there if name in topology.requested_partitions]
    return max(given or requested or [known[name] for name in there], default=0)


def _check_together(topology: Topology, known: Mapping[str, int]) -> None:
    for names in topology.joined_topics():
        counts = {name: known[name] for name in names if name in known}
        if len(set(counts.values())) > 1:
            raise TopologyError(unlike_partitions(counts))
