"""The Spark queries of one pipeline: start, watch, restart, stop.

Once a pipeline has finished a batch, it is started again from its checkpoint when it fails, a few times, with
a pause that doubles. Some good batches in a row give it all of its tries again. One that has never finished a
batch has something wrong with it that a second try does not mend (but see PASSING).
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from millstream.spark.errors import PipelineError
from millstream.spark.runner.pipeline_file import App, Settings, reason
from millstream.spark.runner.progress import take_in
from millstream.spark.runner.sink_check import check_sink
from millstream.spark.runner.status_records import (
    ENDED,
    FAILED,
    FINISHED,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    QueryStatus,
    Status,
)

FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
GOOD_BATCHES = 10  # of one query since its start: what went wrong before is over
LAST_REPORTS = 2.0
# Failures that are the machine's, not the pipeline's: Spark gives a new Python process ten seconds, whatever
# the load is.
PASSING = ("Python worker failed to connect back",)


class Listener:
    """Hands each report on to the pipeline whose query it is. Spark calls it in a thread of its own."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[Queries, str]] = {}
        self._java: Any = None

    def own(self, run_id: str, owner: "Queries", name: str) -> None:
        self._owners[run_id] = (owner, name)

    def reported(self, progress: dict[str, Any]) -> None:
        found = self._owners.get(str(progress["runId"]))
        if found is not None:
            found[0].progressed(found[1], progress)

    @property
    def _jlistener(self) -> Any:
        """What PySpark gives to the JVM for this listener: one that asks for the JSON of a report."""
        if self._java is None:
            from pyspark import SparkContext

            jvm: Any = SparkContext._jvm
            self._java = jvm.PythonStreamingQueryListenerWrapper(_CalledByJava(self))
        return self._java


