"""Work that nobody takes: said aloud, in words that say what to do.

Spark waits for ever if a job cannot get a slot: there are no executors (no worker has the cores and the
memory that it asks for, or none can reach this machine), or all slots are taken. It says so in its log only,
at a level that nobody reads. A thread beside the session looks at the stages that Spark has under way and
prints one line when one has waited too long.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 15.0
LOOK_EVERY = 3.0


@dataclass(frozen=True)
class Stage:
    """What Spark says about a stage that is under way."""

    active: int
    completed: int
    failed: int

    @property
    def waits(self) -> bool:
        return self.active == 0 and self.completed == 0 and self.failed == 0


class Waiting:
    """Which stages have waited since when. `look` gives the line to print, once for each time of want."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._master = master
        self._settings = settings
        self._since: dict[int, float] = {}
        self._said = False

    def look(self, stages: Mapping[int, Stage], executors: int, now: float) -> str | None:
        waiting = {number for number, stage in stages.items() if stage.waits}
        self._since = {number: self._since.get(number, now) for number in waiting}
        if not waiting:
            self._said = False
            return None
        longest = now - min(self._since.values())
        if self._said or longest < PATIENCE:
            return None
        self._said = True
        return self._none(longest) if executors == 0 else self._taken(longest)

    def _none(self, seconds: float) -> str:
        cores = self._settings.get("spark.executor.cores", "all cores of a worker")
        memory = self._settings.get("spark.executor.memory", "1g")
        return (
            f"no executor has taken any work for {seconds:.0f} s: {self._master} offers none to this "
            f"application. Each executor asks for {memory} of memory (spark.executor.memory) and {cores} "
            "(spark.executor.cores): is there a worker with so much to spare, and can it reach this machine "
            "(spark.driver.host)?"
        )

    def _taken(self, seconds: float) -> str:
        more = (
            "use a larger local[n]"
            if self._master.startswith("local")
            else "give the application more (spark.cores.max, spark.executor.instances)"
        )
        return (
            f"a job has waited {seconds:.0f} s for a slot: others have all of {self._master} (each lane of a "
            f"Streams application keeps one, spark.millstream.host.lanes); {more}"
        )


def watch_resources(session: "SparkSession", say: Callable[[str], None] | None = None) -> None:
    """Look until the session's SparkContext has stopped."""
    context = session.sparkContext
    waiting = Waiting(context.master or "", dict(context.getConf().getAll()))

    def complain(line: str) -> None:
        print(f"millstream: {line}", file=sys.stderr, flush=True)

    def look() -> None:
        java: Any = context._jsc
        tell = say or complain
        while True:
            time.sleep(LOOK_EVERY)
            try:
                inner = java.sc()
                if context._jsc is not java or inner.isStopped():
                    return
                line = waiting.look(stages_of(inner), _executors(inner, waiting), time.monotonic())
            except Exception:
                return  # the JVM has gone
            if line is not None:
                tell(line)

    threading.Thread(target=look, name="millstream-resources", daemon=True).start()


def stages_of(context: Any) -> dict[int, Stage]:
    """Those that are under way in a SparkContext of Java's."""
    tracker = context.statusTracker()
    found = {}
    for number in list(tracker.getActiveStageIds()):
        info = tracker.getStageInfo(number)
        if info.isDefined():
            about = info.get()
            found[number] = Stage(about.numActiveTasks(), about.numCompletedTasks(), about.numFailedTasks())
    return found


def _executors(context: Any, waiting: Waiting) -> int:
    """All but the driver, which is the executor of a local master."""
    count = int(context.getExecutorMemoryStatus().size())
    return count if context.isLocal() else count - 1
