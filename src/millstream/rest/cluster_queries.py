"""Questions to the cluster: topics, settings, groups, offsets. Our own client answers them, which waits while
it asks, so each question runs in a thread. A thread keeps its connections.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millstream.client import ClientConfig, Cluster
from millstream.rest import errors
from millstream.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
THREADS = 4
CREATION = 1.5  # seconds that a broker has to create a topic by itself, if it does
LEADERLESS = 10.0  # and a new topic to get its leaders
FRESH = 30.0  # seconds for which the number of a topic's partitions is believed


class Kafka:
    def __init__(self, config: ClientConfig, threads: int = THREADS) -> None:
        self._config = config
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kafka")
        self._closed = False
        self._local = threading.local()
        self._clusters: list[Cluster] = []
        self._cluster_id: str | None = None
        self._counts: dict[str, tuple[int, float]] = {}

    async def run(self, query: Callable[[Cluster], T]) -> T:
        """What `query` finds; a RestError for what Kafka refuses."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._run_here, query)
        except KafkaError as error:
            raise errors.for_kafka(error) from None
        except RuntimeError:
            if self._closed:  # the caller may no longer come in
                raise errors.ended() from None
            raise

    def _run_here(self, query: Callable[[Cluster], T]) -> T:
        cluster: Cluster | None = getattr(self._local, "cluster", None)
        if cluster is None:
            cluster = self._local.cluster = Cluster(self._config)
            self._clusters.append(cluster)
        return query(cluster)

    async def cluster_id(self) -> str:
        """It never changes, so it is requested once."""
        if self._cluster_id is None:
            self._cluster_id = await self.run(_cluster_id)
        return self._cluster_id

    async def check_cluster(self, cluster_id: str) -> str:
        if cluster_id != await self.cluster_id():
            raise errors.not_found(f"Cluster {cluster_id} cannot be found.")
        return cluster_id

    def known_partitions(self, topic: str) -> int | None:
        """How many partitions a topic has, if that was looked up a moment ago."""
        found = self._counts.get(topic)
        return found[0] if found is not None and found[1] > time.monotonic() else None

    async def partitions(self, topic: str, *, create: bool = False) -> int | None:
        """How many partitions a topic has; None if there is no such topic. With `create`, the broker may
        create it."""
        found = self.known_partitions(topic)
        if found is not None:
            return found

        count = await self.run(lambda cluster: _partitions(cluster, topic, create))
        if count is not None:
            if len(self._counts) > 10_000:
                self._counts.clear()
            self._counts[topic] = (count, time.monotonic() + FRESH)
        return count

    def forget(self, topic: str) -> None:
        self._counts.pop(topic, None)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for cluster in self._clusters:
            cluster.close()


def _cluster_id(cluster: Cluster) -> str:
    cluster.refresh([])
    return cluster.cluster_id or ""


def _partitions(cluster: Cluster, topic: str, create: bool) -> int | None:
    began = time.monotonic()
    while True:
        problem = cluster.refresh([topic], create=create).get(topic)
        found = cluster.topics.get(topic)
        if problem is None and found is not None:
            return len(found.partitions)
        code = ErrorCode.unknown_topic_or_partition if problem is None else problem.code
        waited = time.monotonic() - began
        if code is ErrorCode.invalid_topic_exception:
            return None
        if code is ErrorCode.unknown_topic_or_partition:
            if not create or waited > CREATION:
                return None
        elif problem is not None and (not code.retriable or waited > LEADERLESS):
            raise problem
        time.sleep(0.05)
