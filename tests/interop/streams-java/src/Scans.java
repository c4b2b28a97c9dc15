import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Stores read in every order, tables with transformers, global stores, partitioners that choose several partitions. */
final class Scans {
    private Scans() { }

    static final Serde<String> S = Serdes.String();

    static String rows(final KeyValueIterator<String, String> found) {
        final StringBuilder text = new StringBuilder();
        try (found) {
            found.forEachRemaining(row -> text.append(row.key).append('=').append(row.value).append(' '));
        }
        return text.toString();
    }

    static String windows(final KeyValueIterator<Windowed<String>, String> found) {
        final StringBuilder text = new StringBuilder();
        try (found) {
            found.forEachRemaining(row -> text.append(row.key.key()).append('@').append(row.key.window().start()).append('/').append(row.key.window().end())
                .append('=').append(row.value).append(' '));
        }
        return text.toString();
    }

    static String times(final WindowStoreIterator<String> found) {
        final StringBuilder text = new StringBuilder();
        try (found) {
            found.forEachRemaining((KeyValue<Long, String> row) -> text.append(row.key).append('=').append(row.value).append(' '));
        }
        return text.toString();
    }

    static final class Rows extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final KeyValueStore<String, String> store = context().getStateStore("rows");
            if (record.key() == null) {
                return;
            }
            store.put(record.key(), record.value());
            context().forward(record.withKey("range").withValue(rows(store.range("ab", "b"))));
            context().forward(record.withKey("open").withValue(rows(store.range(null, record.key()))));
            context().forward(record.withKey("reverse range").withValue(rows(store.reverseRange("ab", "b"))));
            context().forward(record.withKey("reverse all").withValue(rows(store.reverseAll())));
            context().forward(record.withKey("prefix").withValue(rows(store.prefixScan(record.key(), new StringSerializer()))));
        }
    }

    static final class Times extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final WindowStore<String, String> store = context().getStateStore("windows");
            final long t = record.timestamp();
            if (record.key() == null) {
                return;
            }
            store.put(record.key(), record.value(), t);
            context().forward(record.withKey("backward").withValue(times(store.backwardFetch(record.key(), t - 100, t + 20))));
            context().forward(record.withKey("keys").withValue(windows(store.fetch("ab", "b", t - 100, t + 100))));
            context().forward(record.withKey("open keys").withValue(windows(store.fetch(null, "ab", t - 100, t + 100))));
            context().forward(record.withKey("backward keys").withValue(windows(store.backwardFetch("a", "ab", t - 100, t + 100))));
            context().forward(record.withKey("all at").withValue(windows(store.fetchAll(t - 50, t))));
            context().forward(record.withKey("backward all at").withValue(windows(store.backwardFetchAll(t - 50, t))));
            context().forward(record.withKey("all").withValue(windows(store.all())));
            context().forward(record.withKey("backward all").withValue(windows(store.backwardAll())));
        }
    }

    static final class Sessions extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final SessionStore<String, String> store = context().getStateStore("sessions");
            final long t = record.timestamp();
            if (record.key() == null) {
                return;
            }
            final long start = Math.max(0, t - (record.value() == null ? 5 : record.value().length()));
            store.put(new Windowed<>(record.key(), new SessionWindow(start, t)), record.value());
            context().forward(record.withKey("fetch").withValue(windows(store.fetch(record.key()))));
            context().forward(record.withKey("backward fetch").withValue(windows(store.backwardFetch(record.key()))));
            context().forward(record.withKey("keys").withValue(windows(store.fetch("ab", "b"))));
            context().forward(record.withKey("backward keys").withValue(windows(store.backwardFetch("a", "ab"))));
            context().forward(record.withKey("find").withValue(windows(store.findSessions(record.key(), t - 60, t))));
            context().forward(record.withKey("backward find").withValue(windows(store.backwardFindSessions(record.key(), t - 60, t))));
            context().forward(record.withKey("find keys").withValue(windows(store.findSessions("a", "ab", t - 60, t))));
            context().forward(record.withKey("backward find keys").withValue(windows(store.backwardFindSessions("a", "ab", t - 60, t))));
            context().forward(record.withKey("one").withValue(store.fetchSession(record.key(), start, t)));
        }
    }

    /** Numbers the changes of a key, by a store of its own. */
    static final class Numbered implements ValueTransformerWithKey<String, String, String> {
        private KeyValueStore<String, Long> counts;

        @Override
        public void init(final ProcessorContext context) {
            counts = context.getStateStore("counts");
        }

        @Override
        public String transform(final String key, final String value) {
            final Long before = counts.get(key);
            final long now = before == null ? 1 : before + 1;
            counts.put(key, now);
            return value == null ? null : value + "#" + now;
        }

        @Override
        public void close() { }
    }

    static final class Marked implements ValueTransformerWithKey<String, String, String> {
        @Override
        public void init(final ProcessorContext context) { }

        @Override
        public String transform(final String key, final String value) {
            return "q".equals(value) ? null : key + ":" + value;
        }

        @Override
        public void close() { }
    }

    /** Keeps upper case values under the key's first letter. */
    static final class Update extends ContextualProcessor<String, String, Void, Void> {
        @Override
        public void process(final Record<String, String> record) {
            final KeyValueStore<String, String> store = context().getStateStore("shared");
            if (record.key() != null && !record.key().isEmpty()) {
                store.put(record.key().substring(0, 1), record.value() == null ? null : record.value().toUpperCase());
            }
        }
    }

    static final class Ask extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final KeyValueStore<String, org.apache.kafka.streams.state.ValueAndTimestamp<String>> store = context().getStateStore("shared");
            final Object found = record.key() == null ? null : store.get(record.key());
            context().forward(record.withValue(record.value() + "/" + found));
        }
    }

    static final StreamPartitioner<String, String> SOME = new StreamPartitioner<>() {
        @Override
        public Optional<Set<Integer>> partitions(final String topic, final String key, final String value, final int count) {
            if (value == null) {
                return Optional.of(Set.of());
            }
            return "q".equals(value) ? Optional.empty() : Optional.of(Set.of(0));
        }
    };

    static final StreamPartitioner<String, Void> FIRST = (topic, key, value, count) -> Optional.of(Set.of(0));

    static final class Next implements TimestampExtractor {
        @Override
        public long extract(final org.apache.kafka.clients.consumer.ConsumerRecord<Object, Object> record, final long partitionTime) {
            final var header = record.headers().lastHeader("h");
            if (record.value() == null) {
                return partitionTime;
            }
            return header == null ? record.timestamp() : Math.max(partitionTime, 0) + header.value()[1] - '0';
        }
    }

    /** The letters of a text, or their numbers; e is null. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static java.util.List listed(final String value, final boolean asText) {
        if (value == null) {
            return null;
        }
        final java.util.ArrayList found = new java.util.ArrayList();
        for (final String letter : Stateless.letters(value)) {
            found.add(letter.equals("e") ? null : asText ? letter : (Object) (long) letter.charAt(0));
        }
        return found;
    }

    static Vectors.Input keys(final String... topics) {
        return Stateless.in(topics).keys("a", "ab", "abc", "b", "ba");
    }

    static void add() {
        final String f = "scans";
        Vectors.add(f, "scan_rows", keys("in").records(60), b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("rows"), S, S));
            b.<String, String>stream("in").process(Rows::new, "rows").to("out");
        });
        Vectors.add(f, "scan_windows", keys("in").time(12, 90, 0.4).records(60), b -> {
            b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("windows", Duration.ofMillis(200), Duration.ofMillis(30), false), S, S));
            b.<String, String>stream("in").process(Times::new, "windows").to("out");
        });
        Vectors.add(f, "scan_windows_twice", keys("in").time(12, 90, 0.4).records(60), b -> {
            b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("windows", Duration.ofMillis(200), Duration.ofMillis(30), true), S, S));
            b.<String, String>stream("in").filter((k, v) -> v != null).process(Times::new, "windows").to("out");
        });
        Vectors.add(f, "scan_windows_far", keys("in").time(30000, 60000, 0.4).records(60), b -> {
            b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("windows", Duration.ofMillis(300000), Duration.ofMillis(30), false), S, S));
            b.<String, String>stream("in").process(Times::new, "windows").to("out");
        });
        Vectors.add(f, "scan_sessions", keys("in").time(12, 90, 0.4).records(60), b -> {
            b.addStateStore(Stores.sessionStoreBuilder(Stores.persistentSessionStore("sessions", Duration.ofMillis(200)), S, S));
            b.<String, String>stream("in").process(Sessions::new, "sessions").to("out");
        });
        Vectors.add(f, "scan_sessions_far", keys("in").time(30000, 60000, 0.4).records(60), b -> {
            b.addStateStore(Stores.sessionStoreBuilder(Stores.persistentSessionStore("sessions", Duration.ofMillis(300000)), S, S));
            b.<String, String>stream("in").process(Sessions::new, "sessions").to("out");
        });
        transformed("transform");
        shared("shared");
        Vectors.add("partitions", "to_some_partitions", Stateless.in("in"), b -> b.<String, String>stream("in").to("out", Produced.streamPartitioner(SOME)));
        Vectors.add("partitions", "repartition_some_partitions", Stateless.in("in"),
            b -> b.<String, String>stream("in").repartition(Repartitioned.streamPartitioner(SOME)).to("out"));
        Vectors.add("partitions", "foreign_key_partitioned", Joins.two(20, 60).nulls(0.03, 0.2), b ->
            b.<String, String>table("in").join(b.<String, String>table("in2"), v -> Joins.fk(v), (v, o) -> v + "/" + o, TableJoined.<String, String>with(FIRST, FIRST)).toStream().to("out"));
        Vectors.add("partitions", "foreign_key_partitioned_left", Joins.two(20, 60).nulls(0.03, 0.2).keys("x", "y", "z", "d", "e"), b ->
            b.<String, String>table("in").leftJoin(b.<String, String>table("in2"), v -> Joins.fk(v), (v, o) -> v + "/" + o,
                TableJoined.<String, String>with(FIRST, FIRST).withName("pairs"), Materialized.as("joined")).toStream().to("out"));
        Vectors.add("partitions", "list_of_longs", Stateless.in("in").nulls(0.05, 0.1), b -> b.<String, String>stream("in").mapValues(v -> listed(v, false))
            .to("out", Produced.with(S, Serdes.ListSerde(java.util.ArrayList.class, Serdes.Long()))));
        Vectors.add("partitions", "list_of_strings", Stateless.in("in").nulls(0.05, 0.1), b -> b.<String, String>stream("in").mapValues(v -> listed(v, true))
            .to("out", Produced.with(S, Serdes.ListSerde(java.util.ArrayList.class, S))));
        Vectors.add("partitions", "extract_with_headers", Stateless.in("in").nulls(0.05, 0.1), b ->
            b.<String, String>stream("in", Consumed.with((TimestampExtractor) new Next())).to("out"));
    }

    static void transformed(final String f) {
        Vectors.add(f, "table_transform", Tables.rows("in"), b -> b.<String, String>table("in").transformValues(Marked::new).toStream().to("out"));
        Vectors.add(f, "table_transform_named", Tables.rows("in"), b -> b.<String, String>table("in").transformValues(Marked::new, Named.as("marked")).toStream().to("out"));
        Vectors.add(f, "table_transform_kept", Tables.rows("in"), b -> b.<String, String>table("in").transformValues(Marked::new, Materialized.as("marked")).toStream().to("out"));
        Vectors.add(f, "table_transform_with_serdes", Tables.rows("in"), b -> b.<String, String>table("in").transformValues(Marked::new, Materialized.with(S, S)).toStream().to("out"));
        Vectors.add(f, "table_transform_kept_filter", Tables.rows("in"), b -> b.<String, String>table("in").transformValues(Marked::new, Materialized.as("marked"))
            .filter((k, v) -> Stateless.even(v)).toStream().to("out"));
        Vectors.add(f, "table_transform_count", Tables.rows("in"), b -> Aggregations.out(b.<String, String>table("in").transformValues(Marked::new)
            .groupBy((k, v) -> KeyValue.pair(v, v)).count(), Serdes.Long()));
        Vectors.add(f, "table_transform_joined", Joins.two(20, 60), b ->
            b.<String, String>stream("in").join(b.<String, String>table("in2").transformValues(Marked::new), (v, o) -> v + "/" + o).to("out"));
        Vectors.add(f, "tables_transform_joined", Joins.two(20, 60), b ->
            b.<String, String>table("in").leftJoin(b.<String, String>table("in2").transformValues(Marked::new), (v, o) -> v + "/" + o).toStream().to("out"));
        Vectors.add(f, "table_transform_stateful", Tables.rows("in"), b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), S, Serdes.Long()));
            b.<String, String>table("in").transformValues(Numbered::new, Materialized.as("numbered"), "counts").toStream().to("out");
        });
        Vectors.add(f, "table_transform_stateful_view", Tables.rows("in"), b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), S, Serdes.Long()));
            final KTable<String, String> numbered = b.<String, String>table("in").transformValues(Numbered::new, "counts");
            numbered.toStream().to("out");
        });
    }

    static void shared(final String f) {
        Vectors.add(f, "global_store", keys("in", "in2"), b -> {
            b.addGlobalStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("shared"), S, S), "in2", Consumed.with(S, S), Update::new);
            b.<String, String>stream("in").process(Ask::new).to("out");
        });
        Vectors.add(f, "global_store_named", keys("in", "in2"), b -> {
            b.addGlobalStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("shared"), S, S), "in2", Consumed.with(S, S).withName("prices"), Update::new);
            b.<String, String>stream("in").process(Ask::new).to("out");
        });
    }
}
