import static org.apache.kafka.streams.KeyValue.pair;

import java.time.Duration;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;

/** The same topologies with topology.optimization=all, or one of its rules. */
final class Optimized {
    private Optimized() { }

    static final Serde<String> S = Serdes.String();
    static final Serde<Long> L = Serdes.Long();
    static final Map<String, Object> ALL = Map.of(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE,
        "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);

    static void add(final String name, final Vectors.Input input, final Consumer<StreamsBuilder> build) {
        Vectors.add("optimized", "optimized_" + name, input, ALL, build);
    }

    static KStream<String, String> rekeyed(final StreamsBuilder b, final String topic) {
        return b.<String, String>stream(topic).selectKey((k, v) -> Stateless.first(v));
    }

    static void add() {
        final JoinWindows even = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(20), Duration.ofMillis(15));
        final JoinWindows skewed = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(5)).before(Duration.ofMillis(30)).after(Duration.ofMillis(5));
        add("table", Tables.rows("in"), b -> b.<String, String>table("in", Materialized.as("rows")).toStream().to("out"));
        add("table_filter", Tables.rows("in"), b -> b.<String, String>table("in").filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        add("table_count", Tables.rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(v, v)).count(), L));
        add("table_joined", Joins.two(20, 60), b -> b.<String, String>stream("in").join(b.<String, String>table("in2"), Joins.BOTH).to("out"));
        add("tables_joined", Joins.two(20, 60), b -> b.<String, String>table("in").join(b.<String, String>table("in2"), Joins.BOTH).toStream().to("out"));
        add("two_counts", Stateless.in("in"), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            Aggregations.out(letters.groupByKey().count(), L);
            letters.groupByKey().reduce((a, v) -> a + "+" + v).toStream().to("out2");
        });
        add("two_counts_named", Stateless.in("in"), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            Aggregations.out(letters.groupByKey(Grouped.as("first")).count(), L);
            letters.groupByKey(Grouped.as("second")).reduce((a, v) -> a + "+" + v).toStream().to("out2");
        });
        add("counts_after_filters", Stateless.in("in"), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            Aggregations.out(letters.filter((k, v) -> Stateless.even(v)).groupByKey().count(), L);
            letters.filterNot((k, v) -> Stateless.even(v)).peek((k, v) -> { }).groupByKey().count().toStream().to("out2", Produced.with(S, L));
            letters.to("plain");
        });
        add("counts_after_values", Stateless.in("in"), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            Aggregations.out(letters.mapValues(v -> v + "!").groupByKey().count(), L);
            letters.groupByKey().count().toStream().to("out2", Produced.with(S, L));
        });
        add("group_by_twice", Stateless.in("in"), b -> {
            final KStream<String, String> in = b.stream("in");
            Aggregations.out(in.groupBy((k, v) -> Stateless.first(v)).count(), L);
            in.groupBy((k, v) -> v).count().toStream().to("out2", Produced.with(S, L));
        });
        add("grouped_once", Stateless.in("in"), b -> {
            final var grouped = b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v));
            Aggregations.out(grouped.count(), L);
            Aggregations.windowed(grouped.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(50), Duration.ofMillis(20))).count(), L);
        });
        add("count_and_join", Joins.two(20, 60), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            Aggregations.out(letters.groupByKey().count(), L);
            letters.join(b.<String, String>stream("in2"), Joins.BOTH, even).to("out2");
        });
        add("two_joins", Joins.two(20, 60), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            letters.join(b.<String, String>table("in2"), Joins.BOTH).to("out");
            letters.leftJoin(b.<String, String>stream("in3"), Joins.BOTH, even).to("out2");
        });
        add("merged", Joins.two(20, 60), b -> {
            final KStream<String, String> merged = rekeyed(b, "in").merge(rekeyed(b, "in2"));
            Aggregations.out(merged.groupByKey().count(), L);
            merged.groupByKey().reduce((a, v) -> a + "+" + v).toStream().to("out2");
        });
        add("merged_half", Joins.two(20, 60), b -> {
            final KStream<String, String> merged = b.<String, String>stream("in").merge(rekeyed(b, "in2"));
            Aggregations.out(merged.groupByKey().count(), L);
        });
        add("repartition", Stateless.in("in"), b -> {
            final KStream<String, String> letters = rekeyed(b, "in").repartition();
            Aggregations.out(letters.groupByKey().count(), L);
            letters.groupByKey().count().toStream().to("out2", Produced.with(S, L));
        });
        add("map_twice", Stateless.in("in"), b -> {
            final KStream<String, String> letters = rekeyed(b, "in").map((k, v) -> pair(v, k));
            Aggregations.out(letters.groupByKey().count(), L);
            letters.groupByKey().count().toStream().to("out2", Produced.with(S, L));
        });
        add("self_join", Joins.two(8, 60).topics("in"), b -> {
            final KStream<String, String> in = b.stream("in");
            in.join(in, Joins.BOTH, even).to("out");
        });
        add("self_join_skewed", Joins.two(8, 60).topics("in"), b -> {
            final KStream<String, String> in = b.stream("in");
            in.join(in, Joins.BOTH, skewed).to("out");
        });
        add("self_join_twice", Joins.two(8, 60).topics("in"), b -> b.<String, String>stream("in").join(b.<String, String>stream("in"), Joins.BOTH, even).to("out"));
        add("self_join_named", Joins.two(8, 60).topics("in"), b -> {
            final KStream<String, String> in = b.stream("in");
            in.join(in, Joins.BOTH, even, StreamJoined.with(S, S, S).withName("pairs").withStoreName("kept")).to("out");
        });
        add("self_join_left", Joins.two(8, 60).topics("in"), b -> {
            final KStream<String, String> in = b.stream("in");
            in.leftJoin(in, Joins.BOTH, even).to("out");
        });
        add("self_join_rekeyed", Joins.two(8, 60).topics("in"), b -> {
            final KStream<String, String> in = rekeyed(b, "in");
            in.join(in, Joins.BOTH, even).to("out");
        });
        add("foreign_key", Joins.two(20, 60).keys("x", "y", "d"), b ->
            b.<String, String>table("in").join(b.<String, String>table("in2"), v -> Joins.fk(v), Joins.BOTH).toStream().to("out"));
        Vectors.add("optimized", "merge_only", Stateless.in("in"), Map.of(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.MERGE_REPARTITION_TOPICS), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            Aggregations.out(letters.groupByKey().count(), L);
            letters.toTable(Materialized.as("rows")).toStream().to("out2");
        });
        Vectors.add("optimized", "reuse_only", Joins.two(20, 60), Map.of(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.REUSE_KTABLE_SOURCE_TOPICS), b -> {
            final KStream<String, String> letters = rekeyed(b, "in");
            Aggregations.out(letters.groupByKey().count(), L);
            letters.groupByKey().count().toStream().to("out2", Produced.with(S, L));
            letters.join(b.<String, String>table("in2"), Joins.BOTH).to("out3");
        });
    }
}
