"""The topologies of the vectors: streams, aggregations, processors."""

from __future__ import annotations

from typing import Any

from millstream.streams import (
    STREAM_TIME,
    WALL_CLOCK,
    Materialized,
    Processor,
    Record,
    StreamsBuilder,
    key_value_store,
    window_store,
)
from millstream.streams.serdes import LONG, STRING
from tests.streams.kit import by_letter, even, first, grouped, letters, out, plus, text, topology

# Stateless --------------------------------------------------------------------------------------------------


@topology
def filter(b: StreamsBuilder) -> None:
    b.stream("in").filter(lambda k, v: even(v)).to("out")


@topology
def filter_not(b: StreamsBuilder) -> None:
    b.stream("in").filter_not(lambda k, v: even(v)).to("out")


@topology
def filter_named(b: StreamsBuilder) -> None:
    b.stream("in", name="source").filter(lambda k, v: even(v), name="only-even").to("out", name="sink")


@topology
def map(b: StreamsBuilder) -> None:
    b.stream("in").map(lambda k, v: (v, k)).to("out")


@topology
def map_values(b: StreamsBuilder) -> None:
    b.stream("in").map_values(lambda v: text(v) + "!").to("out")


@topology
def map_values_with_key(b: StreamsBuilder) -> None:
    b.stream("in").map_values(lambda k, v: f"{text(k)}={text(v)}").to("out")


@topology
def map_values_to_null(b: StreamsBuilder) -> None:
    b.stream("in").map_values(lambda v: None if even(v) else v).to("out")


@topology
def flat_map(b: StreamsBuilder) -> None:
    b.stream("in").flat_map(lambda k, v: [(text(k) + letter, letter) for letter in letters(v)]).to("out")


@topology
def flat_map_values(b: StreamsBuilder) -> None:
    b.stream("in").flat_map_values(letters).to("out")


@topology
def flat_map_values_with_key(b: StreamsBuilder) -> None:
    b.stream("in").flat_map_values(lambda k, v: [k, v]).to("out")


@topology
def select_key(b: StreamsBuilder) -> None:
    b.stream("in").select_key(lambda k, v: first(v)).to("out")


@topology
def peek(b: StreamsBuilder) -> None:
    b.stream("in").peek(lambda k, v: None).to("out")


@topology
def for_each(b: StreamsBuilder) -> None:
    b.stream("in").for_each(lambda k, v: None)


@topology
def print(b: StreamsBuilder) -> None:
    import io

    b.stream("in").print(to=io.StringIO())


@topology
def split(b: StreamsBuilder) -> None:
    branches = (
        b.stream("in")
        .split()
        .branch(lambda k, v: even(v))
        .branch(lambda k, v: v is not None and v.startswith("r"))
        .default_branch()
    )
    branches["KSTREAM-BRANCH-00000000011"].to("even")
    branches["KSTREAM-BRANCH-00000000012"].to("red")
    branches["KSTREAM-BRANCH-00000000010"].to("other")


@topology
def split_named(b: StreamsBuilder) -> None:
    branches = (
        b.stream("in")
        .split(name="by-")
        .branch(lambda k, v: even(v), name="even")
        .branch(lambda k, v: v is not None, lambda s: s.to("odd"), name="odd")
        .no_default_branch()
    )
    branches["by-even"].map_values(lambda v: v + "?").to("even")


@topology
def split_chain(b: StreamsBuilder) -> None:
    branches = (
        b.stream("in")
        .split()
        .branch(lambda k, v: even(v), lambda s: s.map_values(lambda v: v + v))
        .default_branch(lambda s: s.filter(lambda k, v: v is not None))
    )
    branches["KSTREAM-BRANCH-00000000011"].merge(branches["KSTREAM-BRANCH-00000000010"]).to("out")


@topology
def merge(b: StreamsBuilder) -> None:
    b.stream("in").merge(b.stream("in2")).to("out")


