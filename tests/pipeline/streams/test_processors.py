"""Processors of the application's own: stores, global ones included, keys and timers."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.pipeline.streams import (
    WALL_CLOCK,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    key_value_store,
)
from millstream.testing.topology import TopologyTestDriver


def test_processors_read_global_stores_without_being_connected() -> None:
    class LookUp(Processor):
        def init(self, context: Any) -> None:
            self.countries = context.store("countries")

        def process(self, record: Record) -> None:
            assert len(self.countries) == len(list(self.countries.all()))
            self.context.forward(record.with_value(self.countries.get(record.value)))

    builder = StreamsBuilder()
    builder.global_table("countries", materialized="countries")
    builder.stream("in").process(LookUp).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("countries").pipe("de", "Germany", 0)
    driver.input_topic("in").pipe("a", "de", 1)
    assert driver.output_topic("out").read_key_values() == [("a", "Germany")]


@pytest.mark.parametrize("change", ["put", "put_if_absent", "delete"])
def test_processors_do_not_change_global_stores(change: str) -> None:
    class Writes(Processor):
        def process(self, record: Record) -> None:
            store = self.context.store("countries")
            getattr(store, change)(*("de", "x")[: 1 if change == "delete" else 2])

    builder = StreamsBuilder()
    builder.global_table("countries", materialized="countries")
    builder.stream("in").process(Writes)
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("countries").pipe("de", "Germany", 0)
    with pytest.raises(StreamsError, match="countries is a global store: processors can read it"):
        driver.input_topic("in").pipe("a", "x", 1)
    assert driver.store("countries").get("de") == "Germany"


def test_a_global_store_need_not_be_named() -> None:
    builder = StreamsBuilder()
    builder.global_table("countries", materialized="countries")
    builder.stream("in").process(Processor, stores=["countries"])
    with pytest.raises(TopologyError, match="can use it without asking"):
        builder.build()


class _Later(Processor):
    """Passes on what it has seen when a timer fires."""

    def init(self, context: Any) -> None:
        self.seen: list[Record] = []
        context.schedule(10, WALL_CLOCK, self.tick)

    def tick(self, _time: int) -> None:
        for record in self.seen:
            self.context.forward(record)
        self.seen.clear()

    def process(self, record: Record) -> None:
        self.seen.append(record)


def test_process_values_forwards_from_a_timer() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process_values(_Later).to("out")
    driver = TopologyTestDriver(builder.build(), start=0)
    driver.advance_wall_clock(10)
    driver.input_topic("in").pipe_all([("a", "1"), ("b", "2")])
    driver.advance_wall_clock(10)
    assert driver.output_topic("out").read_key_values() == [("a", "1"), ("b", "2")]


def test_process_values_keeps_the_key_after_an_error_too() -> None:
    """The key of a record that failed is not the key of the next one."""

    class Sometimes(_Later):
        def process(self, record: Record) -> None:
            super().process(record)
            if record.value == "bad":
                raise ValueError

    builder = StreamsBuilder()
    builder.stream("in").process_values(Sometimes).to("out")
    driver = TopologyTestDriver(builder.build(), start=0)
    topic = driver.input_topic("in")
    topic.pipe("a", "1")
    with pytest.raises(StreamsError, match="ValueError"):
        topic.pipe("b", "bad")
    driver.advance_wall_clock(10)
    assert driver.output_topic("out").read_key_values() == [("a", "1"), ("b", "bad")]


def test_a_processor_reads_the_settings_of_its_application() -> None:
    class Greets(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value(f"{self.context.config['greeting']} {record.value}"))

    builder = StreamsBuilder()
    builder.stream("in").process(Greets).to("out")
    driver = TopologyTestDriver(builder.build(), config={"greeting": "hello"})
    driver.input_topic("in").pipe("a", "x", 0)
    assert driver.output_topic("out").read_values() == ["hello x"]


def test_a_processor_cannot_send_a_timestamp_below_zero() -> None:
    class Wrong(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_timestamp(-1))

    builder = StreamsBuilder()
    builder.stream("in").process(Wrong).to("out")
    with pytest.raises(StreamsError, match="must not be below 0: -1"):
        TopologyTestDriver(builder.build()).input_topic("in").pipe("a", "x", 0)


class _Counts(Processor):
    def process(self, record: Record) -> None:
        store = self.context.store("seen")
        store.put(record.key, (store.get(record.key) or "") + record.value)
        self.context.forward(record.with_value(store.get(record.key)))


def test_a_store_can_be_given_where_it_is_used() -> None:
    builder = StreamsBuilder()
    seen = key_value_store("seen")
    builder.stream("one").process(_Counts, stores=[seen]).to("out")
    builder.stream("two").process_values(_Counts, stores=[seen]).to("out-two")
    topology = builder.build()
    assert topology.stores["seen"].user
    assert len(topology.sub_topologies()) == 1
    driver = TopologyTestDriver(topology)
    driver.input_topic("one").pipe("a", "x", 0)
    driver.input_topic("two").pipe("a", "y", 0)
    assert driver.output_topic("out-two").read_values() == ["xy"]


def test_one_store_needs_no_list() -> None:
    builder = StreamsBuilder()
    builder.add_store(key_value_store("seen"))
    builder.stream("in").process(_Counts, stores="seen").to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in").pipe("a", "x", 0)
    assert driver.store("seen").get("a") == "x"


def test_two_stores_of_one_name_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(_Counts, stores=[key_value_store("seen")])
    builder.stream("in").process(_Counts, stores=[key_value_store("seen")])
    with pytest.raises(TopologyError, match="two stores named seen"):
        builder.build()
