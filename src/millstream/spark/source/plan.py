"""Which offsets of which partition go into which task: pure functions, so that the same question has the same
answer.

`share` cuts a trigger to a number of offsets, each partition in proportion to what it has. `split` makes
tasks: one per partition, as in Spark's Kafka source, more where `minPartitions` or `maxRecordsPerPartition`
ask for it, and fewer where partitions have little to read, because a task costs more than a few thousand
records do.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from millstream.wire.topic_partition import TopicPartition

PACK = 20_000  # offsets; below this, partitions share a task


class Range(NamedTuple):
    """The records with first <= offset < until of one partition. There may be fewer than until - first of
    them."""

    topic: str
    partition: int
    first: int
    until: int

    @property
    def size(self) -> int:
        return self.until - self.first


Plan = list[list[Range]]


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
    """What lies between two offsets, in the order of topics and partitions; a partition without a start is
    left out."""
    return [
        Range(*topic_partition, start[topic_partition], end[topic_partition])
        for topic_partition in sorted(end)
        if topic_partition in start and end[topic_partition] > start[topic_partition]
    ]


def share(ranges: Sequence[Range], max_offsets: int) -> list[Range]:
    """At most `max_offsets` offsets, each partition in proportion. Every partition gets at least one offset
    while there are enough, so that none starves; what rounding leaves over goes to the largest."""
    total = sum(piece.size for piece in ranges)
    if total <= max_offsets:
        return list(ranges)
    given = [max(1, piece.size * max_offsets // total) for piece in ranges]
    order = sorted(range(len(ranges)), key=lambda index: (-ranges[index].size, index))
    spare = max_offsets - sum(given)
    # Many partitions, few offsets: the largest ones give, then all but some go without.
    for index in order if spare < 0 else ():
        back = min(-spare, given[index] - 1)
        given[index] -= back
        spare += back
    for index in reversed(order) if spare < 0 else ():
        if spare < 0:
            given[index], spare = given[index] - 1, spare + 1
    for index in order if spare > 0 else ():
        more = min(spare, ranges[index].size - given[index])
        given[index] += more
        spare -= more
    return [
        piece._replace(until=piece.first + size) for piece, size in zip(ranges, given, strict=True) if size
    ]


def split(ranges: Sequence[Range], min_tasks: int | None = None, max_records: int | None = None) -> Plan:
    """The tasks of one batch."""
    pieces = [
        piece
        for whole in ranges
        for piece in _cut(whole, -(-whole.size // max_records) if max_records else 1)
    ]
    if min_tasks is not None and len(pieces) < min_tasks:
        pieces = _at_least(pieces, min_tasks)
    if min_tasks is not None or max_records is not None:
        return [[piece] for piece in pieces]
    plan: Plan = []
    load = 0
    for piece in sorted(pieces, key=lambda piece: (piece.size >= PACK, piece.topic, piece.partition)):
        if plan and load + piece.size <= PACK:
            plan[-1].append(piece)
            load += piece.size
        else:
            plan.append([piece])
            load = piece.size
    return plan


def _at_least(pieces: list[Range], tasks: int) -> list[Range]:
    """Cut the pieces, large ones more often, until there are `tasks` (or every piece is one offset)."""
    total = sum(piece.size for piece in pieces)
    counts = [max(1, min(piece.size, piece.size * tasks // total)) for piece in pieces]
    while sum(counts) < tasks:
        open_to_cut = [index for index, piece in enumerate(pieces) if counts[index] < piece.size]
        if not open_to_cut:
            break
        counts[max(open_to_cut, key=lambda index: (pieces[index].size / counts[index], -index))] += 1
    return [cut for piece, count in zip(pieces, counts, strict=True) for cut in _cut(piece, count)]


def _cut(whole: Range, count: int) -> list[Range]:
    edges = [whole.first + whole.size * index // count for index in range(count + 1)]
    return [whole._replace(first=first, until=until) for first, until in pairwise(edges) if until > first]
