"""Streams on Spark against Kafka Streams (Java) on the same topologies, topics and broker, in one run.

    python benchmarks/streams_kafka.py [--records 1000000] [--rounds 3] [--broker millstream|kafka] [--only
    TEXT]

Both sides run exactly once with one thread on a topic of one partition, ours with Spark (local[1]), each
alone at its time and in turns. Kafka Streams runs with its own defaults (cache of 10 MB, which swallows
updates of keys that come again) and, for counts, with its cache off, which is what ours does: every update is
sent. How far a side is, its group's committed offsets tell. The clock and the processor time of all its
processes run from the first commit past a fifth of the records to the last record, so starting up and Java's
first compilations do not count. The ratio is ours / Kafka Streams, of records per second; and of records per
second of processor time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import brokers
from apache_kafka import Unavailable, cache_folder, java_program
from connector import class_path
from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
from millstream.client.groups import Groups
from millstream.streams import StreamsBuilder, TimeWindows, col, minutes
from millstream.wire.records import Record

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
PATIENCE = 240.0


def map_lambda(builder: StreamsBuilder, source: str, out: str) -> None:
    stream = builder.stream(source).map_values(lambda value: value[:100])
    stream.filter(lambda key, value: value[0] != "x").to(out)


def map_columns(builder: StreamsBuilder, source: str, out: str) -> None:
    builder.stream(source).map_values(col("value")[:100]).filter(col("value")[:1] != "x").to(out)


def count(builder: StreamsBuilder, source: str, out: str) -> None:
    builder.stream(source).group_by_key().count().to_stream().to(out)


def windows(builder: StreamsBuilder, source: str, out: str) -> None:
    spans = TimeWindows.of_size(minutes(1)).grace(minutes(1))
    builder.stream(source).group_by_key().windowed_by(spans).count().to_stream().to(out)


OURS: dict[str, Callable[[StreamsBuilder, str, str], None]] = {
    "map_lambda": map_lambda,
    "map_columns": map_columns,
    "count": count,
    "windows": windows,
}
NO_CACHE = ("statestore.cache.max.bytes=0",)


class Case(NamedTuple):
    name: str
    source: str
    ours: str
    java: str
    settings: tuple[str, ...] = ()


CASES = [
    Case("map and filter, 1 KB, lambdas", "large", "map_lambda", "map"),
    Case("map and filter, 1 KB, expressions", "large", "map_columns", "map"),
    Case("count by key, Java without cache", "small", "count", "count", NO_CACHE),
    Case("count by key, Java with cache", "small", "count", "count"),
    Case("count by key and minute, Java without cache", "small", "windows", "windows", NO_CACHE),
]


@dataclass
class Measured:
    """Records per second, and per second of processor time."""

    rate: float
    per_core: float
    cpu: float


def fill(cluster: Cluster, topic: str, size: int, records: int, keys: int) -> None:
    producer, value = Producer(cluster), b"a" * size
    for start in range(0, records, 1000):
        batch = [
            Record(number, start + number, b"key-%d" % ((start + number) * 7919 % keys), value)
            for number in range(min(1000, records - start))
        ]
        producer.send(topic, 0, batch)


def serve(name: str, bootstrap: str, application: str, source: str, out: str, state: str) -> None:
    """Our application, in a process of its own until it is told to end."""
    from millstream.spark.session import spark
    from millstream.streams import Streams

    builder = StreamsBuilder()
    OURS[name](builder, source, out)
    streams = Streams(builder.build(), application, bootstrap_servers=bootstrap, state=state)
    streams.start(spark(application, master="local[1]")).awaitTermination()


def processor_time(session: int) -> float:
    """Of all processes of a session, those that ended included, in seconds."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # gone meanwhile
            if int(fields[3]) == session:
                ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS


def measure(command: list[str], cluster: Cluster, application: str, topic: str, records: int) -> Measured:
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    groups, topic_partition = Groups(cluster), (topic, 0)
    began: tuple[float, float, int] | None = None
    until = time.monotonic() + PATIENCE
    try:
        while True:
            if process.poll() is not None or time.monotonic() > until:
                raise brokers.Failed(f"{application} ended or did not finish in {PATIENCE:.0f} s")
            found = groups.committed(application, [topic_partition]).get(topic_partition)
            offset = getattr(found, "offset", 0)
            if offset >= records:
                break
            if began is None and offset >= records // 5:
                began = (time.monotonic(), processor_time(process.pid), offset)
            time.sleep(0.05)
        ended, cpu = time.monotonic(), processor_time(process.pid)
    finally:
        stop(process)
    if began is None:
        raise brokers.Failed(f"{application} committed too seldom: try more records")
    done, spent = records - began[2], cpu - began[1]
    return Measured(done / (ended - began[0]), done / spent, spent)


