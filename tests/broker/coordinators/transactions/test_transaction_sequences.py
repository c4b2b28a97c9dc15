"""Any sequence of requests, lost writes, crashes and late markers keeps the promises of transactions.

A small world around one machine: its log, partitions that know which transaction is open in them, and clients
that may be zombies, use either protocol version, repeat requests and know old epochs. After every step the
promises are checked.
"""

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.coordinators.transactions.transaction_records import (
    FLEXIBLE,
    State,
    TopicPartition,
    Transaction,
    decode_value,
    encode_value,
)
from millstream.broker.coordinators.transactions.transaction_state import (
    IDLE,
    LAST_EPOCH,
    PREPARED,
    Marker,
    Outcome,
    TransactionStateMachine,
)
from millstream.wire.errors import ErrorCode
from tests.support.effort import examples

ALLOWED = {
    State.EMPTY: {*IDLE},
    State.ONGOING: {*IDLE, State.ONGOING},
    State.PREPARE_COMMIT: {State.ONGOING},
    State.PREPARE_ABORT: {State.ONGOING, *IDLE},
    State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
    State.COMPLETE_ABORT: {State.PREPARE_ABORT},
}
PARTITIONS: list[TopicPartition] = [("t", n) for n in range(4)]
TIMEOUT = 1000


