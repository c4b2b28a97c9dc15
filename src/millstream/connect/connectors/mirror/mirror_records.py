"""The records of MirrorMaker's own topics, byte for byte: offset syncs, checkpoints and heartbeats.

A text is its length in two bytes and UTF-8; numbers are big-endian. Values of checkpoints and heartbeats
begin with a version, 0. What cannot be read is None: a reader leaves it out.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from millstream.wire.topic_partition import TopicPartition

_TWO_OFFSETS = struct.Struct(">qq")
_VERSION = struct.pack(">h", 0)


class OffsetSync(NamedTuple):
    """A record of the source, and where it stands in the target."""

    topic_partition: TopicPartition
    upstream: int
    downstream: int

    @property
    def key(self) -> bytes:
        return _text(self.topic_partition.topic) + struct.pack(">i", self.topic_partition.partition)

    @property
    def value(self) -> bytes:
        return _TWO_OFFSETS.pack(self.upstream, self.downstream)

    @classmethod
    def read(cls, key: bytes | None, value: bytes | None) -> OffsetSync | None:
        if key is None or value is None:
            return None
        try:
            topic, at = _read_text(key, 0)
            (partition,) = struct.unpack_from(">i", key, at)
            return cls(TopicPartition(topic, partition), *_TWO_OFFSETS.unpack_from(value))
        except (struct.error, ValueError):
            return None


class Checkpoint(NamedTuple):
    """A group's offset in the source, and what it is in the target. The topic is the target's."""

    group: str
    topic_partition: TopicPartition
    upstream: int
    downstream: int
    metadata: str

    @property
    def key(self) -> bytes:
        topic, partition = self.topic_partition
        return _text(self.group) + _text(topic) + struct.pack(">i", partition)

    @property
    def value(self) -> bytes:
        return _VERSION + _TWO_OFFSETS.pack(self.upstream, self.downstream) + _text(self.metadata)

    @classmethod
    def read(cls, key: bytes | None, value: bytes | None) -> Checkpoint | None:
        if key is None or value is None or value[:2] != _VERSION:
            return None
        try:
            group, at = _read_text(key, 0)
            topic, at = _read_text(key, at)
            (partition,) = struct.unpack_from(">i", key, at)
            upstream, downstream = _TWO_OFFSETS.unpack_from(value, 2)
            metadata, _ = _read_text(value, 2 + _TWO_OFFSETS.size)
        except (struct.error, ValueError):
            return None
        return cls(group, TopicPartition(topic, partition), upstream, downstream, metadata)


class Heartbeat(NamedTuple):
    source: str
    target: str
    timestamp: int

    @property
    def key(self) -> bytes:
        return _text(self.source) + _text(self.target)

    @property
    def value(self) -> bytes:
        return _VERSION + struct.pack(">q", self.timestamp)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError("a text ends too early")
    return data[at + 2 : end].decode(), end
