import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** The topologies of streams_kafka.py in Kafka Streams. Arguments: KafkaStreamsApp. */
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
        KafkaStreamsApp.run(builder, Serdes.String(), given);
    }
}
