"""topology.optimization: what Kafka Streams does to a plan before it becomes a topology.

    reuse.ktable.source.topics   the topic of a table is its changelog; there is no second one
    merge.repartition.topics     streams that follow one change of key share one repartition topic
    single.store.self.join       a stream that is joined with itself is kept once

The names of Kafka Streams' topics follow from the order of these steps, so they are taken in the same order
and with the same searches through the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millstream.streams.dsl.base import repartition_node
from millstream.streams.errors import TopologyError
from millstream.streams.graph import Plan, PlanNode, StreamJoin

SETTING = "topology.optimization"
REUSE_SOURCES = "reuse.ktable.source.topics"
MERGE_REPARTITIONS = "merge.repartition.topics"
SELF_JOIN = "single.store.self.join"
ALL = frozenset([REUSE_SOURCES, MERGE_REPARTITIONS, SELF_JOIN])


def rules(config: Mapping[str, Any]) -> frozenset[str]:
    """The rules that a setting names: none, all, or some of them with commas between."""
    chosen = str(config.get(SETTING, "none"))
    if chosen in ("none", ""):
        return frozenset()
    if chosen == "all":
        return ALL
    found = frozenset(rule.strip() for rule in chosen.split(","))
    if not found <= ALL:
        raise TopologyError(f"{SETTING} is none, all, or some of {', '.join(sorted(ALL))}; not {chosen}")
    return found


def optimize(plan: Plan, chosen: Iterable[str]) -> None:
    """After streams of the same topics were made one."""
    if REUSE_SOURCES in chosen:
        plan.reuse_sources = True
    if MERGE_REPARTITIONS in chosen:
        _merge_repartitions(plan)
    if SELF_JOIN in chosen:
        _join_with_itself(plan.root, set())


# Repartition topics -----------------------------------------------------------------------------------------


def _merge_repartitions(plan: Plan) -> None:
    for changer, repartitions in _by_key_changer(plan).items():
        if not repartitions:
            continue
        wanted = [node.repartition for node in repartitions if node.repartition is not None]
        key = next((one.key for one in wanted if one.key is not None), None)
        value = next((one.value for one in wanted if one.value is not None), None)
        merged = repartition_node(plan, wanted[0].topic, key, value)
        merged.priority = changer.priority
        for node in repartitions:
            child = _child_of(node, changer)
            assert child is not None
            merged.adopt(child)
            changer.dismiss(child)
            for follower in list(node.children):
                for parent in node.parents:
                    parent.adopt(follower)
            for parent in list(node.parents):
                parent.dismiss(node)
            for follower in list(node.children):
                node.dismiss(follower)
            plan.merged[node.name] = merged.name
        changer.adopt(merged)


def _by_key_changer(plan: Plan) -> dict[PlanNode, list[PlanNode]]:
    """The repartition topics that follow each change of key, with nothing that changes values between them;
    where streams were merged, those that follow the merge."""
    found: dict[PlanNode, list[PlanNode]] = {}
    merges = []
    for node in plan.nodes:
        if node.changes_key:
            found.setdefault(node, [])
        elif node.repartition is not None:
            changer = _nearest(node, lambda one: one.changes_key)
            first = _nearest(node, lambda one: one.changes_key or one.changes_value)
            if changer is not None and first is changer and node not in found[changer]:
                found[changer].append(node)
        elif node.is_merge and node not in merges:
            merges.append(node)
    above: dict[PlanNode, list[PlanNode]] = {}
    for merge in merges:
        above[merge] = []
        for changer, repartitions in found.items():
            follows = all(_child_of(one, merge) is not None for one in repartitions)
            if follows and _child_of(merge, changer) is not None:
                above[merge].append(changer)
    gone: list[PlanNode] = []
    for merge, changers in above.items():
        found[merge] = list(dict.fromkeys(one for changer in changers for one in found[changer]))
        gone.extend(changers)
    return {node: repartitions for node, repartitions in found.items() if node not in gone}


def _child_of(node: PlanNode, parent: PlanNode) -> PlanNode | None:
    return _nearest(node, lambda one: parent in one.parents)


def _nearest(node: PlanNode, wanted: Callable[[PlanNode], bool]) -> PlanNode | None:
    """The node itself or one above it. As in Kafka Streams, of several parents the last one's search counts,
    unless a parent is what is looked for."""
    if wanted(node):
        return node
    found = None
    for parent in node.parents:
        if wanted(parent):
            return parent
        found = _nearest(parent, wanted)
    return found


# Streams joined with themselves -----------------------------------------------------------------------------


def _join_with_itself(node: PlanNode, seen: set[int]) -> None:
    seen.add(id(node))
    join = node.stream_join
    if isinstance(join, StreamJoin) and len(node.parents) == 1:
        node.parents[0].dismiss(join.right)
        join.with_itself = True
    for child in list(node.children):
        if id(child) not in seen:
            _join_with_itself(child, seen)
