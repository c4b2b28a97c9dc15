"""Blocks of records give what the same records give one by one: outputs in order, changelogs, stores and what
was dropped.

The topologies and records are those of the vectors, which `test_vectors.py` compares with Kafka Streams one
by one.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from millstream.streams import (
    Errors,
    Expression,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    col,
    fields,
    lit,
)
from millstream.streams.columns import plan
from millstream.streams.columns.blocks import Read, Records, by_time
from millstream.streams.operators.aggregates import EMIT_EVERY
from millstream.streams.runtime.record_collector import RecordCollector
from millstream.streams.serdes import DOUBLE, JSON, LONG, STRING, Serde
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import StreamTask, in_memory
from millstream.testing.topology import TopologyTestDriver
from millstream.wire.records import iter_records
from tests.streams.test_vectors import VECTORS, _bytes
from tests.streams.topologies import BUILDS
from tests.support.effort import sample

Build = Callable[[StreamsBuilder], Any]


def _records(reads: list[Read]) -> Records:
    return Records(
        np.array([read[0] for read in reads], np.int64),
        pa.array([read[1] for read in reads], pa.binary()),
        pa.array([read[2] for read in reads], pa.binary()),
        np.array([read[3] for read in reads], np.int64),
        [read[4] for read in reads] if any(read[4] for read in reads) else None,
    )


class _Run:
    """A task, what it wrote by topic, and what went into changelogs."""

    def __init__(self, topology: Topology, open_store: Any = in_memory, errors: Errors | None = None) -> None:
        self.written: dict[str, list[Any]] = {}
        self.task = StreamTask(
            topology,
            "app",
            self._collect,
            open_store=open_store,
            now=lambda: 0,
            config={EMIT_EVERY: 0},
            errors=errors,
        )

    def _collect(self, topic: str, key: Any, value: Any, stamp: int, headers: Any, _partition: Any) -> None:
        self.written.setdefault(topic, []).append((key, value, stamp, headers))

    def logged(self) -> dict[str, Any]:
        return {
            name: {key: (value, stamp) for key, value, stamp in store.drain()}
            for name, store in self.task.stores.items()
        }


def _topology(build: Build) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def _same(
    topology: Topology,
    batches: Iterable[tuple[str, list[Read]]],
    columns: Any = in_memory,
    errors: Errors | None = None,
) -> int:
    """Compares both ways batch by batch, repartition topics included; gives how many batches went through
    columns."""
    one_by_one, in_columns = _Run(topology, errors=errors), _Run(topology, columns, errors)
    internal = [topology.internal_name(name, "app") for name in topology.internal]
    used = 0
    waiting = list(reversed(list(batches)))
    while waiting:
        topic, reads = waiting.pop()
        records = _records(reads)
        one_by_one.task.deliver_batch(topic, 0, reads)
        if in_columns.task._deliver_columns(topic, 0, records):
            used += 1
        else:
            in_columns.task.deliver_batch(topic, 0, list(records))
        assert in_columns.written == one_by_one.written
        assert in_columns.logged() == one_by_one.logged()
        assert in_columns.task.dropped == one_by_one.task.dropped
        assert in_columns.task.stream_time == one_by_one.task.stream_time
        for name in internal:
            rows = one_by_one.written.pop(name, [])
            in_columns.written.pop(name, None)
            if rows:
                waiting.append((name, [(offset, *row) for offset, row in enumerate(rows)]))
    return used


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_FEWEST", 1)


def _batches(name: str, chosen: random.Random) -> Iterator[tuple[str, list[Read]]]:
    """The records of a vector's runs, without headers, in batches of some size."""
    for steps in VECTORS[name]["runs"]:
        batch: list[Read] = []
        topic, size = "", 1
        for offset, step in enumerate(step for step in steps if len(step) > 2):
            if batch and (step[0] != topic or len(batch) >= size):
                yield topic, batch
                batch, size = [], chosen.randrange(1, 30)
            topic = step[0]
            batch.append((offset, _bytes(step[1]), _bytes(step[2]), step[3], ()))
        if batch:
            yield topic, batch


def _takes_columns(name: str) -> bool:
    topology = _topology(BUILDS[name])
    task = _Run(topology).task
    found = [plan.ColumnPlan.for_source(task, source) for source in task._sources_by_node]
    return any(way is not None for way in found)


IN_COLUMNS = [name for name in VECTORS if _takes_columns(name)]


