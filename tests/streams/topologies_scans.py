"""The topologies of the vectors: stores read in every order, transformers, global stores, partitioners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.streams import (
    Materialized,
    Processor,
    Record,
    StreamsBuilder,
    ValueTransformer,
    Window,
    key_value_store,
    session_store,
    window_store,
)
from millstream.streams.serdes import LONG, STRING, list_of
from tests.streams.kit import both, even, out, text, topology
from tests.streams.topologies_tables import last


def rows(found: Iterable[tuple[Any, Any]]) -> str:
    return "".join(f"{key}={text(value)} " for key, value in found)


def windows(found: Iterable[tuple[Any, Any]]) -> str:
    return "".join(f"{k.key}@{k.window.start}/{k.window.end}={text(value)} " for k, value in found)


class Sending(Processor):
    def send(self, record: Record, key: str, value: Any) -> None:
        self.context.forward(record.with_key(key).with_value(value))


class Rows(Sending):
    def process(self, record: Record) -> None:
        store = self.context.store("rows")
        if record.key is None:
            return
        store.put(record.key, record.value)
        self.send(record, "range", rows(store.range("ab", "b")))
        self.send(record, "open", rows(store.range(None, record.key)))
        self.send(record, "reverse range", rows(store.reverse_range("ab", "b")))
        self.send(record, "reverse all", rows(store.reverse_all()))
        self.send(record, "prefix", rows(store.prefix_scan(record.key, STRING)))


class Times(Sending):
    def process(self, record: Record) -> None:
        store, t = self.context.store("windows"), record.timestamp
        if record.key is None:
            return
        store.put(record.key, record.value, t)
        self.send(record, "backward", rows(store.backward_fetch(record.key, t - 100, t + 20)))
        self.send(record, "keys", windows(store.fetch_range("ab", "b", t - 100, t + 100)))
        self.send(record, "open keys", windows(store.fetch_range(None, "ab", t - 100, t + 100)))
        self.send(record, "backward keys", windows(store.backward_fetch_range("a", "ab", t - 100, t + 100)))
        self.send(record, "all at", windows(store.fetch_all(t - 50, t)))
        self.send(record, "backward all at", windows(store.backward_fetch_all(t - 50, t)))
        self.send(record, "all", windows(store.all()))
        self.send(record, "backward all", windows(store.backward_all()))


class Sessions(Sending):
    def process(self, record: Record) -> None:
        store, t = self.context.store("sessions"), record.timestamp
        if record.key is None:
            return
        start = max(0, t - (5 if record.value is None else len(record.value)))
        store.put(record.key, Window(start, t), record.value)
        self.send(record, "fetch", windows(store.fetch(record.key)))
        self.send(record, "backward fetch", windows(store.backward_fetch(record.key)))
        self.send(record, "keys", windows(store.fetch_range("ab", "b")))
        self.send(record, "backward keys", windows(store.backward_fetch_range("a", "ab")))
        self.send(record, "find", windows(store.find(record.key, t - 60, t)))
        self.send(record, "backward find", windows(store.backward_find(record.key, t - 60, t)))
        self.send(record, "find keys", windows(store.find_range("a", "ab", t - 60, t)))
        self.send(record, "backward find keys", windows(store.backward_find_range("a", "ab", t - 60, t)))
        self.send(record, "one", store.fetch_session(record.key, start, t))


@topology
def scan_rows(builder: StreamsBuilder) -> None:
    builder.add_store(key_value_store("rows"))
    builder.stream("in").process(Rows, stores=["rows"]).to("out")


@topology
def scan_windows(builder: StreamsBuilder) -> None:
    builder.add_store(window_store("windows", 200, 30))
    builder.stream("in").process(Times, stores=["windows"]).to("out")


@topology
def scan_windows_twice(builder: StreamsBuilder) -> None:
    builder.add_store(window_store("windows", 200, 30, duplicates=True))
    builder.stream("in").filter(lambda k, v: v is not None).process(Times, stores=["windows"]).to("out")


@topology
def scan_windows_far(builder: StreamsBuilder) -> None:
    builder.add_store(window_store("windows", 300_000, 30))
    builder.stream("in").process(Times, stores=["windows"]).to("out")


@topology
def scan_sessions(builder: StreamsBuilder) -> None:
    builder.add_store(session_store("sessions", 200))
    builder.stream("in").process(Sessions, stores=["sessions"]).to("out")


@topology
def scan_sessions_far(builder: StreamsBuilder) -> None:
    builder.add_store(session_store("sessions", 300_000))
    builder.stream("in").process(Sessions, stores=["sessions"]).to("out")


# Transformers -----------------------------------------------------------------------------------------------


class Numbered(ValueTransformer):
    def transform(self, key: str, value: Any) -> Any:
        counts = self.context.store("counts")
        now = (counts.get(key) or 0) + 1
        counts.put(key, now)
        return None if value is None else f"{value}#{now}"


class Marked(ValueTransformer):
    def transform(self, key: str, value: Any) -> Any:
        return None if value == "q" else f"{key}:{text(value)}"


@topology
def table_transform(builder: StreamsBuilder) -> None:
    out(builder.table("in").transform_values(Marked))


@topology
def table_transform_named(builder: StreamsBuilder) -> None:
    out(builder.table("in").transform_values(Marked, name="marked"))


@topology
def table_transform_kept(builder: StreamsBuilder) -> None:
    out(builder.table("in").transform_values(Marked, materialized="marked"))


@topology
def table_transform_with_serdes(builder: StreamsBuilder) -> None:
    out(builder.table("in").transform_values(Marked, materialized=Materialized(key=STRING, value=STRING)))


@topology
def table_transform_kept_filter(builder: StreamsBuilder) -> None:
    out(builder.table("in").transform_values(Marked, materialized="marked").filter(lambda k, v: even(v)))


@topology
def table_transform_count(builder: StreamsBuilder) -> None:
    out(builder.table("in").transform_values(Marked).group_by(lambda k, v: (v, v)).count())


@topology
def table_transform_joined(builder: StreamsBuilder) -> None:
    builder.stream("in").join(builder.table("in2").transform_values(Marked), both).to("out")


@topology
def tables_transform_joined(builder: StreamsBuilder) -> None:
    out(builder.table("in").left_join(builder.table("in2").transform_values(Marked), both))


@topology
def table_transform_stateful(builder: StreamsBuilder) -> None:
    builder.add_store(key_value_store("counts", value=LONG))
    out(builder.table("in").transform_values(Numbered, stores=["counts"], materialized="numbered"))


@topology
def table_transform_stateful_view(builder: StreamsBuilder) -> None:
    builder.add_store(key_value_store("counts", value=LONG))
    out(builder.table("in").transform_values(Numbered, stores="counts"))


# Global stores ----------------------------------------------------------------------------------------------


class Update(Processor):
    def process(self, record: Record) -> None:
        if record.key:
            value = None if record.value is None else record.value.upper()
            self.context.store("shared").put(record.key[0], value)


class Ask(Processor):
    def process(self, record: Record) -> None:
        found = None if record.key is None else self.context.store("shared").get(record.key)
        self.context.forward(record.with_value(f"{text(record.value)}/{text(found)}"))


@topology
def global_store(builder: StreamsBuilder) -> None:
    builder.add_global_store(key_value_store("shared"), "in2", Update)
    builder.stream("in").process(Ask).to("out")


@topology
def global_store_named(builder: StreamsBuilder) -> None:
    builder.add_global_store(key_value_store("shared"), "in2", Update, name="prices")
    builder.stream("in").process(Ask).to("out")


# Partitions and times ---------------------------------------------------------------------------------------


def some(_topic: str, _key: Any, value: Any, _partitions: int) -> Any:
    if value is None:
        return []
    return None if value == "q" else {0}


def to_the_first(_topic: str, _key: Any, value: Any, _partitions: int) -> int:
    assert value is None
    return 0


@topology
def to_some_partitions(builder: StreamsBuilder) -> None:
    builder.stream("in").to("out", partitioner=some)


@topology
def repartition_some_partitions(builder: StreamsBuilder) -> None:
    builder.stream("in").repartition(partitioner=some).to("out")


@topology
def foreign_key_partitioned(builder: StreamsBuilder) -> None:
    left, right = builder.table("in"), builder.table("in2")
    out(left.join(right, both, foreign_key=last, partitioner=to_the_first, other_partitioner=lambda *_: [0]))


@topology
def foreign_key_partitioned_left(builder: StreamsBuilder) -> None:
    left, right = builder.table("in"), builder.table("in2")
    partitioners = {"partitioner": to_the_first, "other_partitioner": to_the_first}
    out(left.left_join(right, both, foreign_key=last, name="pairs", materialized="joined", **partitioners))


def listed(value: str | None) -> list[str | None] | None:
    return None if value is None else [None if letter == "e" else letter for letter in value]


@topology
def list_of_strings(builder: StreamsBuilder) -> None:
    builder.stream("in").map_values(listed).to("out", value=list_of(STRING))


@topology
def list_of_longs(builder: StreamsBuilder) -> None:
    def numbers(value: str | None) -> list[int | None] | None:
        letters = listed(value)
        return None if letters is None else [None if letter is None else ord(letter) for letter in letters]

    builder.stream("in").map_values(numbers).to("out", value=list_of(LONG))


def next_time(_key: Any, value: Any, timestamp: int, headers: Any, newest: int) -> int:
    if value is None:
        return newest
    found = dict(headers).get("h")
    return timestamp if found is None else max(newest, 0) + found[1] - ord("0")


@topology
def extract_with_headers(builder: StreamsBuilder) -> None:
    builder.stream("in", timestamps=next_time).to("out")
