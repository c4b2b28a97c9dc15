"""Messages of a topic, a page at a time, in either direction, and the live tail.

A page is made of all partitions: each is read for as many records as the page has room for, they are merged
by timestamp, and the positions after (or before) those that were taken are where the next page begins. So
nothing is left out or shown twice while paging, and no state is kept on the server.
"""

import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.client import EARLIEST, LATEST, Cluster, Fetched, Fetcher, visible_batches
from millstream.client.cluster import Topic
from millstream.client.fetch import next_offset
from millstream.console import cluster_queries
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.records import Record, iter_records
from millstream.wire.topic_partition import TopicPartition

Positions = dict[int, int]  # partition -> offset

PATIENCE = 4.0  # seconds for one page
BUDGET = 24 << 20  # bytes read at a time for one page
WIDEN = 8  # backwards through a compacted topic: windows grow by this factor
TAIL_BATCH = 50
TOO_MUCH = "There is too much to read for one page, so it may be incomplete."


class Found(NamedTuple):
    partition: int
    record: Record


@dataclass(slots=True)
class MessagePage:
    messages: list[Found]
    older: Positions
    newer: Positions
    has_older: bool
    has_newer: bool
    notes: list[str] = field(default_factory=list)


class _Bounds(NamedTuple):
    starts: Positions
    ends: Positions


def topic_of(cluster: Cluster, name: str) -> Topic:
    """Asked for anew: it may have been deleted, or made again, since this connection last heard of it."""
    problem = cluster.refresh([name]).get(name)
    if problem is not None:
        raise problem
    found = cluster.topics.get(name)
    if found is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {name} does not exist")
    return found


def bounds(cluster: Cluster, name: str, partition: int | None) -> _Bounds:
    topic = topic_of(cluster, name)
    if partition is not None and partition not in topic.partitions:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {name} has no partition {partition}")
    starts = cluster_queries.offsets(cluster, EARLIEST, [name])
    ends = cluster_queries.offsets(cluster, LATEST, [name])
    chosen = [partition] if partition is not None else list(topic.partitions)
    return _Bounds(
        {p: starts[TopicPartition(name, p)] for p in chosen if (name, p) in starts and (name, p) in ends},
        {p: ends[TopicPartition(name, p)] for p in chosen if (name, p) in starts and (name, p) in ends},
    )


def at_time(cluster: Cluster, name: str, partition: int | None, moment: int) -> Positions:
    """The first offset at or after a moment in each partition; the end where there is none."""
    _, ends = bounds(cluster, name, partition)
    found = cluster_queries.offsets(cluster, moment, [name])
    return {
        p: found[TopicPartition(name, p)] if found.get(TopicPartition(name, p), -1) >= 0 else end
        for p, end in ends.items()
    }


def after(
    cluster: Cluster,
    name: str,
    wanted: Positions | None,
    limit: int,
    *,
    partition: int | None = None,
    committed: bool = False,
) -> MessagePage:
    """The page that begins at these positions (None: at the beginning), oldest first."""
    limits = bounds(cluster, name, partition)
    notes = _missing(cluster, name, partition, limits)
    start = {
        p: min(max((wanted or {}).get(p, first), first), limits.ends[p]) for p, first in limits.starts.items()
    }
    windows = {p: (offset, limits.ends[p]) for p, offset in start.items() if offset < limits.ends[p]}
    got = _Collector(cluster, name, committed).read(windows, limit, notes)
    merged = heapq.merge(
        *([Found(p, r) for r in records] for p, records in got.records.items()),
        key=lambda one: one.record.timestamp,
    )
    taken = [one for one, _ in zip(merged, range(limit), strict=False)]
    newer = dict(start)
    for p, position in got.positions.items():
        if not got.records.get(p):
            newer[p] = position  # nothing but gaps and markers up to here
    counts: dict[int, int] = {}
    for one in taken:
        newer[one.partition] = one.record.offset + 1
        counts[one.partition] = counts.get(one.partition, 0) + 1
    for p, records in got.records.items():
        if records and counts.get(p, 0) == len(records) and p in got.positions and len(records) < limit:
            newer[p] = max(newer[p], got.positions[p])
    return MessagePage(
        taken,
        start,
        newer,
        any(offset > limits.starts[p] for p, offset in start.items()),
        any(offset < limits.ends[p] for p, offset in newer.items()),
        notes,
    )


