import static org.apache.kafka.streams.KeyValue.pair;

import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;

/** Joins of all kinds. */
final class Joins {
    private Joins() { }

    static final Serde<String> S = Serdes.String();
    static final ValueJoiner<String, String, String> BOTH = (left, right) -> left + "/" + right;
    static final Map<String, Object> EAGER = Map.of("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);

    static Vectors.Input two(final int step, final int late) {
        return new Vectors.Input("in", "in2").keys("a", "b", "c").time(step, late, 0.3).records(110);
    }

    static KStream<String, String> left(final StreamsBuilder b) {
        return b.stream("in");
    }

    static KStream<String, String> right(final StreamsBuilder b) {
        return b.stream("in2");
    }

    static KStream<String, String> letters(final KStream<String, String> stream) {
        return stream.selectKey((k, v) -> Stateless.first(v));
    }

    static String fk(final String value) {
        return value == null || value.isEmpty() ? null : value.substring(value.length() - 1);
    }

    static void add() {
        streams();
        more();
        lookups();
        tables();
        foreign();
    }

    static void streams() {
        final String f = "stream_join";
        final JoinWindows even = JoinWindows.ofTimeDifferenceAndGrace(Aggregations.ms(20), Aggregations.ms(15));
        final JoinWindows skewed = JoinWindows.ofTimeDifferenceAndGrace(Aggregations.ms(10), Aggregations.ms(5)).before(Aggregations.ms(30)).after(Aggregations.ms(5));
        final JoinWindows after = JoinWindows.ofTimeDifferenceWithNoGrace(Aggregations.ms(0)).after(Aggregations.ms(25));
        Vectors.add(f, "stream_inner", two(8, 60), b -> left(b).join(right(b), BOTH, even).to("out"));
        Vectors.add(f, "stream_inner_with_key", two(8, 60), b -> left(b).join(right(b), (k, v, o) -> k + v + o, even).to("out"));
        Vectors.add(f, "stream_inner_skewed", two(8, 60), b -> left(b).join(right(b), BOTH, skewed).to("out"));
        Vectors.add(f, "stream_inner_after", two(8, 40), b -> left(b).join(right(b), BOTH, after).to("out"));
        Vectors.add(f, "stream_inner_jumps", two(8, 60).jump(200_000), b -> left(b).join(right(b), BOTH, even).to("out"));
        Vectors.add(f, "stream_inner_named", two(8, 60), b -> left(b).join(right(b), BOTH, even, StreamJoined.with(S, S, S).withName("pairs").withStoreName("kept")).to("out"));
        Vectors.add(f, "stream_inner_rekeyed", two(8, 60), b -> letters(left(b)).join(letters(right(b)), BOTH, even).to("out"));
        Vectors.add(f, "stream_inner_rekeyed_named", two(8, 60), b -> letters(left(b)).join(right(b), BOTH, even, StreamJoined.with(S, S, S).withName("pairs")).to("out"));
        Vectors.add(f, "stream_with_itself", two(6, 40), b -> {
            final KStream<String, String> stream = b.stream("in");
            stream.join(stream, BOTH, even).to("out");
            right(b).to("out2");
        });
        Vectors.add(f, "stream_left", two(8, 60), b -> left(b).leftJoin(right(b), BOTH, even).to("out"));
        Vectors.add(f, "stream_left_eager", two(8, 60), EAGER, b -> left(b).leftJoin(right(b), BOTH, even).to("out"));
        Vectors.add(f, "stream_left_skewed", two(8, 60), EAGER, b -> left(b).leftJoin(right(b), BOTH, skewed).to("out"));
        Vectors.add(f, "stream_left_after", two(8, 30), EAGER, b -> left(b).leftJoin(right(b), BOTH, after).to("out"));
        Vectors.add(f, "stream_left_named", two(8, 60), EAGER, b -> left(b).leftJoin(right(b), BOTH, even, StreamJoined.with(S, S, S).withName("pairs").withStoreName("kept")).to("out"));
        Vectors.add(f, "stream_left_rekeyed", two(8, 60), EAGER, b -> letters(left(b)).leftJoin(letters(right(b)), BOTH, even).to("out"));
        Vectors.add(f, "stream_outer", two(8, 60), b -> left(b).outerJoin(right(b), BOTH, even).to("out"));
        Vectors.add(f, "stream_outer_eager", two(8, 60), EAGER, b -> left(b).outerJoin(right(b), BOTH, even).to("out"));
        Vectors.add(f, "stream_outer_skewed", two(8, 60), EAGER, b -> left(b).outerJoin(right(b), BOTH, skewed).to("out"));
        Vectors.add(f, "stream_outer_jumps", two(8, 60).jump(100_000), EAGER, b -> left(b).outerJoin(right(b), BOTH, even).to("out"));
        Vectors.add(f, "stream_outer_named", two(8, 60), EAGER, b -> left(b).outerJoin(right(b), BOTH, even, StreamJoined.with(S, S, S).withName("pairs").withStoreName("kept")).to("out"));
        Vectors.add(f, "stream_join_then_count", two(8, 60), b -> Aggregations.out(left(b).join(right(b), BOTH, even).groupByKey().count(), Serdes.Long()));
        Vectors.add(f, "stream_join_three", new Vectors.Input("in", "in2", "in3").keys("a", "b").time(6, 30, 0.3).records(110), b ->
            left(b).join(right(b), BOTH, even).join(b.stream("in3"), BOTH, even).to("out"));
    }

    static void more() {
        final String f = "more";
        final JoinWindows even = JoinWindows.ofTimeDifferenceAndGrace(Aggregations.ms(20), Aggregations.ms(15));
        final org.apache.kafka.streams.kstream.TimeWindows tumbling = org.apache.kafka.streams.kstream.TimeWindows.ofSizeAndGrace(Aggregations.ms(50), Aggregations.ms(20));
        Vectors.add(f, "rekeyed_joined_twice", new Vectors.Input("in", "in2", "in3").keys("x", "b", "r").time(8, 40, 0.3).records(90), b -> {
            final KStream<String, String> stream = letters(left(b));
            stream.join(right(b), BOTH, even).to("out");
            stream.leftJoin(b.<String, String>table("in3"), BOTH).to("out2");
            stream.groupByKey().count().toStream().to("out3", org.apache.kafka.streams.kstream.Produced.with(S, Serdes.Long()));
        });
        Vectors.add(f, "named_group_twice", two(8, 60), b -> {
            final var grouped = left(b).groupBy((k, v) -> Stateless.first(v), org.apache.kafka.streams.kstream.Grouped.with("letters", S, S));
            grouped.count().toStream().to("out", org.apache.kafka.streams.kstream.Produced.with(S, Serdes.Long()));
            grouped.reduce((a, v) -> a + "+" + v).toStream().to("out2");
            right(b).to("out3");
        });
        Vectors.add(f, "named_table_group_twice", two(8, 60), b -> {
            final var grouped = b.<String, String>table("in").groupBy((k, v) -> pair(Stateless.first(v), v), org.apache.kafka.streams.kstream.Grouped.with("letters", S, S));
            grouped.count().toStream().to("out", org.apache.kafka.streams.kstream.Produced.with(S, Serdes.Long()));
            grouped.reduce((a, v) -> a + "+" + v, (a, v) -> a + "-" + v).toStream().to("out2");
            right(b).to("out3");
        });
        Vectors.add(f, "windowed_tables_joined", two(10, 50), b -> Aggregations.windowed(
            left(b).groupByKey(org.apache.kafka.streams.kstream.Grouped.with(S, S)).windowedBy(tumbling).count()
                .join(right(b).groupByKey(org.apache.kafka.streams.kstream.Grouped.with(S, S)).windowedBy(tumbling).count(), (x, y) -> x + "/" + y), S));
        Vectors.add(f, "cogroup_rekeyed", two(8, 60), b -> Aggregations.out(left(b).groupBy((k, v) -> Stateless.first(v), org.apache.kafka.streams.kstream.Grouped.as("one")).<String>cogroup((k, v, a) -> a + "1" + v)
            .cogroup(right(b).groupBy((k, v) -> Stateless.first(v), org.apache.kafka.streams.kstream.Grouped.as("two")), (k, v, a) -> a + "2" + v).aggregate(() -> "", Materialized.with(S, S)), S));
        Vectors.add(f, "repartition_then_join", two(8, 60), b -> letters(left(b)).repartition().join(letters(right(b)).repartition(), BOTH, even).to("out"));
        Vectors.add(f, "counts_into_a_table_again", two(8, 60), b -> {
            left(b).groupByKey().count().toStream().mapValues(v -> "" + v).to("counts");
            right(b).leftJoin(b.<String, String>table("counts"), BOTH).to("out");
        });
        Vectors.add(f, "left_join_then_to_table", two(8, 60), b -> left(b).leftJoin(b.<String, String>table("in2"), BOTH).toTable(Materialized.as("rows"))
            .filter((k, v) -> !v.endsWith("null")).toStream().to("out"));
        Vectors.add(f, "outer_join_then_window", two(8, 60), EAGER, b -> Aggregations.windowed(left(b).outerJoin(right(b), BOTH, even).groupByKey().windowedBy(tumbling).count(), Serdes.Long()));
        Vectors.add(f, "dedup", two(8, 60), b -> Aggregations.out(left(b).merge(right(b)).groupByKey().reduce((a, v) -> v.equals(a) ? a : v).toStream().toTable(), S));
    }

    static void lookups() {
        final String f = "lookup";
        Vectors.add(f, "table_lookup", two(8, 60), b -> left(b).join(b.<String, String>table("in2"), BOTH).to("out"));
        Vectors.add(f, "table_lookup_with_key", two(8, 60), b -> left(b).join(b.<String, String>table("in2", Materialized.as("rows")), (k, v, t) -> k + v + t).to("out"));
        Vectors.add(f, "table_lookup_left", two(8, 60), b -> left(b).leftJoin(b.<String, String>table("in2"), BOTH).to("out"));
        Vectors.add(f, "table_lookup_rekeyed", two(8, 60).keys("r", "x", "z", "b"), b -> letters(left(b)).join(b.<String, String>table("in2"), BOTH).to("out"));
        Vectors.add(f, "table_lookup_left_rekeyed", two(8, 60).keys("r", "x", "z", "b"), b -> letters(left(b)).leftJoin(b.<String, String>table("in2"), BOTH, Joined.as("with-rows")).to("out"));
        Vectors.add(f, "table_lookup_derived", two(8, 60), b -> left(b).leftJoin(b.<String, String>table("in2").filter((k, v) -> Stateless.even(v)).mapValues(v -> v + "!"), BOTH).to("out"));
        Vectors.add(f, "table_lookup_count", two(8, 60), b -> left(b).leftJoin(right(b).groupByKey().count(), (v, c) -> v + "/" + c).to("out"));
        Vectors.add(f, "table_lookup_own", two(8, 60), b -> {
            final KStream<String, String> stream = left(b);
            stream.leftJoin(stream.toTable(), BOTH).to("out");
            right(b).to("out2");
        });
        Vectors.add(f, "global_lookup", two(8, 60).keys("r", "x", "z", "b"), b -> {
            final GlobalKTable<String, String> table = b.globalTable("in2");
            left(b).join(table, (k, v) -> Stateless.first(v), BOTH).to("out");
        });
        Vectors.add(f, "global_lookup_left", two(8, 60).keys("r", "x", "z", "b"), b -> {
            final GlobalKTable<String, String> table = b.globalTable("in2", Materialized.as("rows"));
            left(b).leftJoin(table, (k, v) -> Stateless.first(v), (k, v, t) -> k + v + t, Named.as("look-up")).to("out");
        });
        Vectors.add(f, "pageviews_by_region", two(8, 60), b -> Aggregations.out(left(b).leftJoin(b.<String, String>table("in2"), (v, t) -> t == null ? "nowhere" : t)
            .map((k, v) -> pair(v, k)).groupByKey().count(), Serdes.Long()));
    }

    static void tables() {
        final String f = "table_join";
        final Vectors.Input input = new Vectors.Input("in", "in2").keys("a", "b", "c").nulls(0.04, 0.3).records(90);
        Vectors.add(f, "tables_inner", input, b -> b.<String, String>table("in").join(b.table("in2"), BOTH).toStream().to("out"));
        Vectors.add(f, "tables_left", input, b -> b.<String, String>table("in").leftJoin(b.table("in2"), BOTH).toStream().to("out"));
        Vectors.add(f, "tables_outer", input, b -> b.<String, String>table("in").outerJoin(b.table("in2"), BOTH).toStream().to("out"));
        Vectors.add(f, "tables_inner_kept", input, b -> b.<String, String>table("in").join(b.table("in2"), BOTH, Materialized.as("rows")).toStream().to("out"));
        Vectors.add(f, "tables_left_named", input, b -> b.<String, String>table("in").leftJoin(b.table("in2"), BOTH, Named.as("pairs"), Materialized.as("rows")).toStream().to("out"));
        Vectors.add(f, "tables_outer_with_serdes", input, b -> b.<String, String>table("in").outerJoin(b.table("in2"), BOTH, Materialized.with(S, S)).toStream().to("out"));
        Vectors.add(f, "tables_inner_derived", input, b -> b.<String, String>table("in").filter((k, v) -> Stateless.even(v))
            .join(b.<String, String>table("in2").mapValues(v -> v + "!"), BOTH).toStream().to("out"));
        Vectors.add(f, "tables_inner_filter", input, b -> b.<String, String>table("in").join(b.<String, String>table("in2"), BOTH).filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "tables_inner_count", input, b -> Aggregations.out(b.<String, String>table("in").join(b.<String, String>table("in2"), BOTH).groupBy((k, v) -> pair(v, v)).count(), Serdes.Long()));
        Vectors.add(f, "tables_left_count", input, b -> Aggregations.out(b.<String, String>table("in").leftJoin(b.<String, String>table("in2"), BOTH).groupBy((k, v) -> pair(v, v)).count(), Serdes.Long()));
        Vectors.add(f, "tables_outer_count", input, b -> Aggregations.out(b.<String, String>table("in").outerJoin(b.<String, String>table("in2"), BOTH).groupBy((k, v) -> pair(v, v)).count(), Serdes.Long()));
        Vectors.add(f, "tables_three", new Vectors.Input("in", "in2", "in3").keys("a", "b").nulls(0.04, 0.25).records(90), b ->
            b.<String, String>table("in").join(b.<String, String>table("in2"), BOTH).leftJoin(b.<String, String>table("in3"), BOTH).toStream().to("out"));
        Vectors.add(f, "tables_three_outer", new Vectors.Input("in", "in2", "in3").keys("a", "b").nulls(0.04, 0.25).records(90), b ->
            b.<String, String>table("in").outerJoin(b.<String, String>table("in2"), BOTH).outerJoin(b.<String, String>table("in3"), BOTH).toStream().to("out"));
        Vectors.add(f, "table_with_itself", new Vectors.Input("in").keys("a", "b").nulls(0.04, 0.25).records(60), b -> {
            final KTable<String, String> table = b.table("in");
            table.join(table.mapValues(v -> v + "!"), BOTH).toStream().to("out");
        });
        Vectors.add(f, "tables_of_counts", input, b -> b.<String, String>stream("in").groupByKey().count()
            .outerJoin(b.<String, String>stream("in2").groupByKey().count(), (x, y) -> x + "/" + y).toStream().to("out"));
    }

    static void foreign() {
        final String f = "foreign_key";
        final Vectors.Input input = new Vectors.Input("in", "in2").keys("x", "y", "z", "d", "e", "q").values("x", "yy", "zzz", "red", "blue", "x and y", "", "qq").nulls(0.03, 0.2).records(110);
        Vectors.add(f, "foreign_inner", input, b -> b.<String, String>table("in").join(b.<String, String>table("in2"), v -> fk(v), BOTH).toStream().to("out"));
        Vectors.add(f, "foreign_left", input, b -> b.<String, String>table("in").leftJoin(b.<String, String>table("in2"), v -> fk(v), BOTH).toStream().to("out"));
        Vectors.add(f, "foreign_inner_kept", input, b -> b.<String, String>table("in", Materialized.as("left-rows")).join(b.<String, String>table("in2"), v -> fk(v), BOTH, Materialized.as("rows")).toStream().to("out"));
        Vectors.add(f, "foreign_left_named", input, b -> b.<String, String>table("in").leftJoin(b.<String, String>table("in2"), v -> fk(v), BOTH, TableJoined.as("pairs"), Materialized.as("rows")).toStream().to("out"));
        Vectors.add(f, "foreign_left_count", input, b -> Aggregations.out(b.<String, String>table("in").leftJoin(b.<String, String>table("in2"), v -> fk(v), BOTH).groupBy((k, v) -> pair(v, v)).count(), Serdes.Long()));
        Vectors.add(f, "foreign_inner_derived", input, b -> b.<String, String>table("in").mapValues(v -> v + "e").join(b.<String, String>table("in2").filter((k, v) -> Stateless.even(v)), v -> fk(v), BOTH).toStream().to("out"));
    }
}
