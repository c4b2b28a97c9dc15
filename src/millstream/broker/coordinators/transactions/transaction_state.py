"""The rules of transactions: one state machine per transactional id, without clock, log or sockets.

Events come in (requests, time passed, a write is committed, a marker is written), and what to do comes out:
what to write to the transaction log, what to answer once it is committed, where markers must go. Nothing is
believed before it is committed: a transition is `pending` until `written` or `give_up`, and requests
meanwhile are answered CONCURRENT_TRANSACTIONS.

    EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT
        init               -> EMPTY            epoch + 1, or a new producer id with epoch 0 at the last epoch
        add                -> ONGOING          the time of the transaction begins
        end (abort, v2)    -> PREPARE_ABORT    an abort without a transaction only bumps the epoch
        expire             -> DEAD             a tombstone, then forgotten
    ONGOING
        add                -> ONGOING
        end                -> PREPARE_COMMIT | PREPARE_ABORT
        init, time_out     -> PREPARE_ABORT    with a higher epoch, which fences the producer that began it
    PREPARE_COMMIT, PREPARE_ABORT              decided: markers are on their way, nothing can stop it
        all marked         -> COMPLETE_COMMIT | COMPLETE_ABORT

PREPARE_EPOCH_FENCE is a name of Kafka's for the moment between fencing and PREPARE_ABORT. It is one step
here, and the state is never in the log.

Two protocols live side by side. In version 1 (EndTxn up to 4) the epoch changes only at `init` and when a
transaction is taken away from its producer. In version 2 (`transaction.version=2`, EndTxn 5) every end bumps
the epoch, so that a delayed request of one transaction can never be taken for one of the next; the answer to
the end tells the new epoch. Markers carry the bumped epoch. When epochs are used up, the next producer id is
chosen at the end, and comes with epoch 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from millstream.broker.coordinators.transactions.transaction_records import (
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    State,
    Transaction,
)
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition

MAX_EPOCH = 0x7FFF
LAST_EPOCH = MAX_EPOCH - 1  # the last one that a client sees: there is always one more to fence it with
NEVER_TIMES_OUT = 0x7FFFFFFF  # the timeout of a transaction that a two-phase commit of the client's ends

IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
_COMPLETED = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}
_NOTHING: frozenset[TopicPartition] = frozenset()


class Outcome(NamedTuple):
    """What an event leads to: `write` this and then answer, or, where there is nothing to write, answer at
    once."""

    error: ErrorCode = ErrorCode.none
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    write: Transaction | None = None


class Marker(NamedTuple):
    """How a transaction ends, for the partitions it wrote to."""

    producer_id: int
    epoch: int
    commit: bool
    version: int  # transaction version: from 2 on the epoch is higher than that of the records


OK = Outcome()
CONCURRENT = Outcome(ErrorCode.concurrent_transactions)
FENCED = Outcome(ErrorCode.producer_fenced)
WRONG_ID = Outcome(ErrorCode.invalid_producer_id_mapping)
WRONG_STATE = Outcome(ErrorCode.invalid_txn_state)


def exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH


class TransactionStateMachine:
    """One transactional id."""

    __slots__ = ("current", "pending", "unmarked")

    def __init__(self, current: Transaction) -> None:
        self.current = current  # as committed
        self.pending: Transaction | None = None  # being written
        self.unmarked = set(current.partitions) if current.state in PREPARED else set()

    @classmethod
    def new(
        cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
    ) -> TransactionStateMachine:
        """A transactional id nobody has used before: nothing is written until its first `init`."""
        return cls(
            Transaction(transactional_id, producer_id, NO_EPOCH, timeout_ms, State.EMPTY, _NOTHING, now_ms)
        )

    @property
    def is_new(self) -> bool:
        return self.current.epoch == NO_EPOCH

    # ------------------------------------------------------------------ writes

    def _to(self, changed: Transaction, producer_id: int = NO_ID, epoch: int = NO_EPOCH) -> Outcome:
        """Begin a transition. The record also names the producer id from before it."""
        self.pending = changed._replace(previous_id=self.current.producer_id)
        return Outcome(ErrorCode.none, producer_id, epoch, self.pending)

    def written(self) -> bool:
        """The pending transition is committed. True if markers are to be sent now (see `marker`,
        `unmarked`)."""
        assert self.pending is not None
        self.current, self.pending = self.pending, None
        if self.current.state in PREPARED:
            self.unmarked = set(self.current.partitions)
            return True
        return False

    def give_up(self) -> None:
        """The pending transition could not be written: everything is as before."""
        self.pending = None

    # ------------------------------------------------------------------ InitProducerId

    def init(
        self,
        timeout_ms: int,
        known: tuple[int, int] | None,
        now_ms: int,
        new_id: Callable[[], int],
        server_version: int,
    ) -> Outcome:
        """A producer starts, or (with the id and epoch it knows) goes on after an error."""
        current = self.current
        if self.pending is not None or current.state in PREPARED:
            return CONCURRENT
        if known is not None and not self._may_go_on(known):
            return FENCED
        if current.state is State.ONGOING:
            return self._take_away(now_ms, new_id, server_version)._replace(
                error=ErrorCode.concurrent_transactions
            )
        fresh = current._replace(
            state=State.EMPTY,
            timeout_ms=timeout_ms,
            partitions=_NOTHING,
            started_ms=NO_TIME,
            updated_ms=now_ms,
        )
        if exhausted(current.epoch) and (known is None or known[1] == current.epoch):
            last = NO_EPOCH if known is None else current.epoch
            fresh = fresh._replace(producer_id=new_id(), epoch=0, last_epoch=last)
        elif known is None:
            fresh = fresh._replace(epoch=current.epoch + 1, last_epoch=NO_EPOCH)
        elif self.is_new or known[1] == current.epoch:
            fresh = fresh._replace(epoch=current.epoch + 1, last_epoch=current.epoch)
        elif known[1] != current.last_epoch:
            return FENCED
        # else: the epoch it knows was bumped by an earlier attempt of the same request; no need to do it
        # again.
        return self._to(fresh, fresh.producer_id, fresh.epoch)

    def _may_go_on(self, known: tuple[int, int]) -> bool:
        """Whether the producer that knows this id and epoch can be the rightful one; the epoch is judged
        later."""
        producer_id, epoch = known
        current = self.current
        return (
            self.is_new
            or producer_id == current.producer_id
            or (producer_id == current.previous_id and exhausted(epoch))
        )

    # ------------------------------------------------------------------ AddPartitionsToTxn, AddOffsetsToTxn

    def add(
        self,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Outcome:
        """These partitions become part of the transaction, which begins with the first of them."""
        current = self.current
        if self.pending is not None or current.state in PREPARED:
            return CONCURRENT
        if producer_id != current.producer_id:
            return WRONG_ID
        if epoch != current.epoch:
            return FENCED
        grown = current.partitions.union(partitions)
        if current.state is State.ONGOING and len(grown) == len(current.partitions):
            return OK
        return self._to(
            current._replace(
                state=State.ONGOING,
                partitions=grown,
                started_ms=current.started_ms if current.state is State.ONGOING else now_ms,
                updated_ms=now_ms,
                client_version=client_version,
            )
        )

    def verify(
        self, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Which of these are part of the transaction. What is pending does not count either way: it is not
        committed."""
        current = self.current
        error = None
        if producer_id != current.producer_id:
            error = ErrorCode.invalid_producer_id_mapping
        elif epoch != current.epoch:
            error = ErrorCode.producer_fenced
        elif current.state in PREPARED or (self.pending is not None and self.pending.state in PREPARED):
            error = ErrorCode.concurrent_transactions
        if error is not None:
            return dict.fromkeys(partitions, error)
        return {
            partition: ErrorCode.none if partition in current.partitions else ErrorCode.transaction_abortable
            for partition in partitions
        }

    # ------------------------------------------------------------------ EndTxn

    def end(
        self,
        producer_id: int,
        epoch: int,
        commit: bool,
        client_version: int,
        now_ms: int,
        new_id: Callable[[], int],
    ) -> Outcome:
        if client_version >= 2:
            return self._end_v2(producer_id, epoch, commit, client_version, now_ms, new_id)
        return self._end_v1(producer_id, epoch, commit, now_ms)

    def _end_v1(self, producer_id: int, epoch: int, commit: bool, now_ms: int) -> Outcome:
        """The epoch stays, so a repeated end is recognised by its result alone."""
        current = self.current
        if producer_id != current.producer_id:
            return WRONG_ID
        if epoch != current.epoch:
            return FENCED
        if self.pending is not None or current.state in PREPARED:
            return CONCURRENT
        if current.state is State.ONGOING:
            return self._prepare(commit, 0, current.epoch, current.last_epoch, NO_ID, now_ms)
        if current.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
            return OK
        return WRONG_STATE

    def _end_v2(
        self,
        producer_id: int,
        epoch: int,
        commit: bool,
        client_version: int,
        now_ms: int,
        new_id: Callable[[], int],
    ) -> Outcome:
        """The epoch tells a repeated end (one epoch behind) from the next one. While one is under way nobody
        is judged: the producer may come with an identity that counts only when all is done."""
        current = self.current
        if self.pending is not None or current.state in PREPARED:
            return CONCURRENT
        # The last epoch is for fencing, and nobody's: who is behind it has not ended anything itself.
        behind = producer_id == current.producer_id and epoch == current.epoch - 1 < LAST_EPOCH
        # The id has changed since.
        rotated = (producer_id, epoch, current.epoch) == (
            current.previous_id,
            LAST_EPOCH,
            0,
        )
        repeated = (behind or rotated) and current.state in _COMPLETED.values()
        if (producer_id, epoch) != (current.producer_id, current.epoch) and not repeated:
            return FENCED if producer_id == current.producer_id or rotated else WRONG_ID
        if current.state is State.ONGOING:
            return self._prepare_v2(commit, client_version, now_ms, new_id)
        if repeated:
            same = current.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
            return Outcome(ErrorCode.none, current.producer_id, current.epoch) if same else WRONG_STATE
        return WRONG_STATE if commit else self._prepare_v2(False, client_version, now_ms, new_id)

    def _prepare_v2(
        self, commit: bool, client_version: int, now_ms: int, new_id: Callable[[], int]
    ) -> Outcome:
        current = self.current
        next_id = new_id() if exhausted(current.epoch) else NO_ID
        return self._prepare(commit, client_version, self._next_epoch(), current.epoch, next_id, now_ms)

    def _next_epoch(self) -> int:
        """No producer has the last one, which is for fencing."""
        return min(self.current.epoch + 1, MAX_EPOCH)

    def _prepare(
        self, commit: bool, client_version: int, epoch: int, last_epoch: int, next_id: int, now_ms: int
    ) -> Outcome:
        """The decision. Answered with the identity that the producer has when all is done."""
        current = self.current
        prepared = current._replace(
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            epoch=epoch,
            last_epoch=last_epoch,
            next_id=next_id,
            started_ms=current.started_ms if current.state is State.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )
        if client_version < 2:
            return self._to(prepared)
        return self._to(prepared, *((next_id, 0) if next_id != NO_ID else (current.producer_id, epoch)))

    # ------------------------------------------------------------------ taken away from the producer

    def _take_away(self, now_ms: int, new_id: Callable[[], int], server_version: int) -> Outcome:
        """Abort an open transaction with a higher epoch than its producer has. That epoch is given to
        nobody."""
        if server_version >= 2:
            aborted = self._prepare_v2(False, server_version, now_ms, new_id)
        else:
            aborted = self._prepare(False, 0, self._next_epoch(), NO_EPOCH, NO_ID, now_ms)
        return Outcome(write=aborted.write)

    def time_out(self, now_ms: int, new_id: Callable[[], int], server_version: int) -> Outcome | None:
        """Abort if the transaction has been open for longer than its producer asked for."""
        current = self.current
        if (
            self.pending is None
            and current.state is State.ONGOING
            and current.timeout_ms != NEVER_TIMES_OUT
            and current.started_ms + current.timeout_ms < now_ms
        ):
            return self._take_away(now_ms, new_id, server_version)
        return None

    def expire(self, before_ms: int) -> bool:
        """Whether the id has been idle since `before_ms`; it is then on its way out, and `written` by a
        tombstone."""
        current = self.current
        if self.pending is not None or current.state not in IDLE or current.updated_ms > before_ms:
            return False
        self.pending = current._replace(state=State.DEAD, partitions=_NOTHING)
        return True

    # ------------------------------------------------------------------ markers

    def marker(self) -> Marker:
        current = self.current
        assert current.state in PREPARED
        return Marker(
            current.producer_id, current.epoch, current.state is State.PREPARE_COMMIT, current.client_version
        )

    def marked(self, partition: TopicPartition) -> None:
        """The marker is committed in that partition (or the partition is gone)."""
        self.unmarked.discard(partition)

    def complete(self, now_ms: int) -> Outcome | None:
        """Once every partition has its marker: what to write. A used up producer id gives way to the next
        one."""
        current = self.current
        if self.unmarked or self.pending is not None or current.state not in PREPARED:
            return None
        done = current._replace(
            state=_COMPLETED[current.state], partitions=_NOTHING, updated_ms=now_ms, next_id=NO_ID
        )
        if current.client_version >= 2 and current.next_id != NO_ID:
            done = done._replace(producer_id=current.next_id, epoch=0)
        return self._to(done)
