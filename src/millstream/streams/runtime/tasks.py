"""The tasks of an application: which there are, and how a lane makes one of them.

A task is a sub-topology on one partition number; a sub-topology has as many as its widest source topic has
partitions. Its name is Kafka Streams': `0_3`.

The driver's process imports this and never runs a task: what a task is made of (Arrow, numba, LMDB) is
imported in the lane.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.client import Cluster
from millstream.host.unit import Application, LaneContext
from millstream.streams.runtime.task_config import StreamsConfig
from millstream.streams.runtime.task_inputs import input_topics

if TYPE_CHECKING:
    from millstream.streams.runtime.standby import StandbyUnit
    from millstream.streams.runtime.unit import StreamsUnit
    from millstream.streams.topology import Topology


class OpenTask:
    """Makes a task's unit in a lane; travels there with the topology."""

    def __init__(self, settings: StreamsConfig, topology: Topology) -> None:
        self._settings, self._topology = settings, topology

    def __call__(self, name: str, lane: LaneContext) -> StreamsUnit:
        from millstream.streams.runtime.unit import StreamsUnit

        sub_topology, partition = map(int, name.split("_"))
        return StreamsUnit(self._settings, self._topology, sub_topology, partition, lane)


class OpenStandby:
    """Makes the standby copy of a task."""

    def __init__(self, settings: StreamsConfig, topology: Topology) -> None:
        self._settings, self._topology = settings, topology

    def __call__(self, name: str, lane: LaneContext) -> StandbyUnit:
        from millstream.streams.runtime.standby import StandbyUnit

        return StandbyUnit(self._settings, self._topology, name, lane)


def task_names(topology: Topology, application: str, cluster: Cluster) -> tuple[str, ...]:
    return tuple(
        f"{sub_topology}_{partition}"
        for sub_topology, topics in input_topics(topology, application, cluster).items()
        for partition in range(max((len(cluster.topic(topic).partitions) for topic in topics), default=0))
    )


def stateful_tasks(topology: Topology, names: tuple[str, ...]) -> frozenset[str]:
    stateful = {
        sub_topology.id
        for sub_topology in topology.sub_topologies()
        if any(topology.stores[store].restored for store in sub_topology.stores)
    }
    return frozenset(name for name in names if int(name.split("_")[0]) in stateful)


def application_of(settings: StreamsConfig, topology: Topology, cluster: Cluster) -> Application:
    """What the host is asked to run."""
    names = task_names(topology, settings.application, cluster)
    settings = replace(settings, run=uuid.uuid4().hex)
    return Application(
        settings.application,
        settings.client,
        OpenTask(settings, topology),
        names,
        stateful_tasks(topology, names),
        open_standby=OpenStandby(settings, topology),
        standbys=settings.standbys,
    )
