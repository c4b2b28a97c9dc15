package millstream;

import java.util.HashMap;
import java.util.Map;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.opentest4j.TestAbortedException;
import scala.jdk.javaapi.CollectionConverters;

/** What the patched kafka.server.QuorumTestHarness calls: brokers and the controller of one test. */
public final class Harness {
    private static final Map<String, BrokerProcess> BY_FOLDER = new HashMap<>();
    private static BrokerProcess current;

    private Harness() { }

    public static ControllerServer controller() { return Fakes.controller(() -> current, null); }

    public static synchronized BrokerServer createBroker(KafkaConfig config, boolean startup) {
        int id = config.brokerId();
        var listeners = CollectionConverters.asJava(config.listeners());
        config.effectiveListenerSecurityProtocolMap().forEach((name, protocol) -> {
            boolean used = listeners.stream().anyMatch(one -> one.listener().equals(name.value()));
            if (used && protocol != SecurityProtocol.PLAINTEXT) throw new TestAbortedException("EXCLUDED security " + protocol);
        });
        boolean owner = current == null || id == 0;
        if (owner) {
            String folders = String.join(",", config.logDirs());
            String listener = listeners.get(0).listener();
            // a test that makes its broker anew on the same folders means a restart
            BrokerProcess process = BY_FOLDER.get(folders);
            if (process == null) {
                process = new BrokerProcess(listener, config.originals(), folders);
                BY_FOLDER.put(folders, process);
                OneBroker.believed = 1;
            } else {
                process.configure(config.originals(), folders);
            }
            process.nodeId(id);
            current = process;
        } else {
            OneBroker.believed++;
        }
        BrokerServer broker = Fakes.broker(current, config, owner, false);
        if (startup) broker.startup();
        return broker;
    }

    public static synchronized void shutdown() {
        BY_FOLDER.values().forEach(BrokerProcess::delete);
        BY_FOLDER.clear();
        current = null;
        OneBroker.believed = 1;
    }
}
