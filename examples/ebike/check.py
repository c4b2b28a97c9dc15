"""The account at the end: every event that was acknowledged, once, where it belongs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from plant import ALERTS, AUDIT, BY_STAGE, CRITICAL_PARTITION, DEAD, PARTITIONS, STAGES, TRENDS, Sensors

from millstream.client import LATEST, ClientConfig, Cluster, Fetcher, list_offsets, visible_batches
from millstream.client.fetch import next_offset
from millstream.serdes import Decoder, SchemaRegistry
from millstream.wire.records import Record, iter_records


def read_topic(cluster: Cluster, topic: str) -> dict[int, list[Record]]:
    """All committed records of a topic, by partition: what a consumer with read_committed sees."""
    cluster.topic(topic)
    topic_partitions = [(topic, partition) for partition in range(PARTITIONS[topic])]
    ends = list_offsets(cluster, dict.fromkeys(topic_partitions, LATEST), read_committed=True)
    positions = dict.fromkeys(topic_partitions, 0)
    found: dict[int, list[Record]] = {partition: [] for _, partition in topic_partitions}
    fetcher = Fetcher(cluster, read_committed=True)
    while left := {
        topic_partition: at for topic_partition, at in positions.items() if at < ends[topic_partition].offset
    }:
        for answer in fetcher.poll(left, 500):
            topic_partition = (answer.topic, answer.partition)
            for _, batch in visible_batches(answer, positions[topic_partition], read_committed=True):
                records = (
                    record for record in iter_records(batch) if record.offset >= positions[topic_partition]
                )
                found[answer.partition] += records
            positions[topic_partition] = next_offset(answer, positions[topic_partition])
    return found


def newest_of(cluster: Cluster, topic: str) -> dict[bytes | None, dict[str, Any]]:
    """The newest value of each key."""
    return {r.key: json.loads(r.value or b"{}") for rows in read_topic(cluster, topic).values() for r in rows}


def compare_windows(
    spark: dict[bytes | None, dict[str, Any]],
    streams: dict[bytes | None, dict[str, Any]],
    right: list[str],
    wrong: list[str],
) -> None:
    """Spark's own windows and those of the Streams application: the same counts, and there with the stages'
    names."""
    differ = [
        key
        for key in spark.keys() | streams.keys()
        if any(
            spark.get(key, {}).get(name) != streams.get(key, {}).get(name) for name in ("alerts", "critical")
        )
    ]
    unnamed = [
        key
        for key, row in streams.items()
        if row["stage"] != STAGES.get((key or b"").split(b"@")[0].decode(), {}).get("name")
    ]
    if differ or unnamed:
        wrong.append(
            f"of {len(spark)} windows of Spark and {len(streams)} of Streams {len(differ)} differ, "
            f"and {len(unnamed)} have the wrong name"
        )
    else:
        right.append(f"{len(streams)} windows of Streams, joined with the table of stages, are the same")


def account(servers: str, registry: str, sensors: Sensors) -> tuple[list[str], list[str]]:
    """(what is right, what is wrong)."""
    decoder = Decoder(SchemaRegistry(registry))
    expected = sensors.levels
    right: list[str] = []
    wrong: list[str] = []

    def compare(what: str, wanted: Counter[str], found: Counter[str]) -> None:
        if wanted == found:
            right.append(f"{sum(found.values()):,} {what}")
            return
        missing, extra = wanted - found, found - wanted
        wrong.append(f"{what}: {sum(missing.values()):,} missing, {sum(extra.values()):,} too many")

    with Cluster(ClientConfig.of(servers)) as cluster:
        audit = [decoder.decode(r.value)["id"] for rows in read_topic(cluster, AUDIT).values() for r in rows]
        compare("events in the audit trail", Counter(list(expected)), Counter(audit))
        alerts = read_topic(cluster, ALERTS)
        ids = {partition: [decoder.decode(r.value)["id"] for r in rows] for partition, rows in alerts.items()}
        critical = Counter(name for name, level in expected.items() if level == "critical")
        warnings = Counter(name for name, level in expected.items() if level == "warning")
        compare("critical alerts, alone in their partition", critical, Counter(ids.pop(CRITICAL_PARTITION)))
        compare(
            "warnings in the other partitions",
            warnings,
            Counter(one for rows in ids.values() for one in rows),
        )
        dead = [r.value or b"" for rows in read_topic(cluster, DEAD).values() for r in rows]
        compare(
            "records that were no events, put aside",
            Counter(map(repr, sensors.rubbish)),
            Counter(map(repr, dead)),
        )
        newest = newest_of(cluster, TRENDS)
        counted = sum(one["alerts"] for one in newest.values())
        if counted == critical.total() + warnings.total():
            right.append(f"{counted:,} alerts counted in {len(newest)} windows of the stages")
        else:
            wrong.append(
                f"the windows count {counted:,} alerts, there were {critical.total() + warnings.total():,}"
            )
        compare_windows(newest, newest_of(cluster, BY_STAGE), right, wrong)
    return right, wrong
