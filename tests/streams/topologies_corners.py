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
    return lambda b: windowed(grouped(b).windowed_by(windows).count())


def _final(windows: Any) -> Build:
    return lambda b: windowed(grouped(b).windowed_by(windows).emit_final().count())


BUILDS["session_gap_zero"] = _count(SessionWindows.of(0))
BUILDS["session_gap_zero_grace"] = _count(SessionWindows.of(0).grace(5))
BUILDS["session_no_grace"] = _count(STRICT_SESSIONS)
BUILDS["hopping_no_grace"] = _count(STRICT_HOPPING)
BUILDS["final_hopping_no_grace"] = _final(STRICT_HOPPING)
BUILDS["final_sliding_no_grace"] = _final(STRICT_SLIDING)
BUILDS["final_session_no_grace"] = _final(STRICT_SESSIONS)
BUILDS["final_session_jumps"] = _final(SESSIONS)


@topology
def sliding_wide(b: StreamsBuilder) -> None:
    wide = grouped(b).windowed_by(SlidingWindows.of(200).grace(10))
    windowed(wide.aggregate(lambda: "", lambda k, v, a: "" if v == "q" else a + v))


@topology
def final_tumbling_jumps(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).emit_final().reduce(lambda a, v: f"{text(v)}+{a}"))


