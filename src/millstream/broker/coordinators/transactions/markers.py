"""Markers: the records that tell each partition how a transaction ended.

The coordinator writes them through `MarkerWriter`. `LocalMarkers` appends them to partitions that this broker
leads; `ClusterMarkers` sends the others to the leaders of their partitions by WriteTxnMarkers, who append
them in the same way.

`finish` drives one decided transaction to its end: a marker into each partition, a few per turn of the loop,
again and again where a partition cannot take it now, and when all have theirs the last record of the
transaction. Nothing here needs to be remembered over a crash: the decision is in the transaction log, so the
next coordinator starts the same over. A partition may then get its marker twice, which changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.broker.coordinators.transactions.transaction_records import Transaction
from millstream.broker.coordinators.transactions.transaction_state import (
    MAX_EPOCH,
    Marker,
    TransactionStateMachine,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.coordinators.transactions.remote import RemoteMarkers
    from millstream.broker.coordinators.transactions.transaction_shard import TransactionShard
    from millstream.broker.partition import Partition
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.transactions")

OFFSETS_TOPIC = "__consumer_offsets"
MARKERS_PER_TURN = 64
RETRY_SECONDS, MAX_RETRY_SECONDS = 0.05, 5.0
EPOCHS_OF_THEIR_OWN = 2  # transaction version from which a marker's epoch is above its records'


class MarkerWriter(Protocol):
    def write(
        self, marker: Marker, coordinator_epoch: int, partition: TopicPartition
    ) -> asyncio.Future[None] | None:
        """Write one marker. None: it is committed already; else the future tells when. Raises KafkaError if
        the partition refuses it; UNKNOWN_TOPIC_OR_PARTITION only if it exists nowhere any more."""


class LocalMarkers:
    """Markers into the partitions that this broker leads."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def write(
        self, marker: Marker, coordinator_epoch: int, partition: TopicPartition
    ) -> asyncio.Future[None] | None:
        found = self.broker.partitions.find(*partition)
        if found is None:
            image = self.broker.image
            topic = image.topic(partition[0])
            exists = topic is not None and image.partition(topic.topic_id, partition[1]) is not None
            raise KafkaError(
                ErrorCode.not_leader_or_follower if exists else ErrorCode.unknown_topic_or_partition
            )
        self._check(found, marker)
        log = found.log
        now_ms = time.time_ns() // 1_000_000
        appended = log.append_marker(
            marker.producer_id, marker.epoch, marker.commit, coordinator_epoch, found.leader_epoch, now_ms
        )
        self.broker.transactions.guards.take_down(found, marker.producer_id)
        found.appended(appended.size, 0, now_ms)
        found.wake_fetches()
        if log.high_watermark > appended.last_offset:
            self._committed(found, marker)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        end, epoch = appended.last_offset + 1, found.leader_epoch

        def acknowledge(error: ErrorCode) -> None:
            if error is ErrorCode.not_enough_replicas_after_append:  # a marker that is written counts
                found.ack_waiters.append((end, epoch, acknowledge))
                return
            if error is ErrorCode.none:
                self._committed(found, marker)
            if future.done():
                return
            if error is ErrorCode.none:
                future.set_result(None)
            else:
                future.set_exception(KafkaError(error))

        found.ack_waiters.append((end, epoch, acknowledge))
        return future

    def _check(self, partition: Partition, marker: Marker) -> None:
        if not partition.leads:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if not partition.enough_in_sync:
            raise KafkaError(ErrorCode.not_enough_replicas)
        if partition.topic == OFFSETS_TOPIC:
            shard = self.broker.groups.runtime.shards.get(partition.index)
            if shard is None or not shard.ready:
                raise KafkaError(ErrorCode.not_leader_or_follower, "the group coordinator is still loading")
        if marker.version >= EPOCHS_OF_THEIR_OWN:
            known = partition.log.producers.by_id.get(marker.producer_id)
            if (
                known is not None
                and known.epoch == marker.epoch != MAX_EPOCH  # there is no higher one to tell them apart with
                and known.txn_first_offset >= 0
            ):
                raise KafkaError(
                    ErrorCode.invalid_producer_epoch,
                    f"a marker with epoch {marker.epoch} comes too late for {partition}: its producer's next "
                    "transaction has begun",
                )

    def _committed(self, partition: Partition, marker: Marker) -> None:
        """Offsets committed in the transaction become the group's, or are dropped."""
        if partition.topic == OFFSETS_TOPIC:
            self.broker.groups.transaction_completed(partition.index, marker.producer_id, marker.commit)


