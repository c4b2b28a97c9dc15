"""The transactional ids of one partition of the transaction log.

Most ids are idle, and after a start most of them will not be asked for soon. So what was read from the log is kept as it
was read, and becomes a state machine when somebody wants it; only transactions that are open or being ended do so at
once, because the clock and the markers wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.broker.coordinators.transactions.transaction_records import (
    State,
    Transaction,
    decode_key,
    decode_value,
    state_of,
)
from millstream.broker.coordinators.transactions.transaction_state import IDLE, Machine

if TYPE_CHECKING:
    from millstream.broker.coordinators.runtime import Shard
    from millstream.broker.coordinators.transactions.markers import Completion


class Part:
    __slots__ = ("_busy", "_unread", "completions", "machines", "shard")

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.machines: dict[str, Machine] = {}
        self.completions: dict[str, Completion] = {}
        self._unread: dict[str, bytes] = {}  # as in the log
        self._busy: set[str] = set()  # those of them that are not idle

    # ------------------------------------------------------------------ the log

    def replay(self, key: bytes, value: bytes | None) -> bool:
        """The next record of the log; false if it is of an unknown kind. KafkaError if it cannot be read."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            return False
        if value is None:
            self._unread.pop(transactional_id, None)
            self._busy.discard(transactional_id)
            return True
        if state_of(value) in IDLE:
            self._busy.discard(transactional_id)
        else:
            self._busy.add(transactional_id)
        self._unread[transactional_id] = value
        return True

    def loaded(self) -> None:
        for transactional_id in self._busy:
            self.find(transactional_id)
        self._busy.clear()

    # ------------------------------------------------------------------ finding

    def __len__(self) -> int:
        return len(self.machines) + len(self._unread)

    def holds(self, transactional_id: str) -> bool:
        return transactional_id in self.machines or transactional_id in self._unread

    def find(self, transactional_id: str) -> Machine | None:
        machine = self.machines.get(transactional_id)
        if machine is None and self._unread:
            value = self._unread.pop(transactional_id, None)
            if value is not None:
                machine = Machine(decode_value(transactional_id, value))
                self.machines[transactional_id] = machine
        return machine

    def states(self) -> dict[State, int]:
        """How many ids are in which state."""
        counts: dict[State, int] = {}
        for state in (
            *(machine.current.state for machine in self.machines.values()),
            *map(state_of, self._unread.values()),
        ):
            counts[state] = counts.get(state, 0) + 1
        return counts

    def all(self) -> Iterator[Transaction]:
        for machine in self.machines.values():
            yield machine.current
        for transactional_id, value in self._unread.items():
            yield decode_value(transactional_id, value)
