"""One fetch per broker for all units of a lane, with the next one under way while the units work.

Units that are at the same offset of a partition share the bytes that come, whatever application they belong
to: a partition is asked for once per offset. A fetch that is under way does not know of what is wanted later
(a new unit, a partition of which there was enough, another offset of the same partition). That goes out at
once on another connection, up to `MAX_REQUESTS` to a broker; when their answers have come, the next fetch is
one for all again.

Answers are waited for by `select`, together with everything else that a lane waits for.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from millstream.client import ClientConfig, Cluster
from millstream.client.cluster import MOVED
from millstream.client.connection import Connection
from millstream.client.fetch import Fetched
from millstream.client.messages import NO_ID
from millstream.wire.client_produce_fetch import (
    FETCH,
    FETCH_FLEXIBLE,
    FETCH_NEWEST,
    FETCH_TOPIC_IDS,
    Position,
    pack_fetch,
    read_fetch,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

log = logging.getLogger("millstream.host")

MAX_WAIT_MS = 500
MAX_REQUESTS = 3
METADATA_SECONDS = 2.0
FORGET_SECONDS = 0.5
_GONE = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed})
FETCH_BYTES = 16 << 20
"""Of a broker at a time: what a lane may have to keep, besides what its units hold."""

Wanted = Mapping[TopicPartition, Mapping[int, int]]
"""Of each partition: from which offsets, and how many bytes at most."""


@dataclass(slots=True)
class _InFlight:
    node: int
    connection: Connection
    version: int
    positions: dict[TopicPartition, int]


class LaneFetcher:
    """The fetches of a lane from one cluster."""

    def __init__(self, config: ClientConfig) -> None:
        # Brokers that are away must not keep the lane from hearing its planner.
        self._cluster = Cluster(replace(config, total_timeout=min(config.total_timeout, METADATA_SECONDS)))
        self._in_flight: list[_InFlight] = []
        self._idle: dict[int, list[Connection]] = {}
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._last_wanted: dict[str, float] = {}
        self._refresh: set[str] = set()
        self._gone: list[Fetched] = []
        self._pause = 0.0
        self._again_at = 0.0

    def send(self, wanted: Wanted) -> None:
        """Ask for everything that nobody has been asked for yet."""
        now = time.monotonic()
        topics = {topic for topic, _ in wanted}
        for topic in topics - self._last_wanted.keys():
            self._topic_ids.pop(topic, None)  # whoever reads it now has looked for himself which one it is
        self._last_wanted |= dict.fromkeys(topics, now)
        if len(self._last_wanted) > len(topics):
            self._last_wanted = {of: at for of, at in self._last_wanted.items() if now - at < FORGET_SECONDS}
        if now < self._again_at:
            return
        asked = {item for one in self._in_flight for item in one.positions.items()}
        missing = {
            which: left
            for which, offsets in wanted.items()
            if (left := {offset: size for offset, size in offsets.items() if (which, offset) not in asked})
        }
        if not missing and not self._refresh:
            return
        try:
            by_leader = self._by_leader(missing)
        except KafkaError as error:
            self._failed(error, missing)
            return
        for node, entries in by_leader.items():
            while entries and sum(one.node == node for one in self._in_flight) < MAX_REQUESTS:
                # A request names a partition once.
                request = {which: offsets.pop(0) for which, offsets in entries.items()}
                entries = {which: offsets for which, offsets in entries.items() if offsets}
                try:
                    self._send(node, request)
                except KafkaError as error:
                    self._failed(error, request)
                    break

    def connections(self) -> list[Connection]:
        """What to wait for."""
        return [one.connection for one in self._in_flight]

    @property
    def again_at(self) -> float | None:
        """When to `send` again after a failure, by time.monotonic(); 0 if there is something to receive."""
        if self._gone:
            return 0.0
        return self._again_at if self._again_at > time.monotonic() else None

    def receive(self, ready: Iterable[object]) -> list[tuple[Fetched, int]]:
        """The answers that came, each with the offset that was asked for; -1 if the partition is gone."""
        arrived = set(map(id, ready))
        found = [(gone, -1) for gone in self._gone]
        self._gone.clear()
        for one in [one for one in self._in_flight if id(one.connection) in arrived]:
            self._in_flight.remove(one)
            try:
                body = one.connection.receive()
                answers = read_fetch(one.version, body, self._cluster.topic_names)
            except KafkaError as error:
                one.connection.close()
                self._failed(error, one.positions)
                continue
            self._idle.setdefault(one.node, []).append(one.connection)
            self._pause = 0.0
            for answer in answers:
                if answer.error in MOVED:
                    self._refresh.update((answer.topic,) if answer.topic else {of for of, _ in one.positions})
                    self._wait()
                else:
                    which = TopicPartition(answer.topic, answer.partition)
                    found.append((answer, one.positions.get(which, -1)))
        return found

    def close(self) -> None:
        for one in self._in_flight:
            one.connection.close()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._cluster.close()

    def _send(self, node: int, request: Mapping[TopicPartition, tuple[int, int]]) -> None:
        cluster = self._cluster
        topics: dict[str, dict[int, Position]] = {}
        for (topic, partition), (offset, size) in request.items():
            topics.setdefault(topic, {})[partition] = Position(offset, max_bytes=size)
        ids = {topic: cluster.topic_id(topic) for topic in topics}
        newest = FETCH_TOPIC_IDS - 1 if NO_ID in ids.values() else FETCH_NEWEST
        connection = self._connection(node)
        try:
            version = connection.version("fetch", up_to=newest)
            body = pack_fetch(
                version,
                topics,
                ids,
                max_wait_ms=MAX_WAIT_MS,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                partition_max_bytes=FETCH_BYTES,
                isolation=1,
            )
            connection.send(FETCH, version, version >= FETCH_FLEXIBLE, [body])
        except KafkaError:
            connection.close()
            raise
        positions = {which: offset for which, (offset, _) in request.items()}
        self._in_flight.append(_InFlight(node, connection, version, positions))

    def _connection(self, node: int) -> Connection:
        idle = self._idle.get(node, [])
        while idle:
            found = idle.pop()
            if found.usable:
                return found
            found.close()
        known = self._cluster.nodes[node]
        return Connection(self._cluster.config, known.host, known.port)

    def _by_leader(self, wanted: Wanted) -> dict[int, dict[TopicPartition, list[tuple[int, int]]]]:
        """Who leads what. Leaders that moved are asked for again, together with the topics of new units."""
        cluster, topics = self._cluster, {topic for topic, _ in wanted}
        unknown = {topic for topic in topics if topic not in cluster.topics} | (self._refresh & topics)
        self._refresh.clear()
        missing: dict[str, KafkaError] = {}
        if unknown:
            missing = cluster.refresh(unknown)
            missing.update(self._recreated(unknown - missing.keys()))
        found: dict[int, dict[TopicPartition, list[tuple[int, int]]]] = {}
        for which, offsets in wanted.items():
            problem = missing.get(which.topic)
            if problem is None:
                leader = cluster.leader(*which).leader
                # The largest offset first: that of units which keep up.
                found.setdefault(leader, {})[which] = sorted(offsets.items(), reverse=True)
            elif problem.code in _GONE or problem.code is ErrorCode.inconsistent_topic_id:
                self._gone.append(Fetched(*which, problem.code, -1, -1, -1, (), memoryview(b"")))
            else:
                raise problem
        return found

    def _recreated(self, topics: Iterable[str]) -> dict[str, KafkaError]:
        """Topics that are others than those which are being read, though they have the same names."""
        found = {}
        for topic in topics:
            topic_id = self._cluster.topic_id(topic)
            known = self._topic_ids.pop(topic, topic_id)
            if known != topic_id:
                text = f"topic {topic} was deleted and created again"
                found[topic] = KafkaError(ErrorCode.inconsistent_topic_id, text)
            else:
                self._topic_ids[topic] = topic_id
        return found

    def _failed(self, error: KafkaError, positions: Iterable[TopicPartition]) -> None:
        log.warning("cannot fetch: %s", error)
        self._refresh.update(topic for topic, _ in positions)
        self._wait()

    def _wait(self) -> None:
        config = self._cluster.config
        self._pause = min(max(self._pause * 2, config.retry_backoff), config.retry_backoff_max)
        self._again_at = time.monotonic() + self._pause


class LaneFetchers:
    """All fetches of a lane."""

    def __init__(self) -> None:
        self._fetchers: dict[ClientConfig, LaneFetcher] = {}

    def send(self, wanted: Mapping[ClientConfig, Wanted]) -> None:
        for config in [config for config in self._fetchers if config not in wanted]:
            self._fetchers.pop(config).close()
        for config, partitions in wanted.items():
            if config not in self._fetchers:
                self._fetchers[config] = LaneFetcher(config)
            self._fetchers[config].send(partitions)

    def connections(self) -> list[Connection]:
        return [found for one in self._fetchers.values() for found in one.connections()]

    def again_at(self) -> float | None:
        return min((at for one in self._fetchers.values() if (at := one.again_at) is not None), default=None)

    def receive(self, ready: Iterable[object]) -> list[tuple[ClientConfig, Fetched, int]]:
        ready = list(ready)
        return [
            (config, fetched, offset)
            for config, one in self._fetchers.items()
            for fetched, offset in one.receive(ready)
        ]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            for one in self._fetchers.values():
                one.close()
        self._fetchers.clear()
