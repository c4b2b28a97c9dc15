import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client's transactions: java Transactions HOST:PORT */
public final class Transactions {
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Check.that("commit and abort", Transactions::commitAndAbort);
        Check.that("a transaction over many partitions is read as a whole", Transactions::manyPartitions);
        Check.that("an open transaction holds back who reads committed records", Transactions::heldBack);
        Check.that("a hundred transactions one after the other", Transactions::hundred);
        Check.that("a second producer with the same id fences the first", Transactions::fenced);
        Check.that("the next producer aborts what the last left open", Transactions::leftOpen);
        Check.that("a transaction that takes too long is aborted", Transactions::tooLong);
        Check.that("compressed transactions", Transactions::compressed);
        Check.that("an empty transaction", Transactions::empty);
        for (String protocol : List.of("classic", "consumer")) {
            Check.that("offsets go with their transaction (" + protocol + ")", () -> offsets(protocol));
            Check.that("consume, transform, produce: exactly once (" + protocol + ")", () -> exactlyOnce(protocol));
        }
        Check.that("describe and list transactions and producers", Transactions::described);
        Check.end();
    }

    // --- helpers ---

    private static String topic(int partitions) throws Exception {
        String name = Check.name("transactions");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        Check.soon(() -> admin.describeTopics(List.of(name)).allTopicNames().get());
        return name;
    }

    private static KafkaProducer<String, String> producer(String id, Object... more) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        for (int at = 0; at < more.length; at += 2) {
            settings.put((String) more[at], more[at + 1]);
        }
        KafkaProducer<String, String> made = new KafkaProducer<>(settings);
        made.initTransactions();
        return made;
    }

    private static Map<String, Object> reader(String isolation) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        return settings;
    }

    private static List<String> read(String topic, int partitions, String isolation) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reader(isolation))) {
            List<TopicPartition> places = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                places.add(new TopicPartition(topic, partition));
            }
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    found.add(record.value());
                }
            }
        }
        return found;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, int partition, String value) {
        producer.send(new ProducerRecord<>(topic, partition, null, value));
    }

    // --- checks ---

    private static void commitAndAbort() throws Exception {
        String topic = topic(1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (String value : List.of("a", "b", "c", "d")) {
                producer.beginTransaction();
                send(producer, topic, 0, value);
                producer.flush();
                if (value.equals("b") || value.equals("c")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Check.equal(List.of("a", "d"), read(topic, 1, "read_committed"));
        Check.equal(List.of("a", "b", "c", "d"), read(topic, 1, "read_uncommitted"));
    }

    private static void manyPartitions() throws Exception {
        String topic = topic(20);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (int round = 0; round < 10; round++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 20; partition++) {
                    send(producer, topic, partition, round % 3 == 0 ? "aborted" : "kept");
                }
                if (round % 3 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<String> found = read(topic, 20, "read_committed");
        Check.equal(120, found.size());
        Check.equal(Set.of("kept"), new HashSet<>(found));
    }

    private static void heldBack() throws Exception {
        String topic = topic(1);
        try (KafkaProducer<String, String> open = producer(topic + "-open"); KafkaProducer<String, String> other = producer(topic)) {
            open.beginTransaction();
            send(open, topic, 0, "open");
            open.flush();
            other.beginTransaction();
            send(other, topic, 0, "other");
            other.commitTransaction();
            Check.equal(List.of(), read(topic, 1, "read_committed"));
            Check.equal(List.of("open", "other"), read(topic, 1, "read_uncommitted"));
            open.commitTransaction();
        }
        Check.equal(List.of("open", "other"), read(topic, 1, "read_committed"));
    }

    private static void hundred() throws Exception {
        String topic = topic(3);
        int kept = 0;
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 100; number++) {
                producer.beginTransaction();
                for (int each = 0; each < 30; each++) {
                    send(producer, topic, each % 3, number + "/" + each);
                }
                if (number % 4 == 3) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    kept += 30;
                }
            }
        }
        List<String> found = read(topic, 3, "read_committed");
        Check.equal(kept, found.size());
        Check.equal(kept, new HashSet<>(found).size());
        Check.is(found.stream().noneMatch(value -> Integer.parseInt(value.split("/")[0]) % 4 == 3), "an aborted record was read");
    }

    private static void fenced() throws Exception {
        String topic = topic(1);
        try (KafkaProducer<String, String> old = producer(topic)) {
            old.beginTransaction();
            send(old, topic, 0, "old");
            old.flush();
            try (KafkaProducer<String, String> newer = producer(topic)) {
                newer.beginTransaction();
                send(newer, topic, 0, "newer");
                newer.commitTransaction();
            }
            try {
                old.commitTransaction();
                throw new AssertionError("not fenced");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                Check.equal(List.of("newer"), read(topic, 1, "read_committed"));
            }
        }
    }

    private static void leftOpen() throws Exception {
        String topic = topic(1);
        KafkaProducer<String, String> lost = producer(topic);
        lost.beginTransaction();
        send(lost, topic, 0, "lost");
        lost.flush();
        lost.close(Duration.ZERO);
        try (KafkaProducer<String, String> next = producer(topic)) {
            next.beginTransaction();
            send(next, topic, 0, "next");
            next.commitTransaction();
        }
        Check.equal(List.of("next"), read(topic, 1, "read_committed"));
    }

    private static void tooLong() throws Exception {
        String topic = topic(1);
        try (KafkaProducer<String, String> producer = producer(topic, "transaction.timeout.ms", 1000)) {
            producer.beginTransaction();
            send(producer, topic, 0, "late");
            producer.flush();
            TopicPartition place = new TopicPartition(topic, 0);
            long deadline = System.nanoTime() + 40_000_000_000L;
            while (admin.describeProducers(List.of(place)).all().get().get(place).activeProducers().stream()
                    .anyMatch(each -> each.currentTransactionStartOffset().isPresent())) {
                Check.is(System.nanoTime() < deadline, "it stays open");
                Thread.sleep(200);
            }
            try {
                producer.commitTransaction();
                throw new AssertionError("not refused");
            } catch (KafkaException expected) {
                Check.equal(List.of(), read(topic, 1, "read_committed"));
            }
        }
    }

    private static void compressed() throws Exception {
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            String topic = topic(1);
            try (KafkaProducer<String, String> producer = producer(topic, "compression.type", codec, "linger.ms", 20)) {
                for (int round = 0; round < 2; round++) {
                    producer.beginTransaction();
                    for (int number = 0; number < 200; number++) {
                        send(producer, topic, 0, round + "/" + number);
                    }
                    if (round == 0) {
                        producer.flush();
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
            }
            List<String> found = read(topic, 1, "read_committed");
            Check.equal(200, found.size());
            Check.equal("1/0", found.get(0));
        }
    }

    private static void empty() throws Exception {
        String topic = topic(1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, topic, 0, "v");
            producer.commitTransaction();
        }
        Check.equal(List.of("v"), read(topic, 1, "read_committed"));
    }

    private static void offsets(String protocol) throws Exception {
        String topic = topic(1);
        String group = Check.name("group");
        TopicPartition place = new TopicPartition(topic, 0);
        Map<String, Object> settings = reader("read_committed");
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings); KafkaProducer<String, String> producer = producer(topic)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (consumer.assignment().isEmpty() && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(100));
            }
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(5)), consumer.groupMetadata());
            producer.abortTransaction();
            Check.equal(null, consumer.committed(Set.of(place)).get(place));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(6, "note")), consumer.groupMetadata());
            producer.commitTransaction();
            Check.equal(new OffsetAndMetadata(6, "note"), consumer.committed(Set.of(place)).get(place));
        }
    }

    /** A reader that is closed and opened again, and a third of its transactions aborted: every input once. */
    private static void exactlyOnce(String protocol) throws Exception {
        String input = topic(2);
        String output = topic(2);
        int records = 600;
        try (KafkaProducer<String, String> producer = producer(input)) {
            producer.beginTransaction();
            for (int number = 0; number < records; number++) {
                send(producer, input, number % 2, Integer.toString(number));
            }
            producer.commitTransaction();
        }
        Map<String, Object> settings = reader("read_committed");
        settings.put("group.id", Check.name("group"));
        settings.put("group.protocol", protocol);
        settings.put("max.poll.records", 40);
        int done = 0;
        for (int turn = 0; done < records && turn < 40; turn++) {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings); KafkaProducer<String, String> producer = producer(output)) {
                consumer.subscribe(List.of(input));
                int transactions = 0;
                long deadline = System.nanoTime() + 20_000_000_000L;
                while (transactions < 6 && done < records && System.nanoTime() < deadline) {
                    var polled = consumer.poll(Duration.ofMillis(200));
                    if (polled.isEmpty()) {
                        continue;
                    }
                    transactions++;
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                    for (ConsumerRecord<String, String> record : polled) {
                        send(producer, output, record.partition(), "made of " + record.value());
                        ends.put(new TopicPartition(input, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                    if (transactions % 3 == 0) {
                        producer.flush();
                        producer.abortTransaction();
                        break; // and a new reader begins where the group is
                    }
                    producer.commitTransaction();
                    done += polled.count();
                }
            }
        }
        List<String> found = read(output, 2, "read_committed");
        Check.equal(records, found.size());
        Check.equal(records, new HashSet<>(found).size());
    }

    private static void described() throws Exception {
        String topic = topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            send(producer, topic, 0, "v");
            producer.flush();
            var open = admin.describeTransactions(List.of(topic)).description(topic).get();
            Check.equal(TransactionState.ONGOING, open.state());
            Check.equal(Set.of(place), open.topicPartitions());
            Check.is(admin.listTransactions().all().get().stream().anyMatch(each -> each.transactionalId().equals(topic)), "not listed");
            var active = admin.describeProducers(List.of(place)).all().get().get(place).activeProducers();
            Check.equal(1, active.size());
            Check.equal(0L, active.get(0).currentTransactionStartOffset().getAsLong());
            producer.commitTransaction();
            Check.soon(() -> Check.equal(TransactionState.COMPLETE_COMMIT, admin.describeTransactions(List.of(topic)).description(topic).get().state()));
        }
        try (KafkaProducer<String, String> producer = producer(topic + "-b")) {
            producer.beginTransaction();
            send(producer, topic, 0, "w");
            producer.flush();
            admin.fenceProducers(List.of(topic + "-b")).all().get();
            Check.refused(KafkaException.class, producer::commitTransaction);
        }
        Check.equal(List.of("v"), read(topic, 1, "read_committed"));
    }
}
