"""What happened in a run, as the clients saw it. Written by the workload, judged by checker.py.

A record is one number, its key, which says who wrote it and as what (see `key`); it is the record's value
too. Events that come by the hundred thousand are kept in arrays of machine numbers, the others in lists of
tuples. Times are seconds of one clock.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.wire.topic_partition import TopicPartition

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
INDEX_BITS = 16
WRITER_BITS = 48


def key(writer: int, number: int) -> int:
    """A record of a plain writer."""
    return writer << WRITER_BITS | number


def transaction_key(transaction: int, index: int) -> int:
    """A record of a transaction."""
    return transaction << INDEX_BITS | index


def transaction_of(key: int) -> int:
    return key >> INDEX_BITS


def transaction_id(writer: int, number: int) -> int:
    return writer << (WRITER_BITS - INDEX_BITS) | number


def derived_key(partition: int, offset: int) -> int:
    """A record that was made out of the record at this place of the input topic."""
    return partition << WRITER_BITS | offset


def input_of(key: int) -> tuple[int, int]:
    """Partition and offset of a derived record's input."""
    return key >> WRITER_BITS, key & ((1 << WRITER_BITS) - 1)


class Records:
    """Records of one partition: offsets and keys, in the order in which they were seen."""

    __slots__ = ("keys", "offsets")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.offsets = array("q")
        self.keys = array("q")
        for offset, record_key in pairs:
            self.add(offset, record_key)

    def add(self, offset: int, record_key: int) -> None:
        self.offsets.append(offset)
        self.keys.append(record_key)

    def extend(self, others: "Records") -> None:
        self.offsets.extend(others.offsets)
        self.keys.extend(others.keys)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.offsets, self.keys, strict=True)

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(slots=True)
class Reading:
    """What one reader was given of one partition, from when it got the partition until it lost it. `start` is
    where it began; a reader goes on from record to record by itself."""

    reader: str
    topic_partition: TopicPartition
    start: int
    records: Records = field(default_factory=Records)
    times: array = field(default_factory=lambda: array("d"))  # type: ignore[type-arg]

    def add(self, offset: int, record_key: int, moment: float) -> None:
        self.records.add(offset, record_key)
        self.times.append(moment)


@dataclass(slots=True)
class Transaction:
    keys: list[int] = field(default_factory=list)
    commit_started: float | None = None
    outcome: str = UNKNOWN


class Commit(NamedTuple):
    """A group's offset on its way to the broker; `finished` is None if no answer, or a refusal, came back."""

    group: str
    topic_partition: TopicPartition
    offset: int
    started: float
    finished: float | None


class Fetched(NamedTuple):
    """A group's offset as the broker told it; -1 where it had none."""

    group: str
    topic_partition: TopicPartition
    offset: int
    started: float
    finished: float


class Stall(NamedTuple):
    """Somebody who did not reach the end although there was time enough."""

    who: str
    text: str


@dataclass(slots=True)
class History:
    """One run. `final` is what a reader of committed records finds in the end, from the first record to the
    last."""

    acked: dict[TopicPartition, Records] = field(default_factory=dict)
    final: dict[TopicPartition, Records] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    transactions: dict[int, Transaction] = field(default_factory=dict)
    transactional: set[str] = field(default_factory=set)  # topics whose keys name transactions
    commits: list[Commit] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    derived: dict[str, tuple[str, str]] = field(default_factory=dict)  # output topic -> input topic, group
    groups: dict[str, str] = field(default_factory=dict)  # group -> topic that it reads as a whole
    stalls: list[Stall] = field(default_factory=list)

    def count(self) -> int:
        """Records that are in the logs at the end."""
        return sum(map(len, self.final.values()))
