"""Several grouped streams aggregated into one table, each by its own aggregator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millstream.streams.dsl.base import operator_node, repartition_node, storing_node
from millstream.streams.dsl.grouped import KGroupedStream
from millstream.streams.dsl.options import Materialized
from millstream.streams.dsl.table import KTable
from millstream.streams.dsl.windowed import session_spec, window_operator, window_spec
from millstream.streams.graph import PlanNode
from millstream.streams.operators.aggregates import Aggregate, SessionAggregate
from millstream.streams.operators.cogroup import Cogrouped
from millstream.streams.serdes import Serde, session_windowed, time_windowed
from millstream.streams.stores import StoreSpec
from millstream.streams.windows import SessionWindows, SlidingWindows, TimeWindows

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

Make = Callable[[Callable[[Any, Any, Any], Any]], Any]
"""The operator for one stream's aggregator."""

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"


class CogroupedKStream(Generic[K, A]):
    def __init__(self, first: KGroupedStream[K, Any]) -> None:
        self._first = first
        self._streams: dict[KGroupedStream[K, Any], Callable[..., Any]] = {}
        self._repartitioned: dict[KGroupedStream[K, Any], PlanNode] = {}

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]
    ) -> CogroupedKStream[K, A]:
        """Adds a stream: `aggregator(key, value, so far)`. One that is there already gets another
        aggregator."""
        self._streams[grouped] = aggregator
        return self

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, A]:
        kept = Materialized.of(materialized) or Materialized()
        store = kept.name or self._first._plan.new_store_name(_AGGREGATE)
        spec = self._first._rows_spec(store, kept, self._first._key, None)

        def make(aggregator: Callable[[Any, Any, Any], Any]) -> Any:
            return Aggregate(store, initializer=initializer, aggregator=aggregator)

        return self._build(name, spec, make, spec.key)

    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> WindowedCogroupedKStream[K, A]:
        return WindowedCogroupedKStream(self, windows)

    def _build(self, name: str | None, spec: StoreSpec, make: Make, key: Serde) -> KTable[Any, Any]:
        first, plan = self._first, self._first._plan
        parents: list[PlanNode] = []
        for grouped in self._streams:
            if grouped._rekeyed:
                node = repartition_node(plan, grouped._topic or spec.name, grouped._key, grouped._value)
                if grouped not in self._repartitioned:  # else the topic of the aggregation before is used
                    self._repartitioned[grouped] = plan.add(node, grouped._node)
                parents.append(self._repartitioned[grouped])
            else:
                parents.append(grouped._node)
        sources = frozenset[str]().union(
            *(
                frozenset([parent.name]) if grouped._rekeyed else grouped._sources
                for grouped, parent in zip(self._streams, parents, strict=True)
            )
        )
        plan.keep_together(sources)
        operators, nodes = [], []
        for number, (aggregator, parent) in enumerate(zip(self._streams.values(), parents, strict=True)):
            node_name = plan.suffixed_or_new(name, f"-cogroup-agg-{number}", _AGGREGATE)
            operator = make(aggregator)
            operators.append(operator)
            if number == 0:
                node = storing_node(node_name, operator, spec)
            else:
                node = storing_node(node_name, operator, None, spec.name)
            nodes.append(plan.add(node, parent))
        merge_name = plan.suffixed_or_new(name, "-cogroup-merge", "COGROUPKSTREAM-MERGE-")
        merged = Cogrouped(operators)
        node = plan.add(operator_node(merge_name, merged), *nodes)
        versioned = spec.type == "versioned"
        return KTable(
            plan, first._defaults, merge_name, node, sources, key, spec.value, merged, versioned=versioned
        )


class WindowedCogroupedKStream(Generic[K, A]):
    def __init__(
        self, cogrouped: CogroupedKStream[K, A], windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> None:
        self._cogrouped, self._windows = cogrouped, windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A] | None = None,
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[Any, A]:
        """`merger(key, one, other)` is for session windows."""
        kept = Materialized.of(materialized) or Materialized()
        first, windows = self._cogrouped._first, self._windows
        store = kept.name or first._plan.new_store_name(_AGGREGATE)
        if isinstance(windows, SessionWindows):
            if merger is None:
                raise ValueError("session windows need a merger(key, one, other)")
            sessions, merge = windows, merger
            spec = session_spec(first, windows, store, kept, None)

            def make(aggregator: Callable[[Any, Any, Any], Any]) -> Any:
                return SessionAggregate(sessions, store, initializer, aggregator, merge)

            return self._cogrouped._build(name, spec, make, session_windowed(spec.key))
        times = windows
        spec = window_spec(first, windows, store, kept, None)

        def make_windowed(aggregator: Callable[[Any, Any, Any], Any]) -> Any:
            return window_operator(times, store, initializer, aggregator)

        return self._cogrouped._build(name, spec, make_windowed, time_windowed(spec.key, spec.window_size))
