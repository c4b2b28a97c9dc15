"""The host of a process: what applications add their units to.

    host = Host.of(session)
    host.add(application, listener)           # run it; the listener hears of every change of a unit's state
    host.set_units("application", names)      # units come and go while the others run
    host.restart("application", "unit")       # one unit again, also if it had failed
    host.replace(application, listener)       # another version: all of its units again, nobody else's
    host.states("application")                # where each unit stands, and what it has done
    host.remove("application")                # each unit ends with a last commit

A host belongs to one SparkContext. It starts with the first application and ends with the last one: Spark
jobs whose tasks are lanes (`source`), and the planner in this process. If a job fails, the next one is
started; applications notice a pause.

If Spark itself is gone, because its JVM was killed or its context stopped, it depends on whose session it
was. One that the host was made with (`Host.of_process`) is replaced, and applications notice a longer pause.
One that a user made is the user's to make again: all units fail, with the reason.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from millstream.host.errors import SparkLost
from millstream.host.metrics import MetricsPage
from millstream.host.planner_server import HostSettings, PlannerServer, ignore
from millstream.host.source import LaneJobs
from millstream.host.unit import Application, Ended, UnitListener, UnitState
from millstream.spark.lost import STOPPED, why_lost
from millstream.spark.resources import stages_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("millstream.host")

_RESTART_PAUSE, _MAX_RESTART_PAUSE = 0.5, 30.0
_STOP_SECONDS = 10.0
_GOOD_SECONDS = 60.0
"""Lanes or a session that lasted so long is no reason to wait longer before the next one."""
_SESSIONS = 3
"""How many new sessions in a row may be lost before each has lasted that long."""
_LOOK_AT_SLOTS = 5.0
"""How often the executors of a cluster are counted: the next batch has a lane for each slot it may use."""
_UNREACHABLE = (Py4JError, OSError)
"""What a call raises if the JVM is not there."""
_LANES = "spark.millstream.host.lanes"


class Host:
    _of_contexts: dict[str, Host] = {}
    _lock = threading.RLock()

    @classmethod
    def of(cls, session: SparkSession) -> Host:
        """The host of this session's SparkContext."""
        reason = why_lost(session)
        if reason is not None:
            raise SparkLost(f"{reason}: start another session")
        context = session.sparkContext
        with cls._lock:
            found = cls._of_contexts.get(context.applicationId)
            if found is None:
                found = cls._of_contexts[context.applicationId] = cls(session)
            return found

    @classmethod
    def of_process(cls, name: str, settings: Mapping[str, str]) -> Host:
        """The host of the session that this process has; if it has none, of one that is the host's own."""
        from millstream.spark.session import running_session, spark

        with cls._lock:
            start = None if running_session() is not None else partial(spark, name, settings)
            host = cls.of(spark(name, settings))
            host._new_session = host._new_session or start
            return host

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._new_session: Callable[[], SparkSession] | None = None
        """Starts Spark again; None if that is up to whoever made the session."""
        self.watched = False
        """Whether this process ends when Spark is gone, and is started again by others: applications are
        theirs, and need not hear of it."""
        self._settings = settings_of(session)
        self.stays = False
        """Whether the lanes go on without an application, for the next one: they take seconds
        to start."""
        self._counts_slots = not _is_local(session) and not session.sparkContext.getConf().get(_LANES)
        self._look_due = 0.0
        self._server: PlannerServer | None = None
        self._page: MetricsPage | None = None
        self._jobs: LaneJobs | None = None
        self._applications: set[str] = set()
        self._changing = threading.RLock()
        self._failures = 0

    def add(self, application: Application, listener: UnitListener = ignore) -> None:
        with self._changing:
            if application.id in self._applications:
                raise ValueError(f"{application.id} runs already in this process")
            if self._server is None:
                self._start()
            assert self._server is not None
            self._applications.add(application.id)
            self._server.add(application, listener)

    def replace(self, application: Application, listener: UnitListener = ignore) -> None:
        """Run another version of it: its units are closed and opened again, all others run on."""
        with self._changing:
            if self._server is None or application.id not in self._applications:
                self.add(application, listener)
            else:
                self._server.add(application, listener)

    def set_units(
        self,
        application: str,
        names: Iterable[str],
        stateful: Iterable[str] = (),
        *,
        waiting: Iterable[str] | None = None,
        dedicated: Iterable[str] | None = None,
    ) -> None:
        """The units of an application that runs, from now on; those that stay are not touched."""
        assert self._server is not None
        self._server.set_units(application, names, stateful, waiting=waiting, dedicated=dedicated)

    def restart(self, application: str, name: str) -> None:
        """Close one unit and open it again, also if it had failed."""
        assert self._server is not None
        self._server.restart(application, name)

    def remove(self, application: str, timeout: float = _STOP_SECONDS) -> bool:
        """All of its units end with a last commit. True if they did so in time. The last application takes
        the lanes with it, unless the host `stays`."""
        return self.remove_all([application], timeout)[application].in_time

    def remove_all(self, applications: Iterable[str], timeout: float = _STOP_SECONDS) -> dict[str, Ended]:
        """The same for several, which have this time together."""
        with self._changing:
            found = dict.fromkeys(applications, Ended(True, {}))
            leaving = [one for one in found if one in self._applications]
            if self._server is None or not leaving:
                return found
            found |= self._server.remove_all(leaving, timeout)
            for application in leaving:
                self._server.forget(application)
                self._applications.discard(application)
            if not self._applications and not self.stays:
                self._stop()
            return found

    @property
    def lost(self) -> str | None:
        """Why nothing runs here any more."""
        return None if self._server is None else self._server.lost

    def states(self, application: str) -> dict[str, UnitState]:
        return {} if self._server is None else self._server.states(application)

    def states_of(self, applications: Iterable[str]) -> dict[str, dict[str, UnitState]]:
        return {application: self.states(application) for application in applications}

    def close(self) -> None:
        """Without waiting for anybody's last commit longer than for the lanes' end."""
        with self._changing:
            self._applications.clear()
            self._stop()

    # --- the jobs -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        dumps: Any = cloudpickle.dumps
        self._server = PlannerServer(self._settings, address=_address(self._session), pack=dumps)
        if self._settings.metrics_listener:
            self._page = MetricsPage(self._settings.metrics_listener, self._server)
        self._start_jobs()
        threading.Thread(target=self._supervise, args=(self._server,), name="host-jobs", daemon=True).start()

    def _start_jobs(self) -> None:
        assert self._server is not None
        self._jobs = LaneJobs(self._session, self._server)
        self._jobs.run()

    def _supervise(self, server: PlannerServer) -> None:
        """Begins each job after the last one. Spark gives a job up after some failed tasks; the next needs
        nothing of it."""
        pause, began, lost_in_a_row = _RESTART_PAUSE, time.monotonic(), 0
        while not server.ended:
            if self._runs():
                with contextlib.suppress(*_UNREACHABLE):
                    self._look_at_executors(server)
                server.wait(lambda: server.ended, 0.5)
                continue
            if server.ended:
                return
            if time.monotonic() - began > _GOOD_SECONDS:
                pause, lost_in_a_row = _RESTART_PAUSE, 0
            reason = why_lost(self._session)
            if reason is not None:
                if self.watched:
                    return
                lost_in_a_row += 1
                if not self._may_replace(reason, lost_in_a_row):
                    self._give_up(server, reason)
                    return
            log.warning("%s; it is started again", reason or f"the host's job failed ({self._error()})")
            server.wait(lambda: server.ended, pause)
            pause, began = min(2 * pause, _MAX_RESTART_PAUSE), time.monotonic()
            try:
                if reason is not None and not server.ended:
                    self._replace_session()
                with self._changing:
                    if not server.ended:
                        self._failures += 1
                        self._start_jobs()
            except (*_UNREACHABLE, PySparkException) as error:
                log.warning("the host's job does not start: %s", error)

    def _look_at_executors(self, server: PlannerServer) -> None:
        """Those of a cluster come and go: there are lanes for each slot. And when Spark knows that the tasks
        of lost lanes are lost too, those that are held for it may end theirs: it needs their slots."""
        if server.holds_lanes:
            java: Any = self._session.sparkContext._jsc
            server.release_lanes(sum(stage.active for stage in stages_of(java.sc()).values()))
        if self._counts_slots and time.monotonic() >= self._look_due:
            self._look_due = time.monotonic() + _LOOK_AT_SLOTS
            server.settings.lanes = lanes_for(self._session)

    def _runs(self) -> bool:
        jobs = self._jobs
        try:
            return jobs is not None and jobs.run()
        except _UNREACHABLE:
            return False

    def _error(self) -> str:
        return (self._jobs and self._jobs.error) or "no reason given"

    def _may_replace(self, reason: str, lost_in_a_row: int) -> bool:
        """Not if somebody has stopped it: that was meant. Nor for ever, if it never lasts."""
        return self._new_session is not None and reason != STOPPED and lost_in_a_row <= _SESSIONS

    def _replace_session(self) -> None:
        """Whoever looks for a host meanwhile waits, and gets this one."""
        assert self._new_session is not None
        with Host._lock:
            self._forget_context()
            self._session = self._new_session()
            Host._of_contexts[self._session.sparkContext.applicationId] = self

    def _give_up(self, server: PlannerServer, reason: str) -> None:
        with Host._lock:
            self._forget_context()
        server.fail_all(f"{reason}: start the application again, with another session")

    def _forget_context(self) -> None:
        for key in [key for key, host in Host._of_contexts.items() if host is self]:
            del Host._of_contexts[key]

    def _stop(self) -> None:
        server, self._server = self._server, None
        if self._page is not None:
            self._page.close()
            self._page = None
        if server is not None:
            server.end(self._settings.lease)
        if self._jobs is not None:
            with contextlib.suppress(*_UNREACHABLE):
                self._jobs.stop()
            self._jobs = None


