"""A unit whose turns are taken by threads beside the loop, as its lane sees it.

To the lane it is a unit like any other, only that nothing happens while a call is made: what was fetched is
kept for the next turn, `poll` begins a turn, and what there is to commit is prepared at the end of one. A
unit with a prepared commit has no turn before the commit is done; then `committed` is called at the beginning
of the next. `opened` and `closed` say what has come of it.

A turn is all that is at hand: what was committed, what was fetched, `poll` for as long as there is more, up
to `TURN_SECONDS`, and the preparation of a commit when it is due. What comes next is fetched meanwhile, so
the positions of such a unit change by what it receives and by nothing else; a partition that the turn has got
something of is asked for when the turn is over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from millstream.client import ClientConfig, Cluster
from millstream.client.cluster_cache import ClusterCache
from millstream.client.fetch import Fetched
from millstream.client.transaction_commits import TransactionCommit
from millstream.host.ownership import Claim, LaneTransactions
from millstream.host.turns import Turn, TurnThreads
from millstream.host.unit import LaneContext, OpenUnit, Unit, UnitId, UnitStatus
from millstream.wire.topic_partition import TopicPartition

TURN_SECONDS = 0.01
"""A change of threads costs as much as some hundred records."""


@runtime_checkable
class Paced(Protocol):
    """A unit that is in no hurry to commit."""

    @property
    def paced_until(self) -> float:
        """No commit before then, by time.monotonic(), unless the unit is full or leaves."""


class _Context:
    """Connections are for one thread at a time, so these are the unit's own."""

    def __init__(self, lane: LaneContext) -> None:
        self.machine, self.shared = lane.machine, lane.shared
        self._clusters, self._transactions = ClusterCache(), LaneTransactions()

    def cluster(self, config: ClientConfig) -> Cluster:
        return self._clusters.get(config).cluster

    def claim(self, config: ClientConfig, application: str, name: str, timeout_ms: int) -> Claim:
        return self._transactions.claim(config, self.cluster(config), UnitId(application, name), timeout_ms)

    def close(self) -> None:
        self._transactions.release_all()
        self._clusters.close()


