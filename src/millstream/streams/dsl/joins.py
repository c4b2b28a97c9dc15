"""How joins of a stream are drawn into the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.streams.dsl.stream import KStream
from millstream.streams.dsl.table import GlobalKTable, KTable
from millstream.streams.errors import TopologyError
from millstream.streams.functions import joiner_of
from millstream.streams.graph import PlanNode, StreamJoin
from millstream.streams.operators.joins import KeepForJoin, SelfJoin, StreamStreamJoin, StreamTableJoin
from millstream.streams.operators.stateless import PassOn
from millstream.streams.operators.tables import StoredRows
from millstream.streams.serdes import Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Topology
from millstream.streams.windows import JoinWindows, Span, milliseconds


def join(
    stream: KStream[Any, Any],
    other: Any,
    joiner: Callable[..., Any],
    windows: JoinWindows | None,
    join_type: str,
    key: Callable[[Any, Any], Any] | None,
    name: str | None,
    store_name: str | None,
    serdes: tuple[Serde | None, Serde | None, Serde | None],
    grace: Span | None = None,
) -> KStream[Any, Any]:
    """Chooses the join by what the stream is joined with. `serdes` are those of the key, of this
    stream's values and of the other one's."""
    if grace is not None and not (isinstance(other, KTable) and other._versioned):
        raise TopologyError("grace is for a join with a versioned table: Materialized(..., history=...)")
    if isinstance(other, KStream):
        if windows is None:
            raise TopologyError("a join of two streams needs windows: JoinWindows.of(seconds(5))")
        return _with_stream(stream, other, joiner, windows, join_type, name, store_name, serdes)
    if join_type == "outer" or windows is not None:
        raise TopologyError("windows and outer joins are for two streams")
    if isinstance(other, GlobalKTable):
        if key is None:
            raise TopologyError("a join with a global table needs key=lambda key, value: the table's key")
        return _with_global(stream, other, joiner, key, join_type, name)
    if not isinstance(other, KTable):
        raise TopologyError(f"a stream cannot be joined with a {type(other).__name__}")
    key_serde, value_serde, _ = serdes
    if stream._rekeyed:
        stream = stream._repartition_for_join(name or stream._name, key_serde, value_serde)
    sources = stream._together(other)
    name = stream._plan.name_or_new(name, "KSTREAM-LEFTJOIN-" if join_type == "left" else "KSTREAM-JOIN-")
    rows = other._operator.getter()
    buffer: StoreSpec | None = None
    if grace is not None:
        defaults = stream._defaults
        buffer_serdes = (
            key_serde or stream._key or defaults.key,
            value_serde or stream._value or defaults.value,
        )
        buffer = StoreSpec(f"{name}-Buffer", "join-buffer", *buffer_serdes, milliseconds(grace))
    operator = StreamTableJoin(
        rows, joiner_of(joiner), join_type == "left", buffer=None if buffer is None else buffer.name
    )
    stores = list(dict.fromkeys(rows.stores()))

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_operator(node.name, operator, *node.parent_names)
        topology.connect(node.name, *stores)
        if buffer is not None:
            _check_history(topology, stores, buffer.retention)
            topology.add_store(buffer, node.name)

    plan = stream._plan
    node = plan.add(PlanNode(name, write, wants_nulls=join_type == "left"), stream._node)
    return KStream(plan, stream._defaults, name, node, sources, key_serde or stream._key, None)


def _check_history(topology: Topology, stores: list[str], grace: int) -> None:
    """A row that a record waits for has to be there still when it has waited."""
    for store in stores:
        history = topology.stores[store].retention
        if history < grace:
            raise TopologyError(
                f"{store} keeps its history for {history} ms: too short for a grace of {grace} ms"
            )


def _with_global(
    stream: KStream[Any, Any],
    table: GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    key: Callable[[Any, Any], Any],
    join_type: str,
    name: str | None,
) -> KStream[Any, Any]:
    # Kafka Streams names inner joins with global tables LEFTJOIN too.
    name = stream._plan.name_or_new(name, "KSTREAM-LEFTJOIN-")
    operator = StreamTableJoin(StoredRows(table._store), joiner_of(joiner), join_type == "left", key)
    wants_nulls = join_type == "left"

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_operator(node.name, operator, *node.parent_names)

    node = stream._plan.add(PlanNode(name, write, wants_nulls=wants_nulls), stream._node)
    return stream._at(name, node, keeps_value=False)


def _with_stream(
    left: KStream[Any, Any],
    right: KStream[Any, Any],
    joiner: Callable[..., Any],
    windows: JoinWindows,
    join_type: str,
    name: str | None,
    store_name: str | None,
    serdes: tuple[Serde | None, Serde | None, Serde | None],
) -> KStream[Any, Any]:
    plan, defaults = left._plan, left._defaults
    key, left_value, right_value = serdes
    if left._rekeyed:
        left = left._repartition_for_join(f"{name}-left" if name else left._name, key, left_value)
    if right._rekeyed:
        right = right._repartition_for_join(f"{name}-right" if name else right._name, key, right_value)
    sources = left._together(right)
    left_outer, right_outer = join_type in ("left", "outer"), join_type == "outer"
    left_suffix = "-outer-this-join" if right_outer else "-this-join"
    right_suffix = "-outer-other-join" if left_outer else "-other-join"
    left_keep = plan.suffixed_or_new(name, "-this-windowed", "KSTREAM-WINDOWED-")
    right_keep = plan.suffixed_or_new(name, "-other-windowed", "KSTREAM-WINDOWED-")
    left_made = plan.new_name("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-")
    right_made = plan.new_name("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-")
    left_name = left_made if name is None else name + left_suffix
    right_name = right_made if name is None else name + right_suffix
    merge_name = plan.suffixed_or_new(name, "-merge", "KSTREAM-MERGE-")
    key_serde = key or left._key or right._key or defaults.key
    left_serde = left_value or left._value or defaults.value
    right_serde = right_value or right._value or defaults.value
    retention = windows.size + windows.grace_ms

    def window_store(base: str, value: Serde) -> StoreSpec:
        return StoreSpec(
            base + "-store", "window", key_serde, value, retention, window_size=windows.size, duplicates=True
        )

    left_store = window_store(left_made if store_name is None else store_name + left_suffix, left_serde)
    right_store = window_store(right_made if store_name is None else store_name + right_suffix, right_serde)
    waiting: StoreSpec | None = None
    if left_outer and not windows.unmatched_at_once:
        waiting_name = _shared_store_name(store_name, right_outer, left_made)
        waiting = StoreSpec(waiting_name, "outer-join", key_serde, left_serde, other_value=right_serde)
    waiting_store = None if waiting is None else waiting.name
    joined = joiner_of(joiner)
    left_join = StreamStreamJoin(
        True, right_store.name, windows, joined, left_outer, waiting_store, merge_name
    )
    right_join = StreamStreamJoin(
        False, left_store.name, windows, joined, right_outer, waiting_store, merge_name
    )
    plan.add(_keep_node(left_keep, left_store.name), left._node)
    stream_join = StreamJoin(plan.add(_keep_node(right_keep, right_store.name), right._node))

    def write(topology: Topology, node: PlanNode) -> None:
        if stream_join.with_itself:
            topology.add_operator(merge_name, SelfJoin(left_store.name, windows, joined), left_keep)
            topology.add_store(left_store, left_keep, merge_name)
            return
        topology.add_operator(left_name, left_join, left_keep)
        topology.add_operator(right_name, right_join, right_keep)
        topology.add_operator(merge_name, PassOn(), left_name, right_name)
        topology.add_store(left_store, left_keep, right_name)
        topology.add_store(right_store, right_keep, left_name)
        if waiting is not None:
            topology.add_store(waiting, left_name, right_name)

    node = plan.add(
        PlanNode(merge_name, write, wants_nulls=left_outer or right_outer, stream_join=stream_join),
        left._node,
        right._node,
    )
    return KStream(plan, defaults, merge_name, node, sources, key or left._key, None)


def _shared_store_name(store_name: str | None, outer: bool, join: str) -> str:
    """As Kafka Streams calls the store of records that have found no match yet."""
    if store_name is None:
        return f"KSTREAM-OUTERSHARED-{join[-10:]}-store"
    return store_name + ("-outer-shared-join-store" if outer else "-left-shared-join-store")


def _keep_node(name: str, store: str) -> PlanNode:
    operator = KeepForJoin(store)
    return PlanNode(name, lambda topology, node: _add(topology, name, operator, node), operator=operator)


def _add(topology: Topology, name: str, operator: KeepForJoin, node: PlanNode) -> None:
    topology.add_operator(name, operator, *node.parent_names)
