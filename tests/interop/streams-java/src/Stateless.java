import static org.apache.kafka.streams.KeyValue.pair;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;

/** Operators that remember nothing, and topics. */
final class Stateless {
    private Stateless() { }

    static String first(final String value) {
        return value == null || value.isEmpty() ? null : value.substring(0, 1);
    }

    static List<String> letters(final String value) {
        final List<String> found = new ArrayList<>();
        if (value != null) {
            for (final String letter : value.split("")) {
                if (!letter.isEmpty()) {
                    found.add(letter);
                }
            }
        }
        return found;
    }

    static boolean even(final String value) {
        return value != null && value.length() % 2 == 0;
    }

    static Vectors.Input in(final String... topics) {
        return new Vectors.Input(topics).records(60);
    }

    static void add() {
        final String f = "stateless";
        Vectors.add(f, "filter", in("in"), b -> b.<String, String>stream("in").filter((k, v) -> even(v)).to("out"));
        Vectors.add(f, "filter_not", in("in"), b -> b.<String, String>stream("in").filterNot((k, v) -> even(v)).to("out"));
        Vectors.add(f, "filter_named", in("in"), b -> b.<String, String>stream("in", Consumed.as("source"))
            .filter((k, v) -> even(v), Named.as("only-even")).to("out", Produced.as("sink")));
        Vectors.add(f, "map", in("in"), b -> b.<String, String>stream("in").map((k, v) -> pair(v, k)).to("out"));
        Vectors.add(f, "map_values", in("in"), b -> b.<String, String>stream("in").mapValues(v -> v + "!").to("out"));
        Vectors.add(f, "map_values_with_key", in("in"), b -> b.<String, String>stream("in").mapValues((k, v) -> k + "=" + v).to("out"));
        Vectors.add(f, "map_values_to_null", in("in"), b -> b.<String, String>stream("in").mapValues(v -> even(v) ? null : v).to("out"));
        Vectors.add(f, "flat_map", in("in"), b -> b.<String, String>stream("in").flatMap((k, v) -> {
            final List<KeyValue<String, String>> found = new ArrayList<>();
            for (final String letter : letters(v)) {
                found.add(pair(k + letter, letter));
            }
            return found;
        }).to("out"));
        Vectors.add(f, "flat_map_values", in("in"), b -> b.<String, String>stream("in").flatMapValues(v -> letters(v)).to("out"));
        Vectors.add(f, "flat_map_values_with_key", in("in"), b -> b.<String, String>stream("in")
            .flatMapValues((k, v) -> Arrays.asList(k, v)).to("out"));
        Vectors.add(f, "select_key", in("in"), b -> b.<String, String>stream("in").selectKey((k, v) -> first(v)).to("out"));
        Vectors.add(f, "peek", in("in"), b -> b.<String, String>stream("in").peek((k, v) -> { }).to("out"));
        Vectors.add(f, "for_each", in("in"), b -> b.<String, String>stream("in").foreach((k, v) -> { }));
        Vectors.add(f, "print", in("in"), b -> b.<String, String>stream("in").print(Printed.toFile("/dev/null")));
        Vectors.add(f, "split", in("in"), b -> {
            final var branches = b.<String, String>stream("in").split()
                .branch((k, v) -> even(v))
                .branch((k, v) -> v != null && v.startsWith("r"))
                .defaultBranch();
            branches.values().stream().toList();
            branches.get("KSTREAM-BRANCH-00000000011").to("even");
            branches.get("KSTREAM-BRANCH-00000000012").to("red");
            branches.get("KSTREAM-BRANCH-00000000010").to("other");
        });
        Vectors.add(f, "split_named", in("in"), b -> {
            final var branches = b.<String, String>stream("in").split(Named.as("by-"))
                .branch((k, v) -> even(v), Branched.as("even"))
                .branch((k, v) -> v != null, Branched.withConsumer(s -> s.to("odd"), "odd"))
                .noDefaultBranch();
            branches.get("by-even").mapValues(v -> v + "?").to("even");
        });
        Vectors.add(f, "split_chain", in("in"), b -> {
            final var branches = b.<String, String>stream("in").split()
                .branch((k, v) -> even(v), Branched.withFunction(s -> s.mapValues(v -> v + v)))
                .defaultBranch(Branched.withFunction(s -> s.filter((k, v) -> v != null)));
            branches.get("KSTREAM-BRANCH-00000000011").merge(branches.get("KSTREAM-BRANCH-00000000010")).to("out");
        });
        Vectors.add(f, "merge", in("in", "in2"), b -> b.<String, String>stream("in").merge(b.stream("in2")).to("out"));
        Vectors.add(f, "merge_with_itself", in("in"), b -> {
            final KStream<String, String> stream = b.stream("in");
            stream.flatMapValues(v -> letters(v)).merge(stream.mapValues(v -> "m" + v)).merge(stream).to("out");
        });
        Vectors.add(f, "two_children", in("in"), b -> {
            final KStream<String, String> letters = b.<String, String>stream("in").flatMapValues(v -> letters(v));
            letters.mapValues(v -> v + "1").to("out");
            letters.mapValues(v -> v + "2").to("out");
            letters.filter((k, v) -> k != null).to("out2");
        });
        Vectors.add(f, "several_topics", in("in", "in2", "in3"), b -> b.<String, String>stream(Arrays.asList("in", "in2", "in3")).mapValues(v -> v + "!").to("out"));
        Vectors.add(f, "same_topic_twice", in("in"), b -> {
            b.<String, String>stream("in").filter((k, v) -> even(v)).to("out");
            b.<String, String>stream("in").mapValues(v -> v + "!").to("out");
        });
        Vectors.add(f, "repartition", in("in"), b -> b.<String, String>stream("in").repartition().to("out"));
        Vectors.add(f, "repartition_named", in("in"), b -> b.<String, String>stream("in").selectKey((k, v) -> first(v))
            .repartition(Repartitioned.<String, String>as("by-letter").withNumberOfPartitions(1)).mapValues(v -> v + "!").to("out"));
        Vectors.add(f, "through", in("in"), b -> {
            b.<String, String>stream("in").mapValues(v -> v + "!").to("middle");
            b.<String, String>stream("middle").mapValues(v -> v + "?").to("out");
        });
        Vectors.add(f, "to_chosen_topic", in("in"), b -> b.<String, String>stream("in").filter((k, v) -> k != null)
            .to((k, v, context) -> "out-" + k));
        Vectors.add(f, "to_table", in("in"), b -> b.<String, String>stream("in").toTable().toStream().to("out"));
        Vectors.add(f, "to_table_rekeyed", in("in"), b -> b.<String, String>stream("in").selectKey((k, v) -> first(v)).toTable().toStream().to("out"));
        Vectors.add(f, "to_table_kept", in("in"), b -> b.<String, String>stream("in").toTable(Named.as("newest"), Materialized.as("rows"))
            .filter((k, v) -> even(v)).toStream().to("out"));
        Vectors.add(f, "map_to_long", in("in"), b -> b.<String, String>stream("in").filter((k, v) -> v != null).mapValues(v -> (long) v.length())
            .to("out", Produced.with(Serdes.String(), Serdes.Long())));
        Vectors.add(f, "chain", in("in"), b -> b.<String, String>stream("in").filter((k, v) -> v != null).map((k, v) -> pair(v, k + v))
            .mapValues(v -> v.toUpperCase()).flatMapValues(v -> letters(v)).filterNot((k, v) -> v.equals("A")).to("out"));
    }
}
