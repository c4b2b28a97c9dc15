"""How far groups have read.

OffsetCommit 2-10
    2  a retention of its own    3  throttle time           4  throttling is up to the client (KIP-219)
    5  no retention (KIP-211)    6  leader epoch (KIP-320)  7  static members (KIP-345)
    8  flexible (KIP-482)        9  members of the consumer protocol (KIP-848)
   10  topics by their ids (KIP-848)
OffsetFetch 1-10
    2  all topics; an error of the group    3  throttle time                   4  KIP-219
    5  leader epoch (KIP-320)               6  flexible                        7  require stable (KIP-447)
    8  several groups (KIP-709)             9  member id and epoch (KIP-848)  10  topics by id (KIP-848)
OffsetDelete 0 (KIP-496)
TxnOffsetCommit 0-5 (KIP-98)
    1  KIP-219    2  leader epoch (KIP-320)    3  flexible; member id, generation, static members (KIP-447)
    4  TRANSACTION_ABORTABLE    5  adds the group to the transaction by itself (KIP-890)

Left out: versions 0 and 1 of OffsetCommit and 0 of OffsetFetch (offsets in ZooKeeper), which Kafka 4 dropped
as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.authorizer import DELETE, DESCRIBE, GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, may
from millstream.broker.coordinators.groups import offset_records, responses
from millstream.broker.coordinators.groups.group import Committer
from millstream.broker.coordinators.groups.group_shard import Commits
from millstream.broker.coordinators.groups.offsets import OffsetTable
from millstream.broker.coordinators.groups.responses import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    TopicErrors,
)
from millstream.broker.coordinators.runtime import committed_within, coordinator_error, wall_ms
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker

TOPIC_IDS = responses.TOPIC_IDS
UNKNOWN = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)
# Errors of a partition that stand whatever becomes of the commit.
KEPT = (*UNKNOWN, ErrorCode.topic_authorization_failed)
# Before this version of TxnOffsetCommit, COORDINATOR_LOAD_IN_PROGRESS is fatal to a producer.
FIRST_WITH_LOAD_IN_PROGRESS = 2
DEFAULT_RETENTION = timedelta(milliseconds=-1)  # up to version 4 a client may choose its own


class GroupOffsetsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups = broker.groups

    def apis(self) -> list[Api]:
        return [
            Api(8, "OffsetCommit", 2, 10, self.offset_commit),
            Api(9, "OffsetFetch", 1, 10, self.offset_fetch),
            Api(28, "TxnOffsetCommit", 0, 5, self.txn_offset_commit),
            Api(47, "OffsetDelete", 0, 0, self.offset_delete),
        ]

    # ------------------------------------------------------------------ OffsetCommit

    def offset_commit(self, call: Call) -> Slices[Any]:
        """Answers at once unless the log has to be flushed or replicated first, or the request is long.

        Whether a partition exists is looked up before the group; where none does, the group does not matter.
        If a partition is named twice, the last offset counts.
        """
        request, version = call.request, call.version
        now_ms = wall_ms()
        expire_ms = offset_records.NO_TIME
        if version <= 4 and request.retention_time != DEFAULT_RETENTION:
            expire_ms = now_ms + request.retention_time // timedelta(milliseconds=1)
        limit = self.broker.settings.integer("offset.metadata.max.bytes")
        with_epoch = version >= 6
        commits: Commits = {}
        topic_ids: dict[str, UUID | None] = {}
        answers: list[TopicErrors] = []
        any_known = False
        authorizer = self.broker.authorizer
        group_allowed = may(authorizer, call, READ, GROUP, request.group_id)
        for topic in request.topics:
            name, topic_id, count, error = self._topic(version, topic)
            if authorizer is not None:
                if not group_allowed:
                    error = ErrorCode.group_authorization_failed
                elif error is not ErrorCode.unknown_topic_id and not may(authorizer, call, READ, TOPIC, name):
                    error = ErrorCode.topic_authorization_failed
            indexes: list[int] = []
            errors: list[int] = []
            answers.append(TopicErrors(topic_id if version >= TOPIC_IDS else topic.name, indexes, errors))
            topic_ids[name] = topic_id
            yield
            for each in topic.partitions:
                metadata = each.committed_metadata or ""
                index = each.partition_index
                indexes.append(index)
                if error is not ErrorCode.none:
                    errors.append(error)
                elif not 0 <= index < count:
                    errors.append(ErrorCode.unknown_topic_or_partition)
                elif len(metadata) > limit:
                    any_known = True
                    errors.append(ErrorCode.offset_metadata_too_large)
                else:
                    any_known = True
                    errors.append(ErrorCode.none)
                    epoch = each.committed_leader_epoch if with_epoch else offset_records.NO_EPOCH
                    commits[name, index] = offset_records.offset_value(
                        each.committed_offset, epoch, metadata, now_ms, expire_ms, topic_id
                    )
                yield
        if any_known:
            committer = Committer(
                request.member_id,
                request.group_instance_id if version >= 7 else None,
                request.generation_id_or_member_epoch,
                version,
            )
            try:
                waiting = self.groups.commit_offsets(request.group_id, committer, topic_ids, commits)
            except KafkaError as problem:
                return self._commit_refused(call, answers, coordinator_error(problem))
            if waiting is not None:
                return self._committed_later(call, waiting, answers)
        return self._committed(call, answers)

    def _topic(self, version: int, topic: Any) -> tuple[str, UUID | None, int, ErrorCode]:
        """Name, id and number of partitions of a topic that a request names one way or the other."""
        image = self.broker.image
        if version >= TOPIC_IDS:
            known = image.topics_by_id.get(topic.topic_id)
            if known is None:
                return "", topic.topic_id, 0, ErrorCode.unknown_topic_id
        else:
            known = image.topic(topic.name)
            if known is None:
                return topic.name, None, 0, ErrorCode.unknown_topic_or_partition
        return known.name, known.topic_id, len(image.partitions[known.topic_id]), ErrorCode.none

    def _committed(self, call: Call, answers: list[TopicErrors]) -> Any:
        pack = partial(responses.offset_commit, call.version, call.correlation_id, answers)
        return pack if call.is_large else pack()

    def _commit_refused(self, call: Call, answers: list[TopicErrors], error: ErrorCode) -> Any:
        """Every partition that exists gets this error."""
        pack = partial(_pack_refused_commit, call.version, call.correlation_id, answers, error)
        return pack if call.is_large else pack()

    async def _committed_later(
        self, call: Call, waiting: asyncio.Future[None], answers: list[TopicErrors]
    ) -> Any:
        try:
            await committed_within(waiting, self._commit_timeout_ms())
        except KafkaError as problem:
            return self._commit_refused(call, answers, coordinator_error(problem))
        return self._committed(call, answers)

    def _commit_timeout_ms(self) -> int:
        return self.broker.settings.integer("offsets.commit.timeout.ms")

    # ------------------------------------------------------------------ OffsetFetch

    def offset_fetch(self, call: Call) -> Slices[Any]:
        request, version = call.request, call.version
        stable = version >= 7 and request.require_stable
        groups = []
        for group in request.groups if version >= responses.GROUPS else (request,):
            groups.append((yield from self._fetch_group(call, group, stable)))
            yield
        pack = partial(responses.offset_fetch, version, call.correlation_id, groups)
        return pack if call.is_large else pack()

    def _fetch_group(self, call: Call, group: Any, stable: bool) -> Slices[FetchedGroup]:
        """`group` is the structure that names the group; no topics means all of them."""
        group_id = group.group_id
        version, authorizer = call.version, self.broker.authorizer
        if not may(authorizer, call, DESCRIBE, GROUP, group_id):
            refused = ErrorCode.group_authorization_failed
            return (yield from self._fetch_refused(version, group_id, group.topics, refused))
        try:
            offsets = self.groups.offsets(group_id)
            if version >= 9:
                self.groups.check_fetch(group_id, group.member_id, group.member_epoch)
        except KafkaError as error:
            return (yield from self._fetch_refused(version, group_id, group.topics, error.code))
        if group.topics is None:
            return FetchedGroup(group_id, (yield from self._fetch_all(call, offsets, group_id, stable)))
        answers, missing = [], []  # Kafka names what it does not know last
        for topic in group.topics:
            found: list[FetchedOffset] = []
            yield
            if version >= TOPIC_IDS:
                known = self.broker.image.topics_by_id.get(topic.topic_id)
                if known is None:
                    missing.append(FetchedTopic(topic.topic_id, found))
                    for index in topic.partition_indexes:
                        found.append(FetchedOffset(index, error=ErrorCode.unknown_topic_id))
                        yield
                    continue
                name, label, topic_id = known.name, topic.topic_id, topic.topic_id
            else:
                name, label, topic_id = topic.name, topic.name, None
            if authorizer is not None and not may(authorizer, call, DESCRIBE, TOPIC, name):
                missing.append(FetchedTopic(label, found))
                for index in topic.partition_indexes:
                    found.append(FetchedOffset(index, error=ErrorCode.topic_authorization_failed))
                    yield
                continue
            answers.append(FetchedTopic(label, found))
            for index in topic.partition_indexes:
                value = offsets.get(group_id, name, index)
                found.append(self._fetched(offsets, group_id, name, index, value, stable, topic_id))
                yield
        return FetchedGroup(group_id, answers + missing)

    def _fetch_all(
        self, call: Call, offsets: OffsetTable, group_id: str, stable: bool
    ) -> Slices[list[FetchedTopic]]:
        answers: dict[str, FetchedTopic] = {}
        version, authorizer = call.version, self.broker.authorizer
        for name, index, value in list(offsets.items(group_id)):
            topic = answers.get(name)
            if topic is None:
                if authorizer is not None and not may(authorizer, call, DESCRIBE, TOPIC, name, quiet=True):
                    continue
                label: str | UUID = name
                if version >= TOPIC_IDS:
                    known = self.broker.image.topic(name)
                    if known is None:
                        continue  # it is gone, and its offsets will follow
                    label = known.topic_id
                topic = answers[name] = FetchedTopic(label, [])
            topic.offsets.append(self._fetched(offsets, group_id, name, index, value, stable, None))
            yield
        return list(answers.values())

    def _fetched(
        self,
        offsets: OffsetTable,
        group_id: str,
        topic: str,
        index: int,
        value: bytes | None,
        stable: bool,
        topic_id: UUID | None,
    ) -> FetchedOffset:
        if stable and offsets.is_unstable(group_id, topic, index):
            return FetchedOffset(index, error=ErrorCode.unstable_offset_commit)
        if value is None:
            return FetchedOffset(index)
        found = offset_records.parse_offset_value(value)
        if topic_id is not None and found.topic_id is not None and found.topic_id != topic_id:
            return FetchedOffset(index)  # of an earlier topic of this name
        return FetchedOffset(index, found.offset, found.leader_epoch, found.metadata)

    def _fetch_refused(
        self, version: int, group_id: str, topics: Any, error: ErrorCode
    ) -> Slices[FetchedGroup]:
        """Version 1 has no field for an error of the whole group."""
        if version >= 2:
            return FetchedGroup(group_id, [], error)
        answers = []
        for topic in topics or ():
            found = yield from collect(FetchedOffset(index, error=error) for index in topic.partition_indexes)
            answers.append(FetchedTopic(topic.name, list(found)))
            yield
        return FetchedGroup(group_id, answers)

    # ------------------------------------------------------------------ OffsetDelete

    async def offset_delete(self, call: Call) -> Any:
        errors: dict[TopicPartition, ErrorCode] = {}
        if not may(self.broker.authorizer, call, DELETE, GROUP, call.request.group_id):
            return call.answer(error_code=ErrorCode.group_authorization_failed, topics=())
        existing = await call.in_slices(self._existing(call, errors))
        try:
            found, waiting = self.groups.delete_offsets(call.request.group_id, existing)
            if waiting is not None:
                await committed_within(waiting, self._commit_timeout_ms())
        except KafkaError as problem:
            return call.answer(error_code=coordinator_error(problem), topics=())
        errors.update(zip(existing, found, strict=True))
        topics = await call.in_slices(_topics_with_errors(call, "OffsetDeleteResponse", errors))
        return call.answer(error_code=ErrorCode.none, topics=topics)

    def _existing(self, call: Call, errors: dict[TopicPartition, ErrorCode]) -> Slices[list[TopicPartition]]:
        """The partitions that there are, each once; the others get an error."""
        existing: dict[TopicPartition, None] = {}
        for topic in call.request.topics:
            allowed = may(self.broker.authorizer, call, READ, TOPIC, topic.name)
            count = self._partition_count(topic.name)
            yield
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if not allowed:
                    errors[partition] = ErrorCode.topic_authorization_failed
                elif 0 <= partition.partition < count:
                    existing[partition] = None
                else:
                    errors[partition] = ErrorCode.unknown_topic_or_partition
                yield
        return list(existing)

    def _partition_count(self, topic: str) -> int:
        known = self.broker.image.topic(topic)
        return 0 if known is None else len(self.broker.image.partitions[known.topic_id])

    # ------------------------------------------------------------------ TxnOffsetCommit

    async def txn_offset_commit(self, call: Call) -> Any:
        """Offsets that become the group's when their transaction commits."""
        request = call.request
        errors: dict[TopicPartition, ErrorCode] = {}
        other_errors = ErrorCode.none
        refused = self._txn_refused(call)
        if refused is not None:
            topics = await call.in_slices(_topics_with_errors(call, "TxnOffsetCommitResponse", {}, refused))
            return call.answer(topics=topics)
        commits, any_known = await call.in_slices(self._txn_commits(call, errors))
        names_member = call.version >= 3
        try:
            if any_known:
                await self.groups.commit_offsets_in_transaction(
                    request.group_id,
                    request.transactional_id,
                    (request.producer_id, request.producer_epoch),
                    Committer(
                        request.member_id if names_member else "",
                        request.group_instance_id if names_member else None,
                        request.generation_id if names_member else -1,
                        call.version,
                        transactional=True,
                    ),
                    {topic: self._topic_id(topic) for topic, _ in commits},
                    commits,
                )
        except KafkaError as problem:
            other_errors = coordinator_error(problem)
            loading = other_errors is ErrorCode.coordinator_load_in_progress
            if loading and call.version < FIRST_WITH_LOAD_IN_PROGRESS:
                other_errors = ErrorCode.coordinator_not_available
            errors = {partition: error for partition, error in errors.items() if error in KEPT}
        topics = await call.in_slices(
            _topics_with_errors(call, "TxnOffsetCommitResponse", errors, other_errors)
        )
        return call.answer(topics=topics)

    def _txn_refused(self, call: Call) -> ErrorCode | None:
        authorizer, request = self.broker.authorizer, call.request
        if not may(authorizer, call, WRITE, TRANSACTIONAL_ID, request.transactional_id):
            return ErrorCode.transactional_id_authorization_failed
        if not may(authorizer, call, READ, GROUP, request.group_id):
            return ErrorCode.group_authorization_failed
        return None

    def _topic_id(self, topic: str) -> UUID | None:
        known = self.broker.image.topic(topic)
        return None if known is None else known.topic_id

    def _txn_commits(
        self, call: Call, errors: dict[TopicPartition, ErrorCode]
    ) -> Slices[tuple[Commits, bool]]:
        """What is to be written, and whether any of the partitions exists."""
        request, version = call.request, call.version
        now_ms = wall_ms()
        limit = self.broker.settings.integer("offset.metadata.max.bytes")
        commits: Commits = {}
        any_known = False
        for topic in request.topics:
            allowed = may(self.broker.authorizer, call, READ, TOPIC, topic.name)
            count = self._partition_count(topic.name)
            yield
            for each in topic.partitions:
                metadata = each.committed_metadata or ""
                partition = TopicPartition(topic.name, each.partition_index)
                if not allowed:
                    errors[partition] = ErrorCode.topic_authorization_failed
                elif not 0 <= each.partition_index < count:
                    errors[partition] = ErrorCode.unknown_topic_or_partition
                elif len(metadata) > limit:
                    any_known = True
                    errors[partition] = ErrorCode.offset_metadata_too_large
                else:
                    any_known = True
                    epoch = each.committed_leader_epoch if version >= 2 else offset_records.NO_EPOCH
                    commits[partition] = offset_records.offset_value(
                        each.committed_offset, epoch, metadata, now_ms
                    )
                yield
        return commits, any_known


def _pack_refused_commit(
    version: int, correlation_id: int, answers: list[TopicErrors], error: ErrorCode
) -> bytes:
    refused = [
        answer._replace(errors=[each if each in KEPT else error for each in answer.errors])
        for answer in answers
    ]
    return responses.offset_commit(version, correlation_id, refused)


def _topics_with_errors(
    call: Call,
    structure: str,
    errors: Mapping[TopicPartition, ErrorCode],
    otherwise: ErrorCode = ErrorCode.none,
) -> Slices[tuple[Any, ...]]:
    """The topics and partitions of the request, each partition with its error."""
    topics = []
    for topic in call.request.topics:
        partitions = yield from collect(
            call.make(
                f"{structure}Partition",
                partition_index=each.partition_index,
                error_code=errors.get(TopicPartition(topic.name, each.partition_index), otherwise),
            )
            for each in topic.partitions
        )
        topics.append(call.make(f"{structure}Topic", name=topic.name, partitions=partitions))
        yield
    return tuple(topics)
