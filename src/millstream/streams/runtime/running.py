"""An application that runs: what `Streams.start()` returns.

It looks after what no single task can: partitions that are added to the inputs become tasks, and what all
tasks have read is deleted from the repartition topics. It is a member of a group as long as it runs: another
process that starts the same application takes it over, and this one ends. A task that fails for good fails
the application: its other tasks end too, each with what it has committed.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from millstream.client import Admin, Cluster
from millstream.client.groups import Groups
from millstream.host.membership import PlannerMembership
from millstream.host.metrics import StatusReporter
from millstream.host.planner import FAILED
from millstream.streams.errors import StreamsError, TakenOver
from millstream.streams.runtime.available_now import wait_for_available
from millstream.streams.runtime.task_inputs import input_topics
from millstream.streams.runtime.tasks import application_of, stateful_tasks, task_names
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.host.unit import Application, UnitId, UnitListener, UnitState
    from millstream.streams.runtime.application import Streams
    from millstream.streams.topology import Topology

log = logging.getLogger("millstream.streams")

PURGE_EVERY = 30.0
LOOK_EVERY = 5.0
REPORT_EVERY = 1.0
TELL_EVERY = 0.1
"""How often `state` is looked at for a listener."""
STOP_SECONDS = 10.0

# Kafka Streams' states.
CREATED, REBALANCING, RUNNING = "CREATED", "REBALANCING", "RUNNING"
PENDING_SHUTDOWN, NOT_RUNNING, ERROR = "PENDING_SHUTDOWN", "NOT_RUNNING", "ERROR"


class HostLike(Protocol):
    """What an application needs of a host."""

    @property
    def lost(self) -> str | None:
        """Why nothing runs there any more."""

    def add(self, application: Application, listener: UnitListener = ...) -> None: ...

    def set_units(self, application: str, names: Iterable[str], stateful: Iterable[str] = ()) -> None: ...

    def remove(self, application: str, timeout: float = ...) -> bool: ...

    def states(self, application: str) -> dict[str, UnitState]: ...


class RunningStreams:
    """`awaitTermination`, `stop`, `state`, `exception`, `lag`, as a Spark query has them. With `report` it is
    listed in `__millstream_pipelines`; a pipeline's runner does that itself. With `available_now` it ends by
    itself."""

    def __init__(
        self, streams: Streams, host: HostLike, *, report: bool = False, available_now: bool = False
    ) -> None:
        self._streams, self._host = streams, host
        self.name = streams.settings.application
        self.runId = uuid.uuid4()
        self._error: StreamsError | None = None
        self._reported_at, self._reports, self._read = time.monotonic(), 0, 0
        self._paused = False
        self._listener: Callable[[str, str], None] | None = None
        self._last_state, self._state_lock = CREATED, threading.Lock()
        self._transitions: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._listening: threading.Thread | None = None
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._stop_lock = threading.Lock()
        with Cluster(streams.settings.client) as cluster:
            application = application_of(streams.settings, streams.topology, cluster)
        self._tasks = application.units
        self._membership = PlannerMembership(streams.settings.client, self.name, self._fenced)
        self._membership.join()
        self._reporter = (
            StatusReporter(streams.settings.client, self.name, self.tasks, self.stop) if report else None
        )
        try:
            host.add(application, self._task_changed)
        except BaseException:
            self._leave()
            raise
        self._watcher = threading.Thread(target=self._look_after, name=f"streams-{self.name}", daemon=True)
        self._watcher.start()
        if available_now:
            threading.Thread(target=self._end_by_itself, name=f"streams-{self.name}-end", daemon=True).start()

    @property
    def state(self) -> str:
        if self._error is not None:
            return ERROR
        if self._ended.is_set():
            return NOT_RUNNING
        if self._stopping.is_set():
            return PENDING_SHUTDOWN
        if self._paused:
            return RUNNING  # as in Kafka Streams
        states = self.tasks().values()
        return RUNNING if states and all(task.state == "running" for task in states) else REBALANCING

    @property
    def topology(self) -> Topology:
        return self._streams.topology

    @property
    def isActive(self) -> bool:
        return not self._ended.is_set()

    # --- pausing, and who wants to know ---------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        """Every task ends with a last commit. Time goes on: what is due meanwhile happens after `resume`. An
        application that has ended, or is about to, is left alone."""
        if self._stopping.is_set():
            return
        self._paused = True
        self._host.set_units(self.name, (), ())
        self._record_state()

    def resume(self) -> None:
        if self._stopping.is_set():
            return
        self._paused = False
        self._host.set_units(self.name, self._tasks, stateful_tasks(self._streams.topology, self._tasks))
        self._record_state()  # it may be over before the next look

    def set_state_listener(self, listener: Callable[[str, str], None] | None) -> None:
        """`listener(new, old)` is called whenever `state` has become another one, from a thread of its own.
        One that raises is logged."""
        self._listener = listener
        if listener is not None and self._listening is None:
            name = f"streams-{self.name}-state"
            self._listening = threading.Thread(target=self._tell, name=name, daemon=True)
            self._listening.start()

    def _record_state(self) -> None:
        if self._listening is None:
            return
        with self._state_lock:
            new = self.state
            if new != self._last_state:
                self._transitions.put((new, self._last_state))
                self._last_state = new

    def _tell(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(TELL_EVERY)
            self._record_state()
            while not self._transitions.empty():
                new, old = self._transitions.get()
                try:
                    if self._listener is not None:
                        self._listener(new, old)
                except Exception:
                    log.exception("%s: its state listener failed", self.name)

    def tasks(self) -> dict[str, UnitState]:
        """Of each task: its state, its lane, its last error, and what it has done."""
        return self._host.states(self.name)

    def metrics(self) -> dict[str, float]:
        """What its processors have counted (`context.metrics`), summed over all tasks; of those that end in
        `.max`, the largest."""
        found: dict[str, float] = {}
        for task in self.tasks().values():
            for name, value in task.status.metrics.items():
                largest = name.endswith(".max") and name in found
                found[name] = max(found[name], value) if largest else found.get(name, 0) + value
        return found

    def exception(self) -> StreamsError | None:
        """What it has failed with."""
        return self._error

    def report(self) -> dict[str, Any] | None:
        """What has happened since the last call, at most once a second, in the words of Spark's progress
        reports."""
        now = time.monotonic()
        since = now - self._reported_at
        if since < REPORT_EVERY:
            return None
        found = [task.status for task in self.tasks().values()]
        read = sum(status.read for status in found)
        rows, self._read = max(0, read - self._read), read
        self._reported_at = now
        self._reports += 1
        return {
            "batchId": self._reports,
            "numInputRows": rows,
            "inputRowsPerSecond": rows / since,
            "processedRowsPerSecond": rows / since,
            "lag": sum(status.lag for status in found),
            "sources": [{"endOffset": {"offsets": self._committed()}}],
        }

    def _committed(self) -> dict[str, dict[str, int]]:
        """How far its inputs were processed, by topic and partition; nothing if the cluster does not tell."""
        offsets: dict[str, dict[str, int]] = {}
        try:
            with Cluster(self._streams.settings.client) as cluster:
                for which, found in Groups(cluster, timeout=REPORT_EVERY).committed(self.name).items():
                    if not isinstance(found, KafkaError):
                        offsets.setdefault(which.topic, {})[str(which.partition)] = found.offset
        except KafkaError as error:
            log.info("%s: its offsets cannot be read now: %s", self.name, error)
        return offsets

    # What a Spark query has and a pipeline's runner asks for.
    lastProgress = None
    status: ClassVar[dict[str, bool]] = {"isTriggerActive": False}

    def lag(self) -> int:
        """How many records of its inputs and repartition topics are not processed yet."""
        return self._streams.lag()

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Until it is stopped or fails; raises what it failed with. With a timeout in seconds: whether it has
        ended."""
        ended = self._ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return ended

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Every task ends with a last commit, and the repartition topics are left empty."""
        self._stopping.set()
        with self._stop_lock:
            if not self._ended.is_set():
                if not self._host.remove(self.name, timeout):
                    log.warning("%s: some tasks did not end within %.0f s", self.name, timeout)
                self.purge()
                self._leave()
                self._ended.set()
        if threading.current_thread() is not self._watcher:
            self._watcher.join(timeout)

    def _leave(self) -> None:
        self._membership.leave()
        if self._reporter is not None:
            failed = self._error is not None
            self._reporter.end("failed" if failed else "stopped", str(self._error) if failed else None)

    def _fenced(self) -> None:
        self._error = self._error or TakenOver(
            f"{self.name} was started by another process, which runs it now"
        )
        self._stopping.set()

    def _task_changed(self, unit_id: UnitId, state: UnitState) -> None:
        if state.state != FAILED:
            return
        if self._error is None:
            lost = self._host.lost
            what = f"task {unit_id.name} of {self.name} failed: {state.error}"
            self._error = StreamsError(what if lost is None else f"{self.name} has ended: {lost}")
            log.error("%s\n%s", self._error, state.trace)
        self._stopping.set()

    def _end_by_itself(self) -> None:
        if wait_for_available(self._streams, self._stopping):
            self.stop()

    # --- beside the tasks -----------------------------------------------------------------------------------

    def _look_after(self) -> None:
        next_purge = time.monotonic() + PURGE_EVERY
        with Cluster(self._streams.settings.client) as cluster:
            while not self._stopping.wait(LOOK_EVERY):
                try:
                    self._notice_partitions(cluster)
                    if time.monotonic() >= next_purge:
                        next_purge = time.monotonic() + PURGE_EVERY
                        self._purge(cluster)
                except KafkaError as error:
                    log.warning("%s: %s", self.name, error)
                except StreamsError as error:
                    self._error = error
                    self._stopping.set()
        if self._error is not None:
            self.stop()

    def _notice_partitions(self, cluster: Cluster) -> None:
        topology = self._streams.topology
        found = input_topics(topology, self.name, cluster)
        topics = {topic for names in found.values() for topic in names}
        for problem in cluster.refresh(topics).values():
            raise problem
        names = task_names(topology, self.name, cluster)
        if names != self._tasks:
            self._streams.make_topics()  # refuses where keys would be looked for in the wrong partition
            log.warning("%s has %d tasks now", self.name, len(names))
            self._tasks = names
            if not self._paused:
                self._host.set_units(self.name, names, stateful_tasks(topology, names))

    def purge(self) -> None:
        with Cluster(self._streams.settings.client) as cluster, contextlib.suppress(KafkaError):
            self._purge(cluster)

    def _purge(self, cluster: Cluster) -> None:
        """What is committed may go from the repartition topics."""
        topology = self._streams.topology
        partitions = [
            TopicPartition(name, number)
            for name in (topology.internal_name(topic, self.name) for topic in topology.internal)
            for number in cluster.topic(name).partitions
        ]
        committed = Groups(cluster).committed(self.name, partitions) if partitions else {}
        done = {
            which: found.offset
            for which, found in committed.items()
            if not isinstance(found, KafkaError) and found.offset > 0
        }
        for which, outcome in Admin(cluster).delete_records(done).items() if done else ():
            if isinstance(outcome, KafkaError):
                log.warning("cannot clean %s: %s", which, outcome)
