import static org.apache.kafka.streams.KeyValue.pair;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;

/** What Kafka Streams' own tests look at and the other families do not: zero spans, no grace, things used twice, tables of tables. */
final class Corners {
    private Corners() { }

    static final Serde<String> S = Serdes.String();
    static final Serde<Long> L = Serdes.Long();
    static final EmitStrategy CLOSED = EmitStrategy.onWindowClose();
    static final TimeWindows TUMBLING = TimeWindows.ofSizeAndGrace(Aggregations.ms(50), Aggregations.ms(20));
    static final TimeWindows STRICT_HOPPING = TimeWindows.ofSizeWithNoGrace(Aggregations.ms(40)).advanceBy(Aggregations.ms(15));
    static final SlidingWindows STRICT_SLIDING = SlidingWindows.ofTimeDifferenceWithNoGrace(Aggregations.ms(20));
    static final SessionWindows STRICT_SESSIONS = SessionWindows.ofInactivityGapWithNoGrace(Aggregations.ms(15));
    static final SessionWindows SESSIONS = SessionWindows.ofInactivityGapAndGrace(Aggregations.ms(15), Aggregations.ms(20));
    static final JoinWindows EVEN = JoinWindows.ofTimeDifferenceAndGrace(Aggregations.ms(20), Aggregations.ms(15));

    static void add() {
        windows();
        streams();
        tables();
        suppress();
        plans();
    }

    static Vectors.Input dense(final String... topics) {
        return new Vectors.Input(topics).keys("a", "b").time(4, 25, 0.4).records(90);
    }

    static KGroupedStream<String, String> grouped(final StreamsBuilder b) {
        return Aggregations.grouped(b);
    }

