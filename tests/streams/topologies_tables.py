"""The topologies of the vectors: tables and their joins."""

from __future__ import annotations

from typing import Any

from millstream.streams import Materialized, StreamsBuilder
from millstream.streams.serdes import LONG, STRING
from tests.streams.kit import BUILDS, Build, both, even, first, out, text, topology

# Tables -----------------------------------------------------------------------------------------------------


@topology
def table_to_stream(builder: StreamsBuilder) -> None:
    out(builder.table("in"))


@topology
def table_kept(builder: StreamsBuilder) -> None:
    out(builder.table("in", materialized="rows"))


@topology
def table_named(builder: StreamsBuilder) -> None:
    builder.table("in", name="users", materialized="rows").to_stream(name="changes").to("out")


@topology
def table_to_stream_rekeyed(builder: StreamsBuilder) -> None:
    builder.table("in").to_stream(lambda k, v: k + text(v)).to("out")


@topology
def table_filter(builder: StreamsBuilder) -> None:
    out(builder.table("in").filter(lambda k, v: even(v)))


@topology
def table_filter_not(builder: StreamsBuilder) -> None:
    out(builder.table("in").filter_not(lambda k, v: even(v)))


@topology
def table_kept_filter(builder: StreamsBuilder) -> None:
    out(builder.table("in", materialized="rows").filter(lambda k, v: even(v)))


@topology
def table_filter_kept(builder: StreamsBuilder) -> None:
    out(builder.table("in").filter(lambda k, v: even(v), materialized="even"))


@topology
def table_both_kept_filter(builder: StreamsBuilder) -> None:
    out(
        builder.table("in", materialized="rows").filter(
            lambda k, v: even(v), name="evens", materialized="even"
        )
    )


@topology
def table_filter_with_serdes(builder: StreamsBuilder) -> None:
    out(builder.table("in").filter(lambda k, v: even(v), materialized=Materialized(key=STRING, value=STRING)))


@topology
def table_map_values(builder: StreamsBuilder) -> None:
    out(builder.table("in").map_values(lambda v: v + "!"))


@topology
def table_map_values_with_key(builder: StreamsBuilder) -> None:
    out(builder.table("in").map_values(lambda k, v: k + v))


@topology
def table_map_values_kept(builder: StreamsBuilder) -> None:
    out(builder.table("in").map_values(lambda v: v + "!", materialized="loud"))


@topology
def table_filter_map_filter(builder: StreamsBuilder) -> None:
    loud = builder.table("in").filter(lambda k, v: v != "").map_values(lambda v: v + "!")
    out(loud.filter(lambda k, v: even(v), materialized="even"))


@topology
def table_count(builder: StreamsBuilder) -> None:
    out(builder.table("in").group_by(lambda k, v: (v, v)).count())


@topology
def table_count_named(builder: StreamsBuilder) -> None:
    by_value = builder.table("in").group_by(lambda k, v: (v, v), name="by-value")
    out(by_value.count(name="counter", materialized="counts"))


@topology
def table_reduce(builder: StreamsBuilder) -> None:
    parity = builder.table("in").group_by(
        lambda k, v: ("even" if even(k + v) else "odd", int(v)), key=STRING, value=LONG
    )
    out(parity.reduce(lambda a, v: a + v, lambda a, v: a - v))


@topology
def table_aggregate(builder: StreamsBuilder) -> None:
    found = builder.table("in").group_by(lambda k, v: (first(v), v))
    out(found.aggregate(lambda: "", lambda k, v, a: a + "+" + v, lambda k, v, a: a + "-" + v))


@topology
def table_aggregate_kept(builder: StreamsBuilder) -> None:
    found = builder.table("in").group_by(lambda k, v: ("late" if k > "b" else "early", v))
    out(
        found.aggregate(
            lambda: "",
            lambda k, v, a: a + "+" + v,
            lambda k, v, a: None if v == "q" else a + "-" + v,
            materialized="sums",
        )
    )


@topology
def table_filter_count(builder: StreamsBuilder) -> None:
    loud = builder.table("in").filter(lambda k, v: even(v)).map_values(lambda v: v + "!")
    out(loud.group_by(lambda k, v: (v, k)).count())


