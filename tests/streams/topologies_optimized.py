"""The topologies of the vectors: those with topology.optimization."""

from __future__ import annotations

from typing import Any

from millstream.streams import StreamsBuilder
from millstream.streams.serdes import LONG
from tests.streams.kit import (
    BUILDS,
    CONFIGS,
    EVEN,
    NAMED,
    SKEWED,
    TUMBLING,
    Build,
    both,
    even,
    first,
    out,
    plus,
    rekeyed,
    windowed,
)
from tests.streams.topologies_tables import last

OPTIMIZATION = "topology.optimization"


def optimized(build: Build) -> Build:
    name = f"optimized_{build.__name__}"
    BUILDS[name] = build
    CONFIGS[name] = {OPTIMIZATION: "all"}
    return build


def out2(table: Any, **serdes: Any) -> None:
    table.to_stream().to("out2", **serdes)


@optimized
def table(builder: StreamsBuilder) -> None:
    out(builder.table("in", materialized="rows"))


@optimized
def table_filter(builder: StreamsBuilder) -> None:
    out(builder.table("in").filter(lambda k, v: even(v)))


@optimized
def table_count(builder: StreamsBuilder) -> None:
    out(builder.table("in").group_by(lambda k, v: (v, v)).count())


@optimized
def table_joined(builder: StreamsBuilder) -> None:
    builder.stream("in").join(builder.table("in2"), both).to("out")


@optimized
def tables_joined(builder: StreamsBuilder) -> None:
    out(builder.table("in").join(builder.table("in2"), both))


@optimized
def two_counts(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    out(letters.group_by_key().count())
    out2(letters.group_by_key().reduce(plus))


@optimized
def two_counts_named(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    out(letters.group_by_key(name="first").count())
    out2(letters.group_by_key(name="second").reduce(plus))


@optimized
def counts_after_filters(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    out(letters.filter(lambda k, v: even(v)).group_by_key().count())
    out2(letters.filter_not(lambda k, v: even(v)).peek(lambda k, v: None).group_by_key().count())
    letters.to("plain")


@optimized
def counts_after_values(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    out(letters.map_values(lambda v: f"{'null' if v is None else v}!").group_by_key().count())
    out2(letters.group_by_key().count())


@optimized
def group_by_twice(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    out(stream.group_by(lambda k, v: first(v)).count())
    out2(stream.group_by(lambda k, v: v).count())


@optimized
def grouped_once(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by(lambda k, v: first(v))
    out(grouped.count())
    windowed(grouped.windowed_by(TUMBLING).count())


@optimized
def count_and_join(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    out(letters.group_by_key().count())
    letters.join(builder.stream("in2"), both, EVEN).to("out2")


@optimized
def two_joins(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    letters.join(builder.table("in2"), both).to("out")
    letters.left_join(builder.stream("in3"), both, EVEN).to("out2")


@optimized
def merged(builder: StreamsBuilder) -> None:
    both_streams = rekeyed(builder, "in").merge(rekeyed(builder, "in2"))
    out(both_streams.group_by_key().count())
    out2(both_streams.group_by_key().reduce(plus))


@optimized
def merged_half(builder: StreamsBuilder) -> None:
    out(builder.stream("in").merge(rekeyed(builder, "in2")).group_by_key().count())


@optimized
def repartition(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in").repartition()
    out(letters.group_by_key().count())
    out2(letters.group_by_key().count())


@optimized
def map_twice(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in").map(lambda k, v: (v, k))
    out(letters.group_by_key().count())
    out2(letters.group_by_key().count())


def _self_join(kind: str, windows: Any, **options: Any) -> Build:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        getattr(stream, kind)(stream, both, windows, **options).to("out")

    return build


@optimized
def self_join_twice(builder: StreamsBuilder) -> None:
    builder.stream("in").join(builder.stream("in"), both, EVEN).to("out")


@optimized
def self_join_rekeyed(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in")
    stream.join(stream, both, EVEN).to("out")


@optimized
def foreign_key(builder: StreamsBuilder) -> None:
    out(builder.table("in").join(builder.table("in2"), both, foreign_key=last))


for _name, _build in {
    "self_join": _self_join("join", EVEN),
    "self_join_skewed": _self_join("join", SKEWED),
    "self_join_named": _self_join("join", EVEN, **NAMED),
    "self_join_left": _self_join("left_join", EVEN),
}.items():
    BUILDS[f"optimized_{_name}"] = _build
    CONFIGS[f"optimized_{_name}"] = {OPTIMIZATION: "all"}


def _merge_only(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    out(letters.group_by_key().count())
    out2(letters.to_table(materialized="rows"))


def _reuse_only(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in")
    out(letters.group_by_key().count())
    out2(letters.group_by_key().count(), value=LONG)
    letters.join(builder.table("in2"), both).to("out3")


BUILDS["merge_only"], CONFIGS["merge_only"] = _merge_only, {OPTIMIZATION: "merge.repartition.topics"}
BUILDS["reuse_only"], CONFIGS["reuse_only"] = _reuse_only, {OPTIMIZATION: "reuse.ktable.source.topics"}
