"""How long a record takes through a Streams application, exactly once: ours and Kafka Streams, in one run.

    python benchmarks/streams_latency.py [--partitions 2 20] [--interval 50 100] [--rate 1000] [--seconds 20]
    [--rounds 2] [--only latency|idle|start]

latency   `rate` records a second, each with the time of sending in it; a map and a filter; a read_committed
          reader takes the time of arrival. Both sides commit at the same interval and run in turns, each
          alone, with as many threads (lanes) as there are cores. The first seconds do not count.
idle      100 tasks without input: the processor time of all processes of the application, JVM included
start     on a host that runs an application already: from start() of another one to all of its tasks running
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import brokers
from apache_kafka import Unavailable
from kafkastreams import compile_java, processor_time, stop
from millstream.client import (
    Admin,
    ClientConfig,
    Cluster,
    Fetcher,
    NewTopic,
    Producer,
    visible_batches,
)
from millstream.client.fetch import next_offset
from millstream.streams import StreamsBuilder
from millstream.wire.records import Record, encode_batch, iter_records
from millstream.wire.topic_partition import TopicPartition
from streams_kafka import map_lambda

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
TICK = 0.01
WARM = 5.0
PATIENCE = 90.0


class Load(threading.Thread):
    """`rate` records a second, each with the time it was sent at."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic, self._partitions, self._rate = bootstrap, topic, partitions, rate
        self.end = threading.Event()

    def run(self) -> None:
        with Cluster(ClientConfig.of(self._servers)) as cluster:
            producer = Producer(cluster)
            began, sent = time.perf_counter(), 0
            while not self.end.wait(TICK):
                due = int((time.perf_counter() - began) * self._rate) - sent
                shares: dict[TopicPartition, list[Record]] = {}
                for number in range(sent, sent + due):
                    value = b"%.6f" % time.time() + b" " * 90
                    row = Record(0, round(time.time() * 1000), b"%d" % number, value, ())
                    which = TopicPartition(self._topic, number % self._partitions)
                    shares.setdefault(which, []).append(row)
                if shares:
                    producer.send_batches({which: encode_batch(rows) for which, rows in shares.items()})
                sent += due


