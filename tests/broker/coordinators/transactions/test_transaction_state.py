"""The rules of transactions, one test for each transition. No clock, no log, no sockets."""

import itertools

import pytest

from millstream.broker.coordinators.transactions.transaction_records import State, TopicPartition
from millstream.broker.coordinators.transactions.transaction_state import (
    LAST_EPOCH,
    MAX_EPOCH,
    Marker,
    Outcome,
    TransactionStateMachine,
)
from millstream.wire.errors import ErrorCode

A: TopicPartition = ("a", 0)
B: TopicPartition = ("b", 1)
NOW = 1_000_000
TIMEOUT = 60_000


class Producer:
    """A machine with its surroundings: ids 100, 101, ... and a log that commits at once."""

    def __init__(self, epoch: int | None = None, server_version: int = 2) -> None:
        self.ids = itertools.count(100)
        self.machine = TransactionStateMachine.new("id", self.new_id(), TIMEOUT, NOW)
        self.server_version = server_version
        self.log: list[State] = []
        self.init()
        if epoch is not None:
            self.machine.current = self.machine.current._replace(epoch=epoch)

    def new_id(self) -> int:
        return next(self.ids)

    @property
    def now(self) -> tuple[int, int]:
        return self.machine.current.producer_id, self.machine.current.epoch

    @property
    def state(self) -> State:
        return self.machine.current.state

    def commit(self, outcome: Outcome, markers: bool = True) -> Outcome:
        """Write what the outcome asks for, and everything that follows from it."""
        if outcome.write is not None:
            self.log.append(outcome.write.state)
            if self.machine.written() and markers:
                self.finish()
        return outcome

    def finish(self, now: int = NOW) -> None:
        for partition in list(self.machine.unmarked):
            self.machine.marked(partition)
        done = self.machine.complete(now)
        assert done is not None
        self.commit(done)

    def init(self, known: tuple[int, int] | None = None, **options: bool) -> Outcome:
        return self.commit(
            self.machine.init(TIMEOUT, known, NOW, self.new_id, self.server_version), **options
        )

    def add(
        self, *partitions: TopicPartition, by: tuple[int, int] | None = None, version: int = 2
    ) -> Outcome:
        return self.commit(self.machine.add(*(by or self.now), partitions, version, NOW))

    def end(
        self, commit: bool, by: tuple[int, int] | None = None, version: int = 2, markers: bool = True
    ) -> Outcome:
        return self.commit(
            self.machine.end(*(by or self.now), commit, version, NOW, self.new_id), markers=markers
        )


def error(outcome: Outcome) -> ErrorCode:
    if outcome.error is not ErrorCode.none and outcome.error is not ErrorCode.concurrent_transactions:
        assert outcome.write is None
    return outcome.error


# ------------------------------------------------------------------ init


def test_a_new_id_begins_with_epoch_0() -> None:
    producer = Producer()
    assert producer.now == (100, 0)
    assert producer.state is State.EMPTY
    assert producer.machine.current.previous_id == 100


def test_each_init_bumps_the_epoch() -> None:
    producer = Producer()
    outcome = producer.init()
    assert (outcome.producer_id, outcome.epoch) == producer.now == (100, 1)


def test_a_producer_goes_on_after_an_error_with_a_new_epoch() -> None:
    producer = Producer()
    assert producer.init(known=(100, 0)).epoch == 1
    assert producer.init(known=(100, 0)).epoch == 1, "the same request again"
    assert producer.init(known=(100, 1)).epoch == 2


def test_after_another_producer_came_the_old_one_is_fenced() -> None:
    producer = Producer()
    producer.init(known=(100, 0))
    producer.init()
    for epoch in (0, 1, 3):
        assert error(producer.init(known=(100, epoch))) is ErrorCode.producer_fenced
    assert error(producer.init(known=(55, 2))) is ErrorCode.producer_fenced


