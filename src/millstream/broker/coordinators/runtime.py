"""The coordinator runtime: a coordinator's state lives in an internal topic, one shard for each of its
partitions.

A coordinator (groups, transactions) has a `CoordinatorRuntime`. It finds the shard of a key by the formula
that every Kafka broker and client uses, so that all of them agree on who coordinates what. When this broker
becomes the leader of a partition, the runtime makes a shard for it and replays the partition's log into the
shard, in slices between which the event loop serves others, up to the end that the log had at the election.
Until all of that is committed, requests for the shard are answered COORDINATOR_LOAD_IN_PROGRESS: an answer
that rests on a record which another leader could take back would be wrong. When the broker resigns, the shard
is dropped, and whatever waits in it is answered NOT_COORDINATOR. Every write goes through the log like a
produce with acks=all, under the leader epoch in which the shard was loaded; what it changes counts, and is
answered, when the high watermark has passed it under that same epoch.

The layers are Kafka's: service (`GroupCoordinator`) -> shard (`GroupShard`) -> state machine
(`ClassicGroup`).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.cluster.commands import NewTopic
from millstream.wire.batch import HEADER_SIZE, LENGTH_END
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import BAD_FRAME
from millstream.wire.record_walk import keys_and_values
from millstream.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from millstream.broker.server import Broker

Result = TypeVar("Result")

logger = logging.getLogger("millstream.coordinators")

SLICE_SECONDS = 0.005  # how long a load may hold the loop
RECORDS_BETWEEN_CLOCK_READS = 64
LOAD_BYTES = 1024 * 1024

# Of a batch: base offset, length, attributes, producer id, record count.
BATCH_HEAD = struct.Struct(">qi9xh20xq6xi")

# What the log's errors mean to a client of the coordinator.
_COORDINATOR_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    # The coordinator of the transaction is out of reach.
    ErrorCode.network_exception: ErrorCode.coordinator_load_in_progress,
}


def coordinator_error(error: BaseException) -> ErrorCode:
    if not isinstance(error, KafkaError):
        return ErrorCode.unknown_server_error
    return _COORDINATOR_ERRORS.get(error.code, error.code)


def respond(result: Result | asyncio.Future[Result], pack: Callable[[Result], Any]) -> Any:
    """The response of an API handler, or a coroutine for it where the result has to wait."""
    return _respond_later(result, pack) if isinstance(result, asyncio.Future) else pack(result)


async def _respond_later(result: asyncio.Future[Result], pack: Callable[[Result], Any]) -> Any:
    return pack(await result)


async def committed_within(waiting: asyncio.Future[None], timeout_ms: int) -> None:
    """Waits for a commit, but not for ever: REQUEST_TIMED_OUT if replicas are slow. The write stands, and
    counts when they have it."""
    done, _ = await asyncio.wait([waiting], timeout=timeout_ms / 1000)
    if not done:
        raise KafkaError(ErrorCode.request_timed_out, "the coordinator's log is not replicated in time")
    waiting.result()


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """`String.hashCode` of Java, over UTF-16 units, as an unsigned 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


def partition_for(key: str, count: int) -> int:
    """The partition, of `count`, that coordinates a group id or transactional id: Kafka's
    `Utils.abs(hashCode) % count`. The hash without an absolute value, -2^31, counts as 0."""
    code = java_hash(key)
    return (min(code, (1 << 32) - code) & 0x7FFFFFFF) % count


def batch_size(length: int, available: int) -> int:
    """Bytes of a batch with this length field. The log is the broker's own and was checked when it was
    opened, so all that is checked is that the batch ends inside of what was read."""
    size = length + LENGTH_END
    if not HEADER_SIZE <= size <= available:
        raise KafkaError(ErrorCode.corrupt_message, f"a batch claims {size} bytes, {available} are left")
    return size