class Arrivals(threading.Thread):
    """When records came out: (sent, seconds on the way)."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._positions = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self.end = threading.Event()
        self.found: list[tuple[float, float]] = []

    def run(self) -> None:
        with Cluster(ClientConfig.of(self._servers)) as cluster:
            fetcher = Fetcher(cluster, read_committed=True)
            while not self.end.is_set():
                for fetched in fetcher.poll(self._positions, 100):
                    now, which = time.time(), TopicPartition(fetched.topic, fetched.partition)
                    for _, batch in visible_batches(fetched, self._positions[which], read_committed=True):
                        for record in iter_records(batch):
                            sent = float((record.value or b"").split()[0])
                            self.found.append((sent, now - sent))
                    self._positions[which] = next_offset(fetched, self._positions[which])


def serve(bootstrap: str, application: str, source: str, out: str, state: str, interval: str) -> None:
    """Our application, in a process of its own until it is told to end."""
    from millstream.spark.session import spark
    from millstream.streams import Streams

    builder = StreamsBuilder()
    map_lambda(builder, source, out)
    streams = Streams(builder.build(), application, bootstrap_servers=bootstrap, state=state)
    session = spark(application, {"spark.millstream.host.commit.interval.ms": interval})
    streams.start(session).awaitTermination()


def serve_starts(bootstrap: str, source: str, state: str, rounds: str) -> None:
    """One application runs; others are started and stopped beside it."""
    from millstream.spark.session import spark
    from millstream.streams import Streams

    def make(name: str) -> Streams:
        builder = StreamsBuilder()
        map_lambda(builder, source, "out-starts")
        return Streams(builder.build(), name, bootstrap_servers=bootstrap, state=state)

    def started(streams: Streams) -> tuple[float, object]:
        began = time.monotonic()
        running = streams.start(session)
        while running.state != "RUNNING":
            time.sleep(0.002)
        return time.monotonic() - began, running

    session = spark("starts")
    started(make("first"))
    found = []
    for number in range(int(rounds)):
        seconds, running = started(make(f"next-{number}"))
        found.append(seconds)
        running.stop()  # type: ignore[attr-defined]
    print(f"start: {' '.join(f'{seconds * 1000:.0f}' for seconds in found)} ms", flush=True)
    os._exit(0)


def create(cluster: Cluster, *topics: str, partitions: int) -> None:
    Admin(cluster).create_topics([NewTopic(topic, partitions, 1) for topic in topics])
    cluster.wait_for_topics(topics)


def wait_for_first(process: subprocess.Popen[bytes], arrivals: Arrivals) -> None:
    until = time.monotonic() + PATIENCE
    while not arrivals.found:
        if process.poll() is not None or time.monotonic() > until:
            raise brokers.Failed("the application ended, or nothing came out of it")
        time.sleep(0.05)


def latencies(
    command: list[str], bootstrap: str, source: str, out: str, partitions: int, given: argparse.Namespace
) -> tuple[list[float], float]:
    """Milliseconds of each record, sorted, and the cores that the application used."""
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    load, arrivals = Load(bootstrap, source, partitions, given.rate), Arrivals(bootstrap, out, partitions)
    try:
        load.start()
        arrivals.start()
        wait_for_first(process, arrivals)
        time.sleep(WARM)
        cpu, began = processor_time(process.pid), time.time()
        time.sleep(given.seconds)
        cores = (processor_time(process.pid) - cpu) / (time.time() - began)
        load.end.set()
        time.sleep(1.0)
    finally:
        load.end.set()
        arrivals.end.set()
        stop(process)
        load.join()
        arrivals.join()
    until = began + given.seconds
    return sorted(1000 * way for sent, way in arrivals.found if began <= sent < until), cores


def compare_latency(
    given: argparse.Namespace, bootstrap: str, cluster: Cluster, java: str, folder: Path
) -> None:
    threads = os.cpu_count() or 1
    print(
        f"{given.rate} records/s, exactly once, read_committed; ms p50 / p99 / max, cores of the application"
    )
    for partitions in given.partitions:
        for interval in given.interval:
            rows: dict[str, list[tuple[float, float, float, float]]] = {"ours": [], "java": []}
            for turn in range(given.rounds):
                for side in ("ours", "java") if turn % 2 == 0 else ("java", "ours"):
                    name = f"{side}-{partitions}-{interval}-{turn}"
                    source, out = f"in-{name}", f"out-{name}"
                    create(cluster, source, out, partitions=partitions)
                    common = [bootstrap, name, source, out, str(folder / name)]
                    if side == "ours":
                        command = [sys.executable, __file__, "--serve", *common, str(interval)]
                    else:
                        command = [
                            "java",
                            "-Xmx1g",
                            "-cp",
                            java,
                            "StreamsApp",
                            *common[:2],
                            "map",
                            *common[2:],
                        ]
                        command += [f"commit.interval.ms={interval}", f"num.stream.threads={threads}"]
                    found, cores = latencies(command, bootstrap, source, out, partitions, given)
                    rows[side].append(
                        (found[len(found) // 2], found[len(found) * 99 // 100], found[-1], cores)
                    )
                    Admin(cluster).delete_topics([source, out])
            for side, of in rows.items():
                p50, p99, longest, cores = (median(column) for column in zip(*of, strict=True))
                spread = " ".join(f"{one[0]:.0f}/{one[1]:.0f}" for one in of)
                print(
                    f"{partitions:3} partitions, {interval:3} ms  {side}  "
                    f"{p50:5.0f} / {p99:5.0f} / {longest:5.0f}   {cores:.2f} cores   ({spread})",
                    flush=True,
                )


def measure_idle(given: argparse.Namespace, bootstrap: str, cluster: Cluster, folder: Path) -> None:
    create(cluster, "in-idle", "out-idle", partitions=100)
    command = [sys.executable, __file__, "--serve", bootstrap, "idle", "in-idle", "out-idle"]
    command += [str(folder / "idle"), "50"]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    arrivals = Arrivals(bootstrap, "out-idle", 100)
    arrivals.start()
    try:
        producer = Producer(cluster)
        for number in range(100):
            value = b"%.6f" % time.time() + b" " * 90
            producer.send("in-idle", number, [Record(0, round(time.time() * 1000), b"k", value, ())])
        until = time.monotonic() + PATIENCE
        while len(arrivals.found) < 100 and time.monotonic() < until:
            time.sleep(0.1)
        arrivals.end.set()
        time.sleep(WARM)
        before, began = processor_time(process.pid), time.monotonic()
        time.sleep(given.seconds)
        cores = (processor_time(process.pid) - before) / (time.monotonic() - began)
        print(
            f"idle: 100 tasks ({len(arrivals.found)} had worked), {100 * cores:.1f} % of a core", flush=True
        )
    finally:
        arrivals.end.set()
        stop(process)


def measure_start(given: argparse.Namespace, bootstrap: str, cluster: Cluster, folder: Path) -> None:
    create(cluster, "in-starts", "out-starts", partitions=2)
    command = [sys.executable, __file__, "--serve-starts", bootstrap, "in-starts", str(folder / "starts")]
    process = subprocess.Popen([*command, str(5 * given.rounds)], start_new_session=True)
    try:
        process.wait(PATIENCE)
    finally:
        stop(process)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--partitions", type=int, nargs="+", default=[2, 20])
    arguments.add_argument("--interval", type=int, nargs="+", default=[50, 100])
    arguments.add_argument("--rate", type=int, default=1000)
    arguments.add_argument("--seconds", type=float, default=20.0)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--broker", choices=("millstream", "kafka"), default="millstream")
    arguments.add_argument("--only", choices=("latency", "idle", "start"))
    arguments.add_argument("--serve", nargs=6, help=argparse.SUPPRESS)
    arguments.add_argument("--serve-starts", nargs=4, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        serve(*given.serve)
        return 0
    if given.serve_starts:
        serve_starts(*given.serve_starts)
        return 0
    # So that what was started is ended too.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    broker = brokers.make(given.broker, folder, SETTINGS)
    try:
        brokers.start(broker)
        with Cluster(ClientConfig.of(broker.bootstrap)) as cluster:
            print(f"broker {given.broker}, load average {os.getloadavg()[0]:.1f}")
            if given.only in (None, "idle"):
                measure_idle(given, broker.bootstrap, cluster, folder)
            if given.only in (None, "start"):
                measure_start(given, broker.bootstrap, cluster, folder)
            if given.only in (None, "latency"):
                try:
                    java = compile_java("StreamsApp")
                except (Unavailable, OSError, subprocess.CalledProcessError) as reason:
                    print(f"Kafka Streams cannot be had here: {reason}")
                    return 1
                compare_latency(given, broker.bootstrap, cluster, java, folder)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
