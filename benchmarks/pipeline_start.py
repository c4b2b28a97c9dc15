"""How long a pipeline takes from the command to its first record, on a fresh install and after that.

    python benchmarks/pipeline_start.py [--runs 3] [--only streams] [--processes]

`pipeline` is `millstream pipeline run` with a copy from topic to topic, exactly once; `streams` is a Streams
application that counts. The clock runs from the start of the command until a read_committed reader has the
first record. A fresh install has what pip wrote (packages and their bytecode) and nothing that a first start
leaves behind: compiled loops, an archive of classes. The cold run has an empty folder for these; the warm
runs after it use what it left, once all of its processes have ended.

CPU is that of all processes of the command until the first record. `--processes` prints who used it.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from millstream.client import Admin, ClientConfig, Cluster, Fetcher, NewTopic, Producer, visible_batches
from millstream.client.fetch import next_offset
from millstream.testing import Broker
from millstream.wire.records import Record, iter_records

RESULTS = Path(__file__).resolve().parent / "results"
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 300.0
RECORDS = 1000

COPY = """
def pipeline(spark, settings):
    source = (
        spark.readStream.format("millstream").options(**settings.kafka)
        .option("subscribe", settings["from"]).option("startingOffsets", "earliest").load()
    )
    return (
        source.select("key", "value").writeStream.format("millstream").options(**settings.kafka)
        .option("topic", settings["to"]).option("delivery", "exactly_once")
    )
"""
STREAMS = """
from millstream.streams import Streams, StreamsBuilder

def pipeline(spark, settings):
    builder = StreamsBuilder()
    builder.stream(settings["from"]).group_by_key().count().to_stream().map_values(str).to(settings["to"])
    return Streams(
        builder.build(), settings["id"], bootstrap_servers=settings.bootstrap_servers, state=settings.state
    ).query(spark)
"""
APPLICATIONS = {"pipeline": COPY, "streams": STREAMS}


class Arrival(threading.Thread):
    """When the first record is in a topic."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic = servers, topic
        self.ready = threading.Event()
        self.found = threading.Event()
        self.at = 0.0

    def run(self) -> None:
        positions = {(self._topic, partition): 0 for partition in range(2)}
        with Cluster(ClientConfig.of(self._servers)) as cluster:
            cluster.topic(self._topic)
            fetcher = Fetcher(cluster, read_committed=True)
            self.ready.set()
            while not self.found.is_set():
                for answer in fetcher.poll(positions, 100):
                    key = (answer.topic, answer.partition)
                    for _, batch in visible_batches(answer, positions[key]):
                        if any(True for _ in iter_records(batch)):
                            self.at = time.monotonic()
                            self.found.set()
                    positions[key] = next_offset(answer, positions[key])


class Processes(threading.Thread):
    """CPU seconds and life of every process below one, looked at ten times a second."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._began = time.monotonic()
        self.end = threading.Event()
        self.seen: dict[int, tuple[float, float, float, str]] = {}

    def run(self) -> None:
        while not self.end.wait(0.1):
            parents: dict[int, int] = {}
            found: dict[int, float] = {}
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    with contextlib.suppress(OSError, ValueError):
                        fields = (entry / "stat").read_text().rpartition(")")[2].split()
                        parents[int(entry.name)] = int(fields[1])
                        found[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICKS
            now = time.monotonic() - self._began
            for pid, spent in found.items():
                above: int | None = pid
                while above not in (None, self._root):
                    above = parents.get(above)
                if above == self._root:
                    name = self.seen[pid][3] if pid in self.seen else ""
                    if not name or now - self.seen[pid][0] < 1:
                        with contextlib.suppress(OSError):
                            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                            name = " ".join(word.rpartition("/")[2] for word in words)
                            name = " ".join(w for w in name.split() if not w.startswith("-"))[-90:]
                    first = self.seen[pid][0] if pid in self.seen else now
                    self.seen[pid] = (first, now, spent, name)

    def cpu(self) -> float:
        return sum(spent for _, _, spent, _ in self.seen.values())

    def wait_for_all(self) -> None:
        """Until they have ended: the JVM of a first run still writes its archive."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(Path("/proc", str(pid)).exists() for pid in self.seen):
            time.sleep(0.2)

    def table(self, until: float) -> str:
        lines = [f"{'from':>6} {'to':>6} {'CPU':>6}"]
        for pid, (first, last, spent, name) in sorted(self.seen.items(), key=lambda one: one[1][0]):
            lines.append(f"{first:6.1f} {last:6.1f} {spent:6.1f} {pid} {name}")
        return "\n".join(lines) + f"\n(first record at {until:.1f})"


