import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs topologies in Kafka's TopologyTestDriver with made-up records and writes down what came out of it, step by step.
 * One file per family: a list of {name, describe, topics, runs, changelogs}; a run is a list of steps.
 *   a record:     [topic, key, value, timestamp, headers, [outputs]]
 *   the clock:    [milliseconds, [outputs]]
 *   an output:    [topic, key, value, timestamp, headers]
 *   changelogs:   for each run, by topic, what is left when only the newest record of a key is kept: [key, value, timestamp]
 * Keys and values are text, or [hex] when they are not, or null.
 */
public final class Vectors {
    static final long CLOCK = 1_000_000L;

    /** How records are made up for a topology. */
    static final class Input {
        List<String> topics;
        String[] keys = {"a", "b", "c", "d"};
        String[] values = {"x", "yy", "zzz", "red", "blue", "green apple", "", "q"};
        int records = 90;
        int step = 20;
        int late = 60;
        double lateShare = 0.3;
        double nullKeys = 0.05;
        double nullValues = 0.12;
        double clock = 0.1;
        int clockStep = 700;
        double headers = 0.15;
        long jump = 0;
        Object[][] script = null;

        Input(final String... topics) {
            this.topics = Arrays.asList(topics);
        }

        Input topics(final String... t) { topics = Arrays.asList(t); return this; }
        Input keys(final String... k) { keys = k; return this; }
        Input values(final String... v) { values = v; return this; }
        Input records(final int n) { records = n; return this; }
        Input time(final int s, final int l, final double share) { step = s; late = l; lateShare = share; return this; }
        Input nulls(final double k, final double v) { nullKeys = k; nullValues = v; return this; }
        Input jump(final long j) { jump = j; return this; }
        Input clock(final double share, final int ms) { clock = share; clockStep = ms; return this; }
        Input script(final Object[]... s) { script = s; return this; }
    }

    record Case(String family, String name, Consumer<StreamsBuilder> build, Input input, Map<String, Object> config) { }

    static final List<Case> CASES = new ArrayList<>();

    static void add(final String family, final String name, final Input input, final Consumer<StreamsBuilder> build) {
        CASES.add(new Case(family, name, build, input, Map.of()));
    }

    static void add(final String family, final String name, final Input input, final Map<String, Object> config, final Consumer<StreamsBuilder> build) {
        CASES.add(new Case(family, name, build, input, config));
    }

