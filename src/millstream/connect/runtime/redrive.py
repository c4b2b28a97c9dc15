"""Redrive: a sink's dead letters once more, through its present converters and transforms, to the sink alone.

The first task of the sink reads them beside its own partitions, up to where their topic ended when it
was asked for, and commits how far it is in the sink's own group. So they are in the order and under the
guarantees of everything else that the sink writes, and no other consumer of the topic sees them. What fails
again becomes a dead letter again, behind that end, with one more in the header `__millstream.redrives`. With
`where` only those are taken that an expression (`millstream.filters`) chooses; the others are written again,
unchanged, behind that end, so that the next redrive finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millstream.connect.data.record import SinkRecord
from millstream.connect.runtime.dead_letters import HEADER_PREFIX
from millstream.filters import Filter
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition

COUNT_HEADER = "__millstream.redrives"


@dataclass(frozen=True, slots=True)
class Redrive:
    """The dead letter queue, and where each of its partitions ended."""

    topic: str
    until: tuple[tuple[int, int], ...]
    where: str = ""

    def ends(self) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic, number): end for number, end in self.until}


def belongs(record: Record, connector: str) -> bool:
    """Several connectors may share a dead letter queue. One without context headers counts as ours."""
    for name, value in record.headers:
        if name == f"{HEADER_PREFIX}connector.name":
            return value == connector.encode()
    return True


class Candidate(NamedTuple):
    """What `where` is asked of: the record with its topic, partition, offset and time as they once were, and
    all headers of the dead letter, so that errors can be asked for too."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def is_chosen(where: Filter, which: TopicPartition, dead_letter: Record) -> bool:
    source, before = original(which, dead_letter)
    return where(
        Candidate(
            source.topic,
            source.partition,
            before.offset,
            before.timestamp,
            before.key,
            before.value,
            dead_letter.headers,
        )
    )


def original(which: TopicPartition, dead_letter: Record) -> tuple[TopicPartition, Record]:
    """The record as it was where it came from."""
    context = {name.removeprefix(HEADER_PREFIX): value for name, value in dead_letter.headers}
    topic, partition, offset = (context.get(name) for name in ("topic", "partition", "offset"))
    kept = tuple(
        (name, value)
        for name, value in dead_letter.headers
        if not name.startswith(HEADER_PREFIX) and name != COUNT_HEADER
    )
    if topic is None or partition is None or offset is None:
        return which, dead_letter._replace(headers=kept)
    source = TopicPartition(topic.decode(), int(partition))
    return source, dead_letter._replace(headers=kept, offset=int(offset))


def at_dead_letter(record: SinkRecord, which: TopicPartition, dead_letter: Record) -> SinkRecord:
    """Sinks that count by where a record was read count the dead letter, not the record that it once was."""
    record.original_topic, record.original_partition = which
    record.original_offset = dead_letter.offset
    record.wire = dead_letter
    return record


def count_redrive(dead_letter: Record) -> Record:
    """One more try."""
    tries = 0
    headers = []
    for name, value in dead_letter.headers:
        if name == COUNT_HEADER and value is not None and value.isdigit():
            tries = int(value)
        elif not name.startswith(HEADER_PREFIX):
            headers.append((name, value))
    return dead_letter._replace(headers=(*headers, (COUNT_HEADER, str(tries + 1).encode())))
