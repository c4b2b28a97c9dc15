import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/**
 * Topologies as data: a list of steps, each an operation on earlier results. tests/streams/plans.py builds the same ones,
 * plan_maker.py makes them up. Keys and values are text, results are cut to 24 characters.
 */
@SuppressWarnings({"unchecked", "rawtypes"})
final class Plans {
    static final Serde S = Serdes.String();
    static final Serde L = Serdes.Long();

    static String text(final Object value) {
        return value instanceof Windowed<?> w ? w.key() + "@" + w.window().start() : String.valueOf(value);
    }

    static String cut(final String text) {
        return text.length() > 24 ? text.substring(text.length() - 24) : text;
    }

    static Predicate<Object, Object> predicate(final String name) {
        return switch (name) {
            case "even" -> (k, v) -> v != null && ((String) v).length() % 2 == 0;
            case "short" -> (k, v) -> v != null && ((String) v).length() < 3;
            case "not_q" -> (k, v) -> !"q".equals(v);
            case "key_ab" -> (k, v) -> k != null && text(k).compareTo("c") < 0;
            default -> throw new IllegalArgumentException(name);
        };
    }

    static KeyValueMapper<Object, Object, Object> key(final String name) {
        return switch (name) {
            case "first" -> (k, v) -> v == null || ((String) v).isEmpty() ? null : ((String) v).substring(0, 1);
            case "last" -> (k, v) -> v == null || ((String) v).isEmpty() ? null : ((String) v).substring(((String) v).length() - 1);
            case "length" -> (k, v) -> v == null ? null : "" + ((String) v).length() % 3;
            case "same" -> (k, v) -> k;
            case "last_or_key" -> (k, v) -> v == null || ((String) v).length() < 2 ? k : ((String) v).substring(((String) v).length() - 1);
            default -> throw new IllegalArgumentException(name);
        };
    }

    static ValueMapperWithKey<Object, Object, Object> value(final String name) {
        return switch (name) {
            case "bang" -> (k, v) -> cut(v + "!");
            case "even_null" -> (k, v) -> v != null && ((String) v).length() % 2 == 0 ? null : v;
            case "head" -> (k, v) -> v == null ? null : ((String) v).substring(0, Math.min(2, ((String) v).length()));
            case "keyed" -> (k, v) -> cut(text(k) + v);
            default -> throw new IllegalArgumentException(name);
        };
    }

    static Aggregator<Object, Object, Object> aggregator(final String name, final String sign) {
        return switch (name) {
            case "plus" -> (k, v, a) -> cut(a + sign + v);
            case "null_q" -> (k, v, a) -> "q".equals(v) ? null : cut(a + sign + v);
            default -> throw new IllegalArgumentException(name);
        };
    }

    static final ValueJoiner<Object, Object, Object> BOTH = (x, y) -> cut(x + "/" + y);
    static final Initializer<Object> EMPTY = () -> "";
    static final Merger<Object, Object> MERGED = (k, x, y) -> cut(x + "|" + y);

    /** Keeps the newest value of a key; sends all of them every some milliseconds of stream time, and how many there are by the wall clock. */
    static final class Ticker extends ContextualProcessor<Object, Object, Object, Object> {
        private final String store;
        private final int every;
        private final int wall;
        private KeyValueStore<Object, Object> rows;

        Ticker(final String store, final int every, final int wall) {
            this.store = store;
            this.every = every;
            this.wall = wall;
        }

        @Override
        public void init(final ProcessorContext<Object, Object> context) {
            super.init(context);
            rows = context.getStateStore(store);
            context.schedule(Duration.ofMillis(every), PunctuationType.STREAM_TIME, time -> {
                try (final var all = rows.all()) {
                    all.forEachRemaining(row -> context.forward(new Record<>(row.key, "t" + row.value, time)));
                }
            });
            if (wall > 0) {
                context.schedule(Duration.ofMillis(wall), PunctuationType.WALL_CLOCK_TIME, time -> {
                    final List<Object> keys = new ArrayList<>();
                    try (final var all = rows.all()) {
                        all.forEachRemaining(row -> keys.add(row.key));
                    }
                    context.forward(new Record<>("w", "" + keys.size(), context.currentStreamTimeMs() < 0 ? 0 : context.currentStreamTimeMs()));
                    if (!keys.isEmpty()) {
                        rows.delete(keys.get(0));
                    }
                });
            }
        }

