"""The test driver itself, and what the vectors do not reach: errors, dead letters, serdes, wrong
topologies."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from millstream.streams import (
    STREAM_TIME,
    Buffer,
    BufferFull,
    Errors,
    JoinWindows,
    Materialized,
    ProcessingFailed,
    Processor,
    Record,
    SerdeMissing,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyError,
    Window,
    Windowed,
    key_value_store,
    minutes,
    serdes,
    session_store,
    window_store,
)
from millstream.testing.topology import TopologyTestDriver


def test_word_count() -> None:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
    words.count(materialized="counts").to_stream().to("counts")
    driver = TopologyTestDriver(builder.build(), start=0)
    lines = driver.input_topic("lines", advance=10)
    counts = driver.output_topic("counts", value=serdes.LONG)
    lines.pipe_all([("1", "all streams lead"), ("2", "all kafka")])
    assert len(counts) == 5
    assert counts.read_table() == {"all": 2, "streams": 1, "lead": 1, "kafka": 1}
    assert counts.is_empty
    assert driver.store("counts").get("all") == 2
    assert dict(driver.store("counts").range("k", "l~")) == {"kafka": 1, "lead": 1}
    assert driver.stream_time == 10
    changelog = "test-application-counts-changelog"
    assert changelog in driver.produced_topics
    assert [record.key for record in driver.read_raw(changelog)][:2] == [b"all", b"streams"]


def test_windowed_keys_and_headers_are_read_back() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size(minutes(1))
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in").pipe("a", "x", 61_000, headers=[("trace", b"1")])
    key = serdes.time_windowed(serdes.STRING, minutes(1))
    (found,) = driver.output_topic("out", key=key, value=serdes.LONG).read_all()
    assert found.key == Windowed("a", Window(60_000, 120_000))
    assert str(found.key) == "[a@60000/120000]"
    assert (found.value, found.timestamp, found.headers) == (1, 61_000, (("trace", b"1"),))


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (serdes.STRING, "größe", "größe".encode()),
        (serdes.LONG, -2, b"\xff" * 7 + b"\xfe"),
        (serdes.INTEGER, 7, b"\x00\x00\x00\x07"),
        (serdes.SHORT, 7, b"\x00\x07"),
        (serdes.DOUBLE, 1.0, b"\x3f\xf0" + b"\x00" * 6),
        (serdes.FLOAT, 1.0, b"\x3f\x80\x00\x00"),
        (serdes.BYTES, b"\x00", b"\x00"),
        (serdes.BYTES, b"", b""),
        (serdes.BOOLEAN, True, b"\x01"),
        (serdes.JSON, {"a": [1, None]}, b'{"a":[1,null]}'),
        (serdes.list_of(serdes.STRING), ["a", None, ""], b"\1\0\0\0\3\0\0\0\1a\xff\xff\xff\xff\0\0\0\0"),
        (serdes.list_of(serdes.SHORT), [1, None, 2], b"\0\0\0\0\1\0\0\0\1\0\0\0\3\0\1\0\2"),
        (
            serdes.list_of(serdes.list_of(serdes.LONG)),
            [[], None],
            b"\1\0\0\0\2\0\0\0\x09" + b"\0" * 9 + b"\xff" * 4,
        ),
        (serdes.changes(serdes.STRING), ("a" * 70, "b"), b"\x8c\x01" + b"a" * 70 + b"b\x02"),
        (serdes.changes(serdes.STRING), (None, "b"), b"b\x00"),
        (
            serdes.session_windowed(serdes.STRING),
            Windowed("a", Window(1, 2)),
            b"a" + b"\0" * 7 + b"\2" + b"\0" * 7 + b"\1",
        ),
    ],
    ids=lambda given: getattr(given, "name", None),
)  # fmt: skip
def test_serdes(serde: serdes.Serde, value: Any, data: bytes) -> None:
    assert serde.write("topic", value) == data
    assert serde.read("topic", data) == value
    assert serde.reader("topic")(serde.writer("topic")(value)) == value
    assert serde.writer("topic")(None) is None
    assert serde.reader("topic")(None) is None


def test_lists_that_are_cut_off_or_of_another_serde() -> None:
    for data in (b"", b"\2", b"\1\0\0\0\2\0\0\0\1a", b"\0\0\0\0\0\0\0\0\0"):
        with pytest.raises(ValueError, match="list"):
            serdes.list_of(serdes.STRING).read("topic", data)
    with pytest.raises(ValueError, match="no value but None"):
        serdes.VOID.write("topic", "x")


def test_text_that_is_not_utf8_is_read_with_replacements() -> None:
    """As Kafka's StringDeserializer does."""
    assert serdes.STRING.read("topic", b"a\xffb\xe2\x82") == "a\ufffdb\ufffd"
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    driver = TopologyTestDriver(builder.build())
    driver.pipe_raw("in", b"\xfe", b"1\xff", 0)
    (found,) = driver.read_raw("out")
    assert (found.key, found.value) == ("\ufffd".encode(), "1\ufffd".encode())


