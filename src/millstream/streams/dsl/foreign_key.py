"""How a foreign-key join is drawn into the plan: two topics, three sub-topologies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.streams.dsl.base import storing_node, write_store
from millstream.streams.dsl.options import Materialized
from millstream.streams.dsl.table import KTable
from millstream.streams.graph import PlanNode
from millstream.streams.operators.foreign_key import (
    SUBSCRIPTIONS,
    AnswerSubscribers,
    AnswerSubscription,
    KeepSubscription,
    Subscribe,
    TakeAnswer,
    answers,
)
from millstream.streams.operators.tables import TableSource
from millstream.streams.serdes import BYTES
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Topology

_FK = "KTABLE-FK-JOIN-"


def join_on_foreign_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    foreign_key: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any, Any], Any],
    name: str | None,
    kept: Materialized,
    is_left: bool,
) -> KTable[Any, Any]:
    plan, defaults = left._plan, left._defaults
    right._operator.enable_sending_old_values(True)
    left._operator.enable_sending_old_values(True)
    key, right_key = left._key or defaults.key, right._key or defaults.key
    value, right_value = left._value or defaults.value, right._value or defaults.value
    registration = f"{_FK}SUBSCRIPTION-REGISTRATION-"
    processor = f"{_FK}SUBSCRIPTION-PROCESSOR-"

    topic = plan.suffixed_or_new(name, "-subscription-registration", registration) + "-topic"
    plan.add(PlanNode("", lambda topology, _node: topology.add_internal_topic(topic)))
    subscribe = Subscribe(foreign_key, is_left, key, value, right_key, topic)
    subscribe_name = plan.suffixed_or_new(name, "-subscription-registration-processor", registration)
    send = plan.add(storing_node(subscribe_name, subscribe, None), left._node)
    sink_name = plan.suffixed_or_new(name, "-subscription-registration-sink", "KTABLE-SINK-")
    sink = plan.add(_sink(sink_name, topic, right_key, SUBSCRIPTIONS), send)
    source_name = plan.suffixed_or_new(name, "-subscription-registration-source", "KTABLE-SOURCE-")
    source = plan.add(_source(source_name, topic, right_key, SUBSCRIPTIONS), sink)

    plan.keep_together(right._sources | {source_name})
    store = plan.suffixed_or_new(name, "-subscription-store", f"{_FK}SUBSCRIPTION-STATE-STORE-")
    spec = StoreSpec(store, "key-value", BYTES, SUBSCRIPTIONS)
    plan.add(PlanNode("", lambda topology, _node: write_store(topology, spec)))
    keep_name = plan.suffixed_or_new(name, "-subscription-receive", processor)
    keep = KeepSubscription(store, right_key, topic)
    received = plan.add(storing_node(keep_name, keep, None, store), source)
    rows = right._operator.getter()
    answer_name = plan.suffixed_or_new(name, "-subscription-join-foreign", processor)
    answer = AnswerSubscription(rows, key, topic)
    answering = plan.add(storing_node(answer_name, answer, None, *dict.fromkeys(rows.stores())), received)
    update_name = plan.suffixed_or_new(name, "-foreign-join-subscription", processor)
    update = AnswerSubscribers(store, key, right_key, topic)
    updating = plan.add(storing_node(update_name, update, None, store), right._node)

    back = plan.suffixed_or_new(name, "-subscription-response", f"{_FK}SUBSCRIPTION-RESPONSE-") + "-topic"
    plan.add(PlanNode("", lambda topology, _node: topology.add_internal_topic(back)))
    answer_serde = answers(right_value)
    back_sink_name = plan.suffixed_or_new(name, "-subscription-response-sink", "KTABLE-SINK-")
    back_sink_node = _sink(back_sink_name, back, key, answer_serde, to_asker=True)
    back_sink = plan.add(back_sink_node, answering, updating)
    back_source_name = plan.suffixed_or_new(name, "-subscription-response-source", "KTABLE-SOURCE-")
    back_source = plan.add(_source(back_source_name, back, key, answer_serde), back_sink)
    sources = left._sources | {back_source_name}
    plan.keep_together(sources)

    left_rows = left._operator.getter()
    resolver = plan.suffixed_or_new(
        name, "-subscription-response-resolver", f"{_FK}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
    )
    take = TakeAnswer(left_rows, joiner, is_left, value, topic)
    taken = plan.add(storing_node(resolver, take, None, *dict.fromkeys(left_rows.stores())), back_source)
    result_name = plan.suffixed_or_new(name, "-result", f"{_FK}OUTPUT-")
    result_store = kept.name or plan.new_store_name(f"{_FK}OUTPUT-")
    result = TableSource(result_store, kept=kept.name is not None)
    result_key = kept.key or left._key
    rows_spec = left._rows_spec(result_store, kept, result_key, kept.value)

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_operator(node.name, result, *node.parent_names)
        if result.kept:
            topology.add_store(rows_spec, node.name)

    node = plan.add(PlanNode(result_name, write, operator=result), taken)
    return KTable(plan, defaults, result_name, node, sources, result_key, kept.value, result)


def _sink(name: str, topic: str, key: Any, value: Any, *, to_asker: bool = False) -> PlanNode:
    partitioner = (lambda _topic, _key, answer, _partitions: answer.partition) if to_asker else None

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_sink(name, topic, *node.parent_names, key=key, value=value, partitioner=partitioner)

    return PlanNode(name, write)


def _source(name: str, topic: str, key: Any, value: Any) -> PlanNode:
    def write(topology: Topology, _node: PlanNode) -> None:
        topology.add_source(name, topic, key, value)

    return PlanNode(name, write)
