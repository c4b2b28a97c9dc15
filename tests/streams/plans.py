"""Random topologies as data, which Python and Java (tests/interop/streams-java, `Plans`) build alike.

    python tests/streams/record.py --plans 1000 300

makes up 300 plans from seed 1000 on, runs them in Kafka's TopologyTestDriver and in ours, and prints where
they differ. With `--keep` those that Kafka Streams takes become vectors, each beside its plan.

A plan is a list of steps, each an operation on earlier results. Keys and values are text.
"""

from __future__ import annotations

import random
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

PREDICATES = ("even", "short", "not_q", "key_ab")
KEYS = ("first", "last", "length", "same", "last_or_key")
VALUES = ("bang", "even_null", "head", "keyed")
AGGREGATORS = ("count", "reduce", "plus", "null_q")

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


# How plans are made up --------------------------------------------------------------------------------------


class _Maker:
    """Results so far: streams `s`, grouped streams, tables `t`, windowed tables with their windows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps: list[Step] = []
        self.streams: list[str] = []
        self.tables: list[str] = []
        self.versioned: set[str] = set()
        self.windowed: list[tuple[str, str]] = []
        self.globals: list[str] = []
        self.unused: dict[str, str] = {}
        self.numbers = 0
        self.topics: list[str] = []

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def new(self, prefix: str) -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def add(self, op: str, kind: str, **step: Any) -> str:
        out = self.new(kind)
        for used in ("of", "with"):
            for one in step[used] if isinstance(step.get(used), list) else [step.get(used)]:
                self.unused.pop(one, None)  # type: ignore[arg-type]
        self.steps.append({"op": op, "out": out, **{k: v for k, v in step.items() if v is not None}})
        self.unused[out] = kind
        return out

    def name(self, share: float = 0.2) -> str | None:
        return self.new("name") if self.chance(share) else None

    def kept(self, *, versioned: float = 0.0, named: float = 0.4, some: float = 0.5) -> Step | None:
        if self.chance(versioned):
            return {"name": self.new("store"), "history": self.random.choice([30, 40, 200, 1000])}
        if not self.chance(some):
            return None
        return {"name": self.new("store")} if self.chance(named) else {}

    def topic(self) -> str:
        self.topics.append(f"in{len(self.topics) + 1}")
        return self.topics[-1]

    def stream(self) -> str:
        if not self.streams or (len(self.topics) < 4 and self.chance(0.25)):
            self.streams.append(self.add("stream", "s", topic=self.topic()))
            return self.streams[-1]
        return self.random.choice(self.streams[-4:])

    def add_table(self, op: str, step: Step) -> None:
        table = self.add(op, "t", **step)
        self.tables.append(table)
        if (step.get("kept") or {}).get("history") is not None:
            self.versioned.add(table)

    def table(self) -> str:
        if not self.tables or (len(self.topics) < 4 and self.chance(0.3)):
            kept = self.kept(versioned=0.3, some=0.4)
            self.add_table("table", {"topic": self.topic(), "kept": kept})
            return self.tables[-1]
        return self.random.choice(self.tables[-4:])

    def windows(self) -> Step:
        kind = self.random.choice(["time", "time", "sliding", "session"])
        size = self.random.choice([5, 15, 40])
        advance = self.random.choice([size, size, max(1, size // 3)])
        return {"kind": kind, "size": size, "advance": advance, "grace": self.random.choice([0, 10, 30])}

    def group(self, named: float = 0.2) -> str:
        f = self.random.choice([None, *KEYS])
        return self.add("group", "g", of=self.stream(), f=f, name=self.name(named))

    # One more step each.

    def stateless(self) -> None:
        of, op = (
            self.stream(),
            self.random.choice(["filter", "filter_not", "map_values", "select_key", "swap"]),
        )
        op = self.random.choice([op, op, op, "letters", "letter_values"])
        step: Step = {"of": of}
        if op in ("filter", "filter_not"):
            step["f"] = self.random.choice(PREDICATES)
        elif op in ("map_values", "select_key"):
            step["f"] = self.random.choice(VALUES if op == "map_values" else KEYS)
        if op in ("filter", "map_values", "select_key"):
            step["name"] = self.name(0.1)
        self.streams.append(self.add(op, "s", **step))

    def split(self) -> None:
        name = self.name(0.5)
        branches: list[Step] = []
        for _ in range(self.random.choice([1, 2])):
            branch = {"f": self.random.choice(PREDICATES)}
            if name is not None and self.chance(0.5):
                branch["name"] = self.new("way")
            branches.append(branch)
        default = self.chance(0.6)
        split = self.add("split", "b", of=self.stream(), branches=branches, default=default, name=name)
        del self.unused[split]
        if name is None:
            return  # their names are made up: nobody follows
        ways = [branch.get("name", str(n)) for n, branch in enumerate(branches, 1)] + ["0"] * default
        for way in ways:
            self.streams.append(self.add("branch", "s", of=split, which=name + way))

    def merge(self) -> None:
        self.streams.append(self.add("merge", "s", **{"of": self.stream(), "with": self.stream()}))

    def repartition(self) -> None:
        partitions = self.random.choice([None, None, 1, 3])
        step = {"of": self.stream(), "name": self.name(0.5), "partitions": partitions}
        self.streams.append(self.add("repartition", "s", **step))

    def to_table(self) -> None:
        kept = self.kept(versioned=0.15)
        self.add_table("to_table", {"of": self.stream(), "kept": kept, "name": self.name()})

    def _named(self, versioned: float = 0.1) -> Step:
        """A name goes with what says how it is kept."""
        name, kept = self.name(), self.kept(versioned=versioned)
        return {"name": name, "kept": kept if name is None or kept is not None else {}}

    def aggregate(self) -> None:
        f = self.random.choice(AGGREGATORS)
        step = {"of": self.group(), "f": f, **self._named()}
        self.add_table("aggregate", step)
        if f == "count":
            self.versioned.discard(self.tables[-1])

    def window(self) -> None:
        windows = self.windows()
        f = self.random.choice(AGGREGATORS)
        step: Step = {"of": self.group(), "f": f, "windows": windows, "final": self.chance(0.3)}
        step |= self._named(0.0)
        if f == "count":
            step["name"] = None
        self.windowed.append((self.add("windowed", "w", **step), _same(windows)))

    def cogroup(self) -> None:
        groups = [self.group(named=1.0) for _ in range(self.random.choice([1, 2, 2, 3]))]
        f = self.random.choice(["plus", "null_q"])
        if self.chance(0.5):
            self.add_table("cogroup", {"of": groups, "f": f, **self._named()})
            return
        windows = self.windows()
        step = {"of": groups, "f": f, "windows": windows, "kept": self.kept()}
        self.windowed.append((self.add("cogroup", "w", **step), _same(windows)))

    def stream_join(self) -> None:
        step: Step = {"of": self.stream(), "with": self.stream(), "side": self.side()}
        step["within"] = self.random.choice([0, 5, 20, 40])
        step["grace"] = self.random.choice([0, 5, 30])
        step["before"] = self.random.choice([None, None, None, 0, 15, 60])
        step["after"] = self.random.choice([None, None, None, 0, 15, 60])
        step["name"] = self.name()
        step["store"] = self.new("kept") if self.chance(0.2) else None
        self.streams.append(self.add("stream_join", "s", **step))

    def side(self, *sides: str) -> str:
        return self.random.choice(sides or ("inner", "left", "outer"))

    def lookup(self) -> None:
        table = self.table()
        step: Step = {"of": self.stream(), "with": table, "side": self.side("inner", "left")}
        if table in self.versioned and self.chance(0.4):
            # A left join by a null key fails there.
            step |= {"side": "inner", "grace": self.random.choice([0, 10, 30])}
        self.streams.append(self.add("lookup", "s", **step, name=self.name()))

    def global_lookup(self) -> None:
        if not self.globals:
            self.globals.append(self.add("global_table", "x", topic=self.topic()))
            del self.unused[self.globals[0]]
        f = self.random.choice(KEYS)
        step = {"of": self.stream(), "with": self.globals[0], "side": self.side("inner", "left"), "f": f}
        self.streams.append(self.add("global_lookup", "s", **step))

    def tick(self) -> None:
        step = {"store": self.new("ticks"), "every": self.random.choice([7, 30, 100])}
        step["wall"] = self.random.choice([0, 0, 300])
        self.streams.append(self.add("tick", "s", of=self.stream(), **step))

    def to_stream(self) -> None:
        if self.windowed and self.chance(0.5):
            of = self.random.choice(self.windowed)[0]
            op = self.random.choice(["to_stream_keyed", "to_stream_plain"])
            self.streams.append(self.add(op, "s", of=of))
            return
        self.streams.append(self.add("to_stream", "s", of=self.table()))

    def table_step(self) -> None:
        """Filters and maps, of windowed tables too (those without a store of their own)."""
        op = self.random.choice(["table_filter", "table_filter", "table_map_values", "transform_values"])
        # Without a store of its own, what is looked up in a transformed table fails there.
        windowed = op != "transform_values" and bool(self.windowed) and self.chance(0.4)
        of, windows = self.random.choice(self.windowed) if windowed else (self.table(), "")
        step: Step = {"of": of}
        if op == "transform_values":
            step["store"] = self.new("before")
            step["kept"] = {"name": self.new("store")}
        else:
            step["f"] = self.random.choice(PREDICATES if op == "table_filter" else VALUES)
            step["kept"] = None if windowed else self.kept(versioned=0.1, some=0.4)
            if op == "table_filter" and self.chance(0.3):
                step["negate"] = True
            else:
                step["name"] = self.name(0.1)
        if windowed:
            self.windowed.append((self.add(op, "w", **step), windows))
            return
        self.add_table(op, step)
        if of in self.versioned and step["kept"] is None and op != "transform_values":
            self.versioned.add(self.tables[-1])

    def regroup(self) -> None:
        of = self.random.choice(self.windowed)[0] if self.windowed and self.chance(0.3) else self.table()
        grouped = self.add("table_group", "h", of=of, f=self.random.choice(KEYS), name=self.name())
        f = self.random.choice(AGGREGATORS)
        step = {"of": grouped, "f": f, **self._named()}
        self.add_table("table_aggregate", step)
        if f == "count":
            self.versioned.discard(self.tables[-1])

    def suppress(self) -> None:
        if self.windowed and self.chance(0.6):
            of, windows = self.random.choice(self.windowed)
            if self.chance(0.7):
                self.windowed.append((self.add("suppress", "w", of=of, name=self.name()), windows))
                return
        else:
            of, windows = self.table(), ""
            if of in self.versioned:
                return  # refused
        step: Step = {"of": of, "wait": self.random.choice([0, 10, 40, 200]), "name": self.name()}
        step["records"] = self.random.choice([None, 1, 3])
        step["bytes"] = self.random.choice([None, None, 150])
        if windows:
            self.windowed.append((self.add("suppress", "w", **step), windows))
        else:
            self.add_table("suppress", step)

    def table_join(self) -> None:
        if len(self.windowed) > 1 and self.chance(0.4):
            (left, windows), (right, others) = self.random.choices(self.windowed, k=2)
            if windows == others:
                step = {"of": left, "with": right, "side": self.side(), "name": self.name()}
                self.windowed.append((self.add("table_join", "w", **step), windows))
                return
        left, right = self.table(), self.table()
        step = {"of": left, "with": right, "side": self.side(), "name": self.name()}
        self.add_table("table_join", {**step, "kept": self.kept(versioned=0.1)})

    def foreign_join(self) -> None:
        step: Step = {"of": self.table(), "with": self.table(), "side": self.side("inner", "left")}
        step |= {"f": self.random.choice(KEYS), "name": self.name(), "kept": self.kept(versioned=0.1)}
        self.add_table("foreign_join", step)

    def close(self) -> None:
        """What nobody has used is written."""
        for number, (result, kind) in enumerate(list(self.unused.items()), 1):
            of = result
            if kind in ("g", "h"):
                of = self.add(
                    "aggregate" if kind == "g" else "table_aggregate", "t", of=of, f="plus", kept={}
                )
                kind = "t"
            if kind in ("t", "w"):
                of = self.add("to_stream_keyed" if kind == "w" else "to_stream", "s", of=of)
            self.steps.append({"op": "to", "of": of, "topic": f"out{number}"})


def _same(windows: Step) -> str:
    """Windowed tables with equal ones can be joined."""
    return f"{windows['kind']} {windows['size']} {windows['advance']}"


_WEIGHTS = {
    _Maker.stateless: 6,
    _Maker.split: 1,
    _Maker.merge: 1.5,
    _Maker.repartition: 1.5,
    _Maker.to_table: 2,
    _Maker.aggregate: 2.5,
    _Maker.window: 4,
    _Maker.cogroup: 2,
    _Maker.stream_join: 4,
    _Maker.lookup: 3,
    _Maker.global_lookup: 1,
    _Maker.tick: 1.5,
    _Maker.to_stream: 3,
    _Maker.table_step: 5,
    _Maker.regroup: 2.5,
    _Maker.suppress: 3,
    _Maker.table_join: 3.5,
    _Maker.foreign_join: 2.5,
}


def plan(seed: int) -> Step:
    """The plan of a seed."""
    maker = _Maker(seed)
    chance = maker.random
    for _ in range(chance.randint(2, 8)):
        chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0](maker)
    maker.close()
    return {
        "name": f"plan_{seed}",
        "topics": maker.topics,
        "optimized": maker.chance(0.25),
        "input": {
            "records": 60,
            "step": chance.choice([3, 10, 20]),
            "late": chance.choice([0, 20, 60, 150]),
            "late_share": chance.choice([0.1, 0.3, 0.5]),
            "nulls": chance.choice([0.0, 0.12, 0.3]),
            "jump": chance.choice([0, 0, 300, 100_000]),
        },
        "steps": maker.steps,
    }
