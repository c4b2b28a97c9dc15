"""The smallest application: every value in upper case.

python examples/streams/upper_case.py     feeds two records through the test driver and prints what comes out
"""

from millstream.streams import StreamsBuilder, Topology
from millstream.testing.topology import TopologyTestDriver

RECORDS = [("text", "1", "hello", 0), ("text", "2", "mill", 1)]


def build() -> Topology:
    builder = StreamsBuilder()
    builder.stream("text").map_values(str.upper).to("upper-case")
    return builder.build()


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    for key, value in driver.output_topic("upper-case").read_key_values():
        print(key, value)


if __name__ == "__main__":
    main()
