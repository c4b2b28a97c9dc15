"""Compaction: how fast, on one core, and what do producers notice of it?

A topic is filled with records of 1 KB over a tenth as many keys, not compacted yet. Then `cleanup.policy`
becomes `compact` and the clock runs until the broker notes in its cleaner checkpoint that everything but the
active segment is clean: keys read, survivors written and synced, segments replaced. MB are those of the
records as they were produced, before any codec. CPU is the broker's with its child, so "MB per CPU second" is
what one core does.

The second load is a producer that sends one message of 100 bytes after the other and takes the time of each:
alone, while a log is compacted, and alone again. The figure is how much higher the 99th percentile is in
between.
"""

import dataclasses
import itertools
import random
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

import brokers
import common
import load
from brokers import Broker
from common import Measure, Report, Workload

RECORD = 1000
SEGMENT = 25 << 20
SETTINGS = {"log.cleaner.backoff.ms": "20"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_numbers = itertools.count()


def fill(broker: Broker, megabytes: float, codec: str, linger_ms: int = 20) -> str:
    """A topic of so many MB of records, each key about ten times. Text-like values, so that a codec has
    something to do."""
    topic = f"compaction-{next(_numbers)}"
    brokers.require_room(broker.log_dir, 2.2 * megabytes / 1000)
    config = {
        "cleanup.policy": "delete",
        "segment.bytes": str(SEGMENT),
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
    }
    brokers.create_topic(broker, topic, config=config)
    count = int(megabytes * 1e6 / RECORD)
    choose = random.Random(7)
    words = [choose.randbytes(6).hex().encode() for _ in range(400)]
    values = [b" ".join(choose.choices(words, k=80))[: RECORD - 20] for _ in range(2000)]
    keys = [b"key-%08d" % choose.randrange(count // 10) for _ in range(count)]
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            "linger.ms": linger_ms,
            "batch.size": 16_384,
            # A producer without linger still sends what has queued up meanwhile, 16 records of this size.
            "batch.num.messages": 10_000 if linger_ms else 1,
            "queue.buffering.max.kbytes": 256 * 1024,
            "log_level": 0,
        }
    )
    for number, key in enumerate(keys):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], key, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise brokers.Failed(f"{broker.name}: the topic could not be filled")
    brokers.write_back(broker.log_dir)
    return topic


def compact_now(broker: Broker, topic: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = brokers.admin(broker)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(60)


def log_files(broker: Broker, topic: str) -> list[Path]:
    return sorted((broker.log_dir / f"{topic}-0").glob("*.log"))


def closed_share(broker: Broker, topic: str) -> float:
    """How much of the topic's bytes can be cleaned: all but the active segment."""
    sizes = [path.stat().st_size for path in log_files(broker, topic)]
    return sum(sizes[:-1]) / sum(sizes)


def is_clean(broker: Broker, topic: str, upper: int) -> bool:
    try:
        lines = (broker.log_dir / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return False
    return f"{topic} 0 {upper}" in lines


def wait_until_clean(broker: Broker, topic: str, upper: int, timeout: float = 300) -> None:
    deadline = time.monotonic() + timeout
    while not is_clean(broker, topic, upper):
        if time.monotonic() > deadline:
            raise brokers.Failed(f"{broker.name}: {topic} was not compacted within {timeout:.0f} s")
        time.sleep(0.01)


def speed(codec: str, megabytes: float, linger_ms: int = 20) -> Workload:
    def run(broker: Broker, topic: str) -> common.Result:
        share = closed_share(broker, topic)
        before = brokers.folder_mb(broker.log_dir / f"{topic}-0")
        upper = int(log_files(broker, topic)[-1].stem)
        cpu = brokers.cpu_seconds(broker.pid)
        began = time.perf_counter()
        compact_now(broker, topic)
        wait_until_clean(broker, topic, upper)
        seconds = time.perf_counter() - began
        time.sleep(0.5)  # our child ends; its time counts once it has
        cpu = brokers.cpu_seconds(broker.pid) - cpu
        cleaned = megabytes * share
        return {
            "mb_per_s": cleaned / seconds,
            "mb_per_cpu_s": cleaned / cpu,
            "seconds": seconds,
            "before_mb": before,
            "after_mb": brokers.folder_mb(broker.log_dir / f"{topic}-0"),
        }

    name = "none" if linger_ms else "none, one record a batch"
    return Workload(
        f"compaction of {megabytes:.0f} MB of 1 KB records, codec {codec if codec != 'none' else name}",
        run,
        (
            Measure("mb_per_s", "MB/s", limit=50),
            Measure("mb_per_cpu_s", "MB/CPU s", "one core", limit=50),
        ),
        lambda broker: fill(broker, megabytes, codec, linger_ms),
        brokers.delete_topic,
    )


def latency(seconds: float) -> Workload:
    """Enough to compact for the whole time of the second measurement: at 250 MB/s it would just last."""
    megabytes = 250 * (seconds + 1)

    def produce(broker: Broker) -> float:
        topic = f"latency-{next(_numbers)}"
        brokers.create_topic(broker, topic)
        result = load.produce(broker, topic, batch_bytes=0, record_bytes=100, in_flight=1, seconds=seconds)
        brokers.delete_topic(broker, topic)
        return result["p99_us"]

    def run(broker: Broker, topic: str) -> common.Result:
        before = produce(broker)
        upper = int(log_files(broker, topic)[-1].stem)
        compact_now(broker, topic)
        time.sleep(0.3)
        busy = produce(broker)
        done_early = is_clean(broker, topic, upper)
        wait_until_clean(broker, topic, upper)
        brokers.settle()
        quiet = (before + produce(broker)) / 2
        return {
            "before_p99_us": before,
            "quiet_p99_us": quiet,
            "busy_p99_us": busy,
            "rise": busy / quiet,
            "ended_before_the_measurement": float(done_early),
        }

    return Workload(
        "produce of 100 bytes while a log is compacted",
        run,
        (
            Measure("rise", "x", "rise of p99", more_is_better=False, limit=1.5),
            Measure("quiet_p99_us", "us", "p99 without", more_is_better=False),
            Measure("busy_p99_us", "us", "p99 during", more_is_better=False),
        ),
        lambda broker: fill(broker, megabytes, "none"),
        brokers.delete_topic,
        warm=False,
    )


def measure(report: Report) -> None:
    options = report.options
    options = dataclasses.replace(options, settings={**SETTINGS, **options.settings})
    megabytes = 250.0 if options.quick else 600.0
    workloads = [speed(codec, megabytes) for codec in CODECS]
    workloads.append(speed("none", megabytes / 2, linger_ms=0))
    workloads.append(latency(options.seconds))
    with common.both(options, report) as used:
        common.compare(report, workloads, used)


if __name__ == "__main__":
    sys.exit(common.main("broker_compaction", __doc__ or "", measure))
