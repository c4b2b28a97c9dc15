"""How long a record takes through a stateless pipeline: producer, broker, Spark, broker, consumer.

A steady stream of records with the time of sending in them goes into one topic; a Spark query copies it to
another (with a projection, so that it does something); a consumer takes the time when they arrive there.
Ours, at least once and exactly once, and Spark's own Kafka connector, on the same broker, one after the other
in the same run. The first seconds of each do not count.

    python benchmarks/pipeline_latency.py [--rate 1000] [--seconds 20] [--quick]
"""

import argparse
import json
import platform
import shutil
import struct
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from connector import available, jars
from millstream.client import Admin, ClientConfig, Cluster, Fetcher, NewTopic, Producer, visible_batches
from millstream.client.fetch import next_offset
from millstream.spark.session import spark as start_spark
from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch, iter_records

RESULTS = Path(__file__).resolve().parent / "results"
PARTITIONS = 2
TICK = 0.01
SIDES: dict[str, tuple[str, dict[str, str]]] = {
    "official": ("kafka", {}),
    "at least once": ("millstream", {}),
    "exactly once": ("millstream", {"delivery": "exactly_once"}),
}


class Load(threading.Thread):
    """`rate` records a second, each with the time it was sent at."""

    def __init__(self, servers: str, topic: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic, self._rate = servers, topic, rate
        self.end = threading.Event()

    def run(self) -> None:
        with Cluster(ClientConfig.of(self._servers)) as cluster:
            producer = Producer(cluster)
            began, sent = time.perf_counter(), 0
            while not self.end.wait(TICK):
                due = int((time.perf_counter() - began) * self._rate) - sent
                shares: dict[tuple[str, int], list[Record]] = {}
                now = struct.pack(">d", time.time()) + b"x" * 92
                for number in range(sent, sent + due):
                    row = Record(0, round(time.time() * 1000), b"%d" % number, now, ())
                    shares.setdefault((self._topic, number % PARTITIONS), []).append(row)
                if shares:
                    producer.send_batches(
                        {topic_partition: encode_batch(rows) for topic_partition, rows in shares.items()}
                    )
                sent += due


class Arrivals(threading.Thread):
    """When records came out of the pipeline: (sent, seconds on the way)."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic = servers, topic
        self.end = threading.Event()
        self.found: list[tuple[float, float]] = []

    def run(self) -> None:
        positions = {(self._topic, partition): 0 for partition in range(PARTITIONS)}
        with Cluster(ClientConfig.of(self._servers)) as cluster:
            cluster.topic(self._topic)
            fetcher = Fetcher(cluster, read_committed=True)
            while not self.end.is_set():
                for answer in fetcher.poll(positions, 100):
                    now, topic_partition = time.time(), (answer.topic, answer.partition)
                    for _, batch in visible_batches(answer, positions[topic_partition], read_committed=True):
                        for record in iter_records(batch):
                            (sent,) = struct.unpack(">d", (record.value or b"")[:8])
                            self.found.append((sent, now - sent))
                    positions[topic_partition] = next_offset(answer, positions[topic_partition])


def measure(session: Any, servers: str, side: str, rate: int, warm: float, seconds: float) -> list[float]:
    """Seconds on the way, of the records sent after the warm-up."""
    form, options = SIDES[side]
    source, target = (f"latency-{uuid.uuid4().hex[:8]}" for _ in range(2))
    with Cluster(ClientConfig.of(servers)) as cluster:
        Admin(cluster).create_topics([NewTopic(source, PARTITIONS, 1), NewTopic(target, PARTITIONS, 1)])
    folder = tempfile.mkdtemp(prefix="millstream-bench-")
    query = (
        session.readStream.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("key", "value", "cast(partition as int) as partition")
        .writeStream.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .options(**options)
        .option("checkpointLocation", folder)
        .start()
    )
    load, arrivals = Load(servers, source, rate), Arrivals(servers, target)
    try:
        load.start()
        arrivals.start()
        deadline = time.monotonic() + 120
        while not arrivals.found and query.isActive and time.monotonic() < deadline:
            time.sleep(0.1)
        begin = time.time() + warm
        time.sleep(warm + seconds)
        end = time.time()
        load.end.set()
        time.sleep(3)
        if (problem := query.exception()) is not None:
            raise problem
        return sorted(spent for sent, spent in arrivals.found if begin <= sent < end)
    finally:
        load.end.set()
        arrivals.end.set()
        query.stop()
        load.join()
        arrivals.join()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=1000, help="records a second (default 1000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure each (default 20)")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds before that (default 10)")
    parser.add_argument("--rounds", type=int, default=1, help="how often (default 1)")
    parser.add_argument("--no-peer", action="store_true", help="leave the official connector out")
    parser.add_argument("--quick", action="store_true", help="a rough answer: 8 seconds each")
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.warm = 8.0, 6.0
    missing = "asked for" if given.no_peer else available()
    settings = {"spark.driver.memory": "1g"}
    sides = list(SIDES)
    if missing is None:
        settings["spark.jars"] = jars()
    else:
        sides.remove("official")
        print(f"official connector left out: {missing}")
    results: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    with Broker() as broker:
        session = start_spark("pipeline_latency", settings, master="local[2]")
        print(f"{given.rate:,} records/s, ms:          p50      p90      p99   records")
        for _ in range(given.rounds):
            for side in sides:
                spent = measure(
                    session, broker.bootstrap_servers, side, given.rate, given.warm, given.seconds
                )
                points = {name: spent[int(len(spent) * part)] * 1000 for name, part in PERCENTILES.items()}
                results[side].append({**points, "records": len(spent)})
                print(
                    f"{side:22}"
                    + "".join(f"{value:9,.0f}" for value in points.values())
                    + f"{len(spent):10,}",
                    flush=True,
                )
        session.stop()
    RESULTS.mkdir(exist_ok=True)
    name = f"pipeline_latency-{time.strftime('%Y%m%d-%H%M%S')}.json"
    facts = {"machine": platform.platform(), "rate": given.rate, "milliseconds": results}
    (RESULTS / name).write_text(json.dumps(facts, indent=1))
    return 0


PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


if __name__ == "__main__":
    sys.exit(main())