def before(
    cluster: Cluster,
    name: str,
    wanted: Positions | None,
    limit: int,
    *,
    partition: int | None = None,
    committed: bool = False,
) -> MessagePage:
    """The page that ends before these positions (None: at the end), newest first."""
    limits = bounds(cluster, name, partition)
    notes = _missing(cluster, name, partition, limits)
    stop = {p: min(max((wanted or {}).get(p, end), limits.starts[p]), end) for p, end in limits.ends.items()}
    found: dict[int, list[Record]] = {}
    low = dict(stop)
    left = {p for p, offset in stop.items() if offset > limits.starts[p]}
    width = limit
    deadline = time.monotonic() + PATIENCE
    while left and time.monotonic() < deadline:
        windows = {p: (max(limits.starts[p], low[p] - width), low[p]) for p in left}
        got = _Collector(cluster, name, committed).read(windows, None, notes)
        for p, (first, last) in windows.items():
            if got.positions[p] >= last or not got.unfinished:
                found[p] = got.records.get(p, []) + found.get(p, [])
                low[p] = first
        if got.unfinished:
            # Large messages: what was read is the older part of the window, and what comes before `last` was
            # not. So the windows are made smaller, and the page has fewer messages.
            notes[:] = [note for note in notes if note != TOO_MUCH]
            left = {p for p in left if not found.get(p) and low[p] > limits.starts[p]}
            if width == 1:
                notes.append(TOO_MUCH)
                break
            width = max(1, width // WIDEN)
            continue
        left = {p for p in left if len(found.get(p, ())) < limit and low[p] > limits.starts[p]}
        if sum(map(len, found.values())) >= limit and all(found.get(p) for p in left):
            break
        width *= WIDEN
    merged = heapq.merge(
        *([Found(p, r) for r in reversed(records)] for p, records in found.items()),
        key=lambda one: -one.record.timestamp,
    )
    taken = [one for one, _ in zip(merged, range(limit), strict=False)]
    older = dict(stop)
    shown = {p: 0 for p in found}
    for one in taken:
        older[one.partition] = one.record.offset
        shown[one.partition] += 1
    for p, records in found.items():
        if shown[p] == len(records):
            older[p] = low[p]
    return MessagePage(
        taken,
        older,
        stop,
        any(offset > limits.starts[p] for p, offset in older.items()),
        any(offset < limits.ends[p] for p, offset in stop.items()),
        notes,
    )


def one(cluster: Cluster, name: str, partition: int, offset: int) -> Record:
    """One record. KafkaError if there is none at that offset."""
    limits = bounds(cluster, name, partition)
    first, end = limits.starts.get(partition, 0), limits.ends.get(partition, 0)
    if not first <= offset < end:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"partition {partition} has offsets {first} to {end - 1}, not {offset}",
        )
    notes: list[str] = []
    got = _Collector(cluster, name, False).read({partition: (offset, offset + 1)}, None, notes)
    records = got.records.get(partition)
    if not records:
        reason = notes[0] if notes else "it was removed by compaction, or is a transaction marker"
        raise KafkaError(ErrorCode.offset_out_of_range, f"no record at offset {offset}: {reason}")
    return records[0]


@dataclass(slots=True)
class _Got:
    records: dict[int, list[Record]]
    positions: Positions
    unfinished: bool


