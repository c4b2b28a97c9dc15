"""Reading topics into Spark: format("millstream") against Spark's own Kafka connector, on the same broker.

    python benchmarks/pipeline_read.py [--quick] [--master local[2]] [--partitions 4] [--pairs 5] [--only
    stream]
                                       [--broker millstream|kafka]

One Spark session has both connectors. A topic of 100-byte and one of 1,000-byte values (keys: 1,000 different
ones) are read whole, as a batch and as a stream (AvailableNow), into the noop sink and into a count by key.
Both connectors are warmed with each load, then they take turns in pairs: ours first, theirs first, theirs
first ... A pair yields one ratio; the figure is the median of the ratios. A stream's time is what Spark
reports for its triggers (without the start of the query); a batch's is the wall clock of the action, planning
included. CPU is that of Spark's JVM and its Python processes.

The peer comes from Maven (connector.py). The columns are the same for both: all of Spark's Kafka source.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from apache_kafka import ApacheKafka
from connector import jars
from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.spark.session import spark as start_spark
from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch

HERE = Path(__file__).resolve().parent
OURS, PEER = "millstream", "kafka"  # names of formats
BATCH_BYTES = 64_000
KEYS = 1000
AIM = 1.5


def fill(servers: str, topic: str, value_size: int, rows: int, partitions: int) -> int:
    """A topic of batches of about 64 KB, spread evenly. Returns how many rows it has."""
    per_batch = max(1, BATCH_BYTES // (value_size + 20))
    with Cluster(ClientConfig.of(servers)) as cluster:
        Admin(cluster).create_topics([NewTopic(topic, partitions, 1)])
        producer = Producer(cluster, idempotent=False)
        noise = os.urandom(value_size * 4)
        now = int(time.time() * 1000)
        batches = []
        for b in range(16):
            records = [
                Record(0, now + i, b"key-%04d" % ((i * 7 + b) % KEYS), noise[i % 97 : i % 97 + value_size])
                for i in range(per_batch)
            ]
            batches.append(encode_batch(records))
        sent = number = 0
        while sent < rows:
            now_sending = {(topic, p): bytearray(batches[(number + p) % 16]) for p in range(partitions)}
            producer.send_batches(now_sending)
            number += 1
            sent += per_batch * partitions
    return sent


def cpu_seconds() -> float:
    """What Spark has used: the JVM and its Python processes, without the broker."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            if "pyspark" in line or "millstream.spark.daemon" in line or "org.apache.spark" in line:
                times = child.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue
    return total


class Loads:
    """The loads; each returns seconds."""

    def __init__(self, session: SparkSession, servers: str, folder: Path) -> None:
        self.session = session
        self.servers = servers
        self.folder = folder
        self.number = 0

    def _options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"}

    def batch(self, format: str, topic: str, shape: Callable[[DataFrame], DataFrame], rows: int) -> float:
        began = time.perf_counter()
        df = self.session.read.format(format).options(**self._options(topic)).load()
        shape(df).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def stream(self, format: str, topic: str, shape: Callable[[DataFrame], DataFrame], rows: int) -> float:
        self.number += 1
        df = self.session.readStream.format(format).options(**self._options(topic)).load()
        shaped = shape(df)
        query = (
            shaped.writeStream.format("noop")
            .outputMode("append" if shaped is df else "update")
            .option("checkpointLocation", str(self.folder / f"checkpoint-{self.number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [p for p in query.recentProgress if p["numInputRows"]]
        read = sum(p["numInputRows"] for p in progress)
        assert read == rows, f"{format} read {read} of {rows}"
        return float(sum(p["durationMs"]["triggerExecution"] for p in progress)) / 1000


def count_by_key(df: DataFrame) -> DataFrame:
    return df.groupBy("key").count()


def as_it_is(df: DataFrame) -> DataFrame:
    return df


def keep(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Written after every load, so that a run that is cut short leaves what it has measured."""
    result = {
        "benchmark": "pipeline_read",
        "when": options.stamp,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "master": options.master,
        "partitions": options.partitions,
        "broker": options.broker,
        # Of the machine: on a busy one, trust the CPU time rather than the clock.
        "load_before": options.load_before,
        "loads": found,
    }
    (HERE / "results" / f"pipeline_read-{options.stamp}.json").write_text(json.dumps(result, indent=1))


def measure(options: argparse.Namespace, servers: str, folder: Path) -> None:
    settings = {"spark.jars": jars(), "spark.driver.memory": "2g"}
    session = start_spark("benchmark", settings, master=options.master)
    loads = Loads(session, servers, folder)
    found: dict[str, Any] = {}
    rows_wanted = {100: 400_000 if options.quick else 2_000_000, 1000: 60_000 if options.quick else 300_000}
    try:
        for size in (100, 1000):
            topic = f"bench-{size}"
            rows = fill(servers, topic, size, rows_wanted[size], options.partitions)
            for kind, run in (("batch", loads.batch), ("stream", loads.stream)):
                for into, shape in (("noop", as_it_is), ("count by key", count_by_key)):
                    name = f"{kind} {size} B into {into}"
                    if options.only in name:
                        found[name] = compare(run, topic, shape, rows, options.pairs)
                        report(name, found[name])
                        keep(options, found)
    finally:
        session.stop()


def compare(
    run: Callable[..., float], topic: str, shape: Callable[[DataFrame], DataFrame], rows: int, pairs: int
) -> dict[str, Any]:
    samples: dict[str, list[float]] = {OURS: [], PEER: []}
    cpu: dict[str, list[float]] = {OURS: [], PEER: []}
    for format in (OURS, PEER, PEER, OURS):
        run(format, topic, shape, rows)
    for pair in range(pairs):
        order = (OURS, PEER) if pair % 3 == 0 else (PEER, OURS)
        for format in order:
            before = cpu_seconds()
            samples[format].append(rows / run(format, topic, shape, rows))
            cpu[format].append(cpu_seconds() - before)
    ratios = [a / b for a, b in zip(samples[OURS], samples[PEER], strict=True)]
    return {"rows": rows, "rows_per_s": samples, "cpu_s": cpu, "ratios": ratios}


def report(name: str, found: dict[str, Any]) -> None:
    ours, peer = (median(found["rows_per_s"][side]) for side in (OURS, PEER))
    cpu = median(found["cpu_s"][OURS]) / max(0.01, median(found["cpu_s"][PEER]))
    ratios = found["ratios"]
    print(
        f"{name:32} ours {ours:>10,.0f} rows/s  connector {peer:>10,.0f} rows/s  "
        f"x{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})  cpu x{cpu:.2f}  "
        f"{'aim met' if median(ratios) >= AIM else 'at least equal' if median(ratios) >= 1 else 'slower'}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows, 3 pairs: a rough answer")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    parser.add_argument("--broker", choices=("millstream", "kafka"), default="millstream")
    options = parser.parse_args()
    options.pairs = options.pairs or (3 if options.quick else 5)
    options.load_before = os.getloadavg()[0]
    options.stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    print(
        f"{options.master}, {options.partitions} partitions, broker: {options.broker}, load before: "
        f"{options.load_before:.1f}",
        flush=True,
    )
    try:
        if options.broker == "kafka":
            with ApacheKafka(folder / "kafka") as kafka:
                measure(options, kafka.bootstrap, folder)
        else:
            with Broker(data_dir=folder / "data") as broker:
                measure(options, broker.bootstrap_servers, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
