"""Grouped streams and tables: what can be counted, reduced and aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.streams.dsl.base import AbstractStream, repartition_node, storing_node
from millstream.streams.dsl.options import Materialized
from millstream.streams.dsl.table import KTable
from millstream.streams.graph import PlanNode
from millstream.streams.operators.aggregates import Aggregate, Count, Reduce
from millstream.streams.operators.tables import TableAggregate, TableReduce
from millstream.streams.serdes import LONG, Serde, changes
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Topology
from millstream.streams.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

if TYPE_CHECKING:
    from millstream.streams.dsl.cogrouped import CogroupedKStream
    from millstream.streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class KGroupedStream(AbstractStream, Generic[K, V]):
    def __init__(self, *base: Any, rekeyed: bool, topic: str | None) -> None:
        super().__init__(*base)
        self._rekeyed, self._topic = rekeyed, topic
        self._repartitioned: PlanNode | None = None

    def count(
        self, *, name: str | None = None, materialized: Materialized | str | None = None
    ) -> KTable[K, int]:
        """How many records (with key and value) each key had."""
        name, store, kept = self._named("KSTREAM-AGGREGATE-", name, materialized, counting=True)
        return self._to_table(name, Count(store), self._rows_spec(store, kept, self._key, LONG))

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, V]:
        """`reducer(so far, value)`; the first value of a key is taken as it is."""
        name, store, kept = self._named("KSTREAM-REDUCE-", name, materialized)
        operator = Reduce(store, reducer=reducer)
        return self._to_table(name, operator, self._rows_spec(store, kept, self._key, self._value))

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, A]:
        """`aggregator(key, value, so far)`, starting from `initializer()`. Say the aggregate's serde in
        `materialized`."""
        name, store, kept = self._named("KSTREAM-AGGREGATE-", name, materialized)
        operator = Aggregate(store, initializer=initializer, aggregator=aggregator)
        return self._to_table(name, operator, self._rows_spec(store, kept, self._key, None))

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> TimeWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows | SessionWindows) -> Any:
        """The aggregations by key and window."""
        from millstream.streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        return TimeWindowedKStream(self, windows)

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """The first of several streams that are aggregated into one table."""
        from millstream.streams.dsl.cogrouped import CogroupedKStream

        cogrouped: CogroupedKStream[K, A] = CogroupedKStream(self)
        return cogrouped.cogroup(self, aggregator)

    def _named(
        self,
        prefix: str,
        name: str | None,
        materialized: Materialized | str | None,
        *,
        counting: bool = False,
    ) -> tuple[str, str, Materialized]:
        """The names of an aggregation and of its store, and how that is kept. Numbers are used up in Kafka
        Streams' order."""
        kept = Materialized.of(materialized)
        if counting and kept is not None and kept.name is None:
            self._plan.new_store_name(prefix)  # a count takes a number there that nobody sees
        kept = kept or Materialized()
        store = kept.name or self._plan.new_store_name(prefix)
        return self._plan.name_or_new(name, prefix), store, kept

    def _to_table(
        self, name: str, operator: Any, spec: StoreSpec, key: Serde | None = None
    ) -> KTable[Any, Any]:
        """The aggregation, after a repartition topic where the key has changed. `key` is the result's, if it
        is another."""
        parent, sources = self._node, self._sources
        if self._rekeyed:
            node = repartition_node(self._plan, self._topic or spec.name, self._key, self._value)
            sources = frozenset([node.name])
            if self._repartitioned is None or self._topic is None:
                self._repartitioned = node
            parent = self._plan.add(self._repartitioned, self._node)
        added = self._plan.add(storing_node(name, operator, spec), parent)
        return KTable(
            self._plan,
            self._defaults,
            name,
            added,
            sources,
            key or spec.key,
            spec.value,
            operator,
            versioned=spec.type == "versioned",
        )


class KGroupedTable(AbstractStream, Generic[K, V]):
    """Aggregations that also take out what a row was before: they need a subtractor."""

    def __init__(self, *base: Any, topic: str | None) -> None:
        super().__init__(*base)
        self._topic = topic
        self._repartitioned: PlanNode | None = None

    def count(
        self, *, name: str | None = None, materialized: Materialized | str | None = None
    ) -> KTable[K, int]:
        """How many rows each group has."""
        kept = Materialized.of(materialized) or Materialized()
        store = kept.name or self._plan.new_store_name("KTABLE-AGGREGATE-")
        operator = TableAggregate(store, int, _add_one, _take_one)
        spec = self._rows_spec(store, kept, self._key, LONG)
        return self._to_table("KTABLE-AGGREGATE-", name, operator, spec)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, V]:
        kept = Materialized.of(materialized) or Materialized()
        store = kept.name or self._plan.new_store_name("KTABLE-AGGREGATE-")
        operator = TableReduce(store, adder, subtractor)
        spec = self._rows_spec(store, kept, self._key, self._value)
        return self._to_table("KTABLE-REDUCE-", name, operator, spec)

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, A]:
        kept = Materialized.of(materialized) or Materialized()
        store = kept.name or self._plan.new_store_name("KTABLE-AGGREGATE-")
        operator = TableAggregate(store, initializer, adder, subtractor)
        spec = self._rows_spec(store, kept, self._key, None)
        return self._to_table("KTABLE-AGGREGATE-", name, operator, spec)

    def _to_table(self, prefix: str, name: str | None, operator: Any, spec: StoreSpec) -> KTable[Any, Any]:
        plan = self._plan
        sink = plan.suffixed_or_new(name, "-sink", "KSTREAM-SINK-")
        source = plan.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        name = plan.name_or_new(name, prefix)
        topic = (self._topic or spec.name) + "-repartition"
        key = self._key or self._defaults.key
        value = changes(self._value or self._defaults.value)

        def write(topology: Topology, node: PlanNode) -> None:
            topology.add_internal_topic(topic)
            topology.add_sink(sink, topic, *node.parent_names, key=key, value=value)
            topology.add_source(source, topic, key, value)

        if self._repartitioned is None or self._topic is None:
            self._repartitioned = PlanNode(source, write)
        parent = plan.add(self._repartitioned, self._node)
        node = plan.add(storing_node(name, operator, spec), parent)
        sources = frozenset([source])
        return KTable(
            plan,
            self._defaults,
            name,
            node,
            sources,
            spec.key,
            spec.value,
            operator,
            versioned=spec.type == "versioned",
        )


def _add_one(_key: Any, _value: Any, count: int) -> int:
    return count + 1


def _take_one(_key: Any, _value: Any, count: int) -> int:
    return count - 1
