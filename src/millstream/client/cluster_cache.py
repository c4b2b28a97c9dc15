"""Clusters that outlive the work that needed them: one `SharedCluster` for each client configuration.

Connections, producers and what is known about topics are worth keeping from one task to the next. They are
for one thread at a time, though, so a cache belongs to whoever works in one: the tasks of a Python worker of
Spark (`millstream.spark.clusters`), a lane of the host, or one of its units that waits for other servers.

A client that reaches no broker at all gives up at once, because the address is wrong or nothing runs there.
But a worker that Spark starts while the brokers are away has no reason to doubt an address that other workers
have used: it calls `wait_until_reachable` first.
"""

import os
import time
from dataclasses import dataclass, field

from millstream.client.admin import TOPIC, Admin
from millstream.client.cluster import Cluster
from millstream.client.config import ClientConfig
from millstream.client.errors import Unreachable
from millstream.client.producer import Producer
from millstream.wire.errors import KafkaError

METADATA_MAX_AGE = 300.0  # seconds; Kafka's default of metadata.max.age.ms
NO_LIMIT = 1 << 31

ProducerKey = tuple[int, bool, int]
"""acks, idempotence, request timeout in milliseconds."""


@dataclass(eq=False)
class SharedCluster:
    """What there is of one cluster: its connections, its producers, and what is known about its topics."""

    cluster: Cluster
    refreshed_at: float = field(default_factory=time.monotonic)
    max_message_bytes: dict[str, int] = field(default_factory=dict)
    producers: dict[ProducerKey, Producer] = field(default_factory=dict)

    def wait_until_reachable(self, timeout: float | None = None) -> "SharedCluster":
        """Until a broker has answered; after `timeout` seconds (by default, the client's own), what it failed
        with."""
        cluster = self.cluster
        deadline = time.monotonic() + (cluster.config.total_timeout if timeout is None else timeout)
        pause = cluster.config.retry_backoff
        while not cluster.nodes:
            try:
                cluster.refresh([])
            except Unreachable:
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, cluster.config.retry_backoff_max)
        return self

    def refresh_old_metadata(self) -> "SharedCluster":
        """For writers: partitions that were added meanwhile are found after a while."""
        if time.monotonic() - self.refreshed_at > METADATA_MAX_AGE:
            self.refreshed_at = time.monotonic()
            self.max_message_bytes.clear()
            if self.cluster.topics:
                self.cluster.refresh(list(self.cluster.topics))
        return self

    def partition_count(self, topic: str) -> int:
        """Creates the topic, if the broker does that."""
        return len(self.cluster.topic(topic, create=True).partitions)

    def max_batch_bytes(self, topic: str) -> int:
        """The topic's max.message.bytes, or no limit if the broker does not tell."""
        limit = self.max_message_bytes.get(topic)
        if limit is None:
            limit = NO_LIMIT
            try:
                configs = Admin(self.cluster).describe_configs([(TOPIC, topic)])[TOPIC, topic]
                if not isinstance(configs, KafkaError):
                    values = [config.value for config in configs if config.name == "max.message.bytes"]
                    limit = int(values[0]) if values and values[0] else NO_LIMIT
            except KafkaError:
                pass  # not authorized: the broker will say so if a batch is too large
            self.max_message_bytes[topic] = limit
        return limit


class ClusterCache:
    """`max_clusters` closes the one that was not used for the longest time: for those who ask each time, and
    keep none."""

    def __init__(self, max_clusters: int | None = None) -> None:
        self._max_clusters = max_clusters
        self._clusters: dict[tuple[int, ClientConfig], SharedCluster] = {}

    def get(self, config: ClientConfig) -> SharedCluster:
        """The cluster that `config` leads to, connected already if somebody was there before."""
        key = (os.getpid(), config)  # a connection does not survive a fork
        found = self._clusters.pop(key, None) or SharedCluster(Cluster(config))
        self._clusters[key] = found  # the most recently used one is the last
        while self._max_clusters is not None and len(self._clusters) > self._max_clusters:
            self._clusters.pop(next(iter(self._clusters))).cluster.close()
        return found

    def close(self) -> None:
        """All of them. The cache can go on from there."""
        while self._clusters:
            self._clusters.popitem()[1].cluster.close()
