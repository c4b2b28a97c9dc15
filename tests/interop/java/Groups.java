import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java consumer in groups of both protocols: java Groups HOST:PORT */
public final class Groups {
    private static final int PARTITIONS = 6;
    private static final int RECORDS = 30_000;
    private static String bootstrap;
    private static Admin admin;
    private static final List<Runnable> checks = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        for (String assignor : List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")) {
            Map<String, Object> settings = classic();
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
            later("rebalances under load, " + assignor, () -> underLoad(settings));
        }
        for (String assignor : List.of("uniform", "range")) {
            Map<String, Object> settings = consumer();
            settings.put("group.remote.assignor", assignor);
            later("rebalances under load, group.protocol=consumer, " + assignor, () -> underLoad(settings));
        }
        for (Map<String, Object> settings : List.of(classic(), consumer())) {
            String kind = " (" + settings.get("group.protocol") + ")";
            later("a group goes on where it was" + kind, () -> goesOn(settings));
            later("a static member comes back to its partitions" + kind, () -> staticMember(settings));
            later("commits with metadata" + kind, () -> metadata(settings));
            later("describe, delete offsets, delete" + kind, () -> administered(settings));
            later("a member that was thrown out may not commit" + kind, () -> thrownOut(settings));
        }
        later("a subscription by pattern", () -> pattern(classic(), false));
        later("a subscription by pattern that the broker evaluates", () -> pattern(consumer(), true));
        later("a group moves to the consumer protocol and back", Groups::moves);
        // They mostly wait, for heartbeats and for each other: several at a time.
        ExecutorService pool = Executors.newFixedThreadPool(5);
        checks.forEach(pool::submit);
        pool.shutdown();
        Check.is(pool.awaitTermination(8, TimeUnit.MINUTES), "the checks do not come to their end");
        Check.end();
    }

    private static void later(String name, Check.Body body) {
        checks.add(() -> Check.that(name, body));
    }

    // --- helpers ---

    static Map<String, Object> classic() {
        return settings("classic");
    }

    static Map<String, Object> consumer() {
        return settings("consumer");
    }

    private static Map<String, Object> settings(String protocol) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        if (protocol.equals("classic")) { // else the broker's own settings count
            settings.put("session.timeout.ms", 10_000);
            settings.put("heartbeat.interval.ms", 500);
        }
        return settings;
    }

    static Map<String, Object> with(Map<String, Object> settings, String name, Object value) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put(name, value);
        return all;
    }

    static String topic(int partitions) throws Exception {
        String name = Check.name("groups");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        Check.soon(() -> admin.describeTopics(List.of(name)).allTopicNames().get());
        return name;
    }

    static KafkaProducer<String, String> producer() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("linger.ms", 5);
        return new KafkaProducer<>(settings);
    }

    static void fill(String topic, int partitions, int each) {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int number = 0; number < each; number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, Integer.toString(number)));
                }
            }
            producer.flush();
        }
    }

    /** One member on a thread of its own: reads, checks the order, commits after every poll. */
    private static final class Member extends Thread {
        final Set<String> seen;
        final AtomicBoolean stop = new AtomicBoolean();
        final AtomicInteger rebalances = new AtomicInteger();
        volatile Throwable failure;
        volatile Set<TopicPartition> assigned = Set.of();
        private final Map<String, Object> settings;
        private final String topic;

        Member(Map<String, Object> settings, String topic, Set<String> seen) {
            this.settings = settings;
            this.topic = topic;
            this.seen = seen;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                Map<TopicPartition, Long> last = new HashMap<>();
                consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                    @Override
                    public void onPartitionsRevoked(Collection<TopicPartition> gone) {
                        gone.forEach(last::remove);
                    }

                    @Override
                    public void onPartitionsLost(Collection<TopicPartition> gone) {
                        gone.forEach(last::remove);
                    }

                    @Override
                    public void onPartitionsAssigned(Collection<TopicPartition> come) {
                        rebalances.incrementAndGet();
                    }
                });
                boolean owed = false;
                while (!stop.get() || owed) {
                    var records = consumer.poll(Duration.ofMillis(50));
                    assigned = consumer.assignment();
                    for (ConsumerRecord<String, String> record : records) {
                        TopicPartition place = new TopicPartition(record.topic(), record.partition());
                        Long before = last.put(place, record.offset());
                        Check.is(before == null || before + 1 == record.offset(), "after " + before + " came " + record.offset());
                        seen.add(record.partition() + "/" + record.value());
                    }
                    owed |= !records.isEmpty();
                    if (owed) {
                        try {
                            consumer.commitSync();
                            owed = false;
                        } catch (CommitFailedException lost) {
                            owed = false; // the partitions went to somebody else, who reads them again
                        } catch (RebalanceInProgressException again) {
                            continue; // the next poll goes on with the rebalance, then the commit is due
                        }
                    }
                }
            } catch (Throwable error) {
                failure = error;
            }
            assigned = Set.of();
        }

        void end() throws Exception {
            stop.set(true);
            join(20_000);
            Check.is(!isAlive(), "a member does not come to its end");
            if (failure != null) {
                throw new AssertionError("a member failed", failure);
            }
        }
    }

    private static void all(List<Member> members, int partitions) throws Exception {
        Check.soon(() -> {
            Set<TopicPartition> together = new HashSet<>();
            int count = 0;
            for (Member member : members) {
                Set<TopicPartition> own = member.assigned;
                Check.is(!own.isEmpty(), "a member has nothing");
                together.addAll(own);
                count += own.size();
            }
            Check.equal(partitions, count);
            Check.equal(partitions, together.size());
        });
    }

    private static Map<TopicPartition, Long> ends(String topic, int partitions) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (int partition = 0; partition < partitions; partition++) {
            asked.put(new TopicPartition(topic, partition), OffsetSpec.latest());
        }
        Map<TopicPartition, Long> found = new HashMap<>();
        admin.listOffsets(asked).all().get().forEach((place, answer) -> found.put(place, answer.offset()));
        return found;
    }

    private static Map<TopicPartition, Long> committed(String group) throws Exception {
        Map<TopicPartition, Long> found = new HashMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .forEach((place, offset) -> found.put(place, offset.offset()));
        return found;
    }

    // --- checks ---

    private static void underLoad(Map<String, Object> settings) throws Exception {
        String topic = topic(PARTITIONS);
        Map<String, Object> own = with(settings, "group.id", Check.name("group"));
        Set<String> seen = ConcurrentHashMap.newKeySet();
        List<Member> members = new ArrayList<>(List.of(new Member(own, topic, seen), new Member(own, topic, seen)));
        Thread writer = new Thread(() -> {
            try (KafkaProducer<String, String> producer = producer()) {
                for (int number = 0; number < RECORDS; number++) {
                    producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, Integer.toString(number)));
                    if (number % 1000 == 0) {
                        Thread.sleep(100);
                    }
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        });
        writer.start();
        all(members, PARTITIONS);
        members.add(new Member(own, topic, seen));
        all(members, PARTITIONS);
        members.remove(0).end();
        all(members, PARTITIONS);
        members.add(new Member(own, topic, seen));
        all(members, PARTITIONS);
        writer.join();
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (seen.size() < RECORDS && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        Check.equal(RECORDS, seen.size());
        Check.soon(() -> Check.equal(ends(topic, PARTITIONS), committed((String) own.get("group.id"))));
        for (Member member : members) {
            member.end();
            Check.is(member.rebalances.get() > 0, "no rebalance was seen");
        }
    }

    private static void goesOn(Map<String, Object> settings) throws Exception {
        String topic = topic(1);
        Map<String, Object> own = with(with(settings, "group.id", Check.name("group")), "max.poll.records", 7);
        fill(topic, 1, 50);
        int next = 0;
        while (next < 50) {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
                consumer.subscribe(List.of(topic));
                int read = 0;
                while (read == 0) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        Check.equal((long) next, record.offset());
                        next++;
                        read++;
                    }
                }
                consumer.commitSync();
            }
        }
    }

    private static void staticMember(Map<String, Object> settings) throws Exception {
        String topic = topic(2);
        Map<String, Object> own = with(settings, "group.id", Check.name("group"));
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Member one = new Member(with(own, "group.instance.id", "one"), topic, seen);
        Member two = new Member(with(own, "group.instance.id", "two"), topic, seen);
        all(List.of(one, two), 2);
        Set<TopicPartition> before = two.assigned;
        int rebalances = one.rebalances.get();
        two.end();
        Member again = new Member(with(own, "group.instance.id", "two"), topic, seen);
        Check.soon(() -> Check.equal(before, again.assigned));
        Check.equal(rebalances, one.rebalances.get());
        one.end();
        again.end();
    }

    private static void thrownOut(Map<String, Object> settings) throws Exception {
        String topic = topic(1);
        fill(topic, 1, 5);
        Map<String, Object> own = with(settings, "group.id", Check.name("group"));
        own.put("max.poll.interval.ms", 1000);
        try (KafkaConsumer<String, String> slow = new KafkaConsumer<>(own)) {
            slow.subscribe(List.of(topic));
            while (slow.poll(Duration.ofMillis(100)).isEmpty()) {
                Thread.onSpinWait();
            }
            try (KafkaConsumer<String, String> other = new KafkaConsumer<>(with(own, "max.poll.interval.ms", 60_000))) {
                other.subscribe(List.of(topic));
                Check.soon(() -> {
                    other.poll(Duration.ofMillis(100));
                    Check.equal(1, other.assignment().size());
                });
                try {
                    // By name: what a consumer of the newer protocol has read it forgets together with its partitions.
                    slow.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(5)));
                    throw new AssertionError("not refused");
                } catch (CommitFailedException | UnknownMemberIdException refused) {
                    other.commitSync();
                }
            }
        }
    }

    private static void metadata(Map<String, Object> settings) throws Exception {
        String topic = topic(2);
        String group = Check.name("group");
        TopicPartition place = new TopicPartition(topic, 1);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(with(settings, "group.id", group))) {
            consumer.assign(List.of(place));
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(7, java.util.Optional.of(0), "a note")));
            Check.equal(new OffsetAndMetadata(7, java.util.Optional.of(0), "a note"), consumer.committed(Set.of(place)).get(place));
            Check.equal(null, consumer.committed(Set.of(new TopicPartition(topic, 0))).get(new TopicPartition(topic, 0)));
        }
    }

    private static void administered(Map<String, Object> settings) throws Exception {
        String topic = topic(2);
        String group = Check.name("group");
        fill(topic, 2, 3);
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Member member = new Member(with(settings, "group.id", group), topic, seen);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        Check.soon(() -> Check.equal(Map.of(first, 3L, second, 3L), committed(group)));
        ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        Check.equal(GroupState.STABLE, described.groupState());
        Check.equal(1, described.members().size());
        Check.equal(Set.of(first, second), described.members().iterator().next().assignment().topicPartitions());
        Check.refused(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        Check.refused(GroupSubscribedToTopicException.class, () -> admin.deleteConsumerGroupOffsets(group, Set.of(first)).partitionResult(first).get());
        member.end();
        Check.soon(() -> Check.equal(GroupState.EMPTY, admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState()));
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(1))).all().get();
        Check.equal(Map.of(first, 1L, second, 3L), committed(group));
        admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get();
        admin.deleteConsumerGroupOffsets(group, Set.of(second)).all().get();
        Check.equal(Map.of(), committed(group));
        Check.equal(GroupState.EMPTY, admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
        Check.is(admin.listGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group)), "the group is gone");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        Check.refused(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    private static void pattern(Map<String, Object> settings, boolean atBroker) throws Exception {
        String prefix = Check.name("pattern");
        Map<String, Object> own = with(with(settings, "group.id", Check.name("group")), "metadata.max.age.ms", 500);
        for (String suffix : List.of("-a", "-b", "other")) {
            admin.createTopics(List.of(new NewTopic(prefix + suffix, 1, (short) 1))).all().get();
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            if (atBroker) {
                consumer.subscribe(new SubscriptionPattern(prefix + "-.*"));
            } else {
                consumer.subscribe(java.util.regex.Pattern.compile(prefix + "-.*"));
            }
            long deadline = System.nanoTime() + 40_000_000_000L;
            while (consumer.assignment().size() < 2 && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(100));
            }
            Check.equal(Set.of(new TopicPartition(prefix + "-a", 0), new TopicPartition(prefix + "-b", 0)), consumer.assignment());
        }
    }

    private static void moves() throws Exception {
        String topic = topic(4);
        String group = Check.name("group");
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Member old = new Member(with(classic(), "group.id", group), topic, seen);
        all(List.of(old), 4);
        Member newer = new Member(with(consumer(), "group.id", group), topic, seen);
        all(List.of(old, newer), 4);
        old.end();
        all(List.of(newer), 4);
        Member again = new Member(with(classic(), "group.id", group), topic, seen);
        all(List.of(newer, again), 4);
        newer.end();
        all(List.of(again), 4);
        fill(topic, 4, 10);
        Check.soon(() -> Check.equal(40, seen.size()));
        again.end();
    }
}
