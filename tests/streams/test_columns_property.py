"""Blocks of records give what the same records give one by one, whatever the topology and however hostile the
records.

Random chains of the operators that take blocks, on random serdes, get random records: null keys and values,
bytes that no serde reads, headers, timestamps before 1970 and far ahead, late ones. Both ways run on twin
tasks, and after every batch these must be the same: record batches sent (by partition, in order), changelogs,
stores, stream time, dropped records, dead letters, the clocks that go with the offsets, and the error, where
one stops the task.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from millstream.streams import (
    Errors,
    JoinWindows,
    KStream,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    TopologyError,
    col,
    fields,
    lit,
    serdes,
)
from millstream.streams.columns import plan
from millstream.streams.columns.blocks import Read, Records
from millstream.streams.runtime.record_collector import RecordCollector
from millstream.streams.serdes import Serde
from millstream.streams.stores.lmdb import StoreFolder
from millstream.streams.task import StreamTask, in_memory
from millstream.wire.records import iter_records
from tests.support.effort import examples

PARTITIONS = 3
SERDES = (serdes.STRING, serdes.LONG, serdes.INTEGER, serdes.DOUBLE, serdes.BYTES, serdes.JSON)

# Topologies -------------------------------------------------------------------------------------------------

# Functions and expressions by what they are meant for; one that meets something else raises, which is half of
# the fun.
TEXT, NUMBER, OBJECT = "text", "number", "object"
PREDICATES: dict[str, list[Callable[..., Any]]] = {
    TEXT: [
        col("value") == "b",
        ~col("key").is_null() & (col("value") != "a"),
        (col("value") < "b") | (col("value") >= "k1"),
        col("value").contains("a"),
        col("value").is_in(["a", "k2", None]),
        lambda key, value: len(value) > 1,
    ],
    NUMBER: [
        col("value") > 3,
        (col("value") != 3) & ~(col("value") == 1),
        col("value").is_in([1, 3, None]),
        lambda key, value: value % 2,
    ],
    OBJECT: [
        col("value.amount") > 2,
        col("value.tags[0]") == "x",
        ~(col("value.region") == "eu"),
        lambda key, value: value["amount"] < 4,
    ],
}
VALUE_MAPPERS: dict[str, list[Callable[..., Any]]] = {
    TEXT: [
        col("value").upper(),
        col("value")[:1],
        col("value") + "!",
        col("key"),
        lambda value: None if value == "a" else value,
        lambda key, value: f"{key}/{value}",
    ],
    NUMBER: [
        col("value") + 1,
        col("value") * 2 - 1,
        -col("value"),
        lit(7),
        lambda value: None if value == 1 else value,
        lambda value: 12 // value,
    ],
    OBJECT: [
        col("value.amount"),
        fields(key=col("key"), amount=col("value.amount") + 1, fixed="x"),
        lambda value: {**value, "more": 1},
        lambda value: None if value["amount"] == 1 else value,
    ],
}
KEY_SELECTORS: dict[str, list[Callable[..., Any]]] = {
    TEXT: [col("value"), lit("one"), lambda key, value: None if value == "a" else value[:1]],
    NUMBER: [col("value"), col("key"), lambda key, value: key],
    OBJECT: [col("value.region"), lambda key, value: value.get("region"), col("key")],
}
FLAT_VALUE_MAPPERS: dict[str, list[Callable[..., Any]]] = {
    TEXT: [lambda value: list(value), lambda key, value: [key, value]],
    NUMBER: [lambda value: range(int(value) % 4), lambda key, value: [value] * 2],
    OBJECT: [col("value.tags"), lambda value: [value, value]],
}
FLAT_MAPPERS: list[Callable[..., Any]] = [
    lambda key, value: [(key, value)] * (len(str(value)) % 3),
    lambda key, value: [] if value is None else [(key, value), (key, None)],
]
MAPPERS: list[Callable[..., Any]] = [
    lambda key, value: (key, value),
    lambda key, value: (value, key),
    lambda key, value: (None, value) if value is None else (key, value),
]
WINDOWS = (
    TimeWindows.of_size(50),
    TimeWindows.of_size(50).grace(40),
    TimeWindows.of_size(60).advance_by(20).grace(30),
    TimeWindows.of_size(50).advance_by(30),
)

SESSIONS = (SessionWindows.of(0), SessionWindows.of(15).grace(20), SessionWindows.of(40))
JOIN_WINDOWS = (
    JoinWindows.of(20).grace(15),
    JoinWindows.of(0),
    JoinWindows.of(10).before(30).after(5),
    JoinWindows.of(50).before(-10).grace(100),
)
REDUCERS: list[Callable[..., Any]] = [
    lambda before, value: before + value,
    lambda before, value: None if value == before else value,
    lambda before, value: min(before, value),
]
AGGREGATORS: list[Callable[..., Any]] = [
    lambda key, value, text: f"{text}{value}"[-20:],
    lambda key, value, text: None if len(text) > 8 else f"{text}+{key}",
    lambda key, value, text: text + value,
]


def _paired(left: Any, right: Any) -> list[Any]:
    """Raises now and then, and changes what it is given, as joiners may."""
    for side in (left, right):
        if isinstance(side, dict):
            side["met"] = side.get("met", 0) + 1
    return [str(left), str(right), 12 // (len(str(left)) % 7)]


def _collected(_key: Any, value: Any, found: list[Any]) -> Any:
    """Changes what it is given, as aggregators may."""
    found.append(str(value))
    return None if len(found) > 4 else found


Step = tuple[str, int]
STEPS = st.tuples(
    st.sampled_from(
        (
            "filter",
            "filter_not",
            "map_values",
            "select_key",
            "map",
            "flat_map",
            "flat_map_values",
            "repartition",
        )
    ),
    st.integers(0, 30),
)
ENDS = st.tuples(
    st.sampled_from(
        (
            "sink",
            "sink",
            "count",
            "window",
            "window",
            "table",
            "join",
            "join",
            "left_join",
            "count_then_function",
            "reduce",
            "aggregate",
            "aggregate_objects",
            "window_reduce",
            "sessions",
            "sessions",
            "stream_join",
            "stream_join",
        )
    ),
    st.integers(0, 20),
)
PLANS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(SERDES),
        "value": st.sampled_from(SERDES),
        "steps": st.lists(STEPS, max_size=3),
        "branches": st.lists(st.tuples(st.integers(0, 20), STEPS), max_size=2),
        "ends": st.lists(ENDS, min_size=1, max_size=3),
        "odd_output": st.integers(0, 9).map(lambda number: number == 0),
    }
)


def _pick(choices: Any, number: int) -> Any:
    return choices[number % len(choices)]


def _family(value: Serde, number: int) -> str:
    """What a value of that serde is; now and then something else."""
    if number % 11 == 10:
        return (TEXT, NUMBER, OBJECT)[number % 3]
    if value is serdes.JSON:
        return OBJECT
    return NUMBER if value in (serdes.LONG, serdes.INTEGER, serdes.DOUBLE) else TEXT


def _step(stream: KStream[Any, Any], step: Step, key: Serde, value: Serde) -> KStream[Any, Any]:
    kind, number = step
    family = _family(value, number)
    if kind == "repartition":
        return stream.repartition(key=key, value=value)
    choices: dict[str, Any] = {
        "filter": PREDICATES[family],
        "filter_not": PREDICATES[family],
        "map_values": VALUE_MAPPERS[family],
        "select_key": KEY_SELECTORS[family],
        "flat_map_values": FLAT_VALUE_MAPPERS[family],
        "flat_map": FLAT_MAPPERS,
        "map": MAPPERS,
    }
    changed: KStream[Any, Any] = getattr(stream, kind)(_pick(choices[kind], number))
    return changed


def _end(builder: StreamsBuilder, stream: Any, end: Step, name: str, drawn: dict[str, Any]) -> None:
    """What a stream ends in: a topic, or a state and then a topic."""
    kind, number = end
    key, value = drawn["key"], drawn["value"]
    out = serdes.LONG if drawn["odd_output"] else value
    if kind == "count":
        stream.group_by_key(key=key, value=value).count().to_stream().to(name, key=key)
    elif kind == "count_then_function":
        counts = stream.group_by_key(key=key, value=value).count().to_stream()
        counts.filter(lambda _key, count: 12 // (count % 7) > 2).to(name, key=key)
    elif kind == "window":
        grouped = stream.group_by_key(key=key, value=value)
        grouped.windowed_by(_pick(WINDOWS, number)).count().to_stream().to(name)
    elif kind == "reduce":
        grouped = stream.group_by_key(key=key, value=value)
        grouped.reduce(_pick(REDUCERS, number)).to_stream().to(name, key=key, value=out)
    elif kind == "aggregate":
        grouped = stream.group_by_key(key=key, value=value)
        kept = Materialized(f"{name}-texts", key=key, value=serdes.STRING)
        texts = grouped.aggregate(str, _pick(AGGREGATORS, number), materialized=kept).to_stream()
        texts.to(name, key=key, value=serdes.STRING)
    elif kind == "aggregate_objects":
        grouped = stream.group_by_key(key=key, value=value)
        kept = Materialized(f"{name}-lists", key=key, value=serdes.JSON)
        grouped.aggregate(list, _collected, materialized=kept).to_stream().to(
            name, key=key, value=serdes.JSON
        )
    elif kind == "window_reduce":
        windows = stream.group_by_key(key=key, value=value).windowed_by(_pick(WINDOWS, number))
        windows.reduce(_pick(REDUCERS, number)).to_stream().to(name, value=out)
    elif kind == "sessions":
        sessions = stream.group_by_key(key=key, value=value).windowed_by(_pick(SESSIONS, number))
        if number % 3:
            sessions.count().to_stream().to(name)
        else:
            kept = Materialized(f"{name}-lists", key=key, value=serdes.JSON)
            lists = sessions.aggregate(
                list, _collected, lambda _key, one, more: one + more, materialized=kept
            )
            lists.to_stream().to(name, value=serdes.JSON)
    elif kind == "stream_join":
        other = builder.stream(f"{name}-other", key=key, value=value)
        serdes_of = {"key_serde": key, "value_serde": value, "other_serde": value}
        windows = _pick(JOIN_WINDOWS, number)
        kind = _pick(("join", "left_join", "outer_join"), number)
        joined = getattr(stream, kind)(
            other,
            lambda left, right: [str(left), str(right), 12 // (len(str(left)) % 7)],
            windows,
            **serdes_of,
        )
        joined.to(name, key=key, value=serdes.JSON)
    elif kind == "table":
        table = stream.to_table(materialized=f"{name}-rows" if number % 2 else None)
        table.to_stream().to(name, key=key, value=out)
    elif kind in ("join", "left_join"):
        table = builder.table(f"{name}-table", key=key, value=serdes.JSON)
        joined = getattr(stream, kind)(
            table, lambda left, right: [str(left), right], key_serde=key, value_serde=value
        )
        joined.to(name, key=key, value=serdes.JSON)
    else:
        stream.to(name, key=key, value=out)


def _topology(drawn: dict[str, Any]) -> Topology | None:
    key, value = drawn["key"], drawn["value"]
    builder = StreamsBuilder(key=key, value=value)
    stream: Any = builder.stream("in", key=key, value=value)
    for step in drawn["steps"]:
        stream = _step(stream, step, key, value)
    streams = [stream]
    if drawn["branches"]:
        split = stream.split(name="to-")
        for number, (predicate, _) in enumerate(drawn["branches"]):
            split = split.branch(_pick(PREDICATES[_family(value, predicate)], predicate), name=str(number))
        branches = split.default_branch(name="rest")
        streams = [
            _step(branches[f"to-{number}"], step, key, value)
            for number, (_, step) in enumerate(drawn["branches"])
        ]
        streams.append(branches["to-rest"])
    for number, end in enumerate(drawn["ends"]):
        _end(builder, streams[number % len(streams)], end, f"out-{number}", drawn)
    try:
        return builder.build()
    except TopologyError:
        return None


# Records ----------------------------------------------------------------------------------------------------

HOSTILE = st.sampled_from(
    [
        b"",
        b"\xff\xfe",
        b"a\xffb",
        b"\x00" * 7,
        b"\x7f" + b"\xff" * 7,
        b"\x80" + b"\x00" * 7,
        b"\x7f\xf8" + b"\x00" * 6,
        b"{",
        b"[1, 2",
        b'"\\ud800"',
        b"NaN",
        b"1e999",
        b"123456789012345678901234567890",
        b"\xc3\xa9",
        b" 1 ",
        b"null",
        b"true",
        b'{"amount": "text", "tags": {}}',
        b'{"amount": 9007199254740993, "tags": ["x"], "region": "eu"}',
        b'{"region": null, "tags": []}',
    ]
)


def _valid(serde: Serde) -> st.SearchStrategy[bytes]:
    made: st.SearchStrategy[Any]
    if serde is serdes.JSON:
        made = st.fixed_dictionaries(
            {"amount": st.integers(0, 5), "region": st.sampled_from(["eu", "us"])},
            optional={"tags": st.lists(st.sampled_from(["x", "y"]), max_size=2)},
        )
        return made.map(orjson.dumps)
    if serde in (serdes.LONG, serdes.INTEGER):
        made = st.one_of(st.integers(-3, 6), st.sampled_from([2**31 - 1, -(2**31)]))
    elif serde is serdes.DOUBLE:
        made = st.sampled_from([0.0, -0.0, 1.0, 3.5, float("inf"), 1e300])
    else:
        made = st.sampled_from(["a", "b", "k1", "k2", "é", "AB"])
        return made.map(str.encode)
    return made.map(lambda value: serde.write("", value) or b"")


def _cells(serde: Serde, hostile: bool) -> st.SearchStrategy[bytes | None]:
    valid: list[st.SearchStrategy[Any]] = [_valid(serde)] * 8
    return st.one_of(*valid, st.none(), HOSTILE) if hostile else st.one_of(*valid, st.none())


@st.composite
def _batches(draw: Any, key: Serde, value: Serde, topics: list[str]) -> list[tuple[str, list[Read]]]:
    found: list[tuple[str, list[Read]]] = []
    offset = 0
    for _ in range(draw(st.integers(1, 4))):
        topic = draw(st.sampled_from(topics))
        hostile = draw(st.integers(0, 3)) == 0
        value_serde = serdes.JSON if topic.endswith("-table") else value
        # Multiples of ten, so that windows close at the very time of a record.
        stamps = st.integers(0, 30).map(lambda number: 10 * number)
        if hostile:
            stamps = st.one_of(stamps, st.integers(0, 400), st.just(9_000_000_000_000))
        rows = draw(
            st.lists(
                st.tuples(_cells(key, hostile), _cells(value_serde, hostile), stamps), min_size=1, max_size=25
            )
        )
        bad_stamp = hostile and draw(st.integers(0, 9)) == 0
        with_headers = hostile and draw(st.integers(0, 4)) == 0
        reads: list[Read] = []
        for key_bytes, value_bytes, stamp in rows:
            headers = (("trace", b"1"), ("none", None)) if with_headers and offset % 3 == 0 else ()
            reads.append(
                (offset, key_bytes, value_bytes, -5 if bad_stamp and offset % 5 == 0 else stamp, headers)
            )
            offset += 1
        found.append((topic, reads))
    return found


def _records(reads: list[Read]) -> Records:
    return Records(
        np.array([read[0] for read in reads], np.int64),
        pa.array([read[1] for read in reads], pa.binary()),
        pa.array([read[2] for read in reads], pa.binary()),
        np.array([read[3] for read in reads], np.int64),
        [read[4] for read in reads] if any(read[4] for read in reads) else None,
    )


# Both ways --------------------------------------------------------------------------------------------------


class Run:
    """A task, and everything that can be seen of it."""

    def __init__(self, topology: Topology, errors: Errors, open_store: Any, in_columns: bool) -> None:
        self.collector = RecordCollector()
        self.task = StreamTask(
            topology,
            "app",
            self.collector.send,
            open_store=open_store,
            now=lambda: 0,
            errors=errors,
            partitions_of=lambda _topic: PARTITIONS,
            collect_columns=self.collector.send_columns if in_columns else None,
        )
        self._in_columns = in_columns
        self.blocks = 0

    def deliver(self, topic: str, reads: list[Read]) -> str | None:
        """What stopped the task, if anything did."""
        try:
            if self._in_columns:
                records = _records(reads)
                if self.task._deliver_columns(topic, 0, records):
                    self.blocks += 1
                else:
                    self.task.deliver_batch(topic, 0, list(records))
            else:
                self.task.deliver_batch(topic, 0, reads)
        except StreamsError as error:
            return f"{type(error).__name__}: {error}"
        return None

    def sent(self) -> dict[tuple[str, int], list[Any]]:
        """Records by partition. Of a dead letter's headers, not the stack: that tells which way it came."""
        found: dict[tuple[str, int], list[Any]] = {}
        for topic_partition, batch in self.collector.batches(lambda _topic: PARTITIONS, 1, False):
            for record in iter_records(bytes(batch), check_crc=False):
                headers = [header for header in record.headers if not header[0].endswith("stacktrace")]
                found.setdefault(topic_partition, []).append(
                    (record.key, record.value, record.timestamp, headers)
                )
        self.collector.clear()
        return found

    def state(self) -> dict[str, Any]:
        stores, changelogs = {}, {}
        for name, store in self.task.stores.items():
            changelogs[name] = {key: (value, stamp) for key, value, stamp in store.drain()}
            if store.spec.type == "window":
                stores[name] = store.fetch_all(0, 1 << 60)
            elif store.spec.type == "outer-join":
                stores[name] = list(store.waiting())
            elif store.spec.type == "session":
                stores[name] = store.find_all(max(0, store._oldest), 1 << 60)
            else:
                stores[name] = list(store.range(None, None))
        return {
            "stores": stores,
            "changelogs": changelogs,
            "stream time": self.task.stream_time,
            "dropped": self.task.dropped,
            "times": self.task.times,
        }


