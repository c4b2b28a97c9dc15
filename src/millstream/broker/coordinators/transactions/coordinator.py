"""The transaction coordinator: finds the state of a transactional id, and does what its state machine says.

Transactional ids are spread over the partitions of `__transaction_state`; this broker coordinates those of
the partitions it leads. The rules are in `transaction_state`. Here its records reach the log, answers are
held back until the log has committed them, decided transactions are driven to their end (`markers`), and the
clock is watched: transactions that are open for too long are aborted, ids that nobody uses any more are
forgotten.

After a start everything is rebuilt from the log. A transaction that was decided before the crash gets its
markers, one that was not stays open until its producer comes back, or until its time is over.

Every method answers at once if it can, and with a future otherwise (`Answer`): with one replica and no
`flush.messages` a write is committed when it returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from millstream.broker.coordinators.runtime import CoordinatorRuntime, coordinator_error, wall_ms
from millstream.broker.coordinators.transactions.guards import Guards
from millstream.broker.coordinators.transactions.markers import (
    OFFSETS_TOPIC,
    ClusterMarkers,
    Completion,
    LocalMarkers,
)
from millstream.broker.coordinators.transactions.producer_ids import NoIdsLeft, ProducerIds
from millstream.broker.coordinators.transactions.transaction_records import (
    FLEXIBLE,
    PLAIN,
    State,
    Transaction,
    encode_key,
    encode_value,
)
from millstream.broker.coordinators.transactions.transaction_shard import TransactionShard
from millstream.broker.coordinators.transactions.transaction_state import (
    NEVER_TIMES_OUT,
    PREPARED,
    WRONG_ID,
    Outcome,
    TransactionStateMachine,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.broker.coordinators.transactions.remote import Question, RemoteCoordinators
    from millstream.broker.partition import Partition
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.transactions")

TRANSACTION_TOPIC = "__transaction_state"
FEATURE = "transaction.version"
MAX_ID_BYTES = 0x7FFF  # bytes: what fits into a record's key
TOMBSTONES_PER_BATCH = 500  # so that no batch comes near the largest allowed
IDS_BETWEEN_TURNS = 1000  # ids looked at before the loop gets its turn again

Answer = Outcome | asyncio.Future[Outcome]
Verdicts = dict[TopicPartition, ErrorCode]


class TransactionCoordinator:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.ids = ProducerIds(broker)
        self.local_markers = LocalMarkers(broker)
        self.markers = ClusterMarkers(broker, self.local_markers)
        self.guards = Guards()
        self._others: RemoteCoordinators | None = None
        self.committed = self.aborted = self.timed_out = 0  # for the metrics
        settings = broker.settings
        self.runtime = CoordinatorRuntime(
            broker,
            TRANSACTION_TOPIC,
            lambda partition: TransactionShard(self, partition),
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(settings.integer("transaction.state.log.segment.bytes")),
                "min.insync.replicas": str(settings.integer("transaction.state.log.min.isr")),
                "unclean.leader.election.enable": "false",
            },
        )

    @property
    def server_version(self) -> int:
        """The finalized `transaction.version`: how this broker ends a transaction that it takes away."""
        return self.broker.image.features.get(FEATURE, 0)

    def close(self) -> None:
        """The broker stops: what is not complete is completed after the next start."""
        self.runtime.close()
        self.markers.close()
        if self._others is not None:
            self._others.close()

    # ------------------------------------------------------------------ requests

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        known: tuple[int, int] | None,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> Answer:
        """A producer asks for its identity; with a transactional id, everybody who had it before is
        fenced."""
        if transactional_id is None:
            return self._with_ids(lambda: Outcome(producer_id=self.ids.take(), epoch=0))
        if not transactional_id or len(transactional_id.encode()) > MAX_ID_BYTES:
            return Outcome(ErrorCode.invalid_request)
        if two_phase and not self.broker.settings.boolean("transaction.two.phase.commit.enable"):
            return Outcome(ErrorCode.transactional_id_authorization_failed)
        if keep_prepared:
            return Outcome(ErrorCode.unsupported_version)
        if two_phase:
            timeout_ms = NEVER_TIMES_OUT
        elif not 0 < timeout_ms <= self.broker.settings.integer("transaction.max.timeout.ms"):
            return Outcome(ErrorCode.invalid_transaction_timeout)

        def init() -> Answer:
            shard = self.runtime.shard(transactional_id)
            now_ms = wall_ms()
            machine = shard.find(transactional_id)
            if machine is None:
                machine = TransactionStateMachine.new(transactional_id, self.ids.take(), timeout_ms, now_ms)
                shard.state_machines[transactional_id] = machine
            return self._apply(
                shard, machine, machine.init(timeout_ms, known, now_ms, self.ids.take, self.server_version)
            )

        return self._with_ids(init)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> Answer:
        if not transactional_id:
            return Outcome(ErrorCode.invalid_request)
        try:
            shard = self.runtime.shard(transactional_id)
        except KafkaError as error:
            return Outcome(error.code)
        machine = shard.find(transactional_id)
        if machine is None:
            return WRONG_ID
        return self._apply(
            shard, machine, machine.add(producer_id, epoch, partitions, client_version, wall_ms())
        )

    def verify_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> Verdicts:
        """Whether these partitions are part of the transaction, per partition."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.invalid_request)
        try:
            shard = self.runtime.shard(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        machine = shard.find(transactional_id)
        if machine is None:
            return dict.fromkeys(partitions, WRONG_ID.error)
        return machine.verify(producer_id, epoch, partitions)

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, client_version: int
    ) -> Answer:
        """Commit or abort. Answered when the decision is committed; the markers follow."""
        if not transactional_id:
            return Outcome(ErrorCode.invalid_request)

        def end() -> Answer:
            shard = self.runtime.shard(transactional_id)
            machine = shard.find(transactional_id)
            if machine is None:
                return WRONG_ID
            outcome = machine.end(producer_id, epoch, commit, client_version, wall_ms(), self.ids.take)
            return self._apply(shard, machine, outcome)

        return self._with_ids(end)

    def describe(self, transactional_id: str) -> Transaction:
        """The committed state, of a decided transaction with the partitions that still wait for their marker.
        KafkaError if there is none, or not here."""
        if not transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        machine = self.runtime.shard(transactional_id).find(transactional_id)
        if machine is None:
            raise KafkaError(ErrorCode.transactional_id_not_found)
        if machine.current.state in PREPARED:
            return machine.current._replace(partitions=frozenset(machine.unmarked))
        return machine.current

    def all(self) -> Iterator[Transaction]:
        """Every transactional id coordinated here; KafkaError while some are still being loaded. Those of a
        log that cannot be read are not coordinated by anybody."""
        if self.runtime.is_loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        for shard in self.runtime.ready_shards():
            yield from shard.all()

    # ------------------------------------------------------------------ offsets in a transaction

    def verify_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, version: int
    ) -> ErrorCode | asyncio.Future[ErrorCode]:
        """May this producer commit offsets of the group now? From TxnOffsetCommit 5 on the request itself
        makes the group's partition part of the transaction; before, AddOffsetsToTxn must have done so."""
        index = self.broker.groups.runtime.partition_for(group_id)
        partition = self.broker.partitions.find(OFFSETS_TOPIC, index)
        if partition is not None:
            known = partition.log.producers.by_id.get(producer_id)
            if known is not None:
                if producer_epoch < known.epoch:
                    return ErrorCode.invalid_producer_epoch
                if known.txn_first_offset >= 0 and known.epoch == producer_epoch:
                    return ErrorCode.none
            if self.guards.is_verified(partition, producer_id, producer_epoch):
                return ErrorCode.none
        which = TopicPartition(OFFSETS_TOPIC, index)
        adds = version >= 5
        if not adds and not self.broker.settings.boolean("transaction.partition.verification.enable"):
            return ErrorCode.none
        if self.is_elsewhere(transactional_id):
            partitions = [] if partition is None else [partition]
            asked = self.ask_elsewhere(transactional_id, producer_id, producer_epoch, partitions, adds)
            return asyncio.get_running_loop().create_task(_remote_offsets_error(asked, which, version))
        if not adds:
            verdicts = self.verify_partitions(transactional_id, producer_id, producer_epoch, [which])
            return _offsets_error(verdicts[which], version)
        answer = self.add_partitions(transactional_id, producer_id, producer_epoch, [which], client_version=2)
        if isinstance(answer, Outcome):
            return _offsets_error(answer.error, version)
        return asyncio.get_running_loop().create_task(_offsets_error_later(answer, version))

    # ------------------------------------------------------------------ coordinators on other brokers

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Whether another broker coordinates this id, or nobody for now."""
        return not self.broker.alone and self._coordinator_of(transactional_id) != self.broker.node_id

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates this id; -1 for none."""
        image = self.broker.image
        topic = image.topic(TRANSACTION_TOPIC)
        if topic is None:
            return -1
        partition = image.partition(topic.topic_id, self.runtime.partition_for(transactional_id))
        return partition.leader if partition is not None and partition.leader in image.brokers else -1

    async def ask_elsewhere(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        adds: bool,
    ) -> Verdicts:
        """The coordinator's verdict on partitions that are led here; a yes is remembered (`guards`) until the
        transaction ends. COORDINATOR_NOT_AVAILABLE if it cannot be asked."""
        from millstream.broker.coordinators.transactions.remote import Question, RemoteCoordinators

        if self._others is None:
            self._others = RemoteCoordinators(self.broker)
        which = {TopicPartition(each.topic, each.index): each for each in partitions}
        question = Question(transactional_id, producer_id, producer_epoch, tuple(which), adds)
        settings = self.broker.settings
        pause_ms = settings.integer("add.partitions.to.txn.retry.backoff.ms")
        left_ms = settings.integer("add.partitions.to.txn.retry.backoff.max.ms") if adds else 0
        while True:
            # Each time anew: while the producer's last transaction is completed, its marker takes them down.
            up = {
                where: self.guards.put_up(partition, producer_id, producer_epoch)
                for where, partition in which.items()
            }
            found = await self._ask_once(question)
            if ErrorCode.concurrent_transactions not in found.values() or left_ms <= 0:
                break
            await asyncio.sleep(pause_ms / 1000)
            left_ms -= pause_ms
        verdicts: Verdicts = {}
        for where, partition in which.items():
            verdicts[where] = code = found.get(where, ErrorCode.coordinator_not_available)
            if code is ErrorCode.none:
                self.guards.verified(partition, producer_id, up[where])
            else:
                self.guards.take_down(partition, producer_id)
        return verdicts

    async def _ask_once(self, question: Question) -> Verdicts:
        assert self._others is not None
        leader = self._coordinator_of(question.transactional_id)
        if leader == self.broker.node_id:  # it has come here meanwhile: who asks again is answered here
            return dict.fromkeys(question.partitions, ErrorCode.coordinator_load_in_progress)
        try:
            if leader >= 0:
                return await self._others.send(leader, question)
        except KafkaError as error:
            logger.info("the coordinator of %r cannot be asked: %s", question.transactional_id, error)
        return {}

    # ------------------------------------------------------------------ doing it

    def _with_ids(self, work: Callable[[], Answer]) -> Answer:
        """Do `work`; if it needs a producer id and there is none, get some first."""
        try:
            return work()
        except KafkaError as error:
            return Outcome(error.code)
        except NoIdsLeft:
            return asyncio.get_running_loop().create_task(self._after_refill(work))

    async def _after_refill(self, work: Callable[[], Answer]) -> Outcome:
        while True:
            try:
                await self.ids.refill()
                answer = work()
                return answer if isinstance(answer, Outcome) else await answer
            except NoIdsLeft:
                continue
            except KafkaError as error:
                return Outcome(error.code)

    def _apply(self, shard: TransactionShard, machine: TransactionStateMachine, outcome: Outcome) -> Answer:
        """Write what is to be written; the outcome is the answer once that is committed."""
        if outcome.write is None:
            return outcome
        try:
            waiting = shard.append([self._row(outcome.write)])
        except KafkaError as error:
            machine.give_up()
            return Outcome(coordinator_error(error))
        if waiting is None:
            self._committed(shard, machine)
            return outcome
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def written(future: asyncio.Future[None]) -> None:
            error = future.exception()
            if error is None:
                self._committed(shard, machine)
            else:
                machine.give_up()
            if not answer.done():
                answer.set_result(outcome if error is None else Outcome(coordinator_error(error)))

        waiting.add_done_callback(written)
        return answer

    def _row(self, transaction: Transaction) -> tuple[bytes, bytes]:
        version = FLEXIBLE if self.server_version >= 1 else PLAIN
        return encode_key(transaction.transactional_id), encode_value(transaction, version)

    def _committed(self, shard: TransactionShard, machine: TransactionStateMachine) -> None:
        if machine.written() and shard.ready:
            self.complete(shard, machine)

    def complete(self, shard: TransactionShard, machine: TransactionStateMachine) -> None:
        """A decided transaction: markers, then its last record."""
        completion = Completion(shard, machine, self.markers, self._write_end)
        shard.completions[machine.current.transactional_id] = completion
        completion.run()

    def _write_end(self, completion: Completion, done: Transaction) -> None:
        machine, shard = completion.machine, completion.shard

        def written(error: BaseException | None) -> None:
            if error is None:
                machine.written()
                if done.state is State.COMPLETE_COMMIT:
                    self.committed += 1
                else:
                    self.aborted += 1
                if shard.completions.get(done.transactional_id) is completion:
                    del shard.completions[done.transactional_id]
                return
            machine.give_up()
            logger.warning("%s: %r is not complete yet: %s", shard.partition, done.transactional_id, error)
            completion.retry()

        try:
            waiting = shard.append([self._row(done)])
        except KafkaError as error:
            written(error)
            return
        if waiting is None:
            written(None)
        else:
            waiting.add_done_callback(lambda future: written(future.exception()))

    # ------------------------------------------------------------------ the clock

    async def abort_timed_out(self) -> None:
        """Transactions that are open for longer than their producers asked for."""
        seen = 0
        for shard in self.runtime.ready_shards():
            for machine in list(shard.state_machines.values()):
                seen += 1
                if seen % IDS_BETWEEN_TURNS == 0:
                    await asyncio.sleep(0)
                try:
                    self._abort_if_late(shard, machine)
                except NoIdsLeft:
                    await self.ids.refill()
                    self._abort_if_late(shard, machine)

    def _abort_if_late(self, shard: TransactionShard, machine: TransactionStateMachine) -> None:
        if not shard.ready:
            return
        outcome = machine.time_out(wall_ms(), self.ids.take, self.server_version)
        if outcome is not None:
            self.timed_out += 1
            current = machine.current
            logger.info(
                "%s: transaction of %r is open for more than %d ms, aborting it",
                shard.partition,
                current.transactional_id,
                current.timeout_ms,
            )
            self._apply(shard, machine, outcome)

    async def forget_expired(self) -> None:
        """Transactional ids that nobody has used for `transactional.id.expiration.ms`."""
        before_ms = wall_ms() - self.broker.settings.integer("transactional.id.expiration.ms")
        for shard in self.runtime.ready_shards():
            old = [each.transactional_id for each in shard.all() if each.updated_ms <= before_ms]
            for start in range(0, len(old), TOMBSTONES_PER_BATCH):
                self._forget(shard, old[start : start + TOMBSTONES_PER_BATCH], before_ms)
                await asyncio.sleep(0)

    def _forget(self, shard: TransactionShard, transactional_ids: list[str], before_ms: int) -> None:
        if not shard.ready:
            return
        state_machines = [machine for machine in map(shard.find, transactional_ids) if machine is not None]
        gone = [machine for machine in state_machines if machine.expire(before_ms)]
        if not gone:
            return

        def written(error: BaseException | None) -> None:
            for machine in gone:
                if error is None:
                    shard.state_machines.pop(machine.current.transactional_id, None)
                machine.give_up()

        try:
            waiting = shard.append([(encode_key(machine.current.transactional_id), None) for machine in gone])
        except KafkaError as error:
            logger.warning("%s: %d idle ids stay for now: %s", shard.partition, len(gone), error)
            written(error)
            return
        if waiting is None:
            written(None)
        else:
            waiting.add_done_callback(lambda future: written(future.exception()))


def _offsets_error(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error is ErrorCode.transaction_abortable and version < 4:
        return ErrorCode.invalid_txn_state
    return error


async def _remote_offsets_error(asked: Awaitable[Verdicts], which: TopicPartition, version: int) -> ErrorCode:
    verdicts = await asked
    return _offsets_error(verdicts.get(which, ErrorCode.not_coordinator), version)


async def _offsets_error_later(answer: asyncio.Future[Outcome], version: int) -> ErrorCode:
    return _offsets_error((await answer).error, version)
