"""How long `millstream up` takes from the command to all services ready, and the CPU time of all its
processes until then.

    python benchmarks/up_start.py [--runs 5] [--only broker,registry]

Each run is a fresh process with a fresh folder (--ephemeral). CPU is read from /proc when the table of
addresses appears.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """User and system seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def resident(pid: int) -> float:
    """Its share of memory in MB: what several processes share counts for each a part."""
    try:
        found = re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0
    except OSError:
        return 0.0


def one_run(words: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as state:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "up", "--ephemeral", "--port-base", "0", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": state, "XDG_DATA_HOME": state},
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("Ready in"):
                    break
            else:
                raise SystemExit("it did not become ready")
            wall = time.monotonic() - began
            folder = Path(next(Path(state).glob("millstream/up/*")).read_text())
            services = json.loads((folder / "run" / "up.json").read_text())["services"]
            pids = {"supervisor": process.pid, **{one["name"]: one["pid"] for one in services}}
            found = {f"{name} cpu": cpu(pid) for name, pid in pids.items()}
            memory = sum(resident(pid) for pid in pids.values())
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    return {"wall": wall, "cpu": sum(found.values()), "memory MB": memory, **found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="start these services only")
    arguments = parser.parse_args()
    words = ["--only", arguments.only] if arguments.only else []
    one_run(words)  # fills caches of files and of bytecode
    runs = []
    for number in range(arguments.runs):
        runs.append(one_run(words))
        print(f"run {number + 1}: wall {runs[-1]['wall']:.2f} s, CPU {runs[-1]['cpu']:.2f} s", flush=True)
    for name in runs[0]:
        values = sorted(run[name] for run in runs)
        print(
            f"{name:<16} median {statistics.median(values):7.2f}  best {values[0]:7.2f}  worst "
            f"{values[-1]:7.2f}"
        )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
