import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Processors with stores and timers. */
final class Processors {
    private Processors() { }

    /** Counts by key; sends all counts at every multiple of 50 ms of stream time, and the number of keys by the wall clock. */
    static final class Counter extends ContextualProcessor<String, String, String, String> {
        private KeyValueStore<String, Long> counts;

        @Override
        public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            counts = context.getStateStore("counts");
            context.schedule(Duration.ofMillis(50), PunctuationType.STREAM_TIME, time -> {
                try (final var all = counts.all()) {
                    all.forEachRemaining(row -> context.forward(new Record<>(row.key, "n" + row.value, time)));
                }
            });
            context.schedule(Duration.ofMillis(300), PunctuationType.WALL_CLOCK_TIME, time ->
                context.forward(new Record<>("keys", "at " + context.currentStreamTimeMs(), time)));
        }

        @Override
        public void process(final Record<String, String> record) {
            if (record.key() == null) {
                return;
            }
            final Long before = counts.get(record.key());
            if (record.value() == null) {
                counts.delete(record.key());
            } else {
                counts.put(record.key(), before == null ? 1 : before + 1);
            }
            if ("q".equals(record.value())) {
                context().forward(record.withKey("q" + record.key()).withTimestamp(record.timestamp() + 1));
            }
        }
    }

    /** The value before, of the same key. */
    static final class Before extends ContextualFixedKeyProcessor<String, String, String> {
        private KeyValueStore<String, String> rows;

        @Override
        public void init(final FixedKeyProcessorContext<String, String> context) {
            super.init(context);
            rows = context.getStateStore("rows");
        }

        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            if (record.key() != null && record.value() != null) {
                final String before = rows.get(record.key());
                rows.put(record.key(), record.value());
                context().forward(record.withValue(before + ">" + record.value()));
                context().forward(record.withValue(record.value()));
            }
        }
    }

    /** How many records of the key lie within the last 100 ms, by a window store. */
    static final class Recent extends ContextualProcessor<String, String, String, Long> {
        private WindowStore<String, String> seen;

        @Override
        public void init(final ProcessorContext<String, Long> context) {
            super.init(context);
            seen = context.getStateStore("seen");
        }

        @Override
        public void process(final Record<String, String> record) {
            if (record.key() == null || record.value() == null) {
                return;
            }
            seen.put(record.key(), record.value(), record.timestamp());
            long count = 0;
            try (final var found = seen.fetch(record.key(), Math.max(0, record.timestamp() - 100), record.timestamp())) {
                while (found.hasNext()) {
                    found.next();
                    count++;
                }
            }
            context().forward(record.withValue(count));
        }
    }

    static void add() {
        final String f = "process";
        Vectors.add(f, "process", Stateless.in("in").time(15, 60, 0.3).clock(0.2, 400).records(90), b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), Serdes.String(), Serdes.Long()));
            b.<String, String>stream("in").process(Counter::new, "counts").to("out");
        });
        Vectors.add(f, "process_then_count", Stateless.in("in").clock(0.2, 400), b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), Serdes.String(), Serdes.Long()));
            Aggregations.out(b.<String, String>stream("in").process(Counter::new, Named.as("counter"), "counts").groupByKey().count(), Serdes.Long());
        });
        Vectors.add(f, "process_values", Stateless.in("in"), b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("rows"), Serdes.String(), Serdes.String()));
            b.<String, String>stream("in").processValues(Before::new, "rows").to("out");
        });
        Vectors.add(f, "process_windows", Stateless.in("in").time(20, 150, 0.4), b -> {
            b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("seen", Duration.ofMillis(200), Duration.ofMillis(100), false), Serdes.String(), Serdes.String()));
            b.<String, String>stream("in").process(Recent::new, "seen").to("out", org.apache.kafka.streams.kstream.Produced.with(Serdes.String(), Serdes.Long()));
        });
    }
}
