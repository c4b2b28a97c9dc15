"""KStream: records that are facts, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar

from millstream.streams.dsl.base import (
    AbstractStream,
    add_store,
    operator_node,
    repartition_node,
    storing_node,
)
from millstream.streams.dsl.options import Materialized
from millstream.streams.functions import with_key
from millstream.streams.graph import PlanNode, checked_name
from millstream.streams.operators.processors import Processor, RunProcessor, checked_maker
from millstream.streams.operators.stateless import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    PassOn,
    Peek,
    Print,
    SelectKey,
)
from millstream.streams.operators.tables import TableSource
from millstream.streams.serdes import Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Partitioner, TopicChoice, Topology
from millstream.streams.windows import JoinWindows, Span

if TYPE_CHECKING:
    from millstream.streams.dsl.grouped import KGroupedStream
    from millstream.streams.dsl.table import GlobalKTable, KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")
VR = TypeVar("VR")


class KStream(AbstractStream, Generic[K, V]):
    """Every method that gives a stream takes `name`, which names the node; without it Kafka Streams' name is
    made."""

    def __init__(self, *base: Any, rekeyed: bool = False) -> None:
        super().__init__(*base)
        self._rekeyed = rekeyed
        self._repartitioned: PlanNode | None = None

    def _then(
        self,
        prefix: str,
        name: str | None,
        operator: Any,
        *,
        keeps_key: bool = True,
        keeps_value: bool = True,
    ) -> KStream[Any, Any]:
        name = self._plan.name_or_new(name, prefix)
        made = operator_node(
            name, operator, changes_key=not keeps_key, changes_value=keeps_key and not keeps_value
        )
        node = self._plan.add(made, self._node)
        return self._at(name, node, keeps_key=keeps_key, keeps_value=keeps_value)

    def _at(
        self, name: str, node: PlanNode, *, keeps_key: bool = True, keeps_value: bool = True
    ) -> KStream[Any, Any]:
        return KStream(
            self._plan,
            self._defaults,
            name,
            node,
            self._sources,
            self._key if keeps_key else None,
            self._value if keeps_value else None,
            rekeyed=self._rekeyed or not keeps_key,
        )

    # One record at a time -----------------------------------------------------------------------------------

    def filter(self, predicate: Callable[[K, V], Any], *, name: str | None = None) -> KStream[K, V]:
        """Records for which `predicate(key, value)` holds."""
        return self._then("KSTREAM-FILTER-", name, Filter(predicate))

    def filter_not(self, predicate: Callable[[K, V], Any], *, name: str | None = None) -> KStream[K, V]:
        return self._then("KSTREAM-FILTER-", name, Filter(predicate, negate=True))

    def map(self, mapper: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """`mapper(key, value)` gives the new (key, value)."""
        return self._then("KSTREAM-MAP-", name, Map(mapper), keeps_key=False, keeps_value=False)

    def map_values(
        self, mapper: Callable[[V], V2] | Callable[[K, V], V2], *, name: str | None = None
    ) -> KStream[K, V2]:
        """`mapper(value)` or `mapper(key, value)` gives the new value."""
        return self._then("KSTREAM-MAPVALUES-", name, MapValues(mapper, with_key(mapper)), keeps_value=False)

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """`mapper(key, value)` gives any number of (key, value)."""
        return self._then("KSTREAM-FLATMAP-", name, FlatMap(mapper), keeps_key=False, keeps_value=False)

    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2]] | Callable[[K, V], Iterable[V2]],
        *,
        name: str | None = None,
    ) -> KStream[K, V2]:
        operator = FlatMapValues(mapper, with_key(mapper))
        return self._then("KSTREAM-FLATMAPVALUES-", name, operator, keeps_value=False)

    def select_key(self, selector: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]:
        return self._then("KSTREAM-KEY-SELECT-", name, SelectKey(selector), keeps_key=False)

    def peek(self, action: Callable[[K, V], Any], *, name: str | None = None) -> KStream[K, V]:
        """Calls `action(key, value)` and passes the record on."""
        return self._then("KSTREAM-PEEK-", name, Peek(action))

    def for_each(self, action: Callable[[K, V], Any], *, name: str | None = None) -> None:
        self._then("KSTREAM-FOREACH-", name, ForEach(action))

    def print(self, *, label: str | None = None, to: TextIO | None = None, name: str | None = None) -> None:
        """`[label]: key, value` for every record; the label is this node's name unless given."""
        self._then("KSTREAM-PRINTER-", name, Print(label if label is not None else self._name, to))

    # Ways apart and together --------------------------------------------------------------------------------

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Several streams of one: `.branch(predicate, name=...)` as often as you like, then
        `.default_branch()` or `.no_default_branch()`, which gives the streams by name."""
        return BranchedKStream(self, name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        name = self._plan.name_or_new(name, "KSTREAM-MERGE-")
        node = self._plan.add(operator_node(name, PassOn(), is_merge=True), self._node, other._node)
        return KStream(
            self._plan,
            self._defaults,
            name,
            node,
            self._sources | other._sources,
            self._key if self._key is other._key else None,
            self._value if self._value is other._value else None,
            rekeyed=self._rekeyed or other._rekeyed,
        )

    # Topics -------------------------------------------------------------------------------------------------

    def to(
        self,
        topic: str | TopicChoice,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Writes to a topic, or to the one that `topic(key, value, headers)` names."""
        name = self._plan.name_or_new(name, "KSTREAM-SINK-")
        key, value = key or self._key, value or self._value

        def write(topology: Topology, node: PlanNode) -> None:
            topology.add_sink(name, topic, *node.parent_names, key=key, value=value, partitioner=partitioner)

        self._plan.add(PlanNode(name, write), self._node)

    def through(self, topic: str, *, key: Serde | None = None, value: Serde | None = None) -> KStream[K, V]:
        """Writes to a topic of yours and goes on from it."""
        from millstream.streams.dsl.builder import stream_of

        key, value = key or self._key, value or self._value
        self.to(topic, key=key, value=value)
        return stream_of(self._plan, self._defaults, topic, key, value)

    def repartition(
        self,
        *,
        name: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> KStream[K, V]:
        """Through a topic of the application's own, `<application>-<name>-repartition`."""
        name = name if name is not None else self._plan.new_name("KSTREAM-REPARTITION-")
        key, value = key or self._key, value or self._value
        node = repartition_node(self._plan, name, key, value, partitioner, partitions, optimizable=False)
        self._plan.add(node, self._node)
        sources = frozenset([node.name])
        return KStream(self._plan, self._defaults, node.name, node, sources, key, value)

    def _repartition_for_join(self, name: str, key: Serde | None, value: Serde | None) -> KStream[K, V]:
        key, value = key or self._key, value or self._value
        node = repartition_node(self._plan, name, key, value)
        if self._repartitioned is None or self._name != name:
            self._repartitioned = self._plan.add(node, self._node)
        sources = frozenset([self._repartitioned.name])
        return KStream(self._plan, self._defaults, node.name, self._repartitioned, sources, key, value)

    def to_table(
        self, *, name: str | None = None, materialized: Materialized | str | None = None
    ) -> KTable[K, V]:
        """Each record as the newest state of its key."""
        from millstream.streams.dsl.table import KTable

        kept = Materialized.of(materialized) or Materialized(key=self._key, value=self._value)
        name = self._plan.name_or_new(name, "KSTREAM-TOTABLE-")
        store = kept.name or self._plan.new_store_name("KSTREAM-TOTABLE-")
        key, value = kept.key or self._key, kept.value or self._value
        parent, sources = self._node, self._sources
        if self._rekeyed:
            parent = self._plan.add(repartition_node(self._plan, name, key, value), self._node)
            sources = frozenset([parent.name])
        operator = TableSource(store, kept=kept.name is not None)
        spec = self._rows_spec(store, kept, key, value)

        def write(topology: Topology, node: PlanNode) -> None:
            topology.add_operator(node.name, operator, *node.parent_names)
            if operator.kept:
                topology.add_store(spec, node.name)

        node = self._plan.add(PlanNode(name, write, operator=operator), parent)
        versioned = kept.history is not None
        return KTable(
            self._plan, self._defaults, name, node, sources, key, value, operator, versioned=versioned
        )

    # Groups -------------------------------------------------------------------------------------------------

    def group_by_key(
        self, *, name: str | None = None, key: Serde | None = None, value: Serde | None = None
    ) -> KGroupedStream[K, V]:
        """For an aggregation by the key it has. `name` names the repartition topic, if there has to be
        one."""
        from millstream.streams.dsl.grouped import KGroupedStream

        return KGroupedStream(
            self._plan,
            self._defaults,
            self._name,
            self._node,
            self._sources,
            key or self._key,
            value or self._value,
            rekeyed=self._rekeyed,
            topic=name,
        )

    def group_by(
        self,
        selector: Callable[[K, V], K2],
        *,
        name: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> KGroupedStream[K2, V]:
        """For an aggregation by another key: goes through a repartition topic."""
        from millstream.streams.dsl.grouped import KGroupedStream

        node_name = self._plan.name_or_new(name, "KSTREAM-KEY-SELECT-")
        made = operator_node(node_name, SelectKey(selector), changes_key=True)
        node = self._plan.add(made, self._node)
        return KGroupedStream(
            self._plan,
            self._defaults,
            node_name,
            node,
            self._sources,
            key,
            value or self._value,
            rekeyed=True,
            topic=name,
        )

    # Joins --------------------------------------------------------------------------------------------------

    def join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., VR],
        windows: JoinWindows | None = None,
        *,
        key: Callable[[K, V], Any] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_serde: Serde | None = None,
        grace: Span | None = None,
    ) -> KStream[K, VR]:
        """With a stream (in `windows`), a table, or a global table. `joiner(left, right)` or `joiner(key,
        left, right)`.

        grace          for a versioned table: how long a record waits for rows that come late
        key            for a global table: `key(key, value)` of a record is the table's key
        store_name     begins the names of the stores in which two streams wait for each other
        ..._serde      of the key, of this stream's values, of the other stream's: for those stores and for
                       repartition topics
        """
        from millstream.streams.dsl.joins import join

        serdes = (key_serde, value_serde, other_serde)
        return join(self, other, joiner, windows, "inner", key, name, store_name, serdes, grace)

    def left_join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., VR],
        windows: JoinWindows | None = None,
        *,
        key: Callable[[K, V], Any] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_serde: Serde | None = None,
        grace: Span | None = None,
    ) -> KStream[K, VR]:
        """As `join`; what finds no partner is joined with None. Two streams: when its window has closed."""
        from millstream.streams.dsl.joins import join

        serdes = (key_serde, value_serde, other_serde)
        return join(self, other, joiner, windows, "left", key, name, store_name, serdes, grace)

    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., VR],
        windows: JoinWindows,
        *,
        name: str | None = None,
        store_name: str | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_serde: Serde | None = None,
    ) -> KStream[K, VR]:
        """Two streams: what finds no partner on either side is joined with None, when its window has
        closed."""
        from millstream.streams.dsl.joins import join

        serdes = (key_serde, value_serde, other_serde)
        return join(self, other, joiner, windows, "outer", None, name, store_name, serdes)

    # Your own operators -------------------------------------------------------------------------------------

    def process(
        self,
        make: Callable[[], Processor],
        *,
        stores: Iterable[str | StoreSpec] = (),
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """A processor of your own: `make()` gives a new one for each task. It may change the key.

        `stores` are those that it uses: names of stores that the builder has, or new ones
        (`key_value_store(...)`). Global stores need no mention.
        """
        return self._process("KSTREAM-PROCESSOR-", make, stores, name, fixed_key=False)

    def process_values(
        self,
        make: Callable[[], Processor],
        *,
        stores: Iterable[str | StoreSpec] = (),
        name: str | None = None,
    ) -> KStream[K, Any]:
        """A processor of your own that keeps the key."""
        return self._process("KSTREAM-PROCESSVALUES-", make, stores, name, fixed_key=True)

    def _process(
        self,
        prefix: str,
        make: Callable[[], Processor],
        stores: Iterable[str | StoreSpec],
        name: str | None,
        fixed_key: bool,
    ) -> KStream[Any, Any]:
        given = [stores] if isinstance(stores, str | StoreSpec) else stores
        names = tuple(one if isinstance(one, str) else add_store(self._plan, one) for one in given)
        name = checked_name(name) if name is not None else self._plan.new_name(prefix)
        operator = RunProcessor(checked_maker(make), names, fixed_key)
        node = self._plan.add(storing_node(name, operator, None, *names), self._node)
        return self._at(name, node, keeps_key=fixed_key, keeps_value=False)


class BranchedKStream(Generic[K, V]):
    def __init__(self, stream: KStream[K, V], name: str | None) -> None:
        self._stream = stream
        self._name = stream._plan.name_or_new(name, "KSTREAM-BRANCH-")
        self._operator = Branch()
        self._node = stream._plan.add(operator_node(self._name, self._operator), stream._node)
        self._branches: dict[str, KStream[K, V]] = {}

    def branch(
        self,
        predicate: Callable[[K, V], Any],
        chain: Callable[[KStream[K, V]], KStream[Any, Any] | None] | None = None,
        *,
        name: str | None = None,
    ) -> BranchedKStream[K, V]:
        """Records that no branch before took and for which `predicate(key, value)` holds. `chain` goes on
        with them: what it gives is the branch in the result."""
        self._operator.predicates.append(predicate)
        self._add(chain, name, str(len(self._operator.predicates)))
        return self

    def default_branch(
        self,
        chain: Callable[[KStream[K, V]], KStream[Any, Any] | None] | None = None,
        *,
        name: str | None = None,
    ) -> Mapping[str, KStream[K, V]]:
        """What no branch took. Gives all branches by name."""
        self._add(chain, name, "0")
        return self._branches

    def no_default_branch(self) -> Mapping[str, KStream[K, V]]:
        return self._branches

    def _add(
        self,
        chain: Callable[[KStream[K, V]], KStream[Any, Any] | None] | None,
        name: str | None,
        number: str,
    ) -> None:
        full = self._name + (name if name is not None else number)
        self._operator.children.append(full)
        plan = self._stream._plan
        plan.new_name(full)
        node = plan.add(operator_node(full, PassOn()), self._node)
        branch = self._stream._at(full, node)
        if chain is None:
            self._branches[full] = branch
        else:
            result = chain(branch)
            if result is not None:
                self._branches[full] = result
