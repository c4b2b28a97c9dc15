package millstream;

import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Stream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.opentest4j.TestAbortedException;

/** One `millstream broker` process: started, stopped and started again on the same ports and folders. */
public final class BrokerProcess {
    private static final String PYTHON = System.getProperty("millstream.python");
    private static final Path FOLDERS = Path.of(System.getProperty("millstream.folders"));
    private static final Set<Integer> PORTS = java.util.concurrent.ConcurrentHashMap.newKeySet();

    /** Set by the harness for its own process: the test has no say in these. */
    private static final Set<String> DROPPED = Set.of(
        "log.dirs", "log.dir", "listeners", "advertised.listeners", "process.roles", "node.id", "broker.id",
        "listener.security.protocol.map", "inter.broker.listener.name", "security.inter.broker.protocol",
        "controller.listener.names", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "metadata.log.dir",
        "metric.reporters", "zookeeper.connect", "client.quota.callback.class");
    /** One broker has one copy of everything, and no rack but its own. */
    private static final Set<String> CLAMPED = Set.of(
        "default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr", "min.insync.replicas");
    /** Java classes that only a broker in the JVM could load: the test is aborted. */
    private static final Set<String> REFUSED = Set.of(
        "create.topic.policy.class.name", "alter.config.policy.class.name", "broker.interceptor.class");
    private static final String RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    /** A shutdown that leaves less time than this does not wait for leaders to move. */
    private static final Duration CONTROLLED = Duration.ofSeconds(1);

    private final Cluster cluster;
    private final int id;

    private final Map<String, String> settings = new TreeMap<>();
    private final Map<String, String> protocols;
    private final Map<String, Integer> ports = new HashMap<>();
    private final int metricsPort;
    private final File folder;
    private final File output;
    private List<String> users = List.of();
    private boolean secured;
    private volatile Process process;
    private long outputBefore;
    private String clusterId;

