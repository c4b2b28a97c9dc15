"""Records that fail: what the application does then, and what it says about them."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.streams import (
    WALL_CLOCK,
    Errors,
    InvalidTimestamp,
    ProcessingFailed,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    Topology,
)
from millstream.streams.serdes import LONG
from millstream.streams.task import StreamTask
from millstream.testing.topology import TopologyTestDriver

GOING_ON = Errors("continue", "continue", dead_letters="dead")


@pytest.mark.parametrize("stage", ["reading", "processing"])
@pytest.mark.parametrize("wrong", ["Fail", "skip", "", None])
def test_a_choice_that_does_not_exist_is_refused(stage: str, wrong: Any) -> None:
    with pytest.raises(StreamsError, match=rf"{stage}=...\) is \"fail\" or \"continue\", not"):
        Errors(**{stage: wrong})


def _copy(timestamps: Any = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", timestamps=timestamps).to("out")
    return builder.build()


class _Batches:
    """A task that is given its records in batches, and what it wrote."""

    def __init__(self, topology: Topology, errors: Errors | None = None) -> None:
        self.written: list[Any] = []
        self.task = StreamTask(topology, "app", self._collect, now=lambda: 99, errors=errors)

    def _collect(self, *record: Any) -> None:
        self.written.append(record[:-1])


def test_a_timestamp_below_zero_stops_the_application() -> None:
    """As Kafka Streams' FailOnInvalidTimestamp does, which is its default."""
    wanted = "reading a record of in-0 at offset 0: InvalidTimestamp: its timestamp is -1"
    with pytest.raises(InvalidTimestamp, match=wanted):
        TopologyTestDriver(_copy()).pipe_raw("in", b"k", b"v", -1)
    with pytest.raises(InvalidTimestamp, match="a record of in-3 at offset 7"):
        _Batches(_copy()).task.deliver_batch("in", 3, [(6, b"k", b"v", 5, ()), (7, b"k", b"v", -2, ())])


def test_a_timestamp_below_zero_may_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    run = _Batches(_copy(), GOING_ON)
    run.task.deliver_batch("in", 0, [(0, b"a", b"v", -1, (("own", b"1"),)), (1, b"b", b"v", 5, ())])
    dead, out = run.written
    assert dead[:4] == ("dead", b"a", b"v", 99)  # no topic takes a timestamp below 0: now
    assert dead[4][0] == ("own", b"1")
    assert out == ("out", b"b", b"v", 5, ())
    assert run.task.dropped == 1
    assert "in-0 at offset 0: reading failed: InvalidTimestamp" in caplog.text


def _by_value(_key: Any, value: str, _timestamp: int) -> int:
    return int(value)


def test_an_extractor_that_raises_is_dealt_with() -> None:
    with pytest.raises(ProcessingFailed, match="reading a record of in-0 at offset 0: ValueError"):
        TopologyTestDriver(_copy(_by_value)).input_topic("in").pipe("k", "no number", 3)
    driver = TopologyTestDriver(_copy(_by_value), errors=GOING_ON)
    topic = driver.input_topic("in")
    topic.pipe("k", "no number", 3)
    topic.pipe("k", "17", 4)
    (letter,) = driver.read_raw("dead")
    assert (letter.value, letter.timestamp) == (b"no number", 3)
    assert [record.timestamp for record in driver.read_raw("out")] == [17]


def test_a_dead_letter_has_the_time_of_its_record_and_the_full_name_of_its_error() -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamps=_by_value).map_values(lambda value: 1 // 0).to("out", value=LONG)
    driver = TopologyTestDriver(builder.build(), errors=GOING_ON)
    driver.input_topic("in").pipe("k", "17", 4)
    (letter,) = driver.read_raw("dead")
    assert letter.timestamp == 4
    assert dict(letter.headers)["__streams.errors.exception"] == b"builtins.ZeroDivisionError"


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_timer_after_a_record_that_could_not_be_read_has_no_record(in_batches: bool) -> None:
    class Asks(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, WALL_CLOCK, self.tick)

        def tick(self, _time: int) -> None:
            seen.append(self.context.record_metadata)

        def process(self, record: Record) -> None:
            pass

    seen: list[Any] = []
    now = [0]
    builder = StreamsBuilder(value=LONG)
    builder.stream("in").process(Asks).to("out")
    task = StreamTask(
        builder.build(), "app", lambda *_: None, now=lambda: now[0], errors=Errors(reading="continue")
    )
    if in_batches:
        task.deliver_batch("in", 0, [(0, b"k", b"short", 0, ())])
    else:
        task.deliver("in", 0, 0, b"k", b"short", 0, ())
    now[0] = 100
    assert task.punctuate_wall_clock()
    assert seen == [None]


def test_an_error_of_a_timer_says_so() -> None:
    class Wrong(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, WALL_CLOCK, self.tick)

        def tick(self, _time: int) -> None:
            self.context.store("none")

    builder = StreamsBuilder()
    builder.stream("in").process(Wrong)
    driver = TopologyTestDriver(builder.build(), start=0)
    with pytest.raises(StreamsError, match="a timer at 10: StreamsError: this processor is not connected"):
        driver.advance_wall_clock(10)
