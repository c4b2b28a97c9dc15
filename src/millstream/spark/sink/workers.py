"""Connections that outlive a task: Spark uses a Python process for many tasks, one after the other.

Each process keeps one `Cluster` per configuration. What it knows about topics is asked for again after a while, so that
partitions added meanwhile are found.
"""

import os
import time
from dataclasses import dataclass, field

from millstream.client import Admin, ClientConfig, Cluster, Producer
from millstream.client.admin import TOPIC
from millstream.spark.reconnect import reached
from millstream.spark.sink.write_options import WriteSettings
from millstream.wire.errors import KafkaError

FRESH_FOR = 300.0  # seconds; Kafka's default of metadata.max.age.ms


@dataclass
class Worker:
    """What this process has of one cluster."""

    cluster: Cluster
    asked: float = field(default_factory=time.monotonic)
    limits: dict[str, int] = field(default_factory=dict)
    producers: dict[tuple[int, bool, int], Producer] = field(default_factory=dict)

    def partitions_of(self, topic: str) -> int:
        return len(self.cluster.topic(topic, create=True).partitions)

    def batch_limit(self, topic: str) -> int:
        """The topic's max.message.bytes, or no limit if the broker does not tell."""
        known = self.limits.get(topic)
        if known is None:
            known = 1 << 31
            try:
                found = Admin(self.cluster).describe_configs([(TOPIC, topic)])[TOPIC, topic]
                if not isinstance(found, KafkaError):
                    known = next(
                        (int(s.value or known) for s in found if s.name == "max.message.bytes"), known
                    )
            except KafkaError:
                pass  # not allowed to ask: the broker will say so if a batch is too large
            self.limits[topic] = known
        return known


_workers: dict[tuple[int, ClientConfig], Worker] = {}


def patient_worker_for(config: ClientConfig) -> Worker:
    """The same, for who knows that the brokers were there before: they will be there again."""
    found = worker_for(config)
    reached(found.cluster, config.total_timeout)
    return found


def worker_of_task(settings: WriteSettings, batch: int) -> Worker:
    """For a task. In a query's first batch, brokers that nobody has reached yet are a wrong address: said at once."""
    if settings.answered or batch > 0:
        return patient_worker_for(settings.client)
    found = worker_for(settings.client)
    reached(found.cluster, 0)
    return found


def worker_for(config: ClientConfig) -> Worker:
    """This process's worker; a forked process does not share its parent's connections."""
    key = (os.getpid(), config)
    found = _workers.get(key)
    if found is None:
        found = _workers[key] = Worker(Cluster(config))
    elif time.monotonic() - found.asked > FRESH_FOR:
        found.asked = time.monotonic()
        found.limits.clear()
        if found.cluster.topics:
            found.cluster.refresh(list(found.cluster.topics))
    return found