class ClusterMarkers:
    """Markers into any partition: those that other brokers lead are sent to them."""

    def __init__(self, broker: Broker, local: LocalMarkers) -> None:
        self._broker = broker
        self._local = local
        self._remote: RemoteMarkers | None = None

    def write(
        self, marker: Marker, coordinator_epoch: int, partition: TopicPartition
    ) -> asyncio.Future[None] | None:
        broker = self._broker
        if broker.alone:
            return self._local.write(marker, coordinator_epoch, partition)
        image = broker.image
        topic = image.topic(partition[0])
        known = None if topic is None else image.partition(topic.topic_id, partition[1])
        if known is None or known.leader == broker.node_id:
            return self._local.write(marker, coordinator_epoch, partition)
        if known.leader not in image.brokers:
            raise KafkaError(ErrorCode.leader_not_available, "nobody leads it")
        from millstream.broker.coordinators.transactions.remote import RemoteMarker, RemoteMarkers

        if self._remote is None:
            self._remote = RemoteMarkers(broker)
        return self._remote.send(known.leader, RemoteMarker(marker, coordinator_epoch, partition))

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()


class Completion:
    """One decided transaction on its way to COMPLETE."""

    __slots__ = (
        "_delay",
        "_in_flight",
        "_markers",
        "_stopped",
        "_timer",
        "_todo",
        "_write",
        "machine",
        "shard",
    )

    def __init__(
        self,
        shard: TransactionShard,
        machine: TransactionStateMachine,
        markers: MarkerWriter,
        write: Callable[[Completion, Transaction], None],
    ) -> None:
        self.shard = shard
        self.machine = machine
        self._markers = markers
        self._write = write  # puts the last record into the transaction log, calls `run` again if that fails
        self._todo: deque[TopicPartition] = deque()
        self._in_flight: set[TopicPartition] = set()
        self._stopped = False
        self._delay = RETRY_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> None:
        """Write markers where they are missing; complete when none is."""
        self._timer = None
        self._todo = deque(sorted(self.machine.unmarked - self._in_flight))
        self._write_some()

    def _write_some(self) -> None:
        if self._stopped:
            return
        machine, todo = self.machine, self._todo
        marker = machine.marker()
        for _ in range(min(len(todo), MARKERS_PER_TURN)):
            partition = todo.popleft()
            try:
                waiting = self._markers.write(marker, self.shard.epoch, partition)
            except Exception as error:  # whatever it is: a decided transaction must come to its end
                self._refused(partition, error)
                continue
            if waiting is None:
                machine.marked(partition)
            else:
                self._in_flight.add(partition)
                waiting.add_done_callback(partial(self._written, partition))
        if todo:
            asyncio.get_running_loop().call_soon(self._write_some)
        elif not machine.unmarked:
            done = machine.complete(time.time_ns() // 1_000_000)
            if done is not None and done.write is not None:
                self._write(self, done.write)
        elif not self._in_flight:
            self.retry()

    def _written(self, partition: TopicPartition, future: asyncio.Future[None]) -> None:
        self._in_flight.discard(partition)
        error = future.exception() if not future.cancelled() else KafkaError(ErrorCode.request_timed_out)
        if error is None:
            self.machine.marked(partition)
        else:
            self._refused(partition, error)
        if not self._in_flight and not self._todo:
            self._write_some()

    def _refused(self, partition: TopicPartition, error: BaseException) -> None:
        transactional_id = self.machine.current.transactional_id
        code = error.code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error
        if code is ErrorCode.unknown_topic_or_partition:
            self.machine.marked(partition)  # deleted meanwhile, and the records with it
        elif code is ErrorCode.invalid_producer_epoch:
            logger.warning(
                "%s: the end of a transaction of %r is not needed any more in %s-%d: %s",
                self.shard.partition,
                transactional_id,
                *partition,
                error,
            )
            self.machine.marked(partition)
        else:
            logger.warning(
                "%s: the end of a transaction of %r cannot be written to %s-%d now, will be retried: %s",
                self.shard.partition,
                transactional_id,
                *partition,
                error,
                exc_info=None if isinstance(error, KafkaError | OSError) else error,
            )

    def retry(self) -> None:
        """Some time later, and later each time."""
        if not self._stopped and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._delay, self.run)
            self._delay = min(2 * self._delay, MAX_RETRY_SECONDS)

    def stop(self) -> None:
        """This broker no longer coordinates it."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
