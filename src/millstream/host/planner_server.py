"""The planner with its lanes around it: a thread for each connection, and one that keeps time.

Lanes connect, say where they are, and get the applications and their plan; whenever the planner's decisions
change a lane's plan, it is sent at once. A lane is gone when its connection is. Whatever changes for an
application is told to its listener, in a thread of the server: listeners must not wait.
"""

from __future__ import annotations

import base64
import logging
import pickle
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.host.link import Link, LinkClosed, Message
from millstream.host.planner import Planner
from millstream.host.unit import Application, UnitId, UnitStatus

log = logging.getLogger("millstream.host")

STUCK_RETRIES = 2

UnitFailed = Callable[[UnitId, str, str], None]
"""(unit, error, traceback): it has failed for good."""


@dataclass(slots=True)
class HostSettings:
    """`millstream.host.*`; times in seconds.

    lanes                how many lanes there are (the cores, if not given)
    commit_interval      commit.interval.ms
    batch_seconds        how long a task of Spark lasts before it is renewed
    lease                how long a lane goes on after its task has ended
    unit_timeout         a unit's turn that takes longer is stuck: its process is ended
    unit_retries         tries of a failing unit before its application hears of it
    """

    lanes: int
    commit_interval: float = 0.05
    batch_seconds: float = 60.0
    lease: float = 3.0
    unit_timeout: float = 30.0
    unit_retries: int = 5


@dataclass(slots=True)
class _LaneLink:
    link: Link
    machine: str
    sent: list[UnitId] | None = None
    applications: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _Entry:
    content: bytes
    failed: UnitFailed
    statuses: dict[UnitId, UnitStatus] = field(default_factory=dict)
    ended: bool = False


