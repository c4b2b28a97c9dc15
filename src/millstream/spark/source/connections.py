"""One connection per cluster and worker. Spark keeps its Python workers between tasks, and so stay their connections."""

import os

from millstream.client import ClientConfig, Cluster
from millstream.spark.reconnect import reached

MOST = 8  # clusters at a time: a worker that serves many queries must not collect connections

_open: dict[tuple[int, ClientConfig], Cluster] = {}


def cluster(config: ClientConfig) -> Cluster:
    """The cluster that `config` leads to, connected already if a task before this one was there."""
    key = (os.getpid(), config)  # the process id: a connection does not survive a fork
    found = _open.pop(key, None)
    if found is None:
        found = Cluster(config)
    _open[key] = found  # the youngest is the last
    while len(_open) > MOST:
        _open.pop(next(iter(_open))).close()
    return found


def patient_cluster(config: ClientConfig, patience: float | None = None) -> Cluster:
    """The same for a query that runs: a process that is new need not find a broker at once. Whoever starts a query with a
    wrong address is told so before, by `cluster`."""
    return reached(cluster(config), config.total_timeout if patience is None else patience)
