"""Transactions (KIP-98, KIP-890): producer identities, what belongs to a transaction, its end, and its
markers.

InitProducerId 0-5, and 6, which Kafka calls unstable, with `unstable.api.versions.enable` or
`transaction.two.phase.commit.enable`
    0  producer id and epoch              4  PRODUCER_FENCED (KIP-588)
    2  flexible (KIP-482)                 5  TRANSACTION_ABORTABLE (KIP-890)
    3  the known id and epoch (KIP-360)   6  two-phase commit (KIP-939)
AddPartitionsToTxn 0-5
    2  PRODUCER_FENCED (KIP-588)          4  between brokers: many transactions, add or only verify (KIP-890)
    3  flexible                           5  TRANSACTION_ABORTABLE
AddOffsetsToTxn 0-4
    2  PRODUCER_FENCED (KIP-588)    3  flexible    4  TRANSACTION_ABORTABLE (KIP-890)
EndTxn 0-5
    2  PRODUCER_FENCED (KIP-588)    3  flexible    4  TRANSACTION_ABORTABLE    5  bumps the epoch (KIP-890)
WriteTxnMarkers 1-2
    1  flexible    2  the transaction version (KIP-1228)

Version 1 of each client API moves throttling to the client (KIP-219). TxnOffsetCommit is in `group_offsets`,
what administrators ask is in `describe_transactions`.
Left out: taking over a prepared transaction (`keep_prepared_txn` of InitProducerId 6), which Apache Kafka 4
does not serve either.
"""

from __future__ import annotations

import asyncio
from collections.abc import KeysView
from typing import TYPE_CHECKING, Any

from millstream.broker.authorizer import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    may,
)
from millstream.broker.coordinators.runtime import respond
from millstream.broker.coordinators.transactions.markers import OFFSETS_TOPIC
from millstream.broker.coordinators.transactions.transaction_state import Marker, Outcome
from millstream.broker.network.dispatch import Api, Call
from millstream.broker.network.slices import Slices, collect
from millstream.broker.partition import INTERNAL_TOPICS
from millstream.wire.acls import Operation
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.coordinators.transactions.coordinator import Verdicts
    from millstream.broker.server import Broker

Partitions = KeysView[TopicPartition]
TWO_PHASE_COMMIT = 6  # the version of InitProducerId that brings it
FIRST_FROM_BROKERS = 4  # AddPartitionsToTxn
FIRST_THAT_BUMPS = 5  # EndTxn


