"""StreamsBuilder: where a topology begins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from millstream.streams.dsl.base import Defaults, add_store
from millstream.streams.dsl.options import Materialized
from millstream.streams.dsl.stream import KStream
from millstream.streams.dsl.table import GlobalKTable, KTable
from millstream.streams.errors import TopologyError
from millstream.streams.graph import Plan, PlanNode
from millstream.streams.operators.tables import TableSource
from millstream.streams.serdes import STRING, Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import TimestampExtractor, Topology
from millstream.streams.windows import Span, milliseconds

Reset = Literal["earliest", "latest"]


class StreamsBuilder:
    """`key` and `value` are the serdes for whatever is given none.

    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count().to_stream().to("counts")
    topology = builder.build()
    """

    def __init__(self, key: Serde = STRING, value: Serde = STRING) -> None:
        self._plan = Plan()
        self._defaults = Defaults(key, value)
        self._topology: Topology | None = None

    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamps: TimestampExtractor | None = None,
        reset: Reset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """One topic, several, or all that match a pattern."""
        return stream_of(self._plan, self._defaults, topics, key, value, timestamps, reset, name)

    def table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        materialized: Materialized | str | None = None,
        timestamps: TimestampExtractor | None = None,
        reset: Reset | None = None,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """A topic whose records are the newest state of their keys."""
        kept = Materialized.of(materialized) or Materialized()
        key, value = key or kept.key, value or kept.value
        store = kept.name or self._plan.new_store_name(topic + "-")
        source_name = self._plan.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        table_name = self._plan.name_or_new(name, "KTABLE-SOURCE-")
        operator = TableSource(store, kept=kept.name is not None)
        spec = self._spec(store, kept, key, value)

        def write(topology: Topology, node: PlanNode) -> None:
            topology.add_source(source_name, topic, key, value, timestamps=timestamps, reset=reset)
            topology.add_operator(node.name, operator, source_name)
            if operator.kept:
                topology.add_store(spec, node.name)

        node = self._plan.add(PlanNode(table_name, write, operator=operator))
        sources = frozenset([source_name])
        return KTable(self._plan, self._defaults, table_name, node, sources, key, value, operator)

    def global_table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        materialized: Materialized | str | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """A table that every task has whole, whatever the partition."""
        kept = Materialized.of(materialized) or Materialized()
        key, value = key or kept.key, value or kept.value
        store = kept.name or self._plan.new_store_name(topic + "-")
        source_name = self._plan.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        table_name = self._plan.name_or_new(name, "KTABLE-SOURCE-")
        operator = TableSource(store, kept=True)
        spec = self._spec(store, kept, key, value)

        def write(topology: Topology, node: PlanNode) -> None:
            topology.add_global_store(spec, source_name, topic, node.name, operator, key=key, value=value)

        self._plan.add(PlanNode(table_name, write))
        return GlobalKTable(store)

    def add_store(self, spec: StoreSpec) -> str:
        """A store for your own processors: see `key_value_store`, `window_store`, `session_store`. Gives its
        name."""
        return add_store(self._plan, spec)

    def build(self) -> Topology:
        """The topology. The builder is used up by it."""
        if self._topology is not None:
            raise TopologyError("this builder has built its topology already")
        self._topology = Topology(self._defaults.key, self._defaults.value)
        self._plan.write(self._topology)
        self._topology.check_joined()
        return self._topology

    def _spec(self, store: str, kept: Materialized, key: Serde | None, value: Serde | None) -> StoreSpec:
        return StoreSpec(
            store,
            "key-value",
            key or self._defaults.key,
            value or self._defaults.value,
            logged=kept.logged,
            config=dict(kept.config),
        )


def stream_of(
    plan: Plan,
    defaults: Defaults,
    topics: str | Iterable[str] | re.Pattern[str],
    key: Serde | None,
    value: Serde | None,
    timestamps: TimestampExtractor | None = None,
    reset: Reset | None = None,
    name: str | None = None,
) -> KStream[Any, Any]:
    """A stream of topics, in a plan."""
    name = plan.name_or_new(name, "KSTREAM-SOURCE-")
    read: Any = topics
    if not isinstance(topics, re.Pattern):
        read = (topics,) if isinstance(topics, str) else tuple(topics)

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_source(node.name, read, key, value, timestamps=timestamps, reset=reset)

    node = plan.add(PlanNode(name, write, topics=read, reset=reset))
    return KStream(plan, defaults, name, node, frozenset([name]), key, value)


def key_value_store(
    name: str, key: Serde = STRING, value: Serde = STRING, *, logged: bool = True
) -> StoreSpec:
    """A store of values by key."""
    return StoreSpec(name, "key-value", key, value, logged=logged)


def window_store(
    name: str,
    retention: Span,
    size: Span,
    key: Serde = STRING,
    value: Serde = STRING,
    *,
    duplicates: bool = False,
    logged: bool = True,
) -> StoreSpec:
    """A store of values by key and window."""
    kept, length = milliseconds(retention), milliseconds(size)
    if length < 0 or kept < length:
        raise ValueError(f"{name} keeps windows of {length} ms for {kept} ms: that is too short")
    return StoreSpec(
        name,
        "window",
        key,
        value,
        kept,
        window_size=length,
        duplicates=duplicates,
        logged=logged,
    )


def session_store(
    name: str, retention: Span, key: Serde = STRING, value: Serde = STRING, *, logged: bool = True
) -> StoreSpec:
    """A store of values by key and session."""
    if milliseconds(retention) < 0:
        raise ValueError(f"{name} cannot keep sessions for {milliseconds(retention)} ms")
    return StoreSpec(name, "session", key, value, milliseconds(retention), logged=logged)
