"""What `/metrics` of the console shows: its own work, and the cluster as exporters of Kafka's consumer lag
show it.

The names of the latter (kafka_brokers, kafka_topic_partition_current_offset, kafka_consumergroup_lag ...) are
those that dashboards know. They come from the sampler's last look, so scraping often costs the cluster
nothing.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from millstream.http.metrics import counter, gauge, gauges
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.console.context import Console

# Each comes with its partitions, and a page of metrics has to end somewhere.
MAX_GROUPS = 2000
PARTITION = ("topic", "partition")
GROUP_PARTITION = ("consumergroup", "topic", "partition")


def collect(console: "Console") -> Iterator[Metric]:
    yield from _own(console)
    yield from _topics(console)
    yield from _groups(console)


def _own(console: "Console") -> Iterator[Metric]:
    sampler = console.sampler
    age = round(time.time() - sampler.snapshot.taken, 3) if sampler.snapshot.taken else -1
    running = sum(not search.ended for search in console.searches.values())
    yield gauge(
        "millstream_console_up_to_date",
        "1 if the last look at the cluster succeeded.",
        int(not sampler.error),
    )
    yield gauge(
        "millstream_console_snapshot_age_seconds", "How old the last successful look at the cluster is.", age
    )
    yield gauge(
        "millstream_console_sample_seconds", "How long the last look took.", round(sampler.duration, 6)
    )
    yield counter("millstream_console_samples_total", "Looks at the cluster.", sampler.rounds)
    yield gauge("millstream_console_tails", "Live tails that are open.", console.tails)
    yield gauge("millstream_console_searches", "Searches that run.", running)


def _topics(console: "Console") -> Iterator[Metric]:
    snapshot = console.sampler.snapshot
    topics = snapshot.topics.items()
    yield gauge("kafka_brokers", "Brokers in the cluster.", len(snapshot.nodes))
    yield gauges(
        "kafka_topic_partitions",
        "Partitions of a topic.",
        ("topic",),
        [((name,), len(topic.partitions)) for name, topic in topics],
    )
    for metric, documentation, found in (
        ("kafka_topic_partition_current_offset", "The next offset of a partition.", snapshot.ends),
        ("kafka_topic_partition_oldest_offset", "The first offset of a partition.", snapshot.starts),
        (
            "millstream_console_partition_bytes",
            "The size of a partition on its largest replica.",
            snapshot.sizes,
        ),
    ):
        yield gauges(metric, documentation, PARTITION, found.items())
    partitions = {
        TopicPartition(name, partition.index): (len(partition.replicas), len(partition.isr))
        for name, topic in topics
        for partition in topic.partitions.values()
    }
    yield gauges(
        "kafka_topic_partition_replicas",
        "Replicas of a partition.",
        PARTITION,
        [(key, replicas) for key, (replicas, _) in partitions.items()],
    )
    yield gauges(
        "kafka_topic_partition_in_sync_replica",
        "Replicas of a partition that are in sync.",
        PARTITION,
        [(key, in_sync) for key, (_, in_sync) in partitions.items()],
    )
    yield gauges(
        "kafka_topic_partition_under_replicated_partition",
        "1 if replicas of the partition are not in sync.",
        PARTITION,
        [(key, int(in_sync < replicas)) for key, (replicas, in_sync) in partitions.items()],
    )


def _groups(console: "Console") -> Iterator[Metric]:
    positions = list(console.sampler.positions.items())[:MAX_GROUPS]
    yield gauges(
        "kafka_consumergroup_current_offset",
        "What a group has committed.",
        GROUP_PARTITION,
        [((group, *key), offset) for group, found in positions for key, offset in found.committed.items()],
    )
    yield gauges(
        "kafka_consumergroup_lag",
        "How far behind the end a group is.",
        GROUP_PARTITION,
        [
            ((group, *key), found.lags[key])
            for group, found in positions
            for key in found.committed
            if key in found.lags
        ],
    )
    yield gauges(
        "millstream_console_consumergroup_lag_sum",
        "The same, over all partitions.",
        ("consumergroup",),
        [((group,), found.lag) for group, found in positions],
    )
