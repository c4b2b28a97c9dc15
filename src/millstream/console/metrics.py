"""What `/metrics` of the console shows: its own work, and the cluster as exporters of Kafka's consumer lag show it.

The names of the latter (kafka_brokers, kafka_topic_partition_current_offset, kafka_consumergroup_lag ...) are those that
dashboards know. They come from the sampler's last look, so asking often costs the cluster nothing.
"""

import time
from typing import TYPE_CHECKING

from millstream.http.metrics import Page, Sample
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.console.context import Console

MOST_GROUPS = 2000  # with their partitions; a page of metrics has to end somewhere


def add_own(console: "Console", page: Page) -> None:
    _own(page, console)
    _topics(page, console)
    _groups(page, console)


def _own(page: Page, console: "Console") -> None:
    sampler = console.sampler
    page.one(
        "millstream_console_up_to_date",
        "gauge",
        "1 if the last look at the cluster succeeded.",
        int(not sampler.error),
    )
    page.one(
        "millstream_console_snapshot_age_seconds",
        "gauge",
        "How old the last successful look at the cluster is.",
        round(time.time() - sampler.snapshot.taken, 3) if sampler.snapshot.taken else -1,
    )
    page.one(
        "millstream_console_sample_seconds", "gauge", "How long the last look took.", round(sampler.took, 6)
    )
    page.one("millstream_console_samples_total", "counter", "Looks at the cluster.", sampler.rounds)
    page.one("millstream_console_tails", "gauge", "Live tails that are open.", console.tails)
    running = sum(not search.ended for search in console.searches.values())
    page.one("millstream_console_searches", "gauge", "Searches that run.", running)


def _topics(page: Page, console: "Console") -> None:
    snapshot = console.sampler.snapshot
    page.one("kafka_brokers", "gauge", "Brokers in the cluster.", len(snapshot.nodes))
    page.add(
        "kafka_topic_partitions",
        "gauge",
        "Partitions of a topic.",
        [({"topic": name}, len(topic.partitions)) for name, topic in snapshot.topics.items()],
    )
    for metric, help, found in (
        ("kafka_topic_partition_current_offset", "The next offset of a partition.", snapshot.ends),
        ("kafka_topic_partition_oldest_offset", "The first offset of a partition.", snapshot.starts),
        (
            "millstream_console_partition_bytes",
            "The size of a partition on its largest replica.",
            snapshot.sizes,
        ),
    ):
        page.add(metric, "gauge", help, [({"topic": t, "partition": p}, v) for (t, p), v in found.items()])
    everything = [(name, p) for name, topic in snapshot.topics.items() for p in topic.partitions.values()]
    page.add(
        "kafka_topic_partition_replicas",
        "gauge",
        "Replicas of a partition.",
        [({"topic": name, "partition": p.index}, len(p.replicas)) for name, p in everything],
    )
    page.add(
        "kafka_topic_partition_in_sync_replica",
        "gauge",
        "Replicas of a partition that are in sync.",
        [({"topic": name, "partition": p.index}, len(p.isr)) for name, p in everything],
    )
    page.add(
        "kafka_topic_partition_under_replicated_partition",
        "gauge",
        "1 if replicas of the partition are not in sync.",
        [
            ({"topic": name, "partition": p.index}, int(len(p.isr) < len(p.replicas)))
            for name, p in everything
        ],
    )


def _groups(page: Page, console: "Console") -> None:
    positions = list(console.sampler.positions.items())[:MOST_GROUPS]
    offsets: list[Sample] = []
    lags: list[Sample] = []
    sums: list[Sample] = []
    for group, found in positions:
        for (topic, partition), offset in found.committed.items():
            labels: dict[str, str | int] = {"consumergroup": group, "topic": topic, "partition": partition}
            offsets.append((labels, offset))
            if (topic, partition) in found.lags:
                lags.append((labels, found.lags[TopicPartition(topic, partition)]))
        sums.append(({"consumergroup": group}, found.lag))
    page.add("kafka_consumergroup_current_offset", "gauge", "What a group has committed.", offsets)
    page.add("kafka_consumergroup_lag", "gauge", "How far behind the end a group is.", lags)
    page.add("millstream_console_consumergroup_lag_sum", "gauge", "The same, over all partitions.", sums)
