package millstream;

import java.util.*;
import java.util.concurrent.CompletableFuture;

import kafka.coordinator.transaction.TransactionCoordinator;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.*;
import kafka.raft.KafkaRaftManager;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Answers;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.opentest4j.TestAbortedException;

/**
 * Objects of the broker's classes that answer the few questions of Kafka's test kits by asking Millstream over the wire. All else
 * aborts the test with the name of what it asked: a made-up answer would let it pass for nothing.
 */
public final class Fakes {
    private Fakes() { }

    interface Handler { Object answer(InvocationOnMock call, Object[] arguments) throws Throwable; }

    @SuppressWarnings("unchecked")
    static <T> T fake(Class<T> type, Map<String, Handler> handlers) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            Handler handler = handlers.get(call.getMethod().getName());
            if (handler != null) return handler.answer(call, call.getArguments());
            String name = call.getMethod().getName();
            if (name.equals("toString") || name.equals("finalize")) return Answers.RETURNS_DEFAULTS.answer(call);
            throw new TestAbortedException("INSIDE " + type.getSimpleName() + "." + name);
        }));
    }

    private static Properties properties(String... pairs) {
        Properties found = new Properties();
        for (int i = 0; i < pairs.length; i += 2) found.setProperty(pairs[i], pairs[i + 1]);
        return found;
    }

    /** A log that knows its offsets, by asking for them; none where the partition does not exist. */
    static scala.Option<?> log(BrokerProcess process, TopicPartition tp) {
        if (process.topic(tp.topic()).filter(t -> t.partitions().size() > tp.partition()).isEmpty()) return scala.Option.empty();
        return scala.Option.apply(fake(UnifiedLog.class, Map.of(
            "logStartOffset", (c, a) -> process.offset(tp, OffsetSpec.earliest()),
            "localLogStartOffset", (c, a) -> process.offset(tp, OffsetSpec.earliest()),
            "logEndOffset", (c, a) -> process.offset(tp, OffsetSpec.latest()),
            "highWatermark", (c, a) -> process.offset(tp, OffsetSpec.latest()),
            "topicPartition", (c, a) -> tp,
            "producerStateManager", (c, a) -> fake(ProducerStateManager.class, Map.of("activeProducers", (d, b) -> process.producers(tp))),
            "topicId", (c, a) -> Optional.of(process.topicIds().get(tp.topic())))));
    }

    static scala.Option<?> partition(BrokerProcess process, TopicPartition tp) {
        scala.Option<?> log = log(process, tp);
        if (log.isEmpty()) return log;
        return scala.Option.apply(fake(kafka.cluster.Partition.class, Map.of(
            "leaderLogIfLocal", (c, a) -> log,
            "log", (c, a) -> log,
            "localLogOrException", (c, a) -> log.get(),
            "isLeader", (c, a) -> true,
            "topicPartition", (c, a) -> tp)));
    }

    /** A broker of the test. The one with the lowest id owns the process; the others share it and cannot be stopped alone. */
    public static BrokerServer broker(BrokerProcess process, KafkaConfig config, boolean owner, boolean kit) {
        boolean[] started = {false};
        SocketServer sockets = fake(SocketServer.class, Map.of("boundPort", (c, a) -> process.port(((ListenerName) a[0]).value())));
        SharedServer shared = fake(SharedServer.class, Map.of("loader", (c, a) -> null));
        KRaftMetadataCache cache = fake(KRaftMetadataCache.class, Map.of(
            "numPartitions", (c, a) -> process.topic((String) a[0]).map(t -> t.partitions().size()),
            "contains", (c, a) -> a[0] instanceof TopicPartition tp
                ? process.topic(tp.topic()).map(t -> t.partitions().size() > tp.partition()).orElse(false)
                : process.topic((String) a[0]).isPresent(),
            "getLeaderAndIsr", (c, a) -> process.topic((String) a[0]).filter(t -> t.partitions().size() > (int) a[1]).map(t ->
                new LeaderAndIsr(t.partitions().get((int) a[1]).leader().id(), List.of(0))),
            "hasAliveBroker", (c, a) -> (int) a[0] < OneBroker.believed,
            "getAllTopics", (c, a) -> process.topicIds().keySet(),
            "getTopicId", (c, a) -> process.topicIds().getOrDefault(a[0], Uuid.ZERO_UUID),
            "topicNamesToIds", (c, a) -> process.topicIds()));
        KafkaApis apis = fake(KafkaApis.class, Map.of(
            "isConsumerGroupProtocolEnabled", (c, a) -> true,
            "metadataCache", (c, a) -> cache,
            "authorizerPlugin", (c, a) -> Security.authorizer(process)));
        LogManager logs = fake(LogManager.class, Map.of(
            "getLog", (c, a) -> log(process, (TopicPartition) a[0]),
            "getLog$default$2", (c, a) -> false,
            "liveLogDirs", (c, a) -> scala.jdk.javaapi.CollectionConverters.asScala(new ArrayList<java.io.File>()).toSeq()));
        ReplicaManager replicas = fake(ReplicaManager.class, Map.of(
            "logManager", (c, a) -> logs,
            "getLog", (c, a) -> log(process, (TopicPartition) a[0]),
            "localLog", (c, a) -> log(process, (TopicPartition) a[0]),
            "onlinePartition", (c, a) -> partition(process, (TopicPartition) a[0])));
        int offsetPartitions = config.groupCoordinatorConfig().offsetsTopicPartitions();
        GroupCoordinator groups = fake(GroupCoordinator.class, Map.of(
            "groupMetadataTopicConfigs", (c, a) -> properties(
                "cleanup.policy", "compact", "compression.type", "producer", "segment.bytes", "104857600"),
            "partitionFor", (c, a) -> Utils.abs(a[0].hashCode()) % offsetPartitions));
        TransactionCoordinator transactions = fake(TransactionCoordinator.class, Map.of(
            "transactionStateTopicConfigs", (c, a) -> properties(
                "cleanup.policy", "compact", "compression.type", "uncompressed", "segment.bytes", "104857600",
                "min.insync.replicas", "1", "unclean.leader.election.enable", "false")));
        Map<String, Handler> handlers = new HashMap<>();
        handlers.put("groupCoordinator", (c, a) -> groups);
        handlers.put("transactionCoordinator", (c, a) -> transactions);
        handlers.put("startup", (c, a) -> { if (owner) process.start(); started[0] = true; return null; });
        handlers.put("shutdown", (c, a) -> {
            if (owner) process.stop();
            else if (process.running() && (kit || a.length > 0)) throw new TestAbortedException("SEVERAL brokers: one is stopped");
            started[0] = false;
            return null;
        });
        handlers.put("awaitShutdown", (c, a) -> null);
        handlers.put("isShutdown", (c, a) -> !process.running());
        handlers.put("brokerState", (c, a) -> process.running() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING);
        handlers.put("boundPort", (c, a) -> process.port(((ListenerName) a[0]).value()));
        handlers.put("socketServer", (c, a) -> sockets);
        handlers.put("config", (c, a) -> config);
        handlers.put("clusterId", (c, a) -> process.clusterId());
        handlers.put("metadataCache", (c, a) -> cache);
        handlers.put("replicaManager", (c, a) -> replicas);
        handlers.put("logManager", (c, a) -> logs);
        handlers.put("dataPlaneRequestProcessor", (c, a) -> apis);
        handlers.put("sharedServer", (c, a) -> shared);
        handlers.put("authorizerPlugin", (c, a) -> Security.authorizer(process));
        handlers.put("credentialProvider", (c, a) -> Security.credentials(process));
        handlers.put("metrics", (c, a) -> Security.metrics(process));
        return fake(BrokerServer.class, handlers);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    public static ControllerServer controller(java.util.function.Supplier<BrokerProcess> process, KafkaConfig config) {
        RaftLog log = fake(RaftLog.class, Map.of("endOffset", (c, a) -> new LogOffsetMetadata(1)));
        KafkaRaftManager raft = fake(KafkaRaftManager.class, Map.of("raftLog", (c, a) -> log));
        Controller controller = fake(Controller.class, Map.of(
            "findTopicIds", (c, a) -> {
                Map<String, Uuid> ids = process.get().topicIds();
                Map<String, ResultOrError<Uuid>> found = new HashMap<>();
                for (Object name : (Collection<?>) a[1])
                    found.put((String) name, ids.containsKey(name) ? new ResultOrError<>(ids.get(name))
                        : new ResultOrError<>(org.apache.kafka.common.protocol.Errors.UNKNOWN_TOPIC_OR_PARTITION, null));
                return CompletableFuture.completedFuture(found);
            },
            "findAllTopicIds", (c, a) -> CompletableFuture.completedFuture(process.get().topicIds()),
            "isActive", (c, a) -> true));
        SocketServer sockets = fake(SocketServer.class, Map.of("boundPort", (c, a) -> process.get().port()));
        return fake(ControllerServer.class, Map.of(
            "raftManager", (c, a) -> raft,
            "controller", (c, a) -> controller,
            "socketServer", (c, a) -> sockets,
            "config", (c, a) -> config,
            "clusterId", (c, a) -> process.get().clusterId(),
            "authorizerPlugin", (c, a) -> Security.authorizer(process.get()),
            "startup", (c, a) -> null,
            "shutdown", (c, a) -> null,
            "awaitShutdown", (c, a) -> null));
    }
}
