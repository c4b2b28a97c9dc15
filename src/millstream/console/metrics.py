"""What `/metrics` of the console shows: its own work, and the cluster as exporters of Kafka's consumer lag show it.

The names of the latter (kafka_brokers, kafka_topic_partition_current_offset, kafka_consumergroup_lag ...) are those that
dashboards know. They come from the sampler's last look, so asking often costs the cluster nothing.
"""

import resource
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.console.context import Console

MOST_GROUPS = 2000  # with their partitions; a page of metrics has to end somewhere
Sample = tuple[dict[str, str | int], float | int]


class HttpCounts:
    """Requests by route and status, and the time they took."""

    def __init__(self) -> None:
        self.count: dict[tuple[str, int], int] = {}
        self.seconds: dict[str, float] = {}

    def add(self, route: str, status: int, seconds: float) -> None:
        self.count[route, status] = self.count.get((route, status), 0) + 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, name: str, kind: str, help: str, samples: Iterable[Sample]) -> None:
        self.lines.append(f"# HELP {name} {help}")
        self.lines.append(f"# TYPE {name} {kind}")
        for labels, value in samples:
            inner = ",".join(f'{key}="{_escaped(str(text))}"' for key, text in labels.items())
            self.lines.append(f"{name}{{{inner}}} {value}" if inner else f"{name} {value}")

    def one(self, name: str, kind: str, help: str, value: float | int) -> None:
        self.add(name, kind, help, [({}, value)])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(console: "Console") -> str:
    text = _Text()
    _own(text, console)
    _topics(text, console)
    _groups(text, console)
    return "\n".join(text.lines) + "\n"


def _own(text: _Text, console: "Console") -> None:
    sampler, counts = console.sampler, console.counts
    text.one(
        "millstream_console_up_to_date",
        "gauge",
        "1 if the last look at the cluster succeeded.",
        int(not sampler.error),
    )
    text.one(
        "millstream_console_snapshot_age_seconds",
        "gauge",
        "How old the last successful look at the cluster is.",
        round(time.time() - sampler.snapshot.taken, 3) if sampler.snapshot.taken else -1,
    )
    text.one(
        "millstream_console_sample_seconds", "gauge", "How long the last look took.", round(sampler.took, 6)
    )
    text.one("millstream_console_samples_total", "counter", "Looks at the cluster.", sampler.rounds)
    text.one("millstream_console_tails", "gauge", "Live tails that are open.", console.tails)
    running = sum(not search.ended for search in console.searches.values())
    text.one("millstream_console_searches", "gauge", "Searches that run.", running)
    requests = list(counts.count.items())
    text.add(
        "millstream_console_http_requests_total",
        "counter",
        "Requests by route and status.",
        [({"route": route, "status": status}, count) for (route, status), count in requests],
    )
    text.add(
        "millstream_console_http_request_seconds_total",
        "counter",
        "Time spent on requests, by route.",
        [({"route": route}, round(seconds, 6)) for route, seconds in list(counts.seconds.items())],
    )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    text.one(
        "process_cpu_seconds_total", "counter", "CPU time used.", round(usage.ru_utime + usage.ru_stime, 3)
    )
    text.one("process_max_resident_memory_bytes", "gauge", "Most memory ever used.", usage.ru_maxrss * 1024)
    text.one("process_start_time_seconds", "gauge", "When the console started.", round(console.started, 3))


def _topics(text: _Text, console: "Console") -> None:
    snapshot = console.sampler.snapshot
    text.one("kafka_brokers", "gauge", "Brokers in the cluster.", len(snapshot.nodes))
    text.add(
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
        text.add(metric, "gauge", help, [({"topic": t, "partition": p}, v) for (t, p), v in found.items()])
    everything = [(name, p) for name, topic in snapshot.topics.items() for p in topic.partitions.values()]
    text.add(
        "kafka_topic_partition_replicas",
        "gauge",
        "Replicas of a partition.",
        [({"topic": name, "partition": p.index}, len(p.replicas)) for name, p in everything],
    )
    text.add(
        "kafka_topic_partition_in_sync_replica",
        "gauge",
        "Replicas of a partition that are in sync.",
        [({"topic": name, "partition": p.index}, len(p.isr)) for name, p in everything],
    )
    text.add(
        "kafka_topic_partition_under_replicated_partition",
        "gauge",
        "1 if replicas of the partition are not in sync.",
        [
            ({"topic": name, "partition": p.index}, int(len(p.isr) < len(p.replicas)))
            for name, p in everything
        ],
    )


def _groups(text: _Text, console: "Console") -> None:
    positions = list(console.sampler.positions.items())[:MOST_GROUPS]
    offsets: list[Sample] = []
    lags: list[Sample] = []
    sums: list[Sample] = []
    for group, found in positions:
        for (topic, partition), offset in found.committed.items():
            labels: dict[str, str | int] = {"consumergroup": group, "topic": topic, "partition": partition}
            offsets.append((labels, offset))
            if (topic, partition) in found.lags:
                lags.append((labels, found.lags[topic, partition]))
        sums.append(({"consumergroup": group}, found.lag))
    text.add("kafka_consumergroup_current_offset", "gauge", "What a group has committed.", offsets)
    text.add("kafka_consumergroup_lag", "gauge", "How far behind the end a group is.", lags)
    text.add("millstream_console_consumergroup_lag_sum", "gauge", "The same, over all partitions.", sums)
