import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java admin client: java Admins HOST:PORT */
public final class Admins {
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Check.that("create, describe, list, delete", Admins::topics);
        Check.that("what creating tells", Admins::creationResult);
        Check.that("defaults for partitions and replicas", Admins::defaults);
        Check.that("topics that cannot be", Admins::refusedTopics);
        Check.that("validation only", Admins::validation);
        Check.that("topic ids", Admins::ids);
        Check.that("a topic of many partitions, described page by page", Admins::pages);
        Check.that("more partitions", Admins::partitions);
        Check.that("settings of a topic", Admins::topicConfigs);
        Check.that("settings one by one", Admins::incremental);
        Check.that("settings of the broker", Admins::brokerConfigs);
        Check.that("settings of the whole cluster", Admins::clusterConfigs);
        Check.that("resources with settings", Admins::configResources);
        Check.that("the cluster", Admins::cluster);
        Check.that("log folders", Admins::logDirs);
        Check.that("list offsets", Admins::listOffsets);
        Check.that("delete records", Admins::deleteRecords);
        Check.that("elect leaders", Admins::electLeaders);
        Check.that("reassignments", Admins::reassignments);
        Check.that("features", Admins::features);
        Check.that("producers", Admins::producers);
        admin.close();
        Check.end();
    }

    private static String topic(int partitions, Map<String, String> configs) throws Exception {
        String name = Check.name("java-admin");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        Check.soon(() -> Check.equal(partitions, describe(name).partitions().size()));
        return name;
    }

    private static TopicDescription describe(String name) throws Exception {
        return admin.describeTopics(List.of(name)).topicNameValues().get(name).get();
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private static ConfigEntry config(ConfigResource resource, String name) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
    }

    private static int broker() throws Exception {
        return admin.describeCluster().nodes().get().iterator().next().id();
    }

    private static void topics() throws Exception {
        String name = topic(3, Map.of());
        TopicDescription description = describe(name);
        Check.equal(name, description.name());
        Check.equal(false, description.isInternal());
        description.partitions().forEach(partition -> {
            Check.equal(1, partition.replicas().size());
            Check.equal(partition.replicas(), partition.isr());
            Check.equal(partition.leader(), partition.replicas().get(0));
        });
        Check.is(admin.listTopics().names().get().contains(name), "not listed");
        Check.equal(description.topicId(), admin.listTopics().namesToListings().get().get(name).topicId());
        admin.deleteTopics(List.of(name)).all().get();
        Check.soon(() -> Check.refused(UnknownTopicOrPartitionException.class, () -> describe(name)));
        Check.refused(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(name)).all().get());
        DescribeTopicsOptions asked = new DescribeTopicsOptions().includeAuthorizedOperations(true);
        String other = topic(1, Map.of());
        Check.equal(8, admin.describeTopics(List.of(other), asked).allTopicNames().get().get(other).authorizedOperations().size());
    }

    private static void creationResult() throws Exception {
        String name = Check.name("java-admin");
        NewTopic topic = new NewTopic(name, 4, (short) 1).configs(Map.of("retention.ms", "5000"));
        CreateTopicsResult result = admin.createTopics(List.of(topic));
        Check.equal(4, result.numPartitions(name).get());
        Check.equal(1, result.replicationFactor(name).get());
        Check.equal("5000", result.config(name).get().get("retention.ms").value());
        Check.equal(ConfigSource.DYNAMIC_TOPIC_CONFIG, result.config(name).get().get("retention.ms").source());
        Check.soon(() -> Check.equal(result.topicId(name).get(), describe(name).topicId()));
    }

    private static void defaults() throws Exception {
        String name = Check.name("java-admin");
        admin.createTopics(List.of(new NewTopic(name, Optional.empty(), Optional.empty()))).all().get();
        Check.soon(() -> Check.equal(1, describe(name).partitions().size()));
    }

    private static void create(NewTopic topic) throws Exception {
        admin.createTopics(List.of(topic)).all().get();
    }

    private static void refusedTopics() throws Exception {
        String name = topic(1, Map.of());
        String fresh = Check.name("java-admin");
        Check.refused(TopicExistsException.class, () -> create(new NewTopic(name, 1, (short) 1)));
        Check.refused(InvalidTopicException.class, () -> create(new NewTopic("a b", 1, (short) 1)));
        Check.refused(InvalidTopicException.class, () -> create(new NewTopic("x".repeat(250), 1, (short) 1)));
        Check.refused(InvalidPartitionsException.class, () -> create(new NewTopic(fresh, 0, (short) 1)));
        Check.refused(InvalidReplicationFactorException.class, () -> create(new NewTopic(fresh, 1, (short) 3)));
        Check.refused(InvalidConfigurationException.class, () -> create(new NewTopic(fresh, 1, (short) 1).configs(Map.of("no.such", "1"))));
        Check.refused(InvalidReplicaAssignmentException.class, () -> create(new NewTopic(fresh, Map.of(0, List.of(4711)))));
        Check.is(!admin.listTopics().names().get().contains(fresh), "made after all");
    }

    private static void validation() throws Exception {
        String name = Check.name("java-admin");
        CreateTopicsOptions only = new CreateTopicsOptions().validateOnly(true);
        CreateTopicsResult result = admin.createTopics(List.of(new NewTopic(name, 2, (short) 1)), only);
        Check.equal(2, result.numPartitions(name).get());
        Check.is(!admin.listTopics().names().get().contains(name), "made after all");
    }

    private static void ids() throws Exception {
        String name = topic(2, Map.of());
        Uuid id = describe(name).topicId();
        Check.equal(name, admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name());
        Uuid unknown = Uuid.randomUuid();
        Check.refused(UnknownTopicIdException.class, () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(unknown))).allTopicIds().get());
        Check.refused(UnknownTopicIdException.class, () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(unknown))).all().get());
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        Check.soon(() -> Check.is(!admin.listTopics().names().get().contains(name), "still there"));
    }

    private static void pages() throws Exception {
        List<String> names = List.of(topic(30, Map.of()), topic(7, Map.of()), topic(1, Map.of()));
        DescribeTopicsOptions pages = new DescribeTopicsOptions().partitionSizeLimitPerResponse(4);
        Map<String, TopicDescription> described = admin.describeTopics(names, pages).allTopicNames().get();
        Check.equal(30, described.get(names.get(0)).partitions().size());
        Check.equal(7, described.get(names.get(1)).partitions().size());
        Check.equal(1, described.get(names.get(2)).partitions().size());
    }

    private static void partitions() throws Exception {
        String name = topic(2, Map.of());
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all().get();
        Check.soon(() -> Check.equal(4, describe(name).partitions().size()));
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5, List.of(List.of(broker()))))).all().get();
        Check.soon(() -> Check.equal(5, describe(name).partitions().size()));
        Check.refused(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get());
        Check.refused(
            InvalidReplicaAssignmentException.class,
            () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(6, List.of(List.of(4711))))).all().get());
        Check.refused(UnknownTopicOrPartitionException.class, () -> admin.createPartitions(Map.of("not-there", NewPartitions.increaseTo(3))).all().get());
    }

    private static void topicConfigs() throws Exception {
        ConfigResource resource = resource(topic(1, Map.of("segment.bytes", "2000000")));
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Config config = admin.describeConfigs(List.of(resource), all).all().get().get(resource);
        ConfigEntry segment = config.get("segment.bytes");
        Check.equal(ConfigSource.DYNAMIC_TOPIC_CONFIG, segment.source());
        Check.equal(ConfigEntry.ConfigType.INT, segment.type());
        Check.is(segment.documentation() != null && !segment.documentation().isBlank(), "no documentation");
        Check.equal(
            List.of("segment.bytes DYNAMIC_TOPIC_CONFIG", "log.segment.bytes DEFAULT_CONFIG"),
            segment.synonyms().stream().map(one -> one.name() + " " + one.source()).toList());
        Check.equal("604800000", config.get("retention.ms").value());
        Check.is(config.get("retention.ms").isDefault(), "retention.ms is no default");
        Check.is(config.entries().size() >= 25, "only " + config.entries().size() + " settings");
    }

    private static void change(ConfigResource resource, OpType operation, String name, String value) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), operation)))).all().get();
    }

    private static void incremental() throws Exception {
        ConfigResource resource = resource(topic(1, Map.of()));
        change(resource, OpType.SET, "retention.ms", "7000");
        Check.soon(() -> Check.equal("7000", config(resource, "retention.ms").value()));
        change(resource, OpType.APPEND, "cleanup.policy", "compact");
        Check.soon(() -> Check.equal("delete,compact", config(resource, "cleanup.policy").value()));
        change(resource, OpType.SUBTRACT, "cleanup.policy", "delete");
        Check.soon(() -> Check.equal("compact", config(resource, "cleanup.policy").value()));
        change(resource, OpType.DELETE, "retention.ms", "");
        Check.soon(() -> Check.equal("604800000", config(resource, "retention.ms").value()));
        Check.refused(InvalidConfigurationException.class, () -> change(resource, OpType.SET, "retention.ms", "soon"));
        Check.refused(UnknownTopicOrPartitionException.class, () -> change(resource("not-there"), OpType.SET, "retention.ms", "1000"));
    }

    private static void brokerConfigs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, "" + broker());
        Check.equal("1048588", config(resource, "message.max.bytes").value());
        Check.is(config(resource, "log.dirs").isReadOnly(), "log.dirs can be changed");
        change(resource, OpType.SET, "log.retention.ms", "86400000");
        try {
            Check.soon(() -> Check.equal(ConfigSource.DYNAMIC_BROKER_CONFIG, config(resource, "log.retention.ms").source()));
        } finally {
            change(resource, OpType.DELETE, "log.retention.ms", "");
        }
    }

    private static void clusterConfigs() throws Exception {
        ConfigResource whole = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource topic = resource(topic(1, Map.of()));
        change(whole, OpType.SET, "log.retention.ms", "43200000");
        try {
            Check.soon(() -> Check.equal("43200000", config(whole, "log.retention.ms").value()));
            Check.equal(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, config(whole, "log.retention.ms").source());
            Check.soon(() -> Check.equal("43200000", config(topic, "retention.ms").value()));
            Check.equal(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, config(topic, "retention.ms").source());
        } finally {
            change(whole, OpType.DELETE, "log.retention.ms", "");
        }
        Check.soon(() -> Check.equal("604800000", config(topic, "retention.ms").value()));
    }

    private static void configResources() throws Exception {
        String name = topic(1, Map.of());
        Set<ConfigResource> resources = new java.util.HashSet<>(admin.listConfigResources().all().get());
        Check.is(resources.contains(resource(name)), "the topic is missing");
        Check.is(resources.contains(new ConfigResource(ConfigResource.Type.BROKER, "" + broker())), "the broker is missing");
    }

    private static void cluster() throws Exception {
        Node node = admin.describeCluster().nodes().get().iterator().next();
        Check.equal(1, admin.describeCluster().nodes().get().size());
        Check.equal(bootstrap, node.host() + ":" + node.port());
        Check.equal(node.id(), admin.describeCluster().controller().get().id());
        Check.is(!admin.describeCluster().clusterId().get().isBlank(), "no cluster id");
    }

    private static void logDirs() throws Exception {
        String name = topic(2, Map.of());
        write(name, 0, 5);
        write(name, 1, 5);
        Map<String, LogDirDescription> folders = admin.describeLogDirs(List.of(broker())).allDescriptions().get().get(broker());
        Check.equal(1, folders.size());
        LogDirDescription folder = folders.values().iterator().next();
        Check.equal(null, folder.error());
        Check.is(folder.totalBytes().getAsLong() > folder.usableBytes().getAsLong(), "no sizes");
        Check.is(folder.replicaInfos().get(new TopicPartition(name, 1)).size() > 0, "no replica");
    }

    private static void write(String topic, int partition, int count) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < count; n++) {
                producer.send(new ProducerRecord<>(topic, partition, System.currentTimeMillis() - 1000 + n, "k", "v" + n)).get();
            }
        }
    }

    private static long offset(String topic, OffsetSpec spec) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    private static void listOffsets() throws Exception {
        String name = topic(1, Map.of());
        long before = System.currentTimeMillis() - 2000;
        write(name, 0, 5);
        Check.equal(0L, offset(name, OffsetSpec.earliest()));
        Check.equal(5L, offset(name, OffsetSpec.latest()));
        Check.equal(4L, offset(name, OffsetSpec.maxTimestamp()));
        Check.equal(0L, offset(name, OffsetSpec.forTimestamp(before)));
        Check.equal(-1L, offset(name, OffsetSpec.forTimestamp(before + 86_400_000L)));
        Check.equal(0L, offset(name, OffsetSpec.earliestLocal()));
        Check.equal(-1L, offset(name, OffsetSpec.latestTiered()));
    }

    private static void deleteRecords() throws Exception {
        String name = topic(1, Map.of());
        write(name, 0, 5);
        TopicPartition partition = new TopicPartition(name, 0);
        Check.equal(3L, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3))).lowWatermarks().get(partition).get().lowWatermark());
        Check.equal(3L, offset(name, OffsetSpec.earliest()));
        Check.refused(OffsetOutOfRangeException.class, () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(9))).all().get());
    }

    private static void electLeaders() throws Exception {
        String name = topic(1, Map.of());
        TopicPartition partition = new TopicPartition(name, 0);
        Optional<Throwable> outcome = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition);
        Check.is(outcome.isPresent() && outcome.get() instanceof ElectionNotNeededException, "elected: " + outcome);
        Check.equal(Map.of(), admin.electLeaders(ElectionType.PREFERRED, null).partitions().get());
    }

    private static void reassignments() throws Exception {
        String name = topic(1, Map.of());
        TopicPartition partition = new TopicPartition(name, 0);
        Check.equal(Map.of(), admin.listPartitionReassignments().reassignments().get());
        admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(broker()))))).all().get();
        Check.refused(
            InvalidReplicaAssignmentException.class,
            () -> admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(4711))))).all().get());
        Check.refused(NoReassignmentInProgressException.class, () -> admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get());
    }

    private static void features() throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
        Check.is(features.finalizedFeatures().containsKey("metadata.version"), "no metadata.version");
        Check.is(features.finalizedFeaturesEpoch().isPresent(), "no epoch");
    }

    private static void producers() throws Exception {
        String name = topic(1, Map.of());
        write(name, 0, 5);
        TopicPartition partition = new TopicPartition(name, 0);
        List<ProducerState> states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        Check.equal(1, states.size());
        Check.equal(4, states.get(0).lastSequence());
        Check.equal(0, states.get(0).producerEpoch());
    }
}
