"""The topologies of the vectors: windows and suppression."""

from __future__ import annotations

from typing import Any

from millstream.streams import Buffer, Materialized, SlidingWindows, StreamsBuilder, Suppressed
from millstream.streams.serdes import LONG, STRING, session_windowed, time_windowed
from tests.streams.kit import (
    BUILDS,
    HOPPING,
    SESSIONS,
    SLIDING,
    STRICT,
    TUMBLING,
    both,
    by_letter,
    grouped,
    out,
    plus,
    text,
    topology,
    windowed,
)

# Windows ----------------------------------------------------------------------------------------------------


@topology
def tumbling_count(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).count())


@topology
def tumbling_no_grace(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(STRICT).count())


BUILDS["tumbling_jumps"] = tumbling_count


@topology
def tumbling_reduce(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).reduce(plus))


@topology
def tumbling_aggregate(builder: StreamsBuilder) -> None:
    kept = Materialized("sums", retention=100_000)
    add = grouped(builder).windowed_by(TUMBLING)
    windowed(add.aggregate(lambda: "", lambda k, v, a: None if v == "q" else a + text(v), materialized=kept))


@topology
def tumbling_with_serdes(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).count(materialized=Materialized(key=STRING, value=LONG)))


@topology
def tumbling_by_letter(builder: StreamsBuilder) -> None:
    windowed(by_letter(builder).windowed_by(TUMBLING).count(name="counter"))


@topology
def tumbling_to_topic(builder: StreamsBuilder) -> None:
    grouped(builder).windowed_by(TUMBLING).count().to_stream().to("out", key=time_windowed(STRING, 50))


@topology
def hopping_count(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(HOPPING).count())


@topology
def hopping_reduce(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(HOPPING).reduce(plus))


@topology
def sliding_count(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SLIDING).count())


BUILDS["sliding_dense"] = sliding_count


@topology
def sliding_no_grace(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SlidingWindows.of(20)).count())


@topology
def sliding_reduce(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SLIDING).reduce(plus))


@topology
def sliding_aggregate(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SLIDING).aggregate(lambda: "", lambda k, v, a: a + v))


@topology
def session_count(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SESSIONS).count())


BUILDS["session_jumps"] = session_count


@topology
def session_dense(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SESSIONS).count(materialized="sessions"))


@topology
def session_reduce(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SESSIONS).reduce(plus))


@topology
def session_aggregate(builder: StreamsBuilder) -> None:
    add = grouped(builder).windowed_by(SESSIONS)
    windowed(
        add.aggregate(
            lambda: "", lambda k, v, a: a + text(v), lambda k, x, y: x + "|" + y, materialized="sessions"
        )
    )


@topology
def session_to_topic(builder: StreamsBuilder) -> None:
    grouped(builder).windowed_by(SESSIONS).count().to_stream().to("out", key=session_windowed(STRING))


@topology
def session_by_letter(builder: StreamsBuilder) -> None:
    windowed(by_letter(builder).windowed_by(SESSIONS).count())


@topology
def window_then_regroup(builder: StreamsBuilder) -> None:
    counts = grouped(builder).windowed_by(TUMBLING).count()
    regrouped = counts.group_by(lambda w, v: (w.key, v), key=STRING, value=LONG)
    out(regrouped.reduce(lambda a, v: a + v, lambda a, v: a - v))


@topology
def session_then_regroup(builder: StreamsBuilder) -> None:
    counts = grouped(builder).windowed_by(SESSIONS).count()
    regrouped = counts.group_by(lambda w, v: (w.key, v), key=STRING, value=LONG)
    kept = Materialized(key=STRING, value=LONG)
    out(regrouped.aggregate(lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v, materialized=kept))


@topology
def window_filter(builder: StreamsBuilder) -> None:
    counts = grouped(builder).windowed_by(TUMBLING).count().filter(lambda w, v: v % 2 == 1)
    counts.map_values(lambda v: v * 10).to_stream(
        lambda key, _: f"{key.key}@{key.window.start}/{key.window.end}"
    ).to("out", key=STRING, value=LONG)


def _cogrouped(builder: StreamsBuilder) -> Any:
    found = grouped(builder).cogroup(lambda k, v, a: a + "1" + text(v))
    return found.cogroup(builder.stream("in2").group_by_key(), lambda k, v, a: a + "2" + text(v))


@topology
def cogroup_tumbling(builder: StreamsBuilder) -> None:
    windowed(_cogrouped(builder).windowed_by(TUMBLING).aggregate(lambda: ""))


@topology
def cogroup_sliding(builder: StreamsBuilder) -> None:
    windowed(_cogrouped(builder).windowed_by(SLIDING).aggregate(lambda: ""))


@topology
def cogroup_session(builder: StreamsBuilder) -> None:
    windowed(_cogrouped(builder).windowed_by(SESSIONS).aggregate(lambda: "", lambda k, x, y: x + "|" + y))


@topology
def final_tumbling(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).emit_final().count())


@topology
def final_tumbling_eager(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).emit_final().count())


@topology
def final_hopping_eager(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(HOPPING).emit_final().count())


@topology
def final_sliding_eager(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SLIDING).emit_final().count())


@topology
def final_session_eager(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SESSIONS).emit_final().count())


# Suppression ------------------------------------------------------------------------------------------------


@topology
def suppress_tumbling(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(TUMBLING).count().suppress(Suppressed.until_window_closes()))


@topology
def suppress_tumbling_named(builder: StreamsBuilder) -> None:
    counts = by_letter(builder).windowed_by(TUMBLING).count().filter(lambda w, v: v > 1)
    windowed(counts.suppress(Suppressed.until_window_closes(name="final-counts")))


@topology
def suppress_sliding(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SLIDING).count().suppress(Suppressed.until_window_closes()))


@topology
def suppress_session(builder: StreamsBuilder) -> None:
    windowed(grouped(builder).windowed_by(SESSIONS).count().suppress(Suppressed.until_window_closes()))


@topology
def suppress_time(builder: StreamsBuilder) -> None:
    out(builder.table("in").suppress(Suppressed.until_time_limit(40)))


@topology
def suppress_records(builder: StreamsBuilder) -> None:
    out(grouped(builder).count().suppress(Suppressed.until_time_limit(1000, Buffer.max_records(3))))


@topology
def suppress_bytes(builder: StreamsBuilder) -> None:
    out(builder.table("in").suppress(Suppressed.until_time_limit(1000, Buffer.max_bytes(150))))


@topology
def suppress_nothing(builder: StreamsBuilder) -> None:
    room = Buffer.max_records(1).with_max_bytes(1)
    out(grouped(builder).count().suppress(Suppressed.until_time_limit(0, room)))


@topology
def suppress_then_regroup(builder: StreamsBuilder) -> None:
    held = builder.table("in", materialized="rows").suppress(Suppressed.until_time_limit(30))
    out(held.group_by(lambda k, v: (v, v)).count())


@topology
def suppress_then_join(builder: StreamsBuilder) -> None:
    stream = builder.stream("in2")
    held = builder.table("in").suppress(Suppressed.until_time_limit(30))
    stream.join(held, both).to("out")
