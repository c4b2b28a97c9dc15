"""When a lane commits, and how: the transactions of all units that have something to commit, together.

A commit follows when the interval since the last one began is over: what comes after a quiet time is
committed at once, and under load the interval decides. It grows with the number of transactions (one for all
Streams tasks of an application, `ownership`; one for each unit of a connector), so that a host stays below
`MAX_TRANSACTIONS` a second, and with the time that commits take, so that units have half of the lane's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from millstream.client import ClientConfig, Cluster
from millstream.client.transaction_commits import TransactionCommit, commit_all
from millstream.host.ownership import LaneTransactions
from millstream.host.progress import Markers
from millstream.host.unit import Unit, UnitId, UnitStatus

MAX_TRANSACTIONS = 400


@dataclass(slots=True)
class RunningUnit:
    unit: Unit
    client: ClientConfig
    busy: bool = False
    reported: UnitStatus | None = None
    """What the planner knows of it: units that do nothing send nothing."""


class LaneCommits:
    """Of one lane. `guarding` makes what goes wrong with a unit its own."""

    def __init__(
        self,
        units: Mapping[UnitId, RunningUnit],
        transactions: LaneTransactions,
        cluster: Callable[[ClientConfig], Cluster],
        guarding: Callable[[UnitId], AbstractContextManager[None]],
    ) -> None:
        self._units, self._transactions = units, transactions
        self._cluster, self._guarding = cluster, guarding
        self._markers: dict[ClientConfig, Markers] = {}
        self._least_interval, self._lanes = 0.05, 1
        self._last = self._took = 0.0
        self.interval = self._least_interval

    def every(self, seconds: float, lanes: int) -> None:
        """The shortest interval, and how many lanes share the limit."""
        self._least_interval, self._lanes = seconds, lanes

    def _uncommitted(self) -> list[UnitId]:
        return [unit_id for unit_id, running in self._units.items() if running.unit.uncommitted]

    def _due_at(self, unit_ids: Iterable[UnitId]) -> float:
        transactions = {
            unit_id.application if unit_id in self._transactions else unit_id for unit_id in unit_ids
        }
        self.interval = max(
            self._least_interval, len(transactions) * self._lanes / MAX_TRANSACTIONS, 2 * self._took
        )
        return self._last + self.interval

    def due(self) -> float | None:
        """When the next commit is, or None if there is nothing to commit."""
        waiting = self._uncommitted()
        return self._due_at(waiting) if waiting else None

    def when_due(self) -> None:
        """Commits if it is time, or if a unit can take no more before."""
        waiting = self._uncommitted()
        if not waiting:
            return
        full = any(self._units[unit_id].unit.full for unit_id in waiting)
        if not full and time.monotonic() < self._due_at(waiting):
            return
        self._last = time.monotonic()
        self.commit(waiting)
        self._took = time.monotonic() - self._last

    def commit(self, unit_ids: Iterable[UnitId]) -> None:
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
            began = time.monotonic()
            markers = self._markers.setdefault(config, Markers(self._cluster(config)))
            failed = commit_all(self._cluster(config), list(by_unit.values()), markers.join)
            took = (time.monotonic() - began) * 1000
            for number, (unit_id, commit) in enumerate(by_unit.items()):
                with self._guarding(unit_id):
                    error = failed.get(number)
                    if error is not None:
                        raise error
                    unit = self._units[unit_id].unit
                    unit.committed(commit)
                    unit.status.commit_ms = took
