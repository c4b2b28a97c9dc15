"""Produce: 16 KB, 64 KB and 1 MB batches over 1 and 4 connections, and 50 connections with one message each.

Idempotent, acks=all, 5 requests in flight (1 with 50 connections), records of 1,000 bytes (100 bytes where
each request carries one message). Four connections write to four partitions, fifty to one shared partition
and to one each. The loads named "rotating" go to another partition with every request, as a client without
keys does: nothing that a broker may remember of the last request of a connection helps there.
"""

import itertools
import os
import sys

import brokers
import common
import load
from common import Measure, Report, Workload

BYTES_PER_RUN = 3_000_000_000  # a run ends early rather than fill the page cache
_numbers = itertools.count()


def workload(
    name: str,
    batch_bytes: int,
    connections: int,
    partitions: int,
    seconds: float,
    *,
    in_flight: int = 5,
    record_bytes: int = 1000,
    rotate: bool = False,
    aim: float,
    cpu_aim: float | None = None,
) -> Workload:
    """A produce load on a topic of its own, which is deleted after each run."""

    def prepare(broker: brokers.Broker) -> str:
        brokers.require_room(broker.log_dir, BYTES_PER_RUN / 1e9)
        os.sync()  # else this run would be slowed down by what the one before has left to write
        topic = f"produce-{next(_numbers)}"
        brokers.create_topic(broker, topic, partitions)
        return topic

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        return load.produce(
            broker,
            topic,
            batch_bytes=batch_bytes,
            record_bytes=record_bytes,
            connections=connections,
            partitions=partitions,
            in_flight=in_flight,
            rotate=rotate,
            seconds=seconds,
            max_bytes=BYTES_PER_RUN,
        )

    rate = (
        Measure("requests_per_s", "req/s", aim=aim)
        if batch_bytes < 65536
        else Measure("mb_per_s", "MB/s", aim=aim)
    )
    late = Measure("p99_us", "us", "p99", more_is_better=False)
    return Workload(name, run, (rate, late), prepare, brokers.delete_topic, cpu_aim)


def workloads(seconds: float) -> list[Workload]:
    """Everything this benchmark measures."""
    found = []
    for label, size in (("16 KB", 16384), ("64 KB", 65536)):
        for connections in (1, 4):
            name = f"produce {label}, {connections} connection{'s' if connections > 1 else ''}"
            found.append(workload(name, size, connections, connections, seconds, aim=1.5))
    found.append(
        workload(
            "produce 16 KB, 4 connections, rotating over 8 partitions",
            16384,
            4,
            8,
            seconds,
            rotate=True,
            aim=1.5,
        )
    )
    for connections in (1, 4):
        name = f"produce 1 MB, {connections} connection{'s' if connections > 1 else ''}"
        found.append(workload(name, 1 << 20, connections, connections, seconds, aim=1.2, cpu_aim=0.7))
    for partitions, label in ((1, "one partition"), (50, "a partition each")):
        found.append(
            workload(
                f"50 connections x 1 message, {label}",
                0,
                50,
                partitions,
                seconds,
                in_flight=1,
                record_bytes=100,
                aim=1.2,
                cpu_aim=0.7,
            )
        )
    found.append(
        workload(
            "50 connections x 1 message, rotating over 8 partitions",
            0,
            50,
            8,
            seconds,
            in_flight=1,
            record_bytes=100,
            rotate=True,
            aim=1.2,
            cpu_aim=0.7,
        )
    )
    return found


def measure(report: Report) -> None:
    with common.both(report.options, report) as used:
        common.compare(report, workloads(report.options.seconds), used)


if __name__ == "__main__":
    sys.exit(common.main("broker_produce", __doc__ or "", measure))
