"""What the DSL's methods accept, and what topologies know of their topics."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millstream
from millstream.streams import (
    JoinWindows,
    KStream,
    Materialized,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    Topology,
    TopologyError,
    ValueTransformer,
    col,
    key_value_store,
    serdes,
)
from millstream.streams.operators.base import Out
from millstream.streams.operators.foreign_key import Answer, TakeAnswer, _hash
from millstream.streams.task import StreamTask
from millstream.testing.topology import TopologyTestDriver


def _three(key: Any, left: Any, right: Any) -> str:
    return f"{key}: {left}/{right}"


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("kept", [None, "rows"])
def test_a_joiner_of_tables_may_take_the_key(kind: str, kept: str | None) -> None:
    builder = StreamsBuilder()
    joined = getattr(builder.table("left"), kind)(builder.table("right"), _three, materialized=kept)
    joined.to_stream().to("out")
    # Looked up, too, where nobody keeps the rows.
    builder.stream("asks").join(joined, lambda _, row: row).to("answers")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("left").pipe("k", "1", 0)
    driver.input_topic("right").pipe("k", "2", 0)
    driver.input_topic("left").pipe("k", "3", 0)
    driver.input_topic("asks").pipe("k", "?", 1)
    assert driver.output_topic("out").read_values()[-2:] == ["k: 1/2", "k: 3/2"]
    assert driver.output_topic("answers").read_values() == ["k: 3/2"]


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_a_joiner_by_foreign_key_may_take_the_left_key(kind: str) -> None:
    builder = StreamsBuilder()
    orders, products = builder.table("orders"), builder.table("products")
    getattr(orders, kind)(products, _three, foreign_key=lambda order: order[0]).to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("products").pipe("p", "bike", 0)
    driver.input_topic("orders").pipe("o1", "p7", 0)
    driver.input_topic("products").pipe("p", "car", 1)
    assert driver.output_topic("out").read_values() == ["o1: p7/bike", "o1: p7/car"]


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_all_left_rows_of_a_foreign_key_are_told(kind: str) -> None:
    """Also those whose keys sort last."""
    builder = StreamsBuilder()
    left = builder.table("left", key=serdes.BYTES)
    joined = getattr(left, kind)(builder.table("right"), _three, foreign_key=lambda value: value)
    joined.to_stream(lambda key, _: key.hex()).to("out", key=serdes.STRING)
    driver = TopologyTestDriver(builder.build())
    for length in (1, 8, 9, 20):
        driver.input_topic("left").pipe(b"\xff" * length, "r", 0)
    driver.output_topic("out").read_values()
    driver.input_topic("right").pipe("r", "row", 1)
    assert len(driver.output_topic("out").read_values()) == 4


def test_what_a_foreign_key_join_leaves_out_is_counted() -> None:
    """A row without a foreign key; not the end of a row that had none."""
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, _three, foreign_key=lambda value: value or None).to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    topic = driver.input_topic("left")
    topic.pipe("a", "", 0)
    assert driver.dropped == 1
    topic.pipe("a", None, 1)
    assert driver.dropped == 1
    topic.pipe("a", "r", 2)
    topic.pipe("a", "", 3)
    assert driver.dropped == 2
    assert driver.output_topic("out").read_key_values() == [("a", None)]


def test_serdes_are_told_the_topics_that_kafka_streams_tells_them() -> None:
    """A registry has the schemas by these: those of two keys, or of two applications, must not meet in one
    subject."""
    names: set[str] = set()

    def telling(what: str) -> serdes.Serde:
        def write(topic: str, value: Any) -> bytes | None:
            names.add(f"{topic}--{what}")
            return None if value is None else str(value).encode()

        return serdes.Serde(what, write, lambda _topic, data: None if data is None else data.decode())

    key, value = telling("key"), telling("value")
    builder = StreamsBuilder()
    left, right = (builder.table(topic, key=key, value=value) for topic in ("left", "right"))
    joined = left.join(right, _three, foreign_key=lambda row: row[0], materialized=Materialized(value=value))
    joined.to_stream().to("out")
    driver = TopologyTestDriver(builder.build(), application="app")
    driver.pipe_raw("left", b"2", b"1 left", 0)
    driver.pipe_raw("right", b"1", b"right", 0)
    assert len(driver.read_raw("out")) == 1
    request = "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic"
    answer = "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic"
    rows = [f"app-{side}-STATE-STORE-{number:010}-changelog" for side, number in (("left", 0), ("right", 3))]
    assert names == {
        *(f"{request}-fk--key", f"{request}-pk--key", f"{request}-vh--value"),
        *(f"{request}--key", f"{answer}--key", f"{answer}--value"),
        *(f"{topic}--{what}" for topic in (*rows, "out") for what in ("key", "value")),
    }


class _Row:
    """A left table of one row."""

    def stores(self) -> list[str]:
        return []

    def build(self, _task: Any) -> Any:
        return lambda _key: ("new", 1)


def test_an_answer_to_a_row_that_has_changed_since_is_left_out() -> None:
    sent: list[Any] = []
    task: Any = SimpleNamespace(dropped=0, application="app")
    take = TakeAnswer(_Row(), _three, True, serdes.STRING, "topic").build(
        task, Out(lambda *row: sent.append(row))
    )
    take("k", Answer(_hash(str.encode, "old"), "right", 0), 5, ())
    assert (sent, task.dropped) == ([], 1)
    take("k", Answer(_hash(str.encode, "new"), "right", 0), 6, ())
    assert (sent, task.dropped) == ([("k", "k: new/right", 6, ())], 1)


def test_a_table_can_be_grouped_by_an_expression() -> None:
    """The rows stay as they are, serde included; those without the field are in no group."""
    builder = StreamsBuilder()
    users = builder.table("users", value=serdes.JSON)
    groups = users.group_by(col("value.region"))
    groups.count().to_stream().to("out")
    names = groups.aggregate(
        str,
        lambda _, user, so_far: so_far + user["name"],
        lambda _, user, so_far: so_far.replace(user["name"], ""),
    )
    names.to_stream().to("names")
    driver = TopologyTestDriver(builder.build())
    topic = driver.input_topic("users")
    topic.pipe("1", {"region": "eu", "name": "Ute"}, 0)
    topic.pipe("2", {"region": "eu", "name": "Max"}, 1)
    topic.pipe("3", {"name": "nowhere"}, 2)
    topic.pipe("1", {"region": "asia", "name": "Ute"}, 3)
    assert driver.output_topic("out", value=serdes.LONG).read_table() == {"eu": 1, "asia": 1}
    assert driver.output_topic("names").read_table() == {"eu": "Max", "asia": "Ute"}


def test_topics_of_patterns_and_of_choosing_sinks_have_their_serdes() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("orders-.*"), key=serdes.LONG, value=serdes.JSON)
    stream.to(lambda key, value, headers: f"to-{value['to']}", key=serdes.INTEGER, value=serdes.JSON)
    topology = builder.build()
    assert topology.serdes_of("orders-de") == (serdes.LONG, serdes.JSON)
    assert topology.serdes_of("to-x") == (serdes.INTEGER, serdes.JSON)
    driver = TopologyTestDriver(topology)
    driver.input_topic("orders-de").pipe(7, {"to": "x"}, 0)
    assert driver.output_topic("to-x").read_key_values() == [(7, {"to": "x"})]


def test_sinks_that_choose_and_differ_leave_it_to_the_defaults() -> None:
    topology = Topology()
    topology.add_source("source", "in")
    topology.add_sink("one", lambda *_: "a", "source", value=serdes.LONG)
    topology.add_sink("two", lambda *_: "b", "source", value=serdes.JSON)
    topology.add_sink("named", "c", "source", value=serdes.DOUBLE)
    assert topology.serdes_of("a") == (serdes.STRING, serdes.STRING)
    assert topology.serdes_of("c") == (serdes.STRING, serdes.DOUBLE)


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_joins_of_streams_name_their_options(kind: str) -> None:
    """For editors and type checkers; and a wrong one is named by Python."""
    parameters = inspect.signature(getattr(KStream, kind)).parameters.values()
    assert all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    builder = StreamsBuilder()
    join = getattr(builder.stream("a"), kind)
    with pytest.raises(TypeError, match="nmae"):
        join(builder.stream("b"), _three, JoinWindows.of(5), nmae="x")


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(millstream.__file__).parent / "py.typed").is_file()


def test_versioned_tables_are_refused_where_kafka_streams_refuses_them() -> None:
    builder = StreamsBuilder()
    versioned = Materialized("rows", history=1000)
    with pytest.raises(TopologyError, match="cannot be versioned"):
        builder.global_table("all", materialized=versioned)
    table = builder.table("in", materialized=versioned)
    with pytest.raises(TopologyError, match="held back"):
        table.map_values(lambda value: value).suppress(Suppressed.until_time_limit(10))
    with pytest.raises(TopologyError, match="versioned table"):
        builder.stream("s").join(builder.table("plain"), lambda x, y: x, grace=5)
    with pytest.raises(ValueError, match="needs a name"):
        Materialized(history=5)
    builder.stream("orders").join(table, _three, grace=1001).to("out")
    with pytest.raises(TopologyError, match=r"rows keeps its history for 1000 ms: too short .* 1001 ms"):
        builder.build()


def test_names_that_were_made_up_can_be_refused() -> None:
    builder = StreamsBuilder()
    letters = builder.stream("in").group_by(lambda _, word: word[0])
    letters.count()
    letters.reduce(lambda a, b: a + b, materialized="words")
    with pytest.raises(TopologyError, match=r"KSTREAM-AGGREGATE-STATE-STORE-0000000002") as error:
        builder.build({"ensure.explicit.internal.resource.naming": "true"})
    assert "words" not in str(error.value).replace("words-repartition", "")
    builder = StreamsBuilder()
    letters = builder.stream("in").group_by(lambda _, word: word[0], name="letters")
    letters.count(materialized="counts")
    builder.build({"ensure.explicit.internal.resource.naming": True})


def test_rules_of_optimization_are_known_by_name() -> None:
    with pytest.raises(TopologyError, match=r"topology\.optimization is none, all, or some of"):
        StreamsBuilder().build({"topology.optimization": "most"})


def test_a_record_goes_to_as_many_partitions_as_are_chosen() -> None:
    builder = StreamsBuilder()

    def choose(_topic: str, key: Any, _value: Any, partitions: int) -> Any:
        return {"all": range(partitions), "none": (), "one": 2, "twice": [1, 1]}.get(key)

    builder.stream("in").to("out", partitioner=choose)
    sent: list[Any] = []
    task = StreamTask(
        builder.build(),
        "app",
        lambda _topic, key, _value, _at, _headers, partition: sent.append((key, partition)),
        now=lambda: 0,
        partitions_of=lambda _topic: 3,
    )
    for key in (b"all", b"none", b"one", b"twice", b"other"):
        task.deliver("in", 0, 0, key, b"v", 0, ())
    assert sent == [(b"all", 0), (b"all", 1), (b"all", 2), (b"one", 2), (b"twice", 1), (b"other", None)]


def test_a_transformer_has_nothing_to_forward_to() -> None:
    class Forwards(ValueTransformer):
        def transform(self, key: Any, value: Any) -> Any:
            self.context.forward(Record(key, value, 0))

    builder = StreamsBuilder()
    builder.table("in").transform_values(Forwards)
    with pytest.raises(StreamsError, match="nothing to forward to"):
        TopologyTestDriver(builder.build()).input_topic("in").pipe("k", "v", 0)


def test_a_read_only_store_is_a_copy_of_its_topic() -> None:
    class Put(Processor):
        def process(self, record: Record) -> None:
            self.context.store("rows").put(record.key, record.value)

    class Look(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value(self.context.store("rows").get(record.key)))

    topology = Topology()
    topology.add_read_only_store(key_value_store("rows"), "rows-source", "rows-topic", "put", Put)
    topology.add_source("asks", "in").add_processor("look", Look, "asks")
    topology.connect("look", "rows")
    topology.add_sink("answers", "out", "look")
    driver = TopologyTestDriver(topology)
    driver.input_topic("rows-topic").pipe("k", "v", 0)
    driver.input_topic("in").pipe("k", "?", 0)
    assert driver.output_topic("out").read_values() == ["v"]
    assert driver.produced_topics == {"out"}
