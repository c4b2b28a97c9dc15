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
def filter(builder: StreamsBuilder) -> None:
    builder.stream("in").filter(lambda k, v: even(v)).to("out")


@topology
def filter_not(builder: StreamsBuilder) -> None:
    builder.stream("in").filter_not(lambda k, v: even(v)).to("out")


@topology
def filter_named(builder: StreamsBuilder) -> None:
    builder.stream("in", name="source").filter(lambda k, v: even(v), name="only-even").to("out", name="sink")


@topology
def map(builder: StreamsBuilder) -> None:
    builder.stream("in").map(lambda k, v: (v, k)).to("out")


@topology
def map_values(builder: StreamsBuilder) -> None:
    builder.stream("in").map_values(lambda v: text(v) + "!").to("out")


@topology
def map_values_with_key(builder: StreamsBuilder) -> None:
    builder.stream("in").map_values(lambda k, v: f"{text(k)}={text(v)}").to("out")


@topology
def map_values_to_null(builder: StreamsBuilder) -> None:
    builder.stream("in").map_values(lambda v: None if even(v) else v).to("out")


@topology
def flat_map(builder: StreamsBuilder) -> None:
    builder.stream("in").flat_map(lambda k, v: [(text(k) + letter, letter) for letter in letters(v)]).to(
        "out"
    )


@topology
def flat_map_values(builder: StreamsBuilder) -> None:
    builder.stream("in").flat_map_values(letters).to("out")


@topology
def flat_map_values_with_key(builder: StreamsBuilder) -> None:
    builder.stream("in").flat_map_values(lambda k, v: [k, v]).to("out")


@topology
def select_key(builder: StreamsBuilder) -> None:
    builder.stream("in").select_key(lambda k, v: first(v)).to("out")


@topology
def peek(builder: StreamsBuilder) -> None:
    builder.stream("in").peek(lambda k, v: None).to("out")


@topology
def for_each(builder: StreamsBuilder) -> None:
    builder.stream("in").for_each(lambda k, v: None)


@topology
def print(builder: StreamsBuilder) -> None:
    import io

    builder.stream("in").print(to=io.StringIO())


@topology
def split(builder: StreamsBuilder) -> None:
    branches = (
        builder.stream("in")
        .split()
        .branch(lambda k, v: even(v))
        .branch(lambda k, v: v is not None and v.startswith("r"))
        .default_branch()
    )
    branches["KSTREAM-BRANCH-00000000011"].to("even")
    branches["KSTREAM-BRANCH-00000000012"].to("red")
    branches["KSTREAM-BRANCH-00000000010"].to("other")


@topology
def split_named(builder: StreamsBuilder) -> None:
    branches = (
        builder.stream("in")
        .split(name="by-")
        .branch(lambda k, v: even(v), name="even")
        .branch(lambda k, v: v is not None, lambda s: s.to("odd"), name="odd")
        .no_default_branch()
    )
    branches["by-even"].map_values(lambda v: v + "?").to("even")


@topology
def split_chain(builder: StreamsBuilder) -> None:
    branches = (
        builder.stream("in")
        .split()
        .branch(lambda k, v: even(v), lambda s: s.map_values(lambda v: v + v))
        .default_branch(lambda s: s.filter(lambda k, v: v is not None))
    )
    branches["KSTREAM-BRANCH-00000000011"].merge(branches["KSTREAM-BRANCH-00000000010"]).to("out")


@topology
def merge(builder: StreamsBuilder) -> None:
    builder.stream("in").merge(builder.stream("in2")).to("out")