class CoordinatorShard(ABC):
    """The state of one partition of the internal topic, while this broker leads it.

    Coordinators fill in the abstract methods; all calls come from the event loop.
    """

    __slots__ = ("_load", "_runtime", "_written", "epoch", "index", "partition", "ready")

    def __init__(self, runtime: CoordinatorRuntime[Any], partition: Partition) -> None:
        self.partition = partition
        self.index = partition.index
        self.epoch = partition.leader_epoch
        self.ready = False
        self._runtime = runtime
        self._load: asyncio.Task[None] | None = None
        self._written = 0  # the end of the last batch

    # ------------------------------------------------------------------ for the coordinator to fill in

    @abstractmethod
    def replay(
        self, attributes: int, producer_id: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        """The next record of the log, with attributes and producer id of its batch. Control records come as
        they are."""

    @abstractmethod
    def unreadable(self, offset: int, error: Exception) -> None:
        """`replay` raised one of BAD_FRAME or KafkaError. Return to skip the record, raise KafkaError to give
        up."""

    @abstractmethod
    def loaded(self) -> None:
        """Everything was replayed: timers may start, requests will come. KafkaError if it cannot be used."""

    @abstractmethod
    def unloaded(self) -> None:
        """This broker no longer leads the partition: answer waiting requests with NOT_COORDINATOR."""

    # ------------------------------------------------------------------ writing

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int | None = None,
        producer: tuple[int, int] | None = None,
        apply: Callable[[], None] | None = None,
    ) -> asyncio.Future[None] | None:
        """Write (key, value) records as one batch. None: it is committed already, else a future for when it
        is. `apply` is called at the moment of the commit, so that changes take place in the order of the log.

        With `producer` (id, epoch) the batch belongs to that producer's transaction. Raises KafkaError if the
        write is refused; a future that fails does so with KafkaError too.
        """
        now_ms = wall_ms() if now_ms is None else now_ms
        rows = [Record(at, now_ms, key, value, ()) for at, (key, value) in enumerate(records)]
        if producer is None:
            batch = encode_batch(rows)
        else:
            batch = encode_batch(
                rows, producer_id=producer[0], producer_epoch=producer[1], transactional=True
            )
        return self._append_batch(memoryview(batch), now_ms, apply)

    def _append_batch(
        self, batch: memoryview, now_ms: int, apply: Callable[[], None] | None
    ) -> asyncio.Future[None] | None:
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
        self._written = end = appended.last_offset + 1
        if partition.log.high_watermark >= end:
            if apply is not None:
                apply()
            return None
        return self._committed(end, apply)

    def settled(self) -> asyncio.Future[None] | None:
        """When everything that was written so far is committed: None for already, else a future. An answer
        that writes nothing waits for this, if it shows what others are writing."""
        return None if self.partition.log.high_watermark >= self._written else self._committed(self._written)

    def _committed(self, end: int, apply: Callable[[], None] | None = None) -> asyncio.Future[None]:
        """When everything before `end` is committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)

        def acknowledge(error: ErrorCode) -> None:
            if error is ErrorCode.not_enough_replicas_after_append:
                # It is in the log: what becomes of it is known when it is committed, or lost with the leader.
                self.partition.ack_waiters.append((end, self.epoch, acknowledge))
                return
            if error is ErrorCode.none and apply is not None:
                apply()
            if future.done():
                return
            if error is ErrorCode.none:
                future.set_result(None)
            else:
                future.set_exception(KafkaError(ErrorCode.not_coordinator))

        self.partition.ack_waiters.append((end, self.epoch, acknowledge))
        return future

    # ------------------------------------------------------------------ loading

    @property
    def loading(self) -> bool:
        """Not ready, but on the way; False also after a log that could not be read."""
        return not self.ready and self._load is not None and not self._load.done()

    def start(self) -> None:
        log = self.partition.log
        self._written = log.end_offset
        if log.start_offset == log.end_offset <= log.high_watermark:
            self._become_ready()
        else:
            self._load = asyncio.get_running_loop().create_task(self._replay_log(log.end_offset))

    def stop(self) -> None:
        self.ready = False
        if self._load is not None:
            self._load.cancel()
        self.unloaded()

    async def _replay_log(self, end_offset: int) -> None:
        """Replay the log up to its end at the election, a few milliseconds at a time, and wait until that is
        committed. The shards of a topic take turns, so that all of them together hold the loop no longer than
        one."""
        log = self.partition.log
        count = 0
        offset = log.start_offset
        try:
            async with self._runtime.loading:
                replay = self.replay
                slice_start = time.monotonic()
                while offset < end_offset:
                    read = log.read(offset, LOAD_BYTES, "end")
                    if not read.size:
                        break
                    data = read.read()
                    at = 0
                    while at < len(data):
                        base, length, attributes, producer_id, records = BATCH_HEAD.unpack_from(data, at)
                        size = batch_size(length, len(data) - at)
                        for number, key, value in keys_and_values(data, at, size, attributes, base, records):
                            try:
                                replay(attributes, producer_id, number, key, value)
                            except (*BAD_FRAME, KafkaError) as error:
                                self.unreadable(number, error)
                            count += 1
                            if (
                                not count % RECORDS_BETWEEN_CLOCK_READS
                                and time.monotonic() - slice_start > SLICE_SECONDS
                            ):
                                await asyncio.sleep(0)
                                slice_start = time.monotonic()
                        at += size
                    offset = read.next_offset
            if log.high_watermark < end_offset:
                await self._committed(end_offset)
            self._become_ready()
        except (KafkaError, OSError, struct.error) as error:
            if not self.partition.leads or self.partition.leader_epoch != self.epoch:
                return  # it was resigned before all was committed
            logger.error("%s cannot be loaded, its keys have no coordinator: %s", self.partition, error)
            return
        self._runtime.shard_loaded(self, count)

    def _become_ready(self) -> None:
        self.ready = True
        try:
            self.loaded()
        except KafkaError:
            self.ready = False
            raise


def _retrieve(done: asyncio.Future[None]) -> None:
    """Not everybody who writes waits for the commit: a failure that nobody looks at is no news."""
    if not done.cancelled():
        done.exception()


ShardT = TypeVar("ShardT", bound=CoordinatorShard)


class CoordinatorRuntime(Generic[ShardT]):
    """An internal topic and the shards of it that this broker leads."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        new_shard: Callable[[Partition], ShardT],
        count_setting: str,
        replication_setting: str,
        configs: Mapping[str, str],
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.shards: dict[int, ShardT] = {}
        self._new_shard = new_shard
        self._count_setting = count_setting
        self._replication_setting = replication_setting
        self._configs = configs
        self._creating: asyncio.Task[None] | None = None
        self._closed = False
        self.loading = asyncio.Lock()  # held by the shard whose turn it is
        self._records_loaded = 0
        self._loading_since = 0.0

    # ------------------------------------------------------------------ finding shards

    @property
    def exists(self) -> bool:
        return self.broker.image.topic(self.topic) is not None

    @property
    def count(self) -> int:
        topic = self.broker.image.topic(self.topic)
        if topic is None:
            return self.broker.settings.integer(self._count_setting)
        return len(self.broker.image.partitions[topic.topic_id])

    def partition_for(self, key: str) -> int:
        return partition_for(key, self.count)

    def shard(self, key: str) -> ShardT:
        """The shard that holds this key, ready to serve; KafkaError with the coordinator's code if it is
        not."""
        if self._closed:
            raise KafkaError(ErrorCode.coordinator_not_available, "the broker is stopping")
        if not self.exists:
            raise KafkaError(ErrorCode.not_coordinator)
        shard = self.shards.get(partition_for(key, self.count))
        if shard is None or not shard.ready:
            if shard is not None and shard.loading:
                raise KafkaError(ErrorCode.coordinator_load_in_progress)
            raise KafkaError(ErrorCode.not_coordinator)
        return shard

    def ready_shards(self) -> list[ShardT]:
        return [shard for shard in self.shards.values() if shard.ready]

    @property
    def is_loading(self) -> bool:
        return any(shard.loading for shard in self.shards.values())

    # ------------------------------------------------------------------ creating the topic

    async def ensure_exists(self) -> None:
        """Create the topic if it is not there; several callers share one attempt. KafkaError if it cannot be:
        INVALID_REPLICATION_FACTOR while too few brokers are alive."""
        if self.exists:
            return
        if self._creating is None:
            self._creating = asyncio.get_running_loop().create_task(self._create())
        await asyncio.shield(self._creating)

    async def _create(self) -> None:
        try:
            wanted = self.broker.settings.integer(self._replication_setting)
            replicas = 1 if self.broker.alone else wanted
            topic = NewTopic(self.topic, self.count, replicas, configs=dict(self._configs))
            (result,) = await self.broker.forwarding.create_topics([topic])
            if result.error not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise KafkaError(result.error, result.message or result.error.name)
        finally:
            self._creating = None

    # ------------------------------------------------------------------ roles, as Partitions reports them

    def leads(self, partition: Partition) -> None:
        shard = self.shards.get(partition.index)
        if shard is not None and shard.epoch == partition.leader_epoch:
            return
        if shard is not None:
            shard.stop()
        if not self.is_loading:
            self._loading_since = time.monotonic()
        shard = self.shards[partition.index] = self._new_shard(partition)
        shard.start()

    def resigned(self, partition: Partition) -> None:
        shard = self.shards.pop(partition.index, None)
        if shard is not None:
            shard.stop()

    def shard_loaded(self, loaded: CoordinatorShard, count: int) -> None:
        """Count the records, and log how many when the last shard is loaded."""
        self._records_loaded += count
        if not any(shard.loading for shard in self.shards.values() if shard is not loaded):
            took = time.monotonic() - self._loading_since
            logger.info("%s loaded: %d records in %.3f s", self.topic, self._records_loaded, took)
            self._records_loaded = 0

    def close(self) -> None:
        """The broker stops. What the log holds is loaded again at the next start."""
        self._closed = True
        for shard in self.shards.values():
            shard.stop()
        self.shards.clear()
