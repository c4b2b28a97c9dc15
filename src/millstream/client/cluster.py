"""All brokers of a cluster, as far as this client needs to know: who they are and who leads which partition.

Metadata is requested when needed, kept, and requested again when a broker's answer shows that it is old.
Every call has one deadline (`total_timeout`); within it, errors that pass (a leader that moved, a broker that
restarts) are tried again after a pause that doubles. A cluster that cannot be reached at all in the beginning
is an error at once: then the address is wrong, or nothing runs there.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from millstream.client.config import ClientConfig
from millstream.client.connection import Connection
from millstream.client.errors import Unreachable, check, describe, retriable
from millstream.client.messages import NO_ID
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

Result = TypeVar("Result")

# Errors after which the metadata is worth asking for again.
MOVED = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.replica_not_available,
        ErrorCode.listener_not_found,
        ErrorCode.not_controller,
        ErrorCode.kafka_storage_error,
        ErrorCode.network_exception,
    }
)


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: uuid.UUID
    internal: bool
    partitions: Mapping[int, Partition] = field(default_factory=dict)


CREATION_TIMEOUT = 10.0  # a broker that creates topics by itself has done so long before


# Not the module's generator: a program that has seeded that one counts on its numbers.
_JITTER = random.Random()


class Retry:
    """One call's patience: `pause` after an error, until the error is final or the time is up."""

    def __init__(self, config: ClientConfig, timeout: float | None = None) -> None:
        self.deadline = time.monotonic() + (config.total_timeout if timeout is None else timeout)
        self._pause = config.retry_backoff
        self._longest = config.retry_backoff_max

    def pause(self, error: KafkaError) -> None:
        if not retriable(error) or time.monotonic() + self._pause > self.deadline:
            raise error
        time.sleep(self._pause * _JITTER.uniform(0.8, 1.2))
        self._pause = min(self._pause * 2, self._longest)


