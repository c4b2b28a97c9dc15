import static org.apache.kafka.streams.KeyValue.pair;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;

/** Tables of topics. */
final class Tables {
    private Tables() { }

    static final Serde<String> S = Serdes.String();
    static final Serde<Long> L = Serdes.Long();

    static Vectors.Input rows(final String... topics) {
        return new Vectors.Input(topics).nulls(0.04, 0.25).records(70);
    }

    static void add() {
        final String f = "table";
        Vectors.add(f, "table_to_stream", rows("in"), b -> b.<String, String>table("in").toStream().to("out"));
        Vectors.add(f, "table_kept", rows("in"), b -> b.<String, String>table("in", Materialized.as("rows")).toStream().to("out"));
        Vectors.add(f, "table_named", rows("in"), b -> b.<String, String>table("in", Consumed.as("users"), Materialized.as("rows")).toStream(Named.as("changes")).to("out"));
        Vectors.add(f, "table_to_stream_rekeyed", rows("in"), b -> b.<String, String>table("in").toStream((k, v) -> k + v).to("out"));
        Vectors.add(f, "table_filter", rows("in"), b -> b.<String, String>table("in").filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "table_filter_not", rows("in"), b -> b.<String, String>table("in").filterNot((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "table_kept_filter", rows("in"), b -> b.<String, String>table("in", Materialized.as("rows")).filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "table_filter_kept", rows("in"), b -> b.<String, String>table("in").filter((k, v) -> Stateless.even(v), Materialized.as("even")).toStream().to("out"));
        Vectors.add(f, "table_both_kept_filter", rows("in"), b -> b.<String, String>table("in", Materialized.as("rows"))
            .filter((k, v) -> Stateless.even(v), Named.as("evens"), Materialized.as("even")).toStream().to("out"));
        Vectors.add(f, "table_filter_with_serdes", rows("in"), b -> b.<String, String>table("in").filter((k, v) -> Stateless.even(v), Materialized.with(S, S)).toStream().to("out"));
        Vectors.add(f, "table_map_values", rows("in"), b -> b.<String, String>table("in").mapValues(v -> v + "!").toStream().to("out"));
        Vectors.add(f, "table_map_values_with_key", rows("in"), b -> b.<String, String>table("in").mapValues((k, v) -> k + v).toStream().to("out"));
        Vectors.add(f, "table_map_values_kept", rows("in"), b -> b.<String, String>table("in").mapValues(v -> v + "!", Materialized.as("loud")).toStream().to("out"));
        Vectors.add(f, "table_filter_map_filter", rows("in"), b -> b.<String, String>table("in").filter((k, v) -> !v.isEmpty()).mapValues(v -> v + "!")
            .filter((k, v) -> Stateless.even(v), Materialized.as("even")).toStream().to("out"));
        Vectors.add(f, "table_count", rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(v, v)).count(), L));
        Vectors.add(f, "table_count_named", rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(v, v), Grouped.as("by-value"))
            .count(Named.as("counter"), Materialized.as("counts")), L));
        Vectors.add(f, "table_reduce", rows("in").values("1", "2", "3", "5", "8"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(Stateless.even(k + v) ? "even" : "odd", Long.parseLong(v)),
            Grouped.with(S, L)).reduce((a, v) -> a + v, (a, v) -> a - v), L));
        Vectors.add(f, "table_aggregate", rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(Stateless.first(v), v))
            .aggregate(() -> "", (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v), S));
        Vectors.add(f, "table_aggregate_kept", rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(k.compareTo("b") > 0 ? "late" : "early", v))
            .aggregate(() -> "", (k, v, a) -> a + "+" + v, (k, v, a) -> v.equals("q") ? null : a + "-" + v, Materialized.as("sums")), S));
        Vectors.add(f, "table_filter_count", rows("in"), b -> Aggregations.out(b.<String, String>table("in").filter((k, v) -> Stateless.even(v)).mapValues(v -> v + "!")
            .groupBy((k, v) -> pair(v, k)).count(), L));
        Vectors.add(f, "table_two_groups", rows("in"), b -> {
            final KTable<String, String> table = b.table("in");
            table.toStream().to("changes");
            Aggregations.out(table.groupBy((k, v) -> pair(v, v)).count(), L);
            table.groupBy((k, v) -> pair(Stateless.first(v), v)).reduce((a, v) -> a + "+" + v, (a, v) -> a + "-" + v).toStream().to("out2");
        });
        Vectors.add(f, "sum_six_or_five", new Vectors.Input("in").script(
            new Object[]{"in", "a", "1", 1}, new Object[]{"in", "b", "2", 2}, new Object[]{"in", "b", "3", 3},
            new Object[]{"in", "a", "1", 0}, new Object[]{"in", "a", null, 4}), b -> {
                b.<String, String>stream("in").filter((k, v) -> v != null && v.matches("[0-9]+")).groupBy((k, v) -> "all").aggregate(() -> 0L, (k, v, a) -> a + Long.parseLong(v), Materialized.with(S, L))
                    .toStream().to("stream-sum", org.apache.kafka.streams.kstream.Produced.with(S, L));
                b.<String, String>stream("in").toTable().filter((k, v) -> v.matches("[0-9]+")).groupBy((k, v) -> pair("all", Long.parseLong(v)), Grouped.with(S, L)).reduce((a, v) -> a + v, (a, v) -> a - v)
                    .toStream().to("table-sum", org.apache.kafka.streams.kstream.Produced.with(S, L));
            });
    }
}