    static void windows() {
        final String f = "corner_windows";
        Vectors.add(f, "session_gap_zero", dense("in").time(2, 8, 0.4), b -> Aggregations.windowed(grouped(b).windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Aggregations.ms(0))).count(), L));
        Vectors.add(f, "session_gap_zero_grace", dense("in").time(2, 8, 0.4), b -> Aggregations.windowed(grouped(b).windowedBy(SessionWindows.ofInactivityGapAndGrace(Aggregations.ms(0), Aggregations.ms(5))).count(), L));
        Vectors.add(f, "session_no_grace", dense("in").time(9, 40, 0.4), b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_SESSIONS).count(), L));
        Vectors.add(f, "sliding_wide", dense("in").time(6, 60, 0.5), b -> Aggregations.windowed(grouped(b).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Aggregations.ms(200), Aggregations.ms(10))).aggregate(() -> "", (k, v, a) -> v.equals("q") ? "" : a + v), S));
        Vectors.add(f, "hopping_no_grace", dense("in").time(9, 50, 0.4), b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_HOPPING).count(), L));
        Vectors.add(f, "final_hopping_no_grace", dense("in").time(9, 50, 0.4), b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_HOPPING).emitStrategy(CLOSED).count(), L));
        Vectors.add(f, "final_sliding_no_grace", dense("in").time(9, 50, 0.4), b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_SLIDING).emitStrategy(CLOSED).count(), L));
        Vectors.add(f, "final_session_no_grace", dense("in").time(9, 50, 0.4), b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_SESSIONS).emitStrategy(CLOSED).count(), L));
        Vectors.add(f, "final_tumbling_jumps", dense("in").time(12, 70, 0.3).jump(120), b -> Aggregations.windowed(grouped(b).windowedBy(TUMBLING).emitStrategy(CLOSED).reduce((a, v) -> v + "+" + a), S));
        Vectors.add(f, "final_session_jumps", dense("in").time(12, 70, 0.3).jump(120), b -> Aggregations.windowed(grouped(b).windowedBy(SESSIONS).emitStrategy(CLOSED).count(), L));
        Vectors.add(f, "final_then_regroup", dense("in").time(12, 70, 0.3), b -> Aggregations.out(grouped(b).windowedBy(TUMBLING).emitStrategy(CLOSED).count()
            .groupBy((w, v) -> pair(w.key(), v), Grouped.with(S, L)).reduce((a, v) -> a + v, (a, v) -> a - v), L));
        Vectors.add(f, "windowed_tables_left", dense("in", "in2").time(10, 50, 0.3), b -> Aggregations.windowed(grouped(b).windowedBy(TUMBLING).count()
            .leftJoin(b.<String, String>stream("in2").groupByKey().windowedBy(TUMBLING).count(), (x, y) -> x + "/" + y), S));
        Vectors.add(f, "session_tables_outer", dense("in", "in2").time(10, 50, 0.3), b -> Aggregations.windowed(grouped(b).windowedBy(SESSIONS).count()
            .outerJoin(b.<String, String>stream("in2").groupByKey().windowedBy(SESSIONS).count(), (x, y) -> x + "/" + y), S));
    }

    static void joined(final String name, final JoinWindows windows, final Vectors.Input input) {
        Vectors.add("corner_joins", "stream_inner_" + name, input, b -> Joins.left(b).join(Joins.right(b), Joins.BOTH, windows).to("out"));
        Vectors.add("corner_joins", "stream_left_" + name, input, b -> Joins.left(b).leftJoin(Joins.right(b), Joins.BOTH, windows).to("out"));
        Vectors.add("corner_joins", "stream_outer_" + name, input, b -> Joins.left(b).outerJoin(Joins.right(b), Joins.BOTH, windows).to("out"));
    }

    static void streams() {
        final String f = "corner_joins";
        joined("no_grace", JoinWindows.ofTimeDifferenceWithNoGrace(Aggregations.ms(10)), dense("in", "in2"));
        joined("zero", JoinWindows.ofTimeDifferenceWithNoGrace(Aggregations.ms(0)), dense("in", "in2").time(2, 6, 0.4));
        joined("before", JoinWindows.ofTimeDifferenceAndGrace(Aggregations.ms(0), Aggregations.ms(4)).before(Aggregations.ms(25)), dense("in", "in2"));
        joined("shifted", JoinWindows.ofTimeDifferenceAndGrace(Aggregations.ms(20), Aggregations.ms(7)).before(Aggregations.ms(-5)), dense("in", "in2"));
        joined("shifted_back", JoinWindows.ofTimeDifferenceWithNoGrace(Aggregations.ms(20)).after(Aggregations.ms(-5)), dense("in", "in2"));
        Vectors.add(f, "stream_outer_with_itself", dense("in"), b -> {
            final KStream<String, String> stream = b.stream("in");
            stream.outerJoin(stream.filter((k, v) -> Stateless.even(v)), Joins.BOTH, EVEN).to("out");
        });
        Vectors.add(f, "stream_left_three", dense("in", "in2", "in3"), b -> Joins.left(b).leftJoin(Joins.right(b), Joins.BOTH, EVEN).leftJoin(b.stream("in3"), Joins.BOTH, EVEN).to("out"));
        Vectors.add(f, "stream_outer_rekeyed_named", dense("in", "in2"), b -> Joins.letters(Joins.left(b)).outerJoin(Joins.letters(Joins.right(b)), Joins.BOTH, EVEN,
            StreamJoined.with(S, S, S).withName("pairs").withStoreName("kept")).to("out"));
        Vectors.add(f, "repartition_then_left_join", dense("in", "in2"), b -> Joins.letters(Joins.left(b)).repartition().mapValues(v -> v + "!").leftJoin(Joins.right(b), Joins.BOTH, EVEN).to("out"));
        Vectors.add(f, "repartition_then_both", dense("in", "in2"), b -> {
            final KStream<String, String> stream = Joins.letters(Joins.left(b)).repartition(Repartitioned.as("letters"));
            stream.leftJoin(b.<String, String>table("in2"), Joins.BOTH).to("out");
            Aggregations.out(stream.groupByKey().count(), L);
        });
        Vectors.add(f, "rekeyed_joined_by_two_names", dense("in", "in2", "in3").keys("x", "b", "r"), b -> {
            final KStream<String, String> stream = Joins.letters(Joins.left(b));
            stream.join(Joins.right(b), Joins.BOTH, EVEN, StreamJoined.with(S, S, S).withName("first").withStoreName("first-store")).to("out");
            stream.join(b.<String, String>table("in3"), Joins.BOTH, Joined.as("second")).to("out2");
        });
        Vectors.add(f, "rekeyed_joined_twice_with_tables", dense("in", "in2", "in3").keys("x", "b", "r"), b -> {
            final KStream<String, String> stream = Joins.letters(Joins.left(b));
            stream.join(b.<String, String>table("in2"), Joins.BOTH).to("out");
            stream.leftJoin(b.<String, String>table("in3"), Joins.BOTH).to("out2");
        });
        Vectors.add(f, "lookup_in_left_join", dense("in", "in2", "in3"), b -> Joins.left(b).leftJoin(b.<String, String>table("in2").leftJoin(b.table("in3"), Joins.BOTH), Joins.BOTH).to("out"));
        Vectors.add(f, "lookup_in_outer_join", dense("in", "in2", "in3"), b -> Joins.left(b).leftJoin(b.<String, String>table("in2").outerJoin(b.table("in3"), Joins.BOTH), Joins.BOTH).to("out"));
    }

    static void tables() {
        final String f = "corner_tables";
        final Vectors.Input input = new Vectors.Input("in", "in2").keys("x", "y", "z", "d", "e", "q").values("x", "yy", "zzz", "red", "blue", "x and y", "", "qq").nulls(0.03, 0.25).records(110);
        Vectors.add(f, "foreign_inner_by_key", input, b -> b.<String, String>table("in").join(b.<String, String>table("in2"), (k, v) -> Stateless.even(v) ? k : Joins.fk(v), Joins.BOTH).toStream().to("out"));
        Vectors.add(f, "foreign_left_sometimes", input, b -> b.<String, String>table("in").leftJoin(b.<String, String>table("in2"), v -> Stateless.even(v) ? null : Joins.fk(v), Joins.BOTH).toStream().to("out"));
        Vectors.add(f, "foreign_inner_sometimes", input, b -> b.<String, String>table("in").join(b.<String, String>table("in2"), v -> Stateless.even(v) ? null : Joins.fk(v), Joins.BOTH).toStream().to("out"));
        Vectors.add(f, "foreign_with_itself", input, b -> {
            final KTable<String, String> table = b.table("in");
            table.leftJoin(table, v -> Joins.fk(v), Joins.BOTH).toStream().to("out");
            b.<String, String>stream("in2").to("out2");
        });
        Vectors.add(f, "foreign_twice", new Vectors.Input("in", "in2", "in3").keys("x", "y", "z", "d").values("x", "yy", "zzz", "red", "").nulls(0.03, 0.2).records(110), b ->
            b.<String, String>table("in").join(b.<String, String>table("in2"), v -> Joins.fk(v), Joins.BOTH).leftJoin(b.<String, String>table("in3"), v -> v.substring(0, 1), Joins.BOTH).toStream().to("out"));
        Vectors.add(f, "foreign_of_counts", input, b -> b.<String, String>stream("in").groupByKey().reduce((a, v) -> v + a)
            .leftJoin(b.<String, String>stream("in2").groupBy((k, v) -> Stateless.first(v)).count(), v -> Joins.fk(v), (x, y) -> x + "/" + y, TableJoined.as("pairs")).toStream().to("out"));
        Vectors.add(f, "foreign_filtered", input, b -> b.<String, String>table("in").filter((k, v) -> !v.isEmpty(), Materialized.as("some")).leftJoin(b.<String, String>table("in2").mapValues(v -> v + "!"), v -> Joins.fk(v), Joins.BOTH)
            .filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "regroup_nowhere", Tables.rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> Stateless.even(v) ? null : pair(v.equals("q") ? null : Stateless.first(v), v)).count(), L));
        Vectors.add(f, "regroup_null_values", Tables.rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(k, Stateless.even(v) ? null : v)).reduce((a, v) -> a + "+" + v, (a, v) -> a + "-" + v), S));
        Vectors.add(f, "table_map_values_to_null_kept", Tables.rows("in"), b -> Aggregations.out(b.<String, String>table("in").mapValues(v -> Stateless.even(v) ? null : v, Materialized.as("rows")).groupBy((k, v) -> pair(v, v)).count(), L));
        Vectors.add(f, "table_map_values_to_null", Tables.rows("in"), b -> Aggregations.out(b.<String, String>table("in").mapValues(v -> Stateless.even(v) ? null : v).filter((k, v) -> !v.equals("q")), S));
        Vectors.add(f, "tables_nested", new Vectors.Input("in", "in2", "in3").keys("a", "b").nulls(0.04, 0.3).records(110), b ->
            b.<String, String>table("in").leftJoin(b.<String, String>table("in2").outerJoin(b.<String, String>table("in3"), Joins.BOTH), Joins.BOTH).groupBy((k, v) -> pair(v, v)).count().toStream().to("out", Produced.with(S, L)));
        Vectors.add(f, "tables_joiner_to_null", input, b -> b.<String, String>table("in").outerJoin(b.<String, String>table("in2"), (x, y) -> x == null ? null : x + y, Materialized.as("rows")).filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "table_reduce_to_null", Tables.rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(Stateless.first(v), v)).reduce((a, v) -> a.length() > 20 ? null : a + "+" + v, (a, v) -> v.equals("q") ? null : a + "-" + v), S));
    }

    static void suppress() {
        final String f = "corner_suppress";
        final Vectors.Input input = dense("in").time(9, 60, 0.35);
        Vectors.add(f, "suppress_zero", input, b -> Aggregations.windowed(grouped(b).windowedBy(TUMBLING).count().suppress(Suppressed.untilTimeLimit(Aggregations.ms(0), BufferConfig.unbounded())), L));
        Vectors.add(f, "suppress_hopping_no_grace", input, b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_HOPPING).count().suppress(Suppressed.untilWindowCloses(BufferConfig.maxRecords(1000).shutDownWhenFull())), L));
        Vectors.add(f, "suppress_sliding_no_grace", input, b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_SLIDING).count().suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), L));
        Vectors.add(f, "suppress_session_no_grace", input, b -> Aggregations.windowed(grouped(b).windowedBy(STRICT_SESSIONS).count().suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), L));
        Vectors.add(f, "suppress_session_time", input, b -> Aggregations.windowed(grouped(b).windowedBy(SESSIONS).count().suppress(Suppressed.untilTimeLimit(Aggregations.ms(25), BufferConfig.maxRecords(2).emitEarlyWhenFull())), L));
        Vectors.add(f, "suppress_tombstones", input, b -> Aggregations.windowed(grouped(b).windowedBy(TUMBLING).aggregate(() -> "", (k, v, a) -> "q".equals(v) || v == null ? null : a + v, Materialized.with(S, S)).suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), S));
        Vectors.add(f, "suppress_cogrouped", dense("in", "in2").time(9, 60, 0.35), b -> Aggregations.windowed(grouped(b).<String>cogroup((k, v, a) -> a + "1" + v)
            .cogroup(b.<String, String>stream("in2").groupByKey(), (k, v, a) -> a + "2" + v).windowedBy(SESSIONS).aggregate(() -> "", (k, x, y) -> x + "|" + y, Materialized.with(S, S))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), S));
        Vectors.add(f, "suppress_of_joined_windows", dense("in", "in2").time(9, 60, 0.35), b -> Aggregations.windowed(grouped(b).windowedBy(TUMBLING).count()
            .outerJoin(b.<String, String>stream("in2").groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(Aggregations.ms(50), Aggregations.ms(45))).count(), (x, y) -> x + "/" + y, Materialized.with(null, S))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), S));
        Vectors.add(f, "suppress_then_tables", dense("in", "in2").time(9, 60, 0.35), b -> b.<String, String>table("in").suppress(Suppressed.untilTimeLimit(Aggregations.ms(30), BufferConfig.unbounded()))
            .leftJoin(b.<String, String>table("in2"), Joins.BOTH).toStream().to("out"));
        Vectors.add(f, "suppress_after_tables", dense("in", "in2").time(9, 60, 0.35), b -> b.<String, String>table("in2").leftJoin(b.<String, String>table("in").suppress(Suppressed.untilTimeLimit(Aggregations.ms(30), BufferConfig.maxRecords(1)).withName("held")), Joins.BOTH)
            .filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "suppress_twice", input, b -> Aggregations.out(b.<String, String>table("in").suppress(Suppressed.untilTimeLimit(Aggregations.ms(20), BufferConfig.unbounded())).mapValues(v -> v + "!")
            .suppress(Suppressed.untilTimeLimit(Aggregations.ms(10), BufferConfig.maxBytes(120))), S));
    }

    static void plans() {
        final String f = "corner_plans";
        final Vectors.Input input = Stateless.in("in", "in2");
        Vectors.add(f, "cogroup_used_twice_named", input, b -> {
            final var one = b.<String, String>stream("in").map((k, v) -> pair(v, k)).groupByKey(Grouped.as("foo")).<String>cogroup((k, v, a) -> a + "1" + v);
            one.aggregate(() -> "", Materialized.with(S, S)).toStream().to("out");
            one.aggregate(() -> "-", Materialized.with(S, S)).toStream().to("out2");
            b.<String, String>stream("in2").to("out3");
        });
        Vectors.add(f, "cogroup_used_twice", input, b -> {
            final var both = b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v)).<String>cogroup((k, v, a) -> a + "1" + v).cogroup(b.<String, String>stream("in2").groupByKey(), (k, v, a) -> a + "2" + v);
            both.aggregate(() -> "", Materialized.with(S, S)).toStream().to("out");
            both.windowedBy(TUMBLING).aggregate(() -> "-", Materialized.with(S, S)).toStream((w, v) -> w.key()).to("out2");
        });
        Vectors.add(f, "cogroup_grouped_used_twice", input, b -> {
            final KGroupedStream<String, String> one = b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v));
            final KGroupedStream<String, String> two = b.<String, String>stream("in2").groupByKey();
            one.<String>cogroup((k, v, a) -> a + "1" + v).cogroup(two, (k, v, a) -> a + "2" + v).aggregate(() -> "", Materialized.with(S, S)).toStream().to("out");
            one.<String>cogroup((k, v, a) -> a + "3" + v).cogroup(two, (k, v, a) -> a + "4" + v).aggregate(() -> "", Materialized.with(S, S)).toStream().to("out2");
            one.count().toStream().to("out3", Produced.with(S, L));
        });
        Vectors.add(f, "cogroup_same_stream_again", input, b -> {
            final KGroupedStream<String, String> one = grouped(b);
            one.<String>cogroup((k, v, a) -> a + "1" + v).cogroup(b.<String, String>stream("in2").groupByKey(), (k, v, a) -> a + "2" + v).cogroup(one, (k, v, a) -> a + "3" + v).aggregate(() -> "", Materialized.with(S, S)).toStream().to("out");
        });
        Vectors.add(f, "cogroup_then_join", input, b -> Aggregations.out(grouped(b).<String>cogroup((k, v, a) -> a + "1" + v).aggregate(() -> "", Materialized.with(S, S))
            .join(b.<String, String>table("in2"), Joins.BOTH), S));
        Vectors.add(f, "same_topics_in_another_order", input, b -> {
            b.<String, String>stream(List.of("in", "in2")).filter((k, v) -> Stateless.even(v)).to("out");
            b.<String, String>stream(List.of("in2", "in")).mapValues(v -> v + "!").to("out2");
        });
        Vectors.add(f, "repartition_suffixed", input, b -> b.<String, String>stream("in").repartition(Repartitioned.as("by-hand-repartition")).merge(b.stream("in2")).repartition().to("out"));
        Vectors.add(f, "to_table_rekeyed_named", input, b -> {
            final KStream<String, String> stream = Joins.letters(b.stream("in"));
            Aggregations.out(stream.toTable(Named.as("newest"), Materialized.as("rows")).outerJoin(b.<String, String>table("in2"), Joins.BOTH, Named.as("pairs")), S);
            stream.groupByKey(Grouped.as("letters")).windowedBy(SESSIONS).reduce((a, v) -> a + "+" + v, Named.as("sums"), Materialized.as("sum-rows")).toStream((w, v) -> w.key()).to("out2");
        });
        Vectors.add(f, "windows_of_one_named_group", input, b -> {
            final KGroupedStream<String, String> letters = Joins.letters(b.stream("in")).groupByKey(Grouped.as("grouping"));
            letters.windowedBy(TUMBLING).count().toStream((w, v) -> w.key()).to("out", Produced.with(S, L));
            letters.windowedBy(STRICT_SLIDING).count().toStream((w, v) -> w.key()).to("out2", Produced.with(S, L));
            letters.windowedBy(SESSIONS).count(Named.as("sessions")).toStream((w, v) -> w.key()).to("out3", Produced.with(S, L));
            b.<String, String>stream("in2").to("out4");
        });
        Vectors.add(f, "split_rekeyed", input, b -> {
            final Map<String, KStream<String, String>> ways = Joins.letters(b.stream("in")).split(Named.as("way-")).branch((k, v) -> Stateless.even(v)).defaultBranch();
            Aggregations.out(ways.get("way-1").groupByKey().count(), L);
            ways.get("way-0").merge(b.stream("in2")).toTable().toStream().to("out2");
        });
        Vectors.add(f, "global_lookup_then_count", input, b -> {
            final var table = b.<String, String>globalTable("in2");
            Aggregations.out(Joins.letters(b.stream("in")).leftJoin(table, (k, v) -> k, Joins.BOTH).groupByKey().count(), L);
        });
    }
}