    /** With the security protocols of its listeners, by their names. */
    public BrokerProcess(Cluster cluster, int id, Map<String, String> protocols, Map<String, ?> given, String dataFolders) {
        this.cluster = cluster;
        this.id = id;
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
        cluster.add(this);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            Process p = process;
            if (p != null) p.destroyForcibly();
        }));
    }

    /** Each only once: the kernel may name a port again as soon as it is closed here, and brokers need several. */
    private static int freePort() throws IOException {
        while (true) {
            try (ServerSocket socket = new ServerSocket(0, 1, java.net.InetAddress.getByName("127.0.0.1"))) {
                if (PORTS.add(socket.getLocalPort())) return socket.getLocalPort();
            }
        }
    }

    /** The settings of the next start. */
    public void configure(Map<String, ?> given, String dataFolders) {
        settings.clear();
        given.forEach((key, raw) -> {
            if (raw == null || DROPPED.contains(key) || key.equals("broker.rack") && !cluster.several()) return;
            String value = raw instanceof Collection<?> many ? String.join(",", many.stream().map(String::valueOf).toList())
                : raw instanceof Password password ? password.value() : raw.toString();
            if (value.isEmpty() && (REFUSED.contains(key) || key.startsWith("sasl.") || key.startsWith("ssl."))) return;
            if (REFUSED.contains(key) || key.equals("replica.selector.class") && !value.equals(RACK_AWARE))
                throw new TestAbortedException("EXCLUDED setting " + key);
            if (key.startsWith("remote.log.storage.system.enable") && value.equals("true"))
                throw new TestAbortedException("EXCLUDED tiered storage");
            settings.put(key, CLAMPED.contains(key) && !cluster.several() ? "1" : value);
        });
        if (!cluster.several())
            for (String name : List.of("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"))
                settings.putIfAbsent(name, "1");
        cluster.zookeeper.ifPresent(connect -> settings.put("zookeeper.connect", connect));
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
        settings.put("node.id", Integer.toString(id));
    }

    private static String joined(Map<String, String> listeners, Function<String, String> each) {
        return String.join(",", listeners.keySet().stream().map(each).toList());
    }

    /** SCRAM users that are there before the first start, as kafka-storage writes them. */
    public void users(List<String> arguments) { users = arguments; }
    boolean secured() { return secured; }
    public boolean authorizes() { return settings.containsKey("authorizer.class.name"); }

    public int id() { return id; }
    public Cluster cluster() { return cluster; }
    /** Where the harness itself asks. */
    int ownPort() { return secured ? ports.get(Security.LISTENER) : port(); }
    public int port() { return port(protocols.keySet().iterator().next()); }
    public int port(String listener) { return ports.getOrDefault(listener, ports.get(protocols.keySet().iterator().next())); }
    public String dataFolder() { return settings.get("log.dirs"); }
    public String bootstrap() { return "localhost:" + port(); }
    /** Not synchronized: tests stop a broker in one thread and look at it in another. */
    public boolean running() {
        Process current = process;
        return current != null && current.isAlive();
    }

    public synchronized String clusterId() { return clusterId; }

    public void start() {
        launch();
        awaitReady();
    }

    /** Without waiting: the brokers of a cluster start beside each other. */
    public synchronized void launch() {
        if (running()) return;
        // with security, the stand-ins for the tests' classes of the broker are loaded before it
        List<String> command = new ArrayList<>(secured ? List.of(PYTHON, System.getProperty("millstream.standins"))
            : List.of(PYTHON, "-m", "millstream", "broker"));
        settings.forEach((key, value) -> { command.add("--set"); command.add(key + "=" + value); });
        try {
            if (!users.isEmpty() && clusterId == null) format();
            outputBefore = output.exists() ? output.length() : 0;
            process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(output)).start();
        } catch (IOException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    public synchronized void awaitReady() {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        try {
            while (true) {
                String text = Files.readString(output.toPath()).substring((int) outputBefore);
                int at = text.indexOf("ready node.id=");
                if (at >= 0) {
                    int id = text.indexOf("cluster.id=", at) + 11;
                    clusterId = text.substring(id, text.indexOf(' ', id));
                    if (secured) Security.register(this);
                    return;
                }
                if (!process.isAlive()) throw new RuntimeException("broker did not start: " + text);
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

    public void stop() { stop(Duration.ofMinutes(5)); }

    /** SIGTERM, upon which the broker hands over what it leads; SIGKILL where there is no time for that. */
    public synchronized void stop(Duration limit) {
        if (process == null) return;
        if (limit.compareTo(CONTROLLED) < 0) process.destroyForcibly();
        process.destroy();
        try {
            if (!process.waitFor(40, TimeUnit.SECONDS)) process.destroyForcibly().waitFor();
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        process = null;
    }

    /** The test is over. */
    void delete() {
        stop(cluster.several() ? Duration.ZERO : Duration.ofMinutes(5));
        try {
            org.apache.kafka.common.utils.Utils.delete(folder);
        } catch (IOException e) {
            // a folder that stays is no reason to fail
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

    <T> T answer(Function<Admin, KafkaFuture<T>> question) { return cluster.answer(question); }

    /** What this broker says of a topic; empty where it does not exist. */
    public Optional<MetadataResponse.TopicMetadata> topic(String name) {
        MetadataResponse said = cluster.answer(this, new MetadataRequest.Builder(List.of(name), false).build());
        return said.topicMetadata().stream().filter(topic -> topic.error() == Errors.NONE).findFirst();
    }

    public Optional<MetadataResponse.PartitionMetadata> partition(String topic, int partition) {
        return topic(topic).flatMap(t -> t.partitionMetadata().stream().filter(one -> one.partition() == partition).findFirst());
    }

    /** The brokers that this one takes for alive. */
    public Map<Integer, Node> alive() {
        MetadataResponse said = cluster.answer(this, new MetadataRequest.Builder(List.of(), false).build());
        return said.brokersById();
    }

    /** Where this broker keeps the partition. */
    public Optional<File> folderOf(TopicPartition tp) {
        return folders().map(parent -> new File(parent, tp.toString())).filter(File::isDirectory).findFirst();
    }

    public Stream<File> folders() { return Arrays.stream(dataFolder().split(",")).map(one -> new File(one).getAbsoluteFile()); }

    static List<File> segments(File folder) {
        File[] found = folder.listFiles((parent, name) -> name.endsWith(".log"));
        return found == null ? List.of() : Arrays.stream(found).sorted().toList();
    }

    /** The end of this broker's own copy, from its files: a follower tells nobody. */
    public long endOnDisk(TopicPartition tp) {
        List<File> segments = folderOf(tp).map(BrokerProcess::segments).orElse(List.of());
        if (segments.isEmpty()) return 0;
        File last = segments.get(segments.size() - 1);
        long end = Long.parseLong(last.getName().replace(".log", ""));
        try (FileRecords records = FileRecords.open(last, false)) {
            for (var batch : records.batches()) end = batch.nextOffset();
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
        return end;
    }

    /** What this broker says of the partition, be it the leader or a follower: where it begins, and what is committed. */
    public FetchResponseData.PartitionData fetched(TopicPartition tp) {
        FetchResponseData.PartitionData said = fetch(tp, 0);
        // an offset before the log's start is out of range, and tells no more
        return said.errorCode() == Errors.NONE.code() ? said : fetch(tp, endOnDisk(tp));
    }

    private FetchResponseData.PartitionData fetch(TopicPartition tp, long offset) {
        var want = Map.of(tp, new FetchRequest.PartitionData(Uuid.ZERO_UUID, offset, -1, 1, Optional.empty()));
        short byName = 12;
        FetchResponse said = cluster.answer(this, new FetchRequest.Builder(byName, byName, FetchRequest.DEBUGGING_CONSUMER_ID, -1, 0, 0, want).build());
        return said.data().responses().get(0).partitions().get(0);
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