class Cluster:
    """The way to a cluster's brokers. Opens connections when first needed, one per broker. One thread at a
    time."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.topic_names: dict[uuid.UUID, str] = {}
        self._connections: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None

    # --- connections ----------------------------------------------------------------------------------------

    def connection(self, node_id: int) -> Connection:
        """The connection to one broker, opened if need be."""
        found = self._connections.get(node_id)
        if found is not None:
            if found.usable:
                return found
            found.close()
        node = self.nodes.get(node_id)
        if node is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {node_id} is not in the cluster")
        found = self._connections[node_id] = Connection(self.config, node.host, node.port)
        return found

    def any(self) -> Connection:
        """A connection to any broker: one that is open already, a known broker, or one of the given
        addresses."""
        for connection in (*self._connections.values(), self._bootstrap):
            if connection is not None and connection.usable:
                return connection
        for node_id in self.nodes:
            try:
                return self.connection(node_id)
            except Unreachable:
                continue
        failure: Unreachable | None = None
        for host, port in self.config.bootstrap:
            try:
                self._bootstrap = Connection(self.config, host, port)
                return self._bootstrap
            except Unreachable as error:
                failure = failure or error
        if failure is None:
            raise Unreachable("no broker address is known", again=False)
        raise Unreachable(failure.message, again=bool(self.nodes) and failure.again)

    def controller(self) -> Connection:
        """Where changes of topics go: the controller if it is known, else any broker."""
        if self.controller_id not in self.nodes:
            self.refresh([])
        return self.connection(self.controller_id) if self.controller_id in self.nodes else self.any()

    def close(self) -> None:
        for connection in (*self._connections.values(), self._bootstrap):
            if connection is not None:
                connection.close()
        self._connections.clear()
        self._bootstrap = None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- trying again ---------------------------------------------------------------------------------------

    def retry(self, timeout: float | None = None) -> Retry:
        return Retry(self.config, timeout)

    def persistently(self, act: Callable[[], Result], timeout: float | None = None) -> Result:
        """`act()`, again while it fails with errors that pass."""
        retry = self.retry(timeout)
        while True:
            try:
                return act()
            except KafkaError as error:
                retry.pause(error)
                if error.code is ErrorCode.not_controller:
                    self.controller_id = -1

    # --- metadata -------------------------------------------------------------------------------------------

    def refresh(self, topics: Iterable[str] | None = None, create: bool = False) -> dict[str, KafkaError]:
        """Ask for metadata of these topics (None: all of them), and say what is wrong with which of them.
        With `create`, a broker with auto.create.topics.enable creates what is missing."""
        names = None if topics is None else sorted(set(topics))
        answer = self.persistently(lambda: self._request_metadata(names, create))
        self.cluster_id = getattr(answer, "cluster_id", None)
        self.controller_id = int(answer.controller_id)
        nodes = {
            int(broker.node_id): Node(int(broker.node_id), broker.host, int(broker.port), broker.rack)
            for broker in answer.brokers
        }
        for node_id, node in self.nodes.items():
            if nodes.get(node_id) != node and node_id in self._connections:
                self._connections.pop(node_id).close()
        self.nodes = nodes
        self._adopt_bootstrap()
        if names is None:
            self.topics.clear()
            self.topic_names.clear()
        problems: dict[str, KafkaError] = {}
        for found in answer.topics:
            if found.name is None:
                continue
            if found.error_code is not ErrorCode.none:
                self._forget(found.name)
                message = describe(found.error_code, subject=f"topic {found.name}")
                problems[found.name] = KafkaError(found.error_code, message)
                continue
            topic = _topic(found)
            self.topics[topic.name] = topic
            if topic.id != NO_ID:
                self.topic_names[topic.id] = topic.name
        return problems

    def topic(self, name: str, create: bool = False) -> Topic:
        """What is known about a topic; asks if nothing is."""
        found = self.topics.get(name)
        if found is not None:
            return found
        retry = self.retry(min(self.config.total_timeout, CREATION_TIMEOUT))
        while True:
            problem = self.refresh([name], create).get(name)
            found = self.topics.get(name)
            if found is not None:
                return found
            problem = problem or KafkaError(
                ErrorCode.unknown_topic_or_partition, f"topic {name} does not exist"
            )
            if problem.code is ErrorCode.unknown_topic_or_partition and not create:
                raise problem
            retry.pause(problem)

    def wait_for_topics(self, names: Iterable[str]) -> None:
        """Until each of these, which were just created, is known with its leaders: brokers hear of a new
        topic a moment after it was made."""
        wanted = list(names)
        retry = self.retry()
        while wanted:
            problems = self.refresh(wanted)
            wanted = [name for name in wanted if name in problems or not self._is_led(name)]
            if wanted:
                retry.pause(
                    problems.get(wanted[0])
                    or KafkaError(ErrorCode.leader_not_available, f"topic {wanted[0]} has no leader yet")
                )

    def _is_led(self, name: str) -> bool:
        found = self.topics.get(name)
        return found is not None and all(each.leader in self.nodes for each in found.partitions.values())

    def leader(self, topic: str, partition: int) -> Partition:
        """The partition with its leader, from the metadata at hand; asks if there is none."""
        found = self.topic(topic).partitions.get(partition)
        if found is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"topic {topic} has no partition {partition}"
            )
        if found.leader not in self.nodes:
            raise KafkaError(ErrorCode.leader_not_available, f"partition {topic}-{partition} has no leader")
        return found

    def topic_id(self, name: str) -> uuid.UUID:
        found = self.topics.get(name)
        return NO_ID if found is None else found.id

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions grouped by the broker that leads them; tries until each has one."""
        wanted = list(partitions)
        retry = self.retry()
        refreshed = False
        while True:
            groups: dict[int, list[TopicPartition]] = {}
            try:
                for topic, partition in wanted:
                    groups.setdefault(self.leader(topic, partition).leader, []).append(
                        TopicPartition(topic, partition)
                    )
                return groups
            except KafkaError as error:
                missing = error.code is ErrorCode.unknown_topic_or_partition
                if missing and (refreshed or topic not in self.topics):
                    raise
                if not missing:
                    retry.pause(error)
                self.refresh({topic for topic, _ in wanted})
                refreshed = True

    def _request_metadata(self, names: list[str] | None, create: bool) -> Any:
        connection = self.any()
        answer = connection.request(
            "metadata",
            topics=None if names is None else [{"name": name, "topic_id": NO_ID} for name in names],
            allow_auto_topic_creation=create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        check(getattr(answer, "error_code", ErrorCode.none), subject=f"metadata from {connection.address}")
        return answer

    def _adopt_bootstrap(self) -> None:
        """The first connection is one to a broker of the cluster, if that broker goes by the same address."""
        first = self._bootstrap
        if first is None or first.closed:
            return
        for node in self.nodes.values():
            if (node.host, node.port) == first.endpoint:
                self._bootstrap = None
                if node.id in self._connections and not self._connections[node.id].closed:
                    first.close()
                else:
                    self._connections[node.id] = first

    def _forget(self, name: str) -> None:
        old = self.topics.pop(name, None)
        if old is not None:
            self.topic_names.pop(old.id, None)


def _topic(found: Any) -> Topic:
    partitions = {
        int(partition.partition_index): Partition(
            index=int(partition.partition_index),
            leader=int(partition.leader_id),
            leader_epoch=int(getattr(partition, "leader_epoch", -1)),
            replicas=tuple(map(int, partition.replica_nodes)),
            isr=tuple(map(int, partition.isr_nodes)),
            offline=tuple(map(int, getattr(partition, "offline_replicas", ()))),
            error=partition.error_code,
        )
        for partition in found.partitions
    }
    topic_id = getattr(found, "topic_id", None) or NO_ID
    return Topic(found.name, topic_id, bool(found.is_internal), dict(sorted(partitions.items())))