def compare(
    topology: Topology, batches: list[tuple[str, list[Read]]], errors: Errors, open_store: Any
) -> int:
    """Both ways, batch after batch, repartition topics included; gives how many went through columns."""
    one_by_one = Run(topology, errors, in_memory, in_columns=False)
    in_columns = Run(topology, errors, open_store, in_columns=True)
    internal = {topology.internal_name(name, "app") for name in topology.internal}
    waiting = list(reversed(batches))
    while waiting:
        topic, reads = waiting.pop()
        stopped = one_by_one.deliver(topic, reads)
        assert in_columns.deliver(topic, reads) == stopped
        if stopped is not None:
            break  # the transaction is aborted, and the task is given up
        sent = one_by_one.sent()
        assert in_columns.sent() == sent
        assert repr(in_columns.state()) == repr(one_by_one.state())
        for (name, _), rows in sent.items():
            if name in internal:
                waiting.append((name, [(offset, *row[:3], tuple(row[3])) for offset, row in enumerate(rows)]))
    return in_columns.blocks


@pytest.fixture(autouse=True, scope="module")
def blocks_of_any_size() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_FEWEST", 1)
        yield


ERRORS = st.builds(
    Errors,
    reading=st.sampled_from(("continue", "continue", "fail")),
    processing=st.sampled_from(("continue", "continue", "fail")),
    dead_letters=st.sampled_from((None, "dead-letters")),
)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


def _check(data: st.DataObject, open_store: Any) -> tuple[int, int]:
    """How many batches were given, and how many went through columns."""
    drawn = data.draw(PLANS)
    topology = _topology(drawn)
    if topology is None:
        return 0, 0
    topics = [topic for node in topology.nodes.values() if node.type == "source" for topic in node.topics]
    own = [topic for topic in topics if topic not in topology.internal]
    batches = data.draw(_batches(drawn["key"], drawn["value"], [*own, "in", "in"]))
    return len(batches), compare(topology, batches, data.draw(ERRORS), open_store)


def test_blocks_give_what_records_give() -> None:
    given_batches = in_columns = 0

    @settings(max_examples=examples(200), phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal given_batches, in_columns
        batches, blocks = _check(data, in_memory)
        given_batches += batches
        in_columns += blocks

    check()
    # Or one way would have been compared with itself.
    assert in_columns > given_batches * 0.1, (in_columns, given_batches)


@settings(max_examples=examples(15), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_blocks_give_what_records_give_with_stores_on_disk(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = StoreFolder(Path(path), size=16 << 20, durable=False)
        try:
            _check(data, folder.open)
        finally:
            folder.close()
