"""The rules of coordinators, switched off one at a time (see `mutants`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from millstream.broker.coordinators import runtime
from millstream.broker.coordinators.groups import group_shard
from millstream.broker.coordinators.transactions import markers, transaction_shard, verification
from millstream.broker.coordinators.transactions import transaction_state as state
from millstream.storage import producers
from tests.simulation.mutants import Change

SHARD = runtime.CoordinatorShard
MACHINE = state.TransactionStateMachine
_append_batch = SHARD._append_batch
_replay_log = SHARD._replay_log
_committed = SHARD._committed
_commit = group_shard.GroupShard.commit
_add, _end = MACHINE.add, MACHINE.end
_write_marker = markers.LocalMarkers.write


def answers_before_the_commit(
    self: Any, batch: memoryview, now_ms: int, apply: Callable[[], None] | None
) -> None:
    """What is written counts at once, as if there were one replica."""
    _append_batch(self, batch, now_ms, None)
    if apply is not None:
        apply()


_loading: list[Any] = []


async def serves_before_its_log_is_committed(self: Any, end_offset: int) -> None:
    _loading.append(self)
    try:
        await _replay_log(self, end_offset)
    finally:
        _loading.remove(self)


def committed_while_loading(self: Any, end: int, apply: Any = None) -> Any:
    if apply is not None or self not in _loading:
        return _committed(self, end, apply)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def does_not_wait_for_markers(self: Any, *given: Any) -> None:
    """A marker counts when the leader has it."""
    _write_marker(self, *given)


def forgets_decided_transactions(self: Any) -> None:
    for transactional_id in self._busy:
        self.find(transactional_id)
    self._busy.clear()


def adds_for_any_epoch(self: Any, producer_id: int, epoch: int, *more: Any) -> Any:
    return _add(self, self.current.producer_id, self.current.epoch, *more)


def ends_for_any_epoch(self: Any, producer_id: int, epoch: int, *more: Any) -> Any:
    return _end(self, self.current.producer_id, self.current.epoch, *more)


def any_batch_may_begin(self: Any, *given: Any) -> None:
    """No question to the coordinator."""


def any_marker(self: Any, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
    """Neither the producer's epoch nor that of the coordinator is compared."""


def applies_offsets_at_once(self: Any, group_id: str, commits: Any, producer: Any = None) -> Any:
    return _commit(self, group_id, commits, None)


def groups_do_not_hear_of_ends(self: Any, partition: Any, marker: Any) -> None: ...


# By chance: the first seed that misses the rule when this was written, and the rule taken out.
RULES: dict[str, tuple[int, tuple[Change, ...]]] = {
    "answers wait for the commit": (1, (Change(SHARD, "_append_batch", answers_before_the_commit),)),
    "a marker counts when it is committed": (
        6,
        (Change(markers.LocalMarkers, "write", does_not_wait_for_markers),),
    ),
    "the next coordinator completes what is decided": (
        1,
        (Change(transaction_shard.TransactionShard, "loaded", forgets_decided_transactions),),
    ),
    "epochs fence": (
        0,
        (Change(MACHINE, "add", adds_for_any_epoch), Change(MACHINE, "end", ends_for_any_epoch)),
    ),
    "a batch begins a transaction with the coordinator's yes": (
        0,
        (Change(verification.TransactionVerifier, "verify", any_batch_may_begin),),
    ),
    "offsets of a transaction wait for its end": (
        0,
        (Change(group_shard.GroupShard, "commit", applies_offsets_at_once),),
    ),
    "groups hear of the end of a transaction": (
        0,
        (Change(markers.LocalMarkers, "_committed", groups_do_not_hear_of_ends),),
    ),
}
# By a schedule (test_transaction_schedules).
SCHEDULED: dict[str, tuple[Change, ...]] = {
    "a shard serves what is committed": (
        Change(SHARD, "_replay_log", serves_before_its_log_is_committed),
        Change(SHARD, "_committed", committed_while_loading),
    ),
    "late markers are refused": (Change(producers.ProducerTable, "check_marker", any_marker),),
}