def test_what_has_to_be_fast_takes_columns() -> None:
    fast = {"count", "tumbling_count", "hopping_count", "filter", "map_values", "table_lookup", "word_count"}
    fast |= {"reduce", "aggregate", "session_count", "stream_inner", "stream_left", "tumbling_reduce"}
    assert fast <= set(IN_COLUMNS)


@pytest.mark.parametrize("name", sample(IN_COLUMNS))
def test_blocks_give_what_records_give(name: str) -> None:
    used = _same(_topology(BUILDS[name]), _batches(name, random.Random(name)))
    # Headers that a processor adds go one by one, and so do records where there are stream-time timers.
    timers = any(step["op"] == "tick" for step in VECTORS[name].get("plan", {"steps": ()})["steps"])
    assert used or timers or name == "process_then_count"


@pytest.mark.parametrize(
    "name", ["count", "tumbling_count", "hopping_count", "table_lookup", "tumbling_no_grace"]
)
def test_blocks_give_what_records_give_with_stores_on_disk(name: str, tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, size=64 << 20, durable=False)

    def committed() -> Iterator[tuple[str, list[Read]]]:
        for number, batch in enumerate(_batches(name, random.Random(name))):
            if number % 3 == 2:
                folder.commit(b"%d" % number)
            yield batch

    assert _same(_topology(BUILDS[name]), committed(), folder.open)
    folder.close()


def _made_up(count: int, values: Callable[[int], bytes | None], seed: int = 1) -> list[Read]:
    """Records with some null keys and values, out of order and late."""
    chosen = random.Random(seed)
    reads: list[Read] = []
    for number in range(count):
        key = None if chosen.random() < 0.05 else b"key-%d" % chosen.randrange(20)
        value = None if chosen.random() < 0.05 else values(number)
        reads.append((number, key, value, max(0, number * 7 - chosen.randrange(300)), ()))
    return reads


def _in_batches(reads: list[Read], size: int = 40) -> list[tuple[str, list[Read]]]:
    return [("in", reads[first : first + size]) for first in range(0, len(reads), size)]


