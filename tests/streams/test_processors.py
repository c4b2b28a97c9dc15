"""Processors of the application's own: stores, global ones included, keys and timers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.streams import (
    STREAM_TIME,
    WALL_CLOCK,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyError,
    key_value_store,
    window_store,
)
from millstream.streams.operators.metrics import MAX_NAMES, ProcessorMetrics
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


class _Writes(Processor):
    def init(self, context: Any) -> None:
        context.schedule(100, WALL_CLOCK, lambda time: context.store("rows").put("timer", str(time)))

    def process(self, record: Record) -> None:
        rows, windows = self.context.store("rows"), self.context.store("windows")
        rows.put("first", record.value)
        windows.put(record.key, record.value, 3)
        self.context.forward(record.with_timestamp(record.timestamp + 1))
        rows.put("second", record.value)
        rows.delete("first")


def test_a_changelog_has_the_time_of_the_record_at_hand() -> None:
    """Or of the timer."""
    builder = StreamsBuilder()
    stores = [key_value_store("rows"), window_store("windows", 1000, 10)]
    builder.stream("in").process(_Writes, stores=stores).process(_Counts, stores=[key_value_store("seen")])
    driver = TopologyTestDriver(builder.build(), start=1000)
    driver.input_topic("in").pipe("a", "x", 7)
    driver.advance_wall_clock(100)

    def times(store: str) -> list[tuple[bytes | None, int]]:
        records = driver.read_raw(f"test-application-{store}-changelog")
        return [(record.value, record.timestamp) for record in records]

    assert times("rows") == [(None, 7), (b"x", 7), (b"1100", 1100)]
    assert times("windows") == [(b"x", 7)]
    assert times("seen") == [(b"x", 8)]


def test_every_task_has_a_processor_of_its_own() -> None:
    one = _Counts()
    wrong: list[Any] = [one, lambda: one]
    for make in wrong:
        with pytest.raises(TopologyError, match=r"a class or a function|a new processor"):
            StreamsBuilder().stream("in").process(make)
        with pytest.raises(TopologyError, match=r"a class or a function|a new processor"):
            Topology().add_source("source", "in").add_processor("counts", make, "source")
    StreamsBuilder().stream("in").process(lambda: _Counts())


def test_a_timer_that_a_timer_schedules_may_be_due_at_once() -> None:
    """By stream time: the new one begins at 0."""
    fired: list[str] = []

    class Timers(Processor):
        def init(self, context: Any) -> None:
            self.end = context.schedule(10, STREAM_TIME, self.first)

        def first(self, time: int) -> None:
            fired.append(f"first {time}")
            self.end()
            self.context.schedule(20, STREAM_TIME, lambda time: fired.append(f"second {time}"))

        def process(self, record: Record) -> None:
            fired.append(record.value)

    builder = StreamsBuilder()
    builder.stream("in").process(Timers)
    topic = TopologyTestDriver(builder.build()).input_topic("in")
    for number, time in enumerate((5, 15, 20, 65, 79, 80)):
        topic.pipe("k", str(number), time)
    assert fired == [
        "0",
        "first 5",
        "second 5",
        "1",
        "2",
        "second 20",
        "3",
        "second 65",
        "4",
        "5",
        "second 80",
    ]


@pytest.mark.parametrize(
    ("kind", "start", "due"),
    [
        (STREAM_TIME, 15, [15, 25, 35]),
        (STREAM_TIME, 33, [35]),
        (WALL_CLOCK, 1005, [1005, 1015, 1025, 1035]),
        (WALL_CLOCK, 1000, [1000, 1010, 1020, 1030]),
        (WALL_CLOCK, 985, [1005, 1015, 1025, 1035]),
        (WALL_CLOCK, 990, [1010, 1020, 1030]),
        (WALL_CLOCK, 1023, [1025, 1035]),
    ],
)
def test_a_timer_may_be_given_a_start(kind: str, start: int, due: list[int]) -> None:
    """It fires at the start and multiples of its interval after it, and not at once because the start is
    over."""
    fired: list[int] = []

    class Timers(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, kind, fired.append, start=start)

        def process(self, record: Record) -> None:
            pass

    builder = StreamsBuilder()
    builder.stream("in").process(Timers)
    driver = TopologyTestDriver(builder.build(), start=1000)
    driver.advance_wall_clock(0)
    for time in (14, 15, 19, 24, 25, 30, 35):
        driver.input_topic("in").pipe("k", "v", time)
    for _ in range(7):
        driver.advance_wall_clock(5)
    assert fired == due


def test_a_timer_cannot_start_before_1970() -> None:
    class Wrong(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, STREAM_TIME, print, start=-1)

    builder = StreamsBuilder()
    builder.stream("in").process(Wrong)
    with pytest.raises(StreamsError, match="before 1970"):
        TopologyTestDriver(builder.build())


def test_metrics_commits_and_files_of_a_processor(tmp_path: Path) -> None:
    class Measured(Processor):
        def process(self, record: Record) -> None:
            metrics = self.context.metrics
            metrics.add("seen")
            metrics.set("last", record.timestamp)
            metrics.record("length", len(record.value))
            self.context.commit()
            (self.context.state_dir / "last").write_text(record.value)

    builder = StreamsBuilder()
    builder.stream("in").process(Measured)
    driver = TopologyTestDriver(builder.build(), state_dir=tmp_path / "files")
    topic = driver.input_topic("in")
    topic.pipe("k", "four", 10)
    topic.pipe("k", "one", 20)
    expected = {"seen": 2, "last": 20, "length.count": 2, "length.total": 7, "length.max": 4}
    assert driver.metrics == expected
    assert driver._task.commit_requested
    assert (tmp_path / "files" / "last").read_text() == "one"


def test_a_task_has_not_any_number_of_metrics() -> None:
    metrics = ProcessorMetrics({})
    for number in range(MAX_NAMES):
        metrics.add(f"m{number}")
    metrics.add("m1")
    assert metrics.get("m1") == 2
    with pytest.raises(StreamsError, match="one more"):
        metrics.add("another")
