"""Writing from Spark into topics: ours, at least once and exactly once, against Spark's own Kafka connector.

One broker, one Spark session on two cores, all writers in the same run, in changing order. Rows are made by
Spark itself (a range with a key and a value), which costs all of them the same. The first round warms up and
does not count. Batch writes are timed around `save()`; streams by Spark's own account of its batches, the
first one left out.

The connector is the newest that Maven Central has (connector_pom.xml), with its own settings (batch.size 16
KB) and tuned like ours: record batches of up to 1 MB, as our sink has them by default, and a linger that lets
them fill. The fair ratio is the one against the tuned connector.
"""

import argparse
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pyspark.sql import DataFrame, SparkSession

from connector import available, jars
from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.spark.session import spark as start_spark
from millstream.testing import Broker

RESULTS = Path(__file__).resolve().parent / "results"
PARTITIONS = 4


@dataclass(frozen=True)
class Side:
    name: str
    format: str
    options: tuple[tuple[str, str], ...] = ()


OFFICIAL = Side("official", "kafka")
TUNED = Side("official tuned", "kafka", (("kafka.batch.size", "1000000"), ("kafka.linger.ms", "20")))
AT_LEAST_ONCE = Side("at least once", "millstream")
EXACTLY_ONCE = Side("exactly once", "millstream", (("delivery", "exactly_once"),))


@dataclass(frozen=True)
class Load:
    name: str
    value_bytes: int
    rows: int
    stream: bool = False


LOADS = (
    Load("batch 100 B", 100, 2_000_000),
    Load("batch 1 KB", 1000, 400_000),
    Load("stream 100 B", 100, 400_000, stream=True),
    Load("stream 1 KB", 1000, 100_000, stream=True),
)


def rows_of(session: SparkSession, load: Load) -> DataFrame:
    return session.range(0, load.rows, 1, PARTITIONS).selectExpr(
        "cast(id as string) as key", f"repeat('x', {load.value_bytes}) as value"
    )


def write_batch(session: SparkSession, load: Load, side: Side, servers: str, topic: str) -> float:
    """Rows a second."""
    writer = rows_of(session, load).write.format(side.format).mode("append").options(**dict(side.options))
    began = time.perf_counter()
    writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    return load.rows / (time.perf_counter() - began)


def write_stream(
    session: SparkSession, load: Load, side: Side, servers: str, topic: str, batches: int = 4
) -> float:
    """Rows a second of the batches after the first."""
    folder = tempfile.mkdtemp(prefix="millstream-bench-")
    source = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", str(load.rows))
        .option("numPartitions", str(PARTITIONS))
        .load()
        .selectExpr("cast(value as string) as key", f"repeat('x', {load.value_bytes}) as value")
    )
    query = (
        source.writeStream.format(side.format)
        .options(**dict(side.options))
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", folder)
        .start()
    )
    try:
        while (
            query.isActive and len(done := [p for p in query.recentProgress if p["numInputRows"]]) < batches
        ):
            time.sleep(0.05)
        if (problem := query.exception()) is not None:
            raise problem
        counted = done[1:batches]
        spent = sum(p["durationMs"]["triggerExecution"] for p in counted) / 1000
        return sum(p["numInputRows"] for p in counted) / spent
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(run: Callable[[Side], float], sides: Sequence[Side], rounds: int) -> dict[str, list[float]]:
    """Rounds in every order in turn, so that nobody always follows the same one; the first warms up."""
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    orders = list(itertools.permutations(sides))
    for number in range(rounds + 1):
        for side in orders[(number * 3 + number // 2) % len(orders)]:
            os.sync()  # what the last one wrote is on the disk
            rate = run(side)
            if number:
                found[side.name].append(rate)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="rows, times this")
    parser.add_argument("--no-peer", action="store_true", help="leave the official connector out")
    parser.add_argument("--quick", action="store_true", help="a rough answer: 2 rounds of fewer rows")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.scale = 2, given.scale / 4
    missing = "asked for" if given.no_peer else available()
    sides = [AT_LEAST_ONCE, EXACTLY_ONCE]
    settings = {"spark.driver.memory": "2g"}
    if missing is None:
        sides[:0] = [OFFICIAL, TUNED]
        settings["spark.jars"] = jars()
    else:
        print(f"official connector left out: {missing}")
    results: dict[str, dict[str, list[float]]] = {}
    os.environ.setdefault("MILLSTREAM_SPARK_LOG", "OFF")  # streams are stopped in the middle of a batch
    with Broker({"log.segment.delete.delay.ms": "1000"}) as broker:
        session = start_spark("pipeline_write", settings, master="local[2]")
        servers = broker.bootstrap_servers
        cluster = Cluster(ClientConfig.of(servers))
        print(f"{'rows/s':14}" + "".join(f"{side.name:>16}" for side in sides) + "   ratios")
        for load in LOADS:
            if given.only not in load.name:
                continue
            sized = Load(load.name, load.value_bytes, max(1000, int(load.rows * given.scale)), load.stream)

            def run(side: Side, load: Load = sized) -> float:
                topic = f"bench-{uuid.uuid4().hex[:8]}"
                Admin(cluster).create_topics([NewTopic(topic, PARTITIONS, 1)])
                try:
                    return (write_stream if load.stream else write_batch)(session, load, side, servers, topic)
                finally:
                    Admin(cluster).delete_topics([topic])

            found = results[load.name] = measure(run, sides, given.rounds)
            print(f"{load.name:14}" + "".join(f"{median(found[s.name]):16,.0f}" for s in sides), end="   ")
            print(", ".join(_ratios(found)), flush=True)
        session.stop()
    RESULTS.mkdir(exist_ok=True)
    name = f"pipeline_write-{time.strftime('%Y%m%d-%H%M%S')}.json"
    machine = {"machine": platform.platform(), "rounds": given.rounds, "rows_per_second": results}
    (RESULTS / name).write_text(json.dumps(machine, indent=1))
    return 0


def _ratios(found: dict[str, list[float]]) -> list[str]:
    lines = []
    pairs = [
        (AT_LEAST_ONCE.name, OFFICIAL.name),
        (AT_LEAST_ONCE.name, TUNED.name),
        (EXACTLY_ONCE.name, AT_LEAST_ONCE.name),
    ]
    for mine, other in pairs:
        if other in found:
            ratios = [a / b for a, b in zip(found[mine], found[other], strict=True)]
            lines.append(f"{mine}/{other} {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    return lines


if __name__ == "__main__":
    sys.exit(main())
