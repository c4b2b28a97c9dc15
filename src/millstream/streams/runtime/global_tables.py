"""The global tables of an application: whole, in memory, once for all units of a lane."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.streams.runtime.topic_reader import TopicReader
from millstream.streams.task import Errors, StreamTask

if TYPE_CHECKING:
    from millstream.client import Cluster
    from millstream.streams.runtime.task_config import StreamsConfig
    from millstream.streams.topology import Topology


def global_table_task(
    topology: Topology, application: str, sub_topologies: list[int], errors: Errors | None
) -> StreamTask:
    """Takes the topics of global tables into stores in memory; it writes nothing."""
    return StreamTask(
        topology,
        application,
        lambda *_: None,
        sub_topologies=sub_topologies,
        now=lambda: int(time.time() * 1000),
        errors=errors,
    )


class GlobalTables:
    """Read on by `catch_up`, before records that may be joined with them."""

    def __init__(self, settings: StreamsConfig, topology: Topology, cluster: Cluster) -> None:
        sub_topologies = [one.id for one in topology.sub_topologies() if one.is_global]
        self._task = global_table_task(topology, settings.application, sub_topologies, settings.errors)
        self._reader = TopicReader(cluster, topology.global_stores.values())
        self.stores = self._task.stores

    def catch_up(self) -> None:
        for (topic, number), records in self._reader.read_to(self._reader.ends()):
            self._task.deliver_batch(topic, number, records)