class PlannerServer:
    """`pack` makes bytes of what units are made from; with functions of users in it, cloudpickle's dumps."""

    def __init__(
        self,
        settings: HostSettings,
        *,
        address: str = "127.0.0.1",
        pack: Callable[[Any], bytes] = pickle.dumps,
    ) -> None:
        self.settings, self.secret = settings, secrets.token_bytes(32)
        self._pack = pack
        self._planner = Planner(settings.unit_retries)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._lanes: dict[str, _LaneLink] = {}
        self._entries: dict[str, _Entry] = {}
        self._ended = False
        self._socket = socket.create_server((address, 0))
        self.host, self.port = self._socket.getsockname()[:2]
        for act in (self._accept, self._keep_time):
            threading.Thread(target=act, name=f"host-planner{act.__name__}", daemon=True).start()

    # --- for applications -----------------------------------------------------------------------------------

    def add(self, application: Application, failed: UnitFailed) -> None:
        """Run the units of an application, or those of a new version of it."""
        made = self._pack((application.client, application.open_unit))
        content = pickle.dumps((list(sys.path), made))
        with self._lock:
            self._entries[application.id] = _Entry(content, failed)
            self._planner.set_units(
                application.id, application.units, application.stateful, now=time.monotonic()
            )
            self._push()

    def set_units(self, application: str, names: tuple[str, ...], stateful: frozenset[str]) -> None:
        """Of an application that runs: partitions were added, say."""
        with self._lock:
            self._planner.set_units(application, names, stateful, now=time.monotonic())
            self._push()

    def remove(self, application: str, timeout: float) -> bool:
        """Take all of its units away. True if every lane has let go of them in time."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._planner.set_units(application, ())
            self._push()
            while not self._planner.is_idle(application):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._planner.is_idle(application)

    def states(self, application: str) -> dict[str, tuple[str, str | None, str | None, UnitStatus]]:
        """Of each unit: its state, its lane, its last error, and what it has done."""
        with self._lock:
            entry = self._entries.get(application)
            return {
                unit_id.name: (
                    *self._planner.state_of(unit_id),
                    (entry.statuses.get(unit_id) if entry else None) or UnitStatus(),
                )
                for unit_id in self._planner.unit_ids(application)
            }

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

    def end(self, timeout: float = 5.0) -> bool:
        """All lanes let go of everything and end. True if they did in time."""
        with self._changed:
            self._ended = True
            self._push()
            done = self._changed.wait_for(lambda: not self._lanes, timeout)
            for lane in self._lanes.values():
                lane.link.shut()
        self._socket.close()
        return done

    # --- lanes ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                opened, address = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(
                target=self._serve, args=(opened, address), name="host-planner-lane", daemon=True
            ).start()

    def _serve(self, opened: socket.socket, address: Any) -> None:
        name = None
        try:
            link = Link.accept(opened, self.secret)
        except LinkClosed as error:
            log.warning("refused a connection from %s: %s", address[0], error)
            return
        try:
            while True:
                message = link.receive()
                if "lane" in message:
                    name = self._joined(link, message)
                elif name is not None:
                    self._heard(name, message)
                else:
                    link.send({"ended": self._ended})
        except LinkClosed:
            pass
        finally:
            link.close()
            if name is not None:
                self._left(name)

    def _joined(self, link: Link, message: Message) -> str:
        name, machine = str(message["lane"]), str(message["machine"])
        with self._changed:
            self._lanes[name] = _LaneLink(link, machine)
            self._planner.lane_joined(name, machine, time.monotonic())
            self._push()
        return name

    def _left(self, name: str) -> None:
        with self._changed:
            self._lanes.pop(name, None)
            self._planner.lane_left(name, time.monotonic())
            self._push()

    def _heard(self, lane: str, message: Message) -> None:
        now = time.monotonic()
        with self._changed:
            if "opened" in message:
                self._planner.opened(lane, UnitId(*message["opened"]), now)
            elif "released" in message:
                self._note(message["released"], message["status"])
                self._planner.released(lane, UnitId(*message["released"]), now)
            elif "failed" in message:
                self._failed(lane, message, now)
            elif "status" in message:
                for unit_id, status in message["status"]:
                    self._note(unit_id, status)
            self._push()

    def _note(self, unit: Sequence[str], status: dict[str, int]) -> None:
        unit_id = UnitId(*unit)
        entry = self._entries.get(unit_id.application)
        if entry is not None:
            entry.statuses[unit_id] = UnitStatus(**status)

    def _failed(self, lane: str, message: Message, now: float) -> None:
        unit_id = UnitId(*message["failed"])
        known = self._lanes[lane]
        if known.sent is not None and unit_id in known.sent:
            known.sent.remove(unit_id)  # the lane has closed it, and has to be told if it is to open it again
        last = self._planner.unit_failed(
            lane,
            unit_id,
            message["error"],
            now,
            fenced=message.get("fenced", False),
            passing=message.get("passing", False),
            retries=0 if message.get("final") else STUCK_RETRIES if message.get("stuck") else None,
        )
        entry = self._entries.get(unit_id.application)
        if last and entry is not None:
            entry.failed(unit_id, message["error"], message.get("trace", ""))

    # --- plans ----------------------------------------------------------------------------------------------

    def _push(self) -> None:
        """Tell every lane whose plan is another one than it knows, and wake whoever waits."""
        for name, lane in list(self._lanes.items()):
            units = [] if self._ended else self._planner.plan_for(name)
            if units == lane.sent and not self._ended:
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
                        "end": self._ended,
                        "commit_interval": self.settings.commit_interval,
                        "lanes": self.settings.lanes,
                    }
                )
                lane.sent = units
            except LinkClosed:
                lane.link.shut()  # its thread will hear of it
        self._changed.notify_all()

    def _keep_time(self) -> None:
        """Units that were set aside are due some time."""
        while not self._ended:
            with self._changed:
                due = self._planner.next_try()
                now = time.monotonic()
                if due is not None and due <= now and self._lanes:
                    self._planner.tick(now)
                    self._push()
                    due = self._planner.next_try()
                self._changed.wait(1.0 if due is None else min(1.0, max(0.01, due - now)))


def status_totals(states: Mapping[str, tuple[str, str | None, str | None, UnitStatus]]) -> UnitStatus:
    """The sum over units."""
    found = UnitStatus()
    for *_, status in states.values():
        for name in UnitStatus.__slots__:
            setattr(found, name, getattr(found, name) + getattr(status, name))
    return found
