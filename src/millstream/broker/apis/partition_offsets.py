"""Offsets in a partition: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

ListOffsets 1-11
     1  one offset per partition, found by timestamp (KIP-79)
     2  isolation level (KIP-98), throttle time
     3  the client expects to be throttled after the response (KIP-219)
     4  current leader epoch (KIP-320)
     5  the client knows OFFSET_NOT_AVAILABLE (KIP-207)
     6  flexible
     7  -3: the record with the largest timestamp (KIP-734)
     8  -4: the earliest offset on local disks (KIP-405)
     9  -5: the last tiered offset (KIP-1005)
    10  timeout, for offsets that are looked up in remote storage (KIP-1075)
    11  -6: the earliest offset that is not tiered yet (KIP-1023)
OffsetForLeaderEpoch 2-4
     2  current leader epoch (KIP-320)
     3  replica id (KIP-392)
     4  flexible
DeleteRecords 0-2 (KIP-107)
     1  the client expects to be throttled after the response (KIP-219)
     2  flexible

A tool that compares replicas (replica id -2) may ask a follower, and is told where its log ends.

Left out: tiered storage, so that -5 and -6 find nothing and -4 is the start of the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import CLUSTER, CLUSTER_ACTION, DELETE, DESCRIBE, TOPIC, may
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.broker.partition import INTERNAL_TOPICS, Partition
from millstream.broker.partitions import Yielder
from millstream.storage.files import SyncFailed
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.fetch import DEBUGGING_REPLICA, READ_COMMITTED

if TYPE_CHECKING:
    from millstream.broker.server import Broker

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
FIRST_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
NO_VERSION = 1000
NOTHING = (-1, -1, -1)
FIRST_WITH_NOT_AVAILABLE = 5
DELETED_PAUSE = 0.02  # between two looks at the followers' log starts
MAX_DELETED_WAIT = 60.0  # seconds, however long the client would wait
Deleted = tuple[int, ErrorCode]  # the log start now, and what went wrong

logger = logging.getLogger("millstream.partitions")


def _needs_latest(timestamp: int, found: tuple[int, int, int]) -> bool:
    """Whether an answer depends on how far the log is committed, which a new leader has yet to learn."""
    return timestamp in (LATEST, MAX_TIMESTAMP) or (timestamp >= 0 and found == NOTHING)


class PartitionOffsetsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apis(self) -> list[Api]:
        return [
            Api(2, "ListOffsets", 1, 11, self.list_offsets),
            Api(21, "DeleteRecords", 0, 2, self.delete_records),
            Api(23, "OffsetForLeaderEpoch", 2, 4, self.offset_for_leader_epoch),
        ]

    def _leader(self, topic: str, index: int, epoch: int = -1, or_follower: bool = False) -> Partition:
        """The partition, if this broker leads it (or has it at all) under the epoch that the client knows."""
        partition = self.broker.partitions.find(topic, index)
        if partition is None:
            if self.broker.partitions.lacks_log(topic.encode(), index):
                raise KafkaError(ErrorCode.kafka_storage_error)
            elsewhere = self.broker.produce.leaders.find(topic.encode(), index, by_id=False)
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition
                if elsewhere is None
                else ErrorCode.not_leader_or_follower
            )
        # A follower, too, tells a client that its epoch is old, or one that this broker has yet to hear of.
        if epoch >= 0 and epoch != partition.leader_epoch:
            older = epoch < partition.leader_epoch
            raise KafkaError(ErrorCode.fenced_leader_epoch if older else ErrorCode.unknown_leader_epoch)
        if not partition.leads and not or_follower:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return partition

    # ------------------------------------------------------------------ ListOffsets

    def list_offsets(self, call: Call) -> Slices[Any]:
        request = call.request
        committed_only = call.version >= 2 and request.isolation_level == READ_COMMITTED
        tool = request.replica_id == DEBUGGING_REPLICA
        # Each partition is answered once, however often it is named.
        topics: dict[str, dict[int, Any]] = {}
        times: Counter[tuple[str, int]] = Counter()
        for topic in request.topics:
            yield
            for each in topic.partitions:
                times[topic.name, each.partition_index] += 1
                yield
        authorizer = self.broker.authorizer
        for topic in request.topics:
            partitions = topics.setdefault(topic.name, {})
            allowed = may(authorizer, call, DESCRIBE, TOPIC, topic.name)
            yield
            for each in topic.partitions:
                yield
                epoch = each.current_leader_epoch if call.version >= 4 else -1
                error = ErrorCode.none
                try:
                    if not allowed:
                        raise KafkaError(ErrorCode.topic_authorization_failed)
                    if times[topic.name, each.partition_index] > 1:
                        raise KafkaError(ErrorCode.invalid_request)
                    if each.timestamp < 0 and call.version < FIRST_VERSION.get(each.timestamp, NO_VERSION):
                        raise KafkaError(ErrorCode.unsupported_version)
                    partition = self._leader(topic.name, each.partition_index, epoch, or_follower=tool)
                    found = self._find(partition, each.timestamp, committed_only)
                    if tool and each.timestamp == LATEST:
                        found = -1, partition.log.end_offset, partition.leader_epoch
                    elif not partition.knows_latest and _needs_latest(each.timestamp, found):
                        raise KafkaError(
                            ErrorCode.offset_not_available
                            if call.version >= FIRST_WITH_NOT_AVAILABLE
                            else ErrorCode.leader_not_available
                        )
                except KafkaError as problem:
                    error, found = problem.code, NOTHING
                timestamp, offset, leader_epoch = found
                partitions[each.partition_index] = call.make(
                    "ListOffsetsPartitionResponse",
                    partition_index=each.partition_index,
                    error_code=error,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=leader_epoch,
                )
        found_topics = yield from collect(
            call.make("ListOffsetsTopicResponse", name=name, partitions=tuple(partitions.values()))
            for name, partitions in topics.items()
        )
        return call.answer(topics=found_topics)

    def _find(self, partition: Partition, timestamp: int, committed_only: bool) -> tuple[int, int, int]:
        """(timestamp, offset, leader epoch), -1 for what is not known."""
        log = partition.log
        if timestamp == LATEST:
            end = log.last_stable_offset if committed_only else log.high_watermark
            return -1, end, partition.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, log.start_offset, log.epochs.at(log.start_offset)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
            return NOTHING
        found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        limit = log.last_stable_offset if committed_only else log.high_watermark
        if found is None or found[1] >= limit:
            return NOTHING
        return found

    # ------------------------------------------------------------------ DeleteRecords

    async def delete_records(self, call: Call) -> Any:
        """Answers when the new log starts are on disk, and all live replicas have followed; after the
        request's timeout, REQUEST_TIMED_OUT. If a partition is named twice, the last offset counts.

        As in Kafka, a live broker counts though its replica is out of the ISR, or its disk has failed: the
        answer then is REQUEST_TIMED_OUT, and the records are gone for readers all the same. Other than there,
        nobody is waited for longer than a minute, since each look costs."""
        wait = min(call.request.timeout.total_seconds(), MAX_DELETED_WAIT)
        deadline = time.monotonic() + wait
        deleted = await call.in_slices(self._all_deleted(call))
        try:
            await self.broker.housekeeping.write_start_offsets()
        except OSError as error:
            self._starts_not_saved(deleted, error)
        await self._until_deleted_everywhere(call, deleted, deadline)
        return call.answer(topics=await call.in_slices(self._deleted_topics(call, deleted)))

    async def _until_deleted_everywhere(
        self, call: Call, deleted: dict[str, dict[int, Deleted]], deadline: float
    ) -> None:
        """Followers move their log starts when they fetch, and tell with the fetch after that. Ends early
        when the client has left."""
        waiting = {
            (name, index): low
            for name, results in deleted.items()
            for index, (low, error) in results.items()
            if not error
        }
        yield_now = Yielder()
        while True:
            for (name, index), low in list(waiting.items()):
                await yield_now()
                partition = self.broker.partitions.find(name, index)
                if partition is None or not partition.leads:
                    deleted[name][index] = -1, ErrorCode.not_leader_or_follower
                elif partition.low_watermark < low:
                    continue
                else:
                    deleted[name][index] = partition.low_watermark, ErrorCode.none
                del waiting[name, index]
            if not waiting or call.connection.closed or time.monotonic() >= deadline:
                break
            await asyncio.sleep(DELETED_PAUSE)
        for name, index in waiting:
            deleted[name][index] = -1, ErrorCode.request_timed_out

    def _all_deleted(self, call: Call) -> Slices[dict[str, dict[int, Deleted]]]:
        wanted: dict[str, dict[int, int]] = {}
        for topic in call.request.topics:
            offsets = wanted.setdefault(topic.name, {})
            yield
            for each in topic.partitions:
                offsets[each.partition_index] = each.offset
                yield
        deleted: dict[str, dict[int, Deleted]] = {}
        for name, offsets in wanted.items():
            allowed = may(self.broker.authorizer, call, DELETE, TOPIC, name)
            found = yield from collect(
                (
                    index,
                    self._deleted(name, index, offset)
                    if allowed
                    else (-1, ErrorCode.topic_authorization_failed),
                )
                for index, offset in offsets.items()
            )
            deleted[name] = dict(found)
            yield
        return deleted

    def _deleted_topics(self, call: Call, deleted: dict[str, dict[int, Deleted]]) -> Slices[tuple[Any, ...]]:
        topics = []
        for name, results in deleted.items():
            partitions = yield from collect(
                call.make(
                    "DeleteRecordsPartitionResult", partition_index=index, low_watermark=low, error_code=error
                )
                for index, (low, error) in results.items()
            )
            topics.append(call.make("DeleteRecordsTopicResult", name=name, partitions=partitions))
            yield
        return tuple(topics)

    def _deleted(self, topic: str, index: int, offset: int) -> Deleted:
        try:
            if topic in INTERNAL_TOPICS and self.broker.partitions.find(topic, index):
                raise KafkaError(ErrorCode.invalid_topic_exception)
            return self._delete_before(self._leader(topic, index), offset), ErrorCode.none
        except KafkaError as problem:
            return -1, problem.code

    def _starts_not_saved(self, deleted: dict[str, dict[int, Deleted]], error: OSError) -> None:
        """The disk is full, perhaps. What was deleted is gone for readers, and whole segments go at once; but
        a log start inside of a segment is unknown to the next start, so the deletion has failed."""
        logger.error("log starts are not saved: %s", error)
        if isinstance(error, SyncFailed):
            self.broker.log_dirs.take_offline(error)
        for name, partitions in deleted.items():
            for index, (_, code) in partitions.items():
                partition = self.broker.partitions.find(name, index)
                if partition is None or code:
                    continue
                log = partition.log
                try:
                    if not self.broker.log_cleaner.owns(log):
                        log.delete_old_segments(time.time_ns() // 1_000_000)
                except KafkaError as problem:
                    logger.error("%s: old segments were not deleted: %s", partition, problem)
                if self.broker.log_dirs.start_to_remember(log) is not None:
                    partitions[index] = -1, ErrorCode.kafka_storage_error

    def _delete_before(self, partition: Partition, offset: int) -> int:
        log = partition.log
        # `compact,delete` and an empty policy, which keeps everything, allow it.
        if log.config.cleanup_policy == {"compact"}:
            raise KafkaError(ErrorCode.policy_violation)
        if offset == -1:
            offset = log.high_watermark
        if offset < 0 or offset > log.high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        if offset > log.start_offset:
            log.advance_start(offset)
        return log.start_offset

    # ------------------------------------------------------------------ OffsetForLeaderEpoch

    def offset_for_leader_epoch(self, call: Call) -> Slices[Any]:
        topics = []
        authorizer = self.broker.authorizer
        is_broker = may(authorizer, call, CLUSTER_ACTION, CLUSTER, quiet=True)
        for topic in call.request.topics:
            partitions = []
            allowed = is_broker or may(authorizer, call, DESCRIBE, TOPIC, topic.topic)
            yield
            for each in topic.partitions:
                yield
                error, epoch, end = ErrorCode.none, -1, -1
                try:
                    if not allowed:
                        raise KafkaError(ErrorCode.topic_authorization_failed)
                    partition = self._leader(topic.topic, each.partition, each.current_leader_epoch)
                    # The current epoch counts before its first batch, too; a newer one is unknown.
                    if each.leader_epoch <= partition.log.epochs.latest:
                        epoch, end = partition.log.epoch_end(each.leader_epoch)
                except KafkaError as problem:
                    error = problem.code
                partitions.append(
                    call.make(
                        "EpochEndOffset",
                        error_code=error,
                        partition=each.partition,
                        leader_epoch=epoch,
                        end_offset=end,
                    )
                )
            topics.append(
                call.make("OffsetForLeaderTopicResult", topic=topic.topic, partitions=tuple(partitions))
            )
        return call.answer(topics=tuple(topics))
