"""What the DSL's methods accept, and what topologies know of their topics."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import millstream
from millstream.pipeline.streams import JoinWindows, KStream, StreamsBuilder, Topology, col, serdes
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
