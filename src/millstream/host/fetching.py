"""One fetch per broker for all units of a lane, with the next one under way while the units work.

The answer of a broker is waited for by `select`, together with everything else that a lane waits for. A
fetch that is under way does not know of a partition that came later: it is given up, and sent anew with that
partition, because nobody likes to wait half a second for a new unit's first record.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from millstream.client import ClientConfig, Cluster
from millstream.client.cluster import MOVED
from millstream.client.connection import Connection
from millstream.client.fetch import Fetched, Fetcher
from millstream.wire.client_produce_fetch import read_fetch
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.host")

MAX_WAIT_MS = 500
METADATA_SECONDS = 2.0
_GONE = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed})
FETCH_BYTES = 16 << 20
"""Of a broker at a time: what a lane may have to keep, besides what its units hold."""


@dataclass(slots=True)
class _InFlight:
    connection: Connection
    version: int
    positions: dict[TopicPartition, int]


class LaneFetcher:
    """The fetches of a lane from one cluster."""

    def __init__(self, config: ClientConfig, partition_bytes: int) -> None:
        # Brokers that are away must not keep the lane from hearing its planner.
        self._cluster = Cluster(replace(config, total_timeout=min(config.total_timeout, METADATA_SECONDS)))
        self._fetcher = Fetcher(
            self._cluster, read_committed=True, partition_max_bytes=partition_bytes, max_bytes=FETCH_BYTES
        )
        self._in_flight: dict[int, _InFlight] = {}
        self._refresh: set[str] = set()
        self._gone: list[Fetched] = []
        self._pause = 0.0
        self._again_at = 0.0

    def send(self, positions: Mapping[TopicPartition, int]) -> None:
        """Ask every broker that has something to be fetched and no request under way."""
        if time.monotonic() < self._again_at:
            return
        try:
            by_leader = self._by_leader(positions)
        except KafkaError as error:
            self._failed(error, positions)
            return
        for node, wanted in by_leader.items():
            under_way = self._in_flight.get(node)
            if under_way is not None:
                if wanted.keys() <= under_way.positions.keys():
                    continue
                self._give_up(node)
            try:
                connection, version = self._fetcher.send_to(node, wanted, MAX_WAIT_MS)
                self._in_flight[node] = _InFlight(connection, version, wanted)
            except KafkaError as error:
                self._failed(error, wanted)

    def connections(self) -> list[Connection]:
        """What to wait for."""
        return [one.connection for one in self._in_flight.values()]

    @property
    def again_at(self) -> float | None:
        """When to `send` again after a failure, by time.monotonic(); 0 if there is something to receive."""
        if self._gone:
            return 0.0
        return self._again_at if self._again_at > time.monotonic() else None

    def receive(self, ready: Iterable[object]) -> list[tuple[Fetched, int]]:
        """The answers that came, each with the offset that was asked for."""
        arrived = set(map(id, ready))
        found = [(gone, -1) for gone in self._gone]
        self._gone.clear()
        for node, one in list(self._in_flight.items()):
            if id(one.connection) not in arrived:
                continue
            del self._in_flight[node]
            try:
                body = one.connection.receive()
                answers = read_fetch(one.version, body, self._cluster.topic_names)
            except KafkaError as error:
                self._failed(error, one.positions)
                continue
            self._pause = 0.0
            for answer in answers:
                if answer.error in MOVED:
                    self._refresh.add(answer.topic)
                    self._wait()
                else:
                    which = TopicPartition(answer.topic, answer.partition)
                    found.append((answer, one.positions.get(which, -1)))
        return found

    def close(self) -> None:
        self._cluster.close()

    def _by_leader(self, positions: Mapping[TopicPartition, int]) -> dict[int, dict[TopicPartition, int]]:
        """Who leads what. Leaders that moved are asked for again, together with the topics of new units."""
        cluster, wanted = self._cluster, {topic for topic, _ in positions}
        unknown = {topic for topic in wanted if topic not in cluster.topics} | (self._refresh & wanted)
        self._refresh.clear()
        missing: dict[str, KafkaError] = {}
        if unknown:
            for node in list(self._in_flight):  # the connections are needed
                self._give_up(node)
            missing = cluster.refresh(unknown)
        found: dict[int, dict[TopicPartition, int]] = {}
        for topic_partition, offset in positions.items():
            problem = missing.get(topic_partition.topic)
            if problem is None:
                leader = cluster.leader(*topic_partition).leader
                found.setdefault(leader, {})[topic_partition] = offset
            elif problem.code in _GONE:
                self._gone.append(Fetched(*topic_partition, problem.code, -1, -1, -1, (), memoryview(b"")))
            else:
                raise problem
        return found

    def _give_up(self, node: int) -> None:
        self._in_flight.pop(node).connection.close()

    def _failed(self, error: KafkaError, positions: Iterable[TopicPartition]) -> None:
        log.warning("cannot fetch: %s", error)
        self._refresh.update(topic for topic, _ in positions)
        self._wait()

    def _wait(self) -> None:
        config = self._cluster.config
        self._pause = min(max(self._pause * 2, config.retry_backoff), config.retry_backoff_max)
        self._again_at = time.monotonic() + self._pause


class FetchKey(NamedTuple):
    """Units of one application never read the same partition, so one request can serve them all."""

    client: ClientConfig
    application: str
    partition_bytes: int


class LaneFetchers:
    """All fetches of a lane."""

    def __init__(self) -> None:
        self._fetchers: dict[FetchKey, LaneFetcher] = {}

    def send(self, positions: Mapping[FetchKey, Mapping[TopicPartition, int]]) -> None:
        for key in [key for key in self._fetchers if key not in positions]:
            self._fetchers.pop(key).close()
        for key, wanted in positions.items():
            if key not in self._fetchers:
                self._fetchers[key] = LaneFetcher(key.client, key.partition_bytes)
            self._fetchers[key].send(wanted)

    def connections(self) -> list[Connection]:
        return [found for one in self._fetchers.values() for found in one.connections()]

    def again_at(self) -> float | None:
        return min((at for one in self._fetchers.values() if (at := one.again_at) is not None), default=None)

    def receive(self, ready: Iterable[object]) -> list[tuple[FetchKey, Fetched, int]]:
        ready = list(ready)
        return [
            (key, fetched, offset)
            for key, one in self._fetchers.items()
            for fetched, offset in one.receive(ready)
        ]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            for one in self._fetchers.values():
                one.close()
        self._fetchers.clear()
