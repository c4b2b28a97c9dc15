"""Fetch: 1 MB at a time from a log of 1 GB, against Kafka; and from a log of 10 GB against one of 100 MB,
ours and Kafka's.

The logs hold batches of 64 KB and lie in the page cache, as the tail of a log does that consumers keep up
with. Four connections read four partitions: on one partition they would march in step and measure the CPU's
cache. For the second question both logs lie on one broker: whatever grows with the log (index search,
segments, open files) shows as a ratio below 1. Once in order, once at random offsets, where every fetch
searches the index anew. The kernel's own tables of 10 GB of pages do not fit into the processor's caches
either, so Kafka's figures tell how much of the loss is the machine's.
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


def large_against_small(report: Report, broker: brokers.Broker) -> None:
    """Pairs of (10 GB, 100 MB) on one broker; the columns ours and kafka hold large and small."""
    large = LARGE_BYTES // 5 if report.options.quick else LARGE_BYTES
    names = {
        random: f"fetch 1 MB {'at random offsets' if random else 'in order'}" for random in (False, True)
    }
    whose = "both ours" if broker.name == OURS else "both Kafka's"
    label = f"{large / 1e9:g} GB log against 100 MB ({whose})"
    if not any(report.options.only in f"{name}, {label}" for name in names.values()):
        return
    sizes = {"large": large, "small": SMALL_BYTES}
    for topic, size in sizes.items():
        fill(broker, topic, size)
    load.fetch(broker, "small", fetch_bytes=1 << 20, seconds=report.options.warm_seconds)
    for random, name in names.items():
        samples: dict[str, list[common.Result]] = {topic: [] for topic in sizes}
        for pair in range(report.options.pairs):
            for topic in list(sizes)[:: 1 if pair % 2 == 0 else -1]:
                result = load.fetch(
                    broker, topic, fetch_bytes=1 << 20, random=random, seconds=report.options.seconds
                )
                samples[topic].append(result)
        report.samples[f"{name}, {label}"] = samples
        for key, unit, aim in (("mb_per_s", "MB/s", ">= 0.95"), ("p50_us", "us", "")):
            values = {topic: [result[key] for result in results] for topic, results in samples.items()}
            ratios = [a / b for a, b in zip(values["large"], values["small"], strict=True)]
            aim = aim if broker.name == OURS else ""
            report.rows.append(
                common.Row(
                    workload=f"{name}, {label}" + ("" if key == "mb_per_s" else ", p50"),
                    unit=unit,
                    ours=median(values["large"]),
                    kafka=median(values["small"]),
                    ratios=ratios,
                    cpu_ratio=None,
                    aim=aim,
                    met=median(ratios) >= 0.95 if aim else None,
                )
            )
    for topic in sizes:
        brokers.delete_topic(broker, topic)


def measure(report: Report) -> None:
    with common.both(report.options, report) as used:
        against_kafka(report, used)
        for broker in used:
            large_against_small(report, broker)


if __name__ == "__main__":
    sys.exit(common.main("broker_fetch", __doc__ or "", measure))
