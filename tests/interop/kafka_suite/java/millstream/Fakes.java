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
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.BrokerLifecycleManager;
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

    /** A log that knows its offsets, by asking for them; none where the broker does not keep the partition. */
    static scala.Option<?> log(BrokerProcess process, TopicPartition tp) {
        boolean kept = process.cluster().several() ? process.folderOf(tp).isPresent() : process.partition(tp.topic(), tp.partition()).isPresent();
        if (!kept) return scala.Option.empty();
        Map<String, Handler> handlers = new HashMap<>(Map.of(
            "logStartOffset", (c, a) -> process.offset(tp, OffsetSpec.earliest()),
            "localLogStartOffset", (c, a) -> process.offset(tp, OffsetSpec.earliest()),
            "logEndOffset", (c, a) -> process.offset(tp, OffsetSpec.latest()),
            "highWatermark", (c, a) -> process.offset(tp, OffsetSpec.latest()),
            "dir", (c, a) -> process.folderOf(tp).orElseThrow(),
            "numberOfSegments", (c, a) -> process.folderOf(tp).map(BrokerProcess::segments).orElseThrow().size(),
            "topicPartition", (c, a) -> tp,
            "producerStateManager", (c, a) -> fake(ProducerStateManager.class, Map.of("activeProducers", (d, b) -> process.producers(tp))),
            "topicId", (c, a) -> Optional.of(process.topicIds().get(tp.topic()))));
        if (process.cluster().several()) {
            handlers.put("logStartOffset", (c, a) -> process.fetched(tp).logStartOffset());
            handlers.put("logEndOffset", (c, a) -> process.endOnDisk(tp));
            handlers.put("highWatermark", (c, a) -> process.fetched(tp).highWatermark());
        }
        return scala.Option.apply(fake(UnifiedLog.class, handlers));
    }

    /** A partition of this broker, in one process of all; none where another broker keeps it. */
    static scala.Option<?> partition(BrokerProcess process, TopicPartition tp) {
        var said = process.partition(tp.topic(), tp.partition());
        boolean several = process.cluster().several();
        if (said.isEmpty() || several && !(process.running() && said.get().replicaIds.contains(process.id()))) return scala.Option.empty();
        boolean leads = !several || said.get().leaderId.equals(Optional.of(process.id()));
        scala.Option<?> log = log(process, tp);
        return scala.Option.apply(fake(kafka.cluster.Partition.class, Map.of(
            "leaderLogIfLocal", (c, a) -> leads ? log : scala.Option.empty(),
            "leaderIdIfLocal", (c, a) -> leads ? scala.Option.apply(process.id()) : scala.Option.empty(),
            "leaderReplicaIdOpt", (c, a) -> said.get().leaderId.map(scala.Option::apply).orElse(scala.Option.empty()),
            "getLeaderEpoch", (c, a) -> said.get().leaderEpoch.orElse(-1),
            "inSyncReplicaIds", (c, a) -> scala.jdk.javaapi.CollectionConverters.asScala(said.get().inSyncReplicaIds).toSet(),
            "log", (c, a) -> log,
            "localLogOrException", (c, a) -> log.get(),
            "isLeader", (c, a) -> leads,
            "topicPartition", (c, a) -> tp)));
    }

    private static LeaderAndIsr leaderAndIsr(MetadataResponse.PartitionMetadata said) {
        return new LeaderAndIsr(said.leaderId.orElse(LeaderAndIsr.NO_LEADER), said.leaderEpoch.orElse(0), said.inSyncReplicaIds,
            LeaderRecoveryState.RECOVERED, 0);
    }

    /** A broker of the test. Its owner starts and stops the process; brokers that share it with the owner cannot be stopped alone. */
    public static BrokerServer broker(BrokerProcess process, KafkaConfig config, boolean owner, boolean kit) {
        boolean[] started = {false};
        boolean several = process.cluster().several();
        SocketServer sockets = fake(SocketServer.class, Map.of("boundPort", (c, a) -> process.port(((ListenerName) a[0]).value())));
        MetadataLoader loader = fake(MetadataLoader.class, Map.of("lastAppliedOffset", (c, a) -> 0L));
        SharedServer shared = fake(SharedServer.class, Map.of("loader", (c, a) -> loader));
        Map<String, Handler> answers = new HashMap<>(Map.of(
            "numPartitions", (c, a) -> process.topic((String) a[0]).map(t -> t.partitionMetadata().size()),
            "contains", (c, a) -> a[0] instanceof TopicPartition tp
                ? process.partition(tp.topic(), tp.partition()).isPresent()
                : process.topic((String) a[0]).isPresent(),
            "getLeaderAndIsr", (c, a) -> process.partition((String) a[0], (int) a[1]).map(Fakes::leaderAndIsr),
            "hasAliveBroker", (c, a) -> several ? process.alive().containsKey((int) a[0]) : (int) a[0] < OneBroker.believed,
            "getAliveBrokerNode", (c, a) -> Optional.ofNullable(process.alive().get((int) a[0])),
            "getAllTopics", (c, a) -> process.topicIds().keySet(),
            "getTopicId", (c, a) -> process.topicIds().getOrDefault(a[0], Uuid.ZERO_UUID),
            "topicNamesToIds", (c, a) -> process.topicIds()));
        answers.put("getPartitionLeaderEndpoint", (c, a) -> process.partition((String) a[0], (int) a[1])
            .flatMap(said -> said.leaderId).map(leader -> process.alive().get(leader)));
        answers.put("getPartitionReplicaEndpoints", (c, a) -> {
            var tp = (TopicPartition) a[0];
            var replicas = process.partition(tp.topic(), tp.partition()).orElseThrow().replicaIds;
            Map<Integer, org.apache.kafka.common.Node> alive = new HashMap<>(process.alive());
            alive.keySet().retainAll(replicas);
            return alive;
        });
        KRaftMetadataCache cache = fake(KRaftMetadataCache.class, answers);
        KafkaApis apis = fake(KafkaApis.class, Map.of(
            "isConsumerGroupProtocolEnabled", (c, a) -> true,
            "metadataCache", (c, a) -> cache,
            "clusterId", (c, a) -> process.clusterId(),
            "authorizerPlugin", (c, a) -> Security.authorizer(process)));
        LogManager logs = fake(LogManager.class, Map.of(
            "getLog", (c, a) -> log(process, (TopicPartition) a[0]),
            "getLog$default$2", (c, a) -> false,
            "liveLogDirs", (c, a) -> scala.jdk.javaapi.CollectionConverters.asScala(
                several ? process.folders().toList() : List.<java.io.File>of()).toSeq()));
        ReplicaManager replicas = fake(ReplicaManager.class, Map.of(
            "logManager", (c, a) -> logs,
            "getLog", (c, a) -> log(process, (TopicPartition) a[0]),
            "localLog", (c, a) -> log(process, (TopicPartition) a[0]),
            "localLogOrException", (c, a) -> log(process, (TopicPartition) a[0]).get(),
            "metadataCache", (c, a) -> cache,
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
            if (owner) process.stop(a.length > 0 ? (java.time.Duration) a[0] : java.time.Duration.ofMinutes(5));
            else if (process.running() && (kit || a.length > 0)) throw new TestAbortedException("SEVERAL brokers: one is stopped");
            return null;
        });
        BrokerLifecycleManager lifecycle = fake(BrokerLifecycleManager.class, Map.of(
            "initialUnfenceFuture", (c, a) -> CompletableFuture.completedFuture(null)));
        handlers.put("lifecycleManager", (c, a) -> lifecycle);
        handlers.put("awaitShutdown", (c, a) -> null);
        handlers.put("isShutdown", (c, a) -> !process.running());
        handlers.put("brokerState", (c, a) -> process.running() ? BrokerState.RUNNING
            : started[0] ? BrokerState.SHUTTING_DOWN : BrokerState.NOT_RUNNING);
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
        handlers.put("tokenCache", (c, a) -> Security.tokens(process));
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
            "tokenCache", (c, a) -> Security.tokens(process.get()),
            "startup", (c, a) -> null,
            "shutdown", (c, a) -> null,
            "awaitShutdown", (c, a) -> null));
    }
}
