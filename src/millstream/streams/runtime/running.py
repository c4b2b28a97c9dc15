"""An application that runs: what `Streams.start()` returns.

It looks after what no single task can: partitions that are added to the inputs become tasks, and what all
tasks have read is deleted from the repartition topics. A task that fails for good fails the application: its
other tasks end too, each with what it has committed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from millstream.client import Admin, Cluster
from millstream.client.groups import Groups
from millstream.streams.errors import StreamsError
from millstream.streams.runtime.tasks import application_of, input_topics, stateful_tasks, task_names
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.host.planner_server import UnitFailed
    from millstream.host.unit import Application, UnitId, UnitStatus
    from millstream.streams.runtime.application import Streams

log = logging.getLogger("millstream.streams")

PURGE_EVERY = 30.0
LOOK_EVERY = 5.0
REPORT_EVERY = 1.0
STOP_SECONDS = 10.0

# Kafka Streams' states.
CREATED, REBALANCING, RUNNING = "CREATED", "REBALANCING", "RUNNING"
PENDING_SHUTDOWN, NOT_RUNNING, ERROR = "PENDING_SHUTDOWN", "NOT_RUNNING", "ERROR"


class HostLike(Protocol):
    """What an application needs of a host."""

    def add(self, application: Application, failed: UnitFailed) -> None: ...

    def set_units(self, application: str, names: tuple[str, ...], stateful: frozenset[str]) -> None: ...

    def remove(self, application: str, timeout: float = ...) -> bool: ...

    def states(self, application: str) -> dict[str, tuple[str, str | None, str | None, UnitStatus]]: ...


class RunningStreams:
    """`awaitTermination`, `stop`, `state`, `exception`, `lag`, as a Spark query has them."""

    def __init__(self, streams: Streams, host: HostLike) -> None:
        self._streams, self._host = streams, host
        self.name = streams.settings.application
        self.runId = uuid.uuid4()
        self._error: StreamsError | None = None
        self._reported_at, self._reports, self._read = time.monotonic(), 0, 0
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._stop_lock = threading.Lock()
        with Cluster(streams.settings.client) as cluster:
            application = application_of(streams.settings, streams.topology, cluster)
        self._tasks = application.units
        host.add(application, self._task_failed)
        self._watcher = threading.Thread(target=self._look_after, name=f"streams-{self.name}", daemon=True)
        self._watcher.start()

    @property
    def state(self) -> str:
        if self._error is not None:
            return ERROR
        if self._ended.is_set():
            return NOT_RUNNING
        if self._stopping.is_set():
            return PENDING_SHUTDOWN
        states = self.tasks().values()
        return RUNNING if states and all(state == "running" for state, *_ in states) else REBALANCING

    @property
    def isActive(self) -> bool:
        return not self._ended.is_set()

    def tasks(self) -> dict[str, tuple[str, str | None, str | None, UnitStatus]]:
        """Of each task: its state, its lane, its last error, and what it has done."""
        return self._host.states(self.name)

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
        found = [status for *_, status in self.tasks().values()]
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
                self._ended.set()
        if threading.current_thread() is not self._watcher:
            self._watcher.join(timeout)

    def _task_failed(self, unit_id: UnitId, error: str, trace: str) -> None:
        if self._error is None:
            self._error = StreamsError(f"task {unit_id.name} of {self.name} failed: {error}")
            log.error("%s\n%s", self._error, trace)
        self._stopping.set()

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
        topics = {topic for names in input_topics(topology, self.name).values() for topic in names}
        for problem in cluster.refresh(topics).values():
            raise problem
        names = task_names(topology, self.name, cluster)
        if names != self._tasks:
            self._streams.make_topics()  # refuses where keys would be looked for in the wrong partition
            log.warning("%s has %d tasks now", self.name, len(names))
            self._tasks = names
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