@topology
def merge_with_itself(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.flat_map_values(letters).merge(stream.map_values(lambda v: "m" + text(v))).merge(stream).to("out")


@topology
def two_children(b: StreamsBuilder) -> None:
    found = b.stream("in").flat_map_values(letters)
    found.map_values(lambda v: v + "1").to("out")
    found.map_values(lambda v: v + "2").to("out")
    found.filter(lambda k, v: k is not None).to("out2")


@topology
def several_topics(b: StreamsBuilder) -> None:
    b.stream(["in", "in2", "in3"]).map_values(lambda v: text(v) + "!").to("out")


@topology
def same_topic_twice(b: StreamsBuilder) -> None:
    b.stream("in").filter(lambda k, v: even(v)).to("out")
    b.stream("in").map_values(lambda v: text(v) + "!").to("out")


@topology
def repartition(b: StreamsBuilder) -> None:
    b.stream("in").repartition().to("out")


@topology
def repartition_named(b: StreamsBuilder) -> None:
    stream = b.stream("in").select_key(lambda k, v: first(v))
    stream.repartition(name="by-letter", partitions=1).map_values(lambda v: text(v) + "!").to("out")


@topology
def through(b: StreamsBuilder) -> None:
    middle = b.stream("in").map_values(lambda v: text(v) + "!").through("middle")
    middle.map_values(lambda v: text(v) + "?").to("out")


@topology
def to_chosen_topic(b: StreamsBuilder) -> None:
    b.stream("in").filter(lambda k, v: k is not None).to(lambda k, v, headers: "out-" + k)


@topology
def to_table(b: StreamsBuilder) -> None:
    out(b.stream("in").to_table())


@topology
def to_table_rekeyed(b: StreamsBuilder) -> None:
    out(b.stream("in").select_key(lambda k, v: first(v)).to_table())


@topology
def to_table_kept(b: StreamsBuilder) -> None:
    out(b.stream("in").to_table(name="newest", materialized="rows").filter(lambda k, v: even(v)))


@topology
def map_to_long(b: StreamsBuilder) -> None:
    b.stream("in").filter(lambda k, v: v is not None).map_values(len).to("out", value=LONG)


@topology
def chain(b: StreamsBuilder) -> None:
    stream = b.stream("in").filter(lambda k, v: v is not None).map(lambda k, v: (v, text(k) + v))
    stream = stream.map_values(str.upper).flat_map_values(letters)
    stream.filter_not(lambda k, v: v == "A").to("out")


# Aggregations -----------------------------------------------------------------------------------------------


@topology
def count(b: StreamsBuilder) -> None:
    out(grouped(b).count())


@topology
def count_by(b: StreamsBuilder) -> None:
    out(by_letter(b).count())


@topology
def count_rekeyed(b: StreamsBuilder) -> None:
    out(b.stream("in").select_key(lambda k, v: first(v)).group_by_key().count())


@topology
def count_named(b: StreamsBuilder) -> None:
    out(by_letter(b, name="letters").count(name="counter", materialized="counts"))


@topology
def count_with_serdes(b: StreamsBuilder) -> None:
    out(grouped(b).count(materialized=Materialized(key=STRING, value=LONG)))


@topology
def two_counts_of_one_group(b: StreamsBuilder) -> None:
    found = by_letter(b)
    out(found.count())
    found.reduce(plus).to_stream().to("out2")


@topology
def reduce(b: StreamsBuilder) -> None:
    out(grouped(b).reduce(plus))


@topology
def reduce_to_null(b: StreamsBuilder) -> None:
    out(grouped(b).reduce(lambda a, v: None if v == "x" else plus(a, v)))


@topology
def aggregate(b: StreamsBuilder) -> None:
    kept = Materialized(key=STRING, value=LONG)
    out(grouped(b).aggregate(lambda: 0, lambda k, v, a: a + len(v), materialized=kept))


@topology
def aggregate_to_null(b: StreamsBuilder) -> None:
    out(grouped(b).aggregate(lambda: "", lambda k, v, a: None if v == "" else a + v))


@topology
def aggregate_then_filter(b: StreamsBuilder) -> None:
    out(grouped(b).count(materialized="counts").filter(lambda k, v: v % 2 == 0))


@topology
def aggregate_then_regroup(b: StreamsBuilder) -> None:
    regrouped = grouped(b).count().group_by(lambda k, v: (str(v % 3), v), key=STRING, value=LONG)
    out(regrouped.reduce(lambda a, v: a + v, lambda a, v: a - v))


@topology
def word_count(b: StreamsBuilder) -> None:
    words = b.stream("in").flat_map_values(letters).group_by(lambda k, v: v)
    out(words.count(materialized="counts"))


@topology
def cogroup(b: StreamsBuilder) -> None:
    one, two = grouped(b), b.stream("in2").group_by_key()
    three = b.stream("in3").group_by(lambda k, v: first(v))
    found = one.cogroup(lambda k, v, a: a + "1" + v).cogroup(two, lambda k, v, a: a + "2" + v)
    out(found.cogroup(three, lambda k, v, a: a + "3" + v).aggregate(lambda: ""))


@topology
def cogroup_named(b: StreamsBuilder) -> None:
    two = b.stream("in2").group_by_key()
    found = grouped(b).cogroup(lambda k, v, a: a + "1" + v)
    found = found.cogroup(two, lambda k, v, a: None if v == "q" else a + "2" + v)
    out(found.aggregate(lambda: "", name="both", materialized="rows").map_values(lambda v: v + "."))


# Processors -------------------------------------------------------------------------------------------------


class Counter(Processor):
    def init(self, context: Any) -> None:
        self.counts = context.store("counts")
        context.schedule(50, STREAM_TIME, self.send_all)
        context.schedule(300, WALL_CLOCK, self.send_time)

    def send_all(self, time: int) -> None:
        for key, value in self.counts.all():
            self.context.forward(Record(key, f"n{value}", time))

    def send_time(self, time: int) -> None:
        self.context.forward(Record("keys", f"at {self.context.stream_time}", time))

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        before = self.counts.get(record.key)
        if record.value is None:
            self.counts.delete(record.key)
        else:
            self.counts.put(record.key, (before or 0) + 1)
        if record.value == "q":
            self.context.forward(record.with_key("q" + record.key).with_timestamp(record.timestamp + 1))


class Before(Processor):
    def init(self, context: Any) -> None:
        self.rows = context.store("rows")

    def process(self, record: Record) -> None:
        if record.key is not None and record.value is not None:
            before = self.rows.get(record.key)
            self.rows.put(record.key, record.value)
            self.context.forward(record.with_value(text(before) + ">" + record.value))
            self.context.forward(record)


class Recent(Processor):
    def init(self, context: Any) -> None:
        self.seen = context.store("seen")

    def process(self, record: Record) -> None:
        if record.key is not None and record.value is not None:
            self.seen.put(record.key, record.value, record.timestamp)
            found = self.seen.fetch(record.key, max(0, record.timestamp - 100), record.timestamp)
            self.context.forward(record.with_value(len(found)))


@topology
def process(b: StreamsBuilder) -> None:
    b.add_store(key_value_store("counts", STRING, LONG))
    b.stream("in").process(Counter, stores=["counts"]).to("out")


@topology
def process_then_count(b: StreamsBuilder) -> None:
    b.add_store(key_value_store("counts", STRING, LONG))
    out(b.stream("in").process(Counter, stores=["counts"], name="counter").group_by_key().count())


@topology
def process_values(b: StreamsBuilder) -> None:
    b.add_store(key_value_store("rows"))
    b.stream("in").process_values(Before, stores=["rows"]).to("out")


@topology
def process_windows(b: StreamsBuilder) -> None:
    b.add_store(window_store("seen", 200, 100))
    b.stream("in").process(Recent, stores=["seen"]).to("out", value=LONG)
