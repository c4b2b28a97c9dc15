import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;

/** The statements of sql_kafka.py as Kafka Streams topologies. Arguments: KafkaStreamsApp. */
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
        KafkaStreamsApp.run(builder, Serdes.ByteArray(), given);
    }
}
