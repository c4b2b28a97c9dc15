"""The global tables of an application: whole, in memory, once for all units of a process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from millstream.client import Cluster
from millstream.streams.runtime.topic_reader import TopicReader
from millstream.streams.task import Errors, OpenStore, StreamTask, in_memory

if TYPE_CHECKING:
    from millstream.streams.runtime.task_config import StreamsConfig
    from millstream.streams.topology import Topology


def global_table_task(
    topology: Topology,
    application: str,
    sub_topologies: list[int],
    errors: Errors | None,
    open_store: OpenStore = in_memory,
) -> StreamTask:
    """Takes the topics of global tables into stores; it writes nothing."""
    return StreamTask(
        topology,
        application,
        lambda *_: None,
        sub_topologies=sub_topologies,
        now=lambda: int(time.time() * 1000),
        errors=errors,
        open_store=open_store,
    )


class GlobalTables:
    """Read on by `catch_up`, before records that may be joined with them. Whoever reads them, and whoever
    works with what was read, holds `lock`: lanes of the same process may share them."""

    def __init__(self, settings: StreamsConfig, topology: Topology) -> None:
        sub_topologies = [one.id for one in topology.sub_topologies() if one.is_global]
        self._task = global_table_task(topology, settings.application, sub_topologies, settings.errors)
        self._cluster = Cluster(settings.client)
        self._reader = TopicReader(self._cluster, topology.global_stores.values())
        self.lock = threading.Lock()
        self.stores = self._task.stores

    def catch_up(self) -> None:
        for (topic, number), records in self._reader.read_to(self._reader.ends()):
            self._task.deliver_batch(topic, number, records)

    def close(self) -> None:
        self._cluster.close()
