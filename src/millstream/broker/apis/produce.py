"""Produce 3-13, listed from 0 as Kafka 4 does, for the sake of old librdkafka (KAFKA-18659).

     3  transactional id, record batches of format v2 only (KIP-98)
     4  the client knows KAFKA_STORAGE_ERROR (KIP-112)
     5  log start offset in the response
     6  the client expects to be throttled after the response (KIP-219)
     7  zstd (KIP-110)
     8  which records of a refused batch are at fault, and why (KIP-467)
     9  flexible
    10  the new leader, in tagged fields, with NOT_LEADER_OR_FOLLOWER (KIP-951)
    11  the client knows TRANSACTION_ABORTABLE (KIP-890)
    12  writing adds the partition to the transaction: AddPartitionsToTxn is not needed (KIP-890)
    13  topic ids instead of names (KIP-516)

A frame comes in, each batch is checked and appended by its header alone, and the response is packed by hand.
It waits only where it must (`pending_produce`): for acks=all until the high watermark has passed the batch,
for `flush.messages` until the fsync is done. acks=0 has no response; the connection is closed if such a write
fails, as nothing else would tell the client. Where the log has to look into a large batch, a thread does so
first (`batch_opener`), and then the request starts over. A request with a transactional id first asks
`TransactionVerifier` in which partitions it may begin a transaction. A request that repeats an earlier one
does not come here at all: see `produce_fast_path`. One with very many partitions is served by
`produce_in_slices`.

Needs WRITE on each topic, and on the transactional id. A topic that is not allowed is refused whether there
is one or not; an unknown topic id is said to be unknown.

Left out: message formats before v2, which Kafka 4 refuses too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from millstream.broker.apis.batch_opener import (
    BatchOpener,
    LargeBatch,
    Opened,
    OpenedBatch,
    TopicBatches,
    may_be_opened,
)
from millstream.broker.apis.leaders import Leaders
from millstream.broker.apis.pending_produce import Answer, PendingProduce, ProduceQueue, Uncommitted
from millstream.broker.apis.produce_fast_path import ProduceFastPath
from millstream.broker.apis.produce_in_slices import handle_in_slices, without
from millstream.broker.authorizer import TOPIC, TRANSACTIONAL_ID, WRITE
from millstream.broker.coordinators.transactions.verification import verdict_of
from millstream.cluster.image import Image
from millstream.storage import validate
from millstream.storage.append import Appended
from millstream.wire.batch import CODEC_MASK, HEADER_SIZE, LENGTH_END, MAGIC, TRANSACTIONAL
from millstream.wire.errors import ErrorCode, KafkaError, RecordsRefused
from millstream.wire.messages import body_start
from millstream.wire.primitives import INT32 as _LENGTH
from millstream.wire.produce import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_ID,
    PartitionResult,
    ProduceRequest,
    RequestTemplate,
    TooManyElements,
    pack_produce_response,
    read_produce,
)

if TYPE_CHECKING:
    from millstream.broker.authorizer import Authorizer
    from millstream.broker.coordinators.transactions.coordinator import Verdicts
    from millstream.broker.coordinators.transactions.transaction_state import Outcome
    from millstream.broker.coordinators.transactions.verification import Refused, Table, TransactionVerifier
    from millstream.broker.network.connection import Connection
    from millstream.broker.network.dispatch import Api
    from millstream.broker.partition import Partition
    from millstream.broker.partitions import Partitions

logger = logging.getLogger("millstream.produce")

MANY_PARTITIONS = 512  # topics and partitions; a request with more is served in slices
FIRST_WITH_ZSTD = 7
FIRST_WITH_ENDPOINTS = 10
MAGIC_AT = 16
SHORTEST_V1 = 14  # length of an empty message before format v2
ZSTD = 4

_time_ns = time.time_ns


class ProduceHandler:
    """Serves Produce on the full path: any version, any number of partitions, transactions."""

    transactions: TransactionVerifier  # both are set before the first request comes
    api: Api
    authorizer: Authorizer | None = None
    topic_name: Callable[[bytes], str | None]  # of its id; set with `authorizer`

    def __init__(self, partitions: Partitions, loop: asyncio.AbstractEventLoop) -> None:
        self.partitions = partitions
        self.leaders = Leaders(Image)  # the broker gives it its own image
        self.loop = loop
        self.failed = 0  # partitions refused or failed, for the metrics
        self.tasks: set[asyncio.Task[None]] = set()
        self.opener = BatchOpener()

    def handle(
        self,
        connection: Connection,
        frame: memoryview,
        client_id_size: int,
        version: int,
        correlation_id: int,
        verdict: ErrorCode | Verdicts | None = None,
        opened: Opened | None = None,
    ) -> None:
        start = body_start(frame, client_id_size, version >= FIRST_FLEXIBLE)
        try:
            request = read_produce(frame, start, version, MANY_PARTITIONS)
        except TooManyElements:
            handle_in_slices(self, connection, frame, start, version, correlation_id)
            return
        acks = request.acks
        partitions = self.partitions
        table = partitions.by_id if version >= FIRST_WITH_TOPIC_ID else partitions.by_name
        refused: Refused | None = None
        denied: set[bytes] | None = None
        transactional = request.transactional_id is not None
        if self.authorizer is not None:
            if self.transaction_denied(connection, request):
                self._answer_denied(connection, request, version, correlation_id)
                return
            denied = self.denied_topics(connection, request.topics, version)
        ready: Opened | None = None
        if may_be_opened(request.topics, table):
            ready = opened or {}
            large = self.opener.open_now(request.topics, table, ready)
            if large:
                self._open_later(large, connection, frame, client_id_size, version, correlation_id)
                return
        if transactional:
            judged = self.transactions.verify(
                without(request, denied) if denied else request, table, version, verdict
            )
            if isinstance(judged, asyncio.Future):
                self._handle_later(judged, opened, connection, frame, client_id_size, version, correlation_id)
                return
            refused = judged
        failed = self.failed
        answer, waiting, woken, written = self.write(
            request.topics, table, acks, version, transactional, refused, ready, denied
        )
        if acks and written is not None and not transactional:
            self._learn(connection, request, frame, version, written)
        if waiting is not None:
            PendingProduce(connection, version, correlation_id, request.timeout_ms, answer, waiting)
        elif acks:
            endpoints = b"" if self.failed == failed else self.endpoints(connection, version, answer)
            connection.send(pack_produce_response(correlation_id, version, answer, endpoints))
        else:
            self.check_unacknowledged(connection, answer)
        for partition in woken:
            partition.wake_fetches()

    def write(
        self,
        topics: list[TopicBatches],
        table: Table,
        acks: int,
        version: int,
        transactional: bool,
        refused: Refused | None,
        opened: Opened | None,
        denied: set[bytes] | None = None,
    ) -> tuple[Answer, list[Uncommitted] | None, list[Partition], Partition | None]:
        """Append batches. Returns the answer, what of it has to wait for its commit, the partitions for whose
        records somebody waits, and the last partition written to."""
        now_ms = _time_ns() // 1_000_000
        woken: list[Partition] = []
        waiting: list[Uncommitted] | None = None
        written: Partition | None = None
        answer: Answer = []
        for topic, batches in topics:
            if denied and topic in denied:
                self.failed += len(batches)
                answer.append((topic, _all_refused(batches, ErrorCode.topic_authorization_failed)))
                continue
            hosted = table.get(topic)
            results: list[PartitionResult] = []
            for index, records in batches:
                partition = hosted.get(index) if hosted is not None else None
                if partition is None or not partition.open_to_clients:
                    results.append(self._not_here(partition, topic, index, version))
                    continue
                if refused is not None and partition in refused:
                    self.failed += 1
                    results.append(
                        PartitionResult(
                            index, refused[partition].code, message=refused[partition].message or None
                        )
                    )
                    continue
                try:
                    batch = opened.get((len(answer), len(results))) if opened else None
                    appended = self._append(partition, records, acks, now_ms, version, transactional, batch)
                except KafkaError as error:
                    results.append(self.refused(partition, index, error))
                    continue
                log = partition.log
                result = PartitionResult(
                    index, 0, appended.base_offset, appended.append_time, log.start_offset
                )
                results.append(result)
                written = partition
                end_offset = appended.last_offset + 1
                if appended.duplicate:
                    committed = log.high_watermark >= end_offset
                else:
                    committed = partition.appended(appended.size, end_offset - appended.base_offset, now_ms)
                    if partition.fetch_waiters:
                        woken.append(partition)
                if not committed and partition.waits_for_commit(acks):
                    if waiting is None:
                        waiting = []
                    waiting.append((partition, end_offset, len(answer), result))
            answer.append((topic, results))
        return answer, waiting, woken, written

    def transaction_denied(self, connection: Connection, request: ProduceRequest) -> bool:
        name = request.transactional_id
        return (
            self.authorizer is not None
            and name is not None
            and not self.authorizer.allows(
                connection.principal, connection.client_host, 0, WRITE, TRANSACTIONAL_ID, str(name, "utf-8")
            )
        )

    def denied_topics(
        self, connection: Connection, topics: list[TopicBatches], version: int
    ) -> set[bytes] | None:
        """Those that the client may not write to; an id without a topic is none of them."""
        authorizer, denied = self.authorizer, set()
        if authorizer is None:
            return None
        for topic, _ in topics:
            name = self.topic_name(topic) if version >= FIRST_WITH_TOPIC_ID else str(topic, "utf-8")
            if name is not None and not authorizer.allows(
                connection.principal, connection.client_host, 0, WRITE, TOPIC, name
            ):
                denied.add(bytes(topic))
        return denied

    def _answer_denied(
        self, connection: Connection, request: ProduceRequest, version: int, correlation_id: int
    ) -> None:
        """The transactional id is not the client's to use: nothing of the request is served."""
        answer = self.all_denied(request.topics)
        if request.acks:
            connection.send(pack_produce_response(correlation_id, version, answer))
        else:
            self.check_unacknowledged(connection, answer)

    def all_denied(self, topics: list[TopicBatches]) -> Answer:
        code = ErrorCode.transactional_id_authorization_failed
        self.failed += sum(len(batches) for _, batches in topics)
        return [(topic, _all_refused(batches, code)) for topic, batches in topics]

    def answer_when_committed(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        timeout_ms: int,
        answer: Answer,
        waiting: list[Uncommitted],
    ) -> None:
        PendingProduce(connection, version, correlation_id, timeout_ms, answer, waiting)

    def _open_later(
        self,
        large: list[LargeBatch],
        connection: Connection,
        frame: memoryview,
        client_id_size: int,
        version: int,
        correlation_id: int,
    ) -> None:
        """Have the large batches opened by a thread, then start over."""
        kept = connection.keep_frame(frame)
        connection.park(None)

        async def open_then_handle() -> None:
            opened: Opened = {}
            try:
                start = body_start(kept.frame, client_id_size, version >= FIRST_FLEXIBLE)
                topics = read_produce(kept.frame, start, version).topics
                await self.opener.open_by_thread(large, topics, connection, opened)
                if not connection.closed:
                    connection.resume()
                    self.handle(connection, kept.frame, client_id_size, version, correlation_id, None, opened)
            except Exception:
                logger.exception("produce request from %s failed", connection.peer)
                connection.close("the request failed with an unexpected error, see above")
            finally:
                kept.give_back()

        self._start(open_then_handle())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _handle_later(
        self,
        judging: asyncio.Future[Outcome | Verdicts],
        opened: Opened | None,
        connection: Connection,
        frame: memoryview,
        client_id_size: int,
        version: int,
        correlation_id: int,
    ) -> None:
        """The transaction log has not committed yet what this request needs, or the coordinator is another
        broker: start over when it has answered."""
        # The buffer that the frame arrived in is used for other requests meanwhile.
        kept = memoryview(bytearray(frame))
        connection.park(None)

        async def wait_then_handle() -> None:
            verdict = verdict_of(await judging)
            if connection.closed:
                return
            connection.resume()
            try:
                self.handle(connection, kept, client_id_size, version, correlation_id, verdict, opened)
            except Exception:
                logger.exception("produce request from %s failed", connection.peer)
                connection.close("the request failed with an unexpected error, see above")

        self._start(wait_then_handle())

    def _learn(
        self,
        connection: Connection,
        request: ProduceRequest,
        frame: memoryview,
        version: int,
        partition: Partition,
    ) -> None:
        """The next requests of this connection will probably repeat this one."""
        template = RequestTemplate.of(request, frame, version)
        if template is not None:
            if not isinstance(connection.fast_path, ProduceFastPath):
                connection.fast_path = ProduceFastPath(self)
            connection.fast_path.learn(template, partition)

    def answer_refused(
        self,
        connection: Connection | ProduceQueue,
        template: RequestTemplate,
        correlation_id: int,
        partition: Partition,
        error: KafkaError,
    ) -> None:
        """For the fast path: the only write of the request failed."""
        answer = [(template.topic, [self.refused(partition, template.index, error)])]
        connection.send(pack_produce_response(correlation_id, template.version, answer))

    def answer_later(
        self,
        connection: Connection | ProduceQueue,
        template: RequestTemplate,
        correlation_id: int,
        partition: Partition,
        base_offset: int,
        append_time: int,
    ) -> None:
        """For the fast path: answer when the high watermark has reached the end of what it has written."""
        queue = connection if isinstance(connection, ProduceQueue) else ProduceQueue(connection)
        queue.wait(template, correlation_id, partition, base_offset, append_time)

    def _append(
        self,
        partition: Partition,
        records: memoryview | None,
        acks: int,
        now_ms: int,
        version: int,
        transactional: bool,
        opened: OpenedBatch | None,
    ) -> Appended:
        if records is None or not _is_one_batch(records):
            raise _not_one_batch(records)
        if acks == -1:
            if not partition.enough_in_sync:
                raise KafkaError(ErrorCode.not_enough_replicas)
        elif acks not in (0, 1):
            raise KafkaError(ErrorCode.invalid_required_acks, f"acks={acks}: only -1, 0 and 1 are allowed")
        elif partition.replication is not None and not partition.replication.may_lead():
            # Another may lead by now. With acks=all the replicas would tell, here nobody does.
            raise KafkaError(
                ErrorCode.not_leader_or_follower, "this broker has lost touch with the metadata store"
            )
        if version < FIRST_WITH_ZSTD and records[22] & CODEC_MASK == ZSTD:
            raise KafkaError(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7 or later")
        if records[22] & TRANSACTIONAL and not transactional:
            raise KafkaError(
                ErrorCode.transactional_id_authorization_failed,
                "transactional records need the request to name the transactional id",
            )
        log = partition.log
        if opened is None:
            return log.append_leader(records, partition.leader_epoch, now_ms)
        config, batch = opened
        if isinstance(batch, KafkaError):
            raise batch
        if log.config is not config:  # changed meanwhile
            batch = validate.prepare(batch, log.config, now_ms)
        return log.append_prepared([batch], partition.leader_epoch, now_ms)

    def _not_here(
        self, partition: Partition | None, topic: bytes, index: int, version: int
    ) -> PartitionResult:
        self.failed += 1
        if partition is not None and partition.leads:
            return PartitionResult(index, ErrorCode.invalid_topic_exception)
        if partition is not None:
            leader = (partition.leader, partition.leader_epoch)
            return PartitionResult(index, ErrorCode.not_leader_or_follower, leader=leader)
        if self.partitions.lacks_log(topic, index):
            return PartitionResult(index, ErrorCode.kafka_storage_error)
        elsewhere = self.leaders.find(topic, index, version >= FIRST_WITH_TOPIC_ID)
        if elsewhere is not None:
            return PartitionResult(index, ErrorCode.not_leader_or_follower, leader=elsewhere)
        if version >= FIRST_WITH_TOPIC_ID and topic not in self.partitions.by_id:
            return PartitionResult(index, ErrorCode.unknown_topic_id)
        return PartitionResult(index, ErrorCode.unknown_topic_or_partition)

    def endpoints(self, connection: Connection, version: int, answer: Answer) -> bytes:
        """Where the new leaders are that the answer names (KIP-951)."""
        if version < FIRST_WITH_ENDPOINTS:
            return b""
        leaders = [result.leader for _, results in answer for result in results if result.leader is not None]
        return self.leaders.endpoints(connection.context.name, leaders) if leaders else b""

    def refused(self, partition: Partition, index: int, error: KafkaError) -> PartitionResult:
        self.failed += 1
        if error.code is ErrorCode.kafka_storage_error:
            logger.error("%s: write failed: %s", partition, error)
        else:
            logger.info("%s: write refused with %s: %s", partition, error.code.name, error)
        start = partition.log.start_offset if error.code is not ErrorCode.kafka_storage_error else -1
        records = error.records if isinstance(error, RecordsRefused) else ()
        return PartitionResult(
            index, error.code, log_start=start, message=error.message or None, records=records
        )

    def check_unacknowledged(self, connection: Connection, answer: Answer) -> None:
        failed = [result for _, results in answer for result in results if result.error]
        if failed:
            code = ErrorCode(failed[0].error).name
            connection.close(f"a write with acks=0 failed with {code}, and has no response to say so")


def _all_refused(batches: Any, error: ErrorCode) -> list[PartitionResult]:
    return [PartitionResult(index, error) for index, _ in batches]


def _not_one_batch(records: memoryview | None) -> KafkaError:
    """As Kafka has it: an impossible length is corruption, anything else (old formats too) is not one
    batch."""
    if records is not None and len(records) >= MAGIC_AT:
        length = _LENGTH.unpack_from(records, 8)[0]
        is_old = len(records) > MAGIC_AT and records[MAGIC_AT] < MAGIC
        if length < (SHORTEST_V1 if is_old else HEADER_SIZE - LENGTH_END):
            return KafkaError(ErrorCode.corrupt_message, f"a record batch cannot have length {length}")
    return KafkaError(
        ErrorCode.invalid_record, "a produce request must have one whole record batch per partition"
    )


def _is_one_batch(records: memoryview) -> bool:
    return len(records) >= HEADER_SIZE and _LENGTH.unpack_from(records, 8)[0] + LENGTH_END == len(records)
