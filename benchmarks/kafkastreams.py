"""One application on both sides, ours on Spark and Kafka Streams in Java: what its benchmarks share.

A benchmark has cases (`Case`), a program for our side (itself with --serve) and one in Java beside this file
(`KafkaStreamsApp.java` says what it is given). Both sides run exactly once with one thread on a topic of one
partition, each alone at its time and in turns. How far a side is, its group's committed offsets tell. The
clock and the processor time of all its processes run from the first commit past a fifth of the records to the
last record, so starting up and Java's first compilations do not count.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import brokers
from apache_kafka import Unavailable, cache_folder, java_program
from connector import class_path
from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.client.groups import Groups

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
NO_CACHE = ("statestore.cache.max.bytes=0",)
KEPT = {"retention.ms": "-1"}
PATIENCE = 240.0


class Case(NamedTuple):
    """`ours` and `java` are the names that the two programs have for the topology."""

    name: str
    source: str
    ours: str
    java: str
    settings: tuple[str, ...] = ()


@dataclass
class Measured:
    """Records per second, and per second of processor time."""

    rate: float
    per_core: float
    cpu: float


Fill = Callable[[Cluster, argparse.Namespace, Sequence[Case]], None]


def main(
    program: str,
    java: str,
    about: str,
    cases: Sequence[Case],
    fill: Fill,
    serve: Callable[..., None],
    records: int,
) -> int:
    """`program` is the file of the benchmark, `java` its class in Java, `fill` makes the topics of cases."""
    arguments = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--records", type=int, default=records)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--broker", choices=("millstream", "kafka"), default="millstream")
    arguments.add_argument("--only", default="")
    arguments.add_argument("--serve", nargs=6, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        serve(*given.serve)
        return 0
    # So that what was started is ended too.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        classes = compile_java(java)
    except (Unavailable, OSError, subprocess.CalledProcessError) as reason:
        print(f"Kafka Streams cannot be had here: {reason}")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    broker = brokers.make(given.broker, folder, SETTINGS)
    try:
        brokers.start(broker)
        with Cluster(ClientConfig.of(broker.bootstrap)) as cluster:
            chosen = [case for case in cases if given.only in case.name]
            fill(cluster, given, chosen)
            _print_head(given)
            for number, case in enumerate(chosen):
                found = _take_turns(
                    given, broker.bootstrap, cluster, folder, number, case, program, java, classes
                )
                _print_row(case, found)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _take_turns(
    given: argparse.Namespace,
    bootstrap: str,
    cluster: Cluster,
    folder: Path,
    number: int,
    case: Case,
    program: str,
    java: str,
    classes: str,
) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {"ours": [], "java": []}
    for turn in range(given.rounds):
        for side in ("ours", "java") if turn % 2 == 0 else ("java", "ours"):
            name = f"{side}-{number}-{turn}"
            out, state = f"out-{name}", str(folder / name)
            Admin(cluster).create_topics([NewTopic(out, 1, 1, KEPT)])
            if side == "ours":
                command = [
                    sys.executable,
                    program,
                    "--serve",
                    case.ours,
                    bootstrap,
                    name,
                    case.source,
                    out,
                    state,
                ]
            else:
                command = [
                    "java",
                    "-Xmx1g",
                    "-cp",
                    classes,
                    java,
                    bootstrap,
                    name,
                    case.java,
                    case.source,
                    out,
                ]
                command += [state, *case.settings]
            found[side].append(measure(command, cluster, name, case.source, given.records))
            Admin(cluster).delete_topics([one for one in Admin(cluster).topic_names() if name in one])
            shutil.rmtree(state, ignore_errors=True)
    return found


def _print_head(given: argparse.Namespace) -> None:
    print(
        f"{given.records:,} records, {given.keys:,} keys, broker {given.broker}, load average "
        f"{os.getloadavg()[0]:.1f}, ours / Kafka Streams"
    )
    print(
        f"{'':46} {'ours/s':>9} {'Java/s':>9} {'ratio':>6}   {'ours/cpu s':>10} {'Java/cpu s':>10} "
        f"{'ratio':>6}"
    )


def _print_row(case: Case, found: dict[str, list[Measured]]) -> None:
    row = []
    for figure in ("rate", "per_core"):
        ours, theirs = ([getattr(one, figure) for one in found[side]] for side in ("ours", "java"))
        row += [median(ours), median(theirs)]
        row.append(median(one / other for one, other in zip(ours, theirs, strict=True)))
    print(
        f"{case.name:46} {row[0]:9,.0f} {row[1]:9,.0f} {row[2]:6.2f}   {row[3]:10,.0f} {row[4]:10,.0f} "
        f"{row[5]:6.2f}",
        flush=True,
    )


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


def compile_java(program: str) -> str:
    """The class path of a program beside this file, compiled."""
    jars = class_path(HERE / "streams_pom.xml", "kafka-streams")
    folder = cache_folder() / "streams-app"
    folder.mkdir(exist_ok=True)
    javac = str(Path(java_program()).with_name("javac"))
    javac = javac if Path(javac).is_file() else "javac"
    sources = [str(HERE / f"{name}.java") for name in ("KafkaStreamsApp", program)]
    subprocess.run([javac, "-encoding", "UTF-8", "-d", str(folder), "-cp", jars, *sources], check=True)
    return f"{folder}:{jars}"
