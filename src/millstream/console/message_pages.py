"""Messages of a topic, a page at a time, in either direction, and the live tail.

A page is made of all partitions: each is read for as many records as the page has room for, they are merged
by timestamp, and the positions after (or before) those that were taken are where the next page begins. So
nothing is remaining out or shown twice while paging, and no state is kept on the server.
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

PAGE_TIMEOUT = 4.0  # seconds for one page
MAX_PAGE_BYTES = 24 << 20  # bytes read at a time for one page
WINDOW_GROWTH = 8  # backwards through a compacted topic: windows grow by this factor
TAIL_BATCH = 50
TOO_MUCH = "There is too much to read for one page, so it may be incomplete."


class PartitionRecord(NamedTuple):
    partition: int
    record: Record


@dataclass(slots=True)
class MessagePage:
    messages: list[PartitionRecord]
    older: Positions
    newer: Positions
    has_older: bool
    has_newer: bool
    notes: list[str] = field(default_factory=list)


class LogBounds(NamedTuple):
    starts: Positions
    ends: Positions


def get_topic(cluster: Cluster, name: str) -> Topic:
    """Asked for anew: it may have been deleted, or made again, since this connection last heard of it."""
    problem = cluster.refresh([name]).get(name)
    if problem is not None:
        raise problem
    found = cluster.topics.get(name)
    if found is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {name} does not exist")
    return found


def log_bounds(cluster: Cluster, name: str, partition: int | None) -> LogBounds:
    topic = get_topic(cluster, name)
    if partition is not None and partition not in topic.partitions:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {name} has no partition {partition}")
    starts = cluster_queries.list_offsets(cluster, EARLIEST, [name])
    ends = cluster_queries.list_offsets(cluster, LATEST, [name])
    chosen = [partition] if partition is not None else list(topic.partitions)
    return LogBounds(
        {
            index: starts[TopicPartition(name, index)]
            for index in chosen
            if (name, index) in starts and (name, index) in ends
        },
        {
            index: ends[TopicPartition(name, index)]
            for index in chosen
            if (name, index) in starts and (name, index) in ends
        },
    )


def offsets_at_time(cluster: Cluster, name: str, partition: int | None, timestamp: int) -> Positions:
    """The first offset at or after a time in each partition; the end where there is none."""
    _, ends = log_bounds(cluster, name, partition)
    found = cluster_queries.list_offsets(cluster, timestamp, [name])
    return {
        index: found[TopicPartition(name, index)] if found.get(TopicPartition(name, index), -1) >= 0 else end
        for index, end in ends.items()
    }


def page_after(
    cluster: Cluster,
    name: str,
    wanted: Positions | None,
    limit: int,
    *,
    partition: int | None = None,
    committed: bool = False,
) -> MessagePage:
    """The page that begins at these positions (None: at the beginning), oldest first."""
    limits = log_bounds(cluster, name, partition)
    notes = _leaderless_notes(cluster, name, partition, limits)
    start = {
        index: min(max((wanted or {}).get(index, first), first), limits.ends[index])
        for index, first in limits.starts.items()
    }
    windows = {
        index: (offset, limits.ends[index]) for index, offset in start.items() if offset < limits.ends[index]
    }
    result = _WindowReader(cluster, name, committed).read(windows, limit, notes)
    merged = heapq.merge(
        *(
            [PartitionRecord(index, record) for record in records]
            for index, records in result.records.items()
        ),
        key=lambda found: found.record.timestamp,
    )
    taken = [entry for entry, _ in zip(merged, range(limit), strict=False)]
    newer = dict(start)
    for index, position in result.positions.items():
        if not result.records.get(index):
            newer[index] = position  # nothing but gaps and markers up to here
    counts: dict[int, int] = {}
    for entry in taken:
        newer[entry.partition] = entry.record.offset + 1
        counts[entry.partition] = counts.get(entry.partition, 0) + 1
    for index, records in result.records.items():
        if (
            records
            and counts.get(index, 0) == len(records)
            and index in result.positions
            and len(records) < limit
        ):
            newer[index] = max(newer[index], result.positions[index])
    return MessagePage(
        taken,
        start,
        newer,
        any(offset > limits.starts[index] for index, offset in start.items()),
        any(offset < limits.ends[index] for index, offset in newer.items()),
        notes,
    )


def page_before(
    cluster: Cluster,
    name: str,
    wanted: Positions | None,
    limit: int,
    *,
    partition: int | None = None,
    committed: bool = False,
) -> MessagePage:
    """The page that ends before these positions (None: at the end), newest first."""
    limits = log_bounds(cluster, name, partition)
    notes = _leaderless_notes(cluster, name, partition, limits)
    stop = {
        index: min(max((wanted or {}).get(index, end), limits.starts[index]), end)
        for index, end in limits.ends.items()
    }
    found: dict[int, list[Record]] = {}
    low = dict(stop)
    remaining = {index for index, offset in stop.items() if offset > limits.starts[index]}
    width = limit
    deadline = time.monotonic() + PAGE_TIMEOUT
    while remaining and time.monotonic() < deadline:
        windows = {index: (max(limits.starts[index], low[index] - width), low[index]) for index in remaining}
        result = _WindowReader(cluster, name, committed).read(windows, None, notes)
        for index, (first, last) in windows.items():
            if result.positions[index] >= last or not result.unfinished:
                found[index] = result.records.get(index, []) + found.get(index, [])
                low[index] = first
        if result.unfinished:
            # Large messages: what was read is the older part of the window, and what comes before `last` was
            # not. So the windows are made smaller, and the page has fewer messages.
            notes[:] = [note for note in notes if note != TOO_MUCH]
            remaining = {
                index for index in remaining if not found.get(index) and low[index] > limits.starts[index]
            }
            if width == 1:
                notes.append(TOO_MUCH)
                break
            width = max(1, width // WINDOW_GROWTH)
            continue
        remaining = {
            index
            for index in remaining
            if len(found.get(index, ())) < limit and low[index] > limits.starts[index]
        }
        if sum(map(len, found.values())) >= limit and all(found.get(index) for index in remaining):
            break
        width *= WINDOW_GROWTH
    merged = heapq.merge(
        *(
            [PartitionRecord(index, record) for record in reversed(records)]
            for index, records in found.items()
        ),
        key=lambda found: -found.record.timestamp,
    )
    taken = [entry for entry, _ in zip(merged, range(limit), strict=False)]
    older = dict(stop)
    shown = {index: 0 for index in found}
    for entry in taken:
        older[entry.partition] = entry.record.offset
        shown[entry.partition] += 1
    for index, records in found.items():
        if shown[index] == len(records):
            older[index] = low[index]
    return MessagePage(
        taken,
        older,
        stop,
        any(offset > limits.starts[index] for index, offset in older.items()),
        any(offset < limits.ends[index] for index, offset in stop.items()),
        notes,
    )


def record_at(cluster: Cluster, name: str, partition: int, offset: int) -> Record:
    """One record. KafkaError if there is none at that offset."""
    limits = log_bounds(cluster, name, partition)
    first, end = limits.starts.get(partition, 0), limits.ends.get(partition, 0)
    if not first <= offset < end:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"partition {partition} has offsets {first} to {end - 1}, not {offset}",
        )
    notes: list[str] = []
    result = _WindowReader(cluster, name, False).read({partition: (offset, offset + 1)}, None, notes)
    records = result.records.get(partition)
    if not records:
        reason = notes[0] if notes else "it was removed by compaction, or is a transaction marker"
        raise KafkaError(ErrorCode.offset_out_of_range, f"no record at offset {offset}: {reason}")
    return records[0]


@dataclass(slots=True)
class _ReadResult:
    records: dict[int, list[Record]]
    positions: Positions
    unfinished: bool


class _WindowReader:
    """Reads windows of offsets, within a budget of time and bytes."""

    def __init__(self, cluster: Cluster, topic: str, committed: bool) -> None:
        self._topic = topic
        self._committed = committed
        self._fetcher = Fetcher(cluster, read_committed=committed, max_bytes=MAX_PAGE_BYTES // 2)
        self._deadline = time.monotonic() + PAGE_TIMEOUT
        self._room = MAX_PAGE_BYTES

    def read(
        self, windows: Mapping[int, tuple[int, int]], limit: int | None, notes: list[str]
    ) -> _ReadResult:
        positions = {index: first for index, (first, _) in windows.items()}
        records: dict[int, list[Record]] = {index: [] for index in windows}
        remaining = set(windows)
        while remaining and self._room > 0 and time.monotonic() < self._deadline:
            answers = self._fetcher.poll(
                {TopicPartition(self._topic, index): positions[index] for index in remaining}, max_wait_ms=200
            )
            for answer in answers:
                index = answer.partition
                if answer.error is not ErrorCode.none:
                    notes.append(f"Partition {index}: {answer.error.name.replace('_', ' ')}.")
                    remaining.discard(index)
                    continue
                self._room -= len(answer.records)
                stop = windows[index][1]
                for header, batch in visible_batches(answer, positions[index], self._committed):
                    try:
                        for record in iter_records(batch):
                            if positions[index] <= record.offset < stop:
                                records[index].append(record)
                    except KafkaError as error:
                        notes.append(
                            f"Partition {index}, batch at offset {header.base_offset}: {error.message}."
                        )
                    if limit is not None and len(records[index]) >= limit:
                        break
                after_all = next_offset(answer, positions[index])
                enough = limit is not None and len(records[index]) >= limit
                if enough:
                    positions[index] = records[index][-1].offset + 1
                else:
                    positions[index] = after_all
                if (
                    enough
                    or positions[index] >= stop
                    or (not len(answer.records) and positions[index] >= answer.high_watermark)
                ):
                    remaining.discard(index)
        if remaining:
            notes.append(TOO_MUCH)
        return _ReadResult(records, positions, bool(remaining))


def _leaderless_notes(cluster: Cluster, name: str, partition: int | None, limits: LogBounds) -> list[str]:
    chosen = [partition] if partition is not None else list(cluster.topics[name].partitions)
    missing = [str(index) for index in chosen if index not in limits.ends]
    return [f"No leader answers for partition {', '.join(missing)}."] if missing else []


def tail(
    cluster: Cluster,
    name: str,
    partition: int | None,
    deliver: Callable[[list[PartitionRecord], int], None],
    stopped: Callable[[], bool],
    started: Callable[[], None],
) -> None:
    """The live tail: `deliver` gets new records, at most so many a round, and how many were left out. What is
    written after `started` was called is new."""
    positions = {
        TopicPartition(name, index): end for index, end in log_bounds(cluster, name, partition).ends.items()
    }
    started()
    fetcher = Fetcher(cluster, max_bytes=4 << 20)
    while not stopped():
        fresh: list[PartitionRecord] = []
        skipped = 0
        for answer in fetcher.poll(positions, max_wait_ms=400):
            topic_partition = TopicPartition(name, answer.partition)
            if answer.error is ErrorCode.offset_out_of_range:
                positions[topic_partition] = max(answer.log_start_offset, 0)
                continue
            for found in _records(answer, positions[topic_partition]):
                fresh.append(PartitionRecord(answer.partition, found))
            positions[topic_partition] = next_offset(answer, positions[topic_partition])
            behind = answer.high_watermark - TAIL_BATCH - positions[topic_partition]
            if behind > 0:  # faster than can be followed: on to the end
                skipped += behind
                positions[topic_partition] += behind
        if fresh:
            fresh.sort(key=lambda found: found.record.timestamp)
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