def test_a_forgotten_id_is_begun_anew_whatever_the_producer_knows() -> None:
    machine = TransactionStateMachine.new("id", 7, TIMEOUT, NOW)
    outcome = machine.init(TIMEOUT, (3, 9), NOW, lambda: 8, 2)
    assert (outcome.producer_id, outcome.epoch) == (7, 0)


def test_used_up_epochs_lead_to_a_new_producer_id() -> None:
    producer = Producer(epoch=LAST_EPOCH)
    outcome = producer.init()
    assert (outcome.producer_id, outcome.epoch) == producer.now == (101, 0)
    assert producer.machine.current.previous_id == 100
    assert error(producer.init(known=(100, LAST_EPOCH))) is ErrorCode.producer_fenced


def test_the_same_with_a_known_epoch_can_be_repeated() -> None:
    producer = Producer(epoch=LAST_EPOCH)
    for _ in range(2):
        outcome = producer.init(known=(100, LAST_EPOCH))
        assert (outcome.producer_id, outcome.epoch) == (101, 0)
    assert producer.init(known=(101, 0)).epoch == 1


def test_with_epochs_used_up_a_wrong_one_is_still_only_fenced() -> None:
    producer = Producer(epoch=LAST_EPOCH)
    assert error(producer.init(known=(100, 5))) is ErrorCode.producer_fenced


