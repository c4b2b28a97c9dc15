"""Topologies as data, which Python and Java (tests/interop/streams-java, `Plans`) build alike.

A plan is a list of steps, each an operation on earlier results. Keys and values are text. `plan_maker` makes
plans up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.streams import (
    STREAM_TIME,
    WALL_CLOCK,
    Buffer,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    ValueTransformer,
    Windowed,
    key_value_store,
)
from millstream.streams.serdes import LONG, STRING

Step = dict[str, Any]


# What a plan does -------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, Windowed):
        return f"{value.key}@{value.window.start}"
    return "null" if value is None else str(value)


def _cut(text: str) -> str:
    return text[-24:]


def _predicate(name: str) -> Callable[[Any, Any], bool]:
    return {
        "even": lambda k, v: v is not None and len(v) % 2 == 0,
        "short": lambda k, v: v is not None and len(v) < 3,
        "not_q": lambda k, v: v != "q",
        "key_ab": lambda k, v: k is not None and _text(k) < "c",
    }[name]


def _key(name: str) -> Callable[[Any, Any], Any]:
    return {
        "first": lambda k, v: v[0] if v else None,
        "last": lambda k, v: v[-1] if v else None,
        "length": lambda k, v: None if v is None else str(len(v) % 3),
        "same": lambda k, v: k,
        "last_or_key": lambda k, v: k if v is None or len(v) < 2 else v[-1],
    }[name]


def _value(name: str) -> Callable[[Any, Any], Any]:
    return {
        "bang": lambda k, v: _cut(_text(v) + "!"),
        "even_null": lambda k, v: None if v is not None and len(v) % 2 == 0 else v,
        "head": lambda k, v: None if v is None else v[:2],
        "keyed": lambda k, v: _cut(_text(k) + _text(v)),
    }[name]


def _aggregator(name: str, sign: str) -> Callable[[Any, Any, Any], Any]:
    if name == "null_q":
        return lambda k, v, a: None if v == "q" else _cut(_text(a) + sign + _text(v))
    return lambda k, v, a: _cut(_text(a) + sign + _text(v))


def _both(left: Any, right: Any) -> str:
    return _cut(f"{_text(left)}/{_text(right)}")


def _sum(a: str, v: str) -> str:
    return _cut(f"{_text(a)}+{_text(v)}")


def _difference(a: str, v: str) -> str:
    return _cut(f"{_text(a)}-{_text(v)}")


def _merged(_key: Any, x: Any, y: Any) -> str:
    return _cut(f"{_text(x)}|{_text(y)}")


def _empty() -> str:
    return ""


def _letters(value: str | None) -> list[str]:
    return list(value or "")[:3]


class Ticker(Processor):
    """Keeps the newest value of a key; sends all of them every some milliseconds of stream time, and how many
    there are by the wall clock."""

    def __init__(self, store: str, every: int, wall: int) -> None:
        self.store, self.every, self.wall = store, every, wall

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(self.every, STREAM_TIME, self._tick)
        if self.wall:
            context.schedule(self.wall, WALL_CLOCK, self._count)

    def _tick(self, time: int) -> None:
        for key, value in list(self.context.store(self.store).all()):
            self.context.forward(Record(key, "t" + value, time))

    def _count(self, _time: int) -> None:
        store = self.context.store(self.store)
        keys = [key for key, _ in store.all()]
        self.context.forward(Record("w", str(len(keys)), max(0, self.context.stream_time)))
        if keys:
            store.delete(keys[0])

    def process(self, record: Record) -> None:
        if record.key is not None:
            self.context.store(self.store).put(record.key, record.value)
        self.context.forward(record.with_value(_cut(_text(record.value) + "#")))


class Before(ValueTransformer):
    """A value with the one before."""

    def __init__(self, store: str) -> None:
        self.store = store

    def transform(self, key: Any, value: Any) -> Any:
        rows = self.context.store(self.store)
        before = rows.get(_text(key))
        rows.put(_text(key), "-" if value is None else value)
        return None if value is None and before is None else _cut(f"{_text(before)}>{_text(value)}")


def _kept(step: Step, value: Any = STRING) -> Materialized | None:
    kept = step.get("kept")
    if kept is None:
        return None
    return Materialized(kept.get("name"), STRING, value, history=kept.get("history"))


def _windows(spec: Step) -> Any:
    kind = spec["kind"]
    if kind == "time":
        return TimeWindows.of_size(spec["size"]).grace(spec["grace"]).advance_by(spec["advance"])
    return (SlidingWindows if kind == "sliding" else SessionWindows).of(spec["size"]).grace(spec["grace"])


def build(steps: list[Step], builder: StreamsBuilder) -> None:
    made: dict[str, Any] = {}
    for step in steps:
        of = step.get("of")
        parent = [made[one] for one in of] if isinstance(of, list) else made.get(of)  # type: ignore[arg-type]
        other = made.get(step.get("with"))  # type: ignore[arg-type]
        result = _OPERATIONS[step["op"]](builder, step, parent, other)
        if "out" in step:
            made[step["out"]] = result


def _counted(table: Any) -> Any:
    return table.map_values(lambda n: None if n is None else f"n{n}")


def _aggregate(grouped: Any, step: Step, merger: bool = False) -> Any:
    f = step["f"]
    options: Step = {"name": step.get("name"), "materialized": _kept(step, LONG if f == "count" else STRING)}
    if f == "count":
        return _counted(grouped.count(**options))
    if f == "reduce":
        return grouped.reduce(_sum, **options)
    more = (_merged,) if merger else ()
    return grouped.aggregate(_empty, _aggregator(f, "+"), *more, **options)


def _windowed(step: Step, grouped: Any) -> Any:
    windows = _windows(step["windows"])
    stream = grouped.windowed_by(windows)
    if step["final"]:
        stream = stream.emit_final()
    return _aggregate(stream, step, isinstance(windows, SessionWindows))


def _cogroup(step: Step, groups: list[Any]) -> Any:
    found = groups[0].cogroup(_aggregator(step["f"], "0"))
    for number, group in enumerate(groups[1:], 1):
        found = found.cogroup(group, _aggregator(step["f"], str(number)))
    options: Step = {"name": step.get("name"), "materialized": _kept(step)}
    if step.get("windows") is None:
        return found.aggregate(_empty, **options)
    windows = _windows(step["windows"])
    more = (_merged,) if isinstance(windows, SessionWindows) else ()
    return found.windowed_by(windows).aggregate(_empty, *more, **options)


def _table_aggregate(step: Step, grouped: Any) -> Any:
    f = step["f"]
    options: Step = {"name": step.get("name"), "materialized": _kept(step, LONG if f == "count" else STRING)}
    if f == "count":
        return _counted(grouped.count(**options))
    if f == "reduce":
        return grouped.reduce(_sum, _difference, **options)
    return grouped.aggregate(_empty, _aggregator(f, "+"), _aggregator(f, "-"), **options)


_SIDES = {"inner": "join", "left": "left_join", "outer": "outer_join"}


def _stream_join(step: Step, left: Any, right: Any) -> Any:
    windows = JoinWindows.of(step["within"]).grace(step["grace"])
    if step.get("before") is not None:
        windows = windows.before(step["before"])
    if step.get("after") is not None:
        windows = windows.after(step["after"])
    options: Step = {"key_serde": STRING, "value_serde": STRING, "other_serde": STRING}
    join = getattr(left, _SIDES[step["side"]])
    return join(right, _both, windows, name=step.get("name"), store_name=step.get("store"), **options)


def _lookup(step: Step, stream: Any, table: Any) -> Any:
    join = getattr(stream, _SIDES[step["side"]])
    return join(
        table, _both, name=step.get("name"), grace=step.get("grace"), key_serde=STRING, value_serde=STRING
    )


def _global_lookup(step: Step, stream: Any, table: Any) -> Any:
    return getattr(stream, _SIDES[step["side"]])(table, _both, key=_key(step["f"]))


def _split(step: Step, stream: Any) -> Any:
    branches = stream.split(name=step.get("name"))
    for branch in step["branches"]:
        branches.branch(_predicate(branch["f"]), name=branch.get("name"))
    return branches.default_branch() if step["default"] else branches.no_default_branch()


def _group(step: Step, stream: Any) -> Any:
    options: Step = {"name": step.get("name"), "key": STRING, "value": STRING}
    if step.get("f") is None:
        return stream.group_by_key(**options)
    return stream.group_by(_key(step["f"]), **options)


def _table_group(step: Step, table: Any) -> Any:
    select = _key(step["f"])

    def pair(key: Any, value: Any) -> tuple[Any, Any]:
        return select(key.key if isinstance(key, Windowed) else key, value), value

    return table.group_by(pair, name=step.get("name"), key=STRING, value=STRING)


def _tick(step: Step, stream: Any) -> Any:
    store, every, wall = step["store"], step["every"], step["wall"]
    return stream.process(lambda: Ticker(store, every, wall), stores=[key_value_store(store)])


def _transform_values(step: Step, table: Any) -> Any:
    store = step["store"]
    stores = [key_value_store(store)]
    return table.transform_values(lambda: Before(store), stores=stores, materialized=_kept(step))


def _suppress(step: Step, table: Any) -> Any:
    if step.get("wait") is None:
        return table.suppress(Suppressed.until_window_closes(name=step.get("name")))
    room = Buffer.unbounded()
    if step.get("records") is not None:
        room = Buffer.max_records(step["records"])
    if step.get("bytes") is not None:
        limited = step.get("records") is not None
        room = room.with_max_bytes(step["bytes"]) if limited else Buffer.max_bytes(step["bytes"])
    return table.suppress(Suppressed.until_time_limit(step["wait"], room, name=step.get("name")))


def _ends(key: Any, _value: Any) -> Any:
    return f"{key.key}@{key.window.start}-{key.window.end}" if isinstance(key, Windowed) else key


def _options(step: Step) -> Step:
    return {"name": step.get("name"), "materialized": _kept(step)}


def _foreign_join(step: Step, left: Any, right: Any) -> Any:
    key, kept = _key(step["f"]), _kept(step) or Materialized(None, STRING, STRING)
    join = getattr(left, _SIDES[step["side"]])
    return join(right, _both, foreign_key=key, name=step.get("name"), materialized=kept)


def _table_join(step: Step, left: Any, right: Any) -> Any:
    return getattr(left, _SIDES[step["side"]])(right, _both, **_options(step))


def _table_filter(step: Step, table: Any) -> Any:
    method = table.filter_not if step.get("negate") else table.filter
    return method(_predicate(step["f"]), **_options(step))


_OPERATIONS: dict[str, Callable[[StreamsBuilder, Step, Any, Any], Any]] = {
    "stream": lambda b, s, of, other: b.stream(s["topic"]),
    "table": lambda b, s, of, other: b.table(s["topic"], materialized=_kept(s)),
    "global_table": lambda b, s, of, other: b.global_table(s["topic"]),
    "to": lambda b, s, of, other: of.to(s["topic"]),
    "filter": lambda b, s, of, other: of.filter(_predicate(s["f"]), name=s.get("name")),
    "filter_not": lambda b, s, of, other: of.filter_not(_predicate(s["f"])),
    "map_values": lambda b, s, of, other: of.map_values(_value(s["f"]), name=s.get("name")),
    "swap": lambda b, s, of, other: of.map(lambda k, v: (v, k)),
    "select_key": lambda b, s, of, other: of.select_key(_key(s["f"]), name=s.get("name")),
    "letters": lambda b, s, of, other: of.flat_map(lambda k, v: [(c, v) for c in _letters(v)]),
    "letter_values": lambda b, s, of, other: of.flat_map_values(lambda v: _letters(v)),
    "split": lambda b, s, of, other: _split(s, of),
    "branch": lambda b, s, of, other: of[s["which"]],
    "merge": lambda b, s, of, other: of.merge(other),
    "repartition": lambda b, s, of, other: of.repartition(
        name=s.get("name"), key=STRING, value=STRING, partitions=s.get("partitions")
    ),
    "to_table": lambda b, s, of, other: of.to_table(**_options(s)),
    "group": lambda b, s, of, other: _group(s, of),
    "aggregate": lambda b, s, of, other: _aggregate(of, s),
    "windowed": lambda b, s, of, other: _windowed(s, of),
    "cogroup": lambda b, s, of, other: _cogroup(s, of),
    "stream_join": lambda b, s, of, other: _stream_join(s, of, other),
    "lookup": lambda b, s, of, other: _lookup(s, of, other),
    "global_lookup": lambda b, s, of, other: _global_lookup(s, of, other),
    "tick": lambda b, s, of, other: _tick(s, of),
    "to_stream": lambda b, s, of, other: of.to_stream(),
    "to_stream_keyed": lambda b, s, of, other: of.to_stream(_ends),
    "to_stream_plain": lambda b, s, of, other: of.to_stream(lambda k, v: k.key),
    "table_filter": lambda b, s, of, other: _table_filter(s, of),
    "table_map_values": lambda b, s, of, other: of.map_values(_value(s["f"]), **_options(s)),
    "transform_values": lambda b, s, of, other: _transform_values(s, of),
    "table_group": lambda b, s, of, other: _table_group(s, of),
    "table_aggregate": lambda b, s, of, other: _table_aggregate(s, of),
    "suppress": lambda b, s, of, other: _suppress(s, of),
    "table_join": lambda b, s, of, other: _table_join(s, of, other),
    "foreign_join": lambda b, s, of, other: _foreign_join(s, of, other),
}
