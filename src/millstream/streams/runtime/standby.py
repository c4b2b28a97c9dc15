"""A standby copy of a task's stores: kept current from the changelogs, on another machine than the task.

It lies in the folder that the task would use on this machine. When the task comes here, the copy is closed
first; the task finds a folder that lacks next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.client.fetch import Fetched
from millstream.host.unit import LaneContext, UnitStatus
from millstream.streams.runtime.restore import FolderPosition, Restore
from millstream.streams.stores.lmdb import StoreFolder
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client.transaction_commits import TransactionCommit
    from millstream.streams.runtime.task_config import StreamsConfig
    from millstream.streams.topology import Topology

FOLDER_COMMIT_SECONDS = 1.0


class StandbyUnit:
    """See `millstream.host.unit.Unit`. It has nothing to commit to the cluster."""

    fetch_bytes = 1 << 20
    uncommitted = full = False

    def __init__(self, settings: StreamsConfig, topology: Topology, task: str, lane: LaneContext) -> None:
        sub_topology, partition = map(int, task.split("_"))
        self.status = UnitStatus()
        self._due: float | None = None
        path = settings.folder_of(task, lane.machine)
        self._data = path / "data.mdb"
        self._folder = StoreFolder(path, size=settings.max_state_bytes)
        try:
            specs = [
                topology.stores[name]
                for one in topology.sub_topologies()
                if one.id == sub_topology
                for name in one.stores
                if topology.stores[name].logged
            ]
            changelogs = {
                TopicPartition(spec.changelog(settings.application), partition): self._folder.open(
                    spec, settings.application
                )
                for spec in specs
            }
            self._folder.commit()  # the databases of new stores
            kept = FolderPosition.decode(self._folder.position)
            cluster = lane.cluster(settings.client)
            self._restore = Restore(cluster, self._folder, changelogs, kept, follow=True)
        except BaseException:
            self._folder.close()
            raise
        self._ends: dict[TopicPartition, int] = {}

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return self._restore.positions

    def receive(self, fetched: Fetched) -> None:
        self._restore.receive(fetched)
        self._ends[TopicPartition(fetched.topic, fetched.partition)] = fetched.last_stable_offset

    def poll(self) -> bool:
        more = self._restore.work()
        now = time.monotonic()
        if self._restore.uncommitted and self._due is None:
            self._due = now + FOLDER_COMMIT_SECONDS
        if self._due is not None and now >= self._due:
            self._commit()
        reached = self._restore.positions_reached
        self.status.restored = self._restore.records
        self.status.lag = sum(max(0, end - reached[which]) for which, end in self._ends.items())
        return more

    def _commit(self) -> None:
        self._due = None
        self._restore.commit()
        self.status.state_bytes = self._data.stat().st_size

    @property
    def due(self) -> float | None:
        return self._due

    def prepare_commit(self) -> TransactionCommit | None:
        return None

    def committed(self, commit: TransactionCommit | None) -> None: ...

    def close(self) -> None:
        try:
            self._restore.commit()
        finally:
            self._folder.close()

    def abandon(self) -> None:
        self._folder.close()
