"""The topologies of the vectors: joins of streams, lookups, several operators together."""

from __future__ import annotations

from typing import Any

from millstream.streams import JoinWindows, StreamsBuilder
from millstream.streams.serdes import STRING
from tests.streams.kit import (
    AFTER,
    BUILDS,
    EVEN,
    NAMED,
    SKEWED,
    TUMBLING,
    Build,
    both,
    by_letter,
    even,
    first,
    grouped,
    out,
    plus,
    rekeyed,
    text,
    topology,
    windowed,
)

# Joins of streams -------------------------------------------------------------------------------------------


def _join(kind: str, windows: JoinWindows, **options: Any) -> Build:
    def build(builder: StreamsBuilder) -> None:
        left = builder.stream("in")
        getattr(left, kind)(builder.stream("in2"), both, windows, **options).to("out")

    return build


BUILDS["stream_inner"] = BUILDS["stream_inner_jumps"] = _join("join", EVEN)
BUILDS["stream_inner_skewed"] = _join("join", SKEWED)
BUILDS["stream_inner_after"] = _join("join", AFTER)
BUILDS["stream_inner_named"] = _join("join", EVEN, **NAMED)
BUILDS["stream_left"] = BUILDS["stream_left_eager"] = _join("left_join", EVEN)
BUILDS["stream_left_skewed"] = _join("left_join", SKEWED)
BUILDS["stream_left_after"] = _join("left_join", AFTER)
BUILDS["stream_left_named"] = _join("left_join", EVEN, **NAMED)
BUILDS["stream_outer"] = BUILDS["stream_outer_eager"] = _join("outer_join", EVEN)
BUILDS["stream_outer_jumps"] = BUILDS["stream_outer"]
BUILDS["stream_outer_skewed"] = _join("outer_join", SKEWED)
BUILDS["stream_outer_named"] = _join("outer_join", EVEN, **NAMED)


@topology
def stream_inner_with_key(builder: StreamsBuilder) -> None:
    left = builder.stream("in")
    left.join(builder.stream("in2"), lambda k, v, o: text(k) + text(v) + text(o), EVEN).to("out")


@topology
def stream_inner_rekeyed(builder: StreamsBuilder) -> None:
    left = rekeyed(builder, "in")
    left.join(rekeyed(builder, "in2"), both, EVEN).to("out")


@topology
def stream_inner_rekeyed_named(builder: StreamsBuilder) -> None:
    left = rekeyed(builder, "in")
    left.join(builder.stream("in2"), both, EVEN, name="pairs", key_serde=STRING).to("out")


