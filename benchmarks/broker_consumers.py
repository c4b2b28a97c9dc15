"""Kafka's ConsumerPerformance (kafka-consumer-perf-test, Java) reads the same log from both brokers, in a
group of its own.

As in broker_clients the client is part of what is measured. Each run is a fresh client process, so its
warm-up counts on both sides. The rate is the tool's own `fetch.MB.sec`: without the time in which the group
settles, which is the initial rebalance delay on both. The log lies in the page cache: 4 partitions, batches
of 64 KB.
"""

import itertools
import sys

import apache_kafka
import brokers
import common
import load
from common import Measure, Report, Workload

PERFORMANCE_CLASS = "org.apache.kafka.tools.ConsumerPerformance"
PARTITIONS = 4
_numbers = itertools.count()


def fill(broker: brokers.Broker, record_bytes: int, size: int) -> str:
    """Write the log that is read again and again; the name of its topic."""
    topic = f"consumed-{record_bytes}"
    brokers.require_room(broker.log_dir, size / 1e9)
    brokers.create_topic(broker, topic, PARTITIONS)
    load.produce(
        broker,
        topic,
        batch_bytes=65536,
        record_bytes=record_bytes,
        max_bytes=size,
        seconds=600,
        connections=PARTITIONS,
        partitions=PARTITIONS,
    )
    brokers.write_back(broker.log_dir)
    return topic


def consumer(record_bytes: int, records: int) -> Workload:
    topics: dict[str, str] = {}

    def prepare(broker: brokers.Broker) -> str:
        if broker.name not in topics:
            topics[broker.name] = fill(broker, record_bytes, round(records * record_bytes * 1.1))
        return topics[broker.name]

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        done = apache_kafka.tool(
            PERFORMANCE_CLASS,
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(records),
            "--group",
            f"consumed-{next(_numbers)}",
            "--timeout",
            "60000",
            timeout=600,
            heap="512m",
        )
        lines = [line.split(", ") for line in done.stdout.splitlines() if ", " in line]
        if done.returncode != 0 or len(lines) < 2:
            raise brokers.Failed(f"{broker.name}: ConsumerPerformance: {(done.stdout + done.stderr)[-800:]}")
        found = dict(zip(lines[0], lines[-1], strict=True))
        if float(found["data.consumed.in.nMsg"]) < records:
            raise brokers.Failed(f"{broker.name}: only {found['data.consumed.in.nMsg']} records were read")
        return {
            "mb_per_s": float(found["fetch.MB.sec"]) * 1.048576,
            "records_per_s": float(found["fetch.nMsg.sec"]),
            "whole_mb_per_s": float(found["MB.sec"]) * 1.048576,
            "bytes": float(found["data.consumed.in.MB"]) * 1048576,
        }

    name = f"ConsumerPerformance (Java), {record_bytes:,} B records"
    return Workload(name, run, (Measure("mb_per_s", "MB/s", aim=1.0),), prepare)


def measure(report: Report) -> None:
    if (reason := apache_kafka.available()) is not None:
        raise apache_kafka.Unavailable(reason)
    share = 0.3 if report.options.quick else 1.0
    workloads = [consumer(1000, int(1_500_000 * share)), consumer(100, int(8_000_000 * share))]
    with common.both(report.options, report) as used:
        common.compare(report, workloads, used)


if __name__ == "__main__":
    sys.exit(common.main("broker_consumers", __doc__ or "", measure))
