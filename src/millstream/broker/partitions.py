"""The partitions this broker hosts, and what becomes of them when the metadata changes.

`Partitions` finds them (`partition.Partition`) by topic name and by topic id, as the bytes that requests
carry, and applies image deltas: partitions appear, lead, resign and go by these alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.partition import Partition, Replication
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.coordinators.runtime import CoordinatorRuntime
    from millstream.broker.replication.replica_tracker import ReplicaTracker
    from millstream.cluster.image import Delta, Image
    from millstream.cluster.metadata_records import Partition as PartitionRecord
    from millstream.settings.log_config import LogConfig
    from millstream.storage.log import PartitionLog
    from millstream.storage.log_dirs import LogDirs

logger = logging.getLogger("millstream.partitions")


class Yielder:
    """Awaited in a long run of small steps, it lets the loop serve others every few milliseconds."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = time.monotonic()

    async def __call__(self) -> None:
        if time.monotonic() - self._turn > 0.005:
            await asyncio.sleep(0)
            self._turn = time.monotonic()


class Partitions:
    """Every partition hosted here, found by the bytes that requests use; changed only by image deltas."""

    def __init__(self, node_id: int, log_dirs: LogDirs, config_of: Callable[[UUID], LogConfig]) -> None:
        self.node_id = node_id
        self.log_dirs = log_dirs
        self.config_of = config_of  # the current settings of a topic
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        # Internal topics whose roles coordinators follow.
        self.coordinated: dict[str, CoordinatorRuntime[Any]] = {}
        self.without_log: dict[TopicPartition, PartitionRecord] = {}
        # What partitions with several replicas need; called for the first of them.
        self.replication: Callable[[], Replication] | None = None

    def __iter__(self) -> Iterator[Partition]:
        for hosted in self.by_id.values():
            yield from hosted.values()

    def __len__(self) -> int:
        return sum(len(hosted) for hosted in self.by_id.values())

    def find(self, topic: str, index: int) -> Partition | None:
        hosted = self.by_name.get(topic.encode())
        return hosted.get(index) if hosted is not None else None

    async def apply(self, image: Image, delta: Delta) -> None:
        """Take over what an entry of the metadata log changed: logs appear, change role and go.

        Making or removing thousands of folders takes a second, so that the loop serves others meanwhile.
        """
        roles = delta.roles(self.node_id)
        yield_now = Yielder()
        for record in roles.delete:
            try:
                self._delete(record.topic_id, record.index)
            except KafkaError as error:  # it is not served any more; the next start finds the folder
                logger.error("a partition that is gone is still on disk: %s", error)
            await yield_now()
        # Before the roles: with a larger `min.insync.replicas` comes the smaller ISR that made those who left
        # it eligible. Under the old setting this leader would commit without them.
        for topic_id in delta.topic_configs():
            self._reconfigure(topic_id)
        for record in (*roles.lead, *roles.update, *roles.follow, *roles.resign):
            await yield_now()
            try:
                self._take_role(image, record)
            except Exception:  # one partition must not keep all others from their roles
                logger.exception("%s-%d has not taken its role", record.topic_id, record.index)

    def _take_role(self, image: Image, record: PartitionRecord) -> None:
        key = TopicPartition(image.topics_by_id[record.topic_id].name, record.index)
        try:
            partition = self._open(image, record)
        except KafkaError as error:
            if key not in self.without_log:
                logger.error("%s-%d has no log, which is tried again: %s", *key, error)
            self.without_log[key] = record
            return
        self.without_log.pop(key, None)
        if record.leader == self.node_id:
            self._lead(partition, record)
        else:
            if partition.leads or partition.leader_epoch != record.leader_epoch:
                self._resign(partition)
            partition.become_follower(record)
        if partition.replication is not None or len(record.replicas) > 1:
            self._replication_of(partition).role_changed(partition)

    def _replication_of(self, partition: Partition) -> Replication:
        if partition.replication is None:
            assert self.replication is not None
            partition.replication = self.replication()
        return partition.replication

    def _lead(self, partition: Partition, record: PartitionRecord) -> None:
        partition.leader = self.node_id
        tracker: ReplicaTracker | None = None
        if len(record.replicas) > 1:
            tracker = self._replication_of(partition).track(partition, record)
        partition.become_leader(record.leader_epoch, record.replicas, record.isr, tracker)
        if partition.topic in self.coordinated:
            self.coordinated[partition.topic].leads(partition)

    async def create_missing_logs(self, image: Image) -> None:
        """Try again to make the logs that the disk refused."""
        yield_now = Yielder()
        for key in list(self.without_log):
            await yield_now()
            record = self.without_log.get(key)
            if record is not None:
                self._take_role(image, record)

    def lacks_log(self, topic: bytes, index: int) -> bool:
        """Whether a partition, of a topic by name or by id, exists but has no log: the disk refused it."""
        return any(
            key.partition == index and topic in (key.topic.encode(), record.topic_id.bytes)
            for key, record in self.without_log.items()
        )

    def reconfigure_all(self) -> None:
        """The broker's own defaults have changed."""
        for topic_id in list(self.by_id):
            self._reconfigure(UUID(bytes=topic_id))

    def _reconfigure(self, topic_id: UUID) -> None:
        hosted = self.by_id.get(topic_id.bytes)
        if hosted:
            config = self.config_of(topic_id)
            for partition in hosted.values():
                partition.log.config = config
                partition.check_in_sync()

    def _open(self, image: Image, record: PartitionRecord) -> Partition:
        topic_id = record.topic_id
        hosted = self.by_id.get(topic_id.bytes)
        partition = hosted.get(record.index) if hosted is not None else None
        if partition is not None:
            return partition
        name = image.topics_by_id[topic_id].name
        log = self._log(name, record.index, topic_id)
        if image.topic_config(topic_id):  # it may have changed since the log was found
            log.config = self.config_of(topic_id)
        partition = Partition(name, topic_id, record.index, log)
        if hosted is None:
            hosted = self.by_id[topic_id.bytes] = self.by_name[name.encode()] = {}
        hosted[record.index] = partition
        return partition

    def _resign(self, partition: Partition) -> None:
        partition.resign()
        if partition.topic in self.coordinated:
            self.coordinated[partition.topic].resigned(partition)

    def _log(self, name: str, index: int, topic_id: UUID) -> PartitionLog:
        """The log found on disk at the start, or a new one. That of an earlier topic of this name is set
        aside."""
        log = self.log_dirs.logs.get(TopicPartition(name, index))
        if log is not None:
            if log.topic_id is None:
                log.adopt(topic_id)
            if log.topic_id == topic_id:
                return log
            self.log_dirs.set_aside_stray(log)
        return self.log_dirs.create(name, index, topic_id, self.config_of(topic_id))

    def set_aside_strays(self) -> None:
        """After the start: a log on disk that is in no topic of the image is kept, but not served."""
        for (name, index), log in list(self.log_dirs.logs.items()):
            if self.find(name, index) is None:
                self.log_dirs.set_aside_stray(log)

    def _delete(self, topic_id: UUID, index: int) -> None:
        hosted = self.by_id.get(topic_id.bytes)
        partition = hosted.pop(index, None) if hosted is not None else None
        if partition is None:
            self.without_log = {
                key: record
                for key, record in self.without_log.items()
                if (record.topic_id, record.index) != (topic_id, index)
            }
            return
        if not hosted:
            del self.by_id[topic_id.bytes]
            if self.by_name.get(partition.topic.encode()) is hosted:
                del self.by_name[partition.topic.encode()]
        self._resign(partition)
        if partition.replication is not None:
            partition.replication.forget(partition)
        self.log_dirs.delete(partition.log, time.time_ns() // 1_000_000)