def settings_of(session: SparkSession) -> HostSettings:
    """`millstream.host.*`, from Spark's configuration (there with `spark.` in front) or the defaults."""
    conf = session.sparkContext.getConf()

    def number(name: str, default: float) -> float:
        return float(conf.get(f"spark.millstream.host.{name}", str(default)))

    lanes, slots = lanes_for(session), session.sparkContext.defaultParallelism
    if lanes >= slots:
        log.warning("%d lanes leave no slot of %s for anything else", lanes, session.sparkContext.master)
    return HostSettings(
        lanes=lanes,
        commit_interval=number("commit.interval.ms", 50) / 1000,
        batch_seconds=number("batch.seconds", 60),
        # Executors of a cluster may still be coming: the next batch has lanes for them. A batch costs
        # processor time, so there are no short ones where nobody comes.
        first_batch_seconds=60 if _is_local(session) else 2,
        lease=number("lease.ms", 3000) / 1000,
        unit_timeout=number("unit.timeout.ms", 30_000) / 1000,
        unit_retries=int(number("unit.retries", 5)),
        metrics_listener=str(conf.get("spark.millstream.host.metrics.listener", "")),
    )


def lanes_for(session: SparkSession) -> int:
    """As the setting says; or as many as there is room for, with slots left for jobs of Spark: half of them
    on this machine, where they cost nothing, and a quarter on a cluster, where they do."""
    context = session.sparkContext
    given = context.getConf().get(_LANES)
    if given:
        return int(float(given))
    slots = context.defaultParallelism
    if _is_local(session):
        return min(max(1, slots // 2), os.cpu_count() or 1)
    return max(1, slots - max(1, slots // 4))


def _is_local(session: SparkSession) -> bool:
    return (session.sparkContext.master or "").startswith("local")


def _address(session: SparkSession) -> str:
    """Loopback, unless there are executors elsewhere."""
    if _is_local(session):
        return "127.0.0.1"
    return str(session.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))
