"""The planner with its lanes around it: a thread for each connection, and one that keeps time.

Lanes connect, say where they are, and get the applications and their plan; whenever the planner's decisions
change a lane's plan, it is sent at once. A lane is gone when its connection is, or when it has not been heard
of for `SILENCE` seconds: its machine may be lost. Spark takes longer to notice that, and no job ends before
it does: the other lanes are *held* meanwhile, so that they do not end with their tasks.

Whatever changes for a unit is told to the listener of its application, in order, in a thread of the server.

Other processes of the same machine may hand applications over (`control`): whoever is not a lane.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import pickle
import queue
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.host.link import SOFTWARE, Link, LinkClosed, LinkServer, Message
from millstream.host.planner import Planner
from millstream.host.unit import (
    Application,
    Ended,
    UnitId,
    UnitListener,
    UnitState,
    UnitStatus,
    standby_name,
)

log = logging.getLogger("millstream.host")

STUCK_RETRIES = 2
SILENCE, QUIET = 10.0, 3.0
"""When a lane is given up, and when it may be that it will be: from then on the others are held."""
TICK, LOOK = 1.0, 0.5


@dataclass(slots=True)
class HostSettings:
    """`millstream.host.*`; times in seconds.

    lanes                how many lanes there are (the cores, if not given)
    commit_interval      commit.interval.ms
    batch_seconds        how long a task of Spark lasts before it is renewed
    first_batch_seconds  how long the first one lasts; each one after it twice as long
    lease                how long a lane goes on after its task has ended
    unit_timeout         a unit's turn that takes longer is stuck: its process is ended
    unit_retries         tries of a failing unit before its application hears of it
    metrics_listener     where the page for Prometheus is served; nowhere if empty
    """

    lanes: int
    commit_interval: float = 0.05
    batch_seconds: float = 60.0
    first_batch_seconds: float = 60.0
    lease: float = 3.0
    unit_timeout: float = 30.0
    unit_retries: int = 5
    metrics_listener: str = ""


def ignore(_unit_id: UnitId, _state: UnitState) -> None:
    """A listener for nobody."""


@dataclass(slots=True)
class _LaneLink:
    link: Link
    machine: str
    sent: list[UnitId] | None = None
    watched: list[UnitId] = field(default_factory=list)
    applications: dict[str, bytes] = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)
    # How often each has begun a turn and not ended it: a turn in a thread is begun inside of one of the loop.
    in_turn: Counter[UnitId] = field(default_factory=Counter)
    closing: bool = False
    held: bool = False
    lost: bool = False


@dataclass(slots=True)
class _Entry:
    application: Application
    content: bytes
    listener: UnitListener
    statuses: dict[UnitId, UnitStatus] = field(default_factory=dict)
    traces: dict[UnitId, str] = field(default_factory=dict)
    reported: dict[UnitId, tuple[str, str | None, str | None]] = field(default_factory=dict)


class PlannerServer:
    """`pack` makes bytes of what units are made from; with functions of users in it, cloudpickle's dumps."""

    def __init__(
        self,
        settings: HostSettings,
        *,
        address: str = "127.0.0.1",
        pack: Callable[[Any], bytes] = pickle.dumps,
        secret: bytes | None = None,
    ) -> None:
        self.settings, self.secret = settings, secret or secrets.token_bytes(32)
        self._held = self._lost_one = False
        self.lost: str | None = None
        """Why nothing can run here any more."""
        self._pack = pack
        self._planner = Planner(settings.unit_retries)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._lanes: dict[str, _LaneLink] = {}
        self._entries: dict[str, _Entry] = {}
        self._news: queue.SimpleQueue[tuple[UnitListener, UnitId, UnitState] | None] = queue.SimpleQueue()
        self._ended = False
        self._server = LinkServer("host-planner-lane", self.secret, self._serve, address)
        self.host, self.port = self._server.host, self._server.port
        for act in (self._keep_time, self._tell):
            threading.Thread(target=act, name=f"host-planner{act.__name__}", daemon=True).start()

    # --- for applications -----------------------------------------------------------------------------------

    def add(self, application: Application, listener: UnitListener = ignore) -> None:
        """Run the units of an application. One that runs already is replaced: all of its units are closed and
        opened again as the new version says; those of others run on."""
        made = self._pack(
            (application.client, application.open_unit, application.waiting, application.open_standby)
        )
        content = pickle.dumps((list(sys.path), made))
        with self._lock:
            before = self._entries.get(application.id)
            self._entries[application.id] = _Entry(application, content, listener)
            now = time.monotonic()
            if before is not None:
                for unit_id in self._planner.unit_ids(application.id):
                    self._planner.restart(unit_id, now)
                for unit_id in self._planner.unit_ids(application.id, standbys=True):
                    self._planner.restart(unit_id, now)
            self._set_units(application)
            self._push()

    def set_units(
        self,
        application: str,
        names: Iterable[str],
        stateful: Iterable[str] = (),
        *,
        waiting: Iterable[str] | None = None,
        dedicated: Iterable[str] | None = None,
    ) -> None:
        """Of an application that runs: those that are new are started, those that are gone are closed, all
        others run on. How units are made stays as it is, and so does what is not given."""
        with self._lock:
            entry = self._entries[application]
            old = entry.application
            new = entry.application = old.with_units(names, stateful, waiting, dedicated)
            if new.waiting != old.waiting:
                made = self._pack((new.client, new.open_unit, new.waiting, new.open_standby))
                entry.content = pickle.dumps((list(sys.path), made))
            self._set_units(entry.application)
            self._push()

    def _set_units(self, application: Application) -> None:
        self._planner.set_units(
            application.id,
            application.units,
            application.stateful,
            now=time.monotonic(),
            dedicated=application.dedicated,
            standbys=application.standbys if application.open_standby is not None else 0,
        )

    def restart(self, application: str, name: str) -> None:
        """Close one unit and open it again, also if it had failed."""
        with self._lock:
            self._planner.restart(UnitId(application, name), time.monotonic())
            self._push()

    def fail_all(self, error: str) -> None:
        """Nothing can run here any more: all units of all applications have failed."""
        with self._lock:
            self.lost = error
            self._planner.fail_all(error)
            self._push()

    def remove(self, application: str, timeout: float) -> bool:
        """Take all of its units away. True if every lane has let go of them in time."""
        return self.remove_all([application], timeout)[application].in_time

    def remove_all(self, applications: Iterable[str], timeout: float) -> dict[str, Ended]:
        """The same for several, which have this time together."""
        leaving = list(applications)
        with self._changed:
            for application in leaving:
                self._planner.set_units(application, ())
            self._push()
            self._changed.wait_for(lambda: all(map(self._planner.is_idle, leaving)), timeout)
            return {one: Ended(self._planner.is_idle(one), self.statuses(one)) for one in leaving}

    def forget(self, application: str) -> None:
        """Of an application that was removed: what is known of it, here and in the lanes."""
        with self._lock:
            if self._planner.is_idle(application):
                self._entries.pop(application, None)
                for lane in self._lanes.values():
                    if lane.applications.pop(application, None) is not None:
                        with contextlib.suppress(LinkClosed):
                            lane.link.send({"forget": application})

    def states(self, application: str) -> dict[str, UnitState]:
        """Of each unit: where it stands, and what it has done."""
        with self._lock:
            return {unit_id.name: self._state(unit_id) for unit_id in self._planner.unit_ids(application)}

    def states_of(self, applications: Iterable[str]) -> dict[str, dict[str, UnitState]]:
        return {application: self.states(application) for application in applications}

    def standby_states(self, application: str) -> dict[str, UnitState]:
        """Of each standby copy."""
        with self._lock:
            found = self._planner.unit_ids(application, standbys=True)
            return {unit_id.name: self._state(unit_id) for unit_id in found}

    def _state(self, unit_id: UnitId) -> UnitState:
        state, lane, error = self._planner.state_of(unit_id)
        entry, known = self._entries.get(unit_id.application), self._lanes.get(lane or "")
        return UnitState(
            state,
            lane,
            error,
            (entry.statuses.get(unit_id) if entry else None) or UnitStatus(),
            entry.traces.get(unit_id, "") if entry else "",
            None if known is None else known.machine,
        )

    def applications(self) -> list[str]:
        """Those that have units."""
        with self._lock:
            return [name for name in self._entries if self._planner.unit_ids(name)]

    def statuses(self, application: str) -> dict[str, UnitStatus]:
        """What its units have done since it was added, as far as it was reported; also after it was
        removed."""
        with self._lock:
            entry = self._entries.get(application)
            return {} if entry is None else {unit.name: found for unit, found in entry.statuses.items()}

    def wait(self, until: Callable[[], bool], timeout: float) -> bool:
        """Until something is true that changes with units and lanes."""
        with self._changed:
            return self._changed.wait_for(until, timeout)

    @property
    def lane_count(self) -> int:
        return len(self._lanes)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def holds_lanes(self) -> bool:
        """Whether lanes stay though their tasks are over: Spark waits for one that is lost."""
        return self._held

    def release_lanes(self, running_tasks: int) -> None:
        """They are held no longer if Spark has given up the tasks of those that are lost."""
        with self._lock:
            self._lost_one = self._lost_one and running_tasks > self._lanes_heard_of()

    def _lanes_heard_of(self) -> int:
        return sum(not lane.lost for lane in self._lanes.values())

    def end(self, timeout: float = 5.0) -> bool:
        """All lanes let go of everything and end. True if they did in time."""
        with self._changed:
            self._ended = True
            self._push()
            done = self._changed.wait_for(lambda: not self._lanes, timeout)
            for lane in self._lanes.values():
                lane.link.shut()
        self._news.put(None)
        self._server.close()
        return done

    # --- lanes ----------------------------------------------------------------------------------------------

    def _serve(self, link: Link) -> None:
        name = None
        try:
            while True:
                message = link.receive()
                if "lane" in message:
                    name = self._joined(link, message)
                elif name is not None:
                    self._heard(name, message)
                else:
                    link.send({"ended": self._ended, "lanes": self.settings.lanes})
        finally:
            if name is not None:
                self._left(name)

    def _joined(self, link: Link, message: Message) -> str:
        name, machine = str(message["lane"]), str(message["machine"])
        if message["software"] != SOFTWARE:
            text = f"{machine} has {message['software']}, the driver has {SOFTWARE}: install the same on both"
            log.error("%s", text)
            link.send({"refused": text})
            raise LinkClosed(text)
        with self._changed:
            log.info("lane %s has come from %s", name, machine)
            self._lanes[name] = _LaneLink(link, machine)
            self._planner.lane_joined(name, machine, time.monotonic())
            self._push()
        return name

    def _left(self, name: str) -> None:
        with self._changed:
            gone = self._lanes.pop(name, None)
            in_turn = set() if gone is None or gone.closing else set(+gone.in_turn)
            for unit_id in in_turn:
                log.warning("a process of %s has ended in a turn of %s", name, unit_id)
            self._planner.lane_left(name, time.monotonic(), in_turn)
            self._push()

    def _heard(self, lane: str, message: Message) -> None:
        now = time.monotonic()
        with self._changed:
            known = self._lanes.get(lane)
            if known is None:
                return
            known.heard_at = now
            if "began" in message:
                known.in_turn[UnitId(*message["began"])] += 1
                return
            if "ended" in message:
                known.in_turn[UnitId(*message["ended"])] -= 1
                return
            if "status" in message and "released" not in message:
                for unit_id, status in message["status"]:
                    self._update_status(unit_id, status)
                return
            if "opened" in message:  # changes nobody's plan
                unit_id = UnitId(*message["opened"])
                if self._planner.opened(lane, unit_id, now):
                    self._find_news([unit_id])
                self._changed.notify_all()
                return
            if "released" in message:
                self._update_status(message["released"], message["status"])
                self._planner.released(lane, UnitId(*message["released"]), now)
            elif "failed" in message:
                self._failed(lane, message, now)
            else:
                return
            self._push()

    def _update_status(self, unit: Sequence[str], status: dict[str, Any]) -> None:
        unit_id = UnitId(*unit)
        entry = self._entries.get(unit_id.application)
        if entry is not None:
            entry.statuses[unit_id] = UnitStatus(**status)
            if entry.statuses[unit_id].commits:
                self._planner.committed(unit_id)

    def _failed(self, lane: str, message: Message, now: float) -> None:
        unit_id = UnitId(*message["failed"])
        known = self._lanes[lane]
        if known.sent is not None and unit_id in known.sent:
            known.sent.remove(unit_id)  # the lane has closed it, and has to be told if it is to open it again
        entry = self._entries.get(unit_id.application)
        if entry is not None:
            entry.traces[unit_id] = message.get("trace", "")
        stuck = bool(message.get("stuck"))
        self._planner.unit_failed(
            lane,
            unit_id,
            message["error"],
            now,
            fenced=message.get("fenced", False),
            passing=message.get("passing", False),
            stuck=stuck,
            retries=0 if message.get("final") else STUCK_RETRIES if stuck else None,
        )
        if stuck:  # its thread is lost, and with it the process: as soon as the others have gone elsewhere
            known.closing = True
            self._planner.lane_closing(lane, now)

    # --- plans ----------------------------------------------------------------------------------------------

    def _push(self) -> None:
        """Tell every lane whose plan is another one than it knows, listeners what has changed for their
        units, and wake whoever waits."""
        for name, lane in list(self._lanes.items()):
            units = [] if self._ended else self._planner.plan_for(name)
            watched = self._planner.watched(name)
            end = self._ended or (lane.closing and self._planner.is_empty(name))
            if units == lane.sent and watched == lane.watched and lane.held == self._held and not end:
                continue
            try:
                for application in {unit_id.application for unit_id in units}:
                    content = self._entries[application].content
                    if lane.applications.get(application) is not content:
                        lane.link.send(
                            {"application": application, "content": base64.b64encode(content).decode()}
                        )
                        lane.applications[application] = content
                lane.link.send(
                    {
                        "plan": units,
                        "watched": watched,
                        "end": end,
                        "exit": lane.closing,
                        "held": self._held,
                        "unit_timeout": self.settings.unit_timeout,
                        "commit_interval": self.settings.commit_interval,
                        "lanes": self.settings.lanes,
                    }
                )
                lane.sent, lane.watched, lane.held = units, watched, self._held
            except LinkClosed:
                lane.link.shut()  # its thread will hear of it
        self._find_news()
        self._changed.notify_all()

    def _find_news(self, unit_ids: Iterable[UnitId] | None = None) -> None:
        """What has changed for these units, or for any, goes to the listeners."""
        if unit_ids is None:
            unit_ids = [
                unit_id
                for application, entry in self._entries.items()
                if entry.listener is not ignore
                for unit_id in self._planner.unit_ids(application)
            ]
        for unit_id in unit_ids:
            entry = self._entries.get(unit_id.application)
            if entry is None or entry.listener is ignore or standby_name(unit_id.name) is not None:
                continue
            found = self._planner.state_of(unit_id)
            if entry.reported.get(unit_id) != found:
                entry.reported[unit_id] = found
                self._news.put((entry.listener, unit_id, self._state(unit_id)))

    def _tell(self) -> None:
        while (news := self._news.get()) is not None:
            listener, unit_id, state = news
            try:
                listener(unit_id, state)
            except Exception:
                log.exception("whoever listens for %s failed", unit_id)

    def _keep_time(self) -> None:
        """Units that were set aside are due some time; lanes that say nothing are gone."""
        next_tick, before = 0.0, time.monotonic()
        while not self._ended:
            with self._changed:
                now = time.monotonic()
                # Stopped, or on a machine that was: it has heard nobody meanwhile, whatever lanes have said.
                away, before = now - before, now
                for lane in self._lanes.values() if away > 2 * TICK else ():
                    lane.heard_at += away
                self._hold(now)
                for lane in self._lanes.values():
                    if now - lane.heard_at > SILENCE:
                        lane.lost = self._lost_one = True
                        log.warning("nothing was heard of a lane on %s for %.0f s", lane.machine, SILENCE)
                        lane.heard_at = now
                        lane.link.shut()
                due = self._planner.next_try()
                if self._lanes and (now >= next_tick or (due is not None and due <= now)):
                    next_tick = now + TICK
                    self._planner.tick(now)
                    self._push()
                    due = self._planner.next_try()
                self._changed.wait(LOOK if due is None else min(LOOK, max(0.01, due - now)))

    def _hold(self, now: float) -> None:
        quiet = any(now - lane.heard_at > QUIET for lane in self._lanes.values())
        if self._lanes_heard_of() >= self.settings.lanes:
            self._lost_one = False  # another one has come instead
        if self._held != (quiet or self._lost_one):
            self._held = not self._held
            self._push()
