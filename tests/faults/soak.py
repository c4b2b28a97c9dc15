"""The long run: `python tests/faults/soak.py --kills 500 --seed 7` (or `make faults KILLS=500 SEED=7`).

Rounds of kills, each with topics of its own, all on one broker; after each round the history is checked, and
what is wrong is printed with the seed. Exit code 0 means that nothing was.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from millstream.testing import Broker
from tests.faults.chaos import Chaos
from tests.faults.checker import check
from tests.faults.rounds import SETTINGS, Round, play, remove

KILLS_PER_ROUND = 20


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kill a broker again and again, and check what its clients saw."
    )
    parser.add_argument("--kills", type=int, default=100, help="how often to kill (default 100)")
    parser.add_argument("--seconds", type=float, default=1e9, help="no more kills after this time")
    parser.add_argument("--seed", type=int, help="to repeat a run (default: a new one)")
    parser.add_argument("--rate", type=int, default=3000, help="plain records a second (default 3000)")
    parser.add_argument("--between", type=float, default=1.5, help="most seconds between two faults")
    parser.add_argument(
        "--keep", type=Path, help="where to leave the broker's files and log after a violation"
    )
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}: {options.kills} kills", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="millstream-faults-"))
    began = time.monotonic()
    records = wrong = 0
    broker = Broker(SETTINGS, data_dir=folder / "data").start()
    try:
        chaos = Chaos(broker, seed)
        number = 0
        end = began + options.seconds
        while chaos.kills < options.kills and not wrong and time.monotonic() < end:
            number += 1
            this = Round(number, rate=options.rate)
            kills = min(KILLS_PER_ROUND, options.kills - chaos.kills)
            history = play(
                this, broker.bootstrap_servers, chaos, kills, seed, options.between, end, _progress
            )
            violations = check(history)
            records += history.count()
            took = time.monotonic() - began
            print(
                f"\rround {number}: {chaos.kills} kills, {chaos.pauses} pauses, {chaos.damages} damaged "
                "files, "
                f"{records:,} records, {len(violations)} violations, {took:.0f} s",
                flush=True,
            )
            for violation in violations[:50]:
                print(f"  {violation}", flush=True)
            wrong += len(violations)
            if not wrong:
                remove(this, broker.bootstrap_servers)
        print(
            f"seed {seed}: {chaos.kills} kills, {chaos.pauses} pauses, {records:,} records, "
            f"{wrong} violations in {time.monotonic() - began:.0f} s"
        )
        if wrong and options.keep is not None:
            broker.kill()
            options.keep.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder / "data", options.keep / "data", dirs_exist_ok=True)
            (options.keep / "broker.log").write_text(broker.log)
            print(f"files and log of the broker: {options.keep}")
    finally:
        broker.kill()
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


def _progress(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r  {text} ", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
