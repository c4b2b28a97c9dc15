"""The broker of two checkouts, side by side: what a request costs before and after a change.

    python benchmarks/before_after.py --before ../old [--after .] [--pairs 11] [--seconds 3] [--only fetch]

Both brokers run at the same time with the same settings, each from the `src` of its checkout; one has work at
a time, in pairs whose order turns (before-after, after-before, ...). Judged is the CPU time of the broker
process for each request: unlike wall time it hardly depends on what else the machine does.

Brokers and load share one core. With a core each, both would fall asleep after every request of a single
connection, and whether a core has to be woken, and which, says more about the CPU time of a request than its
code does. What waking costs is left out on both sides, so a change in the code weighs more, not less.

A pair gives one ratio, after / before; a row shows the median and the interval of order statistics that holds
the true median with at least 95 %. A row is within the limit when its median is at most 1.02, or when its
interval contains 1 and stays inside 0.96..1.04: then the machine is too noisy to tell, and the change too
small to matter. Wall time is printed and not judged. Exit code 1 if a row is not within the limit.
"""

import argparse
import itertools
import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import brokers
import common
import load
import members
from apache_kafka import Unavailable

LIMIT = 1.02
NOISE = 0.04
CONFIDENCE = 0.95
HERE = Path(__file__).resolve().parents[1]
SETTINGS = {"group.initial.rebalance.delay.ms": "300", "offsets.topic.num.partitions": "1"}
FETCH_BYTES = 65536
LOG_BYTES = 100_000_000
COMMITS_IN_FLIGHT = 5
MEMBERS = 10


class Checkout(brokers.Millstream):
    """The broker of another source tree, with the dependencies of this interpreter."""

    def __init__(self, name: str, folder: Path, log_dir: Path) -> None:
        super().__init__(log_dir, SETTINGS)
        self.name = name
        self.source = folder.resolve() / "src"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(self.source)}

    def check(self) -> None:
        """Refuse to compare a package that comes from elsewhere."""
        command = [sys.executable, "-c", "import millstream; print(millstream.__file__)"]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)
        if not done.stdout.startswith(str(self.source)):
            raise Unavailable(f"no millstream in {self.source}: {done.stdout}{done.stderr}")


@dataclass(frozen=True)
class Cost:
    """One run."""

    cpu_us: float  # for each request
    wall_us: float


@dataclass(frozen=True)
class Workload:
    """`prepare` makes what `run` needs, once for each broker; `run` returns (requests, seconds)."""

    name: str
    run: Callable[[Checkout, float], tuple[float, float]]
    prepare: Callable[[Checkout], None] = lambda _broker: None


def produce(name: str, record_bytes: int, connections: int) -> Workload:
    topic = f"produce-{connections}"

    def run(broker: Checkout, seconds: float) -> tuple[float, float]:
        options = {"batch_bytes": 0, "record_bytes": record_bytes, "in_flight": 1, "connections": connections}
        result = load.produce(broker, topic, seconds=seconds, **options)
        return result["requests"], result["seconds"]

    return Workload(name, run, lambda broker: brokers.create_topic(broker, topic))


def fetch() -> Workload:
    def prepare(broker: Checkout) -> None:
        brokers.create_topic(broker, "fetch")
        load.produce(broker, "fetch", batch_bytes=16384, max_bytes=LOG_BYTES, seconds=600)
        brokers.write_back(broker.log_dir)

    def run(broker: Checkout, seconds: float) -> tuple[float, float]:
        result = load.fetch(broker, "fetch", fetch_bytes=FETCH_BYTES, seconds=seconds)
        return result["requests"], result["seconds"]

    return Workload("fetch 64 KB, 1 connection", run, prepare)


def commit_offsets(broker: Checkout, seconds: float) -> tuple[float, float]:
    """One connection that commits one partition at a time, a few requests in flight."""
    connection = members.Line(broker.port)
    began = time.perf_counter()
    frames = (members.commit_frame("committing", [("fetch", [0])], offset) for offset in itertools.count())
    for _ in range(COMMITS_IN_FLIGHT):
        connection.socket.sendall(next(frames))
    done = 0
    while time.perf_counter() - began < seconds:
        if members.refused(connection.frame()):
            raise brokers.Failed(f"{broker.name}: a commit was refused")
        done += 1
        connection.socket.sendall(next(frames))
    for _ in range(COMMITS_IN_FLIGHT):
        connection.frame()
    connection.close()
    return done + COMMITS_IN_FLIGHT, time.perf_counter() - began