def one_run(kind: str, servers: str, caches: Path, processes: bool) -> dict[str, float]:
    run = uuid.uuid4().hex[:8]
    source, target = f"in-{run}", f"out-{run}"
    with Cluster(ClientConfig.of(servers)) as cluster:
        Admin(cluster).create_topics([NewTopic(source, 2, 1), NewTopic(target, 2, 1)])
        cluster.wait_for_topics([source, target])
        now = round(time.time() * 1000)
        for partition in range(2):
            rows = [Record(0, now, b"%d" % number, b"x" * 100, ()) for number in range(RECORDS)]
            Producer(cluster).send(source, partition, rows)
    arrival = Arrival(servers, target)
    arrival.start()
    arrival.ready.wait(30)
    with tempfile.TemporaryDirectory(prefix="millstream-start-", ignore_cleanup_errors=True) as home:
        app = Path(home, "copy.py")
        app.write_text(APPLICATIONS[kind])
        words = ["pipeline", "run", str(app), "--bootstrap-server", servers, "--checkpoint", f"{home}/c"]
        given = {"from": source, "to": target, "id": f"app-{run}"}
        words += [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(caches),
            "NUMBA_CACHE_DIR": str(caches / "numba"),
            "MILLSTREAM_HOME": home,
        }
        began = time.monotonic()
        with open(f"{home}/out", "wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "millstream", *words], stdout=out, stderr=out, env=environment
            )
        watch = Processes(child.pid)
        watch.start()
        try:
            while not arrival.found.wait(0.05):
                if child.poll() is not None or time.monotonic() - began > PATIENCE:
                    raise SystemExit(f"it did not start:\n{Path(home, 'out').read_text()[-3000:]}")
            wall = arrival.at - began
        finally:
            watch.end.set()
            child.send_signal(signal.SIGTERM)
            child.wait(120)
        if processes:
            print(watch.table(wall))
        watch.wait_for_all()
    return {"wall": wall, "cpu": watch.cpu()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="warm runs after each cold one (default 3)")
    parser.add_argument("--only", default="", help="only this kind")
    parser.add_argument("--processes", action="store_true", help="print every process of every run")
    given = parser.parse_args()
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        for kind in APPLICATIONS:
            if given.only not in kind:
                continue
            with tempfile.TemporaryDirectory(prefix="millstream-start-") as caches:
                found = results[kind] = {"cold": [], "warm": []}
                for number in range(1 + given.runs):
                    side = "warm" if number else "cold"
                    figures = one_run(kind, broker.bootstrap_servers, Path(caches), given.processes)
                    found[side].append(figures)
                    print(
                        f"{kind:10} {side}: first record after {figures['wall']:.1f} s, "
                        f"CPU {figures['cpu']:.1f} s",
                        flush=True,
                    )
    for kind, sides in results.items():
        for side, runs in sides.items():
            if runs:
                walls = [one["wall"] for one in runs]
                cpus = [one["cpu"] for one in runs]
                print(
                    f"{kind:10} {side}  median {median(walls):5.1f} s ({min(walls):.1f}..{max(walls):.1f}), "
                    f"CPU {median(cpus):.1f} s"
                )
    RESULTS.mkdir(exist_ok=True)
    kept = {"machine": platform.platform(), "cores": os.cpu_count(), "runs": results}
    name = f"pipeline_start-{time.strftime('%Y%m%d-%H%M%S')}.json"
    (RESULTS / name).write_text(json.dumps(kept, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