class Partition:
    """What a partition's log knows about the producer: enough to judge writes and markers."""

    def __init__(self) -> None:
        self.identity = (-1, -1)
        self.open = False

    def write(self, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.open = True

    def mark(self, marker: Marker) -> None:
        producer_id, epoch = self.identity
        if producer_id == marker.producer_id:
            assert marker.epoch >= epoch, "a marker that the partition must refuse"
            if self.open and marker.version >= 2:
                assert marker.epoch > epoch, "the marker of an earlier transaction"
        self.identity = (marker.producer_id, marker.epoch)
        self.open = False


class World:
    def __init__(self, first_epoch: int, server_version: int) -> None:
        self.ids = itertools.count(1)
        self.now = 0
        self.server_version = server_version
        self.log: list[bytes] = []
        self.partitions = {which: Partition() for which in PARTITIONS}
        self.ends: dict[tuple[int, int], bool] = {}  # identity in the prepare record -> commit
        self.known: list[tuple[int, int]] = []  # identities that clients were told, oldest first
        self.fenced_before = 0  # those before this index belong to producers that were replaced
        self.machine = TransactionStateMachine.new("id", next(self.ids), TIMEOUT, 0)
        self.init(None)
        if first_epoch:
            self.machine.current = self.machine.current._replace(epoch=first_epoch)
            self.log.append(encode_value(self.machine.current, FLEXIBLE))
            self.known = [(self.machine.current.producer_id, first_epoch)]

    # -- the log

    def commit(self, outcome: Outcome | None, lost: bool = False) -> None:
        if outcome is None or outcome.write is None:
            assert self.machine.pending is None
            return
        if lost:
            self.machine.give_up()
            return
        self.check(outcome.write)
        self.log.append(encode_value(outcome.write, FLEXIBLE))
        if self.machine.written():
            t = self.machine.current
            identity = (t.producer_id, t.epoch)
            commit = t.state is State.PREPARE_COMMIT
            if t.client_version >= 2:
                assert identity not in self.ends, "two transactions end with one epoch"
            self.ends[identity] = commit

    def check(self, t: Transaction) -> None:
        """A record may follow the one before it."""
        if not self.log:
            return
        before = decode_value("id", self.log[-1])
        assert before.state in ALLOWED[t.state], (before.state, t.state)
        if t.producer_id == before.producer_id:
            assert t.epoch >= before.epoch
        else:
            assert t.epoch == 0
            assert before.epoch >= LAST_EPOCH
        assert t.previous_id == before.producer_id
        if t.state is State.ONGOING:
            assert t.epoch == before.epoch
            assert t.partitions >= before.partitions
        if t.state in PREPARED:
            assert t.partitions == before.partitions

    def crash(self) -> None:
        """Everything but the logs is forgotten."""
        self.machine = TransactionStateMachine(decode_value("id", self.log[-1]))

    # -- requests

    def who(self, pick: int) -> tuple[int, int]:
        return self.known[pick % len(self.known)]

    def answered(self, outcome: Outcome) -> None:
        if outcome.error is ErrorCode.none and outcome.producer_id >= 0:
            self.known.append((outcome.producer_id, outcome.epoch))

    def init(self, known: tuple[int, int] | None, lost: bool = False) -> None:
        outcome = self.machine.init(TIMEOUT, known, self.now, lambda: next(self.ids), self.server_version)
        self.commit(outcome, lost)
        if not lost and outcome.error is ErrorCode.none:
            if known is None:
                self.fenced_before = len(self.known)
            else:
                self.must_not_be_replaced(known)
            self.answered(outcome)

    def add(self, pick: int, which: int, version: int, lost: bool) -> None:
        identity = self.who(pick)
        outcome = self.machine.add(*identity, [PARTITIONS[which]], version, self.now)
        if outcome.error is ErrorCode.none:
            self.must_be_current(identity)
        self.commit(outcome, lost)

    def write(self, pick: int, which: int) -> None:
        """A produce request that was verified."""
        identity, partition = self.who(pick), PARTITIONS[which]
        if self.machine.verify(*identity, [partition])[partition] is ErrorCode.none:
            self.must_be_current(identity)
            assert self.machine.current.state is State.ONGOING
            self.partitions[partition].write(identity)

    def end(self, pick: int, commit: bool, version: int, lost: bool) -> None:
        identity = self.who(pick)
        before = self.machine.current
        outcome = self.machine.end(*identity, commit, version, self.now, lambda: next(self.ids))
        if outcome.error is ErrorCode.none:
            if outcome.write is not None:
                self.must_be_current(identity)
            else:
                wanted = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
                assert before.state is wanted, "told that it ended in another way than it did"
        self.commit(outcome, lost)
        if not lost:
            self.answered(outcome)

    def must_be_current(self, identity: tuple[int, int]) -> None:
        t = self.machine.current
        assert identity == (t.producer_id, t.epoch)
        self.must_not_be_replaced(identity)

    def must_not_be_replaced(self, identity: tuple[int, int]) -> None:
        newest = max(n for n, known in enumerate(self.known) if known == identity)
        assert newest >= self.fenced_before, "a producer that was replaced still gets through"

    # -- markers and the clock

    def mark(self, which: int) -> None:
        """One marker arrives; after a crash some arrive for the second time."""
        machine = self.machine
        if machine.current.state in PREPARED and PARTITIONS[which] in machine.unmarked:
            marker = machine.marker()
            assert self.ends[marker.producer_id, marker.epoch] is marker.commit
            self.partitions[PARTITIONS[which]].mark(marker)
            machine.marked(PARTITIONS[which])

    def complete(self, lost: bool) -> None:
        outcome = self.machine.complete(self.now)
        if outcome is not None:
            for which in decode_value("id", self.log[-1]).partitions:
                assert not self.partitions[which].open, "complete with a transaction still open"
        self.commit(outcome, lost)

    def later(self, ms: int, lost: bool) -> None:
        self.now += ms
        self.commit(self.machine.time_out(self.now, lambda: next(self.ids), self.server_version), lost)

    def settle(self) -> None:
        """Whatever happened: let everything end, and nothing is left open."""
        self.later(10 * TIMEOUT, lost=False)
        for which in range(len(PARTITIONS)):
            self.mark(which)
        self.complete(lost=False)
        assert self.machine.current.state in IDLE
        assert not any(partition.open for partition in self.partitions.values())


lost = st.integers(0, 7).map(lambda n: n == 0)
pick = st.integers(-3, 20)  # mostly one of the newest identities
which = st.integers(0, len(PARTITIONS) - 1)
version = st.sampled_from([0, 2])
steps: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "init": st.tuples(st.none(), lost),
    "init_known": st.tuples(pick, lost),
    "add": st.tuples(pick, which, version, lost),
    "write": st.tuples(pick, which),
    "end": st.tuples(pick, st.booleans(), version, lost),
    "mark": st.tuples(which),
    "complete": st.tuples(lost),
    "later": st.tuples(st.integers(0, 2 * TIMEOUT), lost),
    "crash": st.tuples(),
}
step = st.one_of([st.tuples(st.just(name), arguments) for name, arguments in steps.items()])


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(step, max_size=60),
    st.sampled_from([0, LAST_EPOCH - 2, LAST_EPOCH]),
    st.sampled_from([0, 1, 2]),
)
def test_any_sequence_keeps_the_promises(
    sequence: list[tuple[str, tuple[Any, ...]]], first_epoch: int, server_version: int
) -> None:
    world = World(first_epoch, server_version)
    for name, arguments in sequence:
        if name == "init_known":
            world.init(world.who(arguments[0]), arguments[1])
        else:
            act: Callable[..., None] = getattr(world, name)
            act(*arguments)
        restored = decode_value("id", world.log[-1])
        assert world.machine.current._replace(last_epoch=-1) == restored
    world.settle()