def stop(process: subprocess.Popen[bytes]) -> None:
    """The whole session: Spark has a JVM and workers of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if os.getsid(int(folder.name)) == process.pid:
                        os.kill(int(folder.name), number)
                except (OSError, ValueError):
                    continue  # gone meanwhile
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue


def compile_java(program: str = "StreamsApp") -> str:
    """The class path of a program beside this file, compiled."""
    jars = class_path(HERE / "streams_pom.xml", "kafka-streams")
    folder = cache_folder() / "streams-app"
    folder.mkdir(exist_ok=True)
    javac = str(Path(java_program()).with_name("javac"))
    javac = javac if Path(javac).is_file() else "javac"
    source = str(HERE / f"{program}.java")
    subprocess.run([javac, "-encoding", "UTF-8", "-d", str(folder), "-cp", jars, source], check=True)
    return f"{folder}:{jars}"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--records", type=int, default=1_000_000)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--broker", choices=("millstream", "kafka"), default="millstream")
    arguments.add_argument("--only", default="")
    arguments.add_argument("--serve", nargs=6, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        serve(*given.serve)
        return 0
    signal.signal(
        signal.SIGTERM, lambda _number, _frame: sys.exit(143)
    )  # so that what was started is ended too
    try:
        java = compile_java()
    except (Unavailable, OSError, subprocess.CalledProcessError) as reason:
        print(f"Kafka Streams cannot be had here: {reason}")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    broker = brokers.make(given.broker, folder, SETTINGS)
    try:
        brokers.start(broker)
        with Cluster(ClientConfig.of(broker.bootstrap)) as cluster:
            compare(given, broker.bootstrap, cluster, java, folder)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def compare(given: argparse.Namespace, bootstrap: str, cluster: Cluster, java: str, folder: Path) -> None:
    chosen = [case for case in CASES if given.only in case.name]
    sizes = {"large": 1024, "small": 100}
    for topic in dict.fromkeys(case.source for case in chosen):
        Admin(cluster).create_topics([NewTopic(topic, 1, 1, {"retention.ms": "-1"})])
        fill(cluster, topic, sizes[topic], given.records, given.keys)
    load = os.getloadavg()[0]
    print(f"{given.records:,} records, broker {given.broker}, load average {load:.1f}, ours / Kafka Streams")
    print(
        f"{'':46} {'ours/s':>9} {'Java/s':>9} {'ratio':>6}   {'ours/cpu s':>10} {'Java/cpu s':>10} "
        f"{'ratio':>6}"
    )
    for number, case in enumerate(chosen):
        found: dict[str, list[Measured]] = {"ours": [], "java": []}
        for turn in range(given.rounds):
            for side in ("ours", "java") if turn % 2 == 0 else ("java", "ours"):
                name = f"{side}-{number}-{turn}"
                out = f"out-{name}"
                Admin(cluster).create_topics([NewTopic(out, 1, 1, {"retention.ms": "-1"})])
                arguments = [bootstrap, name, case.source, out, str(folder / name)]
                if side == "ours":
                    command = [sys.executable, __file__, "--serve", case.ours, *arguments]
                else:
                    command = [
                        "java",
                        "-Xmx1g",
                        "-cp",
                        java,
                        "StreamsApp",
                        *arguments[:2],
                        case.java,
                        *arguments[2:],
                    ]
                    command += case.settings
                found[side].append(measure(command, cluster, name, case.source, given.records))
                gone = [topic for topic in Admin(cluster).topic_names() if name in topic]
                Admin(cluster).delete_topics(gone)
                shutil.rmtree(folder / name, ignore_errors=True)
        row = []
        for figure in ("rate", "per_core"):
            ours, theirs = ([getattr(one, figure) for one in found[side]] for side in ("ours", "java"))
            ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
            row += [median(ours), median(theirs), ratio]
        print(
            f"{case.name:46} {row[0]:9,.0f} {row[1]:9,.0f} {row[2]:6.2f}   {row[3]:10,.0f} {row[4]:10,.0f} "
            f"{row[5]:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
