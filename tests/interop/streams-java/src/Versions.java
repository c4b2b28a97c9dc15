import static org.apache.kafka.streams.KeyValue.pair;

import java.time.Duration;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;

/** Versioned stores and tables, and windows without an end. */
final class Versions {
    private Versions() { }

    static final Serde<String> S = Serdes.String();
    static final Serde<Long> L = Serdes.Long();

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kept(final String name, final long ms) {
        return Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(ms))).withKeySerde(S).withValueSerde(S);
    }

    static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counted(final String name, final long ms) {
        return Materialized.<String, Long>as(Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(ms))).withKeySerde(S).withValueSerde(L);
    }

    static String shown(final VersionedRecord<String> found) {
        return found == null ? "-" : found.value() + "@" + found.timestamp() + found.validTo().map(t -> ".." + t).orElse("");
    }

    /** Puts (or deletes, by the last letter) and then asks for now and then. */
    static final class Versioned extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final VersionedKeyValueStore<String, String> store = context().getStateStore("versions");
            final long t = record.timestamp();
            if (record.key() == null) {
                return;
            }
            if ("q".equals(record.value())) {
                context().forward(record.withKey("deleted").withValue(shown(store.delete(record.key(), t))));
            } else {
                context().forward(record.withKey("put").withValue("" + store.put(record.key(), record.value(), t)));
            }
            context().forward(record.withKey("now").withValue(shown(store.get(record.key()))));
            for (final long ago : new long[]{0, 7, 25, 60, 150, 400}) {
                context().forward(record.withKey("then").withValue(shown(store.get(record.key(), t - ago))));
            }
            context().forward(record.withKey("later").withValue(shown(store.get(record.key(), t + 30))));
        }
    }

    static Vectors.Input rows(final String... topics) {
        return new Vectors.Input(topics).keys("a", "b", "c").nulls(0.03, 0.2).time(10, 120, 0.45).records(90);
    }

    static void add() {
        final String f = "versions";
        for (final int ms : new int[]{1000, 100, 30, 0}) {
            Vectors.add(f, "versioned_store_" + ms, rows("in"), b -> {
                b.addStateStore(Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("versions", Duration.ofMillis(ms)), S, S));
                b.<String, String>stream("in").process(Versioned::new, "versions").to("out");
            });
            Vectors.add(f, "versioned_table_" + ms, rows("in"), b -> b.table("in", Consumed.with(S, S), kept("rows", ms)).toStream().to("out"));
            Vectors.add(f, "versioned_joined_" + ms, rows("in", "in2"), b ->
                b.<String, String>stream("in").join(b.table("in2", Consumed.with(S, S), kept("rows", ms)), Joins.BOTH).to("out"));
        }
        Vectors.add(f, "versioned_far", rows("in").time(40000, 120000, 0.4), b -> {
            b.addStateStore(Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("versions", Duration.ofMillis(200000)), S, S));
            b.<String, String>stream("in").process(Versioned::new, "versions").to("out");
        });
        Vectors.add(f, "versioned_joined_left", rows("in", "in2"), b ->
            b.<String, String>stream("in").leftJoin(b.table("in2", Consumed.with(S, S), kept("rows", 100)), Joins.BOTH).to("out"));
        Vectors.add(f, "versioned_joined_grace", rows("in", "in2"), b ->
            b.<String, String>stream("in").join(b.table("in2", Consumed.with(S, S), kept("rows", 200)), Joins.BOTH, Joined.with(S, S, S).withGracePeriod(Duration.ofMillis(40))).to("out"));
        Vectors.add(f, "versioned_joined_grace_named", rows("in", "in2").nulls(0, 0.2), b ->
            b.<String, String>stream("in").leftJoin(b.table("in2", Consumed.with(S, S), kept("rows", 200)), Joins.BOTH,
                Joined.with(S, S, S).withName("late").withGracePeriod(Duration.ofMillis(60))).to("out"));
        Vectors.add(f, "versioned_joined_grace_zero", rows("in", "in2"), b ->
            b.<String, String>stream("in").join(b.table("in2", Consumed.with(S, S), kept("rows", 200)), Joins.BOTH, Joined.with(S, S, S).withGracePeriod(Duration.ofMillis(0))).to("out"));
        Vectors.add(f, "versioned_joined_mapped", rows("in", "in2"), b ->
            b.<String, String>stream("in").join(b.table("in2", Consumed.with(S, S), kept("rows", 100)).mapValues(v -> v + "!").filter((k, v) -> v.length() != 4), Joins.BOTH).to("out"));
        Vectors.add(f, "versioned_filter", rows("in"), b -> b.table("in", Consumed.with(S, S), kept("rows", 80)).filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "versioned_filter_kept", rows("in"), b -> b.table("in", Consumed.with(S, S), kept("rows", 80)).filter((k, v) -> Stateless.even(v), kept("even", 40)).toStream().to("out"));
        Vectors.add(f, "versioned_filter_plain", rows("in"), b -> b.table("in", Consumed.with(S, S), kept("rows", 80))
            .filter((k, v) -> Stateless.even(v), Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("even").withKeySerde(S).withValueSerde(S)).toStream().to("out"));
        Vectors.add(f, "versioned_map_values", rows("in"), b -> b.table("in", Consumed.with(S, S), kept("rows", 80)).mapValues(v -> v + "!", kept("loud", 60)).toStream().to("out"));
        Vectors.add(f, "versioned_count", rows("in"), b -> Aggregations.out(b.table("in", Consumed.with(S, S), kept("rows", 80)).groupBy((k, v) -> pair(v, v)).count(), L));
        Vectors.add(f, "versioned_map_count", rows("in"), b -> Aggregations.out(b.table("in", Consumed.with(S, S), kept("rows", 80)).mapValues(v -> v + "!")
            .groupBy((k, v) -> pair(v, v)).count(), L));
        for (final String join : new String[]{"inner", "left", "outer"}) {
            Vectors.add(f, "versioned_tables_" + join, rows("in", "in2"), b -> {
                final KTable<String, String> left = b.table("in", Consumed.with(S, S), kept("left", 80));
                final KTable<String, String> right = b.table("in2", Consumed.with(S, S), kept("right", 80));
                (join.equals("inner") ? left.join(right, Joins.BOTH) : join.equals("left") ? left.leftJoin(right, Joins.BOTH) : left.outerJoin(right, Joins.BOTH)).toStream().to("out");
            });
        }
        Vectors.add(f, "versioned_with_plain", rows("in", "in2"), b ->
            b.table("in", Consumed.with(S, S), kept("left", 80)).join(b.<String, String>table("in2"), Joins.BOTH).toStream().to("out"));
        Vectors.add(f, "versioned_tables_kept", rows("in", "in2"), b ->
            b.table("in", Consumed.with(S, S), kept("left", 80)).join(b.table("in2", Consumed.with(S, S), kept("right", 80)), Joins.BOTH, kept("joined", 50)).toStream().to("out"));
        Vectors.add(f, "versioned_foreign_key", rows("in", "in2").keys("x", "y", "d"), b ->
            b.table("in", Consumed.with(S, S), kept("left", 80)).join(b.table("in2", Consumed.with(S, S), kept("right", 80)), v -> Joins.fk(v), Joins.BOTH).toStream().to("out"));
        Vectors.add(f, "versioned_aggregate", rows("in"), b -> Aggregations.out(b.<String, String>stream("in").groupByKey().count(counted("counts", 60)), L));
        Vectors.add(f, "versioned_reduce", rows("in"), b -> Aggregations.out(b.<String, String>stream("in").groupByKey().reduce((a, v) -> a + "+" + v, kept("sums", 60)), S));
        Vectors.add(f, "versioned_table_aggregate", rows("in"), b -> Aggregations.out(b.<String, String>table("in").groupBy((k, v) -> pair(v, v)).count(counted("counts", 60)), L));
        Vectors.add(f, "versioned_to_table", rows("in"), b -> b.<String, String>stream("in").toTable(kept("rows", 60)).toStream().to("out"));

        final String u = "unlimited";
        Vectors.add(u, "unlimited_count", Stateless.in("in"), b -> Aggregations.windowed(b.<String, String>stream("in").groupByKey().windowedBy(UnlimitedWindows.of()).count(), L));
        Vectors.add(u, "unlimited_from", Stateless.in("in").time(20, 200, 0.4), b -> Aggregations.windowed(b.<String, String>stream("in").groupByKey()
            .windowedBy(UnlimitedWindows.of().startOn(java.time.Instant.ofEpochMilli(300))).reduce((a, v) -> a + "+" + v), S));
        Vectors.add(u, "emit_on_update", Stateless.in("in"), b -> Aggregations.windowed(b.<String, String>stream("in").groupByKey()
            .windowedBy(org.apache.kafka.streams.kstream.TimeWindows.ofSizeAndGrace(Duration.ofMillis(50), Duration.ofMillis(20))).emitStrategy(EmitStrategy.onWindowUpdate()).count(), L));
    }
}
