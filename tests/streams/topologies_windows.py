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
def tumbling_count(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).count())


@topology
def tumbling_no_grace(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(STRICT).count())


BUILDS["tumbling_jumps"] = tumbling_count


@topology
def tumbling_reduce(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).reduce(plus))


@topology
def tumbling_aggregate(b: StreamsBuilder) -> None:
    kept = Materialized("sums", retention=100_000)
    add = grouped(b).windowed_by(TUMBLING)
    windowed(add.aggregate(lambda: "", lambda k, v, a: None if v == "q" else a + text(v), materialized=kept))


@topology
def tumbling_with_serdes(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).count(materialized=Materialized(key=STRING, value=LONG)))


@topology
def tumbling_by_letter(b: StreamsBuilder) -> None:
    windowed(by_letter(b).windowed_by(TUMBLING).count(name="counter"))


@topology
def tumbling_to_topic(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(TUMBLING).count().to_stream().to("out", key=time_windowed(STRING, 50))


@topology
def hopping_count(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(HOPPING).count())


@topology
def hopping_reduce(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(HOPPING).reduce(plus))


@topology
def sliding_count(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SLIDING).count())


BUILDS["sliding_dense"] = sliding_count


@topology
def sliding_no_grace(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SlidingWindows.of(20)).count())


@topology
def sliding_reduce(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SLIDING).reduce(plus))


@topology
def sliding_aggregate(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SLIDING).aggregate(lambda: "", lambda k, v, a: a + v))


@topology
def session_count(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SESSIONS).count())


BUILDS["session_jumps"] = session_count


@topology
def session_dense(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SESSIONS).count(materialized="sessions"))


@topology
def session_reduce(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SESSIONS).reduce(plus))


@topology
def session_aggregate(b: StreamsBuilder) -> None:
    add = grouped(b).windowed_by(SESSIONS)
    windowed(
        add.aggregate(
            lambda: "", lambda k, v, a: a + text(v), lambda k, x, y: x + "|" + y, materialized="sessions"
        )
    )


@topology
def session_to_topic(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(SESSIONS).count().to_stream().to("out", key=session_windowed(STRING))


@topology
def session_by_letter(b: StreamsBuilder) -> None:
    windowed(by_letter(b).windowed_by(SESSIONS).count())


@topology
def window_then_regroup(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(TUMBLING).count()
    regrouped = counts.group_by(lambda w, v: (w.key, v), key=STRING, value=LONG)
    out(regrouped.reduce(lambda a, v: a + v, lambda a, v: a - v))


@topology
def session_then_regroup(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(SESSIONS).count()
    regrouped = counts.group_by(lambda w, v: (w.key, v), key=STRING, value=LONG)
    kept = Materialized(key=STRING, value=LONG)
    out(regrouped.aggregate(lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v, materialized=kept))


@topology
def window_filter(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(TUMBLING).count().filter(lambda w, v: v % 2 == 1)
    counts.map_values(lambda v: v * 10).to_stream(
        lambda key, _: f"{key.key}@{key.window.start}/{key.window.end}"
    ).to("out", key=STRING, value=LONG)


def _cogrouped(b: StreamsBuilder) -> Any:
    found = grouped(b).cogroup(lambda k, v, a: a + "1" + text(v))
    return found.cogroup(b.stream("in2").group_by_key(), lambda k, v, a: a + "2" + text(v))


@topology
def cogroup_tumbling(b: StreamsBuilder) -> None:
    windowed(_cogrouped(b).windowed_by(TUMBLING).aggregate(lambda: ""))


@topology
def cogroup_sliding(b: StreamsBuilder) -> None:
    windowed(_cogrouped(b).windowed_by(SLIDING).aggregate(lambda: ""))


@topology
def cogroup_session(b: StreamsBuilder) -> None:
    windowed(_cogrouped(b).windowed_by(SESSIONS).aggregate(lambda: "", lambda k, x, y: x + "|" + y))


@topology
def final_tumbling(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).emit_final().count())


@topology
def final_tumbling_eager(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).emit_final().count())


@topology
def final_hopping_eager(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(HOPPING).emit_final().count())


@topology
def final_sliding_eager(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SLIDING).emit_final().count())


@topology
def final_session_eager(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SESSIONS).emit_final().count())


# Suppression ------------------------------------------------------------------------------------------------


@topology
def suppress_tumbling(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(TUMBLING).count().suppress(Suppressed.until_window_closes()))


@topology
def suppress_tumbling_named(b: StreamsBuilder) -> None:
    counts = by_letter(b).windowed_by(TUMBLING).count().filter(lambda w, v: v > 1)
    windowed(counts.suppress(Suppressed.until_window_closes(name="final-counts")))


@topology
def suppress_sliding(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SLIDING).count().suppress(Suppressed.until_window_closes()))


@topology
def suppress_session(b: StreamsBuilder) -> None:
    windowed(grouped(b).windowed_by(SESSIONS).count().suppress(Suppressed.until_window_closes()))


@topology
def suppress_time(b: StreamsBuilder) -> None:
    out(b.table("in").suppress(Suppressed.until_time_limit(40)))


@topology
def suppress_records(b: StreamsBuilder) -> None:
    out(grouped(b).count().suppress(Suppressed.until_time_limit(1000, Buffer.max_records(3))))


@topology
def suppress_bytes(b: StreamsBuilder) -> None:
    out(b.table("in").suppress(Suppressed.until_time_limit(1000, Buffer.max_bytes(150))))


@topology
def suppress_nothing(b: StreamsBuilder) -> None:
    room = Buffer.max_records(1).with_max_bytes(1)
    out(grouped(b).count().suppress(Suppressed.until_time_limit(0, room)))


@topology
def suppress_then_regroup(b: StreamsBuilder) -> None:
    held = b.table("in", materialized="rows").suppress(Suppressed.until_time_limit(30))
    out(held.group_by(lambda k, v: (v, v)).count())


@topology
def suppress_then_join(b: StreamsBuilder) -> None:
    stream = b.stream("in2")
    held = b.table("in").suppress(Suppressed.until_time_limit(30))
    stream.join(held, both).to("out")
