"""What callers may do with topics: the brokers say it to the caller's own connection.

Metadata tells the operations that a topic's ACLs allow whoever asks, for topics that do not exist too. An
answer is believed for a second. Each caller has one connection, kept for a while, and each connection is used
by one thread at a time: a caller who has to wait, waits alone until all threads are taken.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from millstream.client import ClientConfig, Cluster
from millstream.client.messages import NO_ID
from millstream.http.cluster_login import BELIEVED, Caller
from millstream.wire.errors import KafkaError

THREADS = 8
MAX_CALLERS = 200
MAX_TOPICS = 10_000  # remembered for one caller
AT_ONCE = 1000  # topics of one request


class _Asking:
    """One caller's connection, and what the brokers said."""

    def __init__(self, config: ClientConfig) -> None:
        self.cluster = Cluster(config)
        self.lock = threading.Lock()
        self.known: dict[str, tuple[int, float]] = {}

    def ask(self, topics: list[str]) -> dict[str, int]:
        """In a thread."""
        found: dict[str, int] = {}
        with self.lock:
            for start in range(0, len(topics), AT_ONCE):
                part = topics[start : start + AT_ONCE]
                found |= self.cluster.persistently(lambda part=part: self._operations(part))  # type: ignore[misc]
        return found

    def _operations(self, topics: list[str]) -> dict[str, int]:
        answer = self.cluster.any().request(
            "metadata",
            topics=[{"name": name, "topic_id": NO_ID} for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        )
        return {one.name: max(0, int(one.topic_authorized_operations)) for one in answer.topics}

    def close(self) -> None:
        with self.lock:
            self.cluster.close()


class TopicRights:
    """For one event loop."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._callers: OrderedDict[bytes, _Asking] = OrderedDict()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rights")

    async def operations(self, caller: Caller, topics: Iterable[str]) -> dict[str, int]:
        """The operations on each topic, as sets of bits. KafkaError if no broker says it."""
        asking = self._callers.get(caller.key)
        if asking is None:
            asking = self._callers[caller.key] = _Asking(caller.config(self._config))
            if len(self._callers) > MAX_CALLERS:
                self._close(self._callers.popitem(last=False)[1])
        self._callers.move_to_end(caller.key)
        now = time.monotonic()
        wanted = set(topics)
        found = {
            name: known[0]
            for name in wanted
            if (known := asking.known.get(name)) is not None and known[1] > now
        }
        missing = sorted(wanted - found.keys())
        if missing:
            loop = asyncio.get_running_loop()
            told = await loop.run_in_executor(self._pool, asking.ask, missing)
            if len(asking.known) > MAX_TOPICS:
                asking.known.clear()
            for name in missing:
                found[name] = told.get(name, 0)
                asking.known[name] = (found[name], now + BELIEVED)
        return found

    def end(self, caller: Caller) -> None:
        asking = self._callers.pop(caller.key, None)
        if asking is not None:
            self._close(asking)

    def _close(self, asking: _Asking) -> None:
        self._pool.submit(asking.close)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for asking in self._callers.values():
            try:
                asking.cluster.close()
            except KafkaError:
                continue
