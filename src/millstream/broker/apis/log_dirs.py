"""What partitions and data folders hold: DescribeProducers, DescribeLogDirs, AlterReplicaLogDirs.

DescribeProducers 0 (KIP-664)
DescribeLogDirs 1-5 (KIP-113)
     2  flexible
     3  an error for the whole response
     4  size and free space of the volume (KIP-827)
     5  whether a folder is cordoned (KIP-1066), which none is here
AlterReplicaLogDirs 1-2 (KIP-113)
     2  flexible

For a replica that is not here yet the answer is REPLICA_NOT_AVAILABLE if its partition exists, or else
UNKNOWN_TOPIC_OR_PARTITION; the folder is remembered until the replica comes, or this broker restarts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import ALTER, CLUSTER, DESCRIBE, READ, TOPIC, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.cluster.topic_names import name_problem
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker
    from millstream.storage.log import PartitionLog


class LogDirsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(34, "AlterReplicaLogDirs", 1, 2, self.alter_replica_log_dirs),
            Api(35, "DescribeLogDirs", 1, 5, self.describe_log_dirs),
            Api(61, "DescribeProducers", 0, 0, self.describe_producers),
        ]

    # ------------------------------------------------------------------ DescribeProducers

    def describe_producers(self, call: Call) -> Slices[Any]:
        topics = []
        for topic in call.request.topics:
            allowed = may(self.broker.authorizer, call, READ, TOPIC, topic.name)
            partitions = yield from collect(
                self._producers(call, topic.name, index, allowed) for index in topic.partition_indexes
            )
            topics.append(call.make("TopicResponse", name=topic.name, partitions=partitions))
            yield
        return call.answer(topics=tuple(topics))

    def _producers(self, call: Call, topic: str, index: int, allowed: bool) -> Any:
        if not allowed:
            return call.make(
                "PartitionResponse",
                partition_index=index,
                error_code=ErrorCode.topic_authorization_failed,
                error_message=None,
                active_producers=(),
            )
        partition = self.broker.partitions.find(topic, index)
        if partition is None:  # a follower answers, too: whoever asks may name the broker
            known = self.broker.image.topic(topic)
            exists = known is not None and self.broker.image.partition(known.topic_id, index) is not None
            error = ErrorCode.not_leader_or_follower if exists else ErrorCode.unknown_topic_or_partition
            message = name_problem(topic)
            if message is not None:
                error = ErrorCode.invalid_topic_exception
            elif known is None:
                message = "This server does not host this topic-partition."
            return call.make(
                "PartitionResponse",
                partition_index=index,
                error_code=error,
                error_message=message,
                active_producers=(),
            )
        active = tuple(
            call.make(
                "ProducerState",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_start_offset,
            )
            for producer in partition.log.describe_producers()
        )
        return call.make(
            "PartitionResponse",
            partition_index=index,
            error_code=ErrorCode.none,
            error_message=None,
            active_producers=active,
        )

    # ------------------------------------------------------------------ DescribeLogDirs

    def describe_log_dirs(self, call: Call) -> Slices[Any]:
        if not may(self.broker.authorizer, call, DESCRIBE, CLUSTER):
            return call.answer(error_code=ErrorCode.cluster_authorization_failed, results=())
        wanted: set[tuple[str, int]] | None = None
        if call.request.topics is not None:
            wanted = set()
            for topic in call.request.topics:
                yield
                for index in topic.partitions:
                    wanted.add((topic.topic, index))
                    yield
        by_folder: dict[str, dict[str, list[Any]]] = {folder: {} for folder in self.broker.log_dirs.paths}
        futures = self.broker.log_dirs.futures
        for partition in list(self.broker.partitions):
            yield
            key = TopicPartition(partition.topic, partition.index)
            if wanted is None or key in wanted:
                log = partition.log
                lag = max(0, log.high_watermark - log.end_offset)
                self._add(call, by_folder, key, log, lag, False)
                future = futures.get(key)
                if future is not None:
                    self._add(call, by_folder, key, future, self.broker.log_dir_moves.lag(key, future), True)
        return call.answer(
            error_code=ErrorCode.none,
            results=tuple(self._folder(call, folder, topics) for folder, topics in by_folder.items()),
        )

    def _add(
        self,
        call: Call,
        by_folder: dict[str, dict[str, list[Any]]],
        key: TopicPartition,
        log: PartitionLog,
        lag: int,
        is_future: bool,
    ) -> None:
        topics = by_folder.setdefault(self.broker.log_dirs.folder_of(log), {})
        topics.setdefault(key.topic, []).append(
            call.make(
                "DescribeLogDirsPartition",
                partition_index=key.partition,
                partition_size=log.size,
                offset_lag=lag,
                is_future_key=is_future,
            )
        )

    def _folder(self, call: Call, folder: str, topics: dict[str, list[Any]]) -> Any:
        total = usable = -1
        error = ErrorCode.none
        try:
            if folder in self.broker.log_dirs.offline:
                raise OSError("out of service")
            disk = os.statvfs(folder)
            total, usable = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        except OSError:  # nothing is said of its partitions, as Kafka has it
            error, topics = ErrorCode.kafka_storage_error, {}
        return call.make(
            "DescribeLogDirsResult",
            error_code=error,
            log_dir=folder,
            topics=tuple(
                call.make("DescribeLogDirsTopic", name=name, partitions=tuple(partitions))
                for name, partitions in topics.items()
            ),
            total_bytes=total,
            usable_bytes=usable,
            is_cordoned=False,
        )

    # ------------------------------------------------------------------ AlterReplicaLogDirs

    def alter_replica_log_dirs(self, call: Call) -> Slices[Any]:
        allowed = may(self.broker.authorizer, call, ALTER, CLUSTER)
        results: dict[str, list[Any]] = {}
        for folder in call.request.dirs:
            yield
            for topic in folder.topics:
                yield
                checked = yield from collect(
                    call.make(
                        "AlterReplicaLogDirPartitionResult",
                        partition_index=index,
                        error_code=self.broker.log_dir_moves.request(
                            TopicPartition(topic.name, index), folder.path
                        )
                        if allowed
                        else ErrorCode.cluster_authorization_failed,
                    )
                    for index in topic.partitions
                )
                results.setdefault(topic.name, []).extend(checked)
        topics = yield from collect(
            call.make("AlterReplicaLogDirTopicResult", topic_name=name, partitions=tuple(partitions))
            for name, partitions in results.items()
        )
        return call.answer(results=topics)
