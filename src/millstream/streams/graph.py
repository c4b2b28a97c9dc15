"""The plan that the DSL draws before there is a topology, and the names it gives.

Names are numbered in the order of the calls, as Kafka Streams numbers them: KSTREAM-FILTER-0000000003. A name
that was given uses up its number all the same. What a call means for the topology is written down when
`build` is called, because later calls can change it: a table keeps its rows once somebody needs them.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millstream.streams.errors import TopologyError
from millstream.streams.operators.stateless import NullKeys
from millstream.streams.serdes import Serde
from millstream.streams.topology import Reset, Topology

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Write = Callable[[Topology, "PlanNode"], None]


@dataclass(slots=True)
class Repartition:
    """The topic of a repartition node, and its serdes."""

    topic: str
    key: Serde | None
    value: Serde | None


@dataclass(slots=True)
class StreamJoin:
    """A join of two streams: `right` keeps the records of the second one, unless it is the first."""

    right: PlanNode
    with_itself: bool = False


class PlanNode:
    """One call of the DSL. `name` is that of the node which later calls follow.

    topics        for the source of a stream: what it reads, so that two of the same are made one
    reset         for the source of a stream: where it begins
    operator      what tells the grace of its windows, if it has any
    null_keys     the filter before a repartition topic
    wants_nulls   a left or outer join, which has a use for records without a key

    What `optimizer` looks at:
    changes_key, changes_value, is_merge
    repartition   a topic that may be merged with others
    stream_join   a join of two streams
    """

    def __init__(
        self,
        name: str,
        write: Write,
        *,
        topics: Any = None,
        reset: Reset | None = None,
        operator: Any = None,
        null_keys: NullKeys | None = None,
        wants_nulls: bool = False,
        changes_key: bool = False,
        changes_value: bool = False,
        is_merge: bool = False,
        repartition: Repartition | None = None,
        stream_join: StreamJoin | None = None,
    ) -> None:
        self.name, self.write = name, write
        self.topics, self.reset, self.operator = topics, reset, operator
        self.null_keys, self.wants_nulls = null_keys, wants_nulls
        self.changes_key, self.changes_value, self.is_merge = changes_key, changes_value, is_merge
        self.repartition, self.stream_join = repartition, stream_join
        self.parents: list[PlanNode] = []
        self.children: list[PlanNode] = []
        self.priority = 0
        self.written = False

    @property
    def parent_names(self) -> list[str]:
        return [parent.name for parent in self.parents]

    def adopt(self, child: PlanNode) -> None:
        if child not in self.children:
            self.children.append(child)
        if self not in child.parents:
            child.parents.append(self)

    def dismiss(self, child: PlanNode) -> None:
        if child in self.children:
            self.children.remove(child)
            child.parents.remove(self)


class Plan:
    def __init__(self) -> None:
        self._next = 0
        self._priority = 0
        self.merged: dict[str, str] = {}
        """Sources that became part of another one."""
        self.nodes: list[PlanNode] = []
        """In the order of the calls."""
        self.reuse_sources = False
        """The topics of tables are their changelogs."""
        self.root = PlanNode("root", lambda _topology, _node: None)

    def new_name(self, prefix: str) -> str:
        name = f"{prefix}{self._next:010d}"
        self._next += 1
        return name

    def new_store_name(self, prefix: str) -> str:
        return self.new_name(prefix + "STATE-STORE-")

    def name_or_new(self, given: str | None, prefix: str) -> str:
        made = self.new_name(prefix)
        return made if given is None else checked_name(given)

    def suffixed_or_new(self, given: str | None, suffix: str, prefix: str) -> str:
        made = self.new_name(prefix)
        return made if given is None else checked_name(checked_name(given) + suffix)

    def keep_together(self, sources: Iterable[str]) -> None:
        """Records that the topics of these sources have to be partitioned alike."""
        named, merged = frozenset(sources), self.merged

        def write(topology: Topology, _node: PlanNode) -> None:
            topology.keep_together(merged.get(source, source) for source in named)

        self.add(PlanNode("", write))

    def add(self, node: PlanNode, *parents: PlanNode) -> PlanNode:
        for parent in parents or (self.root,):
            if node not in parent.children:
                parent.children.append(node)
            if parent not in node.parents:
                node.parents.append(parent)
            self._priority += 1
            node.priority = self._priority
        self.nodes.append(node)
        return node

    def grace_of(self, node: PlanNode) -> int:
        """The grace of the nearest windowed aggregation upstream."""
        grace = getattr(node.operator, "grace", None)
        if grace is not None:
            return int(grace)
        parents = [parent for parent in node.parents if parent is not self.root]
        if not parents:
            raise TopologyError("until_window_closes needs a windowed aggregation before it")
        return max(self.grace_of(parent) for parent in parents)

    def write(self, topology: Topology, optimize: Callable[[Plan], None] = lambda _plan: None) -> None:
        """Writes every node after all that come before it, in the order of the calls."""
        self._merge_sources()
        optimize(self)
        self._let_null_keys_pass()
        waiting: list[tuple[int, int, PlanNode]] = [(0, 0, self.root)]
        count = 0
        seen: set[int] = set()
        while waiting:
            _, _, node = heapq.heappop(waiting)
            if node is not self.root and not node.written and all(parent.written for parent in node.parents):
                node.write(topology, node)
                node.written = True
            elif node is self.root:
                node.written = True
            if node.written and id(node) not in seen:
                seen.add(id(node))
                for child in node.children:
                    count += 1
                    heapq.heappush(waiting, (child.priority, count, child))

    def _merge_sources(self) -> None:
        """Streams of the same topics share one source."""
        first: dict[Any, PlanNode] = {}
        for node in list(self.root.children):
            if node.topics is None:
                continue
            for topic in _single(node):
                main = first.setdefault(topic, node)
                if main is node:
                    continue
                if _single(main) != _single(node):
                    raise TopologyError(f"two streams read {topic}, but not the same list of topics")
                if main.reset != node.reset:
                    raise TopologyError(
                        f"two streams of {topic} begin at different offsets: {main.reset} and {node.reset}"
                    )
                self._replace(node, main)
                break

    def _replace(self, node: PlanNode, main: PlanNode) -> None:
        self.root.children.remove(node)
        self.merged[node.name] = main.name
        for child in node.children:
            child.parents[:] = _unique(main if parent is node else parent for parent in child.parents)
            if child not in main.children:
                main.children.append(child)

    def _let_null_keys_pass(self) -> None:
        """Where a left or outer join follows a repartition topic, records without a key are let through to
        it."""
        wanted: dict[int, bool] = {}

        def wants(node: PlanNode) -> bool:
            found = wanted.get(id(node))
            if found is None:
                found = False
                for child in node.children:
                    found = wants(child) or child.wants_nulls or found
                wanted[id(node)] = found
            return found

        def visit(node: PlanNode, seen: set[int]) -> None:
            if id(node) in seen:
                return
            seen.add(id(node))
            if node.null_keys is not None:
                node.null_keys.keep = wants(node)
            for child in node.children:
                visit(child, seen)

        visit(self.root, set())


def checked_name(name: str) -> str:
    """A name for a node or a store: it may become part of a topic's."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise TopologyError(f"{name!r} is no name: at most 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


def _single(node: PlanNode) -> set[Any]:
    """The topics of a source, or its pattern."""
    return set(node.topics) if isinstance(node.topics, tuple) else {node.topics}


def _unique(nodes: Iterable[PlanNode]) -> list[PlanNode]:
    found: list[PlanNode] = []
    for node in nodes:
        if node not in found:
            found.append(node)
    return found
