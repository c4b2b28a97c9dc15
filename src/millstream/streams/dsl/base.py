"""What streams, tables and their grouped forms have in common: a node of the plan, serdes, and the sources
behind them."""

from __future__ import annotations

import re
from typing import Any

from millstream.streams.dsl.options import Materialized
from millstream.streams.graph import Plan, PlanNode, Repartition
from millstream.streams.operators.stateless import NullKeys
from millstream.streams.serdes import Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Partitioner, Topology

_MADE_NAME = re.compile(r"KSTREAM.*-[0-9]{10}")


class Defaults:
    """The serdes for whatever was given none."""

    def __init__(self, key: Serde, value: Serde) -> None:
        self.key, self.value = key, value


class AbstractStream:
    """A stream, a table, or something grouped."""

    def __init__(
        self,
        plan: Plan,
        defaults: Defaults,
        name: str,
        node: PlanNode,
        sources: frozenset[str],
        key: Serde | None,
        value: Serde | None,
    ) -> None:
        self._plan, self._defaults, self._name, self._node = plan, defaults, name, node
        self._sources, self._key, self._value = sources, key, value

    def _together(self, *others: AbstractStream) -> frozenset[str]:
        """Records that the topics behind these have to be partitioned alike."""
        sources = self._sources.union(*(other._sources for other in others))
        self._plan.keep_together(sources)
        return sources

    def _rows_spec(self, name: str, kept: Materialized, key: Serde | None, value: Serde | None) -> StoreSpec:
        return kept.row_spec(
            name, kept.key or key or self._defaults.key, kept.value or value or self._defaults.value
        )


def add_store(plan: Plan, spec: StoreSpec) -> str:
    """A store of the application's own; gives its name."""
    spec.user = True
    plan.add(PlanNode("", lambda topology, _node: write_store(topology, spec)))
    return spec.name


def write_store(topology: Topology, spec: StoreSpec) -> None:
    topology.add_store(spec)


def repartition_node(
    plan: Plan,
    prefix: str,
    key: Serde | None,
    value: Serde | None,
    partitioner: Partitioner | None = None,
    partitions: int | None = None,
    optimizable: bool = True,
) -> PlanNode:
    """A filter for null keys, a sink into the topic `<prefix>-repartition`, and a source that reads it."""
    topic = prefix if prefix.endswith("-repartition") else prefix + "-repartition"
    sink = plan.new_name("KSTREAM-SINK-")
    null_filter = plan.new_name("KSTREAM-FILTER-")
    source = plan.new_name("KSTREAM-SOURCE-")
    if not _MADE_NAME.fullmatch(prefix):
        sink, source, null_filter = topic + "-sink", topic + "-source", topic + "-filter"
    null_keys = NullKeys()

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_internal_topic(topic, partitions)
        topology.add_operator(null_filter, null_keys, *node.parent_names)
        topology.add_sink(sink, topic, null_filter, key=key, value=value, partitioner=partitioner)
        topology.add_source(source, topic, key, value)

    repartition = Repartition(topic, key, value) if optimizable else None
    return PlanNode(source, write, null_keys=null_keys, repartition=repartition)


def operator_node(name: str, operator: Any, **more: Any) -> PlanNode:
    """One operator, after its parents."""
    return PlanNode(
        name,
        lambda topology, node: _write_operator(topology, node, operator),
        operator=operator,
        **more,
    )


def _write_operator(topology: Topology, node: PlanNode, operator: Any) -> None:
    topology.add_operator(node.name, operator, *node.parent_names)


def storing_node(name: str, operator: Any, spec: StoreSpec | None, *connected: str) -> PlanNode:
    """One operator with the store it owns, if any, and stores of others that it may use."""

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_operator(name, operator, *node.parent_names)
        if connected:
            topology.connect(name, *connected)
        if spec is not None:
            topology.add_store(spec, name)

    return PlanNode(name, write, operator=operator)
