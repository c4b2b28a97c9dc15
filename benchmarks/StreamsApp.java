import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** The topologies of streams_kafka.py in Kafka Streams: bootstrap, application, topology, input, output, state folder, name=value... */
public final class StreamsApp {
    public static void main(String[] given) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> stream = builder.stream(given[3]);
        String out = given[4];
        switch (given[2]) {
            case "map":
                stream.mapValues(value -> value.substring(0, 100))
                    .filter((key, value) -> value.charAt(0) != 'x')
                    .to(out);
                break;
            case "count":
                stream.groupByKey().count().toStream().to(out, Produced.with(Serdes.String(), Serdes.Long()));
                break;
            case "windows":
                TimeWindows windows = TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(1));
                stream.groupByKey().windowedBy(windows).count().toStream().to(
                    out, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000L), Serdes.Long()));
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
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
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