    static Object shown(final byte[] data) {
        if (data == null) {
            return null;
        }
        try {
            final String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(data)).toString();
            if (text.chars().allMatch(c -> c >= 32)) {
                return text;
            }
        } catch (final CharacterCodingException ignored) {
            // shown as hex
        }
        final StringBuilder hex = new StringBuilder();
        for (final byte b : data) {
            hex.append(String.format("%02x", b));
        }
        return List.of(hex.toString());
    }

    static List<Object> shown(final Iterable<Header> headers) {
        final List<Object> found = new ArrayList<>();
        for (final Header header : headers) {
            found.add(Arrays.asList(header.key(), shown(header.value())));
        }
        return found;
    }

    static byte[] bytes(final String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    /** The changelogs of the run that is under way. */
    static Map<String, Map<Object, List<Object>>> changelogs = new TreeMap<>();

    static void compact(final TopologyTestDriver driver, final String topic) {
        final var rows = changelogs.computeIfAbsent(topic, t -> new LinkedHashMap<>());
        final var output = driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        while (!output.isEmpty()) {
            final TestRecord<byte[], byte[]> r = output.readRecord();
            rows.remove(shown(r.key()));
            if (r.value() != null) {
                rows.put(shown(r.key()), Arrays.asList(shown(r.key()), shown(r.value()), r.timestamp()));
            }
        }
    }

    static List<Object> outputs(final TopologyTestDriver driver) {
        final List<Object> found = new ArrayList<>();
        for (final String topic : new TreeSet<>(driver.producedTopicNames())) {
            if (topic.endsWith("-changelog")) {
                compact(driver, topic);
                continue;
            }
            if (topic.endsWith("-topic")) {
                continue;
            }
            final var output = driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            while (!output.isEmpty()) {
                final TestRecord<byte[], byte[]> r = output.readRecord();
                found.add(Arrays.asList(topic, shown(r.key()), shown(r.value()), r.timestamp(), shown(r.headers())));
            }
        }
        return found;
    }

    static List<Object> run(final Case c, final int seed, final TreeSet<String> topics) {
        final StreamsBuilder builder = new StreamsBuilder();
        c.build().accept(builder);
        final Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "vectors");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:9092");
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir") + "/streams-vectors-" + ProcessHandle.current().pid() + "-" + c.name());
        properties.putAll(c.config());
        final List<Object> steps = new ArrayList<>();
        try (final TopologyTestDriver driver = new TopologyTestDriver(builder.build(properties), properties, Instant.ofEpochMilli(CLOCK))) {
            final Map<String, org.apache.kafka.streams.TestInputTopic<byte[], byte[]>> inputs = new LinkedHashMap<>();
            for (final String topic : c.input().topics) {
                inputs.put(topic, driver.createInputTopic(topic, new ByteArraySerializer(), new ByteArraySerializer()));
            }
            if (c.input().script != null && seed == 0) {
                for (final Object[] step : c.input().script) {
                    if (step.length == 1) {
                        clock(driver, ((Number) step[0]).longValue(), steps);
                    } else {
                        final RecordHeaders headers = new RecordHeaders();
                        pipe(driver, inputs, (String) step[0], (String) step[1], (String) step[2], ((Number) step[3]).longValue(), headers, steps);
                    }
                }
            } else {
                random(c, seed, driver, inputs, steps);
            }
            topics.addAll(driver.producedTopicNames());
        }
        return steps;
    }

    static void random(final Case c, final int seed, final TopologyTestDriver driver,
                       final Map<String, org.apache.kafka.streams.TestInputTopic<byte[], byte[]>> inputs, final List<Object> steps) {
        final Input input = c.input();
        final Random random = new Random(31L * c.name().hashCode() + seed);
        long now = seed == 0 ? 0 : 1000;
        for (int i = 0; i < input.records; i++) {
            if (random.nextDouble() < input.clock) {
                clock(driver, 1 + random.nextInt(input.clockStep), steps);
            }
            now += random.nextInt(input.step + 1);
            if (input.jump > 0 && random.nextDouble() < 0.03) {
                now += input.jump;
            }
            long timestamp = now;
            if (random.nextDouble() < input.lateShare) {
                timestamp = Math.max(0, now - random.nextInt(input.late + 1));
            }
            final String topic = input.topics.get(random.nextInt(input.topics.size()));
            final String key = random.nextDouble() < input.nullKeys ? null : input.keys[random.nextInt(input.keys.length)];
            final String value = random.nextDouble() < input.nullValues ? null : input.values[random.nextInt(input.values.length)];
            final RecordHeaders headers = new RecordHeaders();
            if (random.nextDouble() < input.headers) {
                headers.add("h", bytes("v" + random.nextInt(9)));
            }
            pipe(driver, inputs, topic, key, value, timestamp, headers, steps);
        }
    }

    static void pipe(final TopologyTestDriver driver, final Map<String, org.apache.kafka.streams.TestInputTopic<byte[], byte[]>> inputs,
                     final String topic, final String key, final String value, final long timestamp, final RecordHeaders headers, final List<Object> steps) {
        final List<Object> given = shown(headers);
        inputs.get(topic).pipeInput(new TestRecord<>(bytes(key), bytes(value), headers, timestamp));
        steps.add(Arrays.asList(topic, key, value, timestamp, given, outputs(driver)));
    }

    static void clock(final TopologyTestDriver driver, final long ms, final List<Object> steps) {
        driver.advanceWallClockTime(Duration.ofMillis(ms));
        steps.add(Arrays.asList(ms, outputs(driver)));
    }

    public static void main(final String[] args) throws Exception {
        final Path folder = Path.of(args[0]);
        Stateless.add();
        Aggregations.add();
        Tables.add();
        Joins.add();
        Processors.add();
        Corners.add();
        Scans.add();
        Versions.add();
        Optimized.add();
        Plans.add(Path.of(args[1]));
        final Map<String, List<Object>> families = new LinkedHashMap<>();
        int failed = 0;
        for (final Case c : CASES) {
            if (args.length > 2 && !c.name().matches(args[2])) {
                continue;
            }
            try {
                final StreamsBuilder builder = new StreamsBuilder();
                c.build().accept(builder);
                final Properties properties = new Properties();
                properties.putAll(c.config());
                final Topology topology = builder.build(properties);
                final TreeSet<String> topics = new TreeSet<>();
                final List<Object> runs = new ArrayList<>();
                final List<Object> logs = new ArrayList<>();
                for (int seed = 0; seed < 3; seed++) {
                    changelogs = new TreeMap<>();
                    runs.add(run(c, seed, topics));
                    final Map<String, Object> left = new TreeMap<>();
                    changelogs.forEach((topic, rows) -> left.put(topic, new ArrayList<>(rows.values())));
                    logs.add(left);
                }
                final Map<String, Object> vector = new LinkedHashMap<>();
                vector.put("name", c.name());
                vector.put("describe", topology.describe().toString());
                vector.put("topics", topics);
                vector.put("runs", runs);
                vector.put("changelogs", logs);
                families.computeIfAbsent(c.family(), k -> new ArrayList<>()).add(vector);
            } catch (final Exception e) {
                if (c.family().equals("plans")) {
                    families.computeIfAbsent(c.family(), k -> new ArrayList<>()).add(Map.of("name", c.name(), "failed", String.valueOf(e)));
                    continue;
                }
                failed++;
                System.out.println("FAILED " + c.name());
                e.printStackTrace(System.out);
            }
        }
        final ObjectMapper mapper = new ObjectMapper();
        for (final var family : families.entrySet()) {
            Files.write(folder.resolve(family.getKey() + ".json"), mapper.writeValueAsBytes(family.getValue()));
        }
        System.out.println(CASES.size() + " cases");
        System.exit(failed == 0 ? 0 : 1);
    }
}
