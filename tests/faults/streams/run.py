"""The long run: `python tests/faults/streams/run.py --kills 100 --seed 7` (or `make faults-streams KILLS=100 SEED=7`).

One broker, one application that counts exactly once, input all the time, kills all the time: Spark's Python workers, the driver, its JVM,
the broker. Some kills take the local stores with them. In the end the application gets the time to catch up, and every input must
have been counted once. Exit code 0 means that it was.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from millstream.client import Admin, ClientConfig, Cluster, NewTopic
from millstream.testing import Broker
from tests.faults.pipeline.feed import Feed
from tests.faults.pipeline.run import SETTINGS
from tests.faults.streams.chaos import StreamsChaos, StreamsDriver
from tests.faults.streams.verdict import Verdict, judge, wait_until_caught_up

PATIENCE = 180.0  # seconds in which nothing is processed, then it stands still


def run(
    folder: Path,
    kills: int,
    seed: int,
    rate: int,
    seconds: float,
    kinds: tuple[str, ...] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[StreamsChaos, StreamsDriver, Verdict]:
    """Kill until there were enough kills or the time is up, then judge. `kinds` come first, one after the other."""
    with Broker(SETTINGS, data_dir=folder / "broker") as broker:
        servers = broker.bootstrap_servers
        with Cluster(ClientConfig.of(servers)) as cluster:
            Admin(cluster).create_topics([NewTopic("input", 2, 1), NewTopic("output", 2, 1)])
        driver = StreamsDriver(servers, "input", "output", folder / "state", folder / "driver.log")
        chaos = StreamsChaos(broker, driver, seed)
        deadline = time.monotonic() + seconds
        try:
            with Feed(servers, "input", 2, rate, lambda: driver.planned):
                driver.start()
                for kind in kinds:
                    chaos.once((kind,))
                while chaos.total < kills and time.monotonic() < deadline:
                    chaos.once()
                    left = deadline - time.monotonic()
                    tell(f"{chaos.total} kills, {driver.batches} batches, {left:.0f} s left")
            tell("catching up")
            if not wait_until_caught_up(servers, "input", "output", PATIENCE):
                tell(
                    f"no progress for {PATIENCE:.0f} s; the driver's last words:\n{driver.log.read_text()[-2000:]}"
                )
            return chaos, driver, judge(servers, "input", "output")
        finally:
            driver.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kill an exactly-once application again and again, and check."
    )
    parser.add_argument("--kills", type=int, default=100, help="how often to kill (default 100)")
    parser.add_argument("--seed", type=int, help="to repeat a run (default: a new one)")
    parser.add_argument("--rate", type=int, default=400, help="input records a second (default 400)")
    parser.add_argument(
        "--seconds", type=float, default=3600, help="end earlier, after so many seconds of kills"
    )
    parser.add_argument("--keep", type=Path, help="where to leave files and logs after a violation")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    folder = Path(tempfile.mkdtemp(prefix="millstream-streams-faults-"))
    print(f"seed {seed}: {given.kills} kills", flush=True)
    began = time.monotonic()
    try:
        chaos, driver, verdict = run(folder, given.kills, seed, given.rate, given.seconds, tell=_progress)
        kinds = ", ".join(f"{count} of the {kind}" for kind, count in sorted(chaos.kills.items()))
        for line in sorted(set(driver.failures())):
            print(f"  query {line}")
        for problem in verdict.problems[:20]:
            print(f"  {problem}")
        print(
            f"seed {seed}: {chaos.total} kills ({kinds}), {chaos.lost_commits} lost commit files, "
            f"{chaos.moves} times without the local stores, {verdict}, {time.monotonic() - began:.0f} s"
        )
        if verdict.wrong and given.keep is not None:
            shutil.copytree(folder, given.keep, dirs_exist_ok=True)
        return 1 if verdict.wrong else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _progress(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
