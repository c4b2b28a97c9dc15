"""Lanes as the tasks of Spark jobs, one after the other.

A job lasts a minute, and nothing depends on where one ends. A task connects to the planner, makes a lane in a
thread of its Python worker and renews the lane's lease until the job is over; the next job's task finds the
lane in the same worker and goes on with it. So Spark sees tasks that take a minute, starts them again when a
worker dies, and spreads them over its executors.

A lane outlives its task by the lease: long enough for the next job to adopt it, short enough for a host that
is gone to leave nothing behind.

Why no streaming query: it would plan, log offsets and ask Python processes for a source that has none to
offer, which took half of the time until the first record (docs/decisions/2026-11-17-spark-startup-time.md).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle

from millstream.host.lane import Lane, Lease, collect_seldom
from millstream.host.link import HANDSHAKE_SECONDS, Link, LinkClosed, LinkSilent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.host.planner_server import PlannerServer

log = logging.getLogger("millstream.host")

MACHINE_VARIABLE = "MILLSTREAM_MACHINE"
"""What a machine is called where several share a host name: workers of a test, containers."""
EXIT_STUCK = 70
_LOOK_EVERY = 0.2
_ASK_AGAIN = 5.0


def machine_name() -> str:
    return os.environ.get(MACHINE_VARIABLE) or socket.gethostname()


def options_for(server: PlannerServer) -> dict[str, str]:
    settings = server.settings
    return {
        "host": server.host,
        "port": str(server.port),
        "secret": server.secret.hex(),
        "lanes": str(settings.lanes),
        "batch_seconds": str(settings.batch_seconds),
        "first_batch_seconds": str(settings.first_batch_seconds),
        "lease_seconds": str(settings.lease),
    }


class LaneJobs:
    """The jobs of one host, one at a time. Calls raise Py4JError or OSError if the JVM is not there."""

    def __init__(self, session: SparkSession, server: PlannerServer) -> None:
        self._context, self._server = session.sparkContext, server
        self._options = options_for(server)
        self._number = 0
        self._job: Any = None
        self._stopped = False
        self._lock = threading.Lock()
        self.error: str | None = None
        """Why the last job failed, after all tries that its tasks had."""

    def run(self) -> bool:
        """Begin the next job if none is under way. False once one has failed."""
        with self._lock:
            if self._job is not None and self._job.isDone():
                self._end_of_job()
            if self._job is None and self.error is None and not self._stopped:
                self._number += 1
                self._job = self._submit(self._number, self._server.settings.lanes)
            return self.error is None

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._job is not None:
                self._job.cancel(True)

    def _submit(self, number: int, lanes: int) -> Any:
        """Java's future, because PySpark's own actions block: a thread in a call is told of the end of its
        JVM by two tracebacks of py4j."""
        tasks: Any = self._context.parallelize(range(lanes), lanes)
        return tasks.mapPartitions(partial(run_lane, self._options, number))._jrdd.collectAsync()

    def _end_of_job(self) -> None:
        job, self._job = self._job, None
        try:
            job.get()
        except Py4JJavaError as error:
            self.error = next(iter(str(error.java_exception.getMessage()).splitlines()), "")


def run_lane(options: dict[str, str], job: int, _: Iterator[int]) -> Iterator[None]:
    """One task: a lane for as long as the job lasts."""
    short = float(options["first_batch_seconds"]) * 2.0 ** min(job - 1, 10)
    lane = _LaneThread.of_this_process(options)
    lane.keep(min(float(options["batch_seconds"]), short))
    return iter(())


def is_silent(options: dict[str, str]) -> bool:
    """Whether the planner is there and says nothing, because its process was stopped: there will be no next
    job before it goes on."""
    try:
        link = _connect(options)
        link.send({"ask": "ended"})
        link.receive()
        link.close()
    except LinkSilent:
        return True
    except LinkClosed:
        pass
    return False


def _connect(options: dict[str, str]) -> Link:
    return Link.connect(options["host"], int(options["port"]), bytes.fromhex(options["secret"]))


class _LaneThread:
    """The lane of this worker process for one host."""

    _of_hosts: dict[str, _LaneThread] = {}

    def __init__(self, options: dict[str, str]) -> None:
        collect_seldom()
        self.name = f"{machine_name()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._options = options
        self._link = _connect(options)
        self._grace = float(options["lease_seconds"])
        self._lease = Lease(self._grace)
        loads: Any = cloudpickle.loads
        self._lane = Lane(
            self._link, machine_name(), self._lease, loads, end_process=lambda: os._exit(EXIT_STUCK)
        )
        self._thread = threading.Thread(
            target=self._lane.run, args=(self.name,), name=f"host-{self.name}", daemon=True
        )
        self._thread.start()

    @classmethod
    def of_this_process(cls, options: dict[str, str]) -> _LaneThread:
        """Adopts the one that an earlier job has left. Spark shares workers, so there may be others."""
        secret = options["secret"]
        for key in [key for key, one in cls._of_hosts.items() if not one._thread.is_alive()]:
            del cls._of_hosts[key]
        found = cls._of_hosts.get(secret)
        if found is None:
            found = cls._of_hosts[secret] = cls(options)
        return found

    def keep(self, seconds: float) -> None:
        """Until the job is over, or the lane. A lane that is held has no next job to wait for yet, and Spark
        ends workers that have nothing to do. Nor has one whose planner is silent: it goes on as it is."""
        self._wait(seconds)
        while self._thread.is_alive():
            self._lease.renew(HANDSHAKE_SECONDS + self._grace)
            if not is_silent(self._options):
                break
            self._wait(_ASK_AGAIN)
        if self._lane.refused is not None:
            raise RuntimeError(self._lane.refused)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._lease.renew(seconds + self._grace)
        while self._thread.is_alive() and (self._lane.held or end > time.monotonic()):
            self._thread.join(_LOOK_EVERY)