class _CalledByJava:
    """PySpark's own listener takes a report apart by some hundred calls back to the JVM. On a busy machine
    that takes longer than a batch, and the reports fall behind the queries. The report's JSON is two
    calls."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def onQueryProgress(self, event: Any) -> None:
        self._listener.reported(json.loads(event.progress().json()))

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


class Queries:
    def __init__(
        self,
        app: App,
        spark: Any,
        settings: Settings,
        status: Status,
        listener: Listener,
        *,
        restarts: int = 3,
        available_now: bool = False,
        settle: Callable[[Collection[str]], None] | None = None,
    ) -> None:
        """`settle` gets the ids of queries that were stopped for good, which may have left something
        open."""
        self._app = app
        self._spark = spark
        self._settings = settings
        self.status = status
        self._listener = listener
        self._restarts = self._restarts_left = restarts
        self._available_now = available_now
        self._running: dict[str, Any] = {}
        self._settle = settle
        self._query_ids: set[str] = set()  # of Spark's queries; asked for while there is a JVM to ask
        self._batches: dict[str, int] = {}  # finished since the last start
        self._has_worked = False  # in this run, before any start
        self._pause = FIRST_PAUSE
        self._again_at: float | None = None
        self._lock = threading.Lock()
        self.changed = threading.Event()  # something to report

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        made = self._app.build(self._spark, self._settings)
        with self._lock:
            known = {one.name: one for one in self.status.queries}
            self.status.queries = [known.get(name, QueryStatus(name)) for name in made]
            self._batches = dict.fromkeys(made, 0)
        self._running = {}
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.status.pipeline)
        try:
            for one in () if self._has_worked else made.values():
                check_sink(one)
            for name, one in made.items():
                self._running[name] = self._started(name, one)
                self._listener.own(str(self._running[name].runId), self, name)
                if (query_id := getattr(self._running[name], "id", None)) is not None:
                    self._query_ids.add(str(query_id))
        except Exception as error:
            self._stop_all(0)
            raise PipelineError(reason(error)) from error
        self._set_state(RUNNING)

    def _started(self, name: str, one: Any) -> Any:
        if hasattr(one, "awaitTermination"):
            return one
        writer = one.queryName(name).option("checkpointLocation", f"{self._settings.checkpoint}/{name}")
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def check(self) -> bool:
        """Look after the queries. False when the pipeline has ended."""
        if self._again_at is not None:
            if time.monotonic() >= self._again_at:
                self._again_at = None
                self._try_again()
            return self.status.state not in ENDED
        for name, query in self._running.items():
            if hasattr(query, "report"):  # runs on the host: Spark has nothing to say about it
                report = query.report()
                if report is not None:
                    self.progressed(name, report)
        for query in self._running.values():
            error = query.exception() if not query.isActive else None
            if error is not None:
                self._failed(error)
                return self.status.state != FAILED
        if all(not query.isActive for query in self._running.values()):
            self._last_reports()
            self._set_state(FINISHED)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        self.status.last_error = reason(error)
        worked = self._has_worked or any(text in str(error) for text in PASSING)
        self._stop_all(0)
        if max(self._batches.values(), default=0) > GOOD_BATCHES:
            self._pause, self._restarts_left = FIRST_PAUSE, self._restarts
        self._batches = dict.fromkeys(self._batches, 0)  # the next start may fail before it counts anew
        if not worked or self._restarts_left <= 0:
            self._end_what_is_open()
            self._set_state(FAILED)
            return
        self._restarts_left -= 1
        self.status.restarts += 1
        self._again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE)
        self._set_state(STARTING)

    def _try_again(self) -> None:
        try:
            self.start()
        except PipelineError as error:
            self._failed(error)

    def stop(self, grace: float) -> None:
        """Let the batches under way end, then stop."""
        self._again_at = None
        if self.status.state in ENDED:
            return
        self._set_state(STOPPING)
        self._stop_all(grace)
        self._end_what_is_open()
        self._last_reports()
        self._set_state(STOPPED)

    def fail(self, text: str) -> None:
        """For good, because nothing can run any more."""
        self._again_at = None
        self.status.last_error = text
        self._stop_all(0)
        self._end_what_is_open()
        self._set_state(FAILED)

    def _end_what_is_open(self) -> None:
        """A pipeline that is started again does so itself."""
        if self._settle is not None and self._query_ids:
            self._settle(self._query_ids)

    def _last_reports(self) -> None:
        """Spark hands its reports on in a thread of its own: wait a moment for the last ones."""
        deadline = time.monotonic() + LAST_REPORTS
        for one in self.status.queries:
            query = self._running.get(one.name)
            last = None if query is None else query.lastProgress
            while last is not None and one.batch < last.batchId and time.monotonic() < deadline:
                time.sleep(0.02)

    def _stop_all(self, grace: float) -> None:
        deadline = time.monotonic() + grace
        before = dict(self._batches)
        waiting = dict(self._running)
        while waiting and time.monotonic() < deadline:
            for name, query in list(waiting.items()):
                # Between two batches is a good moment. With new data always there it is short, but a batch
                # that was only just planned loses nothing by being planned again.
                if not _in_a_batch(query) or self._batches.get(name, 0) > before.get(name, 0):
                    _stop(query)
                    del waiting[name]
            time.sleep(0.02)
        for query in waiting.values():
            _stop(query)

    # --- what Spark reports ---------------------------------------------------------------------------------

    def progressed(self, name: str, progress: dict[str, Any]) -> None:
        with self._lock:
            self._batches[name] = self._batches.get(name, 0) + 1
            self._has_worked = True
            for one in self.status.queries:
                if one.name == name:
                    take_in(one, progress, round(time.time() * 1000))
        self.changed.set()

    def _set_state(self, state: str) -> None:
        with self._lock:
            self.status.state = state
            for one in self.status.queries:
                if state != RUNNING or one.state == STARTING:
                    one.state = state
        self.changed.set()


def _in_a_batch(query: Any) -> bool:
    try:
        return bool(query.isActive and query.status["isTriggerActive"])
    except PySparkException:
        return False


def _stop(query: Any) -> None:
    with contextlib.suppress(PySparkException, Py4JError, OSError):  # the JVM may be gone
        query.stop()
