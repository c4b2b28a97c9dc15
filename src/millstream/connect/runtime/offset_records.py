"""A source's offsets as Kafka's workers keep them: records of a compacted topic.

The key is `["connector",{source partition}]`, the value the offset, both JSON without schemas. Kafka finds an
offset by the bytes of its key, so the fields of a source partition have to stand in the order in which Java's
HashMap has them: ours do, and a task can go from a Java worker to ours and back.

The topic is read without waiting for other tasks' open transactions: what belongs to a transaction counts
when its end is there. Ours has ended, because whoever reads has taken the transactional id before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.client import EARLIEST, LATEST, Cluster, Fetcher, list_offsets
from millstream.connect.errors import ConnectError
from millstream.wire.records import COMMIT_MARKER, Record, control_type, iter_batches, iter_records
from millstream.wire.topic_partition import TopicPartition

Partition = Mapping[str, Any]


def offset_key(connector: str, partition: Partition) -> bytes:
    return _json([connector, _in_java_order(partition)])


def offset_value(offset: Mapping[str, Any] | None) -> bytes | None:
    return None if offset is None else _json(_in_java_order(offset))


def read_key(key: bytes | None) -> tuple[str, dict[str, Any]] | None:
    """The connector and the source partition; None for what is no such key."""
    try:
        found = json.loads(key or b"")
    except ValueError:
        return None
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], str):
        return None
    return (found[0], found[1]) if isinstance(found[1], dict) else None


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _in_java_order(fields: Mapping[str, Any]) -> dict[str, Any]:
    """By the buckets of a HashMap that has grown to hold them."""
    buckets = 16
    while len(fields) > buckets * 0.75:
        buckets *= 2
    return dict(sorted(fields.items(), key=lambda field: _spread(field[0]) & (buckets - 1)))


def _spread(text: str) -> int:
    """Java's hash of a string, as HashMap spreads it."""
    code = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return code ^ (code >> 16)


class OffsetState:
    """What the log says. Fed with its batches in order; does no I/O."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, str], dict[str, Any]] = {}
        self._partitions: dict[tuple[str, str], dict[str, Any]] = {}
        self._open: dict[int, list[Record]] = {}

    def offset(self, connector: str, partition: Partition) -> dict[str, Any] | None:
        return self._offsets.get((connector, _canonical(partition)))

    def of(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """All partitions of a connector with their offsets."""
        return [
            (self._partitions[key], offset) for key, offset in self._offsets.items() if key[0] == connector
        ]

    def apply(self, data: memoryview | bytes) -> None:
        for header, batch in iter_batches(data):
            if header.is_control:
                held = self._open.pop(header.producer_id, [])
                for marker in iter_records(batch):
                    if control_type(marker.key) == COMMIT_MARKER:
                        self._take(held)
            elif header.is_transactional:
                self._open.setdefault(header.producer_id, []).extend(iter_records(batch))
            else:
                self._take(iter_records(batch))

    def _take(self, records: Iterable[Record]) -> None:
        for record in records:
            self.put(record.key, record.value)

    def put(self, record_key: bytes | None, value: bytes | None) -> None:
        found = read_key(record_key)
        if found is None:
            return
        key = (found[0], _canonical(found[1]))
        if value is None:
            self._offsets.pop(key, None)
            self._partitions.pop(key, None)
            return
        try:
            offset = json.loads(value)
        except ValueError:
            return
        if isinstance(offset, dict):
            self._offsets[key], self._partitions[key] = offset, found[1]


def _canonical(partition: Partition) -> str:
    return json.dumps(partition, sort_keys=True)


def read_offsets(cluster: Cluster, topic: str) -> OffsetState:
    """The whole topic, up to where it ends now."""
    state = OffsetState()
    partitions = [TopicPartition(topic, number) for number in cluster.topic(topic).partitions]
    ends = {
        which: at.offset for which, at in list_offsets(cluster, dict.fromkeys(partitions, LATEST)).items()
    }
    positions = {
        which: at.offset
        for which, at in list_offsets(cluster, dict.fromkeys(partitions, EARLIEST)).items()
        if at.offset < ends[which]
    }
    fetcher = Fetcher(cluster)
    while positions:
        for fetched in fetcher.poll(positions):
            which = TopicPartition(fetched.topic, fetched.partition)
            if fetched.error.value:
                raise ConnectError(f"{which} cannot be read: {fetched.error.name}")
            state.apply(fetched.records)
            for header, _ in iter_batches(fetched.records):
                positions[which] = max(positions[which], header.next_offset)
            if positions[which] >= ends[which]:
                del positions[which]
    return state
