"""What callers may do with topics: the brokers say it to the caller's own connection.

Metadata tells the operations that a topic's ACLs allow whoever asks, for topics that do not exist too. An
answer is believed for a second. Each caller has one connection, kept for a while, and at most one thread: the
requests of a caller take turns in the event loop, so whoever sends many at once holds up nobody else.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from millstream.client import ClientConfig, Cluster
from millstream.client.messages import NO_ID
from millstream.http.cluster_login import ANSWER_SECONDS, BELIEVED, CONNECT_SECONDS, Caller
from millstream.wire.errors import ErrorCode, KafkaError

THREADS = 8
MAX_CALLERS = 200
MAX_TOPICS = 10_000  # remembered for one caller
AT_ONCE = 1000  # topics of one request


class _CallerConnection:
    """One caller's connection, and what the brokers said."""

    def __init__(self, config: ClientConfig) -> None:
        self.cluster = Cluster(config)
        self.turn = asyncio.Lock()  # one question at a time
        self.lock = threading.Lock()  # nor is the connection closed meanwhile
        self.closed = False
        self.known: dict[str, tuple[int, float]] = {}

    def ask(self, topics: list[str]) -> dict[str, int]:
        """In a thread."""
        found: dict[str, int] = {}
        with self.lock:
            for start in range(0, len(topics), AT_ONCE):
                part = topics[start : start + AT_ONCE]
                found |= self.cluster.persistently(
                    lambda part=part: self._operations(part),  # type: ignore[misc]
                    ANSWER_SECONDS,
                )
        return found

    def remembered(self, topics: set[str]) -> dict[str, int]:
        now = time.monotonic()
        return {
            name: known[0]
            for name in topics
            if (known := self.known.get(name)) is not None and known[1] > now
        }

    def _operations(self, topics: list[str]) -> dict[str, int]:
        if self.closed:
            raise KafkaError(ErrorCode.sasl_authentication_failed, "the caller may no longer log in")
        answer = self.cluster.any().request(
            "metadata",
            topics=[{"name": name, "topic_id": NO_ID} for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        )
        return {one.name: max(0, int(one.topic_authorized_operations)) for one in answer.topics}

    def close(self) -> None:
        self.closed = True
        with self.lock:
            self.cluster.close()


class TopicAuthorizer:
    """For one event loop."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = replace(config, connect_timeout=CONNECT_SECONDS, request_timeout=ANSWER_SECONDS)
        self._callers: OrderedDict[bytes, _CallerConnection] = OrderedDict()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="topic-authorizer")

    async def operations(self, caller: Caller, topics: Iterable[str]) -> dict[str, int]:
        """The operations on each topic, as sets of bits. KafkaError if no broker says it."""
        connection = self._callers.get(caller.key)
        if connection is None:
            connection = self._callers[caller.key] = _CallerConnection(caller.config(self._config))
            if len(self._callers) > MAX_CALLERS:
                self._make_room()
        self._callers.move_to_end(caller.key)
        wanted = set(topics)
        found = connection.remembered(wanted)
        if len(found) == len(wanted):
            return found
        async with connection.turn:
            found = connection.remembered(wanted)  # another request may have asked
            missing = sorted(wanted - found.keys())
            if missing:
                now = time.monotonic()
                loop = asyncio.get_running_loop()
                operations = await loop.run_in_executor(self._pool, connection.ask, missing)
                if len(connection.known) > MAX_TOPICS:
                    connection.known.clear()
                for name in missing:
                    found[name] = operations.get(name, 0)
                    connection.known[name] = (found[name], now + BELIEVED)
        return found

    def _make_room(self) -> None:
        """Whoever came longest ago goes, if nothing is being asked for them."""
        for key, connection in self._callers.items():
            if not connection.turn.locked():
                self._close(self._callers.pop(key))
                return

    def end(self, caller: Caller) -> None:
        connection = self._callers.pop(caller.key, None)
        if connection is not None:
            self._close(connection)

    def _close(self, connection: _CallerConnection) -> None:
        connection.closed = True
        self._pool.submit(connection.close)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for connection in self._callers.values():
            connection.closed = True
            try:
                connection.cluster.close()
            except KafkaError:
                continue
