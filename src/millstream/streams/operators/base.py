"""What every operator is made of.

An operator is a plain description: functions, names of stores, flags. `build(task, out)` turns it into a
function `process(key, value, timestamp, headers)` that calls `out.forward` with the same four arguments for
every result, before it returns: records run depth first through a sub-topology, as in Kafka Streams, so order
and state are the same as there. Nothing is allocated per record but what the operator's own work needs.

A row of a table travels as a value `(new, old)`. `old` is None unless an operator downstream needs it
(`enable_sending_old_values`): Kafka Streams does the same, and what is sent depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from millstream.streams.stores.base import NEWEST, NOT_PUT

Headers = tuple[tuple[str, bytes | None], ...]
Process = Callable[[Any, Any, int, Headers], None]
Row = tuple[Any, int]
Get = Callable[[Any], "Row | None"]
GetAsOf = Callable[[Any, int], "Row | None"]


class Origin(NamedTuple):
    """Where the record came from that is being processed."""

    topic: str
    partition: int
    offset: int


class Times:
    """What an operator knows of time, in `TaskContext.shared`. The numbers that `__slots__` names go with the
    task, from one process to the next."""

    __slots__: tuple[str, ...] = ()


class Clock(Times):
    """The newest timestamp that the windows of an operator have seen, and up to where closed ones were sent;
    -1: none yet."""

    __slots__ = ("seen", "sent")

    def __init__(self) -> None:
        self.seen = self.sent = -1


class PartitionTime(Times):
    """The newest timestamp of a partition, for an extractor that wants to know it."""

    __slots__ = ("newest",)

    def __init__(self) -> None:
        self.newest = -1


class OutOfOrder(tuple[Any, Any]):
    """A change (new, old) of a versioned table that is not its newest (KIP-914): aggregations and joins of
    tables leave it out."""

    __slots__ = ()


def keeping(store: Any, forward: Process) -> tuple[Callable[[bytes, Any, int], None], Process]:
    """How a table keeps a row, and how it then sends it on. A versioned store may find that a row is not the
    newest, or too old: the latter is not sent."""
    if store.spec.type != "versioned":
        return store.put, forward
    put_version = store.put_version
    after = NEWEST

    def put(key: bytes, value: Any, timestamp: int) -> None:
        nonlocal after
        after = put_version(key, value, timestamp)

    def send(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
        if after == NEWEST:
            forward(key, change, timestamp, headers)
        elif after != NOT_PUT:
            forward(key, OutOfOrder(change), timestamp, headers)

    return put, send


class TaskContext(Protocol):
    """What an operator may know of the task that it runs in."""

    application: str
    partition: int
    stream_time: int
    origin: Origin | None
    dropped: int
    config: dict[str, Any]
    metrics: dict[str, float]
    commit_requested: bool
    shared: dict[Any, Any]
    """What several operators of one task know together."""

    def store(self, name: str) -> Any: ...

    def is_global(self, name: str) -> bool:
        """Whether that is a store which every task has whole."""

    def make_state_dir(self) -> Path: ...

    def now(self) -> int:
        """Wall clock in milliseconds."""

    def schedule(
        self, every: int, punctuation_type: str, punctuate: Callable[[int], None], start: int | None = None
    ) -> Callable[[], None]:
        """Calls back by "stream time" or "wall clock"; gives a function that ends it."""


def clock_of(task: TaskContext, operator: Any) -> Clock:
    """The clock of an operator in a task, however it is run."""
    clock: Clock = task.shared.setdefault(("clock", id(operator)), Clock())
    return clock


@dataclass(slots=True)
class Out:
    """Where an operator's results go: to all of its children, or to one by name."""

    forward: Process
    by_name: dict[str, Process] = field(default_factory=dict)


class Operator(Protocol):
    def build(self, task: TaskContext, out: Out) -> Process: ...


class Getter(Protocol):
    """Looks up the row of a table by key, whether or not that table keeps its rows itself."""

    def stores(self) -> list[str]: ...

    def build(self, task: TaskContext) -> Get: ...

    def build_as_of(self, task: TaskContext) -> GetAsOf | None:
        """The row at a time, if the table is versioned."""


class TableOperator(Operator, Protocol):
    """An operator whose results are rows of a table."""

    def enable_sending_old_values(self, force: bool) -> bool:
        """From now on also send what a row was before. `force` makes a source keep its rows, if it does not
        yet."""

    def getter(self) -> Getter: ...


def nothing(_key: Any, _value: Any, _timestamp: int, _headers: Headers) -> None:
    """For an operator that nobody listens to."""


def fan_out(ways: list[Process]) -> Process:
    """All of them, in their order, as one."""
    if not ways:
        return nothing
    if len(ways) == 1:
        return ways[0]
    if len(ways) == 2:
        first, second = ways

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both

    def every(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for way in ways:
            way(key, value, timestamp, headers)

    return every
