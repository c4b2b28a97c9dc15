"""A lane: the loop over the units that one process runs.

One thread does it all: it hears the planner, fetches for all units at once, gives each its turn, and commits
for those that have something to commit, all transactions together. A turn is short, because what a unit has
been given to work on is bounded; so units do not need threads, and a unit that has nothing to do costs
nothing. Units that wait for other people's servers have their turns in threads beside the loop (`waiting`).

When it commits is in `commits`.

An error belongs to the unit it came from: the unit is closed and reported, and the planner decides. The lane
ends when the planner says so or is gone, or when the lease is over that Spark's task renews. While the
planner holds it, because Spark waits for a lane that is lost, the lease does not end.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import logging
import pickle
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from millstream.client import ClientConfig, Cluster
from millstream.client.cluster_cache import ClusterCache
from millstream.client.errors import Unreachable, retriable
from millstream.client.fetch import Fetched
from millstream.client.transactional import is_fenced
from millstream.host.commits import LaneCommits, RunningUnit
from millstream.host.errors import FinalError, is_final
from millstream.host.fetching import LaneFetchers
from millstream.host.link import SOFTWARE, Link, LinkClosed, Message
from millstream.host.ownership import Claim, LaneTransactions
from millstream.host.shared import OF_THIS_PROCESS
from millstream.host.turns import TurnThreads
from millstream.host.unit import OpenUnit, UnitId, standby_name
from millstream.host.waiting import WaitingUnit
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.host")

STATUS_EVERY = 1.0
PING_EVERY = 2.0
IDLE_SECONDS = 5.0
END_SECONDS = 5.0
"""How long a lane that ends waits for units in threads."""


def collect_seldom() -> None:
    """In a process that runs lanes: look for cycles among 50,000 new objects at a time, not 700. Records make
    hardly any, and come by the thousand: looking took a third of the time (benchmarks/connect_sinks.py)."""
    gc.set_threshold(50_000, 50, 100)


class Lease:
    """How long a lane may go on without hearing of Spark. By the clock that never jumps."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def renew(self, seconds: float) -> None:
        self.until = max(self.until, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return self.until - time.monotonic()


@dataclass(slots=True)
class _Application:
    client: ClientConfig
    open_unit: OpenUnit
    waiting: frozenset[str]
    open_standby: OpenUnit | None


class Lane:
    """The units of one process, made and run in one thread. `end_process` is called when a unit does not come
    back from its turn: nobody can take a thread away from it."""

    def __init__(
        self,
        link: Link,
        machine: str,
        lease: Lease,
        unpack: Callable[[bytes], Any] = pickle.loads,
        end_process: Callable[[], None] = lambda: None,
    ) -> None:
        self.machine, self.lease = machine, lease
        self._link, self._unpack, self._end_process = link, unpack, end_process
        self._unit_timeout, self._exit = 30.0, False
        self.held = False
        self._applications: dict[str, _Application] = {}
        self._units: dict[UnitId, RunningUnit] = {}
        self._readers: dict[tuple[ClientConfig, TopicPartition], list[UnitId]] = {}
        self._clusters = ClusterCache()
        self._fetchers = LaneFetchers()
        self._transactions = LaneTransactions()
        self._commits = LaneCommits(self._units, self._transactions, self.cluster, self._guarding)
        self._threads = TurnThreads(self._tell_turn)
        self._opening: dict[UnitId, WaitingUnit] = {}
        self._leaving: dict[UnitId, WaitingUnit] = {}
        self._watched: set[UnitId] = set()
        self._ended = False
        self._next_status = 0.0
        self._turn: tuple[UnitId, float] | None = None
        self._closed = threading.Event()
        self.refused: str | None = None

    # --- for units ------------------------------------------------------------------------------------------

    def cluster(self, config: ClientConfig) -> Cluster:
        return self._clusters.get(config).cluster

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """By the rule of `LaneContext`, a key begins with its application."""
        return OF_THIS_PROCESS.get(key, (id(self), key[0]), make)

    def claim(self, config: ClientConfig, application: str, name: str, timeout_ms: int) -> Claim:
        return self._transactions.claim(config, self.cluster(config), UnitId(application, name), timeout_ms)

    # --- the loop -------------------------------------------------------------------------------------------

    def run(self, name: str) -> None:
        """Until the end. Units are closed then, and the planner knows. `refused` says why the planner did not
        want this lane."""
        threading.Thread(target=self._ping, name="host-ping", daemon=True).start()
        try:
            self._link.send({"lane": name, "machine": self.machine, "software": SOFTWARE})
            while not self._ended and self.lease.left > 0:
                self._one_turn()
        except LinkClosed:
            log.info("the planner is gone; this lane ends")
        finally:
            self._end()

    def _one_turn(self) -> None:
        while self._link.waiting():
            self._hear(self._link.receive())
        if self._ended:
            return
        if self.held:
            self.lease.renew(2 * IDLE_SECONDS)
        self._fetchers.send(self._positions())
        waiting_for: list[Any] = [self._link, self._threads, *self._fetchers.connections()]
        ready = wait_for(waiting_for, self._patience())
        if self._threads in ready:
            self._finish_turns()
        fetched = self._fetchers.receive(ready)
        for config, answer, offset in fetched:
            self._deliver(config, answer, offset)
        if fetched:
            self._fetchers.send(self._positions())
        self._poll()
        self._commits.when_due()
        self._report()

    def _ping(self) -> None:
        """The planner knows from this that the lane's machine is there, also while a unit takes long. A unit
        that takes too long holds up all others of its lane: its process ends, the planner gives the others to
        other lanes, and tries this one again alone."""
        with contextlib.suppress(LinkClosed):
            while not self._closed.wait(min(PING_EVERY, self._unit_timeout / 4)):
                self._link.send({"ping": self.machine})
                turn = self._turn
                if turn is not None and time.monotonic() - turn[1] > self._unit_timeout:
                    self._say_stuck(turn[0])
                    self._end_process()
                    return

    def _say_stuck(self, unit_id: UnitId) -> None:
        log.error("%s has not come back for %.0f s; its process ends", unit_id, self._unit_timeout)
        error = f"it did not come back within {self._unit_timeout:.0f} s (millstream.host.unit.timeout.ms)"
        self._link.send({"failed": unit_id, "error": error, "stuck": True})

    def _patience(self) -> float:
        """How long nothing is to be done but to wait."""
        now = time.monotonic()
        times = [
            now + min(IDLE_SECONDS, self.lease.left),
            self._next_status if self._units else now + IDLE_SECONDS,
        ]
        again = self._fetchers.again_at()
        if again is not None:
            times.append(again)
        for running in self._units.values():
            if running.busy:
                return 0.0
            due = running.unit.due
            if due is not None:
                times.append(due)
        commit_at = self._commits.due()
        if commit_at is not None:
            times.append(commit_at)
        return max(0.0, min(times) - now)

    def _positions(self) -> dict[ClientConfig, dict[TopicPartition, dict[int, int]]]:
        """What all units want, and who reads what."""
        found: dict[ClientConfig, dict[TopicPartition, dict[int, int]]] = {}
        self._readers.clear()
        for unit_id, running in self._units.items():
            wanted, size = found.setdefault(running.client, {}), running.unit.fetch_bytes
            for topic_partition, offset in running.unit.positions.items():
                offsets = wanted.setdefault(topic_partition, {})
                offsets[offset] = max(size, offsets.get(offset, 0))
                self._readers.setdefault((running.client, topic_partition), []).append(unit_id)
        return found

    def _deliver(self, config: ClientConfig, fetched: Fetched, offset: int) -> None:
        """To the units that wait for it: those at the offset that was asked for. If there is none, it was
        asked for by whoever ran a unit before. What does not come from an offset is for all who read it."""
        topic_partition = TopicPartition(fetched.topic, fetched.partition)
        for unit_id in self._readers.get((config, topic_partition), ()):
            running = self._units.get(unit_id)
            if running is None or (offset >= 0 and running.unit.positions.get(topic_partition) != offset):
                continue
            with self._guarding(unit_id):
                running.unit.receive(fetched)
                running.busy = True

    def _poll(self) -> None:
        now = time.monotonic()
        for unit_id, running in list(self._units.items()):
            due = running.unit.due
            if running.busy or (due is not None and due <= now):
                with self._guarding(unit_id):
                    running.busy = running.unit.poll()

    # --- units come, go and fail ----------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        """`application`: how to make its units. `plan`: which units to run from now on."""
        if "application" in message:
            module_path, content = pickle.loads(base64.b64decode(message["content"]))  # noqa: S301 - the planner's own
            sys.path.extend(folder for folder in module_path if folder not in sys.path)
            self._applications[message["application"]] = _Application(*self._unpack(content))
        elif "forget" in message:
            self._applications.pop(message["forget"], None)
        elif "refused" in message:
            self.refused = str(message["refused"])
            log.error("%s", self.refused)
            self._ended = True
        elif "plan" in message:
            self._ended, self._exit = bool(message["end"]), bool(message["exit"])
            self.held = bool(message["held"])
            self._unit_timeout = message["unit_timeout"]
            self._commits.every(message["commit_interval"], message["lanes"])
            self._watched = {UnitId(*unit) for unit in message["watched"]}
            wanted = {UnitId(*unit) for unit in message["plan"]}
            self._close(unit_id for unit_id in list(self._units) if unit_id not in wanted)
            for unit_id in sorted(wanted - self._units.keys()):
                self._open(unit_id)

    def _open(self, unit_id: UnitId) -> None:
        with self._guarding(unit_id, opening=True):
            application = self._applications[unit_id.application]
            of, open_unit = standby_name(unit_id.name), application.open_unit
            if of is not None and application.open_standby is not None:
                open_unit = application.open_standby
            if unit_id.name in application.waiting:
                unit = self._opening[unit_id] = WaitingUnit(
                    unit_id, open_unit, self, self._threads, lambda: self._commits.interval, self.unit_failed
                )
                self._units[unit_id] = RunningUnit(unit, application.client)
                return
            # The first turn is for what has no input: timers, and units that fetch by themselves.
            opened = open_unit(of or unit_id.name, self)
            self._units[unit_id] = RunningUnit(opened, application.client, busy=True)
            self._link.send({"opened": unit_id})

    def _finish_turns(self) -> None:
        """Of units in threads: who has been opened, and who has closed."""
        self._threads.finish()
        for unit_id, unit in list(self._opening.items()):
            if unit.opened:
                del self._opening[unit_id]
                self._link.send({"opened": unit_id})
        for unit_id, unit in list(self._leaving.items()):
            if unit.closed:
                del self._leaving[unit_id]
                if self._units.pop(unit_id, None) is not None:
                    self._link.send({"released": unit_id, "status": asdict(unit.status)})

    def _close(self, unit_ids: Iterable[UnitId]) -> None:
        """What they have done goes into a last commit; then they may run elsewhere."""
        leaving = []
        for unit_id in unit_ids:
            unit = self._units[unit_id].unit
            if isinstance(unit, WaitingUnit):
                self._opening.pop(unit_id, None)
                self._leaving[unit_id] = unit
                unit.leave()
            else:
                leaving.append(unit_id)
        self._commits.commit([unit_id for unit_id in leaving if self._units[unit_id].unit.uncommitted])
        closed: dict[UnitId, RunningUnit] = {}
        for unit_id in leaving:
            running = self._units.pop(unit_id, None)
            if running is None:
                continue  # its last commit failed, which was reported
            try:
                running.unit.close()
            except Exception as error:
                log.warning("closing %s: %s", unit_id, error)
            closed[unit_id] = running
        self._transactions.release(closed)
        for unit_id, running in closed.items():
            self._link.send({"released": unit_id, "status": asdict(running.unit.status)})
        self._drop_shared()

    def _guarding(self, unit_id: UnitId, *, opening: bool = False) -> _Guard:
        return _Guard(self, unit_id, opening)

    def begin_turn(self, unit_id: UnitId) -> None:
        self._turn = (unit_id, time.monotonic())
        self._tell_turn(unit_id, "began")

    def end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self._tell_turn(turn[0], "ended")

    def _tell_turn(self, unit_id: UnitId, what: str) -> None:
        """Of units that may have ended a process: if this one ends too, the planner knows in whose turn."""
        if unit_id in self._watched:
            self._link.send({what: unit_id})

    def unit_failed(self, unit_id: UnitId, error: Exception) -> None:
        running = self._units.pop(unit_id, None)
        self._opening.pop(unit_id, None)
        self._leaving.pop(unit_id, None)
        if running is not None:
            with contextlib.suppress(Exception):
                running.unit.abandon()
        self._transactions.release([unit_id])
        self._drop_shared()
        fenced = isinstance(error, KafkaError) and is_fenced(error)
        if not fenced:
            log.warning("%s failed: %s", unit_id, error)
        self._link.send(
            {
                "failed": unit_id,
                "error": str(error) if type(error) is FinalError else f"{type(error).__name__}: {error}",
                "trace": "".join(traceback.format_exception(error)),
                "fenced": fenced,
                "final": is_final(error),
                "passing": isinstance(error, Unreachable)
                or (isinstance(error, KafkaError) and retriable(error)),
            }
        )

    def _drop_shared(self) -> None:
        applications = {unit_id.application for unit_id in self._units}
        for application in self._applications.keys() - applications:
            OF_THIS_PROCESS.release((id(self), application))

    def _report(self) -> None:
        now = time.monotonic()
        if self._units and now >= self._next_status:
            self._next_status = now + STATUS_EVERY
            status = []
            for unit_id, running in self._units.items():
                now_is = running.unit.status
                if now_is != running.reported:
                    running.reported = replace(now_is, metrics=dict(now_is.metrics))
                    status.append([unit_id, asdict(now_is)])
            if status:
                self._link.send({"status": status})
            beside = self._threads.longest()
            if beside is not None and beside[1] > self._unit_timeout:
                self._forget(beside[0])

    def _forget(self, unit_id: UnitId) -> None:
        """A unit in a thread that does not come back. The planner moves all others and ends this lane."""
        self._threads.give_up(unit_id)
        for known in (self._units, self._opening, self._leaving):
            known.pop(unit_id, None)
        self._say_stuck(unit_id)

    def _end(self) -> None:
        """Whatever the reason: nothing is left open, and the connection's end tells the planner."""
        self._ended = True
        try:
            with contextlib.suppress(LinkClosed):
                self._close(list(self._units))
                self._wait_for_threads()
        finally:
            self._closed.set()
            for running in self._units.values():
                with contextlib.suppress(Exception):
                    running.unit.abandon()
            self._units.clear()
            self._drop_shared()
            self._threads.close()
            self._fetchers.close()
            self._clusters.close()
            self._link.close()
            if self._exit:
                self._end_process()

    def _wait_for_threads(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while self._leaving and (left := deadline - time.monotonic()) > 0:
            self._poll()
            self._commits.when_due()
            if wait_for([self._threads], min(left, 0.1)):
                self._finish_turns()


def wait_for(objects: Iterable[Any], seconds: float) -> list[Any]:
    """Those that can be read from. Not by select(), which knows no descriptors above 1023: each store of a
    unit has two. poll() counts whole milliseconds, and a commit need not wait for the next one: what is left
    is slept."""
    until = time.monotonic() + seconds
    by_descriptor = {one.fileno(): one for one in objects}
    poller = select.poll()
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    ready = poller.poll(int(seconds * 1000))
    if not ready and (left := until - time.monotonic()) > 0:
        time.sleep(left)
        ready = poller.poll(0)
    return [by_descriptor[descriptor] for descriptor, _ in ready]


class _Guard:
    """A unit's turn: what goes wrong in it is the unit's own."""

    __slots__ = ("_lane", "_opening", "_unit_id")

    def __init__(self, lane: Lane, unit_id: UnitId, opening: bool) -> None:
        self._lane, self._unit_id, self._opening = lane, unit_id, opening

    def __enter__(self) -> None:
        if not self._opening:  # a restore may take long, and is watched by nobody
            self._lane.begin_turn(self._unit_id)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: Any) -> bool:
        self._lane.end_turn()
        if isinstance(error, Exception) and not isinstance(error, LinkClosed):
            self._lane.unit_failed(self._unit_id, error)
            return True
        return False
