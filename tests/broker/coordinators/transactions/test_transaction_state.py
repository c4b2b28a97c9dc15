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
    p = Producer()
    assert p.now == (100, 0)
    assert p.state is State.EMPTY
    assert p.machine.current.previous_id == 100


def test_each_init_bumps_the_epoch() -> None:
    p = Producer()
    outcome = p.init()
    assert (outcome.producer_id, outcome.epoch) == p.now == (100, 1)


def test_a_producer_goes_on_after_an_error_with_a_new_epoch() -> None:
    p = Producer()
    assert p.init(known=(100, 0)).epoch == 1
    assert p.init(known=(100, 0)).epoch == 1, "the same request again"
    assert p.init(known=(100, 1)).epoch == 2


def test_after_another_producer_came_the_old_one_is_fenced() -> None:
    p = Producer()
    p.init(known=(100, 0))
    p.init()
    for epoch in (0, 1, 3):
        assert error(p.init(known=(100, epoch))) is ErrorCode.producer_fenced
    assert error(p.init(known=(55, 2))) is ErrorCode.producer_fenced


def test_a_forgotten_id_is_begun_anew_whatever_the_producer_knows() -> None:
    machine = TransactionStateMachine.new("id", 7, TIMEOUT, NOW)
    outcome = machine.init(TIMEOUT, (3, 9), NOW, lambda: 8, 2)
    assert (outcome.producer_id, outcome.epoch) == (7, 0)


def test_used_up_epochs_lead_to_a_new_producer_id() -> None:
    p = Producer(epoch=LAST_EPOCH)
    outcome = p.init()
    assert (outcome.producer_id, outcome.epoch) == p.now == (101, 0)
    assert p.machine.current.previous_id == 100
    assert error(p.init(known=(100, LAST_EPOCH))) is ErrorCode.producer_fenced


def test_the_same_with_a_known_epoch_can_be_repeated() -> None:
    p = Producer(epoch=LAST_EPOCH)
    for _ in range(2):
        outcome = p.init(known=(100, LAST_EPOCH))
        assert (outcome.producer_id, outcome.epoch) == (101, 0)
    assert p.init(known=(101, 0)).epoch == 1


def test_with_epochs_used_up_a_wrong_one_is_still_only_fenced() -> None:
    p = Producer(epoch=LAST_EPOCH)
    assert error(p.init(known=(100, 5))) is ErrorCode.producer_fenced


