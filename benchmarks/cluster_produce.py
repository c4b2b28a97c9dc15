"""Three brokers: produce with acks=all to topics of replication factor 3; CPU of the whole cluster at one
offered rate; its memory.

Each node leads one partition and has one connection of the load generator: idempotent, 5 requests in flight,
records of 1,000 bytes, batches of 16 KB, 64 KB and 1 MB. An answer means that all replicas in sync have the
batch (min.insync.replicas is 2). Rates are the sum over the three. The offered rate is confluent-kafka's
producer with messages of 10 KB, the same for both: there only the processor time is compared.
"""

import sys
import time

from confluent_kafka import Producer

import brokers
import clusters
import common
from clusters import Cluster
from common import Measure, Report, Workload

BYTES_PER_RUN = 600_000_000  # of each leader; three copies of it are on the disk
OFFERED = 20_000_000  # bytes a second
MESSAGE = 10_000


def prepare(cluster: Cluster) -> str:
    """A topic for each node, under one name with their numbers behind it."""
    brokers.require_room(cluster.log_dir, BYTES_PER_RUN * 9 / 1e9)
    name = clusters.new_name("produce")
    for first in range(1, clusters.NODES + 1):
        clusters.create(cluster, f"{name}-{first}", [clusters.replicas_from(first)])
    return name


def clean(cluster: Cluster, name: str) -> None:
    for topic in topics_of(name):
        clusters.delete(cluster, topic)


def topics_of(name: str) -> list[str]:
    return [f"{name}-{first}" for first in range(1, clusters.NODES + 1)]


def workload(label: str, batch_bytes: int, seconds: float) -> Workload:
    def run(cluster: Cluster, name: str) -> common.Result:
        return clusters.produce_everywhere(
            cluster,
            topics_of(name),
            batch_bytes=batch_bytes,
            record_bytes=1000,
            seconds=seconds,
            max_bytes=BYTES_PER_RUN,
        )

    measures = (
        Measure("mb_per_s", "MB/s", aim=1.5),
        Measure("p99_us", "us", "p99", more_is_better=False),
        Measure("resident_mb", "MB", "memory of the cluster", more_is_better=False, aim=0.2),
    )
    return Workload(f"produce {label}, RF 3", run, measures, prepare, clean)  # type: ignore[arg-type]


def offered_rate(seconds: float) -> Workload:
    """The same stream to both; what counts is what it costs."""

    def run(cluster: Cluster, name: str) -> common.Result:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "log_level": 0,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 65536,
            }
        )
        lost: list[object] = []
        topics = topics_of(name)
        count = int(seconds * OFFERED / MESSAGE)
        value = bytes(range(250)) * (MESSAGE // 250)
        began = time.perf_counter()
        for number in range(count):
            ahead = began + number * MESSAGE / OFFERED - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            producer.produce(
                topics[number % len(topics)],
                value,
                on_delivery=lambda error, _message: lost.append(error) if error else None,
            )
            producer.poll(0)
        if producer.flush(60) or lost:
            raise brokers.Failed(f"{cluster.name}: not everything was delivered: {lost[:1]}")
        took = time.perf_counter() - began
        return {"bytes": float(count * MESSAGE), "seconds": took, "mb_per_s": count * MESSAGE / took / 1e6}

    measures = (
        Measure("cpu_ms_per_mb", "ms/MB", "CPU of the cluster", more_is_better=False, aim=0.5),
        Measure("mb_per_s", "MB/s", "rate that was kept"),
        Measure("resident_mb", "MB", "memory of the cluster", more_is_better=False, aim=0.2),
    )
    return Workload(
        f"{OFFERED // 1_000_000} MB/s offered, RF 3",
        run,  # type: ignore[arg-type]
        measures,
        prepare,  # type: ignore[arg-type]
        clean,  # type: ignore[arg-type]
    )


def measure(report: Report) -> None:
    seconds = report.options.seconds
    with common.both(report.options, report, make=clusters.make) as used:
        sizes = (("16 KB", 16384), ("64 KB", 65536), ("1 MB", 1 << 20))
        found = [workload(label, size, seconds) for label, size in sizes]
        common.compare(report, [*found, offered_rate(seconds)], used)


if __name__ == "__main__":
    sys.exit(common.main("cluster_produce", __doc__ or "", measure))