@pytest.mark.parametrize("wrong", [3, "text", [1, 2]])
def test_bytes_are_bytes(wrong: Any) -> None:
    with pytest.raises(TypeError, match="bytes are needed, not"):
        serdes.BYTES.write("topic", wrong)
    assert (
        serdes.BYTES.write("topic", bytearray(b"a")) == serdes.BYTES.write("topic", memoryview(b"a")) == b"a"
    )


def _numbers(errors: Errors | None = None) -> TopologyTestDriver:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=serdes.LONG).map_values(lambda value: 10 // value)
    stream.to("out", value=serdes.LONG)
    return TopologyTestDriver(builder.build(), errors=errors)


def test_a_record_that_cannot_be_read_stops_the_application() -> None:
    with pytest.raises(ProcessingFailed, match="reading a record of in-0 at offset 0"):
        _numbers().pipe_raw("in", b"k", b"short", 0)


def test_a_record_whose_processing_fails_stops_the_application() -> None:
    with pytest.raises(ProcessingFailed, match="processing a record of in-0 at offset 0: ZeroDivisionError"):
        _numbers().input_topic("in", value=serdes.LONG).pipe("k", 0, 0)


def test_log_and_continue(caplog: pytest.LogCaptureFixture) -> None:
    driver = _numbers(Errors("continue", "continue"))
    driver.pipe_raw("in", b"k", b"short", 0)
    numbers = driver.input_topic("in", value=serdes.LONG)
    numbers.pipe("k", 0, 0)
    numbers.pipe("k", 5, 0)
    assert driver.output_topic("out", value=serdes.LONG).read_values() == [2]
    assert driver.dropped == 2
    assert "in-0 at offset 0: reading failed" in caplog.text
    assert "in-0 at offset 1: processing failed: ZeroDivisionError" in caplog.text


def test_dead_letters_are_the_records_and_tell_why() -> None:
    driver = _numbers(Errors("continue", "continue", dead_letters="dead"))
    driver.pipe_raw("in", b"k", b"short", 7, (("own", b"1"),))
    (letter,) = driver.read_raw("dead")
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"short", 7)
    assert letter.headers[0] == ("own", b"1")
    names = ("exception", "message", "stacktrace", "topic", "partition", "offset")
    assert [name for name, _ in letter.headers[1:]] == [f"__streams.errors.{name}" for name in names]
    headers = dict(letter.headers)
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.partition"] == headers["__streams.errors.offset"] == b"0"
    assert headers["__streams.errors.exception"] == b"struct.error"


def test_a_value_that_does_not_fit_its_serde_says_so() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(len).to("out")
    driver = TopologyTestDriver(builder.build())
    wanted = (
        r"processing a record of in-0 at offset 0: .*a record for out does not fit its serdes .*value int"
    )
    with pytest.raises(SerdeMissing, match=wanted):
        driver.input_topic("in").pipe("a", "abc", 0)


def test_print_and_for_each() -> None:
    shown, seen = io.StringIO(), []
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.print(label="in", to=shown)
    stream.for_each(lambda key, value: seen.append((key, value)))
    topic = TopologyTestDriver(builder.build()).input_topic("in")
    topic.pipe("a", "x", 0)
    topic.pipe("a", None, 0)
    assert shown.getvalue() == "[in]: a, x\n[in]: a, null\n"
    assert seen == [("a", "x"), ("a", None)]


def test_patterns_of_topics() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*")).to("all")
    topology = builder.build()
    assert "(topics: orders-.*)" in topology.describe()
    driver = TopologyTestDriver(topology)
    driver.input_topic("orders-de").pipe("a", "1", 0)
    driver.input_topic("orders-fr").pipe("b", "2", 0)
    assert driver.output_topic("all").read_values() == ["1", "2"]


