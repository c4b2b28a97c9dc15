"""How a foreign-key join is drawn into the plan: two topics, three sub-topologies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.streams.dsl.base import storing_node, write_store
from millstream.streams.dsl.options import Materialized
from millstream.streams.dsl.table import KTable
from millstream.streams.errors import StreamsError
from millstream.streams.graph import Plan, PlanNode
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
from millstream.streams.serdes import BYTES, Serde
from millstream.streams.stores import StoreSpec
from millstream.streams.topology import Partitioner, Topology

_FK = "KTABLE-FK-JOIN-"


def join_on_foreign_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    foreign_key: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any, Any], Any],
    name: str | None,
    kept: Materialized,
    is_left: bool,
    partitioner: Partitioner | None = None,
    other_partitioner: Partitioner | None = None,
) -> KTable[Any, Any]:
    plan, defaults = left._plan, left._defaults
    right._operator.enable_sending_old_values(True)
    left._operator.enable_sending_old_values(True)
    key, right_key = left._key or defaults.key, right._key or defaults.key
    value, right_value = left._value or defaults.value, right._value or defaults.value
    registration = f"{_FK}SUBSCRIPTION-REGISTRATION-"
    processor = f"{_FK}SUBSCRIPTION-PROCESSOR-"

    topic = _internal_topic(plan, name, "-subscription-registration", registration)
    subscribe = Subscribe(foreign_key, is_left, key, value, right_key, topic)
    subscribe_name = plan.suffixed_or_new(name, "-subscription-registration-processor", registration)
    subscribing = plan.add(storing_node(subscribe_name, subscribe, None), left._node)
    source_name, source = _through(
        plan,
        name,
        "-subscription-registration",
        topic,
        right_key,
        SUBSCRIPTIONS,
        subscribing,
        partitioner=None if other_partitioner is None else _by_key(other_partitioner),
    )

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

    response = _internal_topic(plan, name, "-subscription-response", f"{_FK}SUBSCRIPTION-RESPONSE-")
    response_source, responses = _through(
        plan,
        name,
        "-subscription-response",
        response,
        key,
        answers(right_value),
        answering,
        updating,
        partitioner=_to_subscriber if partitioner is None else _by_key(partitioner),
    )
    sources = left._sources | {response_source}
    plan.keep_together(sources)

    left_rows = left._operator.getter()
    resolver = plan.suffixed_or_new(
        name, "-subscription-response-resolver", f"{_FK}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
    )
    take = TakeAnswer(left_rows, joiner, is_left, value, topic)
    taken = plan.add(storing_node(resolver, take, None, *dict.fromkeys(left_rows.stores())), responses)
    return _result(left, name, kept, taken, sources)


def _to_subscriber(_topic: str, _key: Any, answer: Any, _partitions: int) -> int | None:
    """An answer goes where the left row is."""
    found: int | None = answer.partition
    return found


def _by_key(partitioner: Partitioner) -> Partitioner:
    """What travels in the topics of a join is nobody's value: a partitioner sees the key alone, and chooses
    one partition."""

    def chosen(topic: str, key: Any, _value: Any, partitions: int) -> int | None:
        found = partitioner(topic, key, None, partitions)
        if found is None or isinstance(found, int):
            return found
        several = list(found)
        if len(several) != 1:
            raise StreamsError(f"a partitioner of a foreign-key join has to choose one partition: {several}")
        return several[0]

    return chosen


def _result(
    left: KTable[Any, Any], name: str | None, kept: Materialized, parent: PlanNode, sources: frozenset[str]
) -> KTable[Any, Any]:
    plan = left._plan
    result_name = plan.suffixed_or_new(name, "-result", f"{_FK}OUTPUT-")
    store = kept.name or plan.new_store_name(f"{_FK}OUTPUT-")
    result = TableSource(store, kept=kept.name is not None)
    key = kept.key or left._key
    rows_spec = left._rows_spec(store, kept, key, kept.value)

    def write(topology: Topology, node: PlanNode) -> None:
        topology.add_operator(node.name, result, *node.parent_names)
        if result.kept:
            topology.add_store(rows_spec, node.name)

    node = plan.add(PlanNode(result_name, write, operator=result), parent)
    versioned = kept.history is not None
    return KTable(
        plan, left._defaults, result_name, node, sources, key, kept.value, result, versioned=versioned
    )


def _internal_topic(plan: Plan, name: str | None, suffix: str, prefix: str) -> str:
    topic = plan.suffixed_or_new(name, suffix, prefix) + "-topic"
    plan.add(PlanNode("", lambda topology, _node: topology.add_internal_topic(topic)))
    return topic


def _through(
    plan: Plan,
    name: str | None,
    suffix: str,
    topic: str,
    key: Serde,
    value: Serde,
    *parents: PlanNode,
    partitioner: Partitioner | None = None,
) -> tuple[str, PlanNode]:
    """Into a topic and out of it again: the source that goes on, and its name."""
    sink_name = plan.suffixed_or_new(name, f"{suffix}-sink", "KTABLE-SINK-")

    def write_sink(topology: Topology, node: PlanNode) -> None:
        topology.add_sink(sink_name, topic, *node.parent_names, key=key, value=value, partitioner=partitioner)

    sink = plan.add(PlanNode(sink_name, write_sink), *parents)
    source_name = plan.suffixed_or_new(name, f"{suffix}-source", "KTABLE-SOURCE-")

    def write_source(topology: Topology, _node: PlanNode) -> None:
        topology.add_source(source_name, topic, key, value)

    return source_name, plan.add(PlanNode(source_name, write_source), sink)
