"""A copy of a global table: its topic as the application's own processor takes it, one store for all
partitions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client import ClientConfig
from millstream.streams.runtime.global_tables import global_table_task
from millstream.streams.stores import StoreSpec
from millstream.streams.stores.lmdb import ReadOnlyFolder
from millstream.streams.task import Errors
from millstream.streams.topology import Topology
from millstream.streams.views.topic_view import TopicView

if TYPE_CHECKING:
    from millstream.streams.runtime.fetched_records import SomeRecords


class GlobalView(TopicView):
    """What cannot be read or processed is left out, and logged: the application decides what that means."""

    def __init__(
        self, topology: Topology, spec: StoreSpec, application: str, folder: Path | str, client: ClientConfig
    ) -> None:
        self._topology = topology
        topic = topology.global_stores[spec.name]
        super().__init__(spec, topic, folder, client, application=application)

    def _open_stores(self, partitions: Iterable[int]) -> None:
        name = self.spec.name
        holders = [one.id for one in self._topology.sub_topologies() if name in one.stores]
        errors = Errors(reading="continue", processing="continue")
        self._task = global_table_task(self._topology, self._application, holders, errors, self._folder.open)
        self._folder.commit()
        self._stores: dict[int, Any] = {0: self._task.stores[name]}

    def _take(self, partition: int, records: SomeRecords) -> None:
        self._task.deliver_batch(self.topic, partition, records)

    def _snapshot_stores(self, folder: ReadOnlyFolder, partitions: list[int]) -> dict[int, Any]:
        return {0: folder.open(self.spec, self._application)} if partitions else {}
