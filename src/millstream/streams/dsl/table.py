"""KTable: for every key its newest value. GlobalKTable: the same, whole in every task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.streams.dsl.base import AbstractStream, Defaults, add_store, operator_node, storing_node
from millstream.streams.dsl.options import Materialized, Suppressed
from millstream.streams.errors import TopologyError
from millstream.streams.expressions import Expression
from millstream.streams.functions import joiner_of, positional, with_key
from millstream.streams.graph import Plan, PlanNode
from millstream.streams.operators.stateless import NewValueOnly
from millstream.streams.operators.suppress import Suppress
from millstream.streams.operators.table_joins import JoinMerger, Side, TableJoin
from millstream.streams.operators.tables import Regroup, TableFilter, TableMapValues
from millstream.streams.operators.transforms import TransformValues, ValueTransformer
from millstream.streams.serdes import Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Partitioner, Topology

if TYPE_CHECKING:
    from millstream.streams.dsl.grouped import KGroupedTable
    from millstream.streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")
VR = TypeVar("VR")


class GlobalKTable(Generic[K, V]):
    """For joins with `KStream.join(global_table, joiner, key=...)` only."""

    def __init__(self, store: str) -> None:
        self._store = store


class KTable(AbstractStream, Generic[K, V]):
    """`materialized` (a name, or `Materialized`) keeps the rows of a result, so that they can be looked up
    from outside."""

    def __init__(
        self,
        plan: Plan,
        defaults: Defaults,
        name: str,
        node: PlanNode,
        sources: frozenset[str],
        key: Serde | None,
        value: Serde | None,
        operator: Any,
        *,
        versioned: bool = False,
    ) -> None:
        super().__init__(plan, defaults, name, node, sources, key, value)
        self._operator, self._versioned = operator, versioned

    def filter(
        self,
        predicate: Callable[[K, V], Any],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, V]:
        """Rows for which `predicate(key, value)` does not hold are gone: they are sent as tombstones."""
        return self._filtered(predicate, False, name, materialized)

    def filter_not(
        self,
        predicate: Callable[[K, V], Any],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, V]:
        return self._filtered(predicate, True, name, materialized)

    def _filtered(
        self,
        predicate: Callable[[K, V], Any],
        negate: bool,
        name: str | None,
        materialized: Materialized | str | None,
    ) -> KTable[K, V]:
        kept = Materialized.of(materialized)
        if kept is not None and kept.name is None:
            self._plan.new_store_name("KTABLE-FILTER-")
        name = self._plan.name_or_new(name, "KTABLE-FILTER-")
        operator = TableFilter(self._operator, predicate, negate, None if kept is None else kept.name)
        operator.versioned = self._versioned
        return self._derived(name, operator, kept, self._value)

    def map_values(
        self,
        mapper: Callable[[V], V2] | Callable[[K, V], V2],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, V2]:
        """`mapper(value)` or `mapper(key, value)`. Tombstones stay tombstones."""
        kept = Materialized.of(materialized)
        if kept is not None and kept.name is None:
            self._plan.new_store_name("KTABLE-MAPVALUES-")
        name = self._plan.name_or_new(name, "KTABLE-MAPVALUES-")
        store = None if kept is None else kept.name
        operator = TableMapValues(self._operator, mapper, with_key(mapper), store)
        return self._derived(name, operator, kept, None)

    def transform_values(
        self,
        make: Callable[[], ValueTransformer],
        *,
        stores: Iterable[str | StoreSpec] = (),
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, Any]:
        """`make()` gives a new `ValueTransformer` for each task, whose `transform(key, value)` gives the new
        value; it is called for tombstones too, and may use `stores` (names, or new ones)."""
        kept = Materialized.of(materialized)
        given = [stores] if isinstance(stores, str | StoreSpec) else stores
        names = tuple(one if isinstance(one, str) else add_store(self._plan, one) for one in given)
        name = self._plan.name_or_new(name, "KTABLE-TRANSFORMVALUES-")
        operator = TransformValues(self._operator, make, names, None if kept is None else kept.name)
        return self._derived(name, operator, kept, None, *names)

    def _derived(
        self, name: str, operator: Any, kept: Materialized | None, value: Serde | None, *stores: str
    ) -> KTable[Any, Any]:
        spec, key = None, self._key
        if kept is not None:
            key, value = kept.key or self._key, kept.value or value
            if kept.name is not None:
                spec = self._rows_spec(kept.name, kept, key, value)
        node = self._plan.add(storing_node(name, operator, spec, *stores), self._node)
        versioned = self._versioned if kept is None else kept.history is not None
        return KTable(
            self._plan, self._defaults, name, node, self._sources, key, value, operator, versioned=versioned
        )

    def to_stream(
        self, selector: Callable[[K, V], K2] | None = None, *, name: str | None = None
    ) -> KStream[Any, V]:
        """Every change as a record; under the key that `selector(key, value)` gives."""
        from millstream.streams.dsl.stream import KStream

        name = self._plan.name_or_new(name, "KTABLE-TOSTREAM-")
        node = self._plan.add(operator_node(name, NewValueOnly()), self._node)
        stream: KStream[Any, V] = KStream(
            self._plan, self._defaults, name, node, self._sources, self._key, self._value
        )
        return stream if selector is None else stream.select_key(selector)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Holds updates back: see `Suppressed`."""
        if self._versioned:
            raise TopologyError("updates of a versioned table cannot be held back")
        name = suppressed.name or self._plan.new_name("KTABLE-SUPPRESS-")
        by_window = suppressed.wait is None
        wait = self._plan.grace_of(self._node) if suppressed.wait is None else suppressed.wait
        if suppressed.name is not None:
            store = suppressed.name + "-store"
        else:
            store = self._plan.new_store_name("KTABLE-SUPPRESS-")
        buffer = suppressed.buffer
        operator = Suppress(self._operator, store, wait, by_window, buffer.records, buffer.size, buffer.stop)
        spec = StoreSpec(
            store, "suppress", self._key or self._defaults.key, self._value or self._defaults.value
        )
        node = self._plan.add(storing_node(name, operator, spec), self._node)
        return KTable(self._plan, self._defaults, name, node, self._sources, self._key, self._value, operator)

    @overload
    def group_by(
        self,
        selector: Expression,
        *,
        name: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> KGroupedTable[Any, V]: ...

    @overload
    def group_by(
        self,
        selector: Callable[[K, V], tuple[K2, V2] | None],
        *,
        name: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> KGroupedTable[K2, V2]: ...

    def group_by(
        self,
        selector: Callable[[Any, Any], tuple[Any, Any] | None] | Expression,
        *,
        name: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> KGroupedTable[Any, Any]:
        """For an aggregation under other keys: `selector(key, value)` gives (key, value), or None for a row
        of no group; an expression gives the key, and the value stays. Rows that change are taken out of their
        old group again."""
        from millstream.streams.dsl.grouped import KGroupedTable

        if isinstance(selector, Expression):
            selector, value = _under(selector), value or self._value
        node_name = self._plan.name_or_new(name, "KTABLE-SELECT-")
        node = self._plan.add(operator_node(node_name, Regroup(selector)), self._node)
        self._operator.enable_sending_old_values(True)
        return KGroupedTable(
            self._plan, self._defaults, node_name, node, self._sources, key, value, topic=name
        )

    # Joins --------------------------------------------------------------------------------------------------

    def join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[[V, VO], VR] | Callable[[K, V, VO], VR],
        *,
        foreign_key: Callable[..., Any] | None = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, VR]:
        """Rows of the same key, `joiner(left, right)` or `joiner(key, left, right)`. With
        `foreign_key(value)` or `foreign_key(key, value)` the right row is the one of that key; `key` is the
        left one. If a table's topic is not partitioned by its key's bytes, `partitioner` (of the left table)
        or `other_partitioner` tells how: `(topic, key, None, partitions)` gives the partition."""
        partitioners = (partitioner, other_partitioner)
        return self._joined("inner", other, joiner, foreign_key, name, materialized, partitioners)

    def left_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[[V, VO | None], VR] | Callable[[K, V, VO | None], VR],
        *,
        foreign_key: Callable[..., Any] | None = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, VR]:
        partitioners = (partitioner, other_partitioner)
        return self._joined("left", other, joiner, foreign_key, name, materialized, partitioners)

    def outer_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[[V | None, VO | None], VR] | Callable[[K, V | None, VO | None], VR],
        *,
        name: str | None = None,
        materialized: Materialized | str | None = None,
    ) -> KTable[K, VR]:
        return self._joined("outer", other, joiner, None, name, materialized)

    def _joined(
        self,
        join_type: Side,
        other: KTable[Any, Any],
        joiner: Callable[..., Any],
        foreign_key: Callable[..., Any] | None,
        name: str | None,
        materialized: Materialized | str | None,
        partitioners: tuple[Partitioner | None, Partitioner | None] = (None, None),
    ) -> KTable[Any, Any]:
        joined = joiner_of(joiner)
        if foreign_key is not None:
            from millstream.streams.dsl.foreign_key import join_on_foreign_key

            extract = (
                foreign_key if positional(foreign_key, 1) >= 2 else lambda _key, value: foreign_key(value)
            )
            rows = Materialized.of(materialized) or Materialized()
            is_left = join_type == "left"
            return join_on_foreign_key(self, other, extract, joined, name, rows, is_left, *partitioners)
        if partitioners != (None, None):
            raise TopologyError("partitioners are for joins by a foreign key")
        if not isinstance(other, KTable):
            raise TopologyError(f"a table cannot be joined with a {type(other).__name__}")
        kept = Materialized.of(materialized)
        store = None
        if kept is not None:
            store = kept.name or self._plan.new_store_name("KTABLE-MERGE-")
        merge_name = self._plan.name_or_new(name, "KTABLE-MERGE-")
        sources = self._together(other)
        if join_type in ("left", "outer"):
            self._operator.enable_sending_old_values(True)
        if join_type == "outer":
            other._operator.enable_sending_old_values(True)
        left = TableJoin(join_type, self._operator, other._operator, joined)
        right_side: Side = "right" if join_type == "left" else join_type
        right = TableJoin(
            right_side, other._operator, self._operator, lambda key, theirs, mine: joined(key, mine, theirs)
        )
        left_name = self._plan.suffixed_or_new(name, "-join-this", "KTABLE-JOINTHIS-")
        right_name = self._plan.suffixed_or_new(name, "-join-other", "KTABLE-JOINOTHER-")
        merger = JoinMerger(left, right, store)
        left_stores = list(dict.fromkeys(self._operator.getter().stores()))
        right_stores = list(dict.fromkeys(other._operator.getter().stores()))
        key, value, spec = self._key, None, None
        if kept is not None and store is not None:
            key, value = kept.key or self._key, kept.value
            spec = self._rows_spec(store, kept, key, value)
        left_parent, right_parent = self._name, other._name

        def write(topology: Topology, _node: PlanNode) -> None:
            topology.add_operator(left_name, left, left_parent)
            topology.add_operator(right_name, right, right_parent)
            topology.add_operator(merge_name, merger, left_name, right_name)
            topology.connect(left_name, *right_stores)
            topology.connect(right_name, *left_stores)
            if spec is not None:
                topology.add_store(spec, merge_name)

        node = self._plan.add(PlanNode(merge_name, write, operator=merger), self._node, other._node)
        versioned = kept is not None and kept.history is not None
        return KTable(
            self._plan, self._defaults, merge_name, node, sources, key, value, merger, versioned=versioned
        )


def _under(chosen: Expression) -> Callable[[Any, Any], tuple[Any, Any]]:
    """The row as it is, under the key that an expression gives."""
    return lambda key, value: (chosen(key, value), value)
