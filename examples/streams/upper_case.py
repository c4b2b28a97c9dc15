"""The smallest application: every value in upper case.

python examples/streams/upper_case.py     feeds two records through the test driver and prints what comes out
"""

from millstream.pipeline.streams import StreamsBuilder, Topology
from millstream.testing.topology import TopologyTestDriver


def build() -> Topology:
    builder = StreamsBuilder()
    builder.stream("text").map_values(str.upper).to("upper-case")
    return builder.build()


def main() -> None:
    driver = TopologyTestDriver(build())
    driver.input_topic("text").pipe_all([("1", "hello"), ("2", "mill")])
    for key, value in driver.output_topic("upper-case").read_key_values():
        print(key, value)


if __name__ == "__main__":
    main()
