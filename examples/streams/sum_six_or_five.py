"""The same records as a stream and as a table: their sum is 6 or 5.

The records are a=1, b=2, a=3. A stream's records are facts: 1, 2 and 3 count. A table's are states: a new
record of a key takes the place of the old one, so only 2 and 3 count.

python examples/streams/sum_six_or_five.py     feeds the records through the test driver and prints both sums
"""

from millstream.streams import Materialized, StreamsBuilder, Topology, serdes
from millstream.testing.topology import TopologyTestDriver

RECORDS = [("numbers", "a", 1, 0), ("numbers", "b", 2, 1), ("numbers", "a", 3, 2)]


def build() -> Topology:
    builder = StreamsBuilder(value=serdes.LONG)
    stream = builder.stream("numbers")
    (
        stream.group_by(lambda key, value: "sum")
        .aggregate(int, lambda key, value, total: total + value, materialized=Materialized(value=serdes.LONG))
        .to_stream()
        .to("stream-sum")
    )
    (
        stream.to_table()
        .group_by(lambda key, value: ("sum", value))
        .reduce(lambda total, value: total + value, lambda total, value: total - value)
        .to_stream()
        .to("table-sum")
    )
    return builder.build()


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    print("as a stream:", driver.output_topic("stream-sum").read_values()[-1])
    print("as a table: ", driver.output_topic("table-sum").read_values()[-1])


if __name__ == "__main__":
    main()
