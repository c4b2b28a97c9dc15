"""The long run: `python tests/faults/spark/run.py pipeline --kills 100 --seed 7` (or `make faults-pipeline
KILLS=100 SEED=7`), and the same with `streams`, `sql` and `connect`.

One broker, one exactly-once application, input all the time, kills all the time: Spark's Python workers, the
driver, its JVM, the broker; with Streams some kills take the local stores with them; with SQL and Connect
there are two services, of which one is killed, alone or with all of its processes. In the end the application
gets the time to catch up, and every input must have had its effect once. Exit code 0 means that it had.
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

from tests.faults.spark.chaos import RESTLESS
from tests.faults.spark.harness import Subject, run
from tests.faults.spark.pipeline import SHAPES, Pipeline
from tests.faults.spark.services import ConnectWorker, SqlServer
from tests.faults.spark.streams import StreamsApplication

# A service starts its Spark again before it goes on, which takes minutes on a busy machine: without this
# patience most kills would hit what does not run yet. One in five still does.
SERVICE_PATIENCE, HASTY = 300.0, 0.2
RATES = {"pipeline": 600, "streams": 400, "sql": 400, "connect": 400}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kill an exactly-once application again and again, and check its output."
    )
    parser.add_argument("subject", choices=RATES)
    parser.add_argument("--kills", type=int, default=100, help="how often to kill (default 100)")
    parser.add_argument("--seed", type=int, help="to repeat a run (default: a new one)")
    parser.add_argument("--shape", choices=SHAPES, help="the pipeline's kind of query (default: by seed)")
    parser.add_argument(
        "--services", type=int, choices=(1, 2), default=2, help="how many SQL servers or workers (default 2)"
    )
    parser.add_argument("--rate", type=int, help=f"input records a second (default {RATES})")
    parser.add_argument(
        "--seconds", type=float, default=3600, help="end earlier, after so many seconds of kills"
    )
    parser.add_argument("--keep", type=Path, help="where to leave files and logs after a violation")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    shape = given.shape or SHAPES[seed % 2]
    subjects: dict[str, Callable[[], Subject]] = {
        "pipeline": lambda: Pipeline(shape),
        "streams": StreamsApplication,
        "sql": lambda: SqlServer(given.services),
        "connect": lambda: ConnectWorker(given.services),
    }
    subject = subjects[given.subject]()
    label = f"seed {seed}, {given.subject}{f' ({shape})' if given.subject == 'pipeline' else ''}"
    folder = Path(tempfile.mkdtemp(prefix=f"millstream-{given.subject}-faults-"))
    print(f"{label}: {given.kills} kills", flush=True)
    began = time.monotonic()
    is_service = given.subject in ("sql", "connect")
    try:
        found = run(
            subject,
            folder,
            kills=given.kills,
            seed=seed,
            rate=given.rate or RATES[given.subject],
            seconds=given.seconds,
            patience=SERVICE_PATIENCE if is_service else RESTLESS,
            hasty=HASTY if is_service else 0.0,
            tell=lambda text: print(f"  {text}", flush=True),
        )
        chaos, problems = found.chaos, found.verdict.problems
        for line in sorted(set(found.driver.failures())):
            print(f"  query {line}")
        for problem in problems[:50]:
            print(f"  {problem}")
        kills = ", ".join(f"{count} of the {target}" for target, count in sorted(chaos.kills.items()))
        print(
            f"{label}: {chaos.total} kills ({kills}), {chaos.lost_commits} lost commit files, "
            f"{chaos.moves} times without the local stores, {found.driver.progress}, {found.verdict}, "
            f"{time.monotonic() - began:.0f} s"
        )
        if problems and given.keep is not None:
            shutil.copytree(folder, given.keep, dirs_exist_ok=True)
        return 1 if problems else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