@topology
def stream_with_itself(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.join(stream, both, EVEN).to("out")
    builder.stream("in2").to("out2")


@topology
def stream_left_rekeyed(builder: StreamsBuilder) -> None:
    left = rekeyed(builder, "in")
    left.left_join(rekeyed(builder, "in2"), both, EVEN).to("out")


@topology
def stream_join_then_count(builder: StreamsBuilder) -> None:
    left = builder.stream("in")
    out(left.join(builder.stream("in2"), both, EVEN).group_by_key().count())


@topology
def stream_join_three(builder: StreamsBuilder) -> None:
    left = builder.stream("in")
    pairs = left.join(builder.stream("in2"), both, EVEN)
    pairs.join(builder.stream("in3"), both, EVEN).to("out")


# Lookups ----------------------------------------------------------------------------------------------------


@topology
def table_lookup(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.join(builder.table("in2"), both).to("out")


@topology
def table_lookup_with_key(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    table = builder.table("in2", materialized="rows")
    stream.join(table, lambda k, v, t: k + text(v) + text(t)).to("out")


@topology
def table_lookup_left(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.left_join(builder.table("in2"), both).to("out")


@topology
def table_lookup_rekeyed(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in")
    stream.join(builder.table("in2"), both).to("out")


@topology
def table_lookup_left_rekeyed(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in")
    stream.left_join(builder.table("in2"), both, name="with-rows").to("out")


@topology
def table_lookup_derived(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    table = builder.table("in2").filter(lambda k, v: even(v)).map_values(lambda v: v + "!")
    stream.left_join(table, both).to("out")


@topology
def table_lookup_count(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.left_join(builder.stream("in2").group_by_key().count(), both).to("out")


@topology
def table_lookup_own(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.left_join(stream.to_table(), both).to("out")
    builder.stream("in2").to("out2")


@topology
def global_lookup(builder: StreamsBuilder) -> None:
    table = builder.global_table("in2")
    builder.stream("in").join(table, both, key=lambda k, v: first(v)).to("out")


@topology
def global_lookup_left(builder: StreamsBuilder) -> None:
    table = builder.global_table("in2", materialized="rows")
    stream = builder.stream("in")
    stream.left_join(
        table, lambda k, v, t: text(k) + text(v) + text(t), key=lambda k, v: first(v), name="look-up"
    ).to("out")


@topology
def pageviews_by_region(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    regions = stream.left_join(builder.table("in2"), lambda v, t: "nowhere" if t is None else t)
    out(regions.map(lambda k, v: (v, k)).group_by_key().count())


# Several together -------------------------------------------------------------------------------------------


@topology
def rekeyed_joined_twice(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in")
    stream.join(builder.stream("in2"), both, EVEN).to("out")
    stream.left_join(builder.table("in3"), both).to("out2")
    stream.group_by_key().count().to_stream().to("out3")


@topology
def named_group_twice(builder: StreamsBuilder) -> None:
    found = by_letter(builder, name="letters")
    out(found.count())
    found.reduce(plus).to_stream().to("out2")
    builder.stream("in2").to("out3")


@topology
def named_table_group_twice(builder: StreamsBuilder) -> None:
    found = builder.table("in").group_by(lambda k, v: (first(v), v), name="letters")
    out(found.count())
    found.reduce(lambda a, v: a + "+" + v, lambda a, v: a + "-" + v).to_stream().to("out2")
    builder.stream("in2").to("out3")


@topology
def windowed_tables_joined(builder: StreamsBuilder) -> None:
    left = builder.stream("in").group_by_key().windowed_by(TUMBLING).count()
    windowed(left.join(builder.stream("in2").group_by_key().windowed_by(TUMBLING).count(), both))


@topology
def cogroup_rekeyed(builder: StreamsBuilder) -> None:
    found = by_letter(builder, name="one").cogroup(lambda k, v, a: a + "1" + v)
    two = builder.stream("in2").group_by(lambda k, v: first(v), name="two")
    out(found.cogroup(two, lambda k, v, a: a + "2" + v).aggregate(lambda: ""))


@topology
def repartition_then_join(builder: StreamsBuilder) -> None:
    left = rekeyed(builder, "in").repartition()
    left.join(rekeyed(builder, "in2").repartition(), both, EVEN).to("out")


@topology
def counts_into_a_table_again(builder: StreamsBuilder) -> None:
    grouped(builder).count().to_stream().map_values(str).to("counts")
    stream = builder.stream("in2")
    stream.left_join(builder.table("counts"), both).to("out")


@topology
def left_join_then_to_table(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    table = stream.left_join(builder.table("in2"), both).to_table(materialized="rows")
    out(table.filter(lambda k, v: not v.endswith("null")))


@topology
def outer_join_then_window(builder: StreamsBuilder) -> None:
    left = builder.stream("in")
    joined = left.outer_join(builder.stream("in2"), both, EVEN)
    windowed(joined.group_by_key().windowed_by(TUMBLING).count())


@topology
def dedup(builder: StreamsBuilder) -> None:
    merged = builder.stream("in").merge(builder.stream("in2"))
    out(merged.group_by_key().reduce(lambda a, v: a if v == a else v).to_stream().to_table())
