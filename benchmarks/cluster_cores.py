"""More cores, more brokers: one of ours, and one for each core (`up --brokers auto`), against one Apache
Kafka with all its threads.

Partitions have one replica, so that all sides write the same bytes. There are as many connections of the load
generator as cores, each with a partition of its own: idempotent produce with acks=all, 5 requests in flight,
records of 1,000 bytes, batches of 16 KB and 1 MB. Several of our brokers share a ZooKeeper, which is counted
in CPU and memory. The generators run on the same cores, so a second broker gains less than it would beside
clients on other machines.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

import brokers
import clusters
import common
import load
from brokers import Broker
from common import Measure, Report, Workload

CORES = os.cpu_count() or 1
BYTES_PER_RUN = 600_000_000  # of each connection
ONE_COPY = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def maker(count: int) -> Callable[..., Broker]:
    """Makes so many of ours as one side, and one Apache Kafka as the other."""

    def make(name: str, folder: Path, settings: Mapping[str, str] | None = None) -> Any:
        if name == common.KAFKA or count == 1:
            return brokers.make(name, folder / f"beside-{count}", settings)
        mine = {**ONE_COPY, **(settings or {})}
        return clusters.MillstreamCluster(folder / f"millstream-{count}", mine, count)

    return make


def nodes_of(broker: Any) -> list[Any]:
    """Of Apache Kafka and of a single broker: itself."""
    return list(broker.nodes) if isinstance(broker, clusters.MillstreamCluster) else [broker]


def prepare(broker: Any) -> str:
    """A topic for each connection, on the nodes in turn."""
    brokers.require_room(broker.log_dir, BYTES_PER_RUN * CORES / 1e9)
    name = clusters.new_name("cores")
    nodes = nodes_of(broker)
    if len(nodes) == 1:
        wanted = [NewTopic(topic, 1, 1) for topic in topics_of(name)]
    else:
        wanted = [
            NewTopic(topic, 1, replica_assignment=[[number % len(nodes) + 1]])
            for number, topic in enumerate(topics_of(name))
        ]
    client = brokers.admin(broker)  # must live until the answers are here
    for future in client.create_topics(wanted).values():
        future.result(90)
    view = clusters.View(nodes[0])
    try:
        for topic in topics_of(name):
            clusters.wait_for(
                lambda topic=topic: any(found.leader >= 0 for found in view.partitions(topic)),  # type: ignore[misc]
                f"{topic} was led",
            )
    finally:
        view.close()
    return name


def topics_of(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(CORES)]


def clean(broker: Any, name: str) -> None:
    client = brokers.admin(broker)
    for future in client.delete_topics(topics_of(name)).values():
        future.result(60)
    deadline = time.monotonic() + 60
    while any(broker.log_dir.rglob(f"{name}-*")) and time.monotonic() < deadline:
        time.sleep(0.1)


def workload(count: int, label: str, batch_bytes: int, seconds: float) -> Workload:
    def run(broker: Any, name: str) -> common.Result:
        nodes = nodes_of(broker)
        pairs = [
            (clusters.Target(broker.name, nodes[number % len(nodes)].port), topic)
            for number, topic in enumerate(topics_of(name))
        ]

        def produce(pair: tuple[Any, str]) -> load.Result:
            return load.produce(
                *pair, batch_bytes=batch_bytes, record_bytes=1000, seconds=seconds, max_bytes=BYTES_PER_RUN
            )

        with ThreadPoolExecutor(len(pairs)) as threads:
            found = list(threads.map(produce, pairs))
        total = {
            key: sum(each[key] for each in found)
            for key in ("requests", "bytes", "requests_per_s", "mb_per_s")
        }
        return {**total, "p99_us": max(each["p99_us"] for each in found)}

    return Workload(
        f"{count} of ours, {label} over {CORES} connections",
        run,
        (
            Measure("mb_per_s", "MB/s", aim=1.5),
            Measure("cpu_ms_per_mb", "ms/MB", "CPU", more_is_better=False, aim=0.5),
            Measure("p99_us", "us", "p99", more_is_better=False),
            Measure("resident_mb", "MB", "memory", more_is_better=False, aim=0.2),
        ),
        prepare,
        clean,
    )


def measure(report: Report) -> None:
    seconds = report.options.seconds
    for count in sorted({1, CORES}):
        with common.both(report.options, report, make=maker(count)) as used:
            found = [
                workload(count, label, size, seconds) for label, size in (("16 KB", 16384), ("1 MB", 1 << 20))
            ]
            common.compare(report, found, used)


if __name__ == "__main__":
    sys.exit(common.main("cluster_cores", __doc__ or "", measure))
