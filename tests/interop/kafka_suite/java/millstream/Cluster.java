package millstream;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.server.IntegrationTestUtils;
import org.opentest4j.TestAbortedException;

/**
 * The brokers of one test. In a class that is marked for several brokers each of them is a process, and they share a tree of run.py's
 * ZooKeeper that no other test uses. In all other classes one process without ZooKeeper stands for all brokers of the test.
 */
public final class Cluster {
    private static final String ZOOKEEPER = System.getProperty("millstream.zookeeper", "");

    private final List<BrokerProcess> members = new ArrayList<>();
    /** What `zookeeper.connect` says; empty where one process stands for all brokers. */
    final Optional<String> zookeeper;
    private Admin admin;

    private Cluster(Optional<String> zookeeper) { this.zookeeper = zookeeper; }

    /** Of one process, unless the class that runs is marked. */
    public static Cluster create() {
        return new Cluster(ZOOKEEPER.isEmpty() ? Optional.empty() : Optional.of(ZOOKEEPER + "/" + UUID.randomUUID()));
    }

    public static Cluster ofOneProcess() { return new Cluster(Optional.empty()); }

    public boolean several() { return zookeeper.isPresent(); }
    synchronized void add(BrokerProcess member) { members.add(member); }

    /** A broker that runs: the given one, or any other where it does not. */
    synchronized BrokerProcess running(BrokerProcess preferred) {
        if (preferred != null && preferred.running()) return preferred;
        return members.stream().filter(BrokerProcess::running).findFirst()
            .orElseThrow(() -> new TestAbortedException("SEVERAL brokers: the only one is stopped"));
    }

    public BrokerProcess running() { return running(null); }

    private synchronized Admin admin() {
        running();
        if (admin == null)
            admin = Admin.create(Map.of("client.id", "harness",
                "bootstrap.servers", String.join(",", members.stream().map(one -> "localhost:" + one.ownPort()).toList())));
        return admin;
    }

    /** The answer of the cluster, without checked exceptions: these are asked in the middle of Kafka's own code. */
    <T> T answer(Function<Admin, KafkaFuture<T>> question) {
        try {
            return question.apply(admin()).get(30, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            throw e.getCause() instanceof RuntimeException cause ? cause : new RuntimeException(e.getCause());
        } catch (InterruptedException | TimeoutException e) {
            throw new RuntimeException(e);
        }
    }

    /** The answer of the one broker, as it sees the cluster; of another where it is stopped. */
    <T extends AbstractResponse> T answer(BrokerProcess of, AbstractRequest request) {
        try {
            return IntegrationTestUtils.connectAndReceive(request, running(of).ownPort());
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    public synchronized void delete() {
        if (admin != null) admin.close(java.time.Duration.ofSeconds(2));
        admin = null;
        members.forEach(BrokerProcess::delete);
        members.clear();
    }
}