class TransactionsApi:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.coordinator = broker.transactions

    def apis(self) -> list[Api]:
        switches = ("unstable.api.versions.enable", "transaction.two.phase.commit.enable")
        lists_all = any(map(self.broker.settings.boolean, switches))
        newest_init = TWO_PHASE_COMMIT if lists_all else TWO_PHASE_COMMIT - 1
        return [
            Api(22, "InitProducerId", 0, newest_init, self.init_producer_id),
            Api(24, "AddPartitionsToTxn", 0, 5, self.add_partitions),
            Api(25, "AddOffsetsToTxn", 0, 4, self.add_offsets),
            Api(26, "EndTxn", 0, 5, self.end),
            Api(27, "WriteTxnMarkers", 1, 2, self.write_markers),
        ]

    # ------------------------------------------------------------------ InitProducerId

    def init_producer_id(self, call: Call) -> Any:
        request = call.request
        known = None
        if call.version >= 3:
            given = (request.producer_id, request.producer_epoch)
            if (given[0] == -1) != (given[1] == -1):
                return self._identity(call, Outcome(ErrorCode.invalid_request))
            known = None if given[0] == -1 else given
        two_phase, keep_prepared = False, False
        if call.version >= TWO_PHASE_COMMIT:
            two_phase, keep_prepared = request.enable2_pc, request.keep_prepared_txn
        refused = self._may_not_init(call, two_phase)
        if refused is not None:
            return self._identity(call, Outcome(refused))
        timeout_ms = round(request.transaction_timeout.total_seconds() * 1000)
        answer = self.coordinator.init_producer_id(
            request.transactional_id, timeout_ms, known, two_phase, keep_prepared
        )
        return respond(answer, lambda outcome: self._identity(call, outcome))

    def _may_not_init(self, call: Call, two_phase: bool) -> ErrorCode | None:
        authorizer, name = self.broker.authorizer, call.request.transactional_id
        if authorizer is None:
            return None
        if name is None:  # an idempotent producer
            allowed = may(authorizer, call, IDEMPOTENT_WRITE, CLUSTER, quiet=True)
            allowed = allowed or authorizer.on_some_resource(call, WRITE, TOPIC)
            # Not allowed for sure: that is what the log shows.
            if allowed or may(authorizer, call, IDEMPOTENT_WRITE, CLUSTER):
                return None
            return ErrorCode.cluster_authorization_failed
        wanted = [WRITE, Operation.TWO_PHASE_COMMIT] if two_phase else [WRITE]
        if all(may(authorizer, call, operation, TRANSACTIONAL_ID, name) for operation in wanted):
            return None
        return ErrorCode.transactional_id_authorization_failed

    def _identity(self, call: Call, outcome: Outcome) -> Any:
        error = _fenced_for(outcome.error, call.version, 4)
        good = error is ErrorCode.none
        return call.answer(
            error_code=error,
            producer_id=outcome.producer_id if good else -1,
            producer_epoch=outcome.epoch if good else -1,
            ongoing_txn_producer_id=-1,
            ongoing_txn_producer_epoch=-1,
        )

    # ------------------------------------------------------------------ AddPartitionsToTxn

    def add_partitions(self, call: Call) -> Slices[Any]:
        request = call.request
        if call.version >= FIRST_FROM_BROKERS:
            if not may(self.broker.authorizer, call, CLUSTER_ACTION, CLUSTER):
                refused = ErrorCode.cluster_authorization_failed
                return call.answer(error_code=refused, results_by_transaction=())
            return (yield from self._add_batched(call))
        transactional_id = request.v3_and_below_transactional_id
        partitions = yield from _partitions(request.v3_and_below_topics)
        if not may(self.broker.authorizer, call, WRITE, TRANSACTIONAL_ID, transactional_id):
            denied = ErrorCode.transactional_id_authorization_failed
            return (yield from self._added(call, dict.fromkeys(partitions, denied)))
        problems = yield from self._unusable(call, partitions, from_client=True)
        if problems:
            return (yield from self._added(call, problems))
        answer = self.coordinator.add_partitions(
            transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
            client_version=0,
        )
        if isinstance(answer, asyncio.Future):
            return self._added_later(call, answer, partitions)
        return (yield from self._added(call, self._all_alike(call, partitions, answer)))

    async def _added_later(self, call: Call, answer: asyncio.Future[Outcome], partitions: Partitions) -> Any:
        verdicts = self._all_alike(call, partitions, await answer)
        return await call.in_slices(self._added(call, verdicts))

    def _all_alike(self, call: Call, partitions: Partitions, outcome: Outcome) -> Verdicts:
        return dict.fromkeys(partitions, _fenced_for(outcome.error, call.version, 2))

    def _added(self, call: Call, verdicts: Verdicts) -> Slices[Any]:
        return call.answer(results_by_topic_v3_and_below=(yield from _results(call, verdicts)))

    def _add_batched(self, call: Call) -> Slices[Any]:
        """All transactions of the request; at once if none of them has to wait."""
        found: list[tuple[str, Verdicts | asyncio.Future[Verdicts]]] = []
        for transaction in call.request.transactions:
            found.append((transaction.transactional_id, (yield from self._add_one(call, transaction))))
            yield
        if any(isinstance(verdicts, asyncio.Future) for _, verdicts in found):
            return self._added_batched_later(call, found)
        return (yield from self._added_batched(call, found))  # type: ignore[arg-type]

    def _add_one(self, call: Call, transaction: Any) -> Slices[Verdicts | asyncio.Future[Verdicts]]:
        partitions = yield from _partitions(transaction.topics)
        problems = yield from self._unusable(call, partitions, from_client=False)
        if problems:
            return problems
        identity = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            return self.coordinator.verify_partitions(*identity, partitions)
        answer = self.coordinator.add_partitions(*identity, partitions, client_version=2)
        if isinstance(answer, Outcome):
            return dict.fromkeys(partitions, answer.error)

        async def later() -> Verdicts:
            return dict.fromkeys(partitions, (await answer).error)

        return asyncio.get_running_loop().create_task(later())

    async def _added_batched_later(
        self, call: Call, found: list[tuple[str, Verdicts | asyncio.Future[Verdicts]]]
    ) -> Any:
        known = [
            (transactional_id, verdicts if isinstance(verdicts, dict) else await verdicts)
            for transactional_id, verdicts in found
        ]
        return await call.in_slices(self._added_batched(call, known))

    def _added_batched(self, call: Call, found: list[tuple[str, Verdicts]]) -> Slices[Any]:
        results = []
        for transactional_id, verdicts in found:
            topics = yield from _results(call, verdicts)
            results.append(
                call.make("AddPartitionsToTxnResult", transactional_id=transactional_id, topic_results=topics)
            )
            yield
        return call.answer(error_code=ErrorCode.none, results_by_transaction=tuple(results))

    def _unusable(self, call: Call, partitions: Partitions, from_client: bool) -> Slices[Verdicts]:
        """Nothing is added if one partition cannot be; which one, and that the others were not tried."""
        image = self.broker.image
        problems: Verdicts = {}
        for partition in partitions:
            topic, index = partition
            known = image.topic(topic)
            if from_client and (
                topic in INTERNAL_TOPICS or not may(self.broker.authorizer, call, WRITE, TOPIC, topic)
            ):
                problems[partition] = ErrorCode.topic_authorization_failed
            elif known is None or image.partition(known.topic_id, index) is None:
                problems[partition] = ErrorCode.unknown_topic_or_partition
            yield
        return dict.fromkeys(partitions, ErrorCode.operation_not_attempted) | problems if problems else {}

    # ------------------------------------------------------------------ AddOffsetsToTxn

    def add_offsets(self, call: Call) -> Any:
        """The group's partition of the offsets topic becomes part of the transaction."""
        request, authorizer = call.request, self.broker.authorizer
        if not may(authorizer, call, WRITE, TRANSACTIONAL_ID, request.transactional_id):
            return call.answer(error_code=ErrorCode.transactional_id_authorization_failed)
        if not may(authorizer, call, READ, GROUP, request.group_id):
            return call.answer(error_code=ErrorCode.group_authorization_failed)
        partition = TopicPartition(OFFSETS_TOPIC, self.broker.groups.runtime.partition_for(request.group_id))
        answer = self.coordinator.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [partition],
            client_version=0,
        )
        return respond(
            answer, lambda outcome: call.answer(error_code=_fenced_for(outcome.error, call.version, 2))
        )

    # ------------------------------------------------------------------ EndTxn

    def end(self, call: Call) -> Any:
        request = call.request
        if not may(self.broker.authorizer, call, WRITE, TRANSACTIONAL_ID, request.transactional_id):
            return self._ended(call, Outcome(ErrorCode.transactional_id_authorization_failed))
        answer = self.coordinator.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            client_version=2 if call.version >= FIRST_THAT_BUMPS else 0,
        )
        return respond(answer, lambda outcome: self._ended(call, outcome))

    def _ended(self, call: Call, outcome: Outcome) -> Any:
        return call.answer(
            error_code=_fenced_for(outcome.error, call.version, 2),
            producer_id=outcome.producer_id,
            producer_epoch=outcome.epoch,
        )

    # ------------------------------------------------------------------ WriteTxnMarkers

    def write_markers(self, call: Call) -> Slices[Any]:
        """From a coordinator elsewhere, or from an administrator who ends a transaction that nobody
        coordinates."""
        found: dict[int, Verdicts] = {}
        waiting: list[tuple[Verdicts, TopicPartition, asyncio.Future[None]]] = []
        allowed = may(self.broker.authorizer, call, ALTER, CLUSTER, quiet=True) or may(
            self.broker.authorizer, call, CLUSTER_ACTION, CLUSTER
        )
        for wanted in call.request.markers:
            yield
            marker = Marker(
                wanted.producer_id,
                wanted.producer_epoch,
                wanted.transaction_result,
                wanted.transaction_version if call.version >= 2 else 0,
            )
            for partition in (yield from _partitions(wanted.topics, "partition_indexes")):
                yield
                verdicts = found.setdefault(wanted.producer_id, {})
                verdicts[partition] = ErrorCode.none
                if not allowed:
                    verdicts[partition] = ErrorCode.cluster_authorization_failed
                    continue
                try:
                    future = self.coordinator.local_markers.write(marker, wanted.coordinator_epoch, partition)
                except KafkaError as error:
                    verdicts[partition] = error.code
                    continue
                if future is not None:
                    waiting.append((verdicts, partition, future))
        if waiting:
            return self._marked_later(call, found, waiting)
        return (yield from self._marked(call, found))

    async def _marked_later(
        self,
        call: Call,
        found: dict[int, Verdicts],
        waiting: list[tuple[Verdicts, TopicPartition, asyncio.Future[None]]],
    ) -> Any:
        for verdicts, partition, future in waiting:
            try:
                await future
            except KafkaError as error:
                verdicts[partition] = error.code
        return await call.in_slices(self._marked(call, found))

    def _marked(self, call: Call, found: dict[int, Verdicts]) -> Slices[Any]:
        markers = []
        for producer_id, verdicts in found.items():
            topics = yield from _by_topic(
                call,
                verdicts,
                ("WritableTxnMarkerTopicResult", "partitions"),
                ("WritableTxnMarkerPartitionResult", "error_code"),
            )
            markers.append(call.make("WritableTxnMarkerResult", producer_id=producer_id, topics=topics))
            yield
        return call.answer(markers=tuple(markers))


