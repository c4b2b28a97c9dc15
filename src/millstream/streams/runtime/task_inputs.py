"""The topics that the tasks of an application read: those that its sources name, and those that match their
patterns now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client import Admin, Cluster
from millstream.streams.runtime.topics import internal_topics

if TYPE_CHECKING:
    from millstream.streams.topology import Topology


def topics_there(topology: Topology, application: str, cluster: Cluster) -> list[str]:
    """The cluster's topics that a pattern may match: not the application's own internal ones, nor those of
    the brokers. None, if the topology has no patterns."""
    if not topology.has_patterns:
        return []
    names = [name for name in Admin(cluster).topic_names() if not name.startswith("__")]
    own = set(internal_topics(names, application, topology, ()))
    return [name for name in names if name not in own]


def input_topics(topology: Topology, application: str, cluster: Cluster) -> dict[int, list[str]]:
    """What each sub-topology reads, as it is called in the cluster. Global tables are no tasks."""
    there = topics_there(topology, application, cluster)
    return {
        sub_topology.id: sorted(
            {
                topology.internal_name(topic, application)
                for source in sub_topology.sources
                for topic in topology.topics_of(source, there)
            }
        )
        for sub_topology in topology.sub_topologies()
        if not sub_topology.is_global
    }
