"""The plant's alerts once more, as a Streams application: joined with the table of stages and counted in
windows of ten seconds.

    plant.stages     key: stage, value: {"name": ..., "limit": alerts in a window that are fine}; a table
    plant.by-stage   key: stage and window, value: the stage's name, how many alerts, how many critical,
                     whether
                     that is too many

The same windows as `trends` in pipeline.py, which are Spark's own: the two must agree. This one runs in the
same Spark session beside it, follows every event, and knows what the stages are called.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from plant import BY_STAGE, EVENTS, PARTITIONS, STAGE_TABLE

from millstream.serdes import SchemaRegistry
from millstream.streams import (
    Errors,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
    minutes,
    seconds,
    serdes,
)

APPLICATION = "ebike-stages"


def build(events: serdes.Serde) -> Topology:
    """`events` reads the values of plant.events."""
    builder = StreamsBuilder(value=serdes.JSON)
    stages = builder.table(STAGE_TABLE)
    (
        builder.stream(EVENTS, value=events, timestamps=_when)
        .filter(lambda _, event: event["level"] != "info")
        .map(lambda _, event: (event["stage"], event["level"]))
        .repartition(name="alerts", value=serdes.JSON, partitions=PARTITIONS[STAGE_TABLE])
        .join(stages, lambda level, stage: {"level": level, **stage})
        .group_by_key()
        .windowed_by(TimeWindows.of_size(seconds(10)).grace(minutes(10)))
        .aggregate(dict, _count)
        .to_stream(_key)
        .to(BY_STAGE, key=serdes.STRING, value=serdes.JSON)
    )
    return builder.build()


def application(servers: str, registry: str, state: str) -> Streams:
    """Records that are no events are passed over here: the audit trail has put them aside. Small
    fetches keep the four partitions of events close together in time, also when the application has to catch
    up."""
    topology = build(serdes.avro(SchemaRegistry(registry)))
    errors = Errors(reading="continue")
    return Streams(
        topology,
        APPLICATION,
        bootstrap_servers=servers,
        state=state,
        errors=errors,
        max_bytes_per_task=256 << 10,
    )


def _when(_bike: str, event: dict[str, Any], _sent: int) -> int:
    """When it happened, not when it was sent."""
    return round(event["at"].timestamp() * 1000)


def _count(_stage: str, alert: dict[str, Any], so_far: dict[str, Any]) -> dict[str, Any]:
    alerts = so_far.get("alerts", 0) + 1
    critical = so_far.get("critical", 0) + (alert["level"] == "critical")
    return {
        "stage": alert["name"],
        "alerts": alerts,
        "critical": critical,
        "too_many": alerts > alert["limit"],
    }


def _key(windowed: Windowed[str], _counts: dict[str, Any]) -> str:
    """As Spark writes the start of a window."""
    start = datetime.fromtimestamp(windowed.window.start / 1000, UTC)
    return f"{windowed.key}@{start:%Y-%m-%d %H:%M:%S}"
