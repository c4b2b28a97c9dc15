"""Faults of a cluster by the hundred: `python tests/faults/cluster/run.py --faults 1000 --seed 7`, or
`make faults-cluster FAULTS=1000 SEED=7`.

Rounds of faults, each with topics of its own, on three brokers and three ZooKeepers; clients write with
acks=all, in transactions and out of them, and min.insync.replicas is 2. After each round the history is
checked, all replicas must be in sync again and the same byte for byte, and no broker may have ended by
itself. What is wrong is printed with the seed. Exit code 0 means that nothing was. Results are kept for each
version of the broker's source, so that the counts of several runs add up.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.faults.checker import check
from tests.faults.cluster.chaos import ClusterChaos
from tests.faults.cluster.processes import COUNT, Processes
from tests.faults.history import History
from tests.faults.rounds import SETTINGS, Round, play, remove
from tests.faults.source_version import source_version

FAULTS_PER_ROUND = 25
# A leader whose session has to end first, and a ZooKeeper that elects before that.
LONGEST_WAIT = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--faults", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seconds", type=float, default=1e9, help="no more faults after this time")
    parser.add_argument("--seed", type=int, help="to repeat a run (default: a new one)")
    parser.add_argument("--rate", type=int, default=1000, help="plain records a second (default 1000)")
    parser.add_argument("--between", type=float, default=1.0, help="most seconds between two faults")
    parser.add_argument("--state", type=Path, default=Path("cluster_faults_state.json"), help="counts so far")
    parser.add_argument("--keep", type=Path, help="where to leave files and logs after a violation")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}: {options.faults} faults, source {source_version()}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="millstream-faults-cluster-"))
    began = time.monotonic()
    end = began + options.seconds
    records = 0
    wrong: list[str] = []
    try:
        with Processes(folder, SETTINGS) as processes:
            chaos = ClusterChaos(processes, [], seed)
            number = 0
            while chaos.done < options.faults and not wrong and time.monotonic() < end:
                number += 1
                this = Round(number, replicas=COUNT, rate=options.rate)
                count = min(FAULTS_PER_ROUND, options.faults - chaos.done)
                history = one_round(this, processes, chaos, count, seed, options.between, end)
                records += history.count()
                wrong = violations(this, processes, chaos, history)
                print(
                    f"round {number}: {chaos.done} faults, {records:,} records, {len(wrong)} violations, "
                    f"{time.monotonic() - began:.0f} s",
                    flush=True,
                )
                if not wrong:
                    remove(this, processes.bootstrap_servers)
            for text in wrong[:50]:
                print(f"  {text}", flush=True)
            for name, times in sorted(chaos.counts.items()):
                print(f"  {times:4} {name}")
            print(f"seed {seed}: {chaos.done} faults, {records:,} records, {len(wrong)} violations")
            total = add_up(options.state, chaos.done, records, len(wrong))
            print(
                f"source {source_version()}: {total[0]} faults, {total[1]:,} records, {total[2]} violations"
            )
            if wrong and options.keep is not None:
                keep(processes, folder, options.keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


def one_round(
    this: Round,
    processes: Processes,
    chaos: ClusterChaos,
    count: int,
    seed: int,
    between: float,
    end: float = float("inf"),
) -> History:
    chaos.topics = [this.plain, this.ledger, this.derived]
    servers = processes.bootstrap_servers
    return play(this, servers, chaos, count, seed, between, end, longest_wait=LONGEST_WAIT)


def violations(this: Round, processes: Processes, chaos: ClusterChaos, history: History) -> list[str]:
    """What the clients saw, what the brokers did, and what is on their disks."""
    found = [str(each) for each in check(history)] + chaos.problems
    topics = [this.plain, this.ledger, this.derived]
    try:
        processes.wait_until_in_sync(topics)
    except AssertionError as behind:
        return [*found, str(behind)]
    return found + [f"replicas of {name} differ" for name in processes.logs_that_differ(topics)]


def add_up(state: Path, faults: int, records: int, wrong: int) -> list[int]:
    known: dict[str, list[int]] = json.loads(state.read_text()) if state.exists() else {}
    before = known.get(source_version(), [0, 0, 0])
    total = [old + new for old, new in zip(before, (faults, records, wrong), strict=True)]
    state.write_text(json.dumps({**known, source_version(): total}))
    return total


def keep(processes: Processes, folder: Path, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for name, broker in processes.brokers.items():
        (where / f"{name}.log").write_text(broker.log)
        broker.kill()
    shutil.copytree(folder, where / "data", dirs_exist_ok=True)
    print(f"files and logs: {where}")


if __name__ == "__main__":
    sys.exit(main())
