package millstream;

import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.opentest4j.TestAbortedException;

/** One `millstream broker` process: started, stopped and started again on the same port and folder. */
public final class BrokerProcess {
    private static final String PYTHON = System.getProperty("millstream.python");
    private static final Path FOLDERS = Path.of(System.getProperty("millstream.folders"));

    /** Set by the harness for its own process: the test has no say in these. */
    private static final Set<String> DROPPED = Set.of(
        "log.dirs", "log.dir", "listeners", "advertised.listeners", "process.roles", "node.id", "broker.id",
        "listener.security.protocol.map", "inter.broker.listener.name", "security.inter.broker.protocol",
        "controller.listener.names", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "metadata.log.dir",
        "broker.rack", "metric.reporters", "zookeeper.connect",
        "client.quota.callback.class");
    /** One broker has one copy of everything. */
    private static final Set<String> CLAMPED = Set.of(
        "default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr", "min.insync.replicas");
    /** Java classes that only a broker in the JVM could load: the test is aborted. */
    private static final Set<String> REFUSED = Set.of(
        "create.topic.policy.class.name", "alter.config.policy.class.name", "replica.selector.class", "broker.interceptor.class");

    private final Map<String, String> settings = new TreeMap<>();
    private final Map<String, String> protocols;
    private final Map<String, Integer> ports = new HashMap<>();
    private final int metricsPort;
    private final File folder;
    private final File output;
    private List<String> users = List.of();
    private boolean secured;
    private Process process;
    private String clusterId;
    private Admin admin;

