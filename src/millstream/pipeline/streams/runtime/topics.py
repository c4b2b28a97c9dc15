"""How many partitions the tasks of a topology and its internal topics have.

A sub-topology has as many tasks as its widest source topic has partitions. A repartition topic has the number it was given, or that of
the widest sub-topology that writes to it; topics that are joined have the same number.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.pipeline.streams.errors import TopologyError
from millstream.pipeline.streams.topology import Topology


def internal_partitions(topology: Topology, partitions: Mapping[str, int]) -> dict[str, int]:
    """By short name, from the partitions of the application's own input topics."""
    known = dict(partitions)
    asked = {name: topic.partitions for name, topic in topology.internal.items() if topic.partitions}
    known.update({name: count for name, count in asked.items() if count is not None})
    groups = topology.sub_topologies()
    for _ in range(len(topology.internal) + 1):
        for group in groups:
            counts = [
                known[topic]
                for source in group.sources
                for topic in topology.nodes[source].topics
                if topic in known
            ]
            for sink in group.sinks:
                for topic in topology.nodes[sink].topics:
                    if counts and topic in topology.internal and topic not in asked:
                        known[topic] = max(known.get(topic, 0), *counts)
        for sources in topology.together:
            names = [
                topic
                for source in sources
                if source in topology.nodes
                for topic in topology.nodes[source].topics
            ]
            most = max((known[name] for name in names if name in known), default=0)
            for name in names:
                if name in topology.internal and name not in asked and most:
                    known[name] = most
    _check_together(topology, known)
    missing = [name for name in topology.internal if name not in known]
    if missing:
        raise TopologyError(f"nothing tells how many partitions {missing[0]} has")
    return {name: known[name] for name in topology.internal}


def _check_together(topology: Topology, known: Mapping[str, int]) -> None:
    for sources in topology.together:
        counts = {
            topic: known[topic]
            for source in sources
            if source in topology.nodes
            for topic in topology.nodes[source].topics
            if topic in known
        }
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            raise TopologyError(f"topics that are joined need the same number of partitions: {listed}")