@pytest.mark.parametrize("server_version", [0, 1, 2])
def test_init_takes_an_open_transaction_away(server_version: int) -> None:
    producer = Producer(server_version=server_version)
    producer.add(A)
    outcome = producer.init()
    assert outcome.error is ErrorCode.concurrent_transactions
    assert producer.log[-2:] == [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    assert producer.now == (100, 1)
    assert error(producer.add(A, by=(100, 0))) is ErrorCode.producer_fenced
    assert producer.init().epoch == 2


def test_a_producer_that_lost_its_own_transaction_goes_on_with_the_fencing_epoch() -> None:
    producer = Producer()
    producer.add(A)
    assert producer.init(known=(100, 0)).error is ErrorCode.concurrent_transactions
    assert producer.init(known=(100, 0)).epoch == 1
    old = Producer(server_version=0)
    old.add(A, version=0)
    old.init(known=(100, 0))
    assert error(old.init(known=(100, 0))) is ErrorCode.producer_fenced, "version 1 tells nobody that epoch"


@pytest.mark.parametrize("commit", [True, False])
def test_init_waits_for_a_transaction_that_is_decided(commit: bool) -> None:
    producer = Producer()
    producer.add(A)
    producer.end(commit, markers=False)
    for known in (None, (100, 0), (100, 1), (55, 0)):
        assert producer.machine.init(TIMEOUT, known, NOW, producer.new_id, 2) == Outcome(
            ErrorCode.concurrent_transactions
        )
    producer.finish()
    assert producer.init().epoch == 2


def test_init_sets_the_timeout() -> None:
    producer = Producer()
    producer.commit(producer.machine.init(5, None, NOW, producer.new_id, 2))
    assert producer.machine.current.timeout_ms == 5


# ------------------------------------------------------------------ add and verify


def test_the_first_partition_begins_the_transaction() -> None:
    producer = Producer()
    producer.add(A, version=0)
    current = producer.machine.current
    assert (current.state, current.partitions, current.started_ms, current.client_version) == (
        State.ONGOING,
        {A},
        NOW,
        0,
    )
    producer.machine.add(*producer.now, [B], 2, NOW + 5)
    producer.machine.written()
    current = producer.machine.current
    assert (current.partitions, current.started_ms, current.updated_ms, current.client_version) == (
        {A, B},
        NOW,
        NOW + 5,
        2,
    )


def test_nothing_is_written_for_a_partition_that_is_in_already() -> None:
    producer = Producer()
    producer.add(A, B)
    assert producer.machine.add(*producer.now, [B], 2, NOW) == Outcome()


def test_only_the_current_producer_adds() -> None:
    producer = Producer(epoch=3)
    assert error(producer.add(A, by=(99, 3))) is ErrorCode.invalid_producer_id_mapping
    assert error(producer.add(A, by=(100, 2))) is ErrorCode.producer_fenced
    assert error(producer.add(A, by=(100, 4))) is ErrorCode.producer_fenced
    assert producer.state is State.EMPTY


@pytest.mark.parametrize("commit", [True, False])
def test_nothing_is_added_while_the_last_transaction_is_ending(commit: bool) -> None:
    producer = Producer(epoch=LAST_EPOCH)
    producer.add(A)
    producer.end(commit, markers=False)
    for by in (producer.now, (100, LAST_EPOCH), (101, 0)):
        assert error(producer.add(B, by=by)) is ErrorCode.concurrent_transactions
    producer.finish()
    assert error(producer.add(B)) is ErrorCode.none
    assert producer.machine.current.partitions == {B}


def test_verify() -> None:
    producer = Producer(epoch=3)
    producer.add(A)
    verify = producer.machine.verify
    assert verify(100, 3, [A, B]) == {A: ErrorCode.none, B: ErrorCode.transaction_abortable}
    assert verify(100, 2, [A]) == {A: ErrorCode.producer_fenced}
    assert verify(99, 3, [A]) == {A: ErrorCode.invalid_producer_id_mapping}
    producer.end(True, version=0, markers=False)
    assert verify(100, 3, [A]) == {A: ErrorCode.concurrent_transactions}
    producer.finish()
    assert verify(100, 3, [A]) == {A: ErrorCode.transaction_abortable}


# ------------------------------------------------------------------ end, version 1


@pytest.mark.parametrize("commit", [True, False])
def test_v1_ends_with_the_same_epoch(commit: bool) -> None:
    producer = Producer(epoch=3)
    producer.add(A, B, version=0)
    outcome = producer.end(commit, version=0, markers=False)
    assert (outcome.producer_id, outcome.epoch) == (-1, -1)
    assert producer.machine.marker() == Marker(100, 3, commit, 0)
    assert producer.machine.unmarked == {A, B}
    for again in (commit, not commit):
        assert error(producer.end(again, version=0)) is ErrorCode.concurrent_transactions
    producer.machine.marked(A)
    assert producer.machine.complete(NOW) is None, "one marker is missing"
    producer.machine.marked(B)
    producer.finish(NOW + 3)
    current = producer.machine.current
    assert current.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert (current.partitions, current.updated_ms, current.started_ms, current.epoch) == (
        frozenset(),
        NOW + 3,
        NOW,
        3,
    )
    assert producer.end(commit, version=0) == Outcome(), "repeated"
    assert error(producer.end(not commit, version=0)) is ErrorCode.invalid_txn_state


def test_v1_there_must_be_a_transaction() -> None:
    producer = Producer()
    for commit in (True, False):
        assert error(producer.end(commit, version=0)) is ErrorCode.invalid_txn_state


def test_v1_only_the_current_producer_ends() -> None:
    producer = Producer(epoch=3)
    producer.add(A, version=0)
    assert error(producer.end(True, by=(100, 2), version=0)) is ErrorCode.producer_fenced
    assert error(producer.end(True, by=(100, 4), version=0)) is ErrorCode.producer_fenced
    assert error(producer.end(True, by=(99, 3), version=0)) is ErrorCode.invalid_producer_id_mapping


# ------------------------------------------------------------------ end, version 2


@pytest.mark.parametrize("commit", [True, False])
def test_v2_every_end_bumps_the_epoch(commit: bool) -> None:
    producer = Producer()
    producer.add(A)
    outcome = producer.end(commit, markers=False)
    assert (outcome.producer_id, outcome.epoch) == (100, 1)
    assert producer.machine.marker() == Marker(100, 1, commit, 2), "markers carry the new epoch"
    for by in ((100, 0), (100, 1), (100, 7), (55, 0)):
        assert error(producer.end(commit, by=by)) is ErrorCode.concurrent_transactions
        assert error(producer.end(not commit, by=by)) is ErrorCode.concurrent_transactions
    producer.finish()
    assert producer.now == (100, 1)


def test_v2_the_table_of_repeated_and_next_ends() -> None:
    """Rows: what was before; columns: abort repeated, abort now, commit repeated, commit now."""
    none, fenced, wrong = ErrorCode.none, ErrorCode.producer_fenced, ErrorCode.invalid_txn_state

    def empty() -> Producer:
        return Producer(epoch=1)

    def ended(commit: bool) -> Producer:
        producer = Producer()
        producer.add(A)
        producer.end(commit)
        return producer

    table = {
        "empty": (empty, fenced, none, fenced, wrong),
        "aborted": (lambda: ended(False), none, none, wrong, wrong),
        "committed": (lambda: ended(True), wrong, none, none, wrong),
    }
    for make, *expected in table.values():
        columns = [(False, 0), (False, 1), (True, 0), (True, 1)]
        for (commit, epoch), code in zip(columns, expected, strict=True):
            producer = make()
            assert producer.now == (100, 1)
            outcome = producer.end(commit, by=(100, epoch))
            assert error(outcome) is code, (make, commit, epoch)
            if code is none:
                bumped = 1 if epoch == 0 else 2
                assert (outcome.producer_id, outcome.epoch) == producer.now == (100, bumped)


def test_v2_a_delayed_end_never_ends_the_next_transaction() -> None:
    producer = Producer()
    producer.add(A)
    producer.end(True)
    producer.add(B)
    for commit in (True, False):
        assert error(producer.end(commit, by=(100, 0))) is ErrorCode.producer_fenced
    assert producer.state is State.ONGOING


def test_v2_used_up_epochs_lead_to_the_next_producer_id() -> None:
    producer = Producer(epoch=LAST_EPOCH)
    producer.add(A)
    outcome = producer.end(True, markers=False)
    assert (outcome.producer_id, outcome.epoch) == (101, 0)
    assert producer.machine.marker() == Marker(100, MAX_EPOCH, True, 2)
    for by in ((100, LAST_EPOCH), (101, 0)):
        assert error(producer.end(True, by=by)) is ErrorCode.concurrent_transactions
    producer.finish()
    assert producer.now == (101, 0)
    assert producer.machine.current.previous_id == 100
    repeated = producer.end(True, by=(100, LAST_EPOCH))
    assert (repeated.error, repeated.producer_id, repeated.epoch) == (ErrorCode.none, 101, 0)
    assert error(producer.end(False, by=(100, LAST_EPOCH))) is ErrorCode.invalid_txn_state
    assert error(producer.end(True, by=(100, 5))) is ErrorCode.invalid_producer_id_mapping
    assert producer.init(known=(100, LAST_EPOCH)).epoch == 0, "a producer that missed the answer asks again"


def test_v2_an_end_from_before_init_changed_the_producer_id_is_fenced() -> None:
    producer = Producer(epoch=LAST_EPOCH)
    producer.init()
    assert producer.now == (101, 0)
    for commit in (True, False):
        assert error(producer.end(commit, by=(100, LAST_EPOCH))) is ErrorCode.producer_fenced
        assert error(producer.end(commit, by=(100, 5))) is ErrorCode.invalid_producer_id_mapping


def test_v2_who_was_fenced_with_the_very_last_epoch_is_not_told_it() -> None:
    """Version 1 fences with it. It would end two transactions, and markers could not be told apart."""
    producer = Producer(epoch=LAST_EPOCH, server_version=1)
    producer.add(A)
    producer.init()
    assert producer.end(False, by=(100, LAST_EPOCH)).error is ErrorCode.producer_fenced
    producer.init()
    assert producer.now == (101, 0)


@pytest.mark.parametrize("server_version", [1, 2])
def test_the_very_last_epoch_can_still_be_taken_away(server_version: int) -> None:
    producer = Producer(epoch=MAX_EPOCH, server_version=server_version)
    producer.add(A)
    assert producer.init().error is ErrorCode.concurrent_transactions
    assert producer.log[-2:] == [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    producer.init()
    assert producer.now == ((101, 0) if server_version < 2 else (101, 1))


def test_v2_taking_away_with_epochs_used_up() -> None:
    producer = Producer(epoch=LAST_EPOCH)
    producer.add(A)
    producer.init()
    assert producer.now == (101, 0)
    assert producer.init().epoch == 1


def test_v2_an_abort_without_a_transaction_writes_no_markers() -> None:
    producer = Producer()
    producer.end(False, markers=False)
    assert producer.state is State.PREPARE_ABORT
    assert not producer.machine.unmarked
    producer.finish()
    assert producer.machine.current.started_ms == NOW


# ------------------------------------------------------------------ nothing counts before it is committed


def test_while_a_write_is_under_way_everybody_waits() -> None:
    producer = Producer()
    producer.machine.add(*producer.now, [A], 2, NOW)
    assert producer.state is State.EMPTY
    assert error(producer.init()) is ErrorCode.concurrent_transactions
    assert error(producer.add(B)) is ErrorCode.concurrent_transactions
    assert error(producer.end(True)) is ErrorCode.concurrent_transactions
    assert error(producer.end(True, version=0)) is ErrorCode.concurrent_transactions
    assert producer.machine.time_out(NOW + 10 * TIMEOUT, producer.new_id, 2) is None
    assert not producer.machine.expire(NOW + 10 * TIMEOUT)
    producer.machine.written()
    assert producer.state is State.ONGOING


def test_a_write_that_fails_changes_nothing() -> None:
    producer = Producer()
    producer.add(A)
    before = producer.machine.current
    for begin in (
        lambda: producer.machine.end(*producer.now, True, 2, NOW, producer.new_id),
        lambda: producer.machine.init(TIMEOUT, None, NOW, producer.new_id, 2),
        lambda: producer.machine.time_out(NOW + 2 * TIMEOUT, producer.new_id, 2),
    ):
        begin()
        producer.machine.give_up()
        assert producer.machine.current == before
        assert producer.machine.pending is None
    assert error(producer.end(True)) is ErrorCode.none


# ------------------------------------------------------------------ the clock


@pytest.mark.parametrize("server_version", [0, 2])
def test_a_transaction_that_is_open_for_too_long_is_aborted(server_version: int) -> None:
    producer = Producer(server_version=server_version)
    producer.add(A)
    late = NOW + TIMEOUT
    assert producer.machine.time_out(late, producer.new_id, server_version) is None
    outcome = producer.machine.time_out(late + 1, producer.new_id, server_version)
    assert outcome is not None
    producer.commit(outcome)
    assert producer.state is State.COMPLETE_ABORT
    assert producer.now == (100, 1)
    assert error(producer.add(B, by=(100, 0))) is ErrorCode.producer_fenced
    assert error(producer.end(True, by=(100, 0), version=0)) is ErrorCode.producer_fenced
    expected = ErrorCode.invalid_txn_state
    assert error(producer.end(True, by=(100, 0))) is expected


def test_only_open_transactions_time_out() -> None:
    producer = Producer()
    assert producer.machine.time_out(NOW * 2, producer.new_id, 2) is None
    producer.add(A)
    producer.end(True)
    assert producer.machine.time_out(NOW * 2, producer.new_id, 2) is None


def test_a_two_phase_commit_never_times_out() -> None:
    producer = Producer()
    producer.commit(producer.machine.init(0x7FFFFFFF, None, NOW, producer.new_id, 2))
    producer.add(A)
    assert producer.machine.time_out(NOW + 2**40, producer.new_id, 2) is None


def test_idle_ids_expire_open_transactions_never() -> None:
    producer = Producer()
    assert not producer.machine.expire(NOW - 1)
    assert producer.machine.expire(NOW)
    assert error(producer.init()) is ErrorCode.concurrent_transactions
    producer.machine.give_up()
    producer.add(A)
    assert not producer.machine.expire(NOW * 2)
    producer.end(True, markers=False)
    assert not producer.machine.expire(NOW * 2)
    producer.finish()
    assert producer.machine.expire(NOW * 2)