    /** With the security protocols of its listeners, by their names. */
    public BrokerProcess(Map<String, String> protocols, Map<String, ?> given, String dataFolders) {
        this.protocols = new LinkedHashMap<>(protocols);
        try {
            for (String listener : protocols.keySet()) ports.put(listener, freePort());
            ports.put(Security.LISTENER, freePort());
            metricsPort = freePort();
            folder = Files.createTempDirectory(FOLDERS, "broker").toFile();
            output = FOLDERS.resolve("broker-" + port() + ".log").toFile();
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
        configure(given, dataFolders);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            Process p = process;
            if (p != null) p.destroyForcibly();
        }));
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, java.net.InetAddress.getByName("127.0.0.1"))) {
            return socket.getLocalPort();
        }
    }

    /** The settings of the next start. */
    public void configure(Map<String, ?> given, String dataFolders) {
        settings.clear();
        given.forEach((key, raw) -> {
            if (raw == null || DROPPED.contains(key)) return;
            String value = raw instanceof Collection<?> many ? String.join(",", many.stream().map(String::valueOf).toList())
                : raw instanceof Password password ? password.value() : raw.toString();
            if (value.isEmpty() && (REFUSED.contains(key) || key.startsWith("sasl.") || key.startsWith("ssl."))) return;
            if (REFUSED.contains(key)) throw new TestAbortedException("EXCLUDED setting " + key);
            if (key.startsWith("remote.log.storage.system.enable") && value.equals("true"))
                throw new TestAbortedException("EXCLUDED tiered storage");
            settings.put(key, CLAMPED.contains(key) ? "1" : value);
        });
        settings.putIfAbsent("offsets.topic.replication.factor", "1");
        settings.putIfAbsent("transaction.state.log.replication.factor", "1");
        settings.putIfAbsent("transaction.state.log.min.isr", "1");
        settings.put("log.dirs", dataFolders != null ? dataFolders : new File(folder, "data").getPath());
        Map<String, String> all = new LinkedHashMap<>(protocols);
        secured = Security.wanted(protocols, settings);
        if (secured) {
            Security.translate(protocols, settings);
            all.put(Security.LISTENER, "PLAINTEXT");
            settings.put("millstream.metrics.listener", "127.0.0.1:" + metricsPort);
        }
        settings.put("listeners", joined(all, name -> name + "://127.0.0.1:" + ports.get(name)));
        settings.put("advertised.listeners", joined(all, name -> name + "://localhost:" + ports.get(name)));
        settings.put("listener.security.protocol.map", joined(all, name -> name + ":" + all.get(name)));
        settings.put("inter.broker.listener.name", secured ? Security.LISTENER : all.keySet().iterator().next());
        settings.put("node.id", "0");
    }

    private static String joined(Map<String, String> listeners, Function<String, String> each) {
        return String.join(",", listeners.keySet().stream().map(each).toList());
    }

    /** SCRAM users that are there before the first start, as kafka-storage writes them. */
    public void users(List<String> arguments) { users = arguments; }
    public boolean authorizes() { return settings.containsKey("authorizer.class.name"); }

    public void nodeId(int id) { settings.put("node.id", Integer.toString(id)); }
    public int port() { return port(protocols.keySet().iterator().next()); }
    public int port(String listener) { return ports.getOrDefault(listener, ports.get(protocols.keySet().iterator().next())); }
    public String dataFolder() { return settings.get("log.dirs"); }
    public String bootstrap() { return "localhost:" + port(); }
    public synchronized boolean running() { return process != null && process.isAlive(); }
    public synchronized String clusterId() { return clusterId; }

    public synchronized void start() {
        if (running()) return;
        // with security, the stand-ins for the tests' classes of the broker are loaded before it
        List<String> command = new ArrayList<>(secured ? List.of(PYTHON, System.getProperty("millstream.standins"))
            : List.of(PYTHON, "-m", "millstream", "broker"));
        settings.forEach((key, value) -> { command.add("--set"); command.add(key + "=" + value); });
        try {
            if (!users.isEmpty() && clusterId == null) format();
            long before = output.exists() ? output.length() : 0;
            process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(output)).start();
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (true) {
                String text = Files.readString(output.toPath());
                int at = text.indexOf("ready node.id=", (int) before);
                if (at >= 0) {
                    int id = text.indexOf("cluster.id=", at) + 11;
                    clusterId = text.substring(id, text.indexOf(' ', id));
                    if (secured) Security.register(this);
                    return;
                }
                if (!process.isAlive()) throw new RuntimeException("broker did not start: " + text.substring((int) before));
                if (System.nanoTime() > end) throw new RuntimeException("broker is not ready: " + text);
                Thread.sleep(20);
            }
        } catch (IOException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    private void format() throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(PYTHON, "-m", "millstream", "format", "--set", "log.dirs=" + dataFolder()));
        users.forEach(one -> { command.add("--add-scram"); command.add(one); });
        int code = new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(output)).start().waitFor();
        if (code != 0) throw new RuntimeException("the users were not added: " + Files.readString(output.toPath()));
    }

    public synchronized void stop() {
        if (admin != null) { admin.close(java.time.Duration.ofSeconds(2)); admin = null; }
        if (process == null) return;
        process.destroy();
        try {
            if (!process.waitFor(20, TimeUnit.SECONDS)) process.destroyForcibly().waitFor();
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        process = null;
    }

    public void delete() {
        stop();
        try {
            org.apache.kafka.common.utils.Utils.delete(folder);
        } catch (IOException e) {
            // a folder that stays is no reason to fail
        }
    }

    private synchronized Admin admin() {
        if (!running()) throw new TestAbortedException("SEVERAL brokers: the only one is stopped");
        int port = secured ? ports.get(Security.LISTENER) : port();
        if (admin == null) admin = Admin.create(Map.of("bootstrap.servers", "localhost:" + port, "client.id", "harness"));
        return admin;
    }

    /** The answer to a question to the broker, without checked exceptions: these are asked in the middle of Kafka's own code. */
    <T> T answer(Function<Admin, KafkaFuture<T>> question) {
        try {
            return question.apply(admin()).get(30, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            throw e.getCause() instanceof RuntimeException cause ? cause : new RuntimeException(e.getCause());
        } catch (InterruptedException | TimeoutException e) {
            throw new RuntimeException(e);
        }
    }

    /** One of the broker's own metrics, summed over its labels. */
    public double metric(String name) {
        if (!running()) return 0;
        try (var page = new java.net.URL("http://127.0.0.1:" + metricsPort + "/metrics").openStream()) {
            return new String(page.readAllBytes()).lines()
                .filter(line -> line.startsWith(name + " ") || line.startsWith(name + "{"))
                .mapToDouble(line -> Double.parseDouble(line.substring(line.lastIndexOf(' ') + 1))).sum();
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    /** What the broker says of a topic; empty where it does not exist. */
    public Optional<TopicDescription> topic(String name) {
        try {
            return Optional.of(answer(admin -> admin.describeTopics(List.of(name)).topicNameValues().get(name)));
        } catch (UnknownTopicOrPartitionException | InvalidTopicException e) {
            return Optional.empty();
        }
    }

    public long offset(TopicPartition tp, OffsetSpec spec) {
        return answer(admin -> admin.listOffsets(Map.of(tp, spec)).partitionResult(tp)).offset();
    }

    public Map<Long, ProducerStateEntry> producers(TopicPartition tp) {
        Map<Long, ProducerStateEntry> found = new TreeMap<>();
        for (var one : answer(admin -> admin.describeProducers(List.of(tp)).partitionResult(tp)).activeProducers())
            found.put(one.producerId(), new ProducerStateEntry(one.producerId(), (short) one.producerEpoch(),
                one.coordinatorEpoch().orElse(-1), one.lastTimestamp(), one.currentTransactionStartOffset()));
        return found;
    }

    public Map<String, Uuid> topicIds() {
        Map<String, Uuid> found = new HashMap<>();
        for (var one : answer(admin -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings()))
            found.put(one.name(), one.topicId());
        return found;
    }
}
