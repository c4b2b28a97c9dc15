"""The clusters that the tasks of a Python process of Spark talk to.

Spark uses a Python worker for many tasks, one after the other. Source, sink and dead letters take theirs from
`shared_cluster`, so that connections, producers and what is known about topics outlive a task.
"""

from millstream.client import ClientConfig
from millstream.client.cluster_cache import ClusterCache, SharedCluster

MAX_CLUSTERS = 8  # a worker that serves many queries must not collect connections

_clusters = ClusterCache(MAX_CLUSTERS)


def shared_cluster(config: ClientConfig) -> SharedCluster:
    """The cluster that `config` leads to, connected already if a task before this one was there."""
    return _clusters.get(config)


def cluster_for_writing(config: ClientConfig, timeout: float | None = None) -> SharedCluster:
    """The same with metadata that is not too old, once a broker has answered."""
    return shared_cluster(config).refresh_old_metadata().wait_until_reachable(timeout)


def close_clusters() -> None:
    """All of them, for a process that goes on without."""
    _clusters.close()
