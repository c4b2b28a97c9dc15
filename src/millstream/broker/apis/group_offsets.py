"""How far groups have read: OffsetCommit 2 to 10, OffsetFetch 1 to 10, OffsetDelete 0, TxnOffsetCommit 0 to 5.

Commits are checked against the group's membership (`groups.classic`, `groups.consumer_group`), written to the group's
shard, and stand once the log has them. Version 10 names topics by their ids. Left out: versions 0 and 1 of OffsetCommit
and 0 of OffsetFetch, which Kafka 4 has dropped as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.coordinators.groups import offset_records, responses
from millstream.broker.coordinators.groups.classic_types import State
from millstream.broker.coordinators.groups.consumer_group import ConsumerGroup
from millstream.broker.coordinators.groups.coordinator import GroupCoordinator
from millstream.broker.coordinators.groups.group_shard import GroupShard, Row
from millstream.broker.coordinators.groups.responses import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    TopicErrors,
)
from millstream.broker.coordinators.groups.subscription import CONSUMER
from millstream.broker.coordinators.runtime import coordinator_error, wall_ms
from millstream.broker.network.dispatch import Api, Call
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import INT32
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.server import Broker

TOPIC_IDS = responses.TOPIC_IDS
UNKNOWN = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)
LOADING_IS_KNOWN = (
    2  # before this version of TxnOffsetCommit, COORDINATOR_LOAD_IN_PROGRESS would end a producer
)
DEFAULT_RETENTION = timedelta(milliseconds=-1)  # up to version 4 a client may choose its own
Commits = list[tuple[str, int, bytes]]  # topic, partition, the record's value


class GroupOffsetsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups: GroupCoordinator = broker.groups

    def apis(self) -> list[Api]:
        return [
            Api(8, "OffsetCommit", 2, 10, self.offset_commit),
            Api(9, "OffsetFetch", 1, 10, self.offset_fetch),
            Api(28, "TxnOffsetCommit", 0, 5, self.txn_offset_commit),
            Api(47, "OffsetDelete", 0, 0, self.offset_delete),
        ]

    # ------------------------------------------------------------------ OffsetCommit

    def offset_commit(self, call: Call) -> Any:
        """Answers at once unless the log has to be flushed or replicated first.

        Whether a partition exists is asked before the group is; where none does, the group is not asked at all.
        """
        request = call.request
        group_id = request.group_id
        now_ms = wall_ms()
        expire_ms = offset_records.NO_TIME
        if call.version <= 4 and request.retention_time != DEFAULT_RETENTION:
            expire_ms = now_ms + request.retention_time // timedelta(milliseconds=1)
        limit = self.broker.settings.integer("offset.metadata.max.bytes")
        with_epoch = call.version >= 6
        commits: Commits = []
        rows: list[Row] = []
        answers: list[TopicErrors] = []
        any_known = False
        for topic in request.topics:
            partitions = topic.partitions
            name, topic_id, count, error = self._topic(call.version, topic)
            errors: list[int] = [error] * len(partitions)
            answers.append(
                TopicErrors(
                    topic_id if call.version >= TOPIC_IDS else topic.name,
                    [each.partition_index for each in partitions],
                    errors,
                )
            )
            if error is not ErrorCode.none:
                continue
            prefix = offset_records.offset_key_prefix(group_id, name)
            for at, each in enumerate(partitions):
                metadata = each.committed_metadata or ""
                index = each.partition_index
                if not 0 <= index < count:
                    errors[at] = ErrorCode.unknown_topic_or_partition
                    continue
                any_known = True
                if len(metadata) > limit:
                    errors[at] = ErrorCode.offset_metadata_too_large
                    continue
                epoch = each.committed_leader_epoch if with_epoch else offset_records.NO_EPOCH
                value = offset_records.offset_value(
                    each.committed_offset, epoch, metadata, now_ms, expire_ms, topic_id
                )
                commits.append((name, index, value))
                rows.append((prefix + INT32.pack(index), value))
        if any_known:
            try:
                shard = self.groups.runtime.shard(group_id)
                self._check_commit(shard, call)
            except KafkaError as problem:
                return self._commit_refused(call, answers, problem.code)
        if rows:
            try:
                waiting = self._write(shard, group_id, rows, commits)
            except KafkaError as problem:
                return self._commit_refused(call, answers, coordinator_error(problem))
            if waiting is not None:
                return self._committed_later(call, waiting, answers)
        return responses.offset_commit(call.version, call.correlation_id, answers)

    def _check_commit(self, shard: GroupShard, call: Call) -> None:
        request = call.request
        generation = request.generation_id_or_member_epoch
        group = shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            partitions = self._partitions(call.version, request.topics)
            error = group.check_commit(request.member_id, generation, partitions, False, call.version)
        elif group is not None:
            instance_id = request.group_instance_id if call.version >= 7 else None
            error = group.check_commit(request.member_id, instance_id, generation, False, self.groups.now())
        elif generation < 0:
            error = ErrorCode.none  # a consumer that needs no group, or an administrator
        elif shard.knows(request.group_id):
            error = ErrorCode.unknown_member_id
        else:
            error = ErrorCode.group_id_not_found if call.version >= 9 else ErrorCode.illegal_generation
        if error is not ErrorCode.none:
            raise KafkaError(error)

    def _partitions(self, version: int, topics: Any) -> Iterator[tuple[UUID | None, int]]:
        """What a request would commit: the partitions that there are, unless their metadata is too large."""
        limit = self.broker.settings.integer("offset.metadata.max.bytes")
        for topic in topics:
            _, topic_id, count, _ = self._topic(version, topic)
            for each in topic.partitions:
                if 0 <= each.partition_index < count and len(each.committed_metadata or "") <= limit:
                    yield topic_id, each.partition_index

    def _topic(self, version: int, asked: Any) -> tuple[str, UUID | None, int, ErrorCode]:
        """Name, id and number of partitions of a topic that a request names one way or the other."""
        image = self.broker.image
        if version >= TOPIC_IDS:
            known = image.topics_by_id.get(asked.topic_id)
            if known is None:
                return "", asked.topic_id, 0, ErrorCode.unknown_topic_id
        else:
            known = image.topic(asked.name)
            if known is None:
                return asked.name, None, 0, ErrorCode.unknown_topic_or_partition
        return known.name, known.topic_id, len(image.partitions[known.topic_id]), ErrorCode.none

    def _partition_count(self, topic: str) -> int:
        known = self.broker.image.topic(topic)
        return 0 if known is None else len(self.broker.image.partitions[known.topic_id])

    def _write(
        self, shard: GroupShard, group_id: str, rows: list[Row], commits: Commits
    ) -> asyncio.Future[None] | None:
        def apply(position: int) -> None:
            put = shard.offsets.put
            for topic, partition, value in commits:
                put(group_id, topic, partition, value, position)

        return shard.write(rows, apply)

    def _commit_refused(self, call: Call, answers: list[TopicErrors], error: ErrorCode) -> bytes:
        """Every partition that exists gets this error."""
        answers = [
            answer._replace(errors=[each if each in UNKNOWN else error for each in answer.errors])
            for answer in answers
        ]
        return responses.offset_commit(call.version, call.correlation_id, answers)

    async def _committed_later(
        self, call: Call, waiting: asyncio.Future[None], answers: list[TopicErrors]
    ) -> Any:
        try:
            await waiting
        except KafkaError as problem:
            return self._commit_refused(call, answers, coordinator_error(problem))
        return responses.offset_commit(call.version, call.correlation_id, answers)

    # ------------------------------------------------------------------ OffsetFetch

    def offset_fetch(self, call: Call) -> bytes:
        request, version = call.request, call.version
        stable = version >= 7 and request.require_stable
        if version >= responses.GROUPS:
            groups = [self._fetch_group(version, asked, asked.topics, stable) for asked in request.groups]
        else:
            groups = [self._fetch_group(version, request, request.topics, stable)]
        return responses.offset_fetch(version, call.correlation_id, groups)

    def _fetch_group(self, version: int, asked: Any, topics: Any, stable: bool) -> FetchedGroup:
        """`asked` names the group; no topics means all of them."""
        group_id = asked.group_id
        try:
            shard = self.groups.runtime.shard(group_id)
        except KafkaError as error:
            return self._fetch_refused(version, group_id, topics, error.code)
        group = shard.groups.get(group_id)
        if version >= 9 and isinstance(group, ConsumerGroup):
            refused = group.check_fetch(asked.member_id, asked.member_epoch)
            if refused is not ErrorCode.none:
                return self._fetch_refused(version, group_id, topics, refused)
        if topics is None:
            return FetchedGroup(group_id, self._fetch_all(version, shard, group_id, stable))
        answers, missing = [], []  # Kafka names what it does not know last
        for topic in topics:
            partitions: Iterable[int] = topic.partition_indexes
            if version >= TOPIC_IDS:
                known = self.broker.image.topics_by_id.get(topic.topic_id)
                if known is None:
                    unknown = [FetchedOffset(index, error=ErrorCode.unknown_topic_id) for index in partitions]
                    missing.append(FetchedTopic(topic.topic_id, unknown))
                    continue
                name, label, topic_id = known.name, topic.topic_id, topic.topic_id
            else:
                name, label, topic_id = topic.name, topic.name, None
            committed = shard.offsets.get
            answers.append(
                FetchedTopic(
                    label,
                    [
                        self._fetched(
                            shard, group_id, name, index, committed(group_id, name, index), stable, topic_id
                        )
                        for index in partitions
                    ],
                )
            )
        return FetchedGroup(group_id, answers + missing)

    def _fetch_all(self, version: int, shard: GroupShard, group_id: str, stable: bool) -> list[FetchedTopic]:
        answers = []
        by_topic: dict[str, list[tuple[int, bytes]]] = {}
        for name, index, value in shard.offsets.items(group_id):
            by_topic.setdefault(name, []).append((index, value))
        for name, values in by_topic.items():
            label: str | UUID = name
            if version >= TOPIC_IDS:
                known = self.broker.image.topic(name)
                if known is None:
                    continue  # it is gone, and its offsets will follow
                label = known.topic_id
            answers.append(
                FetchedTopic(
                    label,
                    [
                        self._fetched(shard, group_id, name, index, value, stable, None)
                        for index, value in values
                    ],
                )
            )
        return answers

    def _fetched(
        self,
        shard: GroupShard,
        group_id: str,
        topic: str,
        index: int,
        value: bytes | None,
        stable: bool,
        topic_id: UUID | None,
    ) -> FetchedOffset:
        if stable and shard.offsets.is_unstable(group_id, topic, index):
            return FetchedOffset(index, error=ErrorCode.unstable_offset_commit)
        if value is None:
            return FetchedOffset(index)
        found = offset_records.parse_offset_value(value)
        if topic_id is not None and found.topic_id is not None and found.topic_id != topic_id:
            return FetchedOffset(index)  # of an earlier topic of this name
        return FetchedOffset(index, found.offset, found.leader_epoch, found.metadata)

    def _fetch_refused(self, version: int, group_id: str, topics: Any, error: ErrorCode) -> FetchedGroup:
        """Version 1 has no place for an error of the whole group."""
        if version >= 2:
            return FetchedGroup(group_id, [], error)
        return FetchedGroup(
            group_id,
            [
                FetchedTopic(
                    topic.name, [FetchedOffset(index, error=error) for index in topic.partition_indexes]
                )
                for topic in topics or ()
            ],
        )

    # ------------------------------------------------------------------ OffsetDelete

    async def offset_delete(self, call: Call) -> Any:
        request = call.request
        group_id = request.group_id
        try:
            if not group_id:
                raise KafkaError(ErrorCode.invalid_group_id)
            shard = self.groups.runtime.shard(group_id)
            if not shard.knows(group_id):
                raise KafkaError(ErrorCode.group_id_not_found)
            group = shard.groups.get(group_id)
            reading: frozenset[str] | None = frozenset()
            if isinstance(group, ConsumerGroup):
                reading = group.subscribed()
            elif group is not None and group.state is not State.EMPTY:
                if group.protocol_type != CONSUMER:
                    raise KafkaError(ErrorCode.non_empty_group)
                reading = group.subscribed
            rows: list[Row] = []
            places: list[TopicPartition] = []
            answers = []
            for topic in request.topics:
                count = self._partition_count(topic.name)
                in_use = reading is None or topic.name in reading
                errors = []
                for each in topic.partitions:
                    index = each.partition_index
                    if not 0 <= index < count:
                        errors.append(ErrorCode.unknown_topic_or_partition)
                        continue
                    errors.append(ErrorCode.group_subscribed_to_topic if in_use else ErrorCode.none)
                    known = shard.offsets.get(group_id, topic.name, index) is not None
                    if not in_use and (known or shard.offsets.is_unstable(group_id, topic.name, index)):
                        places.append(TopicPartition(topic.name, index))
                        rows.append((offset_records.offset_key(group_id, topic.name, index), None))
                answers.append((topic, errors))

            def apply() -> None:
                for name, index in places:
                    shard.offsets.remove(group_id, name, index)

            waiting = self.groups.write_tombstones(shard, rows, apply)
            if waiting is not None:
                await waiting
        except KafkaError as problem:
            return call.answer(error_code=coordinator_error(problem), topics=())
        return call.answer(
            error_code=ErrorCode.none,
            topics=tuple(
                call.make(
                    "OffsetDeleteResponseTopic",
                    name=topic.name,
                    partitions=tuple(
                        call.make(
                            "OffsetDeleteResponsePartition",
                            partition_index=each.partition_index,
                            error_code=error,
                        )
                        for each, error in zip(topic.partitions, errors, strict=True)
                    ),
                )
                for topic, errors in answers
            ),
        )

    # ------------------------------------------------------------------ TxnOffsetCommit

    async def txn_offset_commit(self, call: Call) -> Any:
        """Offsets that become the group's when their transaction commits."""
        request = call.request
        group_id = request.group_id
        errors: dict[TopicPartition, ErrorCode] = {}
        whole = ErrorCode.none
        rows, commits, any_known = self._txn_commits(request, call.version, errors)
        try:
            if any_known:
                if not group_id:
                    raise KafkaError(ErrorCode.invalid_group_id)
                shard = self.groups.runtime.shard(group_id)
                await self._check_txn_commit(shard, call)
            if rows:
                waiting = self._write_pending(shard, request, rows, commits)
                if waiting is not None:
                    await waiting
        except KafkaError as problem:
            whole = coordinator_error(problem)
            if call.version < LOADING_IS_KNOWN and whole is ErrorCode.coordinator_load_in_progress:
                whole = ErrorCode.coordinator_not_available
            errors = {place: error for place, error in errors.items() if error in UNKNOWN}
        return call.answer(
            topics=tuple(
                call.make(
                    "TxnOffsetCommitResponseTopic",
                    name=topic.name,
                    partitions=tuple(
                        call.make(
                            "TxnOffsetCommitResponsePartition",
                            partition_index=each.partition_index,
                            error_code=errors.get(TopicPartition(topic.name, each.partition_index), whole),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    async def _check_txn_commit(self, shard: GroupShard, call: Call) -> None:
        """The transaction is open and knows of this shard, and the member may commit."""
        request = call.request
        while True:
            answer = self.broker.transactions.verify_offsets(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.group_id,
                call.version,
            )
            # If it has to wait, ask again afterwards: meanwhile the transaction may have been ended.
            error = answer if isinstance(answer, ErrorCode) else await answer
            if error is not ErrorCode.none:
                raise KafkaError(error)
            if isinstance(answer, ErrorCode):
                break
        group = shard.groups.get(request.group_id)
        generation = request.generation_id if call.version >= 3 else -1
        member_id = request.member_id if call.version >= 3 else ""
        instance_id = request.group_instance_id if call.version >= 3 else None
        if isinstance(group, ConsumerGroup):
            partitions = self._partitions(0, request.topics)
            error = group.check_commit(member_id, generation, partitions, True, call.version, instance_id)
        elif group is not None:
            error = group.check_commit(member_id, instance_id, generation, True, self.groups.now())
        elif generation >= 0:
            error = (
                ErrorCode.unknown_member_id if shard.knows(request.group_id) else ErrorCode.illegal_generation
            )
        if error is not ErrorCode.none:
            raise KafkaError(error)

    def _txn_commits(
        self, request: Any, version: int, errors: dict[TopicPartition, ErrorCode]
    ) -> tuple[list[Row], Commits, bool]:
        """What is to be written, and whether any of the partitions exists."""
        now_ms = wall_ms()
        limit = self.broker.settings.integer("offset.metadata.max.bytes")
        rows: list[Row] = []
        commits: Commits = []
        any_known = False
        for topic in request.topics:
            count = self._partition_count(topic.name)
            for each in topic.partitions:
                metadata = each.committed_metadata or ""
                place = TopicPartition(topic.name, each.partition_index)
                if not 0 <= each.partition_index < count:
                    errors[place] = ErrorCode.unknown_topic_or_partition
                    continue
                any_known = True
                if len(metadata) > limit:
                    errors[place] = ErrorCode.offset_metadata_too_large
                else:
                    epoch = each.committed_leader_epoch if version >= 2 else offset_records.NO_EPOCH
                    value = offset_records.offset_value(each.committed_offset, epoch, metadata, now_ms)
                    rows.append((offset_records.offset_key(request.group_id, *place), value))
                    commits.append((*place, value))
        return rows, commits, any_known

    def _write_pending(
        self, shard: GroupShard, request: Any, rows: list[Row], commits: Commits
    ) -> asyncio.Future[None] | None:
        def apply(position: int) -> None:
            put = shard.offsets.put_pending
            for topic, partition, value in commits:
                put(request.producer_id, request.group_id, topic, partition, value, position)

        return shard.write(rows, apply, (request.producer_id, request.producer_epoch))
