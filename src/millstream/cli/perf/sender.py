"""Batches to all leaders, several requests ahead on each connection, without waiting more than needed.

One thread: it builds batches, sends them, and takes answers when some have come or when too many are
outstanding. Batches of an idempotent producer carry their sequence numbers in the order in which they go out
on their connection.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from millstream.cli.errors import CommandFailed
from millstream.cli.perf.payloads import BatchMaker, Wrapped
from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.errors import describe
from millstream.client.messages import NO_ID, exchange
from millstream.client.producer import init_producer_id
from millstream.wire.batch import next_sequence
from millstream.wire.client_produce_fetch import (
    PRODUCE,
    PRODUCE_FLEXIBLE,
    PRODUCE_NEWEST,
    PRODUCE_TOPIC_IDS,
    pack_produce,
)
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition

Answered = Callable[[float, int, int], None]  # seconds, records, bytes of values


class Batch(NamedTuple):
    partition: int
    records: int
    size: int  # bytes of the values
    created: tuple[float, float]  # when its first and its last record came to be


class Outstanding(NamedTuple):
    sent: float
    batches: Sequence[Batch]


class Broker:
    """One leader: its connection, its partitions, and what it has not answered yet."""

    def __init__(self, connection: Connection, version: int, partitions: Sequence[int]) -> None:
        self.connection = connection
        self.version = version
        self.partitions = list(partitions)
        self.waiting: deque[Outstanding] = deque()
        self.form = exchange("produce", version)


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        maker: BatchMaker,
        *,
        acks: int,
        idempotent: bool,
        in_flight: int,
        timeout_ms: int,
        answered: Answered,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._maker = maker
        self._acks = acks
        self._in_flight = in_flight
        self._timeout_ms = timeout_ms
        self._answered = answered
        self._sequences: dict[int, int] = {}
        self.requests = 0
        self.batches = 0
        self.bytes_out = 0
        self.request_time = 0.0
        partitions = cluster.topic(topic, create=True).partitions
        led: dict[int, list[int]] = {}
        for (_, partition), node in self._leaders(
            [TopicPartition(topic, number) for number in partitions]
        ).items():
            led.setdefault(node, []).append(partition)
        newest = PRODUCE_TOPIC_IDS - 1 if cluster.topic_id(topic) == NO_ID else PRODUCE_NEWEST
        self.brokers = []
        for node, numbers in led.items():
            connection = cluster.connection(node)
            version = connection.version("produce", up_to=newest)
            self.brokers.append(Broker(connection, version, sorted(numbers)))
        self._producer = self._producer_id() if idempotent else (-1, -1)

    def _leaders(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            topic_partition: node
            for node, group in self._cluster.by_leader(topic_partitions).items()
            for topic_partition in group
        }

    def _producer_id(self) -> tuple[int, int]:
        return self._cluster.persistently(lambda: init_producer_id(self.brokers[0].connection, None))

    # --- sending --------------------------------------------------------------------------------------------

    def send(
        self, broker: Broker, records: Mapping[int, tuple[Sequence[Wrapped], tuple[float, float]]]
    ) -> None:
        """One request: per partition its records, and when the first and the last of them came to be."""
        while len(broker.waiting) >= self._in_flight:
            self._take_answer(broker)
        parts: dict[int, bytearray] = {}
        batches = []
        for partition, (values, created) in records.items():
            sequence = self._sequences.get(partition, 0) if self._producer[0] >= 0 else -1
            data = self._maker.batch(values, *self._producer, sequence)
            if sequence >= 0:
                self._sequences[partition] = next_sequence(sequence, len(values))
            parts[partition] = data
            self.bytes_out += len(data)
            batches.append(Batch(partition, len(values), sum([size for _, size in values]), created))
        ids = {self._topic: self._cluster.topic_id(self._topic)}
        body = pack_produce(broker.version, {self._topic: parts}, ids, self._acks, self._timeout_ms)
        now = time.perf_counter()
        broker.connection.send(PRODUCE, broker.version, broker.version >= PRODUCE_FLEXIBLE, body)
        self.requests += 1
        self.batches += len(batches)
        if self._acks == 0:
            broker.connection.no_answer_expected()
            self._count(Outstanding(now, batches))
            return
        broker.waiting.append(Outstanding(now, batches))

    def collect(self, timeout: float) -> None:
        """Take the answers that have come; wait for one as long as `timeout`."""
        waiting = {broker.connection.fileno(): broker for broker in self.brokers if broker.waiting}
        if not waiting:
            if timeout > 0:
                time.sleep(timeout)
            return
        for number in select.select(list(waiting), [], [], max(0.0, timeout))[0]:
            self._take_answer(waiting[number])

    def finish(self) -> None:
        for broker in self.brokers:
            while broker.waiting:
                self._take_answer(broker)

    @property
    def outstanding(self) -> bool:
        return any(broker.waiting for broker in self.brokers)

    def ready_broker(self) -> Broker | None:
        """One that may be sent to without waiting, the least busy first."""
        free = min(self.brokers, key=lambda broker: len(broker.waiting))
        return free if len(free.waiting) < self._in_flight else None

    def _take_answer(self, broker: Broker) -> None:
        timeout = self._cluster.config.request_timeout + self._timeout_ms / 1000
        body = broker.connection.receive(timeout)
        outstanding = broker.waiting.popleft()
        answer = broker.form.decode(body)
        for topic in answer.responses:
            for part in topic.partition_responses:
                if part.error_code is not ErrorCode.none:
                    where = f"{self._topic}-{part.index}"
                    words = getattr(part, "error_message", None) or describe(part.error_code, subject=where)
                    raise CommandFailed(f"the broker refuses a batch for {where}: {words}")
        self._count(outstanding)

    def _count(self, outstanding: Outstanding) -> None:
        now = time.perf_counter()
        self.request_time += now - outstanding.sent
        for batch in outstanding.batches:
            first, last = batch.created
            if last - first < 0.0005 or batch.records == 1:
                self._answered(now - first, batch.records, batch.size)
                continue
            each = (last - first) / (batch.records - 1)
            size = batch.size // batch.records
            for number in range(batch.records):
                self._answered(now - first - each * number, 1, size)
