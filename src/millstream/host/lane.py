"""A lane: the loop over the units that one process runs.

One thread does it all: it hears the planner, fetches for all units at once, gives each its turn, and commits
for those that have something to commit, all transactions together. A turn is short, because what a unit has
been given to work on is bounded; so units do not need threads, and a unit that has nothing to do costs
nothing.

A commit follows when the interval since the last one is over: what comes after a quiet time is committed at
once, and under load the interval decides. It grows with the number of units that have something to commit, so
that a host stays below `MAX_TRANSACTIONS` a second.

An error belongs to the unit it came from: the unit is closed and reported, and the planner decides. The lane
ends when the planner says so or is gone, or when the lease is over that Spark's task renews.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import pickle
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from millstream.client import ClientConfig, Cluster
from millstream.client.errors import Unreachable, retriable
from millstream.client.fetch import Fetched
from millstream.client.transaction_commits import TransactionCommit, commit_all
from millstream.client.transactional import is_fenced
from millstream.host.errors import FinalError
from millstream.host.fetching import FetchKey, LaneFetchers
from millstream.host.link import Link, LinkClosed, Message
from millstream.host.unit import OpenUnit, Unit, UnitId
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.host")

MAX_TRANSACTIONS = 200
STATUS_EVERY = 1.0
IDLE_SECONDS = 5.0


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


@dataclass(slots=True)
class _Running:
    unit: Unit
    client: ClientConfig
    busy: bool = False


class Lane:
    """The units of one process. Made and run in one thread; `stuck_for` may be asked from others."""

    def __init__(
        self, link: Link, machine: str, lease: Lease, unpack: Callable[[bytes], Any] = pickle.loads
    ) -> None:
        self.machine, self.lease = machine, lease
        self._link, self._unpack = link, unpack
        self._applications: dict[str, _Application] = {}
        self._units: dict[UnitId, _Running] = {}
        self._by_partition: dict[tuple[FetchKey, TopicPartition], UnitId] = {}
        self._clusters: dict[ClientConfig, Cluster] = {}
        self._shared: dict[Any, Any] = {}
        self._fetchers = LaneFetchers()
        self._ended = False
        self._commit_interval, self._lanes = 0.05, 1
        self._last_commit = self._next_status = 0.0
        self._turn: tuple[UnitId, float] | None = None

    # --- for units ------------------------------------------------------------------------------------------

    def cluster(self, config: ClientConfig) -> Cluster:
        found = self._clusters.get(config)
        if found is None:
            found = self._clusters[config] = Cluster(config)
        return found

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    # --- the loop -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the end. Units are closed then, and the planner knows."""
        try:
            while not self._ended and self.lease.left > 0:
                self._one_turn()
        except LinkClosed:
            log.info("the planner is gone; this lane ends")
        finally:
            self._end()

    def _one_turn(self) -> None:
        while self._link.waiting():
            self._hear(self._link.receive())
        self._fetchers.send(self._positions())
        waiting_for: list[Any] = [self._link, *self._fetchers.connections()]
        ready, _, _ = select.select(waiting_for, [], [], self._patience())
        fetched = self._fetchers.receive(ready)
        for key, answer, offset in fetched:
            self._deliver(key, answer, offset)
        if fetched:
            self._fetchers.send(self._positions())
        self._poll()
        self._commit()
        self._report()

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
        if any(running.unit.uncommitted for running in self._units.values()):
            times.append(self._last_commit + self._interval())
        return max(0.0, min(times) - now)

    def _positions(self) -> dict[FetchKey, dict[TopicPartition, int]]:
        """What all units want, and whose each partition is."""
        found: dict[FetchKey, dict[TopicPartition, int]] = {}
        self._by_partition.clear()
        for unit_id, running in self._units.items():
            key = FetchKey(running.client, unit_id.application, running.unit.fetch_bytes)
            positions = running.unit.positions
            found.setdefault(key, {}).update(positions)
            for topic_partition in positions:
                self._by_partition[key, topic_partition] = unit_id
        return found

    def _deliver(self, key: FetchKey, fetched: Fetched, offset: int) -> None:
        """To the unit that waits for it. An answer from another offset than the unit is at was asked for by
        whoever ran it before."""
        topic_partition = TopicPartition(fetched.topic, fetched.partition)
        unit_id = self._by_partition.get((key, topic_partition))
        running = self._units.get(unit_id) if unit_id is not None else None
        if unit_id is None or running is None:
            return  # it went elsewhere meanwhile
        if offset >= 0 and running.unit.positions.get(topic_partition) != offset:
            return
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

    def _interval(self) -> float:
        committing = sum(running.unit.uncommitted for running in self._units.values())
        return max(self._commit_interval, committing * self._lanes / MAX_TRANSACTIONS)

    def _commit(self) -> None:
        waiting = [unit_id for unit_id, running in self._units.items() if running.unit.uncommitted]
        if not waiting:
            return
        full = any(self._units[unit_id].unit.full for unit_id in waiting)
        if not full and time.monotonic() < self._last_commit + self._interval():
            return
        self._commit_units(waiting)
        self._last_commit = time.monotonic()

    def _commit_units(self, unit_ids: Iterable[UnitId]) -> None:
        commits: dict[ClientConfig, dict[UnitId, TransactionCommit]] = {}
        for unit_id in unit_ids:
            running = self._units[unit_id]
            with self._guarding(unit_id):
                commit = running.unit.prepare_commit()
                if commit is None:
                    running.unit.committed(None)
                else:
                    commits.setdefault(running.client, {})[unit_id] = commit
        for config, by_unit in commits.items():
            failed = commit_all(self.cluster(config), list(by_unit.values()))
            for unit_id, commit in by_unit.items():
                with self._guarding(unit_id):
                    error = failed.get(commit.producer.transactional_id)
                    if error is not None:
                        raise error
                    self._units[unit_id].unit.committed(commit)

    # --- units come, go and fail ----------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        """`application`: how to make its units. `plan`: which of them to run from now on."""
        if "application" in message:
            module_path, content = pickle.loads(base64.b64decode(message["content"]))  # noqa: S301 - the planner's own
            sys.path.extend(folder for folder in module_path if folder not in sys.path)
            client, open_unit = self._unpack(content)
            self._close(
                unit_id for unit_id in list(self._units) if unit_id.application == message["application"]
            )
            self._applications[message["application"]] = _Application(client, open_unit)
        elif "plan" in message:
            self._ended = bool(message["end"])
            self._commit_interval, self._lanes = message["commit_interval"], message["lanes"]
            wanted = {UnitId(*unit) for unit in message["plan"]}
            self._close(unit_id for unit_id in list(self._units) if unit_id not in wanted)
            for unit_id in sorted(wanted - self._units.keys()):
                self._open(unit_id)

    def _open(self, unit_id: UnitId) -> None:
        with self._guarding(unit_id, opening=True):
            application = self._applications[unit_id.application]
            unit = application.open_unit(unit_id.name, self)
            # The first turn is for what has no input: timers, and units that fetch by themselves.
            self._units[unit_id] = _Running(unit, application.client, busy=True)
            self._link.send({"opened": unit_id})

    def _close(self, unit_ids: Iterable[UnitId]) -> None:
        """What they have done goes into a last commit; then they may run elsewhere."""
        leaving = [unit_id for unit_id in unit_ids if unit_id in self._units]
        self._commit_units([unit_id for unit_id in leaving if self._units[unit_id].unit.uncommitted])
        for unit_id in leaving:
            running = self._units.pop(unit_id, None)
            if running is None:
                continue  # its last commit failed, which was reported
            try:
                running.unit.close()
            except Exception as error:
                log.warning("closing %s: %s", unit_id, error)
            self._link.send({"released": unit_id, "status": asdict(running.unit.status)})
        self._drop_shared()

    def _guarding(self, unit_id: UnitId, *, opening: bool = False) -> _Guard:
        return _Guard(self, unit_id, opening)

    def begin_turn(self, unit_id: UnitId) -> None:
        self._turn = (unit_id, time.monotonic())

    def end_turn(self) -> None:
        self._turn = None

    def stuck_for(self) -> tuple[UnitId, float] | None:
        """The unit that has its turn, and for how many seconds. For a watchdog."""
        turn = self._turn
        return None if turn is None else (turn[0], time.monotonic() - turn[1])

    def unit_failed(self, unit_id: UnitId, error: Exception) -> None:
        running = self._units.pop(unit_id, None)
        if running is not None:
            with contextlib.suppress(Exception):
                running.unit.abandon()
            self._drop_shared()
        fenced = isinstance(error, KafkaError) and is_fenced(error)
        if not fenced:
            log.warning("%s failed: %s", unit_id, error)
        self._link.send(
            {
                "failed": unit_id,
                "error": f"{type(error).__name__}: {error}",
                "trace": "".join(traceback.format_exception(error)),
                "fenced": fenced,
                "final": isinstance(error, FinalError),
                "passing": isinstance(error, Unreachable)
                or (isinstance(error, KafkaError) and retriable(error)),
            }
        )

    def _drop_shared(self) -> None:
        applications = {unit_id.application for unit_id in self._units}
        for key in [key for key in self._shared if key[0] not in applications]:
            found = self._shared.pop(key)
            if hasattr(found, "close"):
                found.close()

    def _report(self) -> None:
        now = time.monotonic()
        if self._units and now >= self._next_status:
            self._next_status = now + STATUS_EVERY
            status = [[unit_id, asdict(running.unit.status)] for unit_id, running in self._units.items()]
            self._link.send({"status": status})

    def _end(self) -> None:
        """Whatever the reason: nothing is left open, and the connection's end tells the planner."""
        try:
            with contextlib.suppress(LinkClosed):
                self._close(list(self._units))
        finally:
            for running in self._units.values():
                with contextlib.suppress(Exception):
                    running.unit.abandon()
            self._units.clear()
            self._fetchers.close()
            for cluster in self._clusters.values():
                cluster.close()
            self._link.close()


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
