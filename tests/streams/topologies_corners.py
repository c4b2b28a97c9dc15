"""The topologies of the vectors: zero spans, no grace, things used twice, tables of tables."""

from __future__ import annotations

from typing import Any

from millstream.streams import (
    Buffer,
    JoinWindows,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from millstream.streams.serdes import LONG, STRING
from tests.streams.kit import (
    BUILDS,
    EVEN,
    NAMED,
    SESSIONS,
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
from tests.streams.topologies_tables import last

STRICT_HOPPING = TimeWindows.of_size(40).advance_by(15)
STRICT_SLIDING = SlidingWindows.of(20)
STRICT_SESSIONS = SessionWindows.of(15)


def by_key(table: KTable[Any, Any], topic: str) -> None:
    table.to_stream(lambda key, _: key.key).to(topic, key=STRING)


# Windows ----------------------------------------------------------------------------------------------------


def _count(windows: Any) -> Build:
    return lambda builder: windowed(grouped(builder).windowed_by(windows).count())


def _final(windows: Any) -> Build:
    return lambda builder: windowed(grouped(builder).windowed_by(windows).emit_final().count())


BUILDS["session_gap_zero"] = _count(SessionWindows.of(0))
BUILDS["session_gap_zero_grace"] = _count(SessionWindows.of(0).grace(5))
BUILDS["session_no_grace"] = _count(STRICT_SESSIONS)
BUILDS["hopping_no_grace"] = _count(STRICT_HOPPING)
BUILDS["final_hopping_no_grace"] = _final(STRICT_HOPPING)
BUILDS["final_sliding_no_grace"] = _final(STRICT_SLIDING)
BUILDS["final_session_no_grace"] = _final(STRICT_SESSIONS)
BUILDS["final_session_jumps"] = _final(SESSIONS)


@topology
def sliding_wide(builder: StreamsBuilder) -> None:
    wide = grouped(builder).windowed_by(SlidingWindows.of(200).grace(10))
    windowed(wide.aggregate(lambda: "", lambda k, v, a: "" if v == "q" else a + v))


@topology
def final_tumbling_jumps(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).emit_final().reduce(lambda a, v: f"{text(v)}+{a}"))


@topology
def final_then_regroup(builder: StreamsBuilder) -> None:
    counts = grouped(builder).windowed_by(TUMBLING).emit_final().count()
    regrouped = counts.group_by(lambda w, v: (w.key, v), key=STRING, value=LONG)
    out(regrouped.reduce(lambda a, v: a + v, lambda a, v: a - v))


@topology
def windowed_tables_left(builder: StreamsBuilder) -> None:
    left = grouped(builder).windowed_by(TUMBLING).count()
    windowed(left.left_join(builder.stream("in2").group_by_key().windowed_by(TUMBLING).count(), both))


@topology
def session_tables_outer(builder: StreamsBuilder) -> None:
    left = grouped(builder).windowed_by(SESSIONS).count()
    windowed(left.outer_join(builder.stream("in2").group_by_key().windowed_by(SESSIONS).count(), both))


# Joins of streams -------------------------------------------------------------------------------------------


def _join(kind: str, windows: JoinWindows) -> Build:
    def build(builder: StreamsBuilder) -> None:
        left = builder.stream("in")
        getattr(left, kind)(builder.stream("in2"), both, windows).to("out")

    return build


for _name, _windows in {
    "no_grace": JoinWindows.of(10),
    "zero": JoinWindows.of(0),
    "before": JoinWindows.of(0).grace(4).before(25),
    "shifted": JoinWindows.of(20).grace(7).before(-5),
    "shifted_back": JoinWindows.of(20).after(-5),
}.items():
    BUILDS[f"stream_inner_{_name}"] = _join("join", _windows)
    BUILDS[f"stream_left_{_name}"] = _join("left_join", _windows)
    BUILDS[f"stream_outer_{_name}"] = _join("outer_join", _windows)


@topology
def stream_outer_with_itself(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.outer_join(stream.filter(lambda k, v: even(v)), both, EVEN).to("out")


@topology
def stream_left_three(builder: StreamsBuilder) -> None:
    left = builder.stream("in")
    pairs = left.left_join(builder.stream("in2"), both, EVEN)
    pairs.left_join(builder.stream("in3"), both, EVEN).to("out")


@topology
def stream_outer_rekeyed_named(builder: StreamsBuilder) -> None:
    left = rekeyed(builder, "in")
    left.outer_join(rekeyed(builder, "in2"), both, EVEN, **NAMED).to("out")


@topology
def repartition_then_left_join(builder: StreamsBuilder) -> None:
    left = rekeyed(builder, "in").repartition().map_values(lambda v: text(v) + "!")
    left.left_join(builder.stream("in2"), both, EVEN).to("out")


@topology
def repartition_then_both(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in").repartition(name="letters")
    stream.left_join(builder.table("in2"), both).to("out")
    out(stream.group_by_key().count())


@topology
def rekeyed_joined_by_two_names(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in")
    stream.join(builder.stream("in2"), both, EVEN, name="first", store_name="first-store").to("out")
    stream.join(builder.table("in3"), both, name="second").to("out2")


@topology
def rekeyed_joined_twice_with_tables(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in")
    stream.join(builder.table("in2"), both).to("out")
    stream.left_join(builder.table("in3"), both).to("out2")


@topology
def lookup_in_left_join(builder: StreamsBuilder) -> None:
    stream, table = builder.stream("in"), builder.table("in2")
    stream.left_join(table.left_join(builder.table("in3"), both), both).to("out")


@topology
def lookup_in_outer_join(builder: StreamsBuilder) -> None:
    stream, table = builder.stream("in"), builder.table("in2")
    stream.left_join(table.outer_join(builder.table("in3"), both), both).to("out")


# Tables -----------------------------------------------------------------------------------------------------


def _sometimes(value: str) -> str | None:
    return None if even(value) else last(value)


def _foreign(kind: str, foreign_key: Any) -> Build:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("in")
        out(getattr(table, kind)(builder.table("in2"), both, foreign_key=foreign_key))

    return build


BUILDS["foreign_inner_by_key"] = _foreign("join", lambda k, v: k if even(v) else last(v))
BUILDS["foreign_left_sometimes"] = _foreign("left_join", _sometimes)
BUILDS["foreign_inner_sometimes"] = _foreign("join", _sometimes)


@topology
def foreign_with_itself(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    out(table.left_join(table, both, foreign_key=last))
    builder.stream("in2").to("out2")


@topology
def foreign_twice(builder: StreamsBuilder) -> None:
    table = builder.table("in")
    pairs = table.join(builder.table("in2"), both, foreign_key=last)
    out(pairs.left_join(builder.table("in3"), both, foreign_key=lambda v: v[:1]))


@topology
def foreign_of_counts(builder: StreamsBuilder) -> None:
    left = grouped(builder).reduce(lambda a, v: v + a)
    right = builder.stream("in2").group_by(lambda k, v: first(v)).count()
    out(left.left_join(right, both, foreign_key=last, name="pairs"))


@topology
def foreign_filtered(builder: StreamsBuilder) -> None:
    left = builder.table("in").filter(lambda k, v: v != "", materialized="some")
    right = builder.table("in2").map_values(lambda v: v + "!")
    out(left.left_join(right, both, foreign_key=last).filter(lambda k, v: even(v)))


@topology
def regroup_nowhere(builder: StreamsBuilder) -> None:
    def group(_key: str, value: str) -> Any:
        return None if even(value) else (None if value == "q" else first(value), value)

    out(builder.table("in").group_by(group).count())


@topology
def regroup_null_values(builder: StreamsBuilder) -> None:
    found = builder.table("in").group_by(lambda k, v: (k, None if even(v) else v))
    out(found.reduce(lambda a, v: a + "+" + v, lambda a, v: a + "-" + v))


@topology
def table_map_values_to_null_kept(builder: StreamsBuilder) -> None:
    odd = builder.table("in").map_values(lambda v: None if even(v) else v, materialized="rows")
    out(odd.group_by(lambda k, v: (v, v)).count())


@topology
def table_map_values_to_null(builder: StreamsBuilder) -> None:
    odd = builder.table("in").map_values(lambda v: None if even(v) else v)
    out(odd.filter(lambda k, v: v != "q"))


@topology
def tables_nested(builder: StreamsBuilder) -> None:
    table, second = builder.table("in"), builder.table("in2")
    found = table.left_join(second.outer_join(builder.table("in3"), both), both)
    out(found.group_by(lambda k, v: (v, v)).count())


@topology
def tables_joiner_to_null(builder: StreamsBuilder) -> None:
    def joiner(left: str | None, right: str | None) -> str | None:
        return None if left is None else left + text(right)

    table = builder.table("in")
    out(table.outer_join(builder.table("in2"), joiner, materialized="rows").filter(lambda k, v: even(v)))


@topology
def table_reduce_to_null(builder: StreamsBuilder) -> None:
    found = builder.table("in").group_by(lambda k, v: (first(v), v))
    out(
        found.reduce(
            lambda a, v: None if len(a) > 20 else a + "+" + v, lambda a, v: None if v == "q" else a + "-" + v
        )
    )


# Suppression ------------------------------------------------------------------------------------------------

CLOSED = Suppressed.until_window_closes()


@topology
def suppress_zero(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).count().suppress(Suppressed.until_time_limit(0)))


@topology
def suppress_hopping_no_grace(builder: StreamsBuilder) -> None:
    room = Buffer.max_records(1000).shut_down_when_full()
    counts = grouped(builder).windowed_by(STRICT_HOPPING).count()
    windowed(counts.suppress(Suppressed.until_window_closes(room)))


@topology
def suppress_sliding_no_grace(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(STRICT_SLIDING).count().suppress(CLOSED))


@topology
def suppress_session_no_grace(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(STRICT_SESSIONS).count().suppress(CLOSED))


@topology
def suppress_session_time(builder: StreamsBuilder) -> None:
    room = Buffer.max_records(2).emit_early_when_full()
    windowed(grouped(builder).windowed_by(SESSIONS).count().suppress(Suppressed.until_time_limit(25, room)))


@topology
def suppress_tombstones(builder: StreamsBuilder) -> None:
    sums = grouped(builder).windowed_by(TUMBLING)
    windowed(sums.aggregate(lambda: "", lambda k, v, a: None if v in ("q", None) else a + v).suppress(CLOSED))


@topology
def suppress_cogrouped(builder: StreamsBuilder) -> None:
    found = grouped(builder).cogroup(lambda k, v, a: a + "1" + text(v))
    found = found.cogroup(builder.stream("in2").group_by_key(), lambda k, v, a: a + "2" + text(v))
    table = found.windowed_by(SESSIONS).aggregate(lambda: "", lambda k, x, y: x + "|" + y)
    windowed(table.suppress(CLOSED))


@topology
def suppress_of_joined_windows(builder: StreamsBuilder) -> None:
    left = grouped(builder).windowed_by(TUMBLING).count()
    right = builder.stream("in2").group_by_key().windowed_by(TimeWindows.of_size(50).grace(45)).count()
    windowed(left.outer_join(right, both, materialized=Materialized(value=STRING)).suppress(CLOSED))


@topology
def suppress_then_tables(builder: StreamsBuilder) -> None:
    held = builder.table("in").suppress(Suppressed.until_time_limit(30))
    out(held.left_join(builder.table("in2"), both))


@topology
def suppress_after_tables(builder: StreamsBuilder) -> None:
    left = builder.table("in2")
    held = builder.table("in").suppress(Suppressed.until_time_limit(30, Buffer.max_records(1), name="held"))
    out(left.left_join(held, both).filter(lambda k, v: even(v)))


@topology
def suppress_twice(builder: StreamsBuilder) -> None:
    loud = builder.table("in").suppress(Suppressed.until_time_limit(20)).map_values(lambda v: v + "!")
    out(loud.suppress(Suppressed.until_time_limit(10, Buffer.max_bytes(120))))


# Plans ------------------------------------------------------------------------------------------------------


@topology
def cogroup_used_twice_named(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").map(lambda k, v: (v, k))
    one = stream.group_by_key(name="foo").cogroup(lambda k, v, a: a + "1" + v)
    one.aggregate(lambda: "").to_stream().to("out")
    one.aggregate(lambda: "-").to_stream().to("out2")
    builder.stream("in2").to("out3")


@topology
def cogroup_used_twice(builder: StreamsBuilder) -> None:
    found = by_letter(builder).cogroup(lambda k, v, a: a + "1" + text(v))
    found = found.cogroup(builder.stream("in2").group_by_key(), lambda k, v, a: a + "2" + text(v))
    found.aggregate(lambda: "").to_stream().to("out")
    by_key(found.windowed_by(TUMBLING).aggregate(lambda: "-"), "out2")


@topology
def cogroup_grouped_used_twice(builder: StreamsBuilder) -> None:
    one = by_letter(builder)
    two = builder.stream("in2").group_by_key()
    for topic, this, other in (("out", "1", "2"), ("out2", "3", "4")):
        found = one.cogroup(lambda k, v, a, this=this: a + this + v)
        found = found.cogroup(two, lambda k, v, a, other=other: a + other + v)
        found.aggregate(lambda: "").to_stream().to(topic)
    one.count().to_stream().to("out3")


@topology
def cogroup_same_stream_again(builder: StreamsBuilder) -> None:
    one = grouped(builder)
    found = one.cogroup(lambda k, v, a: a + "1" + v)
    found = found.cogroup(builder.stream("in2").group_by_key(), lambda k, v, a: a + "2" + v)
    out(found.cogroup(one, lambda k, v, a: a + "3" + v).aggregate(lambda: ""))


@topology
def cogroup_then_join(builder: StreamsBuilder) -> None:
    found = grouped(builder).cogroup(lambda k, v, a: a + "1" + v).aggregate(lambda: "")
    out(found.join(builder.table("in2"), both))


@topology
def same_topics_in_another_order(builder: StreamsBuilder) -> None:
    builder.stream(["in", "in2"]).filter(lambda k, v: even(v)).to("out")
    builder.stream(["in2", "in"]).map_values(lambda v: text(v) + "!").to("out2")


@topology
def repartition_suffixed(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").repartition(name="by-hand-repartition")
    stream.merge(builder.stream("in2")).repartition().to("out")


@topology
def to_table_rekeyed_named(builder: StreamsBuilder) -> None:
    stream = rekeyed(builder, "in")
    table = stream.to_table(name="newest", materialized="rows")
    out(table.outer_join(builder.table("in2"), both, name="pairs"))
    sessions = stream.group_by_key(name="letters").windowed_by(SESSIONS)
    by_key(sessions.reduce(plus, name="sums", materialized="sum-rows"), "out2")


@topology
def windows_of_one_named_group(builder: StreamsBuilder) -> None:
    letters = rekeyed(builder, "in").group_by_key(name="grouping")
    by_key(letters.windowed_by(TUMBLING).count(), "out")
    by_key(letters.windowed_by(STRICT_SLIDING).count(), "out2")
    by_key(letters.windowed_by(SESSIONS).count(name="sessions"), "out3")
    builder.stream("in2").to("out4")


@topology
def split_rekeyed(builder: StreamsBuilder) -> None:
    ways = rekeyed(builder, "in").split(name="way-").branch(lambda k, v: even(v)).default_branch()
    out(ways["way-1"].group_by_key().count())
    ways["way-0"].merge(builder.stream("in2")).to_table().to_stream().to("out2")


@topology
def global_lookup_then_count(builder: StreamsBuilder) -> None:
    table = builder.global_table("in2")
    found = rekeyed(builder, "in").left_join(table, both, key=lambda k, v: k)
    out(found.group_by_key().count())