        @Override
        public void process(final Record<Object, Object> record) {
            if (record.key() != null) {
                rows.put(record.key(), record.value());
            }
            context().forward(record.withValue(cut(record.value() + "#")));
        }
    }

    /** A value with the one before. */
    static final class Before implements ValueTransformerWithKey<Object, Object, Object> {
        private final String store;
        private KeyValueStore<Object, Object> rows;

        Before(final String store) {
            this.store = store;
        }

        @Override
        public void init(final org.apache.kafka.streams.processor.ProcessorContext context) {
            rows = context.getStateStore(store);
        }

        @Override
        public Object transform(final Object k, final Object v) {
            final Object before = rows.get(text(k));
            rows.put(text(k), v == null ? "-" : v);
            return v == null && before == null ? null : cut(before + ">" + v);
        }

        @Override
        public void close() { }
    }

    private final StreamsBuilder builder;
    private final Map<String, Object> made = new HashMap<>();

    private Plans(final StreamsBuilder builder) {
        this.builder = builder;
    }

    static void build(final JsonNode steps, final StreamsBuilder builder) {
        final Plans plan = new Plans(builder);
        for (final JsonNode step : steps) {
            final Object result = plan.step(step);
            if (step.has("out")) {
                plan.made.put(step.get("out").asText(), result);
            }
        }
    }

    static String name(final JsonNode step) {
        return step.hasNonNull("name") ? step.get("name").asText() : null;
    }

    static Duration ms(final JsonNode span) {
        return Duration.ofMillis(span.asLong());
    }

    static Materialized kept(final JsonNode step, final Serde value) {
        final JsonNode kept = step.get("kept");
        if (kept == null || kept.isNull()) {
            return null;
        }
        if (kept.hasNonNull("history")) {
            return Materialized.as(Stores.persistentVersionedKeyValueStore(kept.get("name").asText(), ms(kept.get("history")))).withKeySerde(S).withValueSerde(value);
        }
        return kept.hasNonNull("name") ? Materialized.as(kept.get("name").asText()).withKeySerde(S).withValueSerde(value) : Materialized.with(S, value);
    }

    KStream<Object, Object> stream(final JsonNode step, final String field) {
        return (KStream<Object, Object>) made.get(step.get(field).asText());
    }

    KTable<Object, Object> table(final JsonNode step, final String field) {
        return (KTable<Object, Object>) made.get(step.get(field).asText());
    }

