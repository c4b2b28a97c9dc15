"""What a unit in a thread does in a turn, what it gets meanwhile, and when it commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.client.fetch import Fetched
from millstream.client.transaction_commits import TransactionCommit
from millstream.host import waiting
from millstream.host.turns import TurnThreads
from millstream.host.unit import UnitId, UnitStatus
from millstream.host.waiting import WaitingUnit
from millstream.wire.errors import ErrorCode
from millstream.wire.topic_partition import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Putting:
    """A unit of two partitions that puts one at a time of what it has received."""

    fetch_bytes = 1
    full = False
    due = None

    def __init__(self) -> None:
        self.status = UnitStatus()
        self.at = {FIRST: 0, SECOND: 0}
        self.left, self.put, self.prepared = 0, 0, 0
        self.paced_until = 0.0
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return dict(self.at)

    def receive(self, fetched: Fetched) -> None:
        which = TopicPartition(fetched.topic, fetched.partition)
        self.at[which] += 5
        self.left += 5

    def poll(self) -> bool:
        self.inside.set()
        assert self.go_on.wait(20)
        if self.left:
            self.left -= 1
            self.put += 1
        return self.left > 0

    @property
    def uncommitted(self) -> bool:
        return self.put > self.prepared

    def prepare_commit(self) -> TransactionCommit | None:
        self.prepared = self.put
        return None

    def committed(self, commit: TransactionCommit | None) -> None:
        self.status.commits += 1

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class Lane:
    """What a lane does for one such unit."""

    machine = "here"

    def __init__(self) -> None:
        self.unit, self.threads = Putting(), TurnThreads(lambda _unit, _what: None)
        self.waiting = WaitingUnit(
            UnitId("a", "u"), lambda _name, _lane: self.unit, self, self.threads, lambda: 0.0, self.failed
        )
        self.until(lambda: self.waiting.opened)

    def shared(self, key: Any, make: Any) -> Any:
        raise AssertionError("it shares nothing")

    def failed(self, unit_id: UnitId, error: Exception) -> None:
        raise error

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            self.threads.finish()
            time.sleep(0.001)

    def fetched(self, which: TopicPartition) -> None:
        empty = memoryview(b"")
        self.waiting.receive(Fetched(*which, ErrorCode.none, 0, 0, 0, (), empty))

    def turn(self) -> None:
        self.waiting.poll()
        self.until(lambda: not self.waiting._in_turn)


@pytest.fixture
def lane() -> Iterator[Lane]:
    one = Lane()
    yield one
    one.unit.go_on.set()
    one.threads.close()


def test_a_turn_goes_on_while_there_is_more(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TURN_SECONDS", 20.0)
    lane.fetched(FIRST)
    lane.turn()
    assert (lane.unit.put, lane.unit.left) == (5, 0)
    monkeypatch.setattr(waiting, "TURN_SECONDS", 0.0)
    lane.fetched(FIRST)
    lane.turn()
    assert (lane.unit.put, lane.unit.left) == (6, 4)


def test_what_comes_next_is_fetched_during_a_turn(lane: Lane) -> None:
    lane.turn()
    assert lane.waiting.positions == {FIRST: 0, SECOND: 0}
    lane.unit.go_on.clear()
    lane.unit.inside.clear()
    lane.fetched(FIRST)
    assert lane.waiting.positions == {SECOND: 0}
    lane.waiting.poll()
    assert lane.unit.inside.wait(20)
    assert lane.waiting.positions == {SECOND: 0}, "where it goes on in the first one is not known yet"
    lane.fetched(SECOND)
    assert lane.waiting.positions == {}
    lane.unit.go_on.set()
    lane.until(lambda: not lane.waiting._in_turn)
    assert lane.waiting.positions == {FIRST: 5}
    lane.turn()
    assert lane.waiting.positions == {FIRST: 5, SECOND: 5}


def test_a_unit_may_be_in_no_hurry_to_commit(lane: Lane) -> None:
    lane.unit.paced_until = time.monotonic() + 3600
    lane.fetched(FIRST)
    lane.turn()
    assert lane.unit.prepared == 0
    assert lane.waiting.due is not None
    assert lane.waiting.due > time.monotonic() + 3000
    lane.waiting.leave()
    lane.turn()
    assert lane.unit.prepared == 5, "what leaves commits"
    lane.until(lambda: lane.waiting.closed or lane.waiting.poll())