def join_group(broker: Checkout, seconds: float) -> tuple[float, float]:
    """Rounds of a classic group: all members join with new metadata, the leader assigns, all sync. A round
    counts as one JoinGroup and one SyncGroup for each member."""
    group = f"joining-{uuid.uuid4().hex[:8]}"
    connections = [members.Line(broker.port) for _ in range(MEMBERS)]
    ids = [members.NO_MEMBER] * MEMBERS
    requests = 0
    began = time.perf_counter()

    def join(number: int) -> list[tuple[int, str, str]]:
        """(error, member, leader) of each, in the round with this number."""
        metadata = struct.pack(">hii", 1, 0, -1) + struct.pack(">i", number)
        for connection, member in zip(connections, ids, strict=True):
            connection.send(
                "join_group",
                5,
                group_id=group,
                session_timeout=30_000,
                rebalance_timeout=60_000,
                member_id=member,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": metadata}],
            )
        answers = [connection.answer("join_group", 5) for connection in connections]
        generations.update(answer.generation_id for answer in answers)
        return [(answer.error_code, answer.member_id, answer.leader) for answer in answers]

    generations: set[int] = set()
    try:
        ids = [member for _, member, _ in join(0)]  # refused with the id to join with
        for number in itertools.count(1):
            generations.clear()
            joined = join(number)
            if any(error for error, _, _ in joined) or len(generations) != 1:
                raise brokers.Failed(f"{broker.name}: not all members joined one generation: {joined}")
            (generation,) = generations
            for connection, (_, member, leader) in zip(connections, joined, strict=True):
                given = [{"member_id": each, "assignment": b"share"} for each in ids]
                connection.send(
                    "sync_group",
                    3,
                    group_id=group,
                    generation_id=generation,
                    member_id=member,
                    group_instance_id=None,
                    assignments=given if member == leader else [],
                )
            if any(connection.answer("sync_group", 3).error_code for connection in connections):
                raise brokers.Failed(f"{broker.name}: a SyncGroup was refused")
            if number == 1:
                began = time.perf_counter()  # the initial rebalance delay is over
            requests += 2 * MEMBERS
            if time.perf_counter() - began >= seconds:
                return requests, time.perf_counter() - began
    finally:
        for connection in connections:
            connection.close()
    raise AssertionError("unreachable")


WORKLOADS = (
    produce("produce 100 bytes, 1 connection", 100, 1),
    produce("produce 1 KB, 50 connections", 1000, 50),
    fetch(),
    Workload("offset commit, 1 connection", commit_offsets, members.find_coordinator),
    Workload(f"JoinGroup round of {MEMBERS} members", join_group, members.find_coordinator),
)


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads, in nanoseconds where the kernel counts them."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:
        return brokers.cpu_seconds(pid)


def measure(workload: Workload, broker: Checkout, seconds: float) -> Cost:
    brokers.settle()
    before = cpu_seconds(broker.pid)
    requests, taken = workload.run(broker, seconds)
    cpu = cpu_seconds(broker.pid) - before
    return Cost(cpu / requests * 1e6, taken / requests * 1e6)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics around the median that holds the true one with CONFIDENCE; with
    too few pairs for that, smallest and largest."""
    ordered, count = sorted(ratios), len(ratios)
    rank = 0
    while rank + 1 < count / 2 and _coverage(count, rank + 1) >= CONFIDENCE:
        rank += 1
    return ordered[rank], ordered[count - 1 - rank]


def _coverage(count: int, rank: int) -> float:
    """How often the median lies between the order statistics `rank` places from either end, counted from
    0."""
    return 1 - 2 * sum(comb(count, below) for below in range(rank + 1)) / 2**count


def within_limit(ratios: Sequence[float]) -> bool:
    low, high = interval(ratios)
    return median(ratios) <= LIMIT or (1 - NOISE <= low <= 1 <= high <= 1 + NOISE)


def compare(workload: Workload, sides: Sequence[Checkout], pairs: int, seconds: float) -> bool:
    """Measure one workload and print its row."""
    for broker in sides:
        workload.prepare(broker)
        measure(workload, broker, seconds)
    found: dict[str, list[Cost]] = {broker.name: [] for broker in sides}
    for pair in range(pairs):
        for broker in sides if pair % 2 == 0 else sides[::-1]:
            found[broker.name].append(measure(workload, broker, seconds))
    runs = list(zip(found["before"], found["after"], strict=True))
    ratios = [after.cpu_us / before.cpu_us for before, after in runs]
    low, high = interval(ratios)
    fine = within_limit(ratios)
    wall = median(after.wall_us / before.wall_us for before, after in runs)
    cells = [median(cost.cpu_us for cost in found[side]) for side in ("before", "after")]
    print(
        f"{workload.name:<34} {cells[0]:>10.1f} {cells[1]:>10.1f} {median(ratios):>7.3f}  "
        f"{low:.3f}..{high:.3f}  {wall:>7.3f}  {'ok' if fine else 'SLOWER'}",
        flush=True,
    )
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--after", type=Path, default=HERE, help="the other one (default: this one)")
    parser.add_argument("--pairs", type=int, default=11, help="pairs of runs for each row (default 11)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a run (default 3)")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--dir", type=Path, help="where the data lie (default: the temporary folder)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    print("; ".join(f"{key} {value}" for key, value in common.machine().items()), flush=True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the brokers and the load inherit it
    fine = True
    with TemporaryDirectory(prefix="millstream-bench-", dir=given.dir, ignore_cleanup_errors=True) as folder:
        sides = [Checkout(name, getattr(given, name), Path(folder) / name) for name in ("before", "after")]
        try:
            load.generator()
            for broker in sides:
                broker.check()
                brokers.start(broker)
            print(
                f"{'broker CPU in us for a request':<34} {'before':>10} {'after':>10}   ratio  interval "
                "       wall"
            )
            for workload in WORKLOADS:
                if given.only in workload.name:
                    fine &= compare(workload, sides, given.pairs, given.seconds)
        except (Unavailable, brokers.Failed) as failure:
            print(f"before_after: {failure}", file=sys.stderr)
            return 2
        finally:
            for broker in sides:
                broker.kill()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