    Object step(final JsonNode step) {
        final String name = name(step);
        return switch (step.get("op").asText()) {
            case "stream" -> builder.stream(step.get("topic").asText());
            case "table" -> step.hasNonNull("kept") ? builder.table(step.get("topic").asText(), kept(step, S)) : builder.table(step.get("topic").asText());
            case "global_table" -> builder.globalTable(step.get("topic").asText());
            case "to" -> {
                stream(step, "of").to(step.get("topic").asText());
                yield null;
            }
            case "filter" -> name == null ? stream(step, "of").filter(predicate(step.get("f").asText())) : stream(step, "of").filter(predicate(step.get("f").asText()), Named.as(name));
            case "filter_not" -> stream(step, "of").filterNot(predicate(step.get("f").asText()));
            case "map_values" -> name == null ? stream(step, "of").mapValues(value(step.get("f").asText())) : stream(step, "of").mapValues(value(step.get("f").asText()), Named.as(name));
            case "swap" -> stream(step, "of").map((k, v) -> KeyValue.pair(v, k));
            case "select_key" -> name == null ? stream(step, "of").selectKey(key(step.get("f").asText())) : stream(step, "of").selectKey(key(step.get("f").asText()), Named.as(name));
            case "letters" -> stream(step, "of").flatMap((k, v) -> letters(v).stream().map(c -> KeyValue.pair((Object) c, v)).toList());
            case "letter_values" -> stream(step, "of").flatMapValues(v -> letters(v));
            case "split" -> split(step, name);
            case "branch" -> ((Map<String, Object>) made.get(step.get("of").asText())).get(step.get("which").asText());
            case "merge" -> stream(step, "of").merge(stream(step, "with"));
            case "repartition" -> {
                Repartitioned<Object, Object> how = name == null ? Repartitioned.with(S, S) : Repartitioned.as(name);
                if (step.hasNonNull("partitions")) {
                    how = how.withNumberOfPartitions(step.get("partitions").asInt());
                }
                yield stream(step, "of").repartition(how);
            }
            case "to_table" -> step.hasNonNull("kept")
                ? (name == null ? stream(step, "of").toTable(kept(step, S)) : stream(step, "of").toTable(Named.as(name), kept(step, S)))
                : (name == null ? stream(step, "of").toTable() : stream(step, "of").toTable(Named.as(name)));
            case "group" -> group(step, name);
            case "aggregate" -> aggregate(step, name);
            case "windowed" -> windowed(step, name);
            case "cogroup" -> cogroup(step, name);
            case "stream_join" -> streamJoin(step, name);
            case "lookup" -> lookup(step, name);
            case "global_lookup" -> "left".equals(step.get("side").asText())
                ? stream(step, "of").leftJoin((GlobalKTable<Object, Object>) made.get(step.get("with").asText()), key(step.get("f").asText()), BOTH)
                : stream(step, "of").join((GlobalKTable<Object, Object>) made.get(step.get("with").asText()), key(step.get("f").asText()), BOTH);
            case "tick" -> {
                final String store = step.get("store").asText();
                final int every = step.get("every").asInt();
                final int wall = step.get("wall").asInt();
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), S, S));
                yield stream(step, "of").process(() -> new Ticker(store, every, wall), store);
            }
            case "to_stream" -> table(step, "of").toStream();
            case "to_stream_keyed" -> table(step, "of").toStream((k, v) -> k instanceof Windowed<?> w ? w.key() + "@" + w.window().start() + "-" + w.window().end() : k);
            case "to_stream_plain" -> table(step, "of").toStream((k, v) -> ((Windowed<?>) k).key());
            case "table_filter" -> filtered(step, name);
            case "table_map_values" -> mapped(step, name);
            case "transform_values" -> {
                final String store = step.get("store").asText();
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), S, S));
                yield step.hasNonNull("kept") ? table(step, "of").transformValues(() -> new Before(store), kept(step, S), store) : table(step, "of").transformValues(() -> new Before(store), store);
            }
            case "table_group" -> {
                final var select = key(step.get("f").asText());
                final KeyValueMapper<Object, Object, KeyValue<Object, Object>> pairs = (k, v) -> KeyValue.pair(select.apply(k instanceof Windowed<?> w ? w.key() : k, v), v);
                yield table(step, "of").groupBy(pairs, name == null ? Grouped.with(S, S) : Grouped.with(name, S, S));
            }
            case "table_aggregate" -> tableAggregate(step, name);
            case "suppress" -> suppressed(step, name);
            case "table_join" -> tableJoin(step, name);
            case "foreign_join" -> foreignJoin(step, name);
            default -> throw new IllegalArgumentException(step.toString());
        };
    }

    static List<Object> letters(final Object value) {
        final List<Object> found = new ArrayList<>();
        for (final char c : value == null ? new char[0] : ((String) value).toCharArray()) {
            if (found.size() < 3) {
                found.add("" + c);
            }
        }
        return found;
    }

    Object split(final JsonNode step, final String name) {
        BranchedKStream<Object, Object> branches = name == null ? stream(step, "of").split() : stream(step, "of").split(Named.as(name));
        for (final JsonNode branch : step.get("branches")) {
            final var holds = predicate(branch.get("f").asText());
            branches = branch.hasNonNull("name") ? branches.branch(holds, Branched.as(branch.get("name").asText())) : branches.branch(holds);
        }
        return step.get("default").asBoolean() ? branches.defaultBranch() : branches.noDefaultBranch();
    }

    Object group(final JsonNode step, final String name) {
        final Grouped<Object, Object> how = name == null ? Grouped.with(S, S) : Grouped.with(name, S, S);
        return step.hasNonNull("f") ? stream(step, "of").groupBy(key(step.get("f").asText()), how) : stream(step, "of").groupByKey(how);
    }

    KTable<Object, Object> counts(final KTable<?, Long> counts) {
        return ((KTable) counts).mapValues(n -> n == null ? null : "n" + n);
    }

    Object aggregate(final JsonNode step, final String name) {
        final KGroupedStream<Object, Object> grouped = (KGroupedStream<Object, Object>) made.get(step.get("of").asText());
        final String f = step.get("f").asText();
        final Materialized kept = kept(step, "count".equals(f) ? L : S);
        if ("count".equals(f)) {
            return counts(kept == null ? (name == null ? grouped.count() : grouped.count(Named.as(name))) : name == null ? grouped.count(kept) : grouped.count(Named.as(name), kept));
        }
        if ("reduce".equals(f)) {
            final Reducer<Object> sum = (a, v) -> cut(a + "+" + v);
            return kept == null ? grouped.reduce(sum) : name == null ? grouped.reduce(sum, kept) : grouped.reduce(sum, Named.as(name), kept);
        }
        final var add = aggregator(f, "+");
        return kept == null ? grouped.aggregate(EMPTY, add) : name == null ? grouped.aggregate(EMPTY, add, kept) : grouped.aggregate(EMPTY, add, Named.as(name), kept);
    }

    static TimeWindows times(final JsonNode w) {
        return TimeWindows.ofSizeAndGrace(ms(w.get("size")), ms(w.get("grace"))).advanceBy(ms(w.get("advance")));
    }

    static SlidingWindows sliding(final JsonNode w) {
        return SlidingWindows.ofTimeDifferenceAndGrace(ms(w.get("size")), ms(w.get("grace")));
    }

    static SessionWindows sessions(final JsonNode w) {
        return SessionWindows.ofInactivityGapAndGrace(ms(w.get("size")), ms(w.get("grace")));
    }

    Object windowed(final JsonNode step, final String name) {
        final KGroupedStream<Object, Object> grouped = (KGroupedStream<Object, Object>) made.get(step.get("of").asText());
        final JsonNode w = step.get("windows");
        final String f = step.get("f").asText();
        final Materialized kept = kept(step, "count".equals(f) ? L : S);
        final EmitStrategy emit = step.get("final").asBoolean() ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        final Reducer<Object> sum = (a, v) -> cut(a + "+" + v);
        if ("session".equals(w.get("kind").asText())) {
            final SessionWindowedKStream<Object, Object> stream = grouped.windowedBy(sessions(w)).emitStrategy(emit);
            if ("count".equals(f)) {
                return counts(kept == null ? stream.count() : stream.count(kept));
            }
            if ("reduce".equals(f)) {
                return kept == null ? stream.reduce(sum) : name == null ? stream.reduce(sum, kept) : stream.reduce(sum, Named.as(name), kept);
            }
            final var add = aggregator(f, "+");
            return kept == null ? stream.aggregate(EMPTY, add, MERGED) : name == null ? stream.aggregate(EMPTY, add, MERGED, kept) : stream.aggregate(EMPTY, add, MERGED, Named.as(name), kept);
        }
        final TimeWindowedKStream<Object, Object> stream = ("time".equals(w.get("kind").asText()) ? grouped.windowedBy(times(w)) : grouped.windowedBy(sliding(w))).emitStrategy(emit);
        if ("count".equals(f)) {
            return counts(kept == null ? stream.count() : stream.count(kept));
        }
        if ("reduce".equals(f)) {
            return kept == null ? stream.reduce(sum) : name == null ? stream.reduce(sum, kept) : stream.reduce(sum, Named.as(name), kept);
        }
        final var add = aggregator(f, "+");
        return kept == null ? stream.aggregate(EMPTY, add) : name == null ? stream.aggregate(EMPTY, add, kept) : stream.aggregate(EMPTY, add, Named.as(name), kept);
    }

    Object cogroup(final JsonNode step, final String name) {
        CogroupedKStream<Object, Object> all = null;
        int number = 0;
        for (final JsonNode of : step.get("of")) {
            final KGroupedStream<Object, Object> grouped = (KGroupedStream<Object, Object>) made.get(of.asText());
            final var add = aggregator(step.get("f").asText(), "" + number++);
            all = all == null ? grouped.cogroup(add) : all.cogroup(grouped, add);
        }
        final Materialized kept = kept(step, S);
        final JsonNode w = step.get("windows");
        if (w == null || w.isNull()) {
            return kept == null ? all.aggregate(EMPTY) : name == null ? all.aggregate(EMPTY, kept) : all.aggregate(EMPTY, Named.as(name), kept);
        }
        return switch (w.get("kind").asText()) {
            case "session" -> kept == null ? all.windowedBy(sessions(w)).aggregate(EMPTY, MERGED) : all.windowedBy(sessions(w)).aggregate(EMPTY, MERGED, kept);
            case "time" -> kept == null ? all.windowedBy(times(w)).aggregate(EMPTY) : all.windowedBy(times(w)).aggregate(EMPTY, kept);
            default -> kept == null ? all.windowedBy(sliding(w)).aggregate(EMPTY) : all.windowedBy(sliding(w)).aggregate(EMPTY, kept);
        };
    }

    Object streamJoin(final JsonNode step, final String name) {
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(ms(step.get("within")), ms(step.get("grace")));
        if (step.hasNonNull("before")) {
            windows = windows.before(ms(step.get("before")));
        }
        if (step.hasNonNull("after")) {
            windows = windows.after(ms(step.get("after")));
        }
        StreamJoined<Object, Object, Object> how = StreamJoined.with(S, S, S);
        if (name != null) {
            how = how.withName(name);
        }
        if (step.hasNonNull("store")) {
            how = how.withStoreName(step.get("store").asText());
        }
        return switch (step.get("side").asText()) {
            case "inner" -> stream(step, "of").join(stream(step, "with"), BOTH, windows, how);
            case "left" -> stream(step, "of").leftJoin(stream(step, "with"), BOTH, windows, how);
            default -> stream(step, "of").outerJoin(stream(step, "with"), BOTH, windows, how);
        };
    }

    Object lookup(final JsonNode step, final String name) {
        Joined<Object, Object, Object> how = Joined.with(S, S, S);
        if (name != null) {
            how = how.withName(name);
        }
        if (step.hasNonNull("grace")) {
            how = how.withGracePeriod(ms(step.get("grace")));
        }
        return "left".equals(step.get("side").asText()) ? stream(step, "of").leftJoin(table(step, "with"), BOTH, how) : stream(step, "of").join(table(step, "with"), BOTH, how);
    }

    Object filtered(final JsonNode step, final String name) {
        final var holds = predicate(step.get("f").asText());
        final KTable<Object, Object> table = table(step, "of");
        final Materialized kept = kept(step, S);
        if (step.hasNonNull("negate") && step.get("negate").asBoolean()) {
            return kept == null ? table.filterNot(holds) : table.filterNot(holds, kept);
        }
        return kept == null ? (name == null ? table.filter(holds) : table.filter(holds, Named.as(name))) : name == null ? table.filter(holds, kept) : table.filter(holds, Named.as(name), kept);
    }

    Object mapped(final JsonNode step, final String name) {
        final var f = value(step.get("f").asText());
        final KTable<Object, Object> table = table(step, "of");
        final Materialized kept = kept(step, S);
        return kept == null ? (name == null ? table.mapValues(f) : table.mapValues(f, Named.as(name))) : name == null ? table.mapValues(f, kept) : table.mapValues(f, Named.as(name), kept);
    }

    Object tableAggregate(final JsonNode step, final String name) {
        final KGroupedTable<Object, Object> grouped = (KGroupedTable<Object, Object>) made.get(step.get("of").asText());
        final String f = step.get("f").asText();
        final Materialized kept = kept(step, "count".equals(f) ? L : S);
        if ("count".equals(f)) {
            return counts(kept == null ? (name == null ? grouped.count() : grouped.count(Named.as(name))) : name == null ? grouped.count(kept) : grouped.count(Named.as(name), kept));
        }
        if ("reduce".equals(f)) {
            final Reducer<Object> add = (a, v) -> cut(a + "+" + v);
            final Reducer<Object> take = (a, v) -> cut(a + "-" + v);
            return kept == null ? grouped.reduce(add, take) : name == null ? grouped.reduce(add, take, kept) : grouped.reduce(add, take, Named.as(name), kept);
        }
        final var add = aggregator(f, "+");
        final var take = aggregator(f, "-");
        return kept == null ? (name == null ? grouped.aggregate(EMPTY, add, take) : grouped.aggregate(EMPTY, add, take, Named.as(name)))
            : name == null ? grouped.aggregate(EMPTY, add, take, kept) : grouped.aggregate(EMPTY, add, take, Named.as(name), kept);
    }

    Object suppressed(final JsonNode step, final String name) {
        if (!step.hasNonNull("wait")) {
            final Suppressed closed = Suppressed.untilWindowCloses(BufferConfig.unbounded());
            return ((KTable) table(step, "of")).suppress(name == null ? closed : ((Suppressed<?>) closed).withName(name));
        }
        BufferConfig room = step.hasNonNull("records") ? BufferConfig.maxRecords(step.get("records").asLong()) : BufferConfig.unbounded();
        if (step.hasNonNull("bytes")) {
            room = step.hasNonNull("records") ? ((Suppressed.EagerBufferConfig) room).withMaxBytes(step.get("bytes").asLong()) : BufferConfig.maxBytes(step.get("bytes").asLong());
        }
        final Suppressed<Object> limited = Suppressed.untilTimeLimit(ms(step.get("wait")), room);
        return table(step, "of").suppress(name == null ? limited : limited.withName(name));
    }

    Object tableJoin(final JsonNode step, final String name) {
        final KTable<Object, Object> left = table(step, "of");
        final KTable<Object, Object> right = table(step, "with");
        final Materialized kept = kept(step, S);
        return switch (step.get("side").asText()) {
            case "inner" -> kept == null ? (name == null ? left.join(right, BOTH) : left.join(right, BOTH, Named.as(name))) : name == null ? left.join(right, BOTH, kept) : left.join(right, BOTH, Named.as(name), kept);
            case "left" -> kept == null ? (name == null ? left.leftJoin(right, BOTH) : left.leftJoin(right, BOTH, Named.as(name))) : name == null ? left.leftJoin(right, BOTH, kept) : left.leftJoin(right, BOTH, Named.as(name), kept);
            default -> kept == null ? (name == null ? left.outerJoin(right, BOTH) : left.outerJoin(right, BOTH, Named.as(name))) : name == null ? left.outerJoin(right, BOTH, kept) : left.outerJoin(right, BOTH, Named.as(name), kept);
        };
    }

    Object foreignJoin(final JsonNode step, final String name) {
        final var select = key(step.get("f").asText());
        final java.util.function.BiFunction<Object, Object, Object> foreign = (k, v) -> select.apply(k, v);
        final Materialized kept = step.hasNonNull("kept") ? kept(step, S) : Materialized.with(S, S);
        final KTable<Object, Object> left = table(step, "of");
        final KTable<Object, Object> right = table(step, "with");
        final TableJoined<Object, Object> how = name == null ? TableJoined.with(null, null) : TableJoined.as(name);
        return "left".equals(step.get("side").asText()) ? left.leftJoin(right, foreign, BOTH, how, kept) : left.join(right, foreign, BOTH, how, kept);
    }

    /** The plans of a file, as cases. */
    static void add(final Path file) throws IOException {
        for (final JsonNode plan : new ObjectMapper().readTree(Files.readAllBytes(file))) {
            final JsonNode in = plan.get("input");
            final List<String> topics = new ArrayList<>();
            plan.get("topics").forEach(topic -> topics.add(topic.asText()));
            final Vectors.Input input = new Vectors.Input(topics.toArray(new String[0])).keys("a", "b", "c", "x", "q").values("x", "yy", "ab", "q", "", "red", "bc", "a", "cab", "b")
                .records(in.get("records").asInt()).time(in.get("step").asInt(), in.get("late").asInt(), in.get("late_share").asDouble()).nulls(0.04, in.get("nulls").asDouble())
                .jump(in.get("jump").asLong());
            final Map<String, Object> config = new HashMap<>(Joins.EAGER);
            config.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
            if (plan.get("optimized").asBoolean()) {
                config.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
            }
            Vectors.add("plans", plan.get("name").asText(), input, config, b -> build(plan.get("steps"), b));
        }
    }
}
