"""The long run: `python tests/faults/pipeline/run.py --kills 100 --seed 7` (or `make faults-pipeline KILLS=100 SEED=7`).

One broker, one exactly-once pipeline, input all the time, kills all the time. In the end the pipeline gets the time to catch
up, and every input must have had its effect once. Exit code 0 means that it had.
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
from tests.faults.pipeline.chaos import PipelineChaos
from tests.faults.pipeline.driver import Driver
from tests.faults.pipeline.feed import Feed
from tests.faults.pipeline.verdict import Verdict, judge, wait_until_caught_up

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "log.flush.interval.messages": "9223372036854775807",
}
SHAPES = ("map", "shuffle")
PATIENCE = 180.0  # seconds without a new row in the output, then it stands still


def run(
    folder: Path,
    kills: int,
    seed: int,
    shape: str,
    rate: int,
    seconds: float,
    kinds: tuple[str, ...] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[PipelineChaos, Driver, Verdict]:
    """Kill until there were enough kills or the time is up, then judge. `kinds` come first, one after the other."""
    with Broker(SETTINGS, data_dir=folder / "broker") as broker:
        servers = broker.bootstrap_servers
        with Cluster(ClientConfig.of(servers)) as cluster:
            Admin(cluster).create_topics([NewTopic("input", 3, 1), NewTopic("output", 2, 1)])
        driver = Driver(servers, "input", "output", folder / "checkpoint", shape, folder / "driver.log")
        chaos = PipelineChaos(broker, driver, seed)
        deadline = time.monotonic() + seconds
        try:
            with Feed(servers, "input", 3, rate, lambda: driver.planned):
                driver.start()
                for kind in kinds:
                    chaos.once((kind,))
                while chaos.total < kills and time.monotonic() < deadline:
                    chaos.once()
                    tell(
                        f"{chaos.total} kills, {driver.batches} batches, {deadline - time.monotonic():.0f} s left"
                    )
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
        description="Kill an exactly-once pipeline again and again, and check its output."
    )
    parser.add_argument("--kills", type=int, default=100, help="how often to kill (default 100)")
    parser.add_argument("--seed", type=int, help="to repeat a run (default: a new one)")
    parser.add_argument("--shape", choices=SHAPES, help="the kind of query (default: by seed)")
    parser.add_argument("--rate", type=int, default=600, help="input records a second (default 600)")
    parser.add_argument(
        "--seconds", type=float, default=3600, help="end earlier, after so many seconds of kills"
    )
    parser.add_argument("--keep", type=Path, help="where to leave files and logs after a violation")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    shape = given.shape or SHAPES[seed % 2]
    folder = Path(tempfile.mkdtemp(prefix="millstream-pipeline-faults-"))
    print(f"seed {seed}, {shape}: {given.kills} kills", flush=True)
    began = time.monotonic()
    try:
        chaos, driver, verdict = run(
            folder, given.kills, seed, shape, given.rate, given.seconds, tell=_progress
        )
        kinds = ", ".join(f"{count} of the {kind}" for kind, count in sorted(chaos.kills.items()))
        for line in sorted(set(driver.failures())):
            print(f"  query {line}")
        for label, names in (
            ("missing", verdict.missing),
            ("repeated", verdict.repeated),
            ("unknown", verdict.unknown),
        ):
            for name in names[:20]:
                print(f"  {label}: input {name}")
        print(
            f"seed {seed}, {shape}: {chaos.total} kills ({kinds}), {chaos.lost_commits} lost commit files, "
            f"{driver.batches} batches, {verdict}, "
            f"{time.monotonic() - began:.0f} s"
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