class _Collector:
    """Reads windows of offsets, within a budget of time and bytes."""

    def __init__(self, cluster: Cluster, topic: str, committed: bool) -> None:
        self._topic = topic
        self._committed = committed
        self._fetcher = Fetcher(cluster, read_committed=committed, max_bytes=BUDGET // 2)
        self._deadline = time.monotonic() + PATIENCE
        self._room = BUDGET

    def read(self, windows: Mapping[int, tuple[int, int]], limit: int | None, notes: list[str]) -> _Got:
        positions = {p: first for p, (first, _) in windows.items()}
        records: dict[int, list[Record]] = {p: [] for p in windows}
        left = set(windows)
        while left and self._room > 0 and time.monotonic() < self._deadline:
            answers = self._fetcher.poll(
                {TopicPartition(self._topic, p): positions[p] for p in left}, max_wait_ms=200
            )
            for answer in answers:
                p = answer.partition
                if answer.error is not ErrorCode.none:
                    notes.append(f"Partition {p}: {answer.error.name.replace('_', ' ')}.")
                    left.discard(p)
                    continue
                self._room -= len(answer.records)
                stop = windows[p][1]
                for header, batch in visible_batches(answer, positions[p], self._committed):
                    try:
                        for record in iter_records(batch):
                            if positions[p] <= record.offset < stop:
                                records[p].append(record)
                    except KafkaError as error:
                        notes.append(f"Partition {p}, batch at offset {header.base_offset}: {error.message}.")
                    if limit is not None and len(records[p]) >= limit:
                        break
                after_all = next_offset(answer, positions[p])
                enough = limit is not None and len(records[p]) >= limit
                if enough:
                    positions[p] = records[p][-1].offset + 1
                else:
                    positions[p] = after_all
                if (
                    enough
                    or positions[p] >= stop
                    or (not len(answer.records) and positions[p] >= answer.high_watermark)
                ):
                    left.discard(p)
        if left:
            notes.append(TOO_MUCH)
        return _Got(records, positions, bool(left))


def _missing(cluster: Cluster, name: str, partition: int | None, limits: _Bounds) -> list[str]:
    chosen = [partition] if partition is not None else list(cluster.topics[name].partitions)
    missing = [str(p) for p in chosen if p not in limits.ends]
    return [f"No leader answers for partition {', '.join(missing)}."] if missing else []


def follow(
    cluster: Cluster,
    name: str,
    partition: int | None,
    deliver: Callable[[list[Found], int], None],
    stopped: Callable[[], bool],
    started: Callable[[], None],
) -> None:
    """The live tail: `deliver` gets new records, at most so many a round, and how many were left out. What is
    written after `started` was called is new."""
    positions = {TopicPartition(name, p): end for p, end in bounds(cluster, name, partition).ends.items()}
    started()
    fetcher = Fetcher(cluster, max_bytes=4 << 20)
    while not stopped():
        fresh: list[Found] = []
        skipped = 0
        for answer in fetcher.poll(positions, max_wait_ms=400):
            place = TopicPartition(name, answer.partition)
            if answer.error is ErrorCode.offset_out_of_range:
                positions[place] = max(answer.log_start_offset, 0)
                continue
            for found in _records(answer, positions[place]):
                fresh.append(Found(answer.partition, found))
            positions[place] = next_offset(answer, positions[place])
            behind = answer.high_watermark - TAIL_BATCH - positions[place]
            if behind > 0:  # faster than can be followed: on to the end
                skipped += behind
                positions[place] += behind
        if fresh:
            fresh.sort(key=lambda one: one.record.timestamp)
            deliver(fresh[-TAIL_BATCH:], skipped + max(0, len(fresh) - TAIL_BATCH))
            time.sleep(0.25)  # a reader's eyes are slower than the topic


def _records(answer: Fetched, position: int) -> Iterator[Record]:
    for _, batch in visible_batches(answer, position):
        try:
            for record in iter_records(batch):
                if record.offset >= position:
                    yield record
        except KafkaError:
            continue
