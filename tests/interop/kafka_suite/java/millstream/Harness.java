package millstream;

import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import org.apache.kafka.metadata.storage.Formatter;
import scala.jdk.javaapi.CollectionConverters;

/** What the patched kafka.server.QuorumTestHarness calls: brokers and the controller of one test. */
public final class Harness {
    private static final Map<String, BrokerProcess> BY_FOLDER = new HashMap<>();
    private static Cluster cluster;
    private static BrokerProcess current;
    private static List<String> users = List.of();

    private Harness() { }

    public static ControllerServer controller() { return Fakes.controller(() -> cluster.several() ? cluster.running() : current, null); }

    /** What the test adds to a fresh cluster: its first users. */
    @SuppressWarnings("unchecked")
    public static synchronized void format(Formatter formatter) throws ReflectiveOperationException {
        Field field = Formatter.class.getDeclaredField("scramArguments");
        field.setAccessible(true);
        users = List.copyOf((List<String>) field.get(formatter));
    }

    public static synchronized BrokerServer createBroker(KafkaConfig config, boolean startup) {
        int id = config.brokerId();
        var listeners = CollectionConverters.asJava(config.listeners());
        Map<String, String> protocols = new LinkedHashMap<>();
        listeners.forEach(one -> config.effectiveListenerSecurityProtocolMap().forEach((name, protocol) -> {
            if (one.listener().equals(name.value())) protocols.put(one.listener(), protocol.name);
        }));
        if (cluster == null) cluster = Cluster.create();
        boolean owner = cluster.several() || current == null || id == 0;
        if (owner) {
            String folders = String.join(",", config.logDirs());
            // a test that makes its broker anew on the same folders means a restart
            BrokerProcess process = BY_FOLDER.get(folders);
            if (process == null) {
                process = new BrokerProcess(cluster, id, protocols, config.originals(), folders);
                process.users(users);
                BY_FOLDER.put(folders, process);
                OneBroker.believed = 1;
            } else {
                process.configure(config.originals(), folders);
            }
            current = process;
        } else {
            OneBroker.believed++;
        }
        BrokerServer broker = Fakes.broker(current, config, owner, false);
        if (startup) broker.startup();
        return broker;
    }

    public static synchronized void shutdown() {
        if (cluster != null) cluster.delete();
        BY_FOLDER.clear();
        cluster = null;
        current = null;
        users = List.of();
        OneBroker.believed = 1;
    }
}
