"""A topology as text, line for line what Kafka Streams prints.

Java prints sets in the order of their hashes, and sorts a node's neighbours while the sizes it sorts by still
grow. So do we, or the text would differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from millstream.streams.topology import SubTopology, Topology


def java_hash(text: str) -> int:
    """Java's String.hashCode, as an unsigned number."""
    found = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        found = (found * 31 + units[at] * 256 + units[at + 1]) & 0xFFFFFFFF
    return found


def java_order(names: Iterable[str]) -> list[str]:
    """Texts in the order in which a Java HashSet gives them."""
    unique = list(dict.fromkeys(names))
    buckets = 16
    while len(unique) > buckets * 0.75:
        buckets *= 2

    def bucket(name: str) -> int:
        found = java_hash(name)
        return (found ^ (found >> 16)) & (buckets - 1)

    return sorted(unique, key=bucket)


@dataclass(slots=True)
class _Shown:
    name: str
    size: int = 1
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def describe(topology: Topology) -> str:
    """Sub-topologies by number; in each the nodes with the longest way to go first, then by name."""
    described = [
        _global(topology, sub_topology) if sub_topology.is_global else _sub_topology(topology, sub_topology)
        for sub_topology in topology.sub_topologies()
    ]
    return "Topologies:\n " + "".join("  " + text for text in described)


def _global(topology: Topology, sub_topology: SubTopology) -> str:
    source = topology.nodes[sub_topology.sources[0]]
    processor = topology.nodes[source.children[0]]
    return (
        f"Sub-topology: {sub_topology.id} for global store (will not generate tasks)\n"
        f"    Source: {source.name} (topics: [{source.topics[0]}])\n      --> {processor.name}\n"
        f"    Processor: {processor.name} (stores: [{processor.stores[0]}])\n"
        f"      --> none\n      <-- {source.name}\n"
    )


def _sub_topology(topology: Topology, sub_topology: SubTopology) -> str:
    shown = {name: _Shown(name) for name in sub_topology.nodes}

    def grow(name: str, by: int) -> None:
        shown[name].size += by
        for parent in shown[name].before:
            grow(parent, by)

    def insert(name: str, among: list[str]) -> None:
        own = shown[name]
        spot = 0
        while spot < len(among) and (-shown[among[spot]].size, among[spot]) < (-own.size, name):
            spot += 1
        if name not in among:
            among.insert(spot, name)

    for name in java_order(sub_topology.nodes):
        for parent in topology.nodes[name].parents:
            insert(parent, shown[name].before)
            insert(name, shown[parent].after)
            grow(parent, shown[name].size)

    def order(names: list[str]) -> list[str]:
        return sorted(names, key=lambda name: (-shown[name].size, name))

    lines = [f"Sub-topology: {sub_topology.id}\n"]
    for name in order(sub_topology.nodes):
        node = topology.nodes[name]
        after = ", ".join(shown[name].after) or "none"
        before = ", ".join(shown[name].before) or "none"
        if node.type == "source":
            topics = (
                node.pattern.pattern
                if node.pattern is not None
                else f"[{', '.join(java_order(node.topics))}]"
            )
            lines.append(f"    Source: {name} (topics: {topics})\n      --> {after}\n")
        elif node.type == "processor":
            stores = ", ".join(java_order(node.stores))
            lines.append(
                f"    Processor: {name} (stores: [{stores}])\n      --> {after}\n      <-- {before}\n"
            )
        elif node.topic_choice is not None:
            lines.append(f"    Sink: {name} (extractor class: {node.topic_choice})\n      <-- {before}\n")
        else:
            lines.append(f"    Sink: {name} (topic: {node.topics[0]})\n      <-- {before}\n")
    return "".join(lines) + "\n"