@topology
def table_two_groups(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    table.to_stream().to("changes")
    out(table.group_by(lambda k, v: (v, v)).count())
    found = table.group_by(lambda k, v: (first(v), v))
    found.reduce(lambda a, v: a + "+" + v, lambda a, v: a + "-" + v).to_stream().to("out2")


@topology
def sum_six_or_five(builder: StreamsBuilder) -> None:
    kept = Materialized(key=STRING, value=LONG)
    stream = (
        builder.stream("in").filter(lambda k, v: v is not None and v.isdigit()).group_by(lambda k, v: "all")
    )
    total = stream.aggregate(lambda: 0, lambda k, v, a: a + int(v), materialized=kept)
    total.to_stream().to("stream-sum")
    table = builder.stream("in").to_table().filter(lambda k, v: v.isdigit())
    rows = table.group_by(lambda k, v: ("all", int(v)), key=STRING, value=LONG)
    rows.reduce(lambda a, v: a + v, lambda a, v: a - v).to_stream().to("table-sum")


# Joins of tables --------------------------------------------------------------------------------------------


def _tables(kind: str, **options: Any) -> Build:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("in")
        out(getattr(table, kind)(builder.table("in2"), both, **options))

    return build


BUILDS["tables_inner"] = _tables("join")
BUILDS["tables_left"] = _tables("left_join")
BUILDS["tables_outer"] = _tables("outer_join")
BUILDS["tables_inner_kept"] = _tables("join", materialized="rows")
BUILDS["tables_left_named"] = _tables("left_join", name="pairs", materialized="rows")
BUILDS["tables_outer_with_serdes"] = _tables(
    "outer_join", materialized=Materialized(key=STRING, value=STRING)
)


@topology
def tables_inner_derived(builder: StreamsBuilder) -> None:
    table = builder.table("in").filter(lambda k, v: even(v))
    out(table.join(builder.table("in2").map_values(lambda v: v + "!"), both))


@topology
def tables_inner_filter(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    out(table.join(builder.table("in2"), both).filter(lambda k, v: even(v)))


def _counted(kind: str) -> Build:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("in")
        out(getattr(table, kind)(builder.table("in2"), both).group_by(lambda k, v: (v, v)).count())

    return build


BUILDS["tables_inner_count"] = _counted("join")
BUILDS["tables_left_count"] = _counted("left_join")
BUILDS["tables_outer_count"] = _counted("outer_join")


@topology
def tables_three(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    pairs = table.join(builder.table("in2"), both)
    out(pairs.left_join(builder.table("in3"), both))


@topology
def tables_three_outer(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    pairs = table.outer_join(builder.table("in2"), both)
    out(pairs.outer_join(builder.table("in3"), both))


@topology
def table_with_itself(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    out(table.join(table.map_values(lambda v: v + "!"), both))


@topology
def tables_of_counts(builder: StreamsBuilder) -> None:
    counts = builder.stream("in").group_by_key().count()
    out(counts.outer_join(builder.stream("in2").group_by_key().count(), both))


# Foreign keys -----------------------------------------------------------------------------------------------


def last(value: str | None) -> str | None:
    return value[-1] if value else None


def _foreign(kind: str, **options: Any) -> Build:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("in")
        out(getattr(table, kind)(builder.table("in2"), both, foreign_key=last, **options))

    return build


BUILDS["foreign_inner"] = _foreign("join")
BUILDS["foreign_left"] = _foreign("left_join")
BUILDS["foreign_left_named"] = _foreign("left_join", name="pairs", materialized="rows")


@topology
def foreign_inner_kept(builder: StreamsBuilder) -> None:
    table = builder.table("in", materialized="left-rows")
    out(table.join(builder.table("in2"), both, foreign_key=last, materialized="rows"))


@topology
def foreign_left_count(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    joined = table.left_join(builder.table("in2"), both, foreign_key=last)
    out(joined.group_by(lambda k, v: (v, v)).count())


@topology
def foreign_inner_derived(builder: StreamsBuilder) -> None:
    table = builder.table("in").map_values(lambda v: v + "e")
    out(table.join(builder.table("in2").filter(lambda k, v: even(v)), both, foreign_key=last))