class WaitingUnit:
    """See `millstream.host.unit.Unit`. `failed` is called in the lane's thread."""

    def __init__(
        self,
        unit_id: UnitId,
        open_unit: OpenUnit,
        lane: LaneContext,
        threads: TurnThreads,
        interval: Callable[[], float],
        failed: Callable[[UnitId, Exception], None],
    ) -> None:
        self._unit_id, self._threads, self._interval, self._failed = unit_id, threads, interval, failed
        self._context = _Context(lane)
        self._unit: Unit | None = None
        self._paced: Paced | None = None
        self._in_turn = self._more = self._leaving = False
        self._received: list[Fetched] = []
        self._in_work: frozenset[TopicPartition] = frozenset()
        self._prepared: TransactionCommit | None = None
        self._committed: TransactionCommit | None = None
        self._committed_at = 0.0
        self._positions: Mapping[TopicPartition, int] = {}
        self.status, self.fetch_bytes = UnitStatus(), 1 << 20
        self.opened = self.closed = False
        # Whether a thread is inside of the unit, as far as the end of this object is concerned.
        self._at_work, self._ending = False, threading.Lock()
        self._begin(lambda: self._open(open_unit), watched=False)

    # --- in the lane's thread -------------------------------------------------------------------------------

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        if self._leaving or self._unit is None:
            return {}
        if not self._received and not self._in_work:
            return self._positions
        # An answer has several partitions, and the first of them may be empty every time.
        taken = self._in_work.union(TopicPartition(one.topic, one.partition) for one in self._received)
        return {which: at for which, at in self._positions.items() if which not in taken}

    def receive(self, fetched: Fetched) -> None:
        self._received.append(fetched)

    def poll(self) -> bool:
        if not self._in_turn and self._prepared is None and not self.closed:
            received, self._received = self._received, []
            self._in_work = frozenset(TopicPartition(one.topic, one.partition) for one in received)
            committed, self._committed = self._committed, None
            self._begin(lambda: self._turn(committed, received))
        return False

    @property
    def due(self) -> float | None:
        if self._in_turn or self._prepared is not None or self.closed or self._unit is None:
            return None
        if self._more or self._received or self._committed is not None or self._leaving:
            return 0.0
        commit_at = self._commit_at() if self._unit.uncommitted else None
        times = [at for at in (self._unit.due, commit_at) if at is not None]
        return min(times, default=None)

    @property
    def uncommitted(self) -> bool:
        return self._prepared is not None

    @property
    def full(self) -> bool:
        """It waits for nothing but the commit."""
        return self._prepared is not None

    def prepare_commit(self) -> TransactionCommit | None:
        return self._prepared

    def committed(self, commit: TransactionCommit | None) -> None:
        self._prepared, self._committed = None, commit
        self._committed_at = time.monotonic()

    def leave(self) -> None:
        """Its next turns are its last ones; `closed` tells when."""
        self._leaving = True
        if self._unit is None and not self._in_turn:
            self.closed = True

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Without waiting: who is in a turn is abandoned at its end, by the thread that took it."""
        with self._ending:
            unit, self._unit, self.closed = self._unit, None, True
            at_work = self._at_work
        if unit is not None and not at_work:
            # Not as a turn: the lane may be at its end, and takes none any more.
            threading.Thread(target=self._abandon, args=(unit,), name="host-abandon", daemon=True).start()

    def _begin(self, act: Callable[[], Any], *, watched: bool = True) -> None:
        self._in_turn = True
        self._threads.take(Turn(self._unit_id, act, self._ended, watched))

    def _ended(self, result: Any, error: Exception | None) -> None:
        self._in_turn, self._in_work = False, frozenset()
        unit = self._unit
        if error is not None:
            self._unit, self.closed = None, True
            self._failed(self._unit_id, error)
        elif unit is not None and not self.closed:
            self.opened = True
            self._more, self._prepared = result
            self.status, self.fetch_bytes = unit.status, unit.fetch_bytes
            self._positions = dict(unit.positions)
            if self._leaving and not unit.uncommitted and self._committed is None:
                self._unit = None
                self._begin(lambda: self._close(unit))
        elif self._leaving:
            self.closed = True

    # --- in some thread -------------------------------------------------------------------------------------

    def _open(self, open_unit: OpenUnit) -> tuple[bool, None]:
        try:
            unit = open_unit(self._unit_id.name, self._context)
        except BaseException:
            self._context.close()
            raise
        with self._ending:
            abandoned = self.closed
            self._unit = None if abandoned else unit
            self._paced = unit if isinstance(unit, Paced) else None
        if abandoned:
            self._abandon(unit)
        return True, None

    def _turn(
        self, committed: TransactionCommit | None, received: list[Fetched]
    ) -> tuple[bool, TransactionCommit | None]:
        unit = self._unit
        if unit is None:
            return False, None  # abandoned before its turn
        with self._ending:
            self._at_work = True
        try:
            return self._work(unit, committed, received)
        finally:
            with self._ending:
                self._at_work = False
                abandoned = self.closed
            if abandoned:
                self._abandon(unit)

    def _work(
        self, unit: Unit, committed: TransactionCommit | None, received: list[Fetched]
    ) -> tuple[bool, TransactionCommit | None]:
        try:
            if committed is not None:
                unit.committed(committed)
            for fetched in received:
                unit.receive(fetched)
            more, until = not self._leaving, time.monotonic() + TURN_SECONDS
            if more:
                more = unit.poll()
                while more and not self._leaving and not unit.full and time.monotonic() < until:
                    more = unit.poll()
            prepared = None
            due = time.monotonic() >= self._commit_at()
            if unit.uncommitted and (due or unit.full or self._leaving):
                prepared = unit.prepare_commit()
                if prepared is None:
                    unit.committed(None)
                    self._committed_at = time.monotonic()
            return more, prepared
        except BaseException:
            self._abandon(unit)
            raise

    def _commit_at(self) -> float:
        at = self._committed_at + self._interval()
        return at if self._paced is None else max(at, self._paced.paced_until)

    def _close(self, unit: Unit) -> None:
        try:
            unit.close()
        finally:
            self._context.close()

    def _abandon(self, unit: Unit) -> None:
        with contextlib.suppress(Exception):
            unit.abandon()
        self._context.close()