@topology
def merge_with_itself(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.flat_map_values(letters).merge(stream.map_values(lambda v: "m" + text(v))).merge(stream).to("out")


@topology
def two_children(builder: StreamsBuilder) -> None:
    found = builder.stream("in").flat_map_values(letters)
    found.map_values(lambda v: v + "1").to("out")
    found.map_values(lambda v: v + "2").to("out")
    found.filter(lambda k, v: k is not None).to("out2")


@topology
def several_topics(builder: StreamsBuilder) -> None:
    builder.stream(["in", "in2", "in3"]).map_values(lambda v: text(v) + "!").to("out")


@topology
def same_topic_twice(builder: StreamsBuilder) -> None:
    builder.stream("in").filter(lambda k, v: even(v)).to("out")
    builder.stream("in").map_values(lambda v: text(v) + "!").to("out")


@topology
def repartition(builder: StreamsBuilder) -> None:
    builder.stream("in").repartition().to("out")


@topology
def repartition_named(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").select_key(lambda k, v: first(v))
    stream.repartition(name="by-letter", partitions=1).map_values(lambda v: text(v) + "!").to("out")


@topology
def through(builder: StreamsBuilder) -> None:
    middle = builder.stream("in").map_values(lambda v: text(v) + "!").through("middle")
    middle.map_values(lambda v: text(v) + "?").to("out")


@topology
def to_chosen_topic(builder: StreamsBuilder) -> None:
    builder.stream("in").filter(lambda k, v: k is not None).to(lambda k, v, headers: "out-" + k)


@topology
def to_table(builder: StreamsBuilder) -> None:
    out(builder.stream("in").to_table())


@topology
def to_table_rekeyed(builder: StreamsBuilder) -> None:
    out(builder.stream("in").select_key(lambda k, v: first(v)).to_table())


@topology
def to_table_kept(builder: StreamsBuilder) -> None:
    out(builder.stream("in").to_table(name="newest", materialized="rows").filter(lambda k, v: even(v)))


@topology
def map_to_long(builder: StreamsBuilder) -> None:
    builder.stream("in").filter(lambda k, v: v is not None).map_values(len).to("out", value=LONG)


@topology
def chain(builder: StreamsBuilder) -> None:
    stream = builder.stream("in").filter(lambda k, v: v is not None).map(lambda k, v: (v, text(k) + v))
    stream = stream.map_values(str.upper).flat_map_values(letters)
    stream.filter_not(lambda k, v: v == "A").to("out")


# Aggregations -----------------------------------------------------------------------------------------------


@topology
def count(builder: StreamsBuilder) -> None:
    out(grouped(builder).count())


@topology
def count_by(builder: StreamsBuilder) -> None:
    out(by_letter(builder).count())


@topology
def count_rekeyed(builder: StreamsBuilder) -> None:
    out(builder.stream("in").select_key(lambda k, v: first(v)).group_by_key().count())


@topology
def count_named(builder: StreamsBuilder) -> None:
    out(by_letter(builder, name="letters").count(name="counter", materialized="counts"))


@topology
def count_with_serdes(builder: StreamsBuilder) -> None:
    out(grouped(builder).count(materialized=Materialized(key=STRING, value=LONG)))


@topology
def two_counts_of_one_group(builder: StreamsBuilder) -> None:
    found = by_letter(builder)
    out(found.count())
    found.reduce(plus).to_stream().to("out2")


@topology
def reduce(builder: StreamsBuilder) -> None:
    out(grouped(builder).reduce(plus))


@topology
def reduce_to_null(builder: StreamsBuilder) -> None:
    out(grouped(builder).reduce(lambda a, v: None if v == "x" else plus(a, v)))


@topology
def aggregate(builder: StreamsBuilder) -> None:
    kept = Materialized(key=STRING, value=LONG)
    out(grouped(builder).aggregate(lambda: 0, lambda k, v, a: a + len(v), materialized=kept))


@topology
def aggregate_to_null(builder: StreamsBuilder) -> None:
    out(grouped(builder).aggregate(lambda: "", lambda k, v, a: None if v == "" else a + v))


@topology
def aggregate_then_filter(builder: StreamsBuilder) -> None:
    out(grouped(builder).count(materialized="counts").filter(lambda k, v: v % 2 == 0))


@topology
def aggregate_then_regroup(builder: StreamsBuilder) -> None:
    regrouped = grouped(builder).count().group_by(lambda k, v: (str(v % 3), v), key=STRING, value=LONG)
    out(regrouped.reduce(lambda a, v: a + v, lambda a, v: a - v))


@topology
def word_count(builder: StreamsBuilder) -> None:
    words = builder.stream("in").flat_map_values(letters).group_by(lambda k, v: v)
    out(words.count(materialized="counts"))


@topology
def cogroup(builder: StreamsBuilder) -> None:
    one, two = grouped(builder), builder.stream("in2").group_by_key()
    three = builder.stream("in3").group_by(lambda k, v: first(v))
    found = one.cogroup(lambda k, v, a: a + "1" + v).cogroup(two, lambda k, v, a: a + "2" + v)
    out(found.cogroup(three, lambda k, v, a: a + "3" + v).aggregate(lambda: ""))


@topology
def cogroup_named(builder: StreamsBuilder) -> None:
    two = builder.stream("in2").group_by_key()
    found = grouped(builder).cogroup(lambda k, v, a: a + "1" + v)
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
def process(builder: StreamsBuilder) -> None:
    builder.add_store(key_value_store("counts", STRING, LONG))
    builder.stream("in").process(Counter, stores=["counts"]).to("out")


@topology
def process_then_count(builder: StreamsBuilder) -> None:
    builder.add_store(key_value_store("counts", STRING, LONG))
    out(builder.stream("in").process(Counter, stores=["counts"], name="counter").group_by_key().count())


@topology
def process_values(builder: StreamsBuilder) -> None:
    builder.add_store(key_value_store("rows"))
    builder.stream("in").process_values(Before, stores=["rows"]).to("out")


@topology
def process_windows(builder: StreamsBuilder) -> None:
    builder.add_store(window_store("seen", 200, 100))
    builder.stream("in").process(Recent, stores=["seen"]).to("out", value=LONG)
