// Records what Apache Kafka itself says about its settings, for the tests beside this file to compare with.
//
// Needs the class path of org.apache.kafka:kafka_2.13 (4.2.0 when last used) and, for the second file, a broker of the
// same version that was started with recorded.properties and has nothing in it:
//
//     java -cp "$CLASSPATH" RecordKafka.java facts > kafka_facts.json
//     java -cp "$CLASSPATH" RecordKafka.java answers 127.0.0.1:9092 > kafka_answers.json

import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class RecordKafka {
    static String json(Object value) {
        if (value == null) return "null";
        if (value instanceof Boolean) return value.toString();
        if (value instanceof Collection<?> items) {
            StringJoiner joined = new StringJoiner(", ", "[", "]");
            for (Object item : items) joined.add(json(item));
            return joined.toString();
        }
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }

    static void print(String heading, List<String> rows, boolean last) {
        System.out.println(json(heading) + ": [\n" + String.join(",\n", rows) + "\n]" + (last ? "" : ","));
    }

    // Facts: name, type, default, importance, internal, dynamic mode; for topics the broker's synonyms instead of the mode.

    static List<Object> row(ConfigDef.ConfigKey key) {
        Object value = key.defaultValue;
        Object text = value == ConfigDef.NO_DEFAULT_VALUE ? "<required>"
            : value == null ? null : ConfigDef.convertToString(value, key.type);
        return new ArrayList<>(Arrays.asList(key.name, key.type, text, key.importance, key.internalConfig));
    }

    static void facts() {
        Map<String, String> modes = kafka.server.DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes();
        List<String> broker = new ArrayList<>();
        for (var key : new TreeMap<>(kafka.server.KafkaConfig.configDef().configKeys()).values()) {
            List<Object> row = row(key);
            row.add(modes.getOrDefault(key.name, "read-only"));
            broker.add(json(row));
        }
        List<String> topic = new ArrayList<>();
        for (var key : new TreeMap<>(LogConfig.configKeys()).values()) {
            List<Object> row = row(key);
            List<String> synonyms = new ArrayList<>();
            for (var synonym : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of()))
                synonyms.add(synonym.name());
            row.add(synonyms);
            topic.add(json(row));
        }
        System.out.println("{");
        print("broker", broker, false);
        print("topic", topic, true);
        System.out.println("}");
    }

    // Answers: what DescribeConfigs says, and which changes are refused with which words.

    static Admin admin;

    static ConfigResource topic(String name) { return new ConfigResource(ConfigResource.Type.TOPIC, name); }

    static ConfigResource broker(String name) { return new ConfigResource(ConfigResource.Type.BROKER, name); }

    static List<String> describe(ConfigResource resource) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true);
        Map<String, String> rows = new TreeMap<>();
        for (var entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            List<Object> synonyms = new ArrayList<>();
            for (var each : entry.synonyms()) synonyms.add(Arrays.asList(each.name(), each.value(), each.source()));
            rows.put(entry.name(), json(Arrays.asList(entry.name(), entry.value(), entry.source(), entry.isReadOnly(),
                entry.isSensitive(), entry.type(), synonyms)));
        }
        return new ArrayList<>(rows.values());
    }

    static String change(ConfigResource resource, String name, String value) {
        var op = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        String refusal = null;
        try {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(op))).all().get();
        } catch (Exception e) {
            refusal = e.getCause().getMessage();
        }
        return json(Arrays.asList(resource.type(), resource.name(), name, value, refusal));
    }

    static final String[][] TOPIC_CHANGES = {
        {"retention.ms", "abc"}, {"retention.ms", "-2"}, {"retention.ms", ""}, {"retention.ms", " 12 "}, {"x.y", "1"},
        {"retention.ms", "0x10"}, {"retention.ms", "+5"}, {"retention.ms", "5L"}, {"retention.ms", "1_000"},
        {"retention.ms", "9223372036854775808"}, {"retention.bytes", "-5"}, {"segment.bytes", "10"},
        {"segment.bytes", "99999999999"}, {"segment.index.bytes", "2"}, {"cleanup.policy", "foo"},
        {"cleanup.policy", ""}, {"cleanup.policy", "delete,delete"}, {"cleanup.policy", " delete , compact "},
        {"compression.type", "foo"}, {"compression.type", "GZIP"}, {"compression.gzip.level", "0"},
        {"compression.zstd.level", "23"}, {"min.cleanable.dirty.ratio", "1.5"}, {"min.cleanable.dirty.ratio", "x"},
        {"preallocate", "yes"}, {"preallocate", "TRUE"}, {"message.timestamp.type", "foo"},
        {"message.timestamp.after.max.ms", "-1"}, {"max.message.bytes", "-1"}, {"max.message.bytes", "1.5"},
        {"flush.messages", "0"}, {"min.insync.replicas", "0"}, {"leader.replication.throttled.replicas", "1:2,3:4"},
        {"leader.replication.throttled.replicas", "*"}, {"leader.replication.throttled.replicas", ""},
        {"leader.replication.throttled.replicas", "foo"}, {"message.format.version", "3.0"},
        {"log.retention.ms", "1"}, {"unclean.leader.election.enable", ""}, {"internal.segment.bytes", "1000"},
    };

    static final String[][] BROKER_CHANGES = {
        {"num.partitions", "5"}, {"node.id", "2"}, {"log.retention.hours", "5"}, {"log.retention.minutes", "5"},
        {"advertised.listeners", "PLAINTEXT://127.0.0.1:1"}, {"log.retention.ms", "abc"}, {"log.retention.ms", "-5"},
        {"log.cleaner.threads", "x"}, {"log.cleaner.backoff.ms", ""}, {"message.max.bytes", "-1"},
        {"compression.type", "foo"}, {"unknown.thing", "x"}, {"max.connections.per.ip", "5"},
        {"max.connections.per.ip.overrides", "127.0.0.1:5,localhost:10"}, {"ssl.keystore.location", "/x"},
        {"listener.name.plaintext.ssl.keystore.location", "/x"}, {"min.insync.replicas", "0"}, {"num.io.threads", "5"},
        {"log.cleaner.io.max.bytes.per.second", "1e7"}, {"leader.replication.throttled.rate", "1000"},
        {"follower.replication.throttled.rate", "x"}, {"log.flush.interval.ms", "1000"}, {"log.preallocate", "maybe"},
        {"sasl.jaas.config", "xx"}, {"sasl.enabled.mechanisms", "PLAIN"},
        {"transaction.partition.verification.enable", "false"}, {"producer.id.expiration.ms", "0"},
        {"producer.id.expiration.ms", "100000"},
    };

    static void answers(String bootstrap) throws Exception {
        admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap));
        var overrides = Map.of("retention.ms", "1000", "cleanup.policy", "compact");
        admin.createTopics(List.of(new NewTopic("plain", 1, (short) 1),
            new NewTopic("overridden", 1, (short) 1).configs(overrides))).all().get();
        System.out.println("{");
        print("static broker", describe(broker("1")), false);
        print("static plain", describe(topic("plain")), false);
        change(broker(""), "log.retention.ms", "2000000");
        change(broker(""), "log.cleaner.threads", "2");
        change(broker("1"), "log.cleaner.threads", "2");
        change(broker("1"), "log.segment.bytes", "3145728");
        change(broker("1"), "log.cleaner.io.max.bytes.per.second", "1e7");
        change(broker("1"), "my.dynamic.unknown", "5");
        change(broker(""), "max.connections", "999");
        change(broker("1"), "listener.name.plaintext.max.connections", "55");
        change(broker("1"), "listener.name.plaintext.ssl.truststore.password", "secret");
        Thread.sleep(2000);
        print("dynamic broker", describe(broker("1")), false);
        print("dynamic default", describe(broker("")), false);
        print("dynamic plain", describe(topic("plain")), false);
        print("dynamic overridden", describe(topic("overridden")), false);
        List<String> changes = new ArrayList<>();
        for (String[] each : TOPIC_CHANGES) changes.add(change(topic("plain"), each[0], each[1]));
        for (String[] each : BROKER_CHANGES) {
            changes.add(change(broker("1"), each[0], each[1]));
            changes.add(change(broker(""), each[0], each[1]));
        }
        print("changes", changes, true);
        System.out.println("}");
        admin.close();
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("facts")) facts();
        else answers(args[1]);
    }
}
