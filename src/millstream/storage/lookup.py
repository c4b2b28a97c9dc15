"""Questions about a log other than "what is at this offset": by time, by transaction, by producer.

Time questions are answered exactly, to the record: the time index leads to the neighbourhood, headers to the
batch, and only that one batch is opened. One that is too large to be opened by the event loop is answered by
its header, that is, with its first record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.storage.segment import Segment
from millstream.storage.transactions import AbortedTransaction
from millstream.wire.batch import read_header
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from millstream.storage.log import PartitionLog


# What is opened to answer a question, in some ten milliseconds. Clients build smaller batches.
MAX_RECORDS, MAX_BYTES = 16 * 1024, 4 << 20
MAX_FRUITLESS = 4  # batches without the record that their header promises


class TimedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class ProducerState(NamedTuple):
    """What DescribeProducers tells about one producer; -1 where there is nothing to tell."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_start_offset: int


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimedOffset | None:
    """The first record that is not older than `timestamp`."""
    fruitless = 0
    for segment in list(log.segments):
        if not segment.size or segment.newest()[0] < timestamp:
            continue
        known = segment.time_index.lookup(timestamp)[1]
        start = segment.index.lookup(max(known, log.start_offset))
        for position, _, size, last, newest in segment.walk(start, whole=True):
            if newest >= timestamp and last >= log.start_offset:
                found = _record_since(
                    segment, position, size, timestamp, log.start_offset, fruitless < MAX_FRUITLESS
                )
                if found is not None:
                    return found
                fruitless += 1
    return None


def _record_since(
    segment: Segment, position: int, size: int, timestamp: int, start: int, may_open: bool = True
) -> TimedOffset | None:
    from millstream.wire.record_walk import record_times

    batch = segment.read(position, size)
    header = read_header(batch)
    if may_open and header.record_count <= MAX_RECORDS:
        try:
            for offset, when in record_times(batch, MAX_BYTES):
                if when >= timestamp and offset >= start:
                    return TimedOffset(when, offset, header.leader_epoch)
            return None
        except KafkaError:  # too large, or nobody looked inside when it was produced
            pass
    return TimedOffset(header.max_timestamp, max(header.base_offset, start), header.leader_epoch)


def max_timestamp(log: PartitionLog) -> TimedOffset | None:
    """The newest record, the first of them if several are equally new; None if no record carries a time."""
    best: Segment | None = None
    for segment in log.segments:
        if (
            segment.size
            and segment.newest()[0] >= 0
            and (best is None or segment.newest()[0] > best.newest()[0])
        ):
            best = segment
    if best is None:
        return None
    timestamp, offset = best.newest()
    found = best.find(offset)
    if found is None:
        return None
    position, _, size = found
    epoch = best.header_at(position).leader_epoch
    exact = _record_since(best, position, size, timestamp, 0)
    return exact if exact is not None else TimedOffset(timestamp, offset, epoch)


def aborted_transactions(log: PartitionLog, start: int, stop: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in [start, stop), for a read_committed reader of that range."""
    found: list[AbortedTransaction] = []
    for segment in log.segments:
        if segment.end_offset > start and segment.txn_index.collect(start, stop, found):
            break
    return found


def describe_producers(log: PartitionLog) -> list[ProducerState]:
    return [
        ProducerState(
            producer.id,
            producer.epoch,
            producer.last_sequence,
            producer.timestamp,
            producer.coordinator_epoch,
            producer.txn_first_offset,
        )
        for producer in log.producers.by_id.values()
    ]
