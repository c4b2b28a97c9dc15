"""One fetch on its way to an answer: what it may read of each partition, and the response made of that.

A consumer reads up to the high watermark, or up to the last stable offset if it asks for committed records
only; a follower up to the end of the log. What is found is a range of a segment file, not its bytes. The
handler (`fetch`) decides when to answer and how to send; `fetch_in_slices` calls the same steps with a part
of the partitions at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from millstream.broker.apis.fetch_sessions import Cached, Key, Session
from millstream.broker.authorizer import CLUSTER, CLUSTER_ACTION, READ, TOPIC
from millstream.broker.network.file_range import FileRange, Part, join_parts
from millstream.broker.replication.replica_reads import admit
from millstream.wire.acls import CLUSTER_NAME
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.fetch import (
    DEBUGGING_REPLICA,
    FIRST_WITH_TOPIC_ID,
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResult,
    pack_fetch_response,
)

if TYPE_CHECKING:
    from millstream.broker.apis.fetch import FetchHandler
    from millstream.broker.authorizer import Authorizer
    from millstream.broker.network.connection import Connection
    from millstream.broker.partition import Partition

logger = logging.getLogger("millstream.fetch")

Wanted = tuple[bytes, FetchPartition, Cached | None]
Result = tuple[bytes, FetchResult, Cached | None]
Topics = list[tuple[bytes, list[FetchResult]]]

FIRST_WITH_RACK = 11
FIRST_WITH_ENDPOINTS = 16


class Fetch:
    """One fetch request on its way to an answer."""

    __slots__ = (
        "behind",
        "by_id",
        "connection",
        "correlation_id",
        "failed_before",
        "found",
        "full",
        "handler",
        "request",
        "session",
        "version",
    )

    def __init__(
        self,
        handler: FetchHandler,
        connection: Connection,
        request: FetchRequest,
        version: int,
        correlation_id: int,
    ) -> None:
        self.handler = handler
        self.connection = connection
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.by_id = version >= FIRST_WITH_TOPIC_ID
        self.session: Session | None = None
        self.full = True
        self.failed_before = handler.failed
        self.found = 0  # bytes of records
        self.behind = False  # a partition is read in an older segment, with more to read after it

    def wanted(self) -> Iterator[Wanted]:
        """The partitions to read, in the order in which they may fill the answer."""
        if self.session is not None:
            for (topic, _), cached in self.session.partitions.items():
                yield topic, cached.want, cached
        else:
            for topic, partitions in self.request.topics:
                for want in partitions:
                    yield topic, want, None

    def hosted(self, wanted: Iterable[Wanted] | None = None) -> Iterator[Partition]:
        """The partitions that are here, of all that are wanted or of these."""
        table = self.handler.partitions.by_id if self.by_id else self.handler.partitions.by_name
        for topic, want, _ in self.wanted() if wanted is None else wanted:
            partition = table.get(topic, {}).get(want.partition)
            if partition is not None:
                yield partition

    def try_answer(self, patient: bool) -> bool:
        """Answer if there is enough; a patient fetch waits for `min_bytes`, or for as much as it may get."""
        self.behind = False
        max_bytes = min(self.request.max_bytes, self.handler.max_bytes)
        results, self.found, failed = self.read_some(self.wanted(), max_bytes, 0)
        if patient and results and not failed and not self.is_enough(self.found):
            for _, result, _ in results:
                if result.size:
                    result.source.release()  # type: ignore[attr-defined]
            return False
        self._answer(results)
        return True

    def read_some(self, wanted: Iterable[Wanted], left: int, found: int) -> tuple[list[Result], int, bool]:
        """Read these partitions, up to `left` bytes, after `found` bytes in others. Returns the results, the
        bytes found so far, and whether something is wrong with a partition."""
        failed = False
        results: list[Result] = []
        for topic, want, cached in wanted:
            result = self._read(topic, want, left, found == 0)
            results.append((topic, result, cached))
            left -= result.size
            found += result.size
            if result.error or result.diverging is not None or result.preferred_replica >= 0:
                failed = True
        return results, found, failed

    def is_enough(self, found: int) -> bool:
        """A read ends with its segment: in an older one, waiting brings no more."""
        request = self.request
        return self.behind or found >= min(request.min_bytes, request.max_bytes, self.handler.max_bytes)

    def _read(self, topic: bytes, want: FetchPartition, left: int, first: bool) -> FetchResult:
        handler = self.handler
        partitions = handler.partitions
        hosted = (partitions.by_id if self.by_id else partitions.by_name).get(topic)
        partition = hosted.get(want.partition) if hosted is not None else None
        if handler.authorizer is not None and self._denied(handler.authorizer, topic):
            return self._fail(want, ErrorCode.topic_authorization_failed)
        if partition is None:
            if partitions.lacks_log(topic, want.partition):
                return self._fail(want, ErrorCode.kafka_storage_error)
            elsewhere = handler.leaders.find(topic, want.partition, self.by_id)
            if elsewhere is not None:
                result = self._fail(want, ErrorCode.not_leader_or_follower)
                result.leader = elsewhere
                return result
            unknown_id = self.by_id and hosted is None
            result = self._fail(
                want, ErrorCode.unknown_topic_id if unknown_id else ErrorCode.unknown_topic_or_partition
            )
            # An empty list, as in Kafka; with any other error it is null.
            result.aborted = []
            return result
        if partition.leads and self.request.replica_id >= 0:
            return self._read_for_replica(partition, want, left, first)
        # Before the role, as in Kafka: a follower, too, says that the client knows an older epoch, or one
        # that this broker has yet to hear of.
        if want.leader_epoch >= 0 and want.leader_epoch != partition.leader_epoch:
            older = want.leader_epoch < partition.leader_epoch
            result = self._fail(
                want, ErrorCode.fenced_leader_epoch if older else ErrorCode.unknown_leader_epoch
            )
            if older:  # KIP-951: saves the client a Metadata request
                result.leader = (partition.leader, partition.leader_epoch)
            return result
        if not partition.leads and not self._may_read_follower(partition):
            result = self._fail(want, ErrorCode.not_leader_or_follower)
            result.leader = (partition.leader, partition.leader_epoch)
            return result
        log = partition.log
        committed_only = self.request.isolation == READ_COMMITTED
        high_watermark, start = log.high_watermark, log.start_offset
        result = FetchResult(want.partition, 0, high_watermark, log.last_stable_offset, start)
        offset = want.offset
        if self.request.rack and partition.tracker is not None and partition.replication is not None:
            result.preferred_replica = partition.replication.preferred_replica(
                partition, self.request.rack, offset
            )
            if result.preferred_replica >= 0:
                return result
        if want.last_fetched_epoch >= 0:
            epoch, end = log.epoch_end(want.last_fetched_epoch)
            if want.last_fetched_epoch > log.epochs.latest or offset < start:
                return self._fail(want, ErrorCode.offset_out_of_range)
            if epoch < want.last_fetched_epoch or end < offset:
                result.diverging = (epoch, end)
                return result
        if committed_only:
            result.aborted = []
        if offset >= high_watermark and start <= offset <= log.end_offset:
            return result  # nothing new, as for every consumer that keeps up
        try:
            found = log.read(offset, min(left, want.max_bytes), "lso" if committed_only else "hw", first)
            aborted = log.aborted_transactions(offset, found) if committed_only and found.size else ()
        except KafkaError as error:
            if error.code is ErrorCode.corrupt_message:
                logger.error("%s: cannot read at offset %d: %s", partition, offset, error)
            return self._fail(want, error.code)
        except OSError as error:
            logger.error("%s: cannot read at offset %d: %s", partition, offset, error)
            return self._fail(want, ErrorCode.kafka_storage_error)
        segment = found.segment
        if segment is not None:
            newest = segment is log.active
            if not newest and segment.end_offset < (result.last_stable if committed_only else high_watermark):
                self.behind = True
            result.source = FileRange(segment, found.position, found.size, newest)
            result.size = found.size
            partition.bytes_out += found.size
            if committed_only:
                result.aborted = [
                    (transaction.producer_id, transaction.first_offset) for transaction in aborted
                ]
        return result

    def _denied(self, authorizer: Authorizer, topic: bytes) -> bool:
        """An id without a topic is not denied but unknown. Asked again when a parked fetch wakes."""
        name = self.handler.topic_name(topic) if self.by_id else str(topic, "utf-8")
        if name is None:
            return False
        who = self.connection.principal, self.connection.client_host
        if self.request.replica_id >= 0:
            return not authorizer.allows(*who, 1, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
        return not authorizer.allows(*who, 1, READ, TOPIC, name)

    def _may_read_follower(self, partition: Partition) -> bool:
        """Consumers that know of preferred replicas, and tools; not followers, who would copy a copy."""
        return self.request.replica_id == DEBUGGING_REPLICA or (
            partition.leader >= 0
            and partition.replication is not None
            and self.request.replica_id < 0
            and self.version >= FIRST_WITH_RACK
        )

    def _read_for_replica(
        self, partition: Partition, want: FetchPartition, left: int, first: bool
    ) -> FetchResult:
        """For a follower: up to the end of the log, if it agrees with ours so far."""
        log, request = partition.log, self.request
        error, diverging = admit(partition, request.replica_id, request.replica_epoch, want)
        if error:
            result = self._fail(want, error)
            result.log_start = log.start_offset
            return result
        result = FetchResult(want.partition, 0, log.high_watermark, log.last_stable_offset, log.start_offset)
        result.diverging = diverging
        if diverging is not None:
            return result
        replication = partition.replication
        if replication is not None and replication.by_rack and partition.tracker is not None:
            # Consumers read there: they must not wait for a new high watermark until the next append.
            follower = partition.tracker.followers[request.replica_id]
            self.behind = self.behind or follower.sent_high_watermark < log.high_watermark
            follower.sent_high_watermark = log.high_watermark
        if want.offset >= log.end_offset:
            return result
        limiter = None if replication is None else replication.send_limiter(partition, request.replica_id)
        if limiter is not None and not limiter.ready(time.monotonic()):
            return result
        try:
            found = log.read(want.offset, min(left, want.max_bytes), "end", first)
        except (KafkaError, OSError) as problem:
            logger.error("%s: cannot read at offset %d for a replica: %s", partition, want.offset, problem)
            return self._fail(want, ErrorCode.kafka_storage_error)
        if found.segment is not None:
            newest = found.segment is log.active
            self.behind = self.behind or not newest
            if limiter is not None:
                limiter.spend(found.size, time.monotonic())
            result.source = FileRange(found.segment, found.position, found.size, newest)
            result.size = found.size
        return result

    def _fail(self, want: FetchPartition, error: ErrorCode) -> FetchResult:
        self.handler.failed += 1
        return FetchResult(want.partition, error)

    def _answer(self, results: list[Result]) -> None:
        topics: Topics = []
        self.group_some(results, topics)
        session_id = self.session.id if self.session is not None else 0
        parts = pack_fetch_response(
            self.correlation_id, self.version, 0, session_id, topics, self.endpoints(topics)
        )
        if len(parts) == 1:
            self.connection.send(bytes(parts[0]))  # type: ignore[call-overload]
        else:
            self.send(*join_parts(parts))

    def endpoints(self, topics: Topics) -> bytes:
        """Where the new leaders are that the answer names (KIP-951)."""
        if self.version < FIRST_WITH_ENDPOINTS or self.handler.failed == self.failed_before:
            return b""
        leaders = [result.leader for _, results in topics for result in results if result.leader is not None]
        return self.handler.leaders.endpoints(self.connection.context.name, leaders) if leaders else b""

    def send(self, parts: list[Part], cold: list[FileRange]) -> None:
        if len(parts) == 1 and not cold:
            self.connection.send(bytes(parts[0]))  # type: ignore[arg-type]
        else:
            self.handler.send(self.connection, parts, cold)

    def group_some(self, results: Iterable[Result], topics: Topics) -> None:
        """Add results to the response, by topic. An incremental one leaves out what has not changed."""
        last, group = topics[-1] if topics else (None, [])
        served: list[Key] = []
        for topic, result, cached in results:
            if cached is not None:
                if result.size:
                    served.append((topic, result.index))
                if not self._news(result, cached):
                    continue
            if topic != last:
                last, group = topic, []
                topics.append((topic, group))
            group.append(result)
        if self.session is not None and served:
            self.session.to_back(served)

    def _news(self, result: FetchResult, cached: Cached) -> bool:
        """Whether an incremental response must mention this partition; remembers what it says."""
        changed = (
            self.full
            or result.size > 0
            or result.error != 0
            or result.diverging is not None
            or result.preferred_replica >= 0
            or result.high_watermark != cached.high_watermark
            or result.last_stable != cached.last_stable
            or result.log_start != cached.log_start
        )
        # An error is repeated until it is gone, and what follows it is news; as is what follows a divergence,
        # of which a follower takes nothing else.
        refused = result.error or result.diverging is not None
        cached.high_watermark = -1 if refused else result.high_watermark
        cached.last_stable = result.last_stable
        cached.log_start = result.log_start
        return changed