@pytest.mark.parametrize("server_version", [0, 1, 2])
def test_init_takes_an_open_transaction_away(server_version: int) -> None:
    p = Producer(server_version=server_version)
    p.add(A)
    outcome = p.init()
    assert outcome.error is ErrorCode.concurrent_transactions
    assert p.log[-2:] == [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    assert p.now == (100, 1)
    assert error(p.add(A, by=(100, 0))) is ErrorCode.producer_fenced
    assert p.init().epoch == 2


def test_a_producer_that_lost_its_own_transaction_goes_on_with_the_fencing_epoch() -> None:
    p = Producer()
    p.add(A)
    assert p.init(known=(100, 0)).error is ErrorCode.concurrent_transactions
    assert p.init(known=(100, 0)).epoch == 1
    old = Producer(server_version=0)
    old.add(A, version=0)
    old.init(known=(100, 0))
    assert error(old.init(known=(100, 0))) is ErrorCode.producer_fenced, "version 1 tells nobody that epoch"


@pytest.mark.parametrize("commit", [True, False])
def test_init_waits_for_a_transaction_that_is_decided(commit: bool) -> None:
    p = Producer()
    p.add(A)
    p.end(commit, markers=False)
    for known in (None, (100, 0), (100, 1), (55, 0)):
        assert p.machine.init(TIMEOUT, known, NOW, p.new_id, 2) == Outcome(ErrorCode.concurrent_transactions)
    p.finish()
    assert p.init().epoch == 2


def test_init_sets_the_timeout() -> None:
    p = Producer()
    p.commit(p.machine.init(5, None, NOW, p.new_id, 2))
    assert p.machine.current.timeout_ms == 5


# ------------------------------------------------------------------ add and verify


def test_the_first_partition_begins_the_transaction() -> None:
    p = Producer()
    p.add(A, version=0)
    t = p.machine.current
    assert (t.state, t.partitions, t.started_ms, t.client_version) == (State.ONGOING, {A}, NOW, 0)
    p.machine.add(*p.now, [B], 2, NOW + 5)
    p.machine.written()
    t = p.machine.current
    assert (t.partitions, t.started_ms, t.updated_ms, t.client_version) == ({A, B}, NOW, NOW + 5, 2)


def test_nothing_is_written_for_a_partition_that_is_in_already() -> None:
    p = Producer()
    p.add(A, B)
    assert p.machine.add(*p.now, [B], 2, NOW) == Outcome()


def test_only_the_current_producer_adds() -> None:
    p = Producer(epoch=3)
    assert error(p.add(A, by=(99, 3))) is ErrorCode.invalid_producer_id_mapping
    assert error(p.add(A, by=(100, 2))) is ErrorCode.producer_fenced
    assert error(p.add(A, by=(100, 4))) is ErrorCode.producer_fenced
    assert p.state is State.EMPTY


@pytest.mark.parametrize("commit", [True, False])
def test_nothing_is_added_while_the_last_transaction_is_ending(commit: bool) -> None:
    p = Producer(epoch=LAST_EPOCH)
    p.add(A)
    p.end(commit, markers=False)
    for by in (p.now, (100, LAST_EPOCH), (101, 0)):
        assert error(p.add(B, by=by)) is ErrorCode.concurrent_transactions
    p.finish()
    assert error(p.add(B)) is ErrorCode.none
    assert p.machine.current.partitions == {B}


def test_verify() -> None:
    p = Producer(epoch=3)
    p.add(A)
    verify = p.machine.verify
    assert verify(100, 3, [A, B]) == {A: ErrorCode.none, B: ErrorCode.transaction_abortable}
    assert verify(100, 2, [A]) == {A: ErrorCode.producer_fenced}
    assert verify(99, 3, [A]) == {A: ErrorCode.invalid_producer_id_mapping}
    p.end(True, version=0, markers=False)
    assert verify(100, 3, [A]) == {A: ErrorCode.concurrent_transactions}
    p.finish()
    assert verify(100, 3, [A]) == {A: ErrorCode.transaction_abortable}


# ------------------------------------------------------------------ end, version 1


@pytest.mark.parametrize("commit", [True, False])
def test_v1_ends_with_the_same_epoch(commit: bool) -> None:
    p = Producer(epoch=3)
    p.add(A, B, version=0)
    outcome = p.end(commit, version=0, markers=False)
    assert (outcome.producer_id, outcome.epoch) == (-1, -1)
    assert p.machine.marker() == Marker(100, 3, commit, 0)
    assert p.machine.unmarked == {A, B}
    for again in (commit, not commit):
        assert error(p.end(again, version=0)) is ErrorCode.concurrent_transactions
    p.machine.marked(A)
    assert p.machine.complete(NOW) is None, "one marker is missing"
    p.machine.marked(B)
    p.finish(NOW + 3)
    t = p.machine.current
    assert t.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert (t.partitions, t.updated_ms, t.started_ms, t.epoch) == (frozenset(), NOW + 3, NOW, 3)
    assert p.end(commit, version=0) == Outcome(), "repeated"
    assert error(p.end(not commit, version=0)) is ErrorCode.invalid_txn_state


def test_v1_there_must_be_a_transaction() -> None:
    p = Producer()
    for commit in (True, False):
        assert error(p.end(commit, version=0)) is ErrorCode.invalid_txn_state


def test_v1_only_the_current_producer_ends() -> None:
    p = Producer(epoch=3)
    p.add(A, version=0)
    assert error(p.end(True, by=(100, 2), version=0)) is ErrorCode.producer_fenced
    assert error(p.end(True, by=(100, 4), version=0)) is ErrorCode.producer_fenced
    assert error(p.end(True, by=(99, 3), version=0)) is ErrorCode.invalid_producer_id_mapping


# ------------------------------------------------------------------ end, version 2


@pytest.mark.parametrize("commit", [True, False])
def test_v2_every_end_bumps_the_epoch(commit: bool) -> None:
    p = Producer()
    p.add(A)
    outcome = p.end(commit, markers=False)
    assert (outcome.producer_id, outcome.epoch) == (100, 1)
    assert p.machine.marker() == Marker(100, 1, commit, 2), "markers carry the new epoch"
    for by in ((100, 0), (100, 1), (100, 7), (55, 0)):
        assert error(p.end(commit, by=by)) is ErrorCode.concurrent_transactions
        assert error(p.end(not commit, by=by)) is ErrorCode.concurrent_transactions
    p.finish()
    assert p.now == (100, 1)


def test_v2_the_table_of_repeated_and_next_ends() -> None:
    """Rows: what was before; columns: abort repeated, abort now, commit repeated, commit now."""
    none, fenced, wrong = ErrorCode.none, ErrorCode.producer_fenced, ErrorCode.invalid_txn_state

    def empty() -> Producer:
        return Producer(epoch=1)

    def ended(commit: bool) -> Producer:
        p = Producer()
        p.add(A)
        p.end(commit)
        return p

    table = {
        "empty": (empty, fenced, none, fenced, wrong),
        "aborted": (lambda: ended(False), none, none, wrong, wrong),
        "committed": (lambda: ended(True), wrong, none, none, wrong),
    }
    for make, *expected in table.values():
        columns = [(False, 0), (False, 1), (True, 0), (True, 1)]
        for (commit, epoch), code in zip(columns, expected, strict=True):
            p = make()
            assert p.now == (100, 1)
            outcome = p.end(commit, by=(100, epoch))
            assert error(outcome) is code, (make, commit, epoch)
            if code is none:
                bumped = 1 if epoch == 0 else 2
                assert (outcome.producer_id, outcome.epoch) == p.now == (100, bumped)


def test_v2_a_delayed_end_never_ends_the_next_transaction() -> None:
    p = Producer()
    p.add(A)
    p.end(True)
    p.add(B)
    for commit in (True, False):
        assert error(p.end(commit, by=(100, 0))) is ErrorCode.producer_fenced
    assert p.state is State.ONGOING


def test_v2_used_up_epochs_lead_to_the_next_producer_id() -> None:
    p = Producer(epoch=LAST_EPOCH)
    p.add(A)
    outcome = p.end(True, markers=False)
    assert (outcome.producer_id, outcome.epoch) == (101, 0)
    assert p.machine.marker() == Marker(100, MAX_EPOCH, True, 2)
    for by in ((100, LAST_EPOCH), (101, 0)):
        assert error(p.end(True, by=by)) is ErrorCode.concurrent_transactions
    p.finish()
    assert p.now == (101, 0)
    assert p.machine.current.previous_id == 100
    repeated = p.end(True, by=(100, LAST_EPOCH))
    assert (repeated.error, repeated.producer_id, repeated.epoch) == (ErrorCode.none, 101, 0)
    assert error(p.end(False, by=(100, LAST_EPOCH))) is ErrorCode.invalid_txn_state
    assert error(p.end(True, by=(100, 5))) is ErrorCode.invalid_producer_id_mapping
    assert p.init(known=(100, LAST_EPOCH)).epoch == 0, "a producer that missed the answer asks again"


def test_v2_an_end_from_before_init_changed_the_producer_id_is_fenced() -> None:
    p = Producer(epoch=LAST_EPOCH)
    p.init()
    assert p.now == (101, 0)
    for commit in (True, False):
        assert error(p.end(commit, by=(100, LAST_EPOCH))) is ErrorCode.producer_fenced
        assert error(p.end(commit, by=(100, 5))) is ErrorCode.invalid_producer_id_mapping


@pytest.mark.parametrize("commit", [True, False])
def test_v2_the_very_last_epoch_can_still_end_a_transaction(commit: bool) -> None:
    """Version 1 fences with it, and an abort that is repeated in version 2 is told it."""
    p = Producer(epoch=LAST_EPOCH, server_version=1)
    p.add(A)
    p.init()
    assert p.end(False, by=(100, LAST_EPOCH))[:3] == (ErrorCode.none, 100, MAX_EPOCH)
    p.add(A)
    outcome = p.end(commit, markers=False)
    assert (outcome.error, outcome.producer_id, outcome.epoch) == (ErrorCode.none, 101, 0)
    assert p.machine.marker() == Marker(100, MAX_EPOCH, commit, 2)
    p.finish()
    assert p.now == (101, 0)


@pytest.mark.parametrize("server_version", [1, 2])
def test_the_very_last_epoch_can_still_be_taken_away(server_version: int) -> None:
    p = Producer(epoch=MAX_EPOCH, server_version=server_version)
    p.add(A)
    assert p.init().error is ErrorCode.concurrent_transactions
    assert p.log[-2:] == [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    p.init()
    assert p.now == ((101, 0) if server_version < 2 else (101, 1))


def test_v2_taking_away_with_epochs_used_up() -> None:
    p = Producer(epoch=LAST_EPOCH)
    p.add(A)
    p.init()
    assert p.now == (101, 0)
    assert p.init().epoch == 1


def test_v2_an_abort_without_a_transaction_writes_no_markers() -> None:
    p = Producer()
    p.end(False, markers=False)
    assert p.state is State.PREPARE_ABORT
    assert not p.machine.unmarked
    p.finish()
    assert p.machine.current.started_ms == NOW


# ------------------------------------------------------------------ nothing counts before it is committed


def test_while_a_write_is_under_way_everybody_waits() -> None:
    p = Producer()
    p.machine.add(*p.now, [A], 2, NOW)
    assert p.state is State.EMPTY
    assert error(p.init()) is ErrorCode.concurrent_transactions
    assert error(p.add(B)) is ErrorCode.concurrent_transactions
    assert error(p.end(True)) is ErrorCode.concurrent_transactions
    assert error(p.end(True, version=0)) is ErrorCode.concurrent_transactions
    assert p.machine.time_out(NOW + 10 * TIMEOUT, p.new_id, 2) is None
    assert not p.machine.expire(NOW + 10 * TIMEOUT)
    p.machine.written()
    assert p.state is State.ONGOING


def test_a_write_that_fails_changes_nothing() -> None:
    p = Producer()
    p.add(A)
    before = p.machine.current
    for begin in (
        lambda: p.machine.end(*p.now, True, 2, NOW, p.new_id),
        lambda: p.machine.init(TIMEOUT, None, NOW, p.new_id, 2),
        lambda: p.machine.time_out(NOW + 2 * TIMEOUT, p.new_id, 2),
    ):
        begin()
        p.machine.give_up()
        assert p.machine.current == before
        assert p.machine.pending is None
    assert error(p.end(True)) is ErrorCode.none


# ------------------------------------------------------------------ the clock


@pytest.mark.parametrize("server_version", [0, 2])
def test_a_transaction_that_is_open_for_too_long_is_aborted(server_version: int) -> None:
    p = Producer(server_version=server_version)
    p.add(A)
    late = NOW + TIMEOUT
    assert p.machine.time_out(late, p.new_id, server_version) is None
    outcome = p.machine.time_out(late + 1, p.new_id, server_version)
    assert outcome is not None
    p.commit(outcome)
    assert p.state is State.COMPLETE_ABORT
    assert p.now == (100, 1)
    assert error(p.add(B, by=(100, 0))) is ErrorCode.producer_fenced
    assert error(p.end(True, by=(100, 0), version=0)) is ErrorCode.producer_fenced
    expected = ErrorCode.invalid_txn_state
    assert error(p.end(True, by=(100, 0))) is expected


def test_only_open_transactions_time_out() -> None:
    p = Producer()
    assert p.machine.time_out(NOW * 2, p.new_id, 2) is None
    p.add(A)
    p.end(True)
    assert p.machine.time_out(NOW * 2, p.new_id, 2) is None


def test_a_two_phase_commit_never_times_out() -> None:
    p = Producer()
    p.commit(p.machine.init(0x7FFFFFFF, None, NOW, p.new_id, 2))
    p.add(A)
    assert p.machine.time_out(NOW + 2**40, p.new_id, 2) is None


def test_idle_ids_expire_open_transactions_never() -> None:
    p = Producer()
    assert not p.machine.expire(NOW - 1)
    assert p.machine.expire(NOW)
    assert error(p.init()) is ErrorCode.concurrent_transactions
    p.machine.give_up()
    p.add(A)
    assert not p.machine.expire(NOW * 2)
    p.end(True, markers=False)
    assert not p.machine.expire(NOW * 2)
    p.finish()
    assert p.machine.expire(NOW * 2)
