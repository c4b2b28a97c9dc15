import java.time.Duration;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Aggregations of streams, windows, suppression. */
final class Aggregations {
    private Aggregations() { }

    static final Serde<String> S = Serdes.String();
    static final Serde<Long> L = Serdes.Long();

    static Duration ms(final long ms) {
        return Duration.ofMillis(ms);
    }

    static <V> void out(final KTable<String, V> table, final Serde<V> serde) {
        table.toStream().to("out", Produced.with(S, serde));
    }

    static <V> void windowed(final KTable<Windowed<String>, V> table, final Serde<V> serde) {
        table.toStream((w, v) -> w.key() + "@" + w.window().start() + "/" + w.window().end()).to("out", Produced.with(S, serde));
    }

    static KGroupedStream<String, String> grouped(final StreamsBuilder b) {
        return b.<String, String>stream("in").groupByKey(Grouped.with(S, S));
    }

    static String joined(final String aggregate, final String value) {
        return aggregate + "+" + value;
    }

    static void add() {
        String f = "aggregate";
        Vectors.add(f, "count", Stateless.in("in"), b -> out(grouped(b).count(), L));
        Vectors.add(f, "count_by", Stateless.in("in"), b -> out(b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v)).count(), L));
        Vectors.add(f, "count_rekeyed", Stateless.in("in"), b -> out(b.<String, String>stream("in").selectKey((k, v) -> Stateless.first(v)).groupByKey().count(), L));
        Vectors.add(f, "count_named", Stateless.in("in"), b -> out(b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v), Grouped.as("letters"))
            .count(Named.as("counter"), Materialized.as("counts")), L));
        Vectors.add(f, "count_with_serdes", Stateless.in("in"), b -> out(grouped(b).count(Materialized.with(S, L)), L));
        Vectors.add(f, "two_counts_of_one_group", Stateless.in("in"), b -> {
            final KGroupedStream<String, String> letters = b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v));
            out(letters.count(), L);
            letters.reduce((a, v) -> joined(a, v)).toStream().to("out2");
        });
        Vectors.add(f, "reduce", Stateless.in("in"), b -> out(grouped(b).reduce((a, v) -> joined(a, v)), S));
        Vectors.add(f, "reduce_to_null", Stateless.in("in"), b -> out(grouped(b).reduce((a, v) -> v.equals("x") ? null : joined(a, v)), S));
        Vectors.add(f, "aggregate", Stateless.in("in"), b -> out(grouped(b).aggregate(() -> 0L, (k, v, a) -> a + v.length(), Materialized.with(S, L)), L));
        Vectors.add(f, "aggregate_to_null", Stateless.in("in"), b -> out(grouped(b).aggregate(() -> "", (k, v, a) -> v.isEmpty() ? null : a + v), S));
        Vectors.add(f, "aggregate_then_filter", Stateless.in("in"), b -> out(grouped(b).count(Materialized.as("counts")).filter((k, v) -> v % 2 == 0), L));
        Vectors.add(f, "aggregate_then_regroup", Stateless.in("in"), b -> out(grouped(b).count()
            .groupBy((k, v) -> org.apache.kafka.streams.KeyValue.pair("" + v % 3, v), Grouped.with(S, L)).reduce((a, v) -> a + v, (a, v) -> a - v), L));
        Vectors.add(f, "word_count", Stateless.in("in"), b -> out(b.<String, String>stream("in").flatMapValues(v -> Stateless.letters(v))
            .groupBy((k, v) -> v).count(Materialized.as("counts")), L));
        Vectors.add(f, "cogroup", Stateless.in("in", "in2", "in3").records(90), b -> {
            final KGroupedStream<String, String> one = grouped(b);
            final KGroupedStream<String, String> two = b.<String, String>stream("in2").groupByKey();
            final KGroupedStream<String, String> three = b.<String, String>stream("in3").groupBy((k, v) -> Stateless.first(v));
            out(one.<String>cogroup((k, v, a) -> a + "1" + v).cogroup(two, (k, v, a) -> a + "2" + v).cogroup(three, (k, v, a) -> a + "3" + v)
                .aggregate(() -> "", Materialized.with(S, S)), S);
        });
        Vectors.add(f, "cogroup_named", Stateless.in("in", "in2"), b -> {
            final KGroupedStream<String, String> two = b.<String, String>stream("in2").groupByKey();
            out(grouped(b).<String>cogroup((k, v, a) -> a + "1" + v).cogroup(two, (k, v, a) -> v.equals("q") ? null : a + "2" + v)
                .aggregate(() -> "", Named.as("both"), Materialized.as("rows")).mapValues(v -> v + "."), S);
        });
        windows();
        suppress();
    }

    static Vectors.Input timed(final String... topics) {
        return new Vectors.Input(topics).keys("a", "b", "c").time(12, 70, 0.35).records(90);
    }

    static void windows() {
        final String f = "windows";
        final TimeWindows tumbling = TimeWindows.ofSizeAndGrace(ms(50), ms(20));
        final TimeWindows strict = TimeWindows.ofSizeWithNoGrace(ms(40));
        final TimeWindows hopping = TimeWindows.ofSizeAndGrace(ms(50), ms(30)).advanceBy(ms(20));
        final SlidingWindows sliding = SlidingWindows.ofTimeDifferenceAndGrace(ms(30), ms(25));
        final SessionWindows sessions = SessionWindows.ofInactivityGapAndGrace(ms(15), ms(20));
        Vectors.add(f, "tumbling_count", timed("in"), b -> windowed(grouped(b).windowedBy(tumbling).count(), L));
        Vectors.add(f, "tumbling_no_grace", timed("in"), b -> windowed(grouped(b).windowedBy(strict).count(), L));
        Vectors.add(f, "tumbling_jumps", timed("in").jump(200_000), b -> windowed(grouped(b).windowedBy(tumbling).count(), L));
        Vectors.add(f, "tumbling_reduce", timed("in").nulls(0.05, 0), b -> windowed(grouped(b).windowedBy(tumbling).reduce((a, v) -> joined(a, v)), S));
        Vectors.add(f, "tumbling_aggregate", timed("in"), b -> windowed(grouped(b).windowedBy(tumbling)
            .aggregate(() -> "", (k, v, a) -> "q".equals(v) ? null : a + v, Materialized.<String, String, WindowStore<Bytes, byte[]>>as("sums").withRetention(ms(100_000))), S));
        Vectors.add(f, "tumbling_with_serdes", timed("in"), b -> windowed(grouped(b).windowedBy(tumbling).count(Materialized.with(S, L)), L));
        Vectors.add(f, "tumbling_by_letter", timed("in"), b -> windowed(b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v))
            .windowedBy(tumbling).count(Named.as("counter")), L));
        Vectors.add(f, "tumbling_to_topic", timed("in"), b -> grouped(b).windowedBy(tumbling).count().toStream().to("out",
            Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50), L)));
        Vectors.add(f, "hopping_count", timed("in"), b -> windowed(grouped(b).windowedBy(hopping).count(), L));
        Vectors.add(f, "hopping_reduce", timed("in").nulls(0.05, 0), b -> windowed(grouped(b).windowedBy(hopping).reduce((a, v) -> joined(a, v)), S));
        Vectors.add(f, "sliding_count", timed("in"), b -> windowed(grouped(b).windowedBy(sliding).count(), L));
        Vectors.add(f, "sliding_dense", timed("in").keys("a").time(6, 40, 0.5), b -> windowed(grouped(b).windowedBy(sliding).count(), L));
        Vectors.add(f, "sliding_no_grace", timed("in").keys("a", "b").time(6, 40, 0.5), b -> windowed(grouped(b).windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(ms(20))).count(), L));
        Vectors.add(f, "sliding_reduce", timed("in").keys("a", "b").time(6, 40, 0.4), b -> windowed(grouped(b).windowedBy(sliding).reduce((a, v) -> joined(a, v)), S));
        Vectors.add(f, "sliding_aggregate", timed("in").keys("a", "b").time(6, 40, 0.4), b -> windowed(grouped(b).windowedBy(sliding)
            .aggregate(() -> "", (k, v, a) -> a + v), S));
        Vectors.add(f, "session_count", timed("in"), b -> windowed(grouped(b).windowedBy(sessions).count(), L));
        Vectors.add(f, "session_dense", timed("in").keys("a", "b").time(12, 60, 0.5), b -> windowed(grouped(b).windowedBy(sessions).count(Materialized.as("sessions")), L));
        Vectors.add(f, "session_jumps", timed("in").jump(150_000), b -> windowed(grouped(b).windowedBy(sessions).count(), L));
        Vectors.add(f, "session_reduce", timed("in"), b -> windowed(grouped(b).windowedBy(sessions).reduce((a, v) -> joined(a, v)), S));
        Vectors.add(f, "session_aggregate", timed("in"), b -> windowed(grouped(b).windowedBy(sessions)
            .aggregate(() -> "", (k, v, a) -> a + v, (k, x, y) -> x + "|" + y, Materialized.<String, String, SessionStore<Bytes, byte[]>>as("sessions")), S));
        Vectors.add(f, "session_to_topic", timed("in"), b -> grouped(b).windowedBy(sessions).count().toStream().to("out",
            Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), L)));
        Vectors.add(f, "session_by_letter", timed("in"), b -> windowed(b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v)).windowedBy(sessions).count(), L));
        Vectors.add(f, "window_then_regroup", timed("in"), b -> out(grouped(b).windowedBy(tumbling).count()
            .groupBy((w, v) -> org.apache.kafka.streams.KeyValue.pair(w.key(), v), Grouped.with(S, L)).reduce((a, v) -> a + v, (a, v) -> a - v), L));
        Vectors.add(f, "session_then_regroup", timed("in"), b -> out(grouped(b).windowedBy(sessions).count()
            .groupBy((w, v) -> org.apache.kafka.streams.KeyValue.pair(w.key(), v), Grouped.with(S, L)).aggregate(() -> 0L, (k, v, a) -> a + v, (k, v, a) -> a - v, Materialized.with(S, L)), L));
        Vectors.add(f, "window_filter", timed("in"), b -> windowed(grouped(b).windowedBy(tumbling).count().filter((w, v) -> v % 2 == 1).mapValues(v -> v * 10), L));
        Vectors.add(f, "cogroup_tumbling", timed("in", "in2"), b -> windowed(grouped(b).<String>cogroup((k, v, a) -> a + "1" + v)
            .cogroup(b.<String, String>stream("in2").groupByKey(), (k, v, a) -> a + "2" + v).windowedBy(tumbling).aggregate(() -> "", Materialized.with(S, S)), S));
        Vectors.add(f, "cogroup_sliding", timed("in", "in2"), b -> windowed(grouped(b).<String>cogroup((k, v, a) -> a + "1" + v)
            .cogroup(b.<String, String>stream("in2").groupByKey(), (k, v, a) -> a + "2" + v).windowedBy(sliding).aggregate(() -> "", Materialized.with(S, S)), S));
        Vectors.add(f, "cogroup_session", timed("in", "in2"), b -> windowed(grouped(b).<String>cogroup((k, v, a) -> a + "1" + v)
            .cogroup(b.<String, String>stream("in2").groupByKey(), (k, v, a) -> a + "2" + v).windowedBy(sessions).aggregate(() -> "", (k, x, y) -> x + "|" + y, Materialized.with(S, S)), S));
        final Map<String, Object> eager = Map.of("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        Vectors.add("final", "final_tumbling", timed("in"), b -> windowed(grouped(b).windowedBy(tumbling).emitStrategy(EmitStrategy.onWindowClose()).count(), L));
        Vectors.add("final", "final_tumbling_eager", timed("in"), eager, b -> windowed(grouped(b).windowedBy(tumbling).emitStrategy(EmitStrategy.onWindowClose()).count(), L));
        Vectors.add("final", "final_hopping_eager", timed("in"), eager, b -> windowed(grouped(b).windowedBy(hopping).emitStrategy(EmitStrategy.onWindowClose()).count(), L));
        Vectors.add("final", "final_sliding_eager", timed("in"), eager, b -> windowed(grouped(b).windowedBy(sliding).emitStrategy(EmitStrategy.onWindowClose()).count(), L));
        Vectors.add("final", "final_session_eager", timed("in"), eager, b -> windowed(grouped(b).windowedBy(sessions).emitStrategy(EmitStrategy.onWindowClose()).count(), L));
    }

    static void suppress() {
        final String f = "suppress";
        final TimeWindows tumbling = TimeWindows.ofSizeAndGrace(ms(50), ms(20));
        final SlidingWindows sliding = SlidingWindows.ofTimeDifferenceAndGrace(ms(30), ms(25));
        final SessionWindows sessions = SessionWindows.ofInactivityGapAndGrace(ms(15), ms(20));
        Vectors.add(f, "suppress_tumbling", timed("in"), b -> windowed(grouped(b).windowedBy(tumbling).count()
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), L));
        Vectors.add(f, "suppress_tumbling_named", timed("in"), b -> windowed(b.<String, String>stream("in").groupBy((k, v) -> Stateless.first(v), Grouped.with(S, S)).windowedBy(tumbling).count()
            .filter((w, v) -> v > 1).suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("final-counts")), L));
        Vectors.add(f, "suppress_sliding", timed("in"), b -> windowed(grouped(b).windowedBy(sliding).count()
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), L));
        Vectors.add(f, "suppress_session", timed("in"), b -> windowed(grouped(b).windowedBy(sessions).count()
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), L));
        Vectors.add(f, "suppress_time", timed("in"), b -> out(b.<String, String>table("in")
            .suppress(Suppressed.untilTimeLimit(ms(40), BufferConfig.unbounded())), S));
        Vectors.add(f, "suppress_records", timed("in").keys("a", "b", "c", "d", "e", "f"), b -> out(grouped(b).count()
            .suppress(Suppressed.untilTimeLimit(ms(1000), BufferConfig.maxRecords(3))), L));
        Vectors.add(f, "suppress_bytes", timed("in").keys("a", "b", "c", "d", "e", "f"), b -> out(b.<String, String>table("in")
            .suppress(Suppressed.untilTimeLimit(ms(1000), BufferConfig.maxBytes(150))), S));
        Vectors.add(f, "suppress_nothing", timed("in"), b -> out(grouped(b).count().suppress(Suppressed.untilTimeLimit(Duration.ZERO, BufferConfig.maxRecords(1).withMaxBytes(1))), L));
        Vectors.add(f, "suppress_then_regroup", timed("in"), b -> out(b.<String, String>table("in", Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("rows"))
            .suppress(Suppressed.untilTimeLimit(ms(30), BufferConfig.unbounded()))
            .groupBy((k, v) -> org.apache.kafka.streams.KeyValue.pair(v, v)).count(), L));
        Vectors.add(f, "suppress_then_join", timed("in", "in2"), b -> b.<String, String>stream("in2").join(b.<String, String>table("in")
            .suppress(Suppressed.untilTimeLimit(ms(30), BufferConfig.unbounded())), (v, t) -> v + "/" + t).to("out"));
    }
}
