"""Word count: lines in, the newest count of every word out.

python examples/streams/word_count.py     feeds a few lines through the test driver and prints what comes out
"""

from millstream.streams import StreamsBuilder, Topology
from millstream.testing.topology import TopologyTestDriver

RECORDS = [("lines", None, "all streams lead to Kafka", 0), ("lines", None, "join all streams", 1)]


def build() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("lines")
        .flat_map_values(lambda line: line.lower().split())
        .group_by(lambda _, word: word)
        .count(materialized="counts")
        .to_stream()
        .to("word-counts")
    )
    return builder.build()


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    for word, count in driver.output_topic("word-counts").read_table().items():
        print(f"{word:10} {count}")


if __name__ == "__main__":
    main()
