package org.apache.kafka.common.test;

import java.util.*;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.raft.KafkaRaftManager;
import millstream.BrokerProcess;
import millstream.Cluster;
import millstream.Fakes;
import millstream.OneBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.opentest4j.TestAbortedException;

/**
 * Kafka's test kit by name and methods, with Millstream's processes behind it. Newer tests, and those of Streams, start their
 * cluster with this class; ours comes first on the class path. "EXCLUDED" says that the test wants what this harness does not
 * start, "INSIDE" that it looks into the broker's objects.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) { this.nodes = nodes; }
        public Builder setConfigProp(String key, Object value) { settings.put(key, value); return this; }
        public Builder setStandalone(boolean standalone) { return this; }
        public Builder setInitialVoterSet(Map<Integer, Uuid> voters) { throw new TestAbortedException("EXCLUDED voter set"); }
        public Builder setDeleteOnClose(boolean value) { return this; }

        /** As in Kafka's kit: one admin and one user with passwords, and rights for the admin alone. */
        private static void logins(Map<String, Object> settings) {
            settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
            settings.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
            settings.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
            settings.putIfAbsent("allow.everyone.if.no.acl.found", "false");
            settings.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
            try {
                JaasUtils.refreshJavaLoginConfigParam(JaasUtils.writeJaasContextsToFile(Set.of(new JaasUtils.JaasSection(
                    JaasUtils.KAFKA_SERVER_CONTEXT_NAME,
                    List.of(JaasModule.plainLoginModule(JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD, true,
                        Map.of(JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD,
                            JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD)))))));
            } catch (java.io.IOException e) {
                throw new RuntimeException(e);
            }
        }

        public KafkaClusterTestKit build() {
            if (nodes.brokerListenerProtocol() == SecurityProtocol.SASL_PLAINTEXT) logins(settings);
            if (nodes.brokerNodes().isEmpty()) throw new TestAbortedException("EXCLUDED no broker");
            if (nodes.bootstrapMetadata() != null && nodes.bootstrapMetadata().featureLevel("group.version") == 0)
                throw new TestAbortedException("EXCLUDED feature group.version=0");
            return new KafkaClusterTestKit(nodes, settings);
        }
    }

    private static final int CONTROLLER = 3000;

    private final TestKitNodes nodes;
    private final Cluster cluster;
    private final Map<Integer, BrokerProcess> processes = new TreeMap<>();
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final MockFaultHandler fatal = new MockFaultHandler("fatalFaultHandler");
    private final MockFaultHandler nonFatal = new MockFaultHandler("nonFatalFaultHandler");
    private final Map<Integer, ControllerServer> controllers = new TreeMap<>();

    private KafkaClusterTestKit(TestKitNodes nodes, Map<String, Object> settings) {
        this.nodes = nodes;
        int first = Collections.min(nodes.brokerNodes().keySet());
        cluster = nodes.brokerNodes().size() > 1 ? Cluster.create() : Cluster.ofOneProcess();
        if (!cluster.several() && first != 0) throw new TestAbortedException("EXCLUDED broker ids that do not begin with 0");
        OneBroker.believed = cluster.several() ? 1 : nodes.brokerNodes().size();
        nodes.brokerNodes().forEach((id, node) -> {
            boolean owner = cluster.several() || id == first;
            if (owner) processes.put(id, process(id, node, settings));
            BrokerProcess process = processes.get(cluster.several() ? id : first);
            brokers.put(id, Fakes.broker(process, config(id, node, process, settings), owner, true));
        });
        // some tests add their ACLs at the controller
        if (settings.containsKey("authorizer.class.name"))
            controllers.put(CONTROLLER, Fakes.controller(() -> processes.get(first), null));
    }

    private BrokerProcess process(int id, TestKitNode node, Map<String, Object> settings) {
        Map<String, Object> own = new HashMap<>(settings);
        // as in Kafka's kit: tests count on both
        own.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
        own.putIfAbsent("unstable.api.versions.enable", "true");
        own.putAll(node.propertyOverrides());
        String folders = cluster.several() ? String.join(",", node.logDataDirectories()) : null;
        return new BrokerProcess(cluster, id, Map.of(nodes.brokerListenerName().value(), nodes.brokerListenerProtocol().name), own, folders);
    }

    /** Never used to start anything: tests read their own settings from it, and KafkaConfig checks them. */
    private KafkaConfig config(int id, TestKitNode node, BrokerProcess process, Map<String, Object> settings) {
        String listener = nodes.brokerListenerName().value();
        Map<String, Object> props = new HashMap<>(settings);
        props.put("process.roles", "broker");
        props.put("node.id", Integer.toString(id));
        props.put("log.dirs", process.dataFolder());
        props.put("listeners", listener + "://localhost:" + process.port());
        props.put("advertised.listeners", listener + "://localhost:" + process.port());
        props.put("listener.security.protocol.map", listener + ":" + nodes.brokerListenerProtocol().name + ",CONTROLLER:PLAINTEXT");
        props.put("inter.broker.listener.name", listener);
        props.put("controller.listener.names", "CONTROLLER");
        props.put("controller.quorum.voters", CONTROLLER + "@localhost:1");
        props.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
        props.putIfAbsent("unstable.feature.versions.enable", "true");
        props.putIfAbsent("unstable.api.versions.enable", "true");
        props.putAll(node.propertyOverrides());
        return new KafkaConfig(props, false);
    }

    public void format() { }

    public void startup() {
        processes.values().forEach(BrokerProcess::launch);
        brokers.values().forEach(BrokerServer::startup);
    }

    public void waitForReadyBrokers() { }
    public Admin admin() { return admin(Map.of(), false); }
    public Admin admin(Map<String, Object> configs) { return admin(configs, false); }

    public Admin admin(Map<String, Object> configs, boolean usingBootstrapControllers) {
        Map<String, Object> props = new HashMap<>(configs);
        if (usingBootstrapControllers) throw new TestAbortedException("EXCLUDED bootstrap.controllers");
        props.putIfAbsent("bootstrap.servers", bootstrapServers());
        return Admin.create(props);
    }

    public String bootstrapServers() { return String.join(",", processes.values().stream().map(BrokerProcess::bootstrap).toList()); }
    public String bootstrapControllers() { throw new TestAbortedException("EXCLUDED bootstrap.controllers"); }
    public Map<Integer, ControllerServer> controllers() { return controllers; }
    public Controller waitForActiveController() { throw new TestAbortedException("INSIDE active controller"); }
    public Map<Integer, BrokerServer> brokers() { return brokers; }

    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        throw new TestAbortedException("INSIDE raft managers");
    }

    public TestKitNodes nodes() { return nodes; }
    public MockFaultHandler fatalFaultHandler() { return fatal; }
    public MockFaultHandler nonFatalFaultHandler() { return nonFatal; }

    @Override
    public void close() {
        cluster.delete();
        OneBroker.believed = 1;
        try {
            org.apache.kafka.common.utils.Utils.delete(new java.io.File(nodes.baseDirectory()));
        } catch (java.io.IOException e) {
            // a folder that stays is no reason to fail
        }
    }
}
