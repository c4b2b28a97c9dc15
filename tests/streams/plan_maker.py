"""Makes plans up: random topologies that Kafka Streams takes, most of them.

`python tests/streams/record.py --plans 1000 50` runs those of 50 seeds there.
"""

from __future__ import annotations

import random
from typing import Any

from tests.streams.plans import Step

PREDICATES = ("even", "short", "not_q", "key_ab")
KEYS = ("first", "last", "length", "same", "last_or_key")
VALUES = ("bang", "even_null", "head", "keyed")
AGGREGATORS = ("count", "reduce", "plus", "null_q")


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