def test_windows_that_close_within_a_block() -> None:
    def build(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of_size(50).grace(30)
        builder.stream("in").group_by_key().windowed_by(windows).count().to_stream().to("out")

    topology = _topology(build)
    assert _same(topology, _in_batches(_made_up(2000, lambda _: b"x"), 300)) == 7


def test_what_follows_a_count_may_be_a_function() -> None:
    def build(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of_size(50).grace(30)
        counts = builder.stream("in").group_by_key().windowed_by(windows).count()
        stream = counts.to_stream(lambda windowed, _: windowed.key)
        stream.peek(lambda key, _: None).filter(lambda _, count: count % 2 == 0).to("out", value=LONG)

    assert _same(_topology(build), _in_batches(_made_up(500, lambda _: b"x"))) == 13


def test_a_block_with_headers_goes_one_by_one() -> None:
    reads: list[Read] = [(*read[:4], (("trace", b"1"),)) for read in _made_up(50, lambda _: b"x")]
    assert _same(_topology(BUILDS["count"]), _in_batches(reads)) == 0


@pytest.mark.parametrize("stage", ["reading", "processing"])
def test_errors_are_dealt_with_one_by_one(stage: str) -> None:
    """A block with a record that fails gives the same dead letters and goes on; or stops at the same
    record."""

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", value=JSON).map_values(
            lambda value: None if value is None else 1 // (len(value) - 1)
        )
        stream.group_by_key(value=JSON).count().to_stream().to("out")

    def values(number: int) -> bytes:
        bad = b"{" if stage == "reading" else b'"x"'
        return bad if number % 97 == 50 else b'"xyz"'

    reads = _made_up(400, values)
    going_on = Errors(**{stage: "continue"}, dead_letters="bad")
    assert 0 < _same(_topology(build), _in_batches(reads), errors=going_on) < 10
    run = _Run(_topology(build))
    with pytest.raises(StreamsError, match="in-0 at offset 50"):
        run.task.deliver_batch("in", 0, _records(reads))


def test_text_that_is_not_utf8_is_replaced_in_blocks_too() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        stream.filter(col("value").contains("\ufffd")).map_values(col("value") + "!").to("bad")
        stream.to("all")
        stream.group_by_key().count(materialized="counts").to_stream().to("counts")

    reads = _made_up(300, lambda number: b"a\xffb" if number % 3 else b"ab")
    reads = [(offset, b"\xfe" if key == b"key-3" else key, *rest) for offset, key, *rest in reads]
    assert _same(_topology(build), _in_batches(reads)) == 8


def test_topics_are_merged_by_time() -> None:
    chosen = random.Random(3)
    topics: dict[str, list[Read]] = {
        name: [
            (offset, b"%s-%d" % (name.encode(), offset), b"", chosen.randrange(60), ())
            for offset in range(chosen.randrange(1, 80))
        ]
        for name in ("a", "b", "c")
    }
    expected = list(
        heapq.merge(
            *[[(name, read) for read in reads] for name, reads in topics.items()], key=lambda e: e[1][3]
        )
    )
    halves = {name: [_records(reads[:5]), _records(reads[5:])] for name, reads in topics.items() if reads[5:]}
    whole = {name: [_records(reads)] for name, reads in topics.items()}
    for parts in (whole, whole | halves):
        assert [(name, read) for name, records in by_time(parts) for read in records] == expected


def test_columns_are_written_as_records_are() -> None:
    rows = [(read[1], read[2], read[3]) for read in _made_up(200, lambda number: b"v" * (number % 50))]
    one_by_one, in_columns = RecordCollector(), RecordCollector()
    for first in range(0, len(rows), 50):
        part = rows[first : first + 50]
        for key, value, stamp in part:
            one_by_one.send("out", key, value, stamp, (), None)
        if first == 100:
            for key, value, stamp in part:
                in_columns.send("out", key, value, stamp, (), None)
            continue
        # As a slice of something longer: its bytes do not begin at 0.
        keys, values = (pa.array([b"before", *(row[at] for row in part)], pa.binary()) for at in (0, 1))
        stamps = np.array([row[2] for row in part], np.int64)
        in_columns.send_columns("out", keys.slice(1), values.slice(1), stamps)
    assert len(in_columns) == len(one_by_one) == len(rows)

    def read(collector: RecordCollector) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for (_, number), batch in collector.batches(lambda _topic: 3, 1, False):
            for record in iter_records(bytes(batch), check_crc=False):
                found.setdefault(number, []).append((record.key, record.value, record.timestamp))
        return found

    assert read(in_columns) == read(one_by_one)


# Expressions ------------------------------------------------------------------------------------------------

TEXTS: dict[str, Expression] = {
    "equal": col("value") == "value 3",
    "not equal": col("value") != "value 3",
    "order": (col("value") >= "value 3") & (col("value") < "value 7"),
    "either": (col("value") == "value 3") | (col("key") == "key-1"),
    "not": ~(col("value") == "value 3"),
    "null": col("value").is_null() | ~col("key").is_null(),
    "in": col("value").is_in(["value 1", "value 2"]),
    "starts": col("key").starts_with("key-1"),
    "ends": col("value").ends_with("3"),
    "contains": col("value").contains("ue 4"),
    "part": col("value")[6:7] == "5",
    "upper": col("value").upper() == "VALUE 3",
    "length": col("value").length() > 7,
    "both": col("key") == col("value"),
    "never a number": col("value") == 3,
    "truth in front": True & (col("value") == "value 3") | (False | (col("key") == "key-1")),
    "joined": col("key") + "/" + col("value") == "key-3/value 3",
}


@pytest.mark.parametrize("name", TEXTS)
def test_filters_of_texts(name: str) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        stream.filter(TEXTS[name]).to("passed")
        stream.filter_not(TEXTS[name]).to("failed")

    reads = _made_up(300, lambda number: f"value {number % 13}{'é' if number % 3 else ''}".encode())
    assert _same(_topology(build), _in_batches(reads)) == 8


NUMBERS: dict[str, tuple[Expression, Serde]] = {
    "plus": (col("value") + 1, LONG),
    "minus, times": ((col("value") - 7) * col("value"), LONG),
    "divided": (col("value") / 4, DOUBLE),
    "mixed": (col("value") * 0.5, DOUBLE),
    "same": (lit(5), LONG),
    "the other way round": (10 * (1000 - col("value")) + 1, LONG),
    "plus, the other way round": (1 + -col("value"), LONG),
    "over": (4 / (col("value") + 1), DOUBLE),
    "text in front": ("x" + col("key"), STRING),
    "text": (col("key").lower() + "!", STRING),
    "an object": (fields(key=col("key"), twice=col("value") * 2, fixed="x"), JSON),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_new_values_of_numbers(name: str) -> None:
    expression, serde = NUMBERS[name]

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", value=LONG).filter(~col("value").is_null() & ~col("key").is_null())
        stream.map_values(expression).to("out", value=serde)

    reads = _made_up(300, lambda number: (number * 1000).to_bytes(8, "big"))
    assert _same(_topology(build), _in_batches(reads)) == 8


def test_numbers_that_are_too_large_for_columns_are_not_lost() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", value=LONG).filter(~col("value").is_null())
        stream.map_values(col("value") * 4).map_values(str).to("out")

    reads = _made_up(100, lambda number: ((1 << 62) + number).to_bytes(8, "big"))
    assert _same(_topology(build), _in_batches(reads)) == 0


INSIDE: dict[str, Expression] = {
    "a field": col("value.status") == "CRITICAL",
    "a number": col("value.amount") > 50,
    "of several kinds": col("value.odd") == 1,
    "deeper": col("value.items[0].price") * 2 >= 10,
    "from the end": col("value.items[-1].price") == 4,
    "quoted": ~col('value["odd name"]').is_null(),
    "two": (col("value.status") != "OK") & (col("value.amount") <= 30),
    "in": col("value.amount").is_in([1, 2, 3, None]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_filters_of_what_is_inside(name: str) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", value=JSON)
        stream.filter(INSIDE[name]).map_values(fields(amount=col("value.amount"), by=col("key"))).to(
            "out", value=JSON
        )

    def value(number: int) -> bytes:
        found: dict[str, Any] = {"status": ("OK", "CRITICAL")[number % 2], "amount": number % 100}
        found["odd"] = ("1", 1, 1.0, True, None, [1])[number % 6]
        found["items"] = [{"price": price} for price in range(number % 7)]
        if number % 5 == 0:
            found = {"odd name": 1}
        return orjson.dumps(found)

    assert _same(_topology(build), _in_batches(_made_up(300, value))) == 8


def test_an_expression_can_be_a_key() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", value=JSON)
        stream.group_by(col("value.region")).count().to_stream().to("out", value=LONG)

    def value(number: int) -> bytes:
        return orjson.dumps({"region": f"r{number % 3}"} if number % 10 else {})

    assert _same(_topology(build), _in_batches(_made_up(300, value))) == 16


def test_expressions_in_the_test_driver() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=JSON).filter(col("value.total") > 100)
    orders.map_values(fields(id=col("key"), vat=col("value.total") * 0.2)).to("large", value=JSON)
    driver = TopologyTestDriver(builder.build())
    given = driver.input_topic("orders", value=JSON)
    given.pipe_all([("a", {"total": 50}), ("b", {"total": 200}), ("c", {}), ("d", None)])
    assert driver.output_topic("large", value=JSON).read_key_values() == [("b", {"id": "b", "vat": 40.0})]


def test_expressions_are_checked_when_they_are_written() -> None:
    for wrong in ("", "values", "topic", "value.", "value..a", "value[a]", "key-1"):
        with pytest.raises(ValueError, match="a column is"):
            col(wrong)
    with pytest.raises(TypeError, match="use &"):
        bool((col("key") == "a") and (col("value") == "b"))
    with pytest.raises(ValueError, match="from its beginning"):
        col("value")[-1:]


def test_operators_with_the_expression_behind() -> None:
    """The same as in front: for one record and for a column, None included."""
    value = col("value")
    cases: list[tuple[Expression, Any, Any]] = [
        (10 * value, 3, 30),
        (1 - value, 3, -2),
        (6 / value, 4, 1.5),
        (1 + value, 3, 4),
        (-value, 3, -3),
        ("x" + value, "y", "xy"),
        (True & value, False, False),
        (True | value, None, True),
        (False & value, None, False),
    ]
    for expression, given, wanted in cases:
        assert expression("k", given) == wanted
        assert expression.column(lambda: ["k"], lambda given=given: [given]) == [wanted]  # type: ignore[misc]
    for expression, *_ in cases[:6]:
        assert expression("k", None) is None
        assert expression.column(lambda: ["k"], lambda: [None]) == [None]
    with pytest.raises(TypeError):
        ("x" + value)("k", 3)


def test_an_expression_travels_to_another_process() -> None:
    expression: Any = (col("value.a") > 1) & col("key").starts_with("k")
    pickle: Any = cloudpickle
    again = pickle.loads(pickle.dumps(expression))
    assert again("key", {"a": 2}) is True
    assert again("key", {"a": 1}) is False
    assert again("key", {}) is None
