"""Waiting for brokers that were there before.

A client that reaches no broker at all gives up at once: the address is wrong, or nothing runs there. Spark's processes come
and go while a query runs. One that is born while the brokers are away has no reason to doubt the address, since others have
used it.
"""

import time

from millstream.client import Cluster, Unreachable


def reached(cluster: Cluster, patience: float) -> Cluster:
    """`cluster`, once a broker has answered; after `patience` seconds, what it failed with."""
    deadline = time.monotonic() + patience
    pause = cluster.config.retry_backoff
    while not cluster.nodes:
        try:
            cluster.refresh([])
        except Unreachable:
            if time.monotonic() + pause > deadline:
                raise
            time.sleep(pause)
            pause = min(2 * pause, cluster.config.retry_backoff_max)
    return cluster
