"""A topology: sources, operators, sinks and stores by name, and which of them belong together.

Nodes that are connected, by records or by a store, are one sub-topology. Topics cut: a repartition topic is a
sink of one sub-topology and a source of the next. A task runs one sub-topology on one partition number of all
its source topics.

This is what the DSL, SQL and the low-level API (`add_source`, `add_processor`, `add_sink`, `add_store`) all
build, and all that the runtime and the test driver need. Internal topics have short names here;
`internal_name` puts the application's in front.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.streams.errors import TopologyError
from millstream.streams.operators.base import Operator
from millstream.streams.operators.processors import Processor, RunProcessor, checked_maker
from millstream.streams.serdes import STRING, Serde
from millstream.streams.stores import StoreSpec

TopicChoice = Callable[[Any, Any, Any], str]
"""(key, value, headers) -> topic."""
Partitioner = Callable[[str, Any, Any, int], int | Iterable[int] | None]
"""(topic, key, value, partitions) -> a partition; or several, each of which gets the record; or an empty
list, and nobody gets it. None: the partition of its key."""
TimestampExtractor = Callable[..., int]
"""(key, value, the record's own timestamp) -> the timestamp to go by. Below 0 the record is dropped. One that
takes five arguments is also given the headers, and the newest timestamp of the partition (-1: none yet)."""

Reset = Literal["earliest", "latest"] | datetime.timedelta
"""Where a source begins that has never been read: at the first record, after the last, or so long ago."""


@dataclass(slots=True)
class Node:
    name: str
    type: Literal["source", "processor", "sink"]
    parents: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    operator: Operator | None = None
    topics: list[str] = field(default_factory=list)
    pattern: re.Pattern[str] | None = None
    topic_choice: TopicChoice | None = None
    key: Serde | None = None
    value: Serde | None = None
    partitioner: Partitioner | None = None
    timestamps: TimestampExtractor | None = None
    reset: Reset | None = None


@dataclass(slots=True)
class InternalTopic:
    """A repartition topic. Its partitions are those of the topics it is joined with, or of its widest
    upstream one, unless given."""

    name: str
    partitions: int | None = None


@dataclass(slots=True)
class SubTopology:
    id: int
    nodes: list[str]
    sources: list[str]
    sinks: list[str]
    stores: list[str]
    is_global: bool = False


class Topology:
    """`key` and `value` are the serdes for topics and stores that were given none."""

    def __init__(self, key: Serde = STRING, value: Serde = STRING) -> None:
        self.key, self.value = key, value
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, StoreSpec] = {}
        self.global_stores: dict[str, str] = {}
        self.internal: dict[str, InternalTopic] = {}
        self.together: list[frozenset[str]] = []
        self._leader: dict[str, str] = {}

    # Building -----------------------------------------------------------------------------------------------

    def add_source(
        self,
        name: str,
        topics: str | Iterable[str] | re.Pattern[str],
        key: Serde | None = None,
        value: Serde | None = None,
        *,
        timestamps: TimestampExtractor | None = None,
        reset: Reset | None = None,
    ) -> Topology:
        node = Node(name, "source", key=key, value=value, timestamps=timestamps, reset=reset)
        if isinstance(topics, re.Pattern):
            node.pattern = topics
            for topic in self._read_by_name():
                if topics.fullmatch(topic):
                    raise TopologyError(
                        f"the pattern {topics.pattern} fits topic {topic}, which is read already"
                    )
        else:
            node.topics = [topics] if isinstance(topics, str) else list(topics)
            if not node.topics:
                raise TopologyError(f"{name} has no topic to read")
            for topic in node.topics:
                other = self.source_of(topic)
                if other is not None:
                    raise TopologyError(f"topic {topic} is read by {other} already")
        self._add(node)
        return self

    def add_operator(self, name: str, operator: Operator, *parents: str) -> Topology:
        self._add(Node(name, "processor", list(parents), operator=operator))
        return self

    def add_processor(self, name: str, make: Callable[[], Processor], *parents: str) -> Topology:
        """An application's own processor; connect its stores with `add_store`."""
        return self.add_operator(name, RunProcessor(checked_maker(make)), *parents)

    def add_sink(
        self,
        name: str,
        topic: str | TopicChoice,
        *parents: str,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        node = Node(name, "sink", list(parents), key=key, value=value, partitioner=partitioner)
        if isinstance(topic, str):
            node.topics = [topic]
        else:
            node.topic_choice = topic
        self._add(node)
        return self

    def add_store(self, spec: StoreSpec, *processors: str) -> Topology:
        known = self.stores.setdefault(spec.name, spec)
        if known is not spec:
            raise TopologyError(f"there are two stores named {spec.name}")
        for processor in processors:
            self.connect(processor, spec.name)
        return self

    def connect(self, processor: str, *stores: str) -> None:
        """Lets a processor use stores: they become one sub-topology."""
        if not stores:
            raise TopologyError(f"name the stores that {processor} is to use")
        node = self.nodes.get(processor)
        if node is None or node.type != "processor":
            raise TopologyError(f"there is no processor {processor} to use a store")
        for name in stores:
            spec = self.stores.get(name)
            if spec is None:
                raise TopologyError(f"there is no store {name}: add it first")
            if name in self.global_stores:
                raise TopologyError(f"{name} is a global store: every processor can use it without asking")
            if name not in node.stores:
                node.stores.append(name)
                if isinstance(node.operator, RunProcessor) and name not in node.operator.stores:
                    node.operator.stores = (*node.operator.stores, name)
            if spec.processors:
                self._unite(spec.processors[0], processor)
            spec.processors.append(processor)

    def add_global_store(
        self, spec: StoreSpec, source: str, topic: str, processor: str, operator: Operator, **serdes: Any
    ) -> Topology:
        """A store that every task has whole: its topic is read in full by each of them."""
        spec.logged = False
        self.add_source(source, topic, **serdes)
        self.add_operator(processor, operator, source)
        self.add_store(spec, processor)
        self.global_stores[spec.name] = topic
        return self

    def add_read_only_store(
        self,
        spec: StoreSpec,
        source: str,
        topic: str,
        processor: str,
        make: Callable[[], Processor],
        **serdes: Any,
    ) -> Topology:
        """A store that is a copy of a topic (KIP-813): `make()` gives the processor that puts its records in,
        as they are. The topic is its changelog, so nothing else is written, and other processors that are
        connected with it are to read it only."""
        spec.logged, spec.source_topic = False, topic
        self.add_source(source, topic, **serdes)
        self.add_processor(processor, make, source)
        return self.add_store(spec, processor)

    def add_internal_topic(self, name: str, partitions: int | None = None) -> None:
        if partitions is not None and partitions < 1:
            raise TopologyError(f"{name} needs at least one partition, not {partitions}")
        self.internal.setdefault(name, InternalTopic(name, partitions))

    def keep_together(self, sources: Iterable[str]) -> None:
        """The topics of these sources have the same number of partitions, and a key the same partition in
        each."""
        self.together.append(frozenset(sources))

    def _add(self, node: Node) -> None:
        if node.name in self.nodes:
            raise TopologyError(f"there are two nodes named {node.name}")
        if node.type != "source" and not node.parents:
            raise TopologyError(f"{node.name} follows nothing: name the nodes before it")
        for parent in node.parents:
            if parent not in self.nodes:
                raise TopologyError(f"{node.name} is to follow {parent}, which is not there")
            if parent == node.name or self.nodes[parent].type == "sink":
                raise TopologyError(f"{node.name} cannot follow {parent}")
        self.nodes[node.name] = node
        self._leader[node.name] = node.name
        for parent in node.parents:
            self.nodes[parent].children.append(node.name)
        for parent in node.parents:
            self._unite(node.name, parent)

    # Asking -------------------------------------------------------------------------------------------------

    def source_of(self, topic: str) -> str | None:
        """The source that reads this topic."""
        for node in self.nodes.values():
            if node.type == "source" and (
                topic in node.topics or (node.pattern is not None and node.pattern.fullmatch(topic))
            ):
                return node.name
        return None

    @property
    def has_patterns(self) -> bool:
        return any(node.pattern is not None for node in self.nodes.values())

    def topics_of(self, source: str, there: Iterable[str]) -> list[str]:
        """What a source reads. Of one with a pattern: the topics that are there, match, and are not read by
        name."""
        node = self.nodes[source]
        if node.pattern is None:
            return node.topics
        named = {topic for one in self.nodes.values() if one.type == "source" for topic in one.topics}
        return sorted(topic for topic in there if node.pattern.fullmatch(topic) and topic not in named)

    def _read_by_name(self) -> list[str]:
        """The topics of sources that are not global tables."""
        global_topics = set(self.global_stores.values())
        named = (topic for node in self.nodes.values() if node.type == "source" for topic in node.topics)
        return [topic for topic in named if topic not in global_topics]

    @property
    def requested_partitions(self) -> dict[str, int]:
        """The internal topics whose number of partitions was given."""
        return {
            name: topic.partitions for name, topic in self.internal.items() if topic.partitions is not None
        }

    def joined_topics(self) -> list[set[str]]:
        """Sets of topics that need the same number of partitions."""
        return [
            {topic for source in sources if source in self.nodes for topic in self.nodes[source].topics}
            for sources in self.together
        ]

    def check_joined(self) -> None:
        """What can be known of it without a cluster: repartition topics that were given different numbers of
        partitions."""
        requested = self.requested_partitions
        for names in self.joined_topics():
            if names <= requested.keys() and len({requested[name] for name in names}) > 1:
                raise TopologyError(unlike_partitions({name: requested[name] for name in names}))

    def serdes_of(self, topic: str) -> tuple[Serde, Serde]:
        """How keys and values of a topic are read here, or else written. A topic that nobody names may be one
        that a sink chooses: then those of such sinks, if they are all the same."""
        source = self.source_of(topic)
        if source is not None:
            return self._serdes(self.nodes[source])
        sinks = [node for node in self.nodes.values() if node.type == "sink"]
        for node in sinks:
            if topic in node.topics:
                return self._serdes(node)
        chosen = {self._serdes(node) for node in sinks if node.topic_choice is not None}
        return chosen.pop() if len(chosen) == 1 else (self.key, self.value)

    def _serdes(self, node: Node) -> tuple[Serde, Serde]:
        return node.key or self.key, node.value or self.value

    def internal_name(self, topic: str, application: str) -> str:
        return f"{application}-{topic}" if topic in self.internal else topic

    def sub_topologies(self) -> list[SubTopology]:
        found: dict[str, SubTopology] = {}
        for name, node in self.nodes.items():
            root = self._root(name)
            sub_topology = found.get(root)
            if sub_topology is None:
                sub_topology = found[root] = SubTopology(len(found), [], [], [], [])
            sub_topology.nodes.append(name)
            if node.type == "source":
                sub_topology.sources.append(name)
                sub_topology.is_global = sub_topology.is_global or self.is_global_source(name)
            elif node.type == "sink":
                sub_topology.sinks.append(name)
            sub_topology.stores.extend(store for store in node.stores if store not in sub_topology.stores)
        return list(found.values())

    def is_global_source(self, name: str) -> bool:
        return any(topic in self.global_stores.values() for topic in self.nodes[name].topics)

    def describe(self) -> str:
        """The text that Kafka Streams' `Topology.describe()` gives."""
        from millstream.streams.describe import describe

        return describe(self)

    def _root(self, name: str) -> str:
        while self._leader[name] != name:
            self._leader[name] = self._leader[self._leader[name]]
            name = self._leader[name]
        return name

    def _unite(self, one: str, other: str) -> None:
        first, second = self._root(one), self._root(other)
        if first != second:
            self._leader[second] = first


def unlike_partitions(counts: Mapping[str, int]) -> str:
    """The error of topics that are joined, and cannot be."""
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    return f"topics that are joined need the same number of partitions: {listed}"