def _fenced_for(error: ErrorCode, version: int, since: int) -> ErrorCode:
    """PRODUCER_FENCED came with version `since` of the request; before, the same was called
    INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.producer_fenced and version < since:
        return ErrorCode.invalid_producer_epoch
    return error


def _partitions(topics: Any, field: str = "partitions") -> Slices[Partitions]:
    """Each once, in the order of the request."""
    partitions: dict[TopicPartition, None] = {}
    for topic in topics:
        for index in getattr(topic, field):
            partitions[TopicPartition(topic.name, index)] = None
            yield
        yield
    return partitions.keys()


def _by_topic(
    call: Call, verdicts: Verdicts, topic_fields: tuple[str, str], partition_fields: tuple[str, str]
) -> Slices[tuple[Any, ...]]:
    """Verdicts as the response has them. Each pair is a structure and its field for the partitions, or for
    the error."""
    topics: dict[str, list[Any]] = {}
    topic_structure, partitions_field = topic_fields
    structure, error_field = partition_fields
    for (topic, index), code in verdicts.items():
        partition = call.make(structure, partition_index=index, **{error_field: code})
        topics.setdefault(topic, []).append(partition)
        yield
    made = yield from collect(
        call.make(topic_structure, name=topic, **{partitions_field: tuple(partitions)})
        for topic, partitions in topics.items()
    )
    return made


def _results(call: Call, verdicts: Verdicts) -> Slices[tuple[Any, ...]]:
    return _by_topic(
        call,
        verdicts,
        ("AddPartitionsToTxnTopicResult", "results_by_partition"),
        ("AddPartitionsToTxnPartitionResult", "partition_error_code"),
    )
