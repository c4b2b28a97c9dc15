import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java producer and consumer: java Records HOST:PORT */
public final class Records {
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Check.that("records come back the same, " + codec, () -> roundTrip(codec));
        }
        Check.that("timestamps of the producer", Records::createTime);
        Check.that("timestamps of the broker", Records::logAppendTime);
        Check.that("a timestamp too far ahead is refused", Records::farFuture);
        Check.that("a message of 1 MB", Records::large);
        Check.that("a message over the limit is refused", Records::tooLarge);
        Check.that("a compacted topic refuses a null key", Records::nullKey);
        for (String acks : List.of("0", "1", "all")) {
            Check.that("acks=" + acks, () -> acks(acks));
        }
        Check.that("ten thousand records in order", Records::order);
        Check.that("offsets by time and at both ends", Records::offsets);
        Check.that("seek and position", Records::seek);
        Check.that("reading outside the log", Records::outOfRange);
        Check.that("a fetch session over fifty partitions", Records::manyPartitions);
        Check.that("a topic made by writing to it", Records::autoCreate);
        Check.that("murmur2 chooses the partition", Records::murmur2);
        Check.that("the round robin partitioner", Records::roundRobin);
        Check.that("a partitioner of one's own", Records::ownPartitioner);
        Check.that("the sticky choice without a key", Records::sticky);
        Check.that("read_committed reads plain records", Records::readCommitted);
        admin.close();
        Check.end();
    }

    private static String topic(int partitions, Map<String, String> configs) throws Exception {
        String name = Check.name("java");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        Check.soon(() -> Check.equal(partitions, admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size()));
        return name;
    }

    private static KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int i = 0; i < settings.length; i += 2) {
            all.put((String) settings[i], settings[i + 1]);
        }
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Object... settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "none", "enable.auto.commit", false));
        for (int i = 0; i < settings.length; i += 2) {
            all.put((String) settings[i], settings[i + 1]);
        }
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        Check.equal(count, records.size());
        return records;
    }

    private static List<ConsumerRecord<byte[], byte[]>> readFromStart(String topic, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            return read(consumer, count);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void roundTrip(String codec) throws Exception {
        String topic = topic(1, Map.of());
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int n = 0; n < 300; n++) {
            sent.add(new ProducerRecord<>(topic, 0, bytes("key " + n), bytes("the same again ".repeat(20) + n)));
        }
        sent.add(new ProducerRecord<>(topic, 0, null, bytes("no key")));
        sent.add(new ProducerRecord<>(topic, 0, bytes("no value"), null));
        sent.add(new ProducerRecord<>(topic, 0, bytes(""), bytes("")));
        ProducerRecord<byte[], byte[]> headed = new ProducerRecord<>(topic, 0, bytes("headers"), bytes("v"));
        headed.headers().add("twice", bytes("1")).add("twice", bytes("2")).add("null", null).add("empty", bytes("")).add("größe", bytes("ä"));
        sent.add(headed);
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec, "linger.ms", 5)) {
            sent.forEach(producer::send);
        }
        List<ConsumerRecord<byte[], byte[]>> got = readFromStart(topic, sent.size());
        for (int n = 0; n < sent.size(); n++) {
            Check.equal(sent.get(n).key(), got.get(n).key());
            Check.equal(sent.get(n).value(), got.get(n).value());
            Check.equal((long) n, got.get(n).offset());
            Header[] expected = sent.get(n).headers().toArray();
            Header[] headers = got.get(n).headers().toArray();
            Check.equal(expected.length, headers.length);
            for (int h = 0; h < headers.length; h++) {
                Check.equal(expected[h].key(), headers[h].key());
                Check.equal(expected[h].value(), headers[h].value());
            }
        }
    }

    private static void createTime() throws Exception {
        String topic = topic(1, Map.of("retention.ms", "-1"));
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (long n = 0; n < 5; n++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_600_000_000_000L + n, null, bytes("v")));
            }
        }
        for (ConsumerRecord<byte[], byte[]> record : readFromStart(topic, 5)) {
            Check.equal(1_600_000_000_000L + record.offset(), record.timestamp());
            Check.equal(TimestampType.CREATE_TIME, record.timestampType());
        }
    }

    private static void logAppendTime() throws Exception {
        String topic = topic(1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        RecordMetadata sent;
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            sent = producer.send(new ProducerRecord<>(topic, 0, 1_600_000_000_000L, null, bytes("v"))).get();
        }
        ConsumerRecord<byte[], byte[]> record = readFromStart(topic, 1).get(0);
        Check.equal(TimestampType.LOG_APPEND_TIME, record.timestampType());
        Check.equal(sent.timestamp(), record.timestamp());
        Check.is(record.timestamp() >= before && record.timestamp() <= System.currentTimeMillis(), "not now");
    }

    private static void farFuture() throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            long tomorrow = System.currentTimeMillis() + 86_400_000L;
            Check.refused(InvalidTimestampException.class, () -> producer.send(new ProducerRecord<>(topic, 0, tomorrow, null, bytes("v"))).get());
        }
    }

    private static void large() throws Exception {
        String topic = topic(1, Map.of());
        byte[] big = new byte[1_000_000];
        new Random(1).nextBytes(big);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.send(new ProducerRecord<>(topic, 0, null, big)).get();
        }
        Check.equal(big, readFromStart(topic, 1).get(0).value());
    }

    private static void tooLarge() throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", 5_000_000)) {
            Check.refused(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, 0, null, new byte[2_000_000])).get());
            Check.equal(0L, producer.send(new ProducerRecord<>(topic, 0, null, bytes("fits"))).get().offset());
        }
    }

    private static void nullKey() throws Exception {
        String topic = topic(1, Map.of("cleanup.policy", "compact"));
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            Check.refused(InvalidRecordException.class, () -> producer.send(new ProducerRecord<>(topic, 0, null, bytes("v"))).get());
            producer.send(new ProducerRecord<>(topic, 0, bytes("k"), bytes("v"))).get();
        }
    }

    private static void acks(String acks) throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer("acks", acks, "enable.idempotence", acks.equals("all"))) {
            for (int n = 0; n < 10; n++) {
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("" + n)));
            }
        }
        Check.equal(10, readFromStart(topic, 10).size());
    }

    private static void order() throws Exception {
        String topic = topic(1, Map.of());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer("batch.size", 2000, "linger.ms", 0)) {
            for (int n = 0; n < 10_000; n++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, bytes("" + n))));
            }
        }
        for (int n = 0; n < sent.size(); n++) {
            Check.equal((long) n, sent.get(n).get().offset());
        }
        for (ConsumerRecord<byte[], byte[]> record : readFromStart(topic, 10_000)) {
            Check.equal(bytes("" + record.offset()), record.value());
        }
    }

    private static void offsets() throws Exception {
        String topic = topic(1, Map.of("retention.ms", "-1"));
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (long n = 0; n < 10; n++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_600_000_000_000L + n * 100, null, bytes("v")));
            }
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Check.equal(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
            Check.equal(Map.of(partition, 10L), consumer.endOffsets(List.of(partition)));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, 1_600_000_000_450L)).get(partition);
            Check.equal(5L, found.offset());
            Check.equal(1_600_000_000_500L, found.timestamp());
            Check.is(found.leaderEpoch().isPresent(), "no leader epoch");
            Check.equal(null, consumer.offsetsForTimes(Map.of(partition, 1_700_000_000_000L)).get(partition));
            Check.equal(1, consumer.partitionsFor(topic).size());
        }
    }

    private static void seek() throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int n = 0; n < 100; n++) {
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("" + n)));
            }
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("max.poll.records", 1)) {
            consumer.assign(List.of(partition));
            for (long place : new long[] {50, 10, 99, 0}) {
                consumer.seek(partition, place);
                Check.equal(place, read(consumer, 1).get(0).offset());
                Check.equal(place + 1, consumer.position(partition));
            }
            consumer.seekToEnd(List.of(partition));
            Check.equal(100L, consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            Check.equal(0L, consumer.position(partition));
        }
    }

    private static void outOfRange() throws Exception {
        String topic = topic(1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 5);
            Check.refused(OffsetOutOfRangeException.class, () -> read(consumer, 1));
        }
    }

    private static void manyPartitions() throws Exception {
        String topic = topic(50, Map.of());
        List<TopicPartition> partitions = new ArrayList<>();
        for (int n = 0; n < 50; n++) {
            partitions.add(new TopicPartition(topic, n));
        }
        try (KafkaProducer<byte[], byte[]> producer = producer(); KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (int round = 0; round < 3; round++) {
                for (int n = 0; n < 50; n++) {
                    producer.send(new ProducerRecord<>(topic, n, null, bytes("" + round)));
                }
                producer.flush();
                Set<Integer> seen = new HashSet<>();
                for (ConsumerRecord<byte[], byte[]> record : read(consumer, 50)) {
                    Check.equal((long) round, record.offset());
                    seen.add(record.partition());
                }
                Check.equal(50, seen.size());
            }
            producer.send(new ProducerRecord<>(topic, 17, null, bytes("lone"))).get();
            Check.equal(17, read(consumer, 1).get(0).partition());
            consumer.assign(partitions.subList(0, 5));
            consumer.seekToBeginning(partitions.subList(0, 5));
            Check.equal(15, read(consumer, 15).size());
        }
    }

    private static void autoCreate() throws Exception {
        String topic = Check.name("java-auto");
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            Check.equal(0L, producer.send(new ProducerRecord<>(topic, bytes("k"), bytes("v"))).get().offset());
        }
        Check.equal(bytes("v"), readFromStart(topic, 1).get(0).value());
    }

    private static void murmur2() throws Exception {
        String topic = topic(12, Map.of());
        Map<String, Integer> hashes = Map.of("21", -973932308, "foobar", -790332482, "a-little-bit-long-string", -985981536, "abc", 479470107);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (Map.Entry<String, Integer> entry : hashes.entrySet()) {
                int partition = producer.send(new ProducerRecord<>(topic, bytes(entry.getKey()), bytes("v"))).get().partition();
                Check.equal((entry.getValue() & 0x7fffffff) % 12, partition);
            }
        }
    }

    private static void roundRobin() throws Exception {
        String topic = topic(4, Map.of());
        Set<Integer> seen = new HashSet<>();
        try (KafkaProducer<byte[], byte[]> producer = producer("partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner")) {
            for (int n = 0; n < 16; n++) {
                seen.add(producer.send(new ProducerRecord<>(topic, bytes("one key"), bytes("v"))).get().partition());
            }
        }
        Check.is(seen.size() > 1, "one key, one partition: no round robin");
    }

    /** Always the last partition. */
    public static final class Last implements Partitioner {
        @Override
        public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
            return cluster.partitionCountForTopic(topic) - 1;
        }

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> configs) {}
    }

    private static void ownPartitioner() throws Exception {
        String topic = topic(4, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer("partitioner.class", Last.class.getName())) {
            Check.equal(3, producer.send(new ProducerRecord<>(topic, bytes("k"), bytes("v"))).get().partition());
        }
    }

    private static void sticky() throws Exception {
        String topic = topic(4, Map.of());
        Map<Integer, Integer> seen = new HashMap<>();
        try (KafkaProducer<byte[], byte[]> producer = producer("batch.size", 200, "linger.ms", 0)) {
            for (int n = 0; n < 400; n++) {
                seen.merge(producer.send(new ProducerRecord<>(topic, bytes("0123456789".repeat(5)))).get().partition(), 1, Integer::sum);
            }
        }
        Check.is(seen.size() > 1, "all in one partition");
    }

    private static void readCommitted() throws Exception {
        String topic = topic(1, Map.of());
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.send(new ProducerRecord<>(topic, 0, null, bytes("v"))).get();
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", "read_committed")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            Check.equal(1, read(consumer, 1).size());
            Check.equal(Map.of(partition, 1L), consumer.endOffsets(List.of(partition)));
        }
    }
}
