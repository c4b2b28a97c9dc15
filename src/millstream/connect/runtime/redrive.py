"""Redrive: a sink's dead letters once more, through its present converters and transforms, to the sink alone.

The first task of the sink reads the letters beside its own partitions, up to where their topic ended when it
was asked for, and commits how far it is in the sink's own group. So letters are in the order and under the
guarantees of everything else that the sink writes, and no other consumer of the topic sees them. What fails
again becomes a letter again, behind that end, with one more in the header `__millstream.redrives`.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.connect.data.record import SinkRecord
from millstream.connect.runtime.dead_letters import HEADER_PREFIX
from millstream.wire.records import Record
from millstream.wire.topic_partition import TopicPartition

COUNT_HEADER = "__millstream.redrives"


@dataclass(frozen=True, slots=True)
class Redrive:
    """The topic of the letters, and where each of its partitions ended."""

    topic: str
    until: tuple[tuple[int, int], ...]

    def ends(self) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic, number): end for number, end in self.until}


def belongs(record: Record, connector: str) -> bool:
    """Several connectors may share a topic of letters. One without context headers counts as ours."""
    for name, value in record.headers:
        if name == f"{HEADER_PREFIX}connector.name":
            return value == connector.encode()
    return True


def original(which: TopicPartition, letter: Record) -> tuple[TopicPartition, Record]:
    """The record as it was where it came from."""
    context = {name.removeprefix(HEADER_PREFIX): value for name, value in letter.headers}
    topic, partition, offset = (context.get(name) for name in ("topic", "partition", "offset"))
    kept = tuple(
        (name, value)
        for name, value in letter.headers
        if not name.startswith(HEADER_PREFIX) and name != COUNT_HEADER
    )
    if topic is None or partition is None or offset is None:
        return which, letter._replace(headers=kept)
    place = TopicPartition(topic.decode(), int(partition))
    return place, letter._replace(headers=kept, offset=int(offset))


def told_apart(record: SinkRecord, which: TopicPartition, letter: Record) -> SinkRecord:
    """Sinks that count by where a record was read count the letter, not the record that it once was."""
    record.original_topic, record.original_partition = which
    record.original_offset = letter.offset
    record.wire = letter
    return record


def counted(letter: Record) -> Record:
    """One more try."""
    tries = 0
    headers = []
    for name, value in letter.headers:
        if name == COUNT_HEADER and value is not None and value.isdigit():
            tries = int(value)
        elif not name.startswith(HEADER_PREFIX):
            headers.append((name, value))
    return letter._replace(headers=(*headers, (COUNT_HEADER, str(tries + 1).encode())))
