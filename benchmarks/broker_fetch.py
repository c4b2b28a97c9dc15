"""Fetch: 1 MB at a time from a log of 1 GB, against Kafka; and ours from a log of 10 GB against one of 100 MB.

The logs hold batches of 64 KB and lie in the page cache, as the tail of a log does that consumers keep up with. Four
connections read four partitions: on one partition they would march in step and measure the CPU's cache. For the
second question both logs are ours: whatever grows with the log (index search, segments, open files) shows as a ratio
below 1. Once in order, once at random offsets, where every fetch searches the index anew.
"""

import sys
from statistics import median

import brokers
import common
import load
from common import OURS, Measure, Report, Workload

LOG_BYTES = 1_000_000_000
SMALL_BYTES = 100_000_000
LARGE_BYTES = 10_000_000_000


def fill(broker: brokers.Broker, topic: str, size: int, partitions: int = 1) -> None:
    """Write a log and give the disk time to take it, so that write-back does not disturb the reader."""
    brokers.require_room(broker.log_dir, size / 1e9)
    brokers.create_topic(broker, topic, partitions)
    spread = {"connections": partitions, "partitions": partitions}
    load.produce(broker, topic, batch_bytes=65536, max_bytes=size, seconds=600, **spread)
    brokers.write_back(broker.log_dir)


def against_kafka(report: Report, used: list[brokers.Broker]) -> None:
    """The same fetch on both."""
    seconds = report.options.seconds
    topics = {"fetch": 1, "wide": 4}

    def reading(name: str, topic: str, **options: float | bool) -> Workload:
        def run(broker: brokers.Broker, _prepared: str) -> common.Result:
            return load.fetch(broker, topic, seconds=seconds, **options)

        measures = (
            Measure("mb_per_s", "MB/s", aim=1.2),
            Measure("p99_us", "us", "p99", more_is_better=False),
        )
        return Workload(name, run, measures, cpu_aim=0.7)

    workloads = [
        reading("fetch 1 MB, 1 connection", "fetch", fetch_bytes=1 << 20),
        reading("fetch 1 MB, 4 connections", "wide", fetch_bytes=1 << 20, connections=4, partitions=4),
        reading("fetch 1 MB at random offsets", "fetch", fetch_bytes=1 << 20, random=True),
    ]
    workloads = [workload for workload in workloads if report.options.wants(workload)]
    if not workloads:
        return
    for broker in used:
        for topic, partitions in topics.items():
            fill(broker, topic, LOG_BYTES, partitions)
    common.compare(report, workloads, used)
    for broker in used:
        for topic in topics:
            brokers.delete_topic(broker, topic)


def large_against_small(report: Report, ours: brokers.Broker) -> None:
    """Pairs of (10 GB, 100 MB) on our broker; the columns ours and kafka hold large and small."""
    large = LARGE_BYTES // 5 if report.options.quick else LARGE_BYTES
    names = {
        random: f"fetch 1 MB {'at random offsets' if random else 'in order'}" for random in (False, True)
    }
    label = f"{large / 1e9:g} GB log against 100 MB"
    if not any(report.options.only in f"{name}, {label}" for name in names.values()):
        return
    sizes = {"large": large, "small": SMALL_BYTES}
    for topic, size in sizes.items():
        fill(ours, topic, size)
    for random, name in names.items():
        samples: dict[str, list[common.Result]] = {topic: [] for topic in sizes}
        for pair in range(report.options.pairs):
            for topic in list(sizes)[:: 1 if pair % 2 == 0 else -1]:
                result = load.fetch(
                    ours, topic, fetch_bytes=1 << 20, random=random, seconds=report.options.seconds
                )
                samples[topic].append(result)
        rates = {topic: [result["mb_per_s"] for result in results] for topic, results in samples.items()}
        ratios = [a / b for a, b in zip(rates["large"], rates["small"], strict=True)]
        middle = {topic: median(values) for topic, values in rates.items()}
        report.samples[f"{name}, {label}"] = samples
        report.rows.append(
            common.Row(
                workload=f"{name}, {label} (both ours)",
                unit="MB/s",
                ours=middle["large"],
                kafka=middle["small"],
                ratios=ratios,
                cpu_ratio=None,
                aim=">= 0.95",
                met=median(ratios) >= 0.95,
            )
        )
    for topic in sizes:
        brokers.delete_topic(ours, topic)


def measure(report: Report) -> None:
    with common.both(report.options, report) as used:
        against_kafka(report, used)
        for broker in used:
            if broker.name == OURS:
                large_against_small(report, broker)


if __name__ == "__main__":
    sys.exit(common.main("broker_fetch", __doc__ or "", measure))
