"""The topologies of the vectors: versioned stores and tables, and windows without an end."""

from __future__ import annotations

from typing import Any

from millstream.streams import (
    EmitStrategy,
    Materialized,
    Processor,
    Record,
    StreamsBuilder,
    UnlimitedWindows,
    VersionedRecord,
    versioned_store,
)
from millstream.streams.serdes import LONG, STRING
from tests.streams.kit import BUILDS, TUMBLING, Build, both, even, grouped, out, plus, topology, windowed
from tests.streams.topologies_tables import last


def kept(name: str, history: int) -> Materialized:
    return Materialized(name, STRING, STRING, history=history)


def counted(name: str, history: int) -> Materialized:
    return Materialized(name, STRING, LONG, history=history)


def shown(found: VersionedRecord | None) -> str:
    if found is None:
        return "-"
    return f"{found.value}@{found.timestamp}"  # Kafka's store does not tell here until when


class Versioned(Processor):
    def process(self, record: Record) -> None:
        store, t = self.context.store("versions"), record.timestamp

        def send(key: str, value: str) -> None:
            self.context.forward(record.with_key(key).with_value(value))

        if record.key is None:
            return
        if record.value == "q":
            send("deleted", shown(store.delete(record.key, t)))
        else:
            after = store.put(record.key, record.value, t)
            send("put", str(-(1 << 63) if after is None else after))
        send("now", shown(store.get(record.key)))
        for ago in (0, 7, 25, 60, 150, 400):
            send("then", shown(store.get(record.key, t - ago)))
        send("later", shown(store.get(record.key, t + 30)))


def _store(history: int) -> Build:
    def build(builder: StreamsBuilder) -> None:
        builder.add_store(versioned_store("versions", history))
        builder.stream("in").process(Versioned, stores=["versions"]).to("out")

    return build


def _table(history: int) -> Build:
    return lambda builder: out(builder.table("in", materialized=kept("rows", history)))


def _joined(kind: str, history: int, **options: Any) -> Build:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        table = builder.table("in2", materialized=kept("rows", history))
        getattr(stream, kind)(table, both, **options).to("out")

    return build


for _history in (1000, 100, 30, 0):
    BUILDS[f"versioned_store_{_history}"] = _store(_history)
    BUILDS[f"versioned_table_{_history}"] = _table(_history)
    BUILDS[f"versioned_joined_{_history}"] = _joined("join", _history)
BUILDS["versioned_far"] = _store(200_000)
BUILDS["versioned_joined_left"] = _joined("left_join", 100)
BUILDS["versioned_joined_grace"] = _joined("join", 200, grace=40)
BUILDS["versioned_joined_grace_named"] = _joined("left_join", 200, grace=60, name="late")
BUILDS["versioned_joined_grace_zero"] = _joined("join", 200, grace=0)


def _rows(builder: StreamsBuilder, history: int = 80) -> Any:
    return builder.table("in", materialized=kept("rows", history))


@topology
def versioned_joined_mapped(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    table = builder.table("in2", materialized=kept("rows", 100))
    loud = table.map_values(lambda v: v + "!").filter(lambda k, v: len(v) != 4)
    stream.join(loud, both).to("out")


@topology
def versioned_filter(builder: StreamsBuilder) -> None:
    out(_rows(builder).filter(lambda k, v: even(v)))


@topology
def versioned_filter_kept(builder: StreamsBuilder) -> None:
    out(_rows(builder).filter(lambda k, v: even(v), materialized=kept("even", 40)))


@topology
def versioned_filter_plain(builder: StreamsBuilder) -> None:
    out(_rows(builder).filter(lambda k, v: even(v), materialized=Materialized("even", STRING, STRING)))


@topology
def versioned_map_values(builder: StreamsBuilder) -> None:
    out(_rows(builder).map_values(lambda v: v + "!", materialized=kept("loud", 60)))


@topology
def versioned_count(builder: StreamsBuilder) -> None:
    out(_rows(builder).group_by(lambda k, v: (v, v)).count())


@topology
def versioned_map_count(builder: StreamsBuilder) -> None:
    out(_rows(builder).map_values(lambda v: v + "!").group_by(lambda k, v: (v, v)).count())


def _tables(kind: str, **options: Any) -> Build:
    def build(builder: StreamsBuilder) -> None:
        left = builder.table("in", materialized=kept("left", 80))
        right = builder.table("in2", materialized=kept("right", 80))
        out(getattr(left, kind)(right, both, **options))

    return build


BUILDS["versioned_tables_inner"] = _tables("join")
BUILDS["versioned_tables_left"] = _tables("left_join")
BUILDS["versioned_tables_outer"] = _tables("outer_join")
BUILDS["versioned_tables_kept"] = _tables("join", materialized=kept("joined", 50))
BUILDS["versioned_foreign_key"] = _tables("join", foreign_key=last)


@topology
def versioned_with_plain(builder: StreamsBuilder) -> None:
    out(builder.table("in", materialized=kept("left", 80)).join(builder.table("in2"), both))


@topology
def versioned_aggregate(builder: StreamsBuilder) -> None:
    out(grouped(builder).count(materialized=counted("counts", 60)))


@topology
def versioned_reduce(builder: StreamsBuilder) -> None:
    out(grouped(builder).reduce(plus, materialized=kept("sums", 60)))


@topology
def versioned_table_aggregate(builder: StreamsBuilder) -> None:
    out(builder.table("in").group_by(lambda k, v: (v, v)).count(materialized=counted("counts", 60)))


@topology
def versioned_to_table(builder: StreamsBuilder) -> None:
    out(builder.stream("in").to_table(materialized=kept("rows", 60)))


# Windows without an end -------------------------------------------------------------------------------------


@topology
def unlimited_count(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(UnlimitedWindows.of()).count())


@topology
def unlimited_from(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(UnlimitedWindows.of().start_on(300)).reduce(plus))


@topology
def emit_on_update(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).emit_strategy(EmitStrategy.on_window_update()).count())
