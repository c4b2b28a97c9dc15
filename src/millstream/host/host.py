"""The host of a process: what applications add their units to.

    host = Host.of(session)
    host.add(application, listener)           # run it; the listener hears of every change of a unit's state
    host.set_units("application", names)      # units come and go while the others run
    host.restart("application", "unit")       # one unit again, also if it had failed
    host.replace(application, listener)       # another version: all of its units again, nobody else's
    host.states("application")                # where each unit stands, and what it has done
    host.remove("application")                # each unit ends with a last commit

A host belongs to one SparkContext. It starts with the first application and ends with the last one: a
streaming query whose tasks are lanes (`source`), and the planner in this process. If the query fails, it is
started again; applications notice a pause.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from millstream.host.metrics import MetricsPage
from millstream.host.planner_server import HostSettings, PlannerServer, ignore
from millstream.host.source import NAME, HostSource, options_for
from millstream.host.unit import Application, UnitListener, UnitState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("millstream.host")

_RESTART_PAUSE, _MAX_RESTART_PAUSE = 0.5, 30.0
_STOP_SECONDS = 10.0
_LOOK_AT_SLOTS = 5.0
"""How often the executors of a cluster are counted: the next batch has a lane for each slot it may use."""
_LANES = "spark.millstream.host.lanes"


class Host:
    _of_contexts: dict[str, Host] = {}
    _lock = threading.Lock()

    @classmethod
    def of(cls, session: SparkSession) -> Host:
        """The host of this session's SparkContext."""
        context = session.sparkContext
        with cls._lock:
            found = cls._of_contexts.get(context.applicationId)
            if found is None:
                found = cls._of_contexts[context.applicationId] = cls(session)
            return found

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._settings = settings_of(session)
        self.stays = False
        """Whether the query and its lanes go on without an application, for the next one: they take seconds
        to start."""
        self._counts_slots = not _is_local(session) and not session.sparkContext.getConf().get(_LANES)
        self._server: PlannerServer | None = None
        self._page: MetricsPage | None = None
        self._query: Any = None
        self._checkpoint = ""
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
        the query with it, unless the host `stays`."""
        with self._changing:
            if application not in self._applications or self._server is None:
                return True
            done = self._server.remove(application, timeout)
            self._server.forget(application)
            self._applications.discard(application)
            if not self._applications and not self.stays:
                self._stop()
            return done

    def states(self, application: str) -> dict[str, UnitState]:
        return {} if self._server is None else self._server.states(application)

    def close(self) -> None:
        """Without waiting for anybody's last commit longer than for the lanes' end."""
        with self._changing:
            self._applications.clear()
            self._stop()

    # --- the query ------------------------------------------------------------------------------------------

    def _start(self) -> None:
        dumps: Any = cloudpickle.dumps
        self._server = PlannerServer(self._settings, address=_address(self._session), pack=dumps)
        if self._settings.metrics_listener:
            self._page = MetricsPage(self._settings.metrics_listener, self._server)
        self._checkpoint = tempfile.mkdtemp(prefix="millstream-host-")
        self._session.dataSource.register(HostSource)
        self._start_query()
        threading.Thread(target=self._supervise, args=(self._server,), name="host-query", daemon=True).start()

    def _start_query(self) -> None:
        assert self._server is not None
        reader = self._session.readStream.format(NAME).options(**options_for(self._server))
        folder = tempfile.mkdtemp(dir=self._checkpoint)
        self._query = (
            reader.load()
            .writeStream.format("noop")
            .trigger(processingTime="0 seconds")
            .queryName(NAME)
            .option("checkpointLocation", folder)
            .start()
        )

    def _supervise(self, server: PlannerServer) -> None:
        """Spark gives a query up after some failed tasks. The next query needs nothing of the last one."""
        pause, began = _RESTART_PAUSE, time.monotonic()
        look_at_slots = 0.0
        while not server.ended:
            query = self._query
            if query.isActive:
                if self._counts_slots and time.monotonic() >= look_at_slots:
                    look_at_slots = time.monotonic() + _LOOK_AT_SLOTS
                    server.settings.lanes = lanes_for(self._session)
                server.wait(lambda: server.ended, 0.5)
                continue
            if server.ended:
                return
            error = query.exception()
            log.warning("the host's query ended (%s); it is started again", error)
            if time.monotonic() - began > 60:
                pause = _RESTART_PAUSE
            server.wait(lambda: server.ended, pause)
            pause, began = min(2 * pause, _MAX_RESTART_PAUSE), time.monotonic()
            with self._changing:
                if not server.ended:
                    self._failures += 1
                    self._start_query()

    def _stop(self) -> None:
        server, self._server = self._server, None
        if self._page is not None:
            self._page.close()
            self._page = None
        if server is not None:
            server.end(self._settings.lease)
        if self._query is not None:
            self._query.stop()
            self._query = None
        shutil.rmtree(self._checkpoint, ignore_errors=True)


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