def test_timestamps_from_the_value() -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamps=lambda _key, value, _timestamp: int(value)).to("out")
    driver = TopologyTestDriver(builder.build())
    topic = driver.input_topic("in")
    topic.pipe("a", "17", 1)
    topic.pipe("a", "-1", 2)
    assert [record.timestamp for record in driver.output_topic("out").read_all()] == [17]
    assert driver.dropped == 1


def test_json_aggregates_may_change_in_place() -> None:
    def add(_key: str, value: str, so_far: list[str]) -> list[str]:
        so_far.append(value)
        return so_far

    builder = StreamsBuilder()
    rows = (
        builder.stream("in").group_by_key().aggregate(list, add, materialized=Materialized(value=serdes.JSON))
    )
    rows.to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    topic = driver.input_topic("in")
    for value in "abc":
        topic.pipe("k", value, 0)
    found = driver.output_topic("out", value=serdes.JSON).read_values()
    assert found == [["a"], ["a", "b"], ["a", "b", "c"]]


def test_a_full_buffer_that_must_not_emit_early_stops() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size(1000)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.suppress(Suppressed.until_window_closes(Buffer.max_records(1).shut_down_when_full()))
    topic = TopologyTestDriver(builder.build()).input_topic("in")
    topic.pipe("a", "x", 0)
    with pytest.raises(BufferFull, match=r"in-0 at offset 1: .*2 rows of 1"):
        topic.pipe("b", "x", 0)


class Sessions(Processor):
    def init(self, context: Any) -> None:
        self.sessions = context.store("sessions")
        self.end = context.schedule(10, STREAM_TIME, self.tick)

    def tick(self, time: int) -> None:
        assert self.context.record_metadata is None
        self.context.forward(Record("tick", str(time), time))
        self.end()

    def process(self, record: Record) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        window = Window(record.timestamp, record.timestamp + 5)
        self.sessions.put(record.key, window, record.value)
        (found,) = self.sessions.find(record.key, record.timestamp, record.timestamp)
        assert found == (Windowed(record.key, window), record.value)
        self.context.forward(record.with_value(f"{metadata.topic}/{metadata.offset}"))


