"""The e-bike plant: events of its stages, with a table of stages, into alerts and trends.

    events   key: stage, value: {"level": "info" | "warning" | "error", "text": ...}
    stages   key: stage, value: {"name": ..., "limit": how many warnings in a minute are too many}

Errors go to `alerts-error` and warnings to `alerts-warning`, with the stage's name. `trends` has, for every
stage and minute, whether it had more warnings than its limit, once the minute is over.

python examples/streams/plant.py     feeds a minute of the plant through the test driver and prints what comes
                                     out
"""

from typing import Any

from millstream.streams import StreamsBuilder, Suppressed, TimeWindows, Topology, minutes, seconds, serdes
from millstream.testing.topology import TopologyTestDriver

RECORDS = [
    ("stages", "frame", {"name": "Frame welding", "limit": 2}, 0),
    ("stages", "battery", {"name": "Battery assembly", "limit": 2}, 0),
    *(
        ("events", "frame", {"level": "warning", "text": f"{80 + second} degrees"}, second * 1000)
        for second in (1, 10, 20)
    ),
    ("events", "battery", {"level": "warning", "text": "slow"}, 30_000),
    ("events", "battery", {"level": "error", "text": "no cells left"}, 40_000),
    ("events", "frame", {"level": "warning", "text": "next shift"}, 120_000),
]


def build() -> Topology:
    builder = StreamsBuilder(value=serdes.JSON)
    stages = builder.table("stages")
    events = builder.stream("events").join(stages, lambda event, stage: {**event, **stage})
    by_level = (
        events.split(name="by-")
        .branch(lambda _, event: event["level"] == "error", name="error")
        .branch(lambda _, event: event["level"] == "warning", name="warning")
        .no_default_branch()
    )
    for level in ("error", "warning"):
        by_level[f"by-{level}"].map_values(_alert).to(f"alerts-{level}", value=serdes.STRING)
    (
        by_level["by-warning"]
        .group_by_key()
        .windowed_by(TimeWindows.of_size(minutes(1)).grace(seconds(10)))
        .aggregate(dict, _count)
        .suppress(Suppressed.until_window_closes())
        .to_stream(lambda windowed, _: windowed.key)
        .map_values(lambda found: "too many warnings" if found["count"] > found["limit"] else "fine")
        .to("trends", key=serdes.STRING, value=serdes.STRING)
    )
    return builder.build()


def _alert(event: dict[str, Any]) -> str:
    return f"{event['name']}: {event['text']}"


def _count(_stage: str, event: dict[str, Any], so_far: dict[str, Any]) -> dict[str, Any]:
    return {"count": so_far.get("count", 0) + 1, "limit": event["limit"]}


def main() -> None:
    driver = TopologyTestDriver(build())
    for topic, key, value, timestamp in RECORDS:
        driver.input_topic(topic).pipe(key, value, timestamp)
    for topic in ("alerts-error", "alerts-warning", "trends"):
        for key, value in driver.output_topic(topic).read_key_values():
            print(f"{topic:15} {key:8} {value}")


if __name__ == "__main__":
    main()
