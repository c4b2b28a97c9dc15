"""Transactions over several brokers: what a coordinator and the leaders of partitions ask of each other.

A coordinator writes markers into partitions that other brokers lead (WriteTxnMarkers). The leader of a
partition asks the coordinator, where that is another broker, whether the partition is part of a transaction
before the first batch of it is written (AddPartitionsToTxn from version 4 on, KIP-890). Both go out in
batches: one request per broker is on its way, and what is to be sent meanwhile goes with the next one.

Nothing is repeated here. A future that fails (NETWORK_EXCEPTION, or the error of the other side) says that it
is unknown whether the request was carried out; markers are then written again, which changes nothing, and
clients send their batches again.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from millstream.broker.coordinators.transactions.transaction_state import Marker
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.broker.replication.broker_connection import BrokerConnections
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.transactions")

MAX_BATCH = 500  # items of a request
MAX_QUEUED = 100_000  # items that wait for one broker; more are refused

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
Verdicts = dict[TopicPartition, ErrorCode]


class Batcher(ABC, Generic[ItemT, ResultT]):
    """Items for other brokers, each with a future for its result."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: BrokerConnections | None = None
        self._queues: dict[int, deque[tuple[ItemT, asyncio.Future[ResultT]]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    purpose: str

    def send(self, broker_id: int, item: ItemT) -> asyncio.Future[ResultT]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()
        queue = self._queues.setdefault(broker_id, deque())
        if len(queue) >= MAX_QUEUED:
            future.set_exception(
                KafkaError(ErrorCode.network_exception, f"too much waits for broker {broker_id} already")
            )
            return future
        queue.append((item, future))
        if broker_id not in self._tasks:
            self._tasks[broker_id] = loop.create_task(self._drain(broker_id, queue))
        return future

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _drain(self, broker_id: int, queue: deque[tuple[ItemT, asyncio.Future[ResultT]]]) -> None:
        if self._connections is None:
            self._connections = self._broker.new_connections(self.purpose)
        within = self._broker.settings.integer("request.timeout.ms") / 1000
        try:
            while queue:
                batch = self._take(queue)
                results: Sequence[ResultT | KafkaError]
                try:
                    connection = await self._connections.shared(broker_id)
                    results = await self._ask(connection, [item for item, _ in batch], within)
                except Exception as error:
                    if not isinstance(error, KafkaError):
                        logger.exception("what broker %d answered cannot be used", broker_id)
                    results = [KafkaError(ErrorCode.network_exception, str(error)) for _ in batch]
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():
                        continue
                    if isinstance(result, KafkaError):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            del self._tasks[broker_id]
            for _, future in queue:
                future.cancel()
            queue.clear()

    def _take(
        self, queue: deque[tuple[ItemT, asyncio.Future[ResultT]]]
    ) -> list[tuple[ItemT, asyncio.Future[ResultT]]]:
        """What goes into the next request. Items that the response could not tell apart go one after the
        other, in order."""
        batch: list[tuple[ItemT, asyncio.Future[ResultT]]] = []
        taken: dict[object, object] = {}
        while queue and len(batch) < MAX_BATCH:
            item = queue[0][0]
            key, part = self._identity(item)
            if taken.setdefault(key, part) != part:
                break
            batch.append(queue.popleft())
        return batch

    @abstractmethod
    def _identity(self, item: ItemT) -> tuple[object, object]:
        """By what the response tells items apart, and what all items of a request with that key share."""

    @abstractmethod
    async def _ask(self, connection: Any, items: list[ItemT], within: float) -> list[ResultT | KafkaError]:
        """One request; a result for each item. KafkaError if there is no response."""


# --- markers ------------------------------------------------------------------------------------------------


class RemoteMarker(NamedTuple):
    marker: Marker
    coordinator_epoch: int
    partition: TopicPartition


class RemoteMarkers(Batcher[RemoteMarker, None]):
    purpose = "markers"

    def _identity(self, item: RemoteMarker) -> tuple[object, object]:
        return item.marker.producer_id, (item.marker, item.coordinator_epoch)

    async def _ask(
        self, connection: Any, items: list[RemoteMarker], within: float
    ) -> list[KafkaError | None]:
        markers: dict[tuple[Marker, int], list[TopicPartition]] = {}
        for item in items:
            markers.setdefault((item.marker, item.coordinator_epoch), []).append(item.partition)
        answer = await connection.request(
            "write_txn_markers",
            within=within,
            markers=[
                {
                    "producer_id": marker.producer_id,
                    "producer_epoch": marker.epoch,
                    "transaction_result": marker.commit,
                    "topics": _by_topic(partitions, "partition_indexes"),
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_version": marker.version,
                }
                for (marker, coordinator_epoch), partitions in markers.items()
            ],
        )
        found: dict[tuple[int, TopicPartition], ErrorCode] = {}
        for result in answer.markers:
            for topic in result.topics:
                for each in topic.partitions:
                    where = TopicPartition(topic.name, each.partition_index)
                    found[result.producer_id, where] = ErrorCode(each.error_code)
        return [_marked(found.get((item.marker.producer_id, item.partition))) for item in items]


def _marked(error: ErrorCode | None) -> KafkaError | None:
    if error is ErrorCode.none:
        return None
    if error is None or error is ErrorCode.unknown_topic_or_partition:
        # Its metadata are behind, or ahead: ours say whether the partition is gone.
        return KafkaError(ErrorCode.not_leader_or_follower, "the other broker does not have the partition")
    return KafkaError(error, f"the other broker answers {error.name.upper()}")


# --- verification -------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """Are these partitions part of the transaction? With `adds` they become so."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool


class RemoteCoordinators(Batcher[Question, Verdicts]):
    purpose = "transactions"

    def _identity(self, item: Question) -> tuple[object, object]:
        return item.transactional_id, item

    async def _ask(
        self, connection: Any, items: list[Question], within: float
    ) -> list[Verdicts | KafkaError]:
        questions = {item.transactional_id: item for item in items}
        answer = await connection.request(
            "add_partitions_to_txn",
            within=within,
            transactions=[
                {
                    "transactional_id": item.transactional_id,
                    "producer_id": item.producer_id,
                    "producer_epoch": item.producer_epoch,
                    "verify_only": not item.adds,
                    "topics": _by_topic(item.partitions, "partitions"),
                }
                for item in questions.values()
            ],
        )
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code, "the coordinator refuses the request")
        found: dict[str, Verdicts] = {}
        for result in answer.results_by_transaction:
            verdicts = found.setdefault(result.transactional_id, {})
            for topic in result.topic_results:
                for each in topic.results_by_partition:
                    where = TopicPartition(topic.name, each.partition_index)
                    verdicts[where] = ErrorCode(each.partition_error_code)
        return [found.get(item.transactional_id, {}) for item in items]


def _by_topic(partitions: Iterable[TopicPartition], field: str) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [{"name": topic, field: indexes} for topic, indexes in topics.items()]
