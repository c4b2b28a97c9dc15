"""Coordinators' state lives in an internal topic; a shard is the part of it that one partition holds.

A coordinator (groups, transactions) is given a `ShardedTopic`: it finds the shard of a key the way every Kafka broker
and client does, so that any of them agrees on who coordinates what. When this broker becomes the leader of a partition,
the shard's log is replayed into the coordinator in slices, between which the loop serves others; until the end is
reached, requests for the shard are answered COORDINATOR_LOAD_IN_PROGRESS. When it resigns, the coordinator drops what it
knew. Every write goes through the log like an acks=all produce and carries the leader epoch under which it was decided.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from millstream.broker.coordinators.replay import HEAD, batch_size, entries
from millstream.cluster.commands import CreateTopics, NewTopic
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from millstream.broker.partitions import Partition
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.coordinators")

SLICE_SECONDS = 0.005  # how long a load may hold the loop
RECORDS_BETWEEN_LOOKS = 64  # records replayed before looking at the clock
LOAD_BYTES = 1024 * 1024


# attributes and producer id of the record's batch, the record's offset, key and value
Replay = Callable[[int, int, int, "bytes | None", "bytes | None"], None]


class Coordinator(Protocol):
    """What a shard tells its coordinator. All calls come from the loop."""

    def replayer(self, shard: Shard) -> Replay:
        """The shard is about to be loaded: who takes its records, in order. Control records come as they are."""

    def unreadable(self, shard: Shard, offset: int, error: Exception) -> None:
        """The record at this offset made no sense (one of BAD_FRAME, or KafkaError). It is skipped."""

    def loaded(self, shard: Shard) -> None:
        """Everything was replayed: timers may start, requests will come."""

    def unloaded(self, shard: Shard) -> None:
        """Not ours any more: forget the shard's state and answer who waits with NOT_COORDINATOR."""

    def holds(self, index: int, key: str) -> bool:
        """Whether the shard of this index knows anything of the key."""


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """`String.hashCode` of Java, over UTF-16 units, as an unsigned 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


def places(key: str, count: int) -> tuple[int, int]:
    """The shard of a key, of `count` shards, and where the first release has put it: that took away the sign of a negative
    hash where Kafka takes its absolute value."""
    code = java_hash(key)
    return (min(code, (1 << 32) - code) & 0x7FFFFFFF) % count, (code & 0x7FFFFFFF) % count


class Shard:
    __slots__ = ("_load", "epoch", "index", "partition", "ready", "topic")

    def __init__(self, topic: ShardedTopic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self.index = partition.index
        self.epoch = partition.leader_epoch
        self.ready = False
        self._load: asyncio.Task[None] | None = None

    @property
    def loading(self) -> bool:
        """Not ready, but on the way; False also after a log that could not be read."""
        return not self.ready and self._load is not None and not self._load.done()

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int | None = None,
        producer: tuple[int, int] | None = None,
    ) -> asyncio.Future[None] | None:
        """Write (key, value) records as one batch. None: it is committed already; else the future tells when.

        With `producer` (id, epoch) the batch is part of that producer's transaction. Raises KafkaError if the write is
        refused; a future that fails does so with KafkaError too.
        """
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        rows = [Record(at, now_ms, key, value, ()) for at, (key, value) in enumerate(records)]
        if producer is None:
            batch = encode_batch(rows)
        else:
            batch = encode_batch(
                rows, producer_id=producer[0], producer_epoch=producer[1], transactional=True
            )
        return self.append_batch(memoryview(batch), now_ms)

    def append_batch(self, batch: memoryview, now_ms: int) -> asyncio.Future[None] | None:
        partition = self.partition
        if not partition.leads or partition.leader_epoch != self.epoch:
            raise KafkaError(ErrorCode.not_coordinator)
        if not partition.enough_in_sync:
            raise KafkaError(
                ErrorCode.coordinator_not_available,
                "not enough replicas of the coordinator's log are in sync",
            )
        appended = partition.log.append_trusted(batch, self.epoch, now_ms)
        partition.appended(appended.size, appended.last_offset - appended.base_offset + 1, now_ms)
        partition.wake_fetches()
        return self.committed(appended.last_offset + 1)

    def committed(self, end: int) -> asyncio.Future[None] | None:
        """When everything before `end` is committed: None for already, else a future."""
        partition = self.partition
        if partition.log.high_watermark >= end:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(error: ErrorCode) -> None:
            if future.done():
                return
            if error is ErrorCode.none:
                future.set_result(None)
            else:
                future.set_exception(KafkaError(ErrorCode.not_coordinator))

        partition.ack_waiters.append((end, self.epoch, told))
        return future

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        log = self.partition.log
        if log.start_offset == log.end_offset:
            self._loaded()
        else:
            self._load = asyncio.get_running_loop().create_task(self._replay())

    def stop(self) -> None:
        self.ready = False
        if self._load is not None:
            self._load.cancel()
        self.topic.coordinator.unloaded(self)

    async def _replay(self) -> None:
        """Feed the log to the coordinator, a few milliseconds at a time. The shards of a topic take turns, so that all
        of them together hold the loop no longer than one."""
        log = self.partition.log
        count = 0
        offset = log.start_offset
        try:
            async with self.topic.loading:
                replay = self.topic.coordinator.replayer(self)
                turn = time.monotonic()
                while offset < log.end_offset:
                    part = log.read(offset, LOAD_BYTES, "end")
                    if not part.size:
                        break
                    data = part.read()
                    at = 0
                    while at < len(data):
                        base, length, attributes, producer_id, records = HEAD.unpack_from(data, at)
                        size = batch_size(length, len(data) - at)
                        for number, key, value in entries(data, at, size, attributes, base, records):
                            try:
                                replay(attributes, producer_id, number, key, value)
                            except (*BAD_FRAME, KafkaError) as error:
                                self.topic.coordinator.unreadable(self, number, error)
                            count += 1
                            if not count % RECORDS_BETWEEN_LOOKS and time.monotonic() - turn > SLICE_SECONDS:
                                await asyncio.sleep(0)
                                turn = time.monotonic()
                        at += size
                    offset = part.next_offset
                self._loaded()
        except (KafkaError, OSError, struct.error) as error:
            logger.error("%s cannot be loaded, its keys have no coordinator: %s", self.partition, error)
            return
        self.topic.shard_loaded(self, count)

    def _loaded(self) -> None:
        self.ready = True
        self.topic.coordinator.loaded(self)


class ShardedTopic:
    """An internal topic and the shards of it that this broker leads."""

    def __init__(
        self,
        broker: Broker,
        name: str,
        coordinator: Coordinator,
        count_setting: str,
        replication_setting: str,
        configs: Mapping[str, str],
    ) -> None:
        self.broker = broker
        self.name = name
        self.coordinator = coordinator
        self.shards: dict[int, Shard] = {}
        self._count_setting = count_setting
        self._replication_setting = replication_setting
        self._configs = configs
        self._creating: asyncio.Task[None] | None = None
        self.loading = asyncio.Lock()  # held by the shard whose turn it is
        self._records_loaded = 0
        self._loading_since = 0.0

    @property
    def exists(self) -> bool:
        return self.broker.image.topic(self.name) is not None

    @property
    def count(self) -> int:
        topic = self.broker.image.topic(self.name)
        if topic is None:
            return self.broker.settings.integer(self._count_setting)
        return len(self.broker.image.partitions[topic.topic_id])

    def shard_index(self, key: str) -> int:
        """Where every Kafka puts the key; but a key that the first release has put elsewhere stays there."""
        return self._chosen(key, *places(key, self.count))

    def _chosen(self, key: str, place: int, earlier: int) -> int:
        holds = self.coordinator.holds
        return earlier if earlier != place and not holds(place, key) and holds(earlier, key) else place

    def shard(self, key: str) -> Shard:
        """The shard that holds this key, ready to serve; KafkaError with the coordinator's code if it is not."""
        if not self.exists:
            raise KafkaError(ErrorCode.not_coordinator)
        place, earlier = places(key, self.count)
        for index in {place, earlier}:  # both are known before one of them is chosen
            shard = self.shards.get(index)
            if shard is not None and shard.loading:
                raise KafkaError(ErrorCode.coordinator_load_in_progress)
        shard = self.shards.get(self._chosen(key, place, earlier))
        if shard is None or not shard.ready:
            raise KafkaError(ErrorCode.not_coordinator)
        return shard

    async def ensure_exists(self) -> None:
        """Create the topic if it is not there; several callers share one attempt."""
        if self.exists:
            return
        if self._creating is None:
            self._creating = asyncio.get_running_loop().create_task(self._create())
        await asyncio.shield(self._creating)

    async def _create(self) -> None:
        try:
            alive = len(self.broker.image.brokers)
            wanted = self.broker.settings.integer(self._replication_setting)
            topic = NewTopic(self.name, self.count, max(1, min(wanted, alive)), configs=dict(self._configs))
            (result,) = await self.broker.controller.submit(CreateTopics([topic]))
            if result.error not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise KafkaError(ErrorCode.coordinator_not_available, result.message or result.error.name)
        finally:
            self._creating = None

    def shard_loaded(self, shard: Shard, count: int) -> None:
        """Count, and say so when the last of those that were to be loaded is there."""
        self._records_loaded += count
        if not any(other.loading for other in self.shards.values() if other is not shard):
            took = time.monotonic() - self._loading_since
            logger.info("%s loaded: %d records in %.3f s", self.name, self._records_loaded, took)
            self._records_loaded = 0

    # ------------------------------------------------------------------ roles, told by Partitions

    def leads(self, partition: Partition) -> None:
        shard = self.shards.get(partition.index)
        if shard is not None and shard.epoch == partition.leader_epoch:
            return
        if shard is not None:
            shard.stop()
        if not any(other.loading for other in self.shards.values()):
            self._loading_since = time.monotonic()
        shard = self.shards[partition.index] = Shard(self, partition)
        shard.start()

    def resigned(self, partition: Partition) -> None:
        shard = self.shards.pop(partition.index, None)
        if shard is not None:
            shard.stop()