def test_processors_know_their_record_and_end_their_timers() -> None:
    builder = StreamsBuilder()
    builder.add_store(session_store("sessions", 1000))
    builder.stream("in").process(Sessions, stores=["sessions"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.input_topic("in")
        topic.pipe("a", "x", 5)
        topic.pipe("a", "x", 25)
        expected = [("a", "in/0"), ("tick", "5"), ("a", "in/1")]
        assert driver.output_topic("out").read_key_values() == expected


def test_process_values_keeps_the_key() -> None:
    class Wrong(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_key("other"))

    builder = StreamsBuilder()
    builder.stream("in").process_values(Wrong).to("out")
    with pytest.raises(StreamsError, match="must not change the key"):
        TopologyTestDriver(builder.build()).input_topic("in").pipe("a", "x", 0)


def test_a_processor_reaches_only_its_stores() -> None:
    class Curious(Processor):
        def init(self, context: Any) -> None:
            context.store("rows")

    builder = StreamsBuilder()
    builder.add_store(key_value_store("rows"))
    builder.stream("in").process(Curious).to("out")
    with pytest.raises(StreamsError, match="not connected to a store 'rows'"):
        TopologyTestDriver(builder.build())


def test_a_topology_by_hand() -> None:
    class Upper(Processor):
        def init(self, context: Any) -> None:
            self.rows = context.store("rows")

        def process(self, record: Record) -> None:
            self.rows.put(record.key, record.value)
            self.context.forward(record.with_value(record.value.upper()), child="sink")

    topology = Topology()
    topology.add_source("source", "in").add_processor("upper", Upper, "source")
    topology.add_store(key_value_store("rows"), "upper").add_sink("sink", "out", "upper")
    driver = TopologyTestDriver(topology)
    driver.input_topic("in").pipe("a", "x", 0)
    assert driver.output_topic("out").read_key_values() == [("a", "X")]
    assert driver.store("rows").get("a") == "x"


PATTERN = re.compile("a.*")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.stream("a").join(b.stream("b"), min), "needs windows"),
        (lambda b: b.stream("a").join(b.global_table("b"), min), "needs key="),
        (lambda b: b.stream("a").join(3, min), "cannot be joined with a int"),
        (lambda b: b.stream("a").outer_join(b.table("b"), min, JoinWindows.of(1)), "are for two streams"),
        (lambda b: b.table("a").suppress(Suppressed.until_window_closes()), "needs a windowed aggregation"),
        (lambda b: (b.table("a").to_stream().to("x"), b.stream("a").to("y")), "is read by"),
        (lambda b: (b.stream(["a", "b"]).to("x"), b.stream("a").to("y")), "not the same list"),
        (lambda b: b.stream("a").process(Processor, stores=["no"]), "no store no"),
        (lambda b: (b.stream("a").to("x", name="s"), b.stream("b").to("y", name="s")), "two nodes named s"),
        (lambda b: (b.build(), b.build()), "built its topology already"),
        (lambda b: b.stream([]).to("x"), "no topic to read"),
        (
            lambda b: (b.stream("a", reset="latest").to("x"), b.stream("a").to("y")),
            "begin at different offsets",
        ),
        (
            lambda b: (
                b.stream(PATTERN, reset="latest").to("x"),
                b.stream(PATTERN, reset="earliest").to("y"),
            ),
            "begin at different offsets",
        ),
        (lambda b: (b.stream("abc").to("x"), b.stream(PATTERN).to("y")), "fits topic abc"),
        (lambda b: (b.stream(PATTERN).to("x"), b.stream("abc").to("y")), "topic abc is read by"),
        (lambda b: b.stream("a").filter(max, name="not so"), "'not so' is no name"),
        (lambda b: b.stream("a").process(Processor, name=""), "'' is no name"),
        (lambda b: b.stream("a").map(min, name=".."), "'..' is no name"),
        (lambda b: b.table("a", name="a" * 243), "aaa-source' is no name"),
        (lambda b: b.stream("a").to_table(materialized="~foo bar~"), "is no name"),
        (lambda b: b.stream("a").repartition(partitions=0), "at least one partition"),
        (
            lambda b: (
                b.stream("a")
                .repartition(name="r", partitions=2)
                .join(b.stream("b").repartition(name="s", partitions=3), min, JoinWindows.of(1))
            ),
            "same number of partitions: r-repartition 2, s-repartition 3",
        ),
    ],
)
def test_wrong_topologies_say_what_is_wrong(build: Any, message: str) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=message):
        build(builder)
        builder.build()


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda t: t.add_source("more", []), "no topic to read"),
        (lambda t: t.add_processor("p", Processor), "p follows nothing"),
        (lambda t: t.add_sink("s", "out"), "s follows nothing"),
        (lambda t: t.add_sink("s", "out", "s"), "s is to follow s, which is not there"),
        (lambda t: t.add_processor("p", Processor, "in").connect("p"), "name the stores"),
        (lambda t: t.add_source("more", re.compile("topi.")), "fits topic topic"),
    ],
)
def test_wrong_topologies_by_hand_say_what_is_wrong(add: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        add(Topology().add_source("in", "topic"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimeWindows.of_size(0),
        lambda: TimeWindows.of_size(10).advance_by(11),
        lambda: SessionWindows.of(-1),
        lambda: JoinWindows.of(-1),
        lambda: JoinWindows.of(5).before(-6),
        lambda: TimeWindows.of_size(10).grace(-1),
        lambda: Suppressed.until_window_closes(Buffer.max_records(3)),
        lambda: Materialized(retention=5).retained(10),
        lambda: window_store("rows", 9, 10),
        lambda: window_store("rows", 0, -1),
        lambda: session_store("rows", -1),
    ],
)
def test_wrong_windows_are_refused(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_tasks_of_sub_topologies_run_alone() -> None:
    """What the runtime does: each sub-topology is a task of its own, the repartition topic between them."""
    from millstream.streams.task import StreamTask

    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda _, value: value).count().to_stream().to("out")
    topology = builder.build()
    written: list[Any] = []

    def collect(topic: str, *record: Any) -> None:
        written.append((topic, *record))

    first, second = (
        StreamTask(topology, "app", collect, partition=3, sub_topologies=[number], now=lambda: 0)
        for number in (0, 1)
    )
    first.deliver_batch("in", 3, [(0, b"a", b"x", 5, ()), (1, b"b", b"x", 6, ())])
    ((topic, *_), _) = written
    assert topic == "app-KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition"
    second.deliver_batch(topic, 3, [(0, b"x", b"x", 5, ()), (1, b"x", b"x", 6, ())])
    assert [value[-1] for where, _, value, *_ in written if where == "out"] == [1, 2]
    with pytest.raises(StreamsError, match="does not read topic"):
        first.deliver_batch(topic, 3, [])
