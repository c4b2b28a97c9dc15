"""Crash points by the thousand: `python tests/faults/power_loss/run.py --points 10000`, or `make power-loss`.

A trace is recorded (`workload.py`). Then the power goes at points of it, under each model (`disk.py`); what
the disk may hold is laid out, a broker is started on it in this process, and everything promised by then must
be there (`check.py`). Each run takes other points, by its seed. Results are kept per version of the broker's
source in the state file, so that an interrupted run goes on and the counts of several runs add up.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.faults.power_loss import trace, workload
from tests.faults.power_loss.check import Promised, violations
from tests.faults.power_loss.disk import Disk, Model
from tests.faults.source_version import source_version

MODELS: tuple[Model, ...] = ("strict", "ordered")


class Broken(NamedTuple):
    point: int
    model: Model
    problems: list[str]


def crash(
    entries: Sequence[trace.Entry], points: Sequence[int], seed: int, folder: Path, sync: bool = True
) -> Iterator[tuple[int, Model, list[str]]]:
    """Cut the power after each of these entries, under both models. Yields what is wrong, usually nothing."""
    disk, promised = Disk(sync), Promised()
    wanted = iter(sorted(set(points)))
    following = next(wanted, None)
    for number, entry in enumerate(entries):
        disk.follow(entry)
        if entry.what["do"] == "ack":
            promised.hear(entry.what)
        if number != following:
            continue
        for model in MODELS:
            image = folder / "image"
            disk.write_out(image, model, random.Random(f"{seed}/{number}/{model}"))
            yield number, model, violations(image, promised)
            shutil.rmtree(image)
        following = next(wanted, None)


def first_promise(entries: Sequence[trace.Entry]) -> int:
    """Before this entry nothing was promised."""
    return next(number for number, entry in enumerate(entries) if entry.what["do"] == "ack")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--points", type=int, default=2000, help="crash points to try, both models together")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the load runs for one trace")
    parser.add_argument("--seed", type=int, default=None, help="the same points again, given the same trace")
    parser.add_argument("--state", type=Path, default=Path("power_loss_state.json"), help="counts so far")
    parser.add_argument(
        "--keep", type=Path, default=None, help="keep the trace here, and use it if it exists"
    )
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    state = json.loads(options.state.read_text()) if options.state.exists() else {}
    version = source_version()
    counts = state.setdefault(version, {"points": 0, "broken": 0})
    began, tried = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="power-loss-", dir=_memory()) as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "trace"
        if not path.exists():
            workload.record(folder, options.seconds)
        entries = trace.read(path)
        choice = range(first_promise(entries), len(entries))
        points = random.Random(seed).sample(choice, min(options.points // len(MODELS), len(choice)))
        print(f"trace of {len(entries)} entries, seed {seed}, source {version}", flush=True)
        for number, model, problems in crash(entries, points, seed, Path(name)):
            tried += 1
            counts["points"] += 1
            if problems:
                counts["broken"] += 1
                print(f"entry {number}, {model}: {len(problems)} broken promises; {problems[0]}", flush=True)
            if tried % 200 == 0 or problems:
                options.state.write_text(json.dumps(state))
                print(f"{tried} points, {tried / (time.monotonic() - began):.1f}/s", flush=True)
    options.state.write_text(json.dumps(state))
    print(
        f"source {version}: {counts['points']} crash points so far, {counts['broken']} with a broken promise"
    )
    return 1 if counts["broken"] else 0


def _memory() -> str | None:
    """Images are made by the thousand: in memory, where there is such a file system."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


if __name__ == "__main__":
    sys.exit(main())
