"""Two streams joined in a window (a click and what was shown before it), then with a table of users.

python examples/streams/clicks_and_users.py     feeds some records through the test driver and prints what
                                                comes out
"""

from millstream.streams import JoinWindows, StreamsBuilder, Topology, seconds
from millstream.testing.topology import TopologyTestDriver

RECORDS = [
    ("users", "a", "Alice", 0),
    ("shown", "a", "shoes", 1_000),
    ("clicks", "a", "x", 4_000),
    ("shown", "b", "hats", 5_000),
    ("shown", "a", "books", 60_000),
]


def build() -> Topology:
    builder = StreamsBuilder()
    shown = builder.stream("shown")
    clicks = builder.stream("clicks")
    users = builder.table("users")
    within = JoinWindows.of(0).after(seconds(10))  # the click at most ten seconds after the advertisement
    (
        shown.left_join(clicks, lambda page, click: f"{page}: {'clicked' if click else 'ignored'}", within)
        .left_join(users, lambda key, outcome, name: f"{name or key}, {outcome}")
        .to("outcomes")
    )
    return builder.build()


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    for outcome in driver.output_topic("outcomes").read_values():
        print(outcome)


if __name__ == "__main__":
    main()
