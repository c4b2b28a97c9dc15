"""The transactional ids of one partition of `__transaction_state`.

Most ids are idle, and after a start most of them stay so for a while. What was read from the log is therefore
kept as bytes and becomes a state machine on first use; only transactions that are open or being ended do so
at once, because timeouts and markers wait for them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.broker.coordinators.runtime import CoordinatorShard
from millstream.broker.coordinators.transactions.transaction_records import (
    State,
    Transaction,
    decode_key,
    decode_value,
    state_of,
)
from millstream.broker.coordinators.transactions.transaction_state import (
    IDLE,
    PREPARED,
    TransactionStateMachine,
)
from millstream.wire.batch import CONTROL
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from millstream.broker.coordinators.transactions.markers import Completion
    from millstream.broker.partition import Partition

logger = logging.getLogger("millstream.transactions")


class TransactionShard(CoordinatorShard):
    __slots__ = ("_busy", "_coordinator", "_unread", "completions", "state_machines")

    def __init__(self, coordinator: TransactionCoordinator, partition: Partition) -> None:
        super().__init__(coordinator.runtime, partition)
        self._coordinator = coordinator
        self.state_machines: dict[str, TransactionStateMachine] = {}
        self.completions: dict[str, Completion] = {}
        self._unread: dict[str, bytes] = {}  # as in the log
        self._busy: set[str] = set()  # those of them that are not idle

    # ------------------------------------------------------------------ the log

    def replay(
        self, attributes: int, producer_id: int, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        """KafkaError if the record cannot be read."""
        if attributes & CONTROL:
            return
        transactional_id = decode_key(key or b"")
        if transactional_id is None:
            logger.warning("%s: record at %d of an unknown kind ignored", self.partition, offset)
        elif value is None:
            self._unread.pop(transactional_id, None)
            self._busy.discard(transactional_id)
        else:
            if state_of(value) in IDLE:
                self._busy.discard(transactional_id)
            else:
                self._busy.add(transactional_id)
            self._unread[transactional_id] = value

    def unreadable(self, offset: int, error: Exception) -> None:
        """An id whose state is unknown could be in any; better to serve none of this shard than to answer
        wrongly."""
        raise KafkaError(ErrorCode.corrupt_message, f"the record at {offset} cannot be read: {error}")

    def loaded(self) -> None:
        for transactional_id in self._busy:
            self.find(transactional_id)
        self._busy.clear()
        for machine in [each for each in self.state_machines.values() if each.current.state in PREPARED]:
            logger.info(
                "%s: transaction of %r was decided (%s) but not complete, going on with it",
                self.partition,
                machine.current.transactional_id,
                machine.current.state.label,
            )
            self._coordinator.complete(self, machine)

    def unloaded(self) -> None:
        for completion in self.completions.values():
            completion.stop()

    # ------------------------------------------------------------------ finding

    def __len__(self) -> int:
        return len(self.state_machines) + len(self._unread)

    def find(self, transactional_id: str) -> TransactionStateMachine | None:
        machine = self.state_machines.get(transactional_id)
        if machine is None and self._unread:
            value = self._unread.pop(transactional_id, None)
            if value is not None:
                machine = TransactionStateMachine(decode_value(transactional_id, value))
                self.state_machines[transactional_id] = machine
        return machine

    def states(self) -> dict[State, int]:
        """How many ids are in which state."""
        counts: dict[State, int] = {}
        for state in (
            *(machine.current.state for machine in self.state_machines.values()),
            *map(state_of, self._unread.values()),
        ):
            counts[state] = counts.get(state, 0) + 1
        return counts

    def all(self) -> Iterator[Transaction]:
        """Those that are here now; whoever reads them may take his time."""
        state_machines, unread = list(self.state_machines.values()), list(self._unread.items())
        for machine in state_machines:
            yield machine.current
        for transactional_id, value in unread:
            yield decode_value(transactional_id, value)
