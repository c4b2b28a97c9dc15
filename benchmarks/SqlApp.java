import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;

/** The statements of sql_kafka.py as Kafka Streams topologies: bootstrap, application, topology, input, output, state folder, name=value... */
public final class SqlApp {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static JsonNode read(byte[] value) {
        try {
            return JSON.readTree(value);
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static byte[] write(ObjectNode row) {
        try {
            return JSON.writeValueAsBytes(row);
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] given) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, byte[]> stream = builder.stream(given[3]);
        String out = given[4];
        switch (given[2]) {
            case "project":
                stream.mapValues(SqlApp::read).filter((key, row) -> row.get("QUANTITY").intValue() > 70).mapValues(row -> {
                    ObjectNode made = JSON.createObjectNode();
                    made.put("ID", row.get("ID").longValue());
                    made.put("REGION", row.get("REGION").textValue().toUpperCase(Locale.ROOT));
                    made.put("TOTAL", row.get("AMOUNT").doubleValue() * row.get("QUANTITY").intValue());
                    made.put("NAME", row.get("NAME").textValue());
                    return write(made);
                }).to(out);
                break;
            case "count":
                stream.groupByKey().count().toStream().mapValues(count -> {
                    ObjectNode made = JSON.createObjectNode();
                    made.put("N", count);
                    return write(made);
                }).to(out);
                break;
            case "join":
                KTable<String, byte[]> table = builder.table("customers");
                stream.join(table, (left, right) -> {
                    JsonNode order = read(left), customer = read(right);
                    ObjectNode made = JSON.createObjectNode();
                    made.put("ID", order.get("ID").longValue());
                    made.put("AMOUNT", order.get("AMOUNT").doubleValue());
                    made.put("CITY", customer.get("CITY").textValue());
                    return write(made);
                }).to(out);
                break;
            default:
                throw new IllegalArgumentException("there is no topology " + given[2]);
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, given[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, given[5]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArray().getClass());
        settings.put("auto.offset.reset", "earliest");
        for (int index = 6; index < given.length; index++) {
            String[] parts = given[index].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        Thread.currentThread().join();
    }
}