@topology
def final_then_regroup(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(TUMBLING).emit_final().count()
    regrouped = counts.group_by(lambda w, v: (w.key, v), key=STRING, value=LONG)
    out(regrouped.reduce(lambda a, v: a + v, lambda a, v: a - v))


@topology
def windowed_tables_left(b: StreamsBuilder) -> None:
    left = grouped(b).windowed_by(TUMBLING).count()
    windowed(left.left_join(b.stream("in2").group_by_key().windowed_by(TUMBLING).count(), both))


@topology
def session_tables_outer(b: StreamsBuilder) -> None:
    left = grouped(b).windowed_by(SESSIONS).count()
    windowed(left.outer_join(b.stream("in2").group_by_key().windowed_by(SESSIONS).count(), both))


# Joins of streams -------------------------------------------------------------------------------------------


def _join(kind: str, windows: JoinWindows) -> Build:
    def build(b: StreamsBuilder) -> None:
        left = b.stream("in")
        getattr(left, kind)(b.stream("in2"), both, windows).to("out")

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
def stream_outer_with_itself(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.outer_join(stream.filter(lambda k, v: even(v)), both, EVEN).to("out")


@topology
def stream_left_three(b: StreamsBuilder) -> None:
    left = b.stream("in")
    pairs = left.left_join(b.stream("in2"), both, EVEN)
    pairs.left_join(b.stream("in3"), both, EVEN).to("out")


@topology
def stream_outer_rekeyed_named(b: StreamsBuilder) -> None:
    left = rekeyed(b, "in")
    left.outer_join(rekeyed(b, "in2"), both, EVEN, **NAMED).to("out")


@topology
def repartition_then_left_join(b: StreamsBuilder) -> None:
    left = rekeyed(b, "in").repartition().map_values(lambda v: text(v) + "!")
    left.left_join(b.stream("in2"), both, EVEN).to("out")


@topology
def repartition_then_both(b: StreamsBuilder) -> None:
    stream = rekeyed(b, "in").repartition(name="letters")
    stream.left_join(b.table("in2"), both).to("out")
    out(stream.group_by_key().count())


@topology
def rekeyed_joined_by_two_names(b: StreamsBuilder) -> None:
    stream = rekeyed(b, "in")
    stream.join(b.stream("in2"), both, EVEN, name="first", store_name="first-store").to("out")
    stream.join(b.table("in3"), both, name="second").to("out2")


@topology
def rekeyed_joined_twice_with_tables(b: StreamsBuilder) -> None:
    stream = rekeyed(b, "in")
    stream.join(b.table("in2"), both).to("out")
    stream.left_join(b.table("in3"), both).to("out2")


@topology
def lookup_in_left_join(b: StreamsBuilder) -> None:
    stream, table = b.stream("in"), b.table("in2")
    stream.left_join(table.left_join(b.table("in3"), both), both).to("out")


@topology
def lookup_in_outer_join(b: StreamsBuilder) -> None:
    stream, table = b.stream("in"), b.table("in2")
    stream.left_join(table.outer_join(b.table("in3"), both), both).to("out")


# Tables -----------------------------------------------------------------------------------------------------


def _sometimes(value: str) -> str | None:
    return None if even(value) else last(value)


def _foreign(kind: str, foreign_key: Any) -> Build:
    def build(b: StreamsBuilder) -> None:
        table = b.table("in")
        out(getattr(table, kind)(b.table("in2"), both, foreign_key=foreign_key))

    return build


BUILDS["foreign_inner_by_key"] = _foreign("join", lambda k, v: k if even(v) else last(v))
BUILDS["foreign_left_sometimes"] = _foreign("left_join", _sometimes)
BUILDS["foreign_inner_sometimes"] = _foreign("join", _sometimes)


@topology
def foreign_with_itself(b: StreamsBuilder) -> None:
    table = b.table("in")
    out(table.left_join(table, both, foreign_key=last))
    b.stream("in2").to("out2")


@topology
def foreign_twice(b: StreamsBuilder) -> None:
    table = b.table("in")
    pairs = table.join(b.table("in2"), both, foreign_key=last)
    out(pairs.left_join(b.table("in3"), both, foreign_key=lambda v: v[:1]))


@topology
def foreign_of_counts(b: StreamsBuilder) -> None:
    left = grouped(b).reduce(lambda a, v: v + a)
    right = b.stream("in2").group_by(lambda k, v: first(v)).count()
    out(left.left_join(right, both, foreign_key=last, name="pairs"))


@topology
def foreign_filtered(b: StreamsBuilder) -> None:
    left = b.table("in").filter(lambda k, v: v != "", materialized="some")
    right = b.table("in2").map_values(lambda v: v + "!")
    out(left.left_join(right, both, foreign_key=last).filter(lambda k, v: even(v)))


@topology
def regroup_nowhere(b: StreamsBuilder) -> None:
    def group(_key: str, value: str) -> Any:
        return None if even(value) else (None if value == "q" else first(value), value)

    out(b.table("in").group_by(group).count())


@topology
def regroup_null_values(b: StreamsBuilder) -> None:
    found = b.table("in").group_by(lambda k, v: (k, None if even(v) else v))
    out(found.reduce(lambda a, v: a + "+" + v, lambda a, v: a + "-" + v))


@topology
def table_map_values_to_null_kept(b: StreamsBuilder) -> None:
    odd = b.table("in").map_values(lambda v: None if even(v) else v, materialized="rows")
    out(odd.group_by(lambda k, v: (v, v)).count())


@topology
def table_map_values_to_null(b: StreamsBuilder) -> None:
    odd = b.table("in").map_values(lambda v: None if even(v) else v)
    out(odd.filter(lambda k, v: v != "q"))


@topology
def tables_nested(b: StreamsBuilder) -> None:
    table, second = b.table("in"), b.table("in2")
    found = table.left_join(second.outer_join(b.table("in3"), both), both)
    out(found.group_by(lambda k, v: (v, v)).count())


@topology
def tables_joiner_to_null(b: StreamsBuilder) -> None:
    def joiner(left: str | None, right: str | None) -> str | None:
        return None if left is None else left + text(right)

    table = b.table("in")
    out(table.outer_join(b.table("in2"), joiner, materialized="rows").filter(lambda k, v: even(v)))


@topology
def table_reduce_to_null(b: StreamsBuilder) -> None:
    found = b.table("in").group_by(lambda k, v: (first(v), v))
    out(
        found.reduce(
            lambda a, v: None if len(a) > 20 else a + "+" + v, lambda a, v: None if v == "q" else a + "-" + v
        )
    )


# Suppression ------------------------------------------------------------------------------------------------

CLOSED = Suppressed.until_window_closes()


@topology
def suppress_zero(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).count().suppress(Suppressed.until_time_limit(0)))


@topology
def suppress_hopping_no_grace(b: StreamsBuilder) -> None:
    room = Buffer.max_records(1000).shut_down_when_full()
    counts = grouped(b).windowed_by(STRICT_HOPPING).count()
    windowed(counts.suppress(Suppressed.until_window_closes(room)))


@topology
def suppress_sliding_no_grace(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(STRICT_SLIDING).count().suppress(CLOSED))


@topology
def suppress_session_no_grace(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(STRICT_SESSIONS).count().suppress(CLOSED))


@topology
def suppress_session_time(b: StreamsBuilder) -> None:
    room = Buffer.max_records(2).emit_early_when_full()
    windowed(grouped(b).windowed_by(SESSIONS).count().suppress(Suppressed.until_time_limit(25, room)))


@topology
def suppress_tombstones(b: StreamsBuilder) -> None:
    sums = grouped(b).windowed_by(TUMBLING)
    windowed(sums.aggregate(lambda: "", lambda k, v, a: None if v in ("q", None) else a + v).suppress(CLOSED))


@topology
def suppress_cogrouped(b: StreamsBuilder) -> None:
    found = grouped(b).cogroup(lambda k, v, a: a + "1" + text(v))
    found = found.cogroup(b.stream("in2").group_by_key(), lambda k, v, a: a + "2" + text(v))
    table = found.windowed_by(SESSIONS).aggregate(lambda: "", lambda k, x, y: x + "|" + y)
    windowed(table.suppress(CLOSED))


@topology
def suppress_of_joined_windows(b: StreamsBuilder) -> None:
    left = grouped(b).windowed_by(TUMBLING).count()
    right = b.stream("in2").group_by_key().windowed_by(TimeWindows.of_size(50).grace(45)).count()
    windowed(left.outer_join(right, both, materialized=Materialized(value=STRING)).suppress(CLOSED))


@topology
def suppress_then_tables(b: StreamsBuilder) -> None:
    held = b.table("in").suppress(Suppressed.until_time_limit(30))
    out(held.left_join(b.table("in2"), both))


@topology
def suppress_after_tables(b: StreamsBuilder) -> None:
    left = b.table("in2")
    held = b.table("in").suppress(Suppressed.until_time_limit(30, Buffer.max_records(1), name="held"))
    out(left.left_join(held, both).filter(lambda k, v: even(v)))


@topology
def suppress_twice(b: StreamsBuilder) -> None:
    loud = b.table("in").suppress(Suppressed.until_time_limit(20)).map_values(lambda v: v + "!")
    out(loud.suppress(Suppressed.until_time_limit(10, Buffer.max_bytes(120))))


# Plans ------------------------------------------------------------------------------------------------------


@topology
def cogroup_used_twice_named(b: StreamsBuilder) -> None:
    stream = b.stream("in").map(lambda k, v: (v, k))
    one = stream.group_by_key(name="foo").cogroup(lambda k, v, a: a + "1" + v)
    one.aggregate(lambda: "").to_stream().to("out")
    one.aggregate(lambda: "-").to_stream().to("out2")
    b.stream("in2").to("out3")


@topology
def cogroup_used_twice(b: StreamsBuilder) -> None:
    found = by_letter(b).cogroup(lambda k, v, a: a + "1" + text(v))
    found = found.cogroup(b.stream("in2").group_by_key(), lambda k, v, a: a + "2" + text(v))
    found.aggregate(lambda: "").to_stream().to("out")
    by_key(found.windowed_by(TUMBLING).aggregate(lambda: "-"), "out2")


@topology
def cogroup_grouped_used_twice(b: StreamsBuilder) -> None:
    one = by_letter(b)
    two = b.stream("in2").group_by_key()
    for topic, this, other in (("out", "1", "2"), ("out2", "3", "4")):
        found = one.cogroup(lambda k, v, a, this=this: a + this + v)
        found = found.cogroup(two, lambda k, v, a, other=other: a + other + v)
        found.aggregate(lambda: "").to_stream().to(topic)
    one.count().to_stream().to("out3")


@topology
def cogroup_same_stream_again(b: StreamsBuilder) -> None:
    one = grouped(b)
    found = one.cogroup(lambda k, v, a: a + "1" + v)
    found = found.cogroup(b.stream("in2").group_by_key(), lambda k, v, a: a + "2" + v)
    out(found.cogroup(one, lambda k, v, a: a + "3" + v).aggregate(lambda: ""))


@topology
def cogroup_then_join(b: StreamsBuilder) -> None:
    found = grouped(b).cogroup(lambda k, v, a: a + "1" + v).aggregate(lambda: "")
    out(found.join(b.table("in2"), both))


@topology
def same_topics_in_another_order(b: StreamsBuilder) -> None:
    b.stream(["in", "in2"]).filter(lambda k, v: even(v)).to("out")
    b.stream(["in2", "in"]).map_values(lambda v: text(v) + "!").to("out2")


@topology
def repartition_suffixed(b: StreamsBuilder) -> None:
    stream = b.stream("in").repartition(name="by-hand-repartition")
    stream.merge(b.stream("in2")).repartition().to("out")


@topology
def to_table_rekeyed_named(b: StreamsBuilder) -> None:
    stream = rekeyed(b, "in")
    table = stream.to_table(name="newest", materialized="rows")
    out(table.outer_join(b.table("in2"), both, name="pairs"))
    sessions = stream.group_by_key(name="letters").windowed_by(SESSIONS)
    by_key(sessions.reduce(plus, name="sums", materialized="sum-rows"), "out2")


@topology
def windows_of_one_named_group(b: StreamsBuilder) -> None:
    letters = rekeyed(b, "in").group_by_key(name="grouping")
    by_key(letters.windowed_by(TUMBLING).count(), "out")
    by_key(letters.windowed_by(STRICT_SLIDING).count(), "out2")
    by_key(letters.windowed_by(SESSIONS).count(name="sessions"), "out3")
    b.stream("in2").to("out4")


@topology
def split_rekeyed(b: StreamsBuilder) -> None:
    ways = rekeyed(b, "in").split(name="way-").branch(lambda k, v: even(v)).default_branch()
    out(ways["way-1"].group_by_key().count())
    ways["way-0"].merge(b.stream("in2")).to_table().to_stream().to("out2")


@topology
def global_lookup_then_count(b: StreamsBuilder) -> None:
    table = b.global_table("in2")
    found = rekeyed(b, "in").left_join(table, both, key=lambda k, v: k)
    out(found.group_by_key().count())
