"""Connect against Apache Kafka's: the same connectors, one after the other, on one broker (ours).

    python benchmarks/connect_worker.py [--lines 200000] [--only source,sink,...] [--side ours|java]

Both workers are whole: REST, distributed mode, exactly-once sources, Kafka's file connectors; ours with its
Spark. CPU is that of the worker and all processes below it. Each load has a first run that is not counted
(a JVM compiles, Spark's workers fork); then the figure is one run, of the sink the median of five. `kill`
starts two workers each and kills one; Java's scheduled.rebalance.max.delay.ms is 0 there, in its favour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from apache_kafka import end_with_parent, free_port

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from millstream.client import LATEST, ClientConfig, Cluster, list_offsets  # noqa: E402
from millstream.testing import Broker  # noqa: E402
from millstream.wire.topic_partition import TopicPartition  # noqa: E402

FILE = "org.apache.kafka.connect.file.FileStream"
TICKS = os.sysconf("SC_CLK_TCK")
CHAIN = {
    "transforms": "hoist,insert,replace,cast,key",
    "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.hoist.field": "line",
    "transforms.insert.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.insert.static.field": "number",
    "transforms.insert.static.value": "42",
    "transforms.replace.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.replace.renames": "line:text",
    "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.cast.spec": "number:int32",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "number",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def until(condition: Callable[[], Any], seconds: float = 180, pause: float = 0.01) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("a run has not ended in time")
        time.sleep(pause)


def cpu_seconds(pid: int) -> float:
    """Of a process and all below it, those that have ended included."""
    parents: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
                times[int(entry.name)] = sum(int(fields[at]) for at in (11, 12, 13, 14)) / TICKS
    pending, total = [pid], 0.0
    while pending:
        one = pending.pop()
        total += times.get(one, 0.0)
        pending += parents.get(one, [])
    return total


class Worker:
    """A worker in a process of its own; `pids` are those whose CPU counts."""

    def __init__(
        self, side: str, bootstrap: str, folder: Path, class_path: str, group: str = "bench"
    ) -> None:
        self.port = free_port()
        self.folder = folder / f"{side}-{self.port}"
        self.folder.mkdir(parents=True)
        self.side = side
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{group}-{side}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": f"http://127.0.0.1:{self.port}",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "0",
            **{
                f"{what}.storage.{name}": value
                for what in ("config", "offset", "status")
                for name, value in (("topic", f"{group}-{side}-{what}"), ("replication.factor", "1"))
            },
        }
        if side == "ours":
            settings["millstream.driver.dir"] = str(self.folder / "driver")
        file = self.folder / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if side == "ours":
            command = [sys.executable, "-m", "millstream", "connect", "distributed", str(file)]
        else:
            main = "org.apache.kafka.connect.cli.ConnectDistributed"
            command = ["java", "-Xmx1g", "-cp", class_path, main, str(file)]
        with open(self.folder / "log", "wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                preexec_fn=end_with_parent,
            )
        began = time.monotonic()
        until(self._answers)
        self.start_seconds = time.monotonic() - began

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise SystemExit((self.folder / "log").read_text()[-2000:])
        try:
            self.ask("GET", "/connectors")
        except (OSError, urllib.error.URLError):
            return False
        return True

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - of this machine
            body = answer.read()
        return json.loads(body) if body else None

    @property
    def cpu(self) -> float:
        total = cpu_seconds(self.process.pid)
        with contextlib.suppress(OSError, ValueError):
            # The driver has a session of its own, but is counted where it stays a child.
            pid = json.loads((self.folder / "driver" / "driver.json").read_text())["pid"]
            if not _below(pid, self.process.pid):
                total += cpu_seconds(pid)
        return total

    def put(self, name: str, settings: dict[str, str]) -> None:
        while True:
            try:
                self.ask("PUT", f"/connectors/{name}/config", settings)
                return
            except urllib.error.HTTPError as error:
                if error.code != 409:
                    raise SystemExit(error.read().decode()) from None
                time.sleep(0.05)  # Java's answer during a rebalance

    def delete(self, name: str) -> None:
        while True:
            try:
                self.ask("DELETE", f"/connectors/{name}")
                return
            except urllib.error.HTTPError as error:
                if error.code != 409:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
            self.process.wait()


def _below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


class Bench:
    def __init__(self, bootstrap: str, folder: Path, lines: int) -> None:
        self.bootstrap, self.folder, self.lines = bootstrap, folder, lines
        self._cluster = Cluster(ClientConfig.of(bootstrap, {}, "bench"))
        self._count = 0
        self.file = folder / "lines.txt"
        with self.file.open("w") as file:
            for number in range(lines):
                file.write(f"line {number:09d} {'x' * 84}\n")

    def name(self, worker: Worker, what: str) -> str:
        self._count += 1
        return f"{what}-{worker.side}-{self._count}"

    def committed(self, topic: str) -> int:
        """Where committed records end; the end of each transaction counts as one."""
        which = TopicPartition(topic, 0)
        if topic in self._cluster.refresh({topic}):
            return 0
        return list_offsets(self._cluster, {which: LATEST}, read_committed=True)[which].offset

    def source(self, worker: Worker, more: dict[str, str] | None = None) -> tuple[float, float, str]:
        topic = self.name(worker, "source")
        settings = {"connector.class": f"{FILE}SourceConnector", "file": str(self.file), "topic": topic}
        cpu, began = worker.cpu, time.monotonic()
        worker.put(topic, settings | {"batch.size": "2000"} | (more or {}))
        until(lambda: self.committed(topic) >= self.lines, pause=0.02)
        seconds = time.monotonic() - began
        used = worker.cpu - cpu
        worker.delete(topic)
        return seconds, used, topic

    def sink(self, worker: Worker, topic: str) -> tuple[float, float]:
        copied = self.folder / self.name(worker, "sink")
        settings = {"connector.class": f"{FILE}SinkConnector", "file": str(copied), "topics": topic}
        size = self.file.stat().st_size
        cpu, began = worker.cpu, time.monotonic()
        worker.put(copied.name, settings)
        until(lambda: copied.exists() and copied.stat().st_size >= size, pause=0.02)
        seconds, used = time.monotonic() - began, worker.cpu - cpu
        worker.delete(copied.name)
        return seconds, used

    def first_record(self, worker: Worker) -> float:
        topic = self.name(worker, "first")
        file = self.folder / f"{topic}.txt"
        file.write_text("one\n")
        began = time.monotonic()
        worker.put(topic, {"connector.class": f"{FILE}SourceConnector", "file": str(file), "topic": topic})
        until(lambda: self.committed(topic) >= 1)
        seconds = time.monotonic() - began
        worker.delete(topic)
        return seconds

    def latency(self, worker: Worker, count: int = 60) -> float:
        """A line in a file to its committed record: the median."""
        topic = self.name(worker, "latency")
        file = self.folder / f"{topic}.txt"
        file.write_text("first\n")
        worker.put(topic, {"connector.class": f"{FILE}SourceConnector", "file": str(file), "topic": topic})
        until(lambda: self.committed(topic) >= 1)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
            }
        )
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is not None)
        took = []
        for number in range(count):
            time.sleep(0.05 + (number * 37 % 100) / 1000)
            began = time.monotonic()
            with file.open("a") as out:
                out.write(f"{number}\n")
            until(lambda: consumer.poll(0.2) is not None, pause=0)
            took.append(time.monotonic() - began)
        consumer.close()
        worker.delete(topic)
        return statistics.median(took)

    def idle(self, worker: Worker, count: int = 50, seconds: float = 20) -> float:
        """Cores that so many connectors cost while nothing happens."""
        names = []
        for _ in range(count):
            name = self.name(worker, "idle")
            file = self.folder / f"{name}.txt"
            file.write_text("one\n")
            worker.put(
                name, {"connector.class": f"{FILE}SourceConnector", "file": str(file), "topic": "idle"}
            )
            names.append(name)
        for name in names:
            until(lambda name=name: _all_run(worker, name))
        time.sleep(5)  # what the last ones began is over
        cpu, began = worker.cpu, time.monotonic()
        time.sleep(seconds)
        cores = (worker.cpu - cpu) / (time.monotonic() - began)
        for name in names:
            worker.delete(name)
        return cores

    def kill(self, side: str, class_path: str) -> float:
        """Two workers share connectors; one is killed: seconds until all tasks run on the other."""
        workers = [Worker(side, self.bootstrap, self.folder, class_path, "kill") for _ in range(2)]
        names = []
        for number in range(6):
            name = f"kill-{side}-{number}"
            file = self.folder / f"{name}.txt"
            file.write_text("one\n")
            settings = {"connector.class": f"{FILE}SourceConnector", "file": str(file), "topic": name}
            workers[0].put(name, settings)
            names.append(name)
        for name in names:
            until(lambda name=name: _all_run(workers[0], name))
        for name in names:
            until(lambda name=name: self.committed(name) >= 1)
        time.sleep(2)
        began = time.monotonic()
        workers[1].process.kill()
        for name in names:
            with (self.folder / f"{name}.txt").open("a") as out:
                out.write("two\n")
        for name in names:
            until(lambda name=name: self.committed(name) >= 3)
        seconds = time.monotonic() - began
        for worker in workers:
            worker.stop()
        return seconds


def _all_run(worker: Worker, name: str) -> bool:
    try:
        found = worker.ask("GET", f"/connectors/{name}/status")
    except urllib.error.HTTPError:
        return False
    return bool(found["tasks"]) and all(task["state"] == "RUNNING" for task in found["tasks"])


def measure(bench: Bench, side: str, wanted: set[str], class_path: str) -> dict[str, float]:
    found: dict[str, float] = {}
    if wanted - {"kill"}:
        worker = Worker(side, bench.bootstrap, bench.folder, class_path)
        found["start s"] = worker.start_seconds
        bench.first_record(worker)
        topic = ""
        if wanted & {"source", "sink"}:
            bench.source(worker)
            seconds, cpu, topic = bench.source(worker)
            found["source lines/s"] = bench.lines / seconds
            found["source CPU s per 100,000"] = cpu / bench.lines * 100_000
        if "sink" in wanted:
            bench.sink(worker, topic)
            # They take less than a second each: one of five.
            seconds, cpu = sorted(bench.sink(worker, topic) for _ in range(5))[2]
            found["sink lines/s"] = bench.lines / seconds
            found["sink CPU s per 100,000"] = cpu / bench.lines * 100_000
        if "transforms" in wanted:
            bench.source(worker, CHAIN)
            seconds, cpu, _ = bench.source(worker, CHAIN)
            found["five transforms lines/s"] = bench.lines / seconds
            found["five transforms CPU s per 100,000"] = cpu / bench.lines * 100_000
        if "first" in wanted:
            found["new connector to first record s"] = statistics.median(
                bench.first_record(worker) for _ in range(5)
            )
        if "latency" in wanted:
            found["line to record p50 ms"] = bench.latency(worker) * 1000
        if "idle" in wanted:
            found["50 idle connectors cores"] = bench.idle(worker)
        worker.stop()
    if "kill" in wanted:
        found["kill to all records s"] = bench.kill(side, class_path)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--only", default="source,sink,transforms,first,latency,idle,kill")
    parser.add_argument("--side", choices=("ours", "java"))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="connect-bench-"))
    jars = folder / "class-path"
    pom = ROOT / "tests" / "interop" / "connect-java" / "pom.xml"
    sides = [given.side] if given.side else ["ours", "java"]
    if "java" in sides:
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:build-classpath"]
        subprocess.run([*command, f"-Dmdep.outputFile={jars}"], check=True)
    class_path = jars.read_text() if jars.exists() else ""
    try:
        with Broker() as broker:
            bench = Bench(broker.bootstrap_servers, folder, given.lines)
            found = {side: measure(bench, side, set(given.only.split(",")), class_path) for side in sides}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{'':38}"
        + "".join(f"{side:>12}" for side in sides)
        + (f"{'ours/java':>12}" if len(sides) == 2 else "")
    )
    for name in next(iter(found.values())):
        values = [found[side][name] for side in sides]
        ratio = f"{values[0] / values[1]:12.2f}" if len(values) == 2 and values[1] else ""
        print(f"{name:38}" + "".join(f"{value:12,.2f}" for value in values) + ratio)


if __name__ == "__main__":
    main()
