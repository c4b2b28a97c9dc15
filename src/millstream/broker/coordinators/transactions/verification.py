"""Which transactional batches a produce request may write (KIP-890).

A transactional batch may begin its producer's transaction in a partition only if the coordinator knows that
the partition is part of it: otherwise nobody would ever end it there, and readers of committed records would
wait forever. From Produce 12 on the request itself makes the partition part of the transaction; before,
AddPartitionsToTxn must have done so, and it is only verified. Once the producer has an open transaction in
the partition, later batches need no question.

The coordinator is asked once per request, for all its partitions. If that is this broker, the answer is there
at once unless a write has to wait, or the producer's last transaction is not quite complete; then the request
waits too and is judged again from the beginning, so that there is never a gap between the verdict and the
append in which the transaction could end. Another broker's answer always has to be waited for: a yes counts
as long as no marker has come meanwhile (`guards`).
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from millstream.broker.coordinators.transactions.transaction_state import CONCURRENT, Outcome
from millstream.wire.batch import HEADER_SIZE, TRANSACTIONAL
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.produce import ProduceRequest
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.coordinators.transactions.coordinator import TransactionCoordinator, Verdicts
    from millstream.broker.partition import Partition

FIRST_THAT_ADDS = 12  # version of Produce
FIRST_ABORTABLE = 11  # knows TRANSACTION_ABORTABLE
MAX_REMEMBERED = 10_000  # refused beginnings

_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_AT = 43
_NOT_NOW = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)

Refused = dict["Partition", KafkaError]
Table = dict[bytes, dict[int, "Partition"]]


class TransactionVerifier:
    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        # A first batch that was refused for now must not be overtaken by the one behind it, which an unknown
        # producer could begin with: (partition, producer id) -> (epoch, lowest sequence refused).
        self._refused_first: dict[tuple[Partition, int], tuple[int, int]] = {}

    def verify(
        self,
        request: ProduceRequest,
        table: Table,
        version: int,
        verdict: ErrorCode | Verdicts | None = None,
    ) -> Refused | asyncio.Future[Outcome | Verdicts] | None:
        """Which partitions of the request may not be written to, None for all may. A future: ask again when
        it is done, with `verdict_of` its result."""
        beginning: dict[Partition, tuple[int, int, int]] = {}
        refused: Refused = {}
        identities = set()
        touched = []
        guards = self._coordinator.guards
        verified: dict[Partition, tuple[int, int, int]] = {}
        for topic, batches in request.topics:
            hosted = table.get(topic)
            for index, records in batches:
                partition = hosted.get(index) if hosted is not None else None
                if partition is None or not partition.open_to_clients:
                    continue
                touched.append(partition)
                if records is None or len(records) < HEADER_SIZE or not records[22] & TRANSACTIONAL:
                    continue
                producer = _PRODUCER.unpack_from(records, _PRODUCER_AT)
                identities.add(producer[:2])
                begins = self._begins(partition, producer)
                if isinstance(begins, KafkaError):
                    refused[partition] = begins
                elif begins:
                    if guards.is_verified(partition, producer[0], producer[1]):
                        verified[partition] = producer
                    else:
                        beginning[partition] = producer
        if len(identities) > 1:
            text = "transactional batches of several producers in one request"
            return dict.fromkeys(touched, KafkaError(ErrorCode.invalid_producer_id_mapping, text))
        if beginning:
            assert request.transactional_id is not None
            if verdict is None:
                transactional_id = request.transactional_id.decode()
                verdicts = self._ask_coordinator(transactional_id, identities.pop(), beginning, version)
                if isinstance(verdicts, asyncio.Future):
                    return verdicts
            elif isinstance(verdict, dict):
                # Where the answer was yes, a marker has come after it.
                verdicts = {
                    partition: ErrorCode.invalid_txn_state if code is ErrorCode.none else code
                    for partition, code in verdict.items()
                }
                for partition in beginning:
                    which = TopicPartition(partition.topic, partition.index)
                    verdicts.setdefault(which, ErrorCode.coordinator_not_available)
            else:
                verdicts = {
                    TopicPartition(partition.topic, partition.index): verdict for partition in beginning
                }
            self._apply_verdicts(verdicts, beginning, version, refused)
        if verified:
            self._apply_verdicts({}, verified, version, refused)
        return refused or None

    def _begins(self, partition: Partition, producer: tuple[int, int, int]) -> KafkaError | bool:
        """Whether this batch begins the producer's transaction here, or only goes on with it."""
        producer_id, epoch, _ = producer
        known = partition.log.producers.by_id.get(producer_id)
        if known is not None:
            if epoch < known.epoch:
                return KafkaError(
                    ErrorCode.invalid_producer_epoch,
                    f"epoch {epoch} of producer {producer_id} is older than {known.epoch} in {partition}",
                )
            if known.txn_first_offset >= 0 and known.epoch == epoch:
                return False
        return True

    def _ask_coordinator(
        self,
        transactional_id: str,
        identity: tuple[int, int],
        beginning: dict[Partition, tuple[int, int, int]],
        version: int,
    ) -> Verdicts | asyncio.Future[Outcome | Verdicts]:
        coordinator = self._coordinator
        partitions = [TopicPartition(partition.topic, partition.index) for partition in beginning]
        adds = version >= FIRST_THAT_ADDS
        if not adds and not coordinator.broker.settings.boolean("transaction.partition.verification.enable"):
            return {}
        if coordinator.is_elsewhere(transactional_id):
            asking = coordinator.ask_elsewhere(transactional_id, *identity, list(beginning), adds)
            return asyncio.get_running_loop().create_task(asking)
        if not adds:
            return coordinator.verify_partitions(transactional_id, *identity, partitions)
        answer = coordinator.add_partitions(transactional_id, *identity, partitions, client_version=2)
        if not isinstance(answer, Outcome):
            return answer  # type: ignore[return-value]  # a future of one of the two
        if answer.error is ErrorCode.concurrent_transactions:
            retry = self._retry(transactional_id, identity, partitions)
            return asyncio.get_running_loop().create_task(retry)
        return dict.fromkeys(partitions, answer.error)

    async def _retry(
        self, transactional_id: str, identity: tuple[int, int], partitions: list[TopicPartition]
    ) -> Outcome:
        """The producer's last transaction is being completed, which takes a moment: less than the producer
        would wait before it sends all this again."""
        coordinator = self._coordinator
        settings = coordinator.broker.settings
        pause_ms = settings.integer("add.partitions.to.txn.retry.backoff.ms")
        left_ms = settings.integer("add.partitions.to.txn.retry.backoff.max.ms")
        outcome = CONCURRENT
        while outcome.error is ErrorCode.concurrent_transactions and left_ms > 0:
            await asyncio.sleep(pause_ms / 1000)
            left_ms -= pause_ms
            answer = coordinator.add_partitions(transactional_id, *identity, partitions, client_version=2)
            outcome = answer if isinstance(answer, Outcome) else await answer
        return outcome

    def _apply_verdicts(
        self,
        verdicts: Verdicts,
        beginning: dict[Partition, tuple[int, int, int]],
        version: int,
        refused: Refused,
    ) -> None:
        for partition, (producer_id, epoch, sequence) in beginning.items():
            code = verdicts.get(TopicPartition(partition.topic, partition.index), ErrorCode.none)
            first = (partition, producer_id)
            if code is ErrorCode.none:
                problem = self._out_of_order(partition, (producer_id, epoch, sequence), version)
                if problem is not None:
                    refused[partition] = problem
                elif self._refused_first:
                    self._refused_first.pop(first, None)
                continue
            refused[partition] = _for_producer(code, version)
            before = self._refused_first.pop(first, None)
            lowest = sequence if before is None or before[0] != epoch else min(sequence, before[1])
            self._refused_first[first] = (epoch, lowest)
            if len(self._refused_first) > MAX_REMEMBERED:
                del self._refused_first[next(iter(self._refused_first))]

    def _out_of_order(
        self, partition: Partition, producer: tuple[int, int, int], version: int
    ) -> KafkaError | None:
        """What the partition cannot see by itself of a producer that it does not know."""
        producer_id, epoch, sequence = producer
        if producer_id in partition.log.producers.by_id:
            return None
        where = f"producer {producer_id} begins in {partition} with sequence {sequence}"
        if version >= FIRST_THAT_ADDS and sequence:
            return KafkaError(ErrorCode.out_of_order_sequence_number, f"{where}, expected 0")
        before = self._refused_first.get((partition, producer_id)) if self._refused_first else None
        if before is not None and before[0] == epoch and sequence > before[1]:
            return KafkaError(ErrorCode.out_of_order_sequence_number, f"{where}, but {before[1]} was refused")
        return None


def verdict_of(judged: Outcome | Verdicts) -> ErrorCode | Verdicts | None:
    """What `verify` is told when a future of its own is done."""
    return judged if isinstance(judged, dict) else judged.error or None


def _for_producer(code: ErrorCode, version: int) -> KafkaError:
    """The coordinator's verdict as an error that a producer of this version knows."""
    if code is ErrorCode.producer_fenced:
        return KafkaError(ErrorCode.invalid_producer_epoch)
    if code in _NOT_NOW or (code is ErrorCode.concurrent_transactions and version < FIRST_THAT_ADDS):
        return KafkaError(
            ErrorCode.not_enough_replicas,  # makes every client try again, without asking for metadata first
            f"whether the partition belongs to the transaction cannot be verified now: {code.name.upper()}",
        )
    if code is ErrorCode.invalid_txn_state or (
        code is ErrorCode.transaction_abortable and version < FIRST_ABORTABLE
    ):
        return KafkaError(ErrorCode.invalid_txn_state, "Partition was not added to the transaction")
    return KafkaError(code)
