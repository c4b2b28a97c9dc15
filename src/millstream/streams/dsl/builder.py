"""StreamsBuilder: where a topology begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millstream.streams.dsl.base import Defaults, add_store
from millstream.streams.dsl.options import Materialized
from millstream.streams.dsl.stream import KStream
from millstream.streams.dsl.table import GlobalKTable, KTable
from millstream.streams.errors import TopologyError
from millstream.streams.explicit_names import EXPLICIT_NAMES, check_names
from millstream.streams.graph import Plan, PlanNode
from millstream.streams.operators.processors import Processor, RunProcessor, checked_maker
from millstream.streams.operators.tables import TableSource
from millstream.streams.optimizer import optimize, rules
from millstream.streams.serdes import STRING, Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Reset, TimestampExtractor, Topology
from millstream.streams.windows import Span, milliseconds


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
                if plan.reuse_sources:
                    spec.logged, spec.source_topic = False, topic

        plan = self._plan
        node = self._plan.add(PlanNode(table_name, write, operator=operator))
        sources = frozenset([source_name])
        versioned = kept.history is not None
        return KTable(
            self._plan, self._defaults, table_name, node, sources, key, value, operator, versioned=versioned
        )

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
        if kept.history is not None:
            raise TopologyError("global tables cannot be versioned")
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

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: str,
        make: Callable[[], Processor],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamps: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> str:
        """A store that every task has whole and can read, kept current from a topic by a processor of yours:
        `make()` gives it, and only it writes to the store. Gives the store's name."""
        source_name = self._plan.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        processor_name = self._plan.name_or_new(name, "KTABLE-SOURCE-")
        operator = RunProcessor(checked_maker(make), (spec.name,))
        spec.user = True

        def write(topology: Topology, node: PlanNode) -> None:
            serdes = {"key": key, "value": value, "timestamps": timestamps}
            topology.add_global_store(spec, source_name, topic, node.name, operator, **serdes)

        self._plan.add(PlanNode(processor_name, write))
        return spec.name

    def add_store(self, spec: StoreSpec) -> str:
        """A store for your own processors: see `key_value_store`, `window_store`, `session_store`. Gives its
        name."""
        return add_store(self._plan, spec)

    def build(self, config: Mapping[str, Any] | None = None) -> Topology:
        """The topology. The builder is used up by it. Settings that change it are `topology.optimization`
        (none, all, or some of its rules) and `ensure.explicit.internal.resource.naming`."""
        if self._topology is not None:
            raise TopologyError("this builder has built its topology already")
        settings = config or {}
        chosen = rules(settings)
        self._topology = Topology(self._defaults.key, self._defaults.value)
        self._plan.write(self._topology, lambda plan: optimize(plan, chosen))
        self._topology.check_joined()
        if str(settings.get(EXPLICIT_NAMES, "false")).lower() == "true":
            check_names(self._topology)
        return self._topology

    def _spec(self, store: str, kept: Materialized, key: Serde | None, value: Serde | None) -> StoreSpec:
        return kept.row_spec(store, key or self._defaults.key, value or self._defaults.value)


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


def versioned_store(
    name: str, history: Span, key: Serde = STRING, value: Serde = STRING, *, logged: bool = True
) -> StoreSpec:
    """A store of values by key and time. Old ones can be asked for as long as `history`."""
    if milliseconds(history) < 0:
        raise ValueError(f"{name} cannot keep versions for {milliseconds(history)} ms")
    return StoreSpec(name, "versioned", key, value, milliseconds(history), logged=logged)


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
