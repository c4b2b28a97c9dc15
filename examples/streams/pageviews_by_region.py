"""Page views counted per region of the user, in windows of a minute; each window is sent once, when it has
closed.

python examples/streams/pageviews_by_region.py     feeds some views through the test driver and prints what
                                                   comes out
"""

from millstream.streams import StreamsBuilder, Suppressed, TimeWindows, Topology, minutes, seconds, serdes
from millstream.testing.topology import TopologyTestDriver

VIEWS = [(1, "alice"), (20, "bob"), (59, "alice"), (70, "alice"), (140, "carol")]  # second, user
RECORDS = [
    ("users", "alice", {"region": "europe"}, 0),
    ("users", "bob", {"region": "asia"}, 0),
    *(("pageviews", user, {"page": "/"}, second * 1000) for second, user in VIEWS),
]


def build() -> Topology:
    builder = StreamsBuilder()
    views = builder.stream("pageviews", value=serdes.JSON)
    users = builder.table("users", value=serdes.JSON)
    (
        views.left_join(users, lambda view, user: user["region"] if user else "unknown")
        .map(lambda user, region: (region, user))
        .group_by_key()
        .windowed_by(TimeWindows.of_size(minutes(1)).grace(seconds(5)))
        .count()
        .suppress(Suppressed.until_window_closes())
        .to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window.start // 60_000} min")
        .to("views-by-region", key=serdes.STRING)
    )
    return builder.build()


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    for region, count in driver.output_topic("views-by-region").read_key_values():
        print(f"{region:15} {count}")


if __name__ == "__main__":
    main()
